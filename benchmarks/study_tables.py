"""The tables that `opacc study` gives the pages of docs: methods, neyman, ces, numbers.

    python benchmarks/study_tables.py methods|neyman|ces CASES… [OPTIONS of opacc study]
    python benchmarks/study_tables.py numbers FOLDER [OPTIONS of opacc study]

Runs `opacc study` with the spec of the table, such as jobs/study-comparison.yaml, on fully labelled cases: .npz, .csv
or .parquet files, or folders of them. What an earlier run has finished is not run again. Printed is a Markdown table.

    methods    E of every method on every case with the largest budget, and the least share that the intervals covered
    neyman     bound, E, coverage, bias and failures found of neyman in one round and in four, and the best of the peers
    ces        E and bias of CES with several objectives and settings
    numbers    error, coverage and width of F1 and recall of a rare class, means over classes, slices; FOLDER holds the
               cases of `make_cases.py FOLDER --numbers`, and each number has a study of its own in study-numbers/
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import markdown_table as markdown
from scipy.stats import binom

from opacc_ray.estimation.intervals import normal_quantile
from opacc_ray.extensions.study.measures import CellMeasures, StudyResults, width_ratio
from opacc_ray.extensions.study.peers import PEERS

JOBS = Path(__file__).parents[1] / "jobs"
ONE, FOUR, BY_ROUNDS = "neyman", "neyman, 4 rounds", "neyman, 4 rounds, by rounds"

NEYMAN_COLUMNS = ("case", "n", "bound", "one round", "four rounds", "by rounds", "others", "covers", "bias", "failures")

MATCHERS = ("restaurant", "abt_buy", "dblp_acm_small", "tweets100k")

NUMBERS: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
    ("f1@1", None, MATCHERS),
    ("recall@1", None, MATCHERS),
    ("macro_f1", None, ("tweets100k", "employment", "compas")),
    ("accuracy", None, ("tweets100k", "employment", "compas")),
    ("accuracy", "race", ("employment", "compas")),
    ("accuracy", "sex*age", ("employment", "compas")),
)
"""Metric, column of slices, and cases of each table of `numbers`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*TABLES, "numbers"])
    parser.add_argument("study", nargs=argparse.REMAINDER, metavar="CASES…", help="cases and options of opacc study")
    given = parser.parse_args()
    if given.table == "numbers":
        return print_numbers(Path(given.study[0]), given.study[1:])
    spec, table = TABLES[given.table]
    for line in table(run(spec, given.study)):
        print(line)


def run(spec: str, options: Sequence[str]) -> StudyResults:
    """Return the results of a study; ends the program if it fails."""
    command = [sys.executable, "-m", "opacc_ray", "study", str(JOBS / spec), *options, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)
    return StudyResults.from_bytes(done.stdout, "the results of opacc study")


def methods(results: StudyResults) -> Iterator[str]:
    """E by method and case."""
    budget = max(results.spec.budgets)
    yield markdown.header(["method", *(_title(case.case) for case in results.cases)])
    for method in results.methods:
        cells = (results.cell(case.case, method, budget) for case in results.cases)
        yield markdown.row([method, *(_number(None if cell is None else cell.efficiency) for cell in cells)])
    yield markdown.row(["bound", *(_number(case.bound.get(str(budget))) for case in results.cases)])
    yield f"\n{_coverage(results)}"
    yield f"\nWith {budget} labels. {_repetitions(results)}"


def _coverage(results: StudyResults) -> str:
    """Mean and least coverage over all cells, and what is within chance if every interval covers as it states."""
    level, repetitions = results.spec.level, results.spec.repetitions
    ours = (cell for cell in results.cells if cell.method not in PEERS and cell.coverage_interval is not None)
    found = sorted((cell for cell in ours if cell.design_based), key=lambda cell: cell.coverage)
    if not found:
        return "No interval is design-based."
    by_chance = binom.ppf(1 - 0.95 ** (1 / len(found)), repetitions, level) / repetitions
    mean, low = sum(cell.coverage for cell in found) / len(found), [c for c in found if c.coverage < by_chance]
    least = "; ".join(
        f"{cell.method}, {_title(cell.case)}, n={cell.budget}: {100 * cell.coverage:.1f} %" for cell in low
    )
    rest = min((cell.coverage for cell in found if cell not in low), default=mean)
    return (
        f"Over all budgets, cases and our methods, {len(found)} cells, design-based {100 * level:g} % intervals "
        f"covered in {100 * mean:.1f} % on average and in {100 * rest:.1f} % or more; down to "
        f"{100 * by_chance:.1f} % is within chance.{f' Lower: {least}.' if low else ''}"
    )


