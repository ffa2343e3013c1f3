"""How fast, and with how much memory, a job goes: some batches of it, read and computed here."""

import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from opacc_ray.errors import DataError
from opacc_ray.extract.extractor import Batch, Extraction, Extractor
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


def measure(job: Extraction, shard: Shard, num_batches: int, device: str = "cpu") -> Pace:
    """Read and compute the first batches of a shard, and write nothing.

    The first one is not counted where more follow: it opens connections and compiles.

    Raises
    ------
    DataError
        The shard holds no example that can be used.
    """
    extractor = Extractor(job, device)
    extractor.prepare()
    bad: list[BadItem] = []
    timed = list(islice(_timed(extractor, shard, bad), num_batches))
    if not timed:
        reason = f"{bad[0].id}: {bad[0].reason}" if bad else "it is empty"
        raise DataError(f"no example of the first shard of {job.source.uri} could be read ({reason}); check the pool")
    counted = timed[1:] or timed
    num = sum(len(batch.ids) for batch, *_ in counted)
    batch, _, _, _, whole = timed[0]
    encoded, half = (len(encode_shard(part, extractor.prepare().machine)) for part in (whole, _first_half(whole)))
    per_example = (encoded - half) / max(1, len(whole.ids) - len(whole.ids) // 2)
    return Pace(
        examples=num,
        read=sum(item[1] for item in counted) / num,
        read_cpu=sum(item[2] for item in counted) / num,
        compute=sum(item[3] for item in counted) / num,
        input_bytes=batch.inputs[0].nbytes,
        example_bytes=max(item[0].largest for item in timed),
        feature_bytes=max(1, round(per_example)),
        file_bytes=max(0, round(encoded - per_example * len(whole.ids))),
        process_bytes=resident_bytes(),
    )


def _timed(
    extractor: Extractor, shard: Shard, bad: list[BadItem]
) -> Iterator[tuple[Batch, float, float, float, FeatureShard]]:
    """Each batch with the seconds that it took to be read, the CPU's of them, those of the model, and its features."""
    batches = extractor.read_batches(shard, bad)
    while True:
        begun, cpu = time.monotonic(), time.process_time()
        batch = next(batches, None)
        if batch is None:
            return
        read, cpu = time.monotonic() - begun, time.process_time() - cpu
        begun = time.monotonic()
        columns, _ = extractor.compute(batch)
        computed = time.monotonic() - begun
        yield batch, read, cpu, computed, FeatureShard(batch.ids, batch.uris, columns, [], batch.own_ids)


def _first_half(shard: FeatureShard) -> FeatureShard:
    """So that the size of a file is told from that of its rows."""
    half = len(shard.ids) // 2
    columns = {name: values[:half] for name, values in shard.columns.items()}
    return shard._replace(ids=shard.ids[:half], uris=shard.uris and shard.uris[:half], columns=columns)


def resident_bytes() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
