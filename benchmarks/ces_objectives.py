"""CES with several objectives and settings, against simple random sampling: bias and mean squared error.

    python benchmarks/ces_objectives.py CASES… [--repetitions 1000] [--settings PATTERN]

CASES are cases of `opacc study` with a hidden layer and an output layer, files or folders of them. Printed is a
Markdown table of E (bias) per case and number of labels n: E is the mean squared error of the estimate over that of
simple random sampling without replacement, S²(1/n - 1/N); the bias is in standard deviations of the same. All n come
from one selection: the first examples of a longer one are the shorter one.
"""

import argparse
import re
from collections.abc import Iterable
from typing import Any

import markdown_table as markdown
import numpy as np

import opacc_ray as opacc
from opacc_ray.parts.view import LocalParts
from opacc_ray.study.cases import Case, find_cases, read_case
from opacc_ray.study.study_spec import CaseSpec

LABELS = (50, 100, 180)

SETTINGS: dict[str, dict[str, Any]] = {
    "squared, the default": {},
    "cross_entropy, smoothing 0.01": {"objective": "cross_entropy"},
    "cross_entropy, smoothing 0.1": {"objective": "cross_entropy", "smoothing": 0.1},
    "cross_entropy, smoothing 1e-13": {"objective": "cross_entropy", "smoothing": 1e-13},
    "kl": {"objective": "kl"},
    "squared, initial 5": {"initial": 5},
    "squared, sections 10": {"sections": 10},
    "squared, candidates 1000": {"candidates": 1000},
    "squared, layer output": {"layer": "output"},
}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("cases", nargs="+", metavar="CASES")
    found.add_argument("--repetitions", type=int, default=1000)
    found.add_argument("--settings", default="", metavar="PATTERN", help="only settings that match")
    return found


def main() -> None:
    given = parser().parse_args()
    cases = [read_case(source) for source in find_cases([CaseSpec(path=path) for path in given.cases], {}, None)]
    print(markdown.header(["E (bias)", *columns_of(case.source.name for case in cases)]))
    for label, parameters in SETTINGS.items():
        if re.search(given.settings, label):
            cells = [cell for case in cases for cell in measure(case, parameters, given.repetitions)]
            print(markdown.row([label, *cells]), flush=True)


def columns_of(cases: Iterable[str]) -> list[str]:
    return [f"{case.replace('_', ' ')} n={n}" for case in cases for n in LABELS]


def measure(case: Case, parameters: dict[str, Any], repetitions: int) -> list[str]:
    """E (bias) for each number of labels."""
    estimates = np.array([_estimates(case, parameters, seed) for seed in range(repetitions)])  # (repetitions, n)
    error = estimates - case.outcome.mean()
    variance = case.outcome.var(ddof=1) * (1 / np.array(LABELS) - 1 / len(case.outcome))  # of SRS
    E, bias = (error**2).mean(axis=0) / variance, error.mean(axis=0) / np.sqrt(variance)
    return [f"{e:.2f} ({b:+.2f})" for e, b in zip(E, bias, strict=True)]


def _estimates(case: Case, parameters: dict[str, Any], seed: int) -> list[float]:
    assert isinstance(case.view.parts, LocalParts)
    [pool] = case.view.parts.pools
    chosen = opacc.select(pool, "ces", max(LABELS), seed=seed, **parameters).index
    return [float(case.outcome[chosen[:n]].mean()) for n in LABELS]


if __name__ == "__main__":
    main()
