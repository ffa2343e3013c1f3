"""Golden measures: what characterisation and generation return for one seed, with the parameters they have by default.

A refactoring must reproduce them. After a change that is meant to change them, delete the file and run this test once:
it writes the file anew, fails, and passes from then on.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.extensions.characterize.classes import Grouped, Regions, find_clusters
from opacc_ray.extensions.characterize.generation import find_head, find_sources, generate
from opacc_ray.parts.view import view_of

GOLDEN = Path(__file__).parent / "golden"


def pool(num: int, seed: int, moved: float = 0.0, bend: float = 0.1) -> opacc.Pool:
    """Two classes in twelve neurons; of each, some examples are near a boundary."""
    rng = np.random.default_rng(seed)
    label = np.arange(num) % 2
    hidden = 1.5 * np.eye(12)[label] + rng.normal(size=(num, 12)) * np.linspace(1, 0.2, 12)
    hidden[:, 4] += moved * (label == 1)
    output = hidden[:, :2] + bend * hidden[:, 2:4] ** 2
    shares = np.exp(output) / np.exp(output).sum(axis=1, keepdims=True)
    return opacc.Pool(hidden=hidden, output=output, prediction=output.argmax(axis=1), confidence=shares.max(axis=1))


def characterized() -> Any:
    found = opacc.characterize(pool(1000, 1, moved=0.8), pool(1500, 2), seed=5)
    return {"sets": [one.model_dump(mode="json") for one in found.sets]}


def generated() -> Any:
    data, regions, rng = Grouped(view_of(pool(4500, 3, bend=0)), 2), Regions(), np.random.default_rng(7)
    head, clusters = find_head(data.view, 2, seed=8), find_clusters(data)
    sources = find_sources(data, head, clusters, regions, rng)
    made = generate(sources, head, clusters, regions, 0.4, 30, rng)
    return {
        "agreement": head.agreement,
        "sources": len(sources.example),
        **{name: getattr(made, name).tolist() for name in ("label", "near_centroid", "source", "towards", "step")},
        **{name: getattr(made, name).tolist() for name in ("predicted", "confidence", "violates")},
    }


@pytest.mark.parametrize("make", [characterized, generated])
def test_measures_are_the_golden_ones(make: Any) -> None:
    path, found = GOLDEN / f"{make.__name__}.json", make()
    if not path.exists():
        path.write_text(json.dumps(found, indent=1) + "\n")
        pytest.fail(f"{path.name} was missing and is written anew; look at it and commit it")
    assert_near(found, json.loads(path.read_text()), "")


def assert_near(found: Any, expected: Any, place: str) -> None:
    """Compare numbers to six digits, all else exactly."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for name, item in expected.items():
            assert_near(found[name], item, f"{place}/{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for number, (one, item) in enumerate(zip(found, expected, strict=True)):
            assert_near(one, item, f"{place}/{number}")
    else:
        assert found == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected), place
