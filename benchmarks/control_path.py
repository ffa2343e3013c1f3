"""The driver's own work for a pool of 10⁹ examples, whose files and features are played by two stores in memory.

    python benchmarks/control_path.py [--files 20000] [--rows 50000]

Lists the pool and plans its shards, finds out that none is done and that all are (a resume reads the end of every
file), writes the index and reads it, and looks whether a complete run is sound. Prints a Markdown table of seconds, and
the most memory that this process held.
"""

import argparse
import io
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import markdown_table as markdown
import numpy as np

from opacc_ray.audit.stages import index_features, unfinished
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.feature_set import INDEX, read_index
from opacc_ray.extract.shards import FeatureShard, encode_shard
from opacc_ray.lake.local_store import LocalStore
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store import Entry, Listing
from opacc_ray.spec import parse_spec

Result = TypeVar("Result")

WIDTH = 64
"""Bytes of a row of the pool."""


class Played(LocalStore):
    """A place whose objects, all but those written to it, have one content."""

    keys: list[str]
    content: bytes
    num_bytes: int  # that each object says it has

    def play(self, keys: list[str], content: bytes, num_bytes: int | None = None) -> "Played":
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "content", content)
        object.__setattr__(self, "num_bytes", num_bytes or len(content))
        return self

    def list(self, prefix: str = "") -> list[Entry]:
        played = [Entry(key, self.num_bytes, "1") for key in self.keys if key.startswith(prefix)]
        return sorted(played + super().list(prefix))

    def survey(self) -> Listing:
        return Listing(self.list(), [])

    def read(self, key: str) -> bytes:
        return super().read(key) if key == INDEX else self.content

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self.content[start:stop]

    def read_entry_range(self, entry: Entry, start: int, stop: int) -> bytes:
        return self.content[start:stop]


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--files", type=int, default=20_000)
    found.add_argument("--rows", type=int, default=50_000)
    given = found.parse_args()
    print(markdown.header(("step", "seconds", "memory so far, MB")))
    with tempfile.TemporaryDirectory(prefix="opacc-control-") as home:
        _measure(home, given.files, given.rows)


def _measure(home: str, num_files: int, rows: int) -> None:
    spec = parse_spec(
        {
            "name": "control",
            "pool": {"uri": f"{home}/pool", "format": "npy"},
            "model": {"factory": "user:network"},
            "extract": {"shard_size": rows},
            "sample": {"method": "srs", "budget": 10},
            "output": f"{home}/audits",
        },
        "spec",
    )
    pool = Played(f"{home}/pool").play([f"{i:06d}.npy" for i in range(num_files)], *_array(rows))
    plan = _timed("list the pool and plan its shards", lambda: plan_shards(pool, "npy", rows))
    assert plan.num_examples == num_files * rows
    empty = Extraction(spec, spec.pool, spec.features(), LocalStore(f"{home}/none"))
    assert len(_timed("find that no shard is done", lambda: unfinished(empty, plan)).missing) == len(plan.shards)
    target = Played(f"{home}/features").play([shard.file for shard in plan.shards], _features(rows))
    job = Extraction(spec, spec.pool, spec.features(), target)
    found = _timed("resume: find that every shard is done", lambda: unfinished(job, plan))
    assert not found.missing
    index = _timed("write the index", partial(index_features, job, plan, found.reports))
    assert index.num_examples == num_files * rows
    written = LocalStore(f"{home}/features")
    size = written.size(INDEX)
    print(markdown.row((f"the index has {size / 1e6:.1f} MB", "", "")))
    assert _timed("read the index", lambda: read_index(written)) == index
    _timed("look whether a complete run is sound", lambda: unfinished(job, plan))


def _timed(step: str, work: Callable[[], Result]) -> Result:
    begun = time.monotonic()
    result = work()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(markdown.row((step, f"{time.monotonic() - begun:.1f}", f"{most:.0f}")), flush=True)
    return result


def _array(rows: int) -> tuple[bytes, int]:
    """The head of a NumPy file, which is all that planning reads, and the size of the whole."""
    sink = io.BytesIO()
    np.lib.format.write_array_header_1_0(sink, {"descr": "|u1", "fortran_order": False, "shape": (rows, WIDTH)})
    return sink.getvalue().ljust(1 << 16, b"\0"), len(sink.getvalue()) + rows * WIDTH


def _features(rows: int) -> bytes:
    """A file of features as an actor writes it."""
    generator = np.random.default_rng(0)
    columns = {
        "confidence": generator.random(rows, dtype=np.float32),
        "prediction": generator.integers(0, 10, rows),
        "hidden": generator.random((rows, 4), dtype=np.float32),
    }
    ids = [f"{i}" for i in range(rows)]
    return encode_shard(FeatureShard(ids, ids, columns, [], own_ids=False))


if __name__ == "__main__":
    main()
