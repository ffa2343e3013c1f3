"""How fast, and with how much memory, a job goes: some batches of it, read and computed here."""

import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from opacc_ray.errors import DataError
from opacc_ray.extract.extractor import Extraction, Extractor
from opacc_ray.extract.inputs import Batch
from opacc_ray.extract.shards import FeatureShard, encode_shard
from opacc_ray.lake.examples import BadItem, Shard


class Pace(NamedTuple):
    """What some batches took."""

    examples: int  # that were measured
    read: float  # seconds an example takes to be read and decoded and made an input, waiting included
    read_cpu: float  # of that, seconds of the CPU
    compute: float  # seconds an example takes in the model
    input_bytes: int  # of one input of the model
    example_bytes: int  # of the largest decoded example
    feature_bytes: int  # of one example's features in a file, uris and ids included
    file_bytes: int  # of a file beside the features
    process_bytes: int  # that this process holds with the model loaded


def measure(job: Extraction, shards: Sequence[Shard], num_batches: int, device: str = "cpu") -> Pace:
    """Read and compute the first batches of some shards, and write nothing.

    One more is read and computed before, uncounted: it opens connections and compiles.

    Raises
    ------
    DataError
        The shards hold no example that can be used.
    """
    extractor = Extractor(job, device)
    extractor.prepare()
    bad: list[BadItem] = []
    warm = extractor.read_batches(shards[0], bad)
    for batch in islice(warm, 1):
        extractor.compute(batch)
    bad.clear()
    timed = list(islice((item for shard in shards for item in _timed(extractor, shard, bad)), num_batches))
    if not timed:
        reason = f"{bad[0].id}: {bad[0].reason}" if bad else "it is empty"
        raise DataError(f"no example of {job.source.uri} could be read, the first because of {reason}; check the pool")
    num = sum(len(item.batch.ids) for item in timed)
    whole = timed[0].features
    encoded, half = (len(encode_shard(part, extractor.prepare().machine)) for part in (whole, _first_half(whole)))
    per_example = (encoded - half) / max(1, len(whole.ids) - len(whole.ids) // 2)
    return Pace(
        examples=num,
        read=sum(item.read for item in timed) / num,
        read_cpu=sum(item.read_cpu for item in timed) / num,
        compute=sum(item.compute for item in timed) / num,
        input_bytes=timed[0].batch.inputs[0].nbytes,
        example_bytes=max(item.batch.largest for item in timed),
        feature_bytes=max(1, round(per_example)),
        file_bytes=max(0, round(encoded - per_example * len(whole.ids))),
        process_bytes=resident_bytes(),
    )


class _Timed(NamedTuple):
    """A batch, the seconds that it took, and its features."""

    batch: Batch
    read: float
    read_cpu: float
    compute: float
    features: FeatureShard


def _timed(extractor: Extractor, shard: Shard, bad: list[BadItem]) -> Iterator[_Timed]:
    batches = extractor.read_batches(shard, bad)
    while True:
        begun, cpu = time.monotonic(), time.process_time()
        batch = next(batches, None)
        if batch is None:
            return
        read, cpu = time.monotonic() - begun, time.process_time() - cpu
        begun = time.monotonic()
        columns, _ = extractor.compute(batch)
        compute = time.monotonic() - begun
        features = FeatureShard(batch.ids, batch.uris, columns, [], batch.own_ids)
        yield _Timed(batch, read, cpu, compute, features)


def _first_half(shard: FeatureShard) -> FeatureShard:
    """The first half of a shard, beside which the size of a file is told from that of its rows."""
    half = len(shard.ids) // 2
    columns = {name: values[:half] for name, values in shard.columns.items()}
    return shard._replace(ids=shard.ids[:half], uris=shard.uris and shard.uris[:half], columns=columns)


def resident_bytes() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
