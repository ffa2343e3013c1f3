"""A small study: its cases, its spec, and what to look at in its results."""

from pathlib import Path
from typing import Any

import numpy as np

from opacc_ray.extensions.study.cases import Source, find_cases, read_case
from opacc_ray.extensions.study.experiment import run_study
from opacc_ray.extensions.study.study_spec import CaseSpec, MethodSpec, StudySpec, parse_method
from opacc_ray.extensions.study.trials import Block, Cell, run_block
from opacc_ray.spec import validated

N = 300


def arrays() -> dict[str, np.ndarray]:
    """A classifier of 0.8 or so, right more often where it is confident."""
    rng = np.random.default_rng(7)
    confidence = rng.uniform(0.3, 1, N)
    correct = rng.random(N) < 0.35 + 0.62 * confidence
    hidden = np.column_stack([confidence + rng.normal(0, 0.1, N), rng.normal(size=(N, 3))]).astype(np.float32)
    return {"hidden": hidden, "Pred": rng.integers(0, 10, N), "confidence": confidence, "correct": correct}


def labelled(num: int = 400, classes: int = 3) -> dict[str, np.ndarray]:
    """A linear classifier of clouds around class centres, with its labels."""
    rng = np.random.default_rng(3)
    label, centre = rng.integers(0, classes, num), 2 * np.eye(classes, 4)
    hidden = np.maximum(centre[label] + rng.normal(0, 0.9, (num, 4)), 0).astype(np.float32)
    output = (2 * hidden @ centre.T - 2).astype(np.float32)
    confidence = 1 / np.exp(output - output.max(1, keepdims=True)).sum(1)
    return {
        **{"hidden": hidden, "output": output, "prediction": output.argmax(1), "label": label},
        "confidence": confidence.astype(np.float64),
    }


def spec_of(folder: Path | str, output: Path | str, **content: Any) -> StudySpec:
    given = {"cases": [str(folder)], "methods": ["srs"], "budgets": [30], "repetitions": 20, "output": str(output)}
    return validated(StudySpec, given | content, "test")


def results_of(*arguments: Any, **options: Any) -> dict[str, Any]:
    """What results.json holds of a study."""
    return run_study(*arguments, **options).to_dict()


def cell_of(results: dict[str, Any], case: str, method: str, budget: int) -> dict[str, Any]:
    wanted = (case, method, budget)
    return next(cell for cell in results["cells"] if (cell["case"], cell["method"], cell["budget"]) == wanted)


def source(path: Path, **options: Any) -> Source:
    return find_cases([CaseSpec(path=str(path), **options)])[0]


def block(path: Path, method: str, budget: int = 30, stop: int = 3) -> Block:
    case = read_case(source(path)).source
    return Block(Cell(case, MethodSpec(**parse_method(method)), budget, 5, 0.95, stop), 0, stop)


def run_here(missing: Any, workers: int | None) -> Any:
    """Run blocks in this process, as `experiment._run` does on Ray."""
    return ((block, run_block(block)) for block in missing)
