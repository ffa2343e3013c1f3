"""Extraction in this process, one shard after the other: what actors would do, without a cluster.

An actor's process takes seconds of a CPU to start. What travels to it is pickled here, too.
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from opacc_ray.cluster import actor_pool, local, session
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.extractor import Extractor
from opacc_ray.lake.examples import Shard


@contextmanager
def extracting_here() -> Iterator[list[tuple[tuple[str, ...], bool, str]]]:
    """Extract without Ray; yields a list that grows by what is made, whether the model runs, and the shard."""
    made: list[tuple[tuple[str, ...], bool, str]] = []

    def one_by_one(job: Extraction, shards: list[Shard], on_done: Callable[[Shard, Any], None]) -> None:
        extractor = Extractor(pickle.loads(pickle.dumps(job)))
        for shard in shards:
            made.append((job.names, job.hidden is None, shard.name))
            on_done(shard, pickle.loads(pickle.dumps(extractor.extract(pickle.loads(pickle.dumps(shard))))))

    @contextmanager
    def no_cluster() -> Iterator[bool]:
        yield True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actor_pool, "extract_shards", one_by_one)
        patch.setattr(session, "connected", no_cluster)
        patch.setattr(session, "needs_ray", lambda *_: True)
        patch.setattr(local, "begin", lambda: None)
        yield made
