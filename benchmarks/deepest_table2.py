"""DeepEST against its paper: Table II, the failures found with 200 tests, and the mean estimate against the truth.

    python benchmarks/deepest_table2.py FOLDER [--repetitions 1000] [--rule released]

FOLDER holds the five files the authors published (https://github.com/dessertlab/DeepEST, `metrics_datasets`): one row
per example with outcome (Pass or Fail), predicted class, confidence, DSA, LSA. The thresholds of DSA and LSA are those
the published numbers were made with. Printed is a Markdown table: failures found, ours and published; and how far the
mean estimate is from the truth, in standard errors of that mean. The authors' means are of 30 repetitions; ours count
as equal within 3 % or one failure. The tails are heavy, so take 1,000 repetitions or more.
"""

import argparse
import csv
from pathlib import Path
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from numpy.typing import NDArray

import opacc_ray as opacc

BUDGET = 200
AUXILIARIES = ("confidence", "dsa", "lsa", "combined")
COLUMNS = ("subject", "failing", *AUXILIARIES)


class Subject(NamedTuple):
    """Thresholds of DSA and LSA, and the failures found by each auxiliary variable (Table II)."""

    dsa: float
    lsa: float
    found: dict[str, float]


def _found(confidence: float, dsa: float, lsa: float, combined: float) -> dict[str, float]:
    return {"confidence": confidence, "dsa": dsa, "lsa": lsa, "combined": combined}


SUBJECTS = {
    "CN5_MNIST": Subject(0.707, 30243.43, _found(44.57, 30.17, 22.43, 11.93)),
    "LN5_MNIST": Subject(0.757, 1034.12, _found(65.13, 37.57, 24.10, 24.07)),
    "CN12_CIFAR10": Subject(1.574, 460.2, _found(106.10, 98.33, 38.07, 70.77)),
    "VGG16_CIFAR10": Subject(2.133, 3052.397, _found(85.00, 16.80, 14.77, 24.90)),
    "VGG16_CIFAR100": Subject(2.503, 111.898, _found(131.17, 78.20, 67.47, 108.70)),
}


class Cell(NamedTuple):
    """One auxiliary variable on one subject."""

    published: float
    found: float
    off: float  # of the mean estimate, in its standard errors

    @property
    def agrees(self) -> bool:
        return abs(self.found - self.published) <= max(1.0, 0.03 * self.published)

    def __str__(self) -> str:
        return f"{self.found:.2f} / {self.published:.2f}{'' if self.agrees else ' †'} ({self.off:+.1f})"


def read(path: Path) -> tuple[opacc.Pool, NDArray[np.float64]]:
    """The pool and the outcome (N,) of every example."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))[1:]
    confidence, dsa, lsa = np.array([row[3:6] for row in rows], dtype=np.float64).T
    outcome = np.array([row[1] == "Pass" for row in rows], dtype=np.float64)
    return opacc.Pool(confidence=confidence, dsa=dsa, lsa=lsa), outcome


def measure(
    pool: opacc.Pool, outcome: NDArray[np.float64], subject: Subject, auxiliary: str, rule: str, repetitions: int
) -> Cell:
    threshold = {"dsa": subject.dsa, "lsa": subject.lsa}.get(auxiliary)
    found, value = np.empty(repetitions), np.empty(repetitions)
    for seed in range(repetitions):
        chosen = opacc.select(pool, "deepest", BUDGET, seed, auxiliary=auxiliary, threshold=threshold, rule=rule)
        labels = outcome[chosen.index]
        found[seed], value[seed] = (1 - labels).sum(), opacc.estimate(chosen, labels).value
    error = value.std(ddof=1) / np.sqrt(repetitions)
    return Cell(subject.found[auxiliary], float(found.mean()), float((value.mean() - outcome.mean()) / error))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("folder", type=Path, metavar="FOLDER")
    found.add_argument("--repetitions", type=int, default=1000)
    found.add_argument("--rule", choices=("released", "paper"), default="released")
    return found


def main() -> None:
    given = parser().parse_args()
    print(markdown.header(COLUMNS))
    cells = []
    for name, subject in SUBJECTS.items():
        pool, outcome = read(given.folder / f"{name}.csv")
        found = [measure(pool, outcome, subject, item, given.rule, given.repetitions) for item in AUXILIARIES]
        cells += found
        print(markdown.row([name, f"{(1 - outcome).sum():.0f}", *map(str, found)]), flush=True)
    gap = np.sqrt(np.mean([(cell.found - cell.published) ** 2 for cell in cells]))
    print(
        f"\nFound / published (mean estimate - truth, in standard errors); † differs by more than 3 % and 1 failure.\n"
        f"{sum(cell.agrees for cell in cells)} of {len(cells)} cells agree; root mean square gap {gap:.2f} failures."
    )


if __name__ == "__main__":
    main()
