"""Two commands on one run: a shard that one has finished is skipped by the other."""

from collections import deque
from pathlib import Path

import numpy as np
import pytest

from opacc_ray.extract.shards import FeatureShard, FinishedElsewhere, encode_shard
from opacc_ray.lake.examples import Shard
from opacc_ray.lake.store import Entry
from opacc_ray.lake.store_uris import open_store


def shard(number: int) -> Shard:
    return Shard(number, (Entry(f"{number}.png", 1, ""),))


def test_shards_that_another_command_finishes_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="opacc_ray")
    monkeypatch.setattr("opacc_ray.extract.shards.LIST_EVERY", 0.0)
    folder = open_store(str(tmp_path))
    features = encode_shard(FeatureShard(["2.png"], ["u"], {"confidence": np.ones(1, dtype=np.float32)}, []))
    folder.write(shard(1).file, b"damaged, and so to be done again")
    watch, pending = FinishedElsewhere(folder, "images"), deque([shard(1), shard(2), shard(3)])
    assert watch.take(pending) == []
    folder.write(shard(2).file, features)
    [(taken, report)] = watch.take(pending)
    assert (taken, report.num_examples) == (shard(2), 1)
    assert pending == deque([shard(1), shard(3)])
    assert "another command on this run has finished 1 of the remaining shards" in caplog.text


def test_a_file_that_is_not_the_shards_is_left_in_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opacc_ray.extract.shards.LIST_EVERY", 0.0)
    folder = open_store(str(tmp_path))
    watch, pending = FinishedElsewhere(folder, "images"), deque([shard(1)])
    other = encode_shard(FeatureShard(["9.png"], ["u"], {"confidence": np.ones(1, dtype=np.float32)}, []))
    for content in (b"half", other):
        folder.write(shard(1).file, content)
        assert watch.take(pending) == []
        assert pending == deque([shard(1)])
