"""The tables that `opacc study` gives the README, docs/neyman.md and docs/ces.md: methods, neyman, control, ces.

    python benchmarks/study_tables.py methods|neyman|control|ces CASES… [OPTIONS of opacc study]

Runs `opacc study` with the spec of the table, such as jobs/study-comparison.yaml, on fully labelled cases: .npz, .csv
or .parquet files, or folders of them. What an earlier run has finished is not run again. Printed is a Markdown table.

    methods    E of every method on every case with the largest budget, and the least share that the intervals covered
    neyman     bound, E, coverage, bias and failures found of neyman in one round and in four, and the best of the peers
    control    E of the methods where confidence says nothing
    ces        E and bias of CES with several objectives and settings
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import markdown_table as markdown
from scipy.stats import binom

from opacc_ray.estimation.intervals import normal_quantile
from opacc_ray.extensions.study.peers import PEERS

ROOT = Path(__file__).parents[1]
ONE, FOUR, BY_ROUNDS = "neyman", "neyman, 4 rounds", "neyman, 4 rounds, by rounds"

NEYMAN_COLUMNS = ("case", "n", "bound", "one round", "four rounds", "by rounds", "others", "covers", "bias", "failures")

Results = dict[str, Any]
"""The content of a study's results.json."""


class Table(NamedTuple):
    """What is studied and how it is printed."""

    spec: str
    print: Callable[[Results], Iterator[str]]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("table", choices=TABLES)
    found.add_argument("study", nargs=argparse.REMAINDER, metavar="CASES…", help="cases and options of opacc study")
    return found


def main() -> None:
    given = parser().parse_args()
    table = TABLES[given.table]
    command = [sys.executable, "-m", "opacc_ray", "study", str(ROOT / table.spec), *given.study, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)
    for line in table.print(json.loads(done.stdout)):
        print(line)


def methods(results: Results) -> Iterator[str]:
    """E by method and case."""
    budget = max(results["spec"]["budgets"])
    cells = {(cell["case"], cell["method"]): cell for cell in results["cells"] if cell["budget"] == budget}
    cases = [case["case"] for case in results["cases"]]
    yield markdown.header(["method", *map(_title, cases)])
    for method in results["methods"]:
        yield markdown.row([method, *(_efficiency(cells.get((case, method))) for case in cases)])
    yield markdown.row(["bound", *(_number(case["bound"].get(str(budget))) for case in results["cases"])])
    yield f"\n{_coverage(results)}"
    yield f"\nWith {budget} labels. {_repetitions(results)}"


def _coverage(results: Results) -> str:
    """Mean and least coverage over all cells, and what is within chance if every interval covers as it states."""
    level, repetitions = results["spec"]["level"], results["spec"]["repetitions"]
    found = [cell["coverage"] for cell in results["cells"] if _is_judged(cell)]
    if not found:
        return "No interval is design-based."
    by_chance = binom.ppf(1 - 0.95 ** (1 / len(found)), repetitions, level) / repetitions
    return (
        f"Over all budgets, cases and our methods, {len(found)} cells, design-based {100 * level:g} % intervals "
        f"covered in {100 * sum(found) / len(found):.1f} % on average and in {100 * min(found):.1f} % or more; down to "
        f"{100 * by_chance:.1f} % is within chance."
    )


def neyman(results: Results) -> Iterator[str]:
    """One and four rounds beside the best of the peers, by case and budget; then the means over cases with classes."""
    cells = {(cell["case"], cell["method"], cell["budget"]): cell for cell in results["cells"]}
    yield markdown.header(NEYMAN_COLUMNS)
    for case in results["cases"]:
        for budget in results["spec"]["budgets"]:
            one, four, by_rounds = (cells[case["case"], method, budget] for method in (ONE, FOUR, BY_ROUNDS))
            srs = budget * (1 - case["accuracy"]) if case["binary"] else None  # failures that SRS finds on average
            yield markdown.row(
                [
                    _title(case["case"]),
                    str(budget),
                    _number(case["bound"].get(str(budget))),
                    *map(_with_interval, (one, four, by_rounds)),
                    _best_peer(cells, case["case"], budget),
                    ", ".join(f"{100 * cell['coverage']:.1f}" for cell in (one, four)),
                    f"{four['bias']:+.2f}",
                    ", ".join(_ratio(cell["failures"], srs) for cell in (one, four)),
                ]
            )
    yield from _means(results, cells)


