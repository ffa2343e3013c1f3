"""The 25 tables and figures of results of the four papers: by which command, ours, published, and why they differ.

    python benchmarks/papers.py DATA FOLDER

DATA has `cases/*.npz`, `deepest/*.csv` and `images/`: mnist_lenet4, mnist_mutant1_swap80, mnist_mutant2_swap71,
driving_dave and cifar10_convnet8; the five files of the DeepEST authors; fashion.npz with fashion_lenet5.safetensors.
Studies are kept in FOLDER, and only missing ones are run, in about half an hour on two cores.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import markdown_table as markdown
import numpy as np

Results = dict[str, Any]

MODELS = ("mnist_lenet4", "mnist_mutant1_swap80", "mnist_mutant2_swap71")
SUBJECTS = ("CN5_MNIST", "LN5_MNIST", "CN12_CIFAR10", "VGG16_CIFAR10", "VGG16_CIFAR100")
CRITERIA = ("nc:0.25", "nc:0.5", "nc:0.75", "tknc:1", "tknc:2", "tknc:3")
REDUCE = {"method": "deepreduce", "budget": "itself", "repetitions": 1, "label": "DeepReduce"}

COLUMNS = ("table or figure", "study", "ours", "published", "why different")


class Row(NamedTuple):
    """A table or figure of a paper."""

    item: str
    study: str
    ours: Callable[[Results], str]
    published: str
    why: str


# -- studies -------------------------------------------------------------------------------------------------


def studies(data: Path, folder: Path) -> dict[str, list[str]]:
    """Arguments of `opacc study` by name."""
    cases = data / "cases"
    files = {name: str(cases / f"{name}.npz") for name in (*MODELS, "driving_dave", "cifar10_convnet8")}
    reduced = [files["mnist_lenet4"], str(cases / "fashion_lenet5.npz"), files["cifar10_convnet8"]]
    models = ["--model", str(folder / "subjects/lenet5.yaml"), "--model", str(folder / "subjects/perceptron.yaml")]
    return {
        "ces": ["--as", "ces", *(files[name] for name in MODELS)],
        "ces-others": ["--as", "ces", files["driving_dave"], files["cifar10_convnet8"]],
        "ces-small-pools": ["--as", "ces-small-pools", files["mnist_mutant1_swap80"]],
        "deepest": ["--as", "deepest", *(str(data / f"deepest/{name}.csv") for name in SUBJECTS)],
        "deepreduce": ["--as", "deepreduce", *reduced],
        "criteria": [str(folder / "criteria.yaml")],
        "characterization": [
            *("--as", "characterization", str(folder / "subjects/fashion.npz"), *models),
            *("--reference", str(folder / "subjects/train.npz")),
        ],
        "changed-model": [str(folder / "changed-model.yaml")],
    }


def write_specs(data: Path, folder: Path) -> None:
    """Write the study of coverage criteria (Table IV), one case for each."""
    path = str(data / "cases/mnist_lenet4.npz")
    cases = [{"path": path, "name": name.replace(":", "-"), "coverage": name} for name in CRITERIA]
    content = {"cases": cases, "methods": [REDUCE], "divergence": True}
    (folder / "criteria.yaml").write_text(json.dumps(content))


def write_changed_model(folder: Path) -> None:
    """Write a case with the features of one model and the outcomes of another (Table VI), and its study."""
    made = folder / "characterization/cases"
    old, new = (dict(np.load(made / f"fashion-{name}.npz")) for name in ("lenet5", "perceptron"))
    outcome = (new["prediction"] == new["label"]).astype(float)
    np.savez(folder / "changed.npz", **{key: old[key] for key in ("hidden", "output", "confidence")}, outcome=outcome)
    content = {"cases": [str(folder / "changed.npz")], "methods": [REDUCE], "coverage": "nc:0.5"}
    (folder / "changed-model.yaml").write_text(json.dumps(content))


def run_all(data: Path, folder: Path) -> dict[str, Results]:
    """Run the studies that have no results in FOLDER; return all."""
    found, here = {}, Path(__file__).parent
    write_specs(data, folder)
    if not (folder / "subjects").exists():
        made = [sys.executable, str(here / "paper_subjects.py"), str(data / "images"), str(folder / "subjects")]
        subprocess.run(made, check=True)
    path = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    for name, arguments in studies(data, folder).items():
        output = folder / name
        if name == "changed-model":
            write_changed_model(folder)
        if not (output / "results.json").exists():
            print(f"running {name}", file=sys.stderr)
            command = [sys.executable, "-m", "opacc_ray", "study", *arguments, "--output", str(output)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": path})
        found[name] = json.loads((output / "results.json").read_text())
    return found


# -- numbers -------------------------------------------------------------------------------------------------


def cells(results: Results, case: str | None = None, method: str | None = None, budget: int | None = None) -> list[Any]:
    return [
        cell
        for cell in results["cells"]
        if case in (None, cell["case"]) and method in (None, cell["method"]) and budget in (None, cell["budget"])
    ]


def mean_efficiency(results: Results, case: str, method: str = "CES") -> float:
    return float(np.mean([cell["efficiency"] for cell in cells(results, case, method)]))


def table_1(results: Results) -> str:
    return "CES " + ", ".join(f"{mean_efficiency(results, case):.3f}" for case in MODELS)


def small_pools(results: Results) -> str:
    pools = [case["case"] for case in results["cases"]]
    means = [mean_efficiency(results, pool) for pool in pools]
    return f"{np.mean(means):.3f} ± {np.std(means, ddof=1):.3f}, at most {max(means):.3f} ({len(pools)} pools)"


def failures(results: Results) -> str:
    methods = ("DeepEST CS", "DeepEST DSA", "DeepEST LSA", "DeepEST C")
    shown = [
        " / ".join(f"{cells(results, case, method, 200)[0]['failures']:.1f}" for method in methods) for case in SUBJECTS
    ]
    return "; ".join(shown)


def at_200(key: str) -> Callable[[Results], str]:
    """The best method by a key, of the most and the least accurate subject."""

    def best(results: Results) -> str:
        found = []
        for case in (SUBJECTS[0], SUBJECTS[-1]):
            own = {cell["method"]: cell[key] for cell in cells(results, case, budget=200)}
            name = (max if key == "failures" else min)(own, key=lambda method: own[method])
            found.append(f"{name} ({own[name]:.3g}, SRS {own['SRS']:.3g})")
        return "; ".join(found)

    return best


def wins(results: Results) -> str:
    """Wins of each DeepEST variant: pairs of a case and another method with more failures found and a smaller error."""
    found = {}
    for method in (name for name in results["methods"] if name.startswith("DeepEST")):
        own = {case: cells(results, case, method, 200)[0] for case in SUBJECTS}
        found[method.removeprefix("DeepEST ")] = sum(
            own[cell["case"]]["failures"] > cell["failures"] and own[cell["case"]]["mse"] < cell["mse"]
            for cell in cells(results, budget=200)
        )
    return ", ".join(f"{name} {number}" for name, number in found.items()) + " wins"


def nearest(results: Results) -> str:
    worst = max(
        abs(cells(results, case["case"], method, 800)[0]["mean"] - case["accuracy"])
        for case in results["cases"]
        for method in ("DeepEST CS", "DeepEST C")
    )
    return f"mean estimates of CS and C with 800 labels are within {100 * worst:.2f} points of the truth"


def reduced(*methods: str) -> Callable[[Results], str]:
    def sizes(results: Results) -> str:
        found = [(name, cells(results, "mnist_lenet4", name)[0]) for name in methods]
        return ", ".join(f"{name} {cell['labels']:,.0f} (ΔAcc {cell['error']:.4f})" for name, cell in found)

    return sizes


def criteria(results: Results) -> str:
    return ", ".join(f"{cell['labels']:.0f}" for cell in results["cells"])


def variants(results: Results) -> str:
    names = [f"Variant{number}" for number in (1, 2, 3, 4)]
    return ", ".join(f"{np.mean([cell['kl'] for cell in cells(results, method=name)]):.3f}" for name in names)


def changed(results: Results) -> str:
    [cell] = results["cells"]
    return f"ΔAcc {cell['error']:.4f} with {cell['labels']:.0f} examples chosen on another model"


def span(measure: str) -> Callable[[Results], str]:
    def values(results: Results) -> str:
        found = []
        for case in results["cases"]:
            own = [value for value in case["measures"].get(measure, []) if value is not None]
            if case["drift"] is None and own:
                found.append(
                    f"{case['case'].rpartition('-')[2]} {np.median(own):.3f} ({min(own):.3f} – {max(own):.3f})"
                )
        return "; ".join(found)

    return values


def three_measures(results: Results) -> str:
    return "; ".join(f"{name}: {span(name)(results)}" for name in ("CP", "BC", "PBC"))


def generated(results: Results) -> str:
    return "; ".join(
        f"{one['base'].rpartition('-')[2]} " + " / ".join(f"{100 * value:.0f}" for value in one["accuracy"])
        for one in results["generated"]
        if one["count"] == 1000
    )


def correlations(results: Results) -> list[list[str]]:
    """Rows of what is ranked, the measure, and the correlation of each model."""
    bases = list(dict.fromkeys(one["base"] for one in results["correlations"]))
    own = {(one["kind"], one["measure"], one["base"]): one for one in results["correlations"]}
    keys = dict.fromkeys((kind, measure) for kind, measure, _ in own)
    return [
        [kind, measure, *("–" if (found := own[kind, measure, base])["rho"] is None
                          else f"{found['rho']:.2f} [{found['low']:.2f}, {found['high']:.2f}]" for base in bases)]
        for kind, measure in keys
    ]  # fmt: skip


OWN_MODELS = "own networks of the same kind, not the paper's weights"

ROWS = (
    Row(
        "CES Table 1 (LeNet-4, Mutants 1 and 2)",
        "ces",
        table_1,
        "0.655, 0.499, 0.380",
        f"{OWN_MODELS}; LeNet-4 with 1,000 repetitions is 0.88 ± 0.03, and blocks of 50 nested samples vary by 0.14",
    ),
    Row(
        "CES Table 3 (Mutant 1, 300 examples)",
        "ces-small-pools",
        small_pools,
        "0.375 ± 0.115, at most 0.657",
        "E is over the theoretical variance of SRS here, over its measured error there",
    ),
    Row(
        "CES Fig. 3 (MNIST, CSS on Mutant 2)",
        "ces",
        lambda r: f"{mean_efficiency(r, MODELS[2], 'CSS'):.2f} times the error of SRS",
        "3.836",
        OWN_MODELS,
    ),
    Row(
        "CES Fig. 4 (driving)",
        "ces-others",
        lambda r: f"CES {mean_efficiency(r, 'driving_dave'):.3f}",
        "0.375 to 0.592",
        "another road and camera; heavy tails, neighbouring frames correlated; 0.82 ± 0.03 with 1,000 repetitions",
    ),
    Row(
        "CES Fig. 7 (ImageNet)",
        "ces-others",
        lambda r: f"CES {mean_efficiency(r, 'cifar10_convnet8'):.3f} on CIFAR-10",
        "0.436 to 0.567",
        "a ConvNet on CIFAR-10 instead of ImageNet; E counts the bias of CES, without it 0.92",
    ),
    Row(
        "DeepEST Table II (CS / DSA / LSA / C)",
        "deepest",
        failures,
        "44.6 / 30.2 / 22.4 / 11.9; 65.1 / 37.6 / 24.1 / 24.1; 106.1 / 98.3 / 38.1 / 70.8; "
        "85.0 / 16.8 / 14.8 / 24.9; 131.2 / 78.2 / 67.5 / 108.7",
        "LSA on MNIST: the text's threshold; with the authors' own, `preset=lsa_cn5`, 22.2 of CN5",
    ),
    Row("DeepEST Table III", "deepest", wins, "C has most, 10", "30 repetitions of heavy-tailed errors"),
    Row(
        "DeepEST Fig. 1 (MSE, CN5 and VGG16 on CIFAR-100)",
        "deepest",
        at_200("mse"),
        "bars",
        "blocks of 30 repetitions vary up to 16-fold",
    ),
    Row("DeepEST Fig. 2 (mean estimates)", "deepest", nearest, "lines near the truth", "–"),
    Row("DeepEST Fig. 3 (MSE by size)", "deepest", lambda r: "figures/errors.svg", "lines", "as Fig. 1"),
    Row("DeepEST Fig. 4 (failures by size)", "deepest", at_200("failures"), "lines, CS on top", "–"),
    *(
        Row(f"DeepEST Fig. {number} ({name})", "deepest", lambda r: "figures/SUBJECT-failures.svg", "curves", "–")
        for number, name in ((5, "MNIST"), (6, "CIFAR-10"), (7, "CIFAR-100"))
    ),
    Row(
        "DeepReduce Table II (LeNet-4)",
        "deepreduce",
        reduced("DeepReduce", "CES", "RANDOM"),
        "DeepReduce 298 (ΔAcc 0.0049), CES (ΔAcc 0.0058), RANDOM (ΔAcc 0.0057)",
        OWN_MODELS,
    ),
    Row(
        "DeepReduce Table III (LeNet-4)",
        "deepreduce",
        reduced("CES_kl", "RANDOM_kl"),
        "CES_kl 1,820 (ΔAcc 0.0039), RANDOM_kl 4,820 (ΔAcc 0.0042)",
        OWN_MODELS,
    ),
    Row(
        "DeepReduce Table IV (LeNet-4, NC .25 .5 .75, TKNC 1 2 3)",
        "criteria",
        criteria,
        "317, 298, 285, 304, 275, 279",
        "coverage of the last two layers alone, which cases have",
    ),
    Row(
        "DeepReduce Table V (KL of Variants 1 to 4)",
        "deepreduce",
        variants,
        "0.001, 0.014, 0.033, 0.029",
        "three other models",
    ),
    Row(
        "DeepReduce Table VI (a changed model)",
        "changed-model",
        changed,
        "ΔAcc 0.0085 to 0.0131",
        "another architecture, on Fashion-MNIST, instead of a modified NIN",
    ),
    Row(
        "DeepReduce Fig. 1 (LeNet-4)",
        "deepreduce",
        reduced("α = 0.05", "α = 0.01", "α = 0.005", "DeepReduce"),
        "more examples for a smaller α",
        OWN_MODELS,
    ),
    Row(
        "Mani Fig. 3 (shift)",
        "characterization",
        span("shift"),
        "near 0; one class of Fashion-MNIST high",
        "along five main directions of the hidden layer",
    ),
    Row("Mani Fig. 4 (EP)", "characterization", span("EP"), "1 for all classes", "the first 4,000 test images"),
    Row(
        "Mani Fig. 5 (CP, BC, PBC)",
        "characterization",
        three_measures,
        "box plots without numbers",
        "the paper gives no radius and no boundary",
    ),
    Row("Mani Fig. 6 (decoded vectors)", "–", lambda r: "`opacc generate RUN --pictures`", "pictures", "–"),
    Row(
        "Mani Table 2 (LeNet on Fashion-MNIST, 1,000 vectors)",
        "characterization",
        generated,
        "10 / 33 / 48 / 63 / 86",
        "the last hidden layer instead of the last convolution",
    ),
)
"""Every table and figure with results, in the order of the papers."""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("data", type=Path, metavar="DATA")
    found.add_argument("folder", type=Path, metavar="FOLDER")
    return found


def main() -> None:
    given = parser().parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    results = run_all(given.data.resolve(), given.folder.resolve())
    print(markdown.header(COLUMNS, len(COLUMNS)))
    for row in ROWS:
        study = row.study if row.study == "–" else f"`{row.study}`"
        print(markdown.row([row.item, study, row.ours(results.get(row.study, {})), row.published, row.why]))
    characterized = results["characterization"]
    bases = dict.fromkeys(one["base"] for one in characterized["correlations"])
    print(f"\n{markdown.header(['ranked', 'measure', *bases], 2)}")
    for cells_of_row in correlations(characterized):
        print(markdown.row(cells_of_row))


if __name__ == "__main__":
    main()
