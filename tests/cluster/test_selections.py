"""Every method draws the same from 1, 2 and 4 actors as from memory, bit for bit, also in a later round."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.cluster.tasks import ActorParts
from opacc_ray.extract.feature_files import FeatureFile, Features
from opacc_ray.extract.shards import FeatureShard, encode_shard
from opacc_ray.lake.store_uris import open_store
from opacc_ray.parts.view import View
from opacc_ray.samplers import METHODS
from opacc_ray.samplers.select import select

pytestmark = pytest.mark.usefixtures("ray_cluster")

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
def held(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Iterator[dict[int, ActorParts]]:
    """The features in 1, 2 and 4 actors."""
    store, whole, files = open_store(str(tmp_path_factory.mktemp("features"))), columns(), []
    for start, stop in itertools.pairwise(CUTS):
        ids = [str(i) for i in range(start, stop)]
        part = {name: values[start:stop] for name, values in whole.items()}
        store.write(f"{start}.parquet", encode_shard(FeatureShard(ids, ids, part, [])))
        files.append(FeatureFile(f"{start}.parquet", stop - start, None, None, None))
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
    method: str, parameters: dict[str, Any], held: dict[int, ActorParts]
) -> None:
    whole = columns()
    expected = audit(opacc.Pool(ids=[str(i) for i in range(CUTS[-1])], **whole), method, **parameters)
    for num, parts in held.items():
        assert audit(View(parts), method, **parameters) == expected, f"{num} actors"


def test_the_cache_of_a_lost_actor_is_made_again(held: dict[int, ActorParts], tmp_path: Path) -> None:
    view = View(held[2])
    first = audit(view, "deepreduce")
    view.map(_die_once, str(tmp_path / "died"))
    assert audit(view, "deepreduce") == first


def _die_once(part: opacc.Pool, marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(1)