def _best_peer(cells: dict[tuple[str, str, int], dict[str, Any]], case: str, budget: int) -> str:
    """The least E of a peer, and its name."""
    found = [cells[case, name, budget] for name in PEERS if (case, name, budget) in cells]
    if not found:
        return "–"
    best = min(found, key=lambda cell: float(cell["efficiency"]))
    return f"{_number(best['efficiency'])} {best['method']}"


def _means(results: Results, cells: dict[tuple[str, str, int], dict[str, Any]]) -> Iterator[str]:
    binary = [case["case"] for case in results["cases"] if case["binary"]]
    for budget in results["spec"]["budgets"]:
        mean = {
            method: sum(cells[case, method, budget]["efficiency"] for case in binary) / len(binary)
            for method in results["methods"]
            if all((case, method, budget) in cells for case in binary)
        }
        stated = ", ".join(f"{method} {value:.2f}" for method, value in mean.items())
        four = [cells[case, FOUR, budget] for case in binary]
        bias = sum(cell["bias"] for cell in four) / len(four)
        z = normal_quantile(results["spec"]["level"])
        ratio = sum(cell["width"] / 2 / (z * cell["mse"] ** 0.5) for cell in four) / len(four)
        yield (
            f"\nWith {budget} labels, means of E over the {len(binary)} cases with classes: {stated}. In four rounds "
            f"the mean bias is {bias:+.3f} standard deviations of SRS, the intervals cover in "
            f"{100 * min(cell['coverage'] for cell in four):.1f} % or more, and half their width is {ratio:.2f} times "
            f"{z:.2f} root mean squared errors. {_repetitions(results)}"
        )


def control(results: Results) -> Iterator[str]:
    """E by method and budget, and case."""
    cells = {(cell["case"], cell["method"], cell["budget"]): cell for cell in results["cells"]}
    cases = [case["case"] for case in results["cases"]]
    yield markdown.header(["method", "n", *map(_title, cases)])
    for method in results["methods"]:
        for budget in results["spec"]["budgets"]:
            own = (_efficiency(cells.get((case, method, budget))) for case in cases)
            yield markdown.row([method, str(budget), *own])
    yield f"\n{_repetitions(results)}"


def ces(results: Results) -> Iterator[str]:
    """E (bias) by setting, and case and budget."""
    cells = {(cell["case"], cell["method"], cell["budget"]): cell for cell in results["cells"]}
    columns = [(case["case"], budget) for case in results["cases"] for budget in results["spec"]["budgets"]]
    yield markdown.header(["E (bias)", *(f"{_title(case)} n={budget}" for case, budget in columns)])
    for method in results["methods"]:
        own = [cells[case, method, budget] for case, budget in columns]
        yield markdown.row([method, *(f"{cell['efficiency']:.2f} ({cell['bias']:+.2f})" for cell in own)])


TABLES = {
    "methods": Table("jobs/study-comparison.yaml", methods),
    "neyman": Table("jobs/study-neyman.yaml", neyman),
    "control": Table("jobs/study-control.yaml", control),
    "ces": Table("jobs/study-ces.yaml", ces),
}


def _repetitions(results: Results) -> str:
    return f"{results['spec']['repetitions']:,} repetitions."


def _is_judged(cell: dict[str, Any]) -> bool:
    """Whether its coverage says something of ours: an interval by design, and more than one sample."""
    return cell["method"] not in PEERS and bool(cell["design_based"]) and cell["coverage_interval"] is not None


def _efficiency(cell: dict[str, Any] | None) -> str:
    return _number(None if cell is None else cell["efficiency"])


def _with_interval(cell: dict[str, Any]) -> str:
    value = _number(cell["efficiency"])
    if cell["efficiency_interval"] is None:
        return value
    low, high = cell["efficiency_interval"]
    return f"{value} ({_number(low)}–{_number(high)})"


def _ratio(found: float | None, expected: float | None) -> str:
    return "–" if found is None or not expected else f"{found / expected:.1f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _title(case: str) -> str:
    return case.replace("_", " ")


if __name__ == "__main__":
    main()
