"""What version 0.1.0 wrote still loads, and means the same: selections of every method, and whole runs.

`v0_1_0/` was written by that version: selections in one round and in two, with all that it stated of them for the
outcomes in `pool.npz`; and two runs with labels, whose estimate and next round it wrote down as well.

What a later version states otherwise on purpose, of the same files, is in `v0_1_0/restated.json`, and CHANGELOG.md says
why. Its entries replace those of the same name.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samplers.test_golden import pool
from two_models import compare

import opacc_ray as opacc
from opacc_ray.audit import results, steps
from opacc_ray.estimators.baselines import baseline
from opacc_ray.estimators.confidence_sequence import confidence_sequence
from opacc_ray.estimators.domain import by_class, calibrate, confusion, mean_cost
from opacc_ray.estimators.prediction_powered import assisted_estimate
from opacc_ray.estimators.rounds import linear_estimator
from opacc_ray.runs.run import Run

HOME = Path(__file__).parent / "v0_1_0"
STATED = json.loads((HOME / "statements.json").read_text())
RESTATED = json.loads((HOME / "restated.json").read_text())


def name_of(case: dict[str, Any]) -> str:
    return f"{'+'.join(case['files'])}{case.get('first', '')}"


@pytest.mark.parametrize("case", STATED, ids=name_of)
def test_selection_loads_and_states_the_same(case: dict[str, Any]) -> None:
    selections = [opacc.Selection.load(HOME / "selections" / name) for name in case["files"]]
    if "first" in case:  # labels that are missing
        selections = [part.restrict(np.arange(len(part)) < case["first"]) for part in selections]
    stated = statements(selections)
    assert stated.keys() == case["says"].keys()
    for name, expected in (case["says"] | RESTATED.get(name_of(case), {})).items():
        assert_same(stated[name], expected, name)


def test_what_is_restated_differs_from_what_was_stated() -> None:
    was = {name_of(case): case["says"] for case in STATED}
    for case in RESTATED.keys() & was.keys():
        for name, item in RESTATED[case].items():
            with pytest.raises(AssertionError):
                assert_same(item, was[case][name], name)


def statements(selections: list[opacc.Selection]) -> dict[str, Any]:
    known = np.load(HOME / "pool.npz")
    whole, outcome, other = pool(), known["outcome"], known["other"]

    def of(values: np.ndarray) -> list[np.ndarray]:
        return [values[part.index] for part in selections]

    estimate = opacc.estimate(selections, of(outcome))
    index = np.concatenate([part.index for part in selections])
    said, true, right = whole.prediction[index], known["truth"][index], outcome[index]
    count = dict(zip(*(column.tolist() for column in np.unique(whole.prediction, return_counts=True)), strict=True))
    design = linear_estimator(selections)
    stated = {
        "estimate": estimate.to_dict(),
        "estimate_90": opacc.estimate(selections, of(outcome), 0.9).to_dict(),
        "score": opacc.estimate(selections, of(known["score"])).to_dict(),
        "none_fail": opacc.estimate(selections, of(np.ones(whole.size))).to_dict(),
        "baseline": baseline(selections, of(outcome), estimate).to_dict(),
        "compare": compare(selections, of(outcome), of(other)).to_dict(),
        "sequence": confidence_sequence(selections, of(outcome)).to_dict(),
        "by_class": {str(c): part.to_dict() for c, part in by_class(selections, right, said).items()},
        "calibrated": {
            str(c): part.to_dict() for c, part in by_class(calibrate(selections, said, count), right, true).items()
        },
        "confusion": confusion(selections, true, said).to_dict(),
        "mean_cost": mean_cost(selections, true, said, {1: 3.0, 2: {0: 5.0}}).to_dict(),
        "weight": design.weights.tolist(),
        "reach": design.largest_weight,
        "reason": design.reason,
    }
    if not any(part.method == "neyman" for part in selections):
        stated["assisted"] = assisted_estimate(selections, of(outcome), whole.confidence).to_dict()
        stated["assisted_half"] = assisted_estimate(selections, of(outcome), whole.confidence, strength=0.5).to_dict()
    return stated


def assert_same(found: Any, expected: Any, name: str) -> None:
    """Numbers to nine digits, all else exactly."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), name
        for key, value in expected.items():
            assert_same(found[key], value, f"{name}.{key}")
    elif isinstance(expected, list):
        assert np.shape(found) == np.shape(expected), name
        for place, value in enumerate(expected):
            assert_same(found[place], value, f"{name}[{place}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), name
    else:
        assert found == expected, name


@pytest.fixture(params=["neyman", "css"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    home = tmp_path / f"{request.param}-00000001"
    shutil.copytree(HOME / "runs" / home.name, home)
    return Run.open(str(home))


def test_run_states_the_same(run: Run) -> None:
    expected = json.loads(run.store.read("estimate.json")) | {"run": run.uri} | RESTATED.get(run.name, {})
    found = results.estimate(run).to_dict()
    assert expected.keys() <= found.keys()
    for name, value in expected.items():
        assert_same(found[name], value, name)


def test_run_goes_on_to_the_next_round(run: Run) -> None:
    chosen = steps.next_round(run, 20)
    name = f"{run.name.partition('-')[0]}-next"
    expected = RESTATED.get(name) or json.loads((HOME / f"{name}.json").read_text())
    assert chosen.index.tolist() == expected["index"]
    assert list(chosen.ids) == expected["ids"]
    assert chosen.round == 2
