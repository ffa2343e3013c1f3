"""Error and interval of numbers that people state: F1 and recall of a rare class, means over classes, slices.

    python benchmarks/number_tables.py FOLDER [OPTIONS of opacc study]

FOLDER holds the cases of `make_cases.py FOLDER --numbers`. For each number, `opacc study` runs with the spec
jobs/study-numbers.yaml, in a folder of its own in study-numbers/, and what an earlier run has finished is not run
again. Printed is a Markdown table for each number.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import markdown_table as markdown

from opacc_ray.extensions.study.measures import CellMeasures, width_ratio

OUTPUT = Path("study-numbers")
SPEC = Path(__file__).parents[1] / "jobs" / "study-numbers.yaml"


class Number(NamedTuple):
    """What is estimated, on which cases."""

    metric: str
    by: str | None
    cases: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.metric if self.by is None else f"{self.metric} by {self.by.replace('*', ' and ')}"


MATCHERS = ("restaurant", "abt_buy", "dblp_acm_small", "tweets100k")

NUMBERS = (
    Number("f1@1", None, MATCHERS),
    Number("recall@1", None, MATCHERS),
    Number("macro_f1", None, ("tweets100k", "employment", "compas")),
    Number("accuracy", None, ("tweets100k", "employment", "compas")),
    Number("accuracy", "race", ("employment", "compas")),
    Number("accuracy", "sex*age", ("employment", "compas")),
)

Results = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("folder", type=Path, help="the cases")
    found.add_argument("study", nargs=argparse.REMAINDER, metavar="OPTIONS", help="options of opacc study")
    return found


def main() -> None:
    given = parser().parse_args()
    for number in NUMBERS:
        print(f"**{number.title}**\n")
        for line in table(run(number, given)):
            print(line, flush=True)
        print()


def run(number: Number, given: argparse.Namespace) -> Results:
    """Return the results of the study of one number."""
    output = OUTPUT / number.title.replace(" ", "-").replace("@", "-")
    cases = [str(given.folder / f"{case}.npz") for case in number.cases]
    asked = ["--metric", number.metric, *([] if number.by is None else ["--by", number.by]), "--output", str(output)]
    command = [sys.executable, "-m", "opacc_ray", "study", str(SPEC), *cases, *asked, *given.study, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)
    found: Results = json.loads(done.stdout)
    return found


def table(results: Results) -> Iterator[str]:
    """Yield a row for each case and method, with error, coverage and width at each budget."""
    budgets = results["spec"]["budgets"]
    yield markdown.header(columns(budgets), texts=2)
    for case in results["cases"]:
        for method in results["methods"]:
            own = [cell for cell in results["cells"] if (cell["case"], cell["method"]) == (case["case"], method)]
            if own:
                yield markdown.row([case["case"].replace("_", " "), method, *(_cell(cell, results) for cell in own)])
    yield f"\nTrue: {'; '.join(map(_truth, results['cases']))}. {results['spec']['repetitions']:,} repetitions."


def columns(budgets: list[int]) -> list[str]:
    return ["case", "method", *(f"n={budget:,}" for budget in budgets)]


def _cell(cell: dict[str, Any], results: Results) -> str:
    """Return error, coverage and ratio of the width."""
    ratio = width_ratio(CellMeasures(**cell), results["spec"]["level"])
    width = "–" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"
    return f"{cell['mse'] ** 0.5:.4f}, {100 * cell['coverage']:.0f}, {width}"


def _truth(case: dict[str, Any]) -> str:
    values = list(case["truth"].values())
    name = case["case"].replace("_", " ")
    stated = f"{values[0]:.4f}" if len(values) == 1 else f"{min(values):.3f} to {max(values):.3f}, {len(values)} slices"
    return f"{name} {stated}"


if __name__ == "__main__":
    main()
