"""Features in actors: the same answers as in this process, ids and columns from storage, unchanged errors."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from synthetic_run import write_synthetic

from opacc_ray.audit import verbs
from opacc_ray.cluster import tasks
from opacc_ray.cluster.tasks import ActorParts, hold
from opacc_ray.errors import ClusterError, DataError
from opacc_ray.extract.feature_files import Features, StoredParts
from opacc_ray.extract.feature_set import make_index
from opacc_ray.extract.shards import encode_reported, parse_report
from opacc_ray.parts.view import View
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.slices import SliceRule

pytestmark = pytest.mark.usefixtures("ray_cluster")

NAMES = ("hidden", "prediction", "confidence")
REPORT = {"ids": "", "predicted": None, "bad": [], "own_ids": False, "machine": None}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return write_synthetic(f"{tmp_path_factory.mktemp('runs')}/held-00000001", 70, 5, 15)


@pytest.fixture(scope="module")
def features(run: Run) -> Features:
    index = run.read_index()
    assert index is not None
    return Features.of(run.features, index.files)


@pytest.fixture(scope="module")
def held(features: Features, ray_cluster: None) -> Iterator[ActorParts]:
    with hold(features, NAMES) as parts:
        yield parts


def test_actors_answer_as_this_process_does(features: Features, held: ActorParts) -> None:
    here, there = View(StoredParts(features, NAMES)), View(held)
    assert (there.size, there.fields, held.sizes) == (70, frozenset(NAMES), [15, 15, 15, 15, 10])
    assert [np.array_equal(*both) for both in zip(here.map(_hidden), there.map(_hidden), strict=True)] == [True] * 5
    index = np.array([69, 0, 33, 34, 0])
    assert np.array_equal(here.take(_rows, index), there.take(_rows, index))
    assert np.array_equal(here.column("confidence"), there.column("confidence"))
    assert there.identify(index) == here.identify(index) == [f"{i:09d}.png" for i in index]


def test_actors_have_the_slices_of_their_parts(run: Run, features: Features) -> None:
    folder, reports = run.features.store("slices-0"), []
    for place, file in enumerate(features.files):
        ages = pa.table({"age": pa.array([place * 9 if row % 4 else None for row in range(file.num_examples)])})
        data = encode_reported(ages, REPORT, use_dictionary=True)
        folder.write(file.name, data)
        reports.append(parse_report(data, file.name))
    index = make_index([file.name for file in features.files], reports)
    rules = [SliceRule("age", "age"), SliceRule("old", "age", (10.0, 30.0))]
    sliced = features.with_slices(rules, "slices-0", index.files)
    here = View(StoredParts(sliced, NAMES))
    assert here.slicing("age").names == ("0", "9", "18", "27", "36", "(none)")
    with hold(sliced, NAMES) as parts:
        for name in ("age", "old", "age*old"):
            own, theirs = here.slicing(name), View(parts).slicing(name)
            assert own.names == theirs.names
            assert np.array_equal(own.codes, theirs.codes)


def test_error_of_a_part_comes_as_it_was_raised(held: ActorParts) -> None:
    with pytest.raises(DataError) as caught:
        View(held).map(_refuse)
    assert str(caught.value) == "cannot be used"


def test_actor_that_dies_comes_back_with_its_features(held: ActorParts, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    assert View(held).map(_die_once, str(marker)) == [15, 15, 15, 15, 10]
    assert marker.exists()


def test_actor_that_always_dies_is_an_error(features: Features, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RESTARTS", 0)
    with hold(features, NAMES) as parts, pytest.raises(ClusterError, match="died 1 time: "):
        View(parts).map(_die)


@pytest.mark.parametrize(("method", "num_starts"), [("neyman", 1), ("deepest", 0)])
def test_actors_hold_layers_that_are_too_large_for_one_process(
    method: str, num_starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They start when a method first asks for a layer; columns are read in this process."""
    here, there = (write_synthetic(f"{tmp_path}/{name}/a-00000001", 70, 5, 15) for name in ("here", "there"))
    first = verbs.select(here, method, 20, {}, seed=3)
    monkeypatch.setattr(feature_store, "MEMORY_LIMIT", 0)
    started: list[int] = []
    plain = ActorParts.__init__

    def start(self: ActorParts, features: Features, names: Any, num_actors: int) -> None:
        started.append(num_actors)
        plain(self, features, names, num_actors)

    monkeypatch.setattr(ActorParts, "__init__", start)
    assert verbs.select(there, method, 20, {}, seed=3).to_dict() == first.to_dict()
    assert len(started) == num_starts


def _hidden(part: Any) -> Any:
    return part.hidden


def _rows(part: Any, rows: Any) -> Any:
    return part.hidden[rows]


def _refuse(part: Any) -> None:
    raise DataError("cannot be used")


def _die_once(part: Any, marker: str) -> int:
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(1)
    return int(part.size)


def _die(part: Any) -> None:
    os._exit(1)
