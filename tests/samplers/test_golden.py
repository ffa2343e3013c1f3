"""Golden selections: one file per method, in the format that users keep for days.

A refactoring must reproduce them, and later versions must read them. After a change that is meant to change selections,
delete the method's file and run this test once: it writes the file anew, fails, and passes from then on.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.samplers import METHODS, parse_parameters

GOLDEN = Path(__file__).parent / "golden"
N = 300


def pool() -> opacc.Pool:
    """Features made with integers and exact quotients, so that they are the same on every machine."""
    rng = np.random.default_rng(20190826)
    output = rng.integers(-64, 64, (N, 4)) / 16
    return opacc.Pool(
        hidden=rng.integers(0, 256, (N, 10)) / 32,
        output=output,
        prediction=output.argmax(axis=1),
        confidence=rng.integers(300, 1000, N) / 1000,
        dsa=rng.integers(1, 400, N) / 128,
        lsa=rng.integers(1, 4000, N) / 64,
        coverage=rng.integers(0, 5, (N, 30)) == 0,
    )


@pytest.mark.parametrize("method", METHODS)
def test_selection_is_the_golden_one(method: str) -> None:
    path = GOLDEN / f"{method}.json"
    chosen = opacc.select(pool(), method, 40, seed=11)
    if not path.exists():
        chosen.save(path)
        pytest.fail(f"{path.name} was missing and is written anew; look at it and commit it")
    golden = opacc.Selection.load(path)
    assert chosen.index.tolist() == golden.index.tolist()
    assert_near(chosen.design.to_json(), golden.design.to_json())
    assert_near(chosen.facts, golden.facts)
    kept = parse_parameters(method, golden.parameters)  # which lack those that came later
    assert (parse_parameters(method, chosen.parameters), chosen.seed) == (kept, golden.seed)
    assert chosen.pool_size == golden.pool_size


def assert_near(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Numbers to nine digits, all else exactly."""
    assert found.keys() == expected.keys()
    for name, item in expected.items():
        assert found[name] == (item if isinstance(item, str) else pytest.approx(item, rel=1e-9)), name


@pytest.mark.processes
def test_labels_come_back_in_another_process() -> None:
    replay = (
        "import sys, opacc_ray as opacc\n"
        "for path in sys.argv[1:]:\n"
        "    selection = opacc.Selection.load(path)\n"
        "    print(opacc.estimate(selection, outcomes=[float(i % 6 > 0) for i in range(len(selection))]))"
    )
    paths = [GOLDEN / f"{method}.json" for method in METHODS]
    done = subprocess.run([sys.executable, "-c", replay, *map(str, paths)], capture_output=True, text=True, check=True)
    selections = [opacc.Selection.load(path) for path in paths]
    here = [estimate_outcomes(item, (np.arange(len(item)) % 6 > 0).astype(float)) for item in selections]
    assert done.stdout.splitlines() == [str(estimate) for estimate in here]
