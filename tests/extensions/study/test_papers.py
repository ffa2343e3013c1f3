"""The experiments of papers: methods that stop by themselves, small pools, coverage, and the tables of the papers."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import N, arrays, results_of, source, spec_of

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.study.cases import find_cases, read_case
from opacc_ray.extensions.study.experiment import read_options
from opacc_ray.extensions.study.measures import PAPERS, find_paper
from opacc_ray.extensions.study.study_spec import CaseSpec, Subpools
from opacc_ray.lake.store_uris import open_store
from opacc_ray.neurons.requirements import Criterion

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def case(tmp_path: Path) -> Path:
    rng = np.random.default_rng(2)
    output = rng.normal(size=(N, 4)).astype(np.float32)
    np.savez(tmp_path / "case.npz", **arrays(), output=output, dsa=rng.random(N), lsa=rng.normal(size=N))
    return tmp_path / "case.npz"


REDUCE = {"method": "deepreduce", "coverage": False, "alpha": 0.05, "budget": "itself", "repetitions": 1}


def cells_by_method(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {cell["method"]: cell for cell in results["cells"]}


def test_a_method_follows_one_that_stops_by_itself(case: Path, tmp_path: Path) -> None:
    methods = [REDUCE | {"label": "R"}, {"method": "srs", "budget": "as R"}, {"method": "css", "budget": 25}]
    results = results_of(spec_of(case, tmp_path / "out", methods=methods, budgets=[], divergence=True))
    found = cells_by_method(results)
    assert found["R"]["budget"] is None
    number = int(found["R"]["labels"])
    assert 10 < number < N
    assert (found["srs, as R"]["budget"], found["srs, as R"]["labels"]) == (number, number)
    assert found["css, 25"]["labels"] == 25
    assert found["R"]["kl"] < 0.05 < found["css, 25"]["kl"]
    assert "| R " in (tmp_path / "out" / "table.md").read_text()
    assert not list((tmp_path / "out").glob("figures/*"))  # nothing has several numbers of labels


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ([{"method": "srs", "budget": "itself"}], "only deepreduce, and ces with stop_at_kl, stop by themselves"),
        ([REDUCE, {"method": "srs", "budget": "as X"}], "no method with a budget of its own has the label 'X'; such"),
        ([{"method": "srs", "budget": "some"}], "give a number of labels, `itself`, or `as LABEL`"),
        ([{"method": "srs"}], "no budgets given; add --budget 100"),
        ([{"method": "srs", "budget": N}], f"budget={N}: case case holds {N} examples"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(methods: Any, message: str, case: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        results_of(spec_of(case, tmp_path / "out", methods=methods, budgets=[]))


def test_subpools_are_random_parts_of_the_case(case: Path, tmp_path: Path) -> None:
    whole = read_case(source(case))
    pools = [read_case(own) for own in find_cases([CaseSpec(path=str(case))], subpools=Subpools(size=60))]
    assert [own.source.name for own in pools[:2]] == ["case~1", "case~2"]
    assert len(pools) == 30
    taken = [np.flatnonzero(np.isin(whole.view.column("lsa"), own.view.column("lsa"))) for own in pools]
    assert {len(rows) for rows in taken} == {60}
    assert len({tuple(rows) for rows in taken}) == 30
    assert all((own.outcome == whole.outcome[rows]).all() for own, rows in zip(pools, taken, strict=True))
    results = results_of(
        spec_of(case, tmp_path / "out", paper="ces-small-pools", subpools={"size": 60, "number": 4}, budgets=[10, 20])
    )
    assert [own["drawn_from"] for own in results["cases"]] == ["case"] * 4
    [row] = re.findall(r"\| case +\| srs +\|(.*)\|", (tmp_path / "out" / "table.md").read_text())
    number, average, spread, largest, below = (float(text) for text in row.split("|"))
    means = [np.mean([c["efficiency"] for c in results["cells"] if c["case"] == f"case~{k}"]) for k in (1, 2, 3, 4)]
    assert (number, below) == (4, sum(mean < 1 for mean in means))
    assert (average, spread, largest) == pytest.approx((np.mean(means), np.std(means, ddof=1), max(means)), abs=6e-4)
    with pytest.raises(DataError, match="subpools of 300 examples: it holds 300; give a smaller size"):
        read_case(find_cases([CaseSpec(path=str(case))], subpools=Subpools(size=N))[0])


def test_coverage_is_computed_from_the_layers_of_a_case_without_it(case: Path) -> None:
    [own] = find_cases([CaseSpec(path=str(case))], coverage="nc:0.5")
    found, arrays_ = read_case(own), np.load(case)
    bits = Criterion.parse("nc:0.5").bits([arrays_["hidden"], arrays_["output"]])
    assert found.view.take(lambda part, rows: part.coverage[rows], np.arange(N)).tolist() == bits.tolist()
    with pytest.raises(SpecError, match="needs ranges over training data"):
        spec_of(case, case.parent / "out", coverage="nbc")


def test_papers_are_specs_whose_keys_can_be_replaced(case: Path) -> None:
    for name in PAPERS:
        spec = read_options([str(case)], {"paper": name})
        assert [method.name for method in spec.methods]
    spec = read_options([str(case)], {"paper": "deepest", "repetitions": 2, "budgets": [20]})
    assert (spec.repetitions, spec.budgets, len(spec.methods)) == (2, [20], 6)
    with pytest.raises(SpecError, match="did you mean deepest"):
        find_paper("deepset")


def test_tables_of_deepest(case: Path, tmp_path: Path) -> None:
    given = {"paper": "deepest", "repetitions": 5, "budgets": [40, 60], "output": str(tmp_path / "out")}
    results = results_of(read_options([str(case)], given))
    text, found = (tmp_path / "out" / "table.md").read_text(), {}
    for cell in results["cells"]:
        found[cell["method"], cell["budget"]] = cell
    cs, dsa = found["DeepEST CS", 60], found["DeepEST DSA", 60]
    assert f"{cs['failures']:.1f} ± {cs['failures_deviation']:.1f}" in text
    ratios = f"{cs['failures'] / dsa['failures']:.2f} / {dsa['mse'] / cs['mse']:.2f}"
    assert re.search(rf"\| DeepEST CS +\| –[^/]*\| {re.escape(ratios)} ", text)
    better = cs["failures"] > dsa["failures"] and cs["mse"] < dsa["mse"]
    wins = next(line for line in text.split("## Wins")[1].splitlines() if line.startswith("| DeepEST CS"))
    assert wins.split("|")[5].strip() == str(int(better))


def test_deepreduce_repeats_random_methods_as_the_paper_does() -> None:
    """Zhou et al.: "CES and CES_kl are repeated 10 times, and the two random approaches are repeated 50 times."."""
    spec = PAPERS["deepreduce"].spec
    times = {item["label"]: item.get("repetitions", spec["repetitions"]) for item in spec["methods"]}
    random = ("CES", "CES_kl", "RANDOM", "RANDOM_kl")
    assert [times[label] for label in random] == [10, 10, 50, 50]


def test_tables_of_deepreduce(case: Path, tmp_path: Path) -> None:
    other = case.parent / "other.npz"
    np.savez(other, **dict(np.load(case)) | {"correct": np.load(case)["correct"][::-1]})
    given = {"paper": "deepreduce", "repetitions": 3, "output": str(tmp_path / "out")}
    given["methods"] = [item for item in PAPERS["deepreduce"].spec["methods"] if item["label"] in ("DeepReduce", "CES")]
    results = results_of(read_options([str(case), str(other)], given))
    text = (tmp_path / "out" / "table.md").read_text()
    cells = [cell for cell in results["cells"] if cell["method"] == "CES"]
    assert all(f"{cell['error']:.4f}" in text and f"{cell['kl']:.4f}" in text for cell in cells)
    assert "| DeepReduce | CES" in text.split("## Wilcoxon")[1]
    assert text.count("| average ") == 2
    results_of(read_options([str(case)], given | {"output": str(tmp_path / "one")}))
    text = (tmp_path / "one" / "table.md").read_text()
    assert "(in brackets: published)" not in text  # no number of this case is published
    assert "## Wilcoxon" not in text  # of one case there is nothing to test, and its numbers are the averages
    assert "| average " not in text
    assert open_store(str(tmp_path / "out")).exists("results.json")
