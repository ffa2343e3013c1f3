"""Features in actors: the same answers and draws as in this process, ids and columns from storage, unchanged errors."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from synthetic_run import write_synthetic

import opacc_ray as opacc
from opacc_ray.audit import verbs
from opacc_ray.cluster import tasks
from opacc_ray.cluster.tasks import ActorParts, hold
from opacc_ray.errors import ClusterError, DataError
from opacc_ray.extract.feature_files import Features, StoredParts
from opacc_ray.extract.feature_set import make_index
from opacc_ray.extract.shards import FeatureFile, FeatureShard, encode_reported, encode_shard, parse_report
from opacc_ray.lake.store_uris import open_store
from opacc_ray.parts.view import View
from opacc_ray.pool import SliceRule
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.samplers import METHODS
from opacc_ray.samplers.select import select

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
    monkeypatch.setattr(run_module, "MEMORY_LIMIT", 0)
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


CUTS = [0, 1, 400, 401, 1100, 1500]
"""Files; a budget of 40 lets neyman thin the pool."""


def columns() -> dict[str, np.ndarray]:
    """Features with ties, such as a softmax that saturates has."""
    rng = np.random.default_rng(4)
    size = CUTS[-1]
    output = rng.normal(size=(size, 4)).astype(np.float32)
    return {
        "hidden": np.maximum(rng.normal(size=(size, 6)), 0).astype(np.float32),
        "output": output,
        "prediction": output.argmax(axis=1),
        "confidence": np.round(1 - rng.beta(0.2, 3, size), 3),
        "dsa": rng.gamma(2, 1, size).astype(np.float32),
        "lsa": rng.normal(50, 30, size).astype(np.float32),
        "coverage": np.packbits(rng.random((size, 40)) < 0.2, axis=1),
    }


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Iterator[dict[int, ActorParts]]:
    """The features in 1, 2 and 4 actors."""
    store, whole, files = open_store(str(tmp_path_factory.mktemp("features"))), columns(), []
    for start, stop in itertools.pairwise(CUTS):
        ids = [str(i) for i in range(start, stop)]
        part = {name: values[start:stop] for name, values in whole.items()}
        store.write(f"{start}.parquet", encode_shard(FeatureShard(ids, ids, part, [])))
        files.append(FeatureFile(f"{start}.parquet", stop - start))
    features = Features(store, tuple(files))
    with contextlib.ExitStack() as ends:
        found = {num: ActorParts(features, list(whole), num) for num in (1, 2, 4)}
        for parts in found.values():
            ends.callback(parts.close)
        yield found


def audit(view: View | opacc.Pool, method: str, **parameters: Any) -> list[dict[str, Any]]:
    """Two rounds, the second after the labels of the first."""
    first = opacc.select(view, method, 40, seed=9, **parameters)
    labels = (first.index % 5 > 0).astype(float)
    second = select(view, method, 40, seed=9, previous=[(first, labels)], **parameters)
    return [first.to_dict(), second.to_dict()]


CASES: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in METHODS),
    *(("deepest", {"auxiliary": name, "rule": "paper"}) for name in ("dsa", "lsa", "combined")),
    ("neyman", {"directions": 0, "price": 0.0}),
]


@pytest.mark.parametrize(("method", "parameters"), CASES, ids=lambda given: str(given))
def test_actors_draw_what_one_process_draws(
    method: str, parameters: dict[str, Any], numbered: dict[int, ActorParts]
) -> None:
    whole = columns()
    expected = audit(opacc.Pool(ids=[str(i) for i in range(CUTS[-1])], **whole), method, **parameters)
    for num, parts in numbered.items():
        assert audit(View(parts), method, **parameters) == expected, f"{num} actors"


def test_the_cache_of_a_lost_actor_is_made_again(numbered: dict[int, ActorParts], tmp_path: Path) -> None:
    view = View(numbered[2])
    first = audit(view, "deepreduce")
    view.map(_die_once, str(tmp_path / "died"))
    assert audit(view, "deepreduce") == first