def neyman(results: StudyResults) -> Iterator[str]:
    """One and four rounds beside the best of the peers, by case and budget; then the means over cases with classes."""
    cells = {(cell.case, cell.method, cell.budget): cell for cell in results.cells}
    yield markdown.header(NEYMAN_COLUMNS)
    for case in results.cases:
        for budget in results.spec.budgets:
            one, four, by_rounds = (cells[case.case, method, budget] for method in (ONE, FOUR, BY_ROUNDS))
            srs = budget * (1 - case.accuracy) if case.binary else None  # failures that SRS finds on average
            peers = [cells[case.case, name, budget] for name in PEERS if (case.case, name, budget) in cells]
            best = min(peers, key=lambda cell: cell.efficiency, default=None)
            yield markdown.row(
                [
                    _title(case.case),
                    str(budget),
                    _number(case.bound.get(str(budget))),
                    *map(_with_interval, (one, four, by_rounds)),
                    f"{_number(best.efficiency)} {best.method}" if best else "–",
                    ", ".join(f"{100 * cell.coverage:.1f}" for cell in (one, four)),
                    f"{four.bias:+.2f}",
                    ", ".join(_ratio(cell.failures, srs) for cell in (one, four)),
                ]
            )
    yield from _means(results, cells)


def _means(results: StudyResults, cells: dict[tuple[str, str, int | None], CellMeasures]) -> Iterator[str]:
    binary, z = [case.case for case in results.cases if case.binary], normal_quantile(results.spec.level)
    for budget in results.spec.budgets:
        mean = {
            method: sum(cells[case, method, budget].efficiency for case in binary) / len(binary)
            for method in results.methods
            if all((case, method, budget) in cells for case in binary)
        }
        stated = ", ".join(f"{method} {value:.2f}" for method, value in mean.items())
        four = [cells[case, FOUR, budget] for case in binary]
        bias = sum(cell.bias for cell in four) / len(four)
        ratio = sum(width_ratio(cell, results.spec.level) or 0.0 for cell in four) / len(four)
        yield (
            f"\nWith {budget} labels, means of E over the {len(binary)} cases with classes: {stated}. In four rounds "
            f"the mean bias is {bias:+.3f} standard deviations of SRS, the intervals cover in "
            f"{100 * min(cell.coverage for cell in four):.1f} % or more, and half their width is {ratio:.2f} times "
            f"{z:.2f} root mean squared errors. {_repetitions(results)}"
        )


def ces(results: StudyResults) -> Iterator[str]:
    """E (bias) by setting, and case and budget."""
    cells = {(cell.case, cell.method, cell.budget): cell for cell in results.cells}
    columns = [(case.case, budget) for case in results.cases for budget in results.spec.budgets]
    yield markdown.header(["E (bias)", *(f"{_title(case)} n={budget}" for case, budget in columns)])
    for method in results.methods:
        row = [cells[case, method, budget] for case, budget in columns]
        yield markdown.row([method, *(f"{cell.efficiency:.2f} ({cell.bias:+.2f})" for cell in row)])


TABLES: dict[str, tuple[str, Callable[[StudyResults], Iterator[str]]]] = {
    "methods": ("study-comparison.yaml", methods),
    "neyman": ("study-neyman.yaml", neyman),
    "ces": ("study-ces.yaml", ces),
}
"""By name: the spec of the study, and how its table is printed."""


def print_numbers(folder: Path, options: Sequence[str]) -> None:
    """Print a table for each number: a row for each case and method, with error, coverage and width by budget."""
    for metric, by, cases in NUMBERS:
        title = metric if by is None else f"{metric} by {by.replace('*', ' and ')}"
        output = Path("study-numbers") / title.replace(" ", "-").replace("@", "-")
        asked = ["--metric", metric, *([] if by is None else ["--by", by]), "--output", str(output)]
        results = run("study-numbers.yaml", [*(str(folder / f"{case}.npz") for case in cases), *asked, *options])
        print(f"**{title}**\n")
        print(markdown.header(["case", "method", *(f"n={budget:,}" for budget in results.spec.budgets)], texts=2))
        truths = []
        for case in results.cases:
            for method in results.methods:
                cells = [_stated(cell, results.spec.level) for cell in results.cells_of(case.case, method)]
                if cells:
                    print(markdown.row([_title(case.case), method, *cells]), flush=True)
            truth = list(case.truth.values())
            span = f"{min(truth):.3f} to {max(truth):.3f}, {len(truth)} slices" if len(truth) > 1 else f"{truth[0]:.4f}"
            truths.append(f"{_title(case.case)} {span}")
        print(f"\nTrue: {'; '.join(truths)}. {_repetitions(results)}\n")


def _stated(cell: CellMeasures, level: float) -> str:
    """Return error, coverage in percent and ratio of the width."""
    return f"{cell.mse**0.5:.4f}, {100 * cell.coverage:.0f}, {_number(width_ratio(cell, level))}"


def _repetitions(results: StudyResults) -> str:
    return f"{results.spec.repetitions:,} repetitions."


def _with_interval(cell: CellMeasures) -> str:
    ends = cell.efficiency_interval
    return _number(cell.efficiency) + ("" if ends is None else f" ({_number(ends[0])}–{_number(ends[1])})")


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
