"""Trial of transform and model on some examples, before any actor starts; and its time and memory per example."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, counted
from opacc_ray.extract.extraction import Extraction, check_bad
from opacc_ray.extract.extractor import Extractor
from opacc_ray.extract.inference import FunctionModel, columns_of, load_model, run_model
from opacc_ray.extract.inputs import Batch, load_transform, transformed
from opacc_ray.extract.machine import resident_bytes
from opacc_ray.extract.shards import Columns, FeatureShard, encode_shard, joined, not_finite
from opacc_ray.lake.examples import BadItem, Example, Plan, Shard
from opacc_ray.lake.pools import read_examples
from opacc_ray.spec import PoolSpec, Spec, open_pool, rules_of

if TYPE_CHECKING:
    from opacc_ray.extract.torch_model import Model

TRIED, PLACES = 64, 8  # number of examples, at most, and of evenly spread places of the pool that they are read from
SECONDS = 10.0  # time after which no further place is read
RANDOM = 1e-4  # difference of two results for the same examples, relative to their spread, that no rounding explains
SHARDS_TRIED = 8  # shards that are searched for an example that decodes, if none of the places has one
MOST_MEASURES = 4096  # values of an input that are compared one by one

_BY_ROW = ("npy", "lance")  # formats that can read some rows of a piece


class Trial(NamedTuple):
    """Results of the model for some examples."""

    first: Example
    input: tuple[int, ...]  # shape of the first one after the transform
    hidden: int  # neurons of the recorded layer; 0 if the model returns its output alone
    columns: Columns  # output (n, C), prediction (n,) and, for classes, confidence (n,)
    inputs: NDArray[np.float64]  # (n, k) measures of the inputs, see :func:`measures_of`; (n, 0) if shapes differ
    excluded: int  # further examples that would be left out
    note: str | None  # how the keys of the weights were changed, if they were
    random: str | None = None  # what gives another result for the same examples: the transform, or the model


def try_examples(spec: Spec, plan: Plan) -> Trial:
    """Build the model and run some examples from several places of the pool.

    Raises the errors of extraction, SpecError, DataError or StorageError: functions that cannot be imported, weights
    that do not fit, a transform or model that raises, an output of another form than the spec states or not finite.
    """
    transform = load_transform(spec)
    covered = spec.extract.coverage if "coverage" in spec.features() else None
    model = load_model(spec, "cpu", covered)
    first: Example | None = None
    parts: list[Columns] = []
    inputs: list[NDArray[np.float32]] = []
    bad: list[BadItem] = []
    random: str | None = None
    for examples, unread in _batches(spec, spec.pool, plan):
        batch = Batch(max(1, len(examples)))
        for example in examples:
            batch.add(example, transformed(transform, example))
        columns = columns_of(spec, run_model(model, batch.inputs), spec.features()) if examples else {}
        if examples and not parts:
            again = np.stack([transformed(transform, example) for example in examples])
            random = "transform" if _differ(batch.inputs, again) else None
            random = random or ("model" if _differ(columns["output"], _outputs(spec, model, batch)) else None)
        unfit = not_finite(columns)
        bad += [*unread, *(BadItem(examples[row].id, f"NaN or infinity in {name}") for row, name in unfit.items())]
        check_bad(spec, spec.pool, bad)
        sound = [row for row in range(len(examples)) if row not in unfit]
        if sound:
            first = first or examples[sound[0]]
            parts.append({name: values[sound] for name, values in columns.items()})
            inputs += [batch.inputs[row] for row in sound]
    if first is None:
        raise DataError(
            f"none of {counted(len(bad), 'example')} tried from {spec.pool.uri} can be used, the first because of "
            f"{bad[0].id}: {bad[0].reason}; check the model and the transform"
        )
    whole = joined(parts)
    hidden = whole["hidden"].shape[1] if "hidden" in whole else 0
    note = getattr(model, "note", None)
    return Trial(first, inputs[0].shape, hidden, whole, measures_of(inputs), len(bad), note, random)


def _outputs(spec: Spec, model: "Model | FunctionModel", batch: Batch) -> NDArray[Any]:
    return columns_of(spec, run_model(model, batch.inputs), spec.features())["output"]


def _differ(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Return whether two results for the same examples differ by more than rounding."""
    if first.shape != second.shape:
        return True
    spread = np.nan_to_num(np.float64(np.nanstd(first)), posinf=0.0)
    return not np.allclose(first, second, rtol=RANDOM, atol=RANDOM * float(spread), equal_nan=True)


def try_inputs(spec: Spec, source: PoolSpec, plan: Plan) -> NDArray[np.float64]:
    """Return measures (n, k) of some inputs, such as those of the reference; bad examples are skipped."""
    transform, batches = load_transform(spec), _batches(spec, source, plan)
    return measures_of([transformed(transform, example) for examples, _ in batches for example in examples])


def measures_of(inputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return measures (n, k) by which inputs are compared: the mean of each channel, or the values of a short row.

    (n, 0) if their shapes differ.
    """
    if len({value.shape for value in inputs}) != 1:
        return np.empty((len(inputs), 0))
    whole = np.stack(inputs).astype(np.float64)
    if whole.ndim == 2 and whole.shape[1] <= MOST_MEASURES:
        return whole
    channels = whole.shape[1] if whole.ndim == 4 and whole.shape[1] <= MOST_MEASURES else 1
    return np.asarray(whole.reshape(len(whole), channels, -1).mean(axis=2))


def _batches(spec: Spec, source: PoolSpec, plan: Plan) -> Iterator[tuple[list[Example], list[BadItem]]]:
    """Yield batches of examples of each place, no larger than in extraction, and those that do not decode."""
    begun, found = time.monotonic(), False
    places = _places(plan, source.format)
    for place in places:
        if found and time.monotonic() > begun + SECONDS:
            return
        items = list(islice(_read(source, place), -(-TRIED // len(places))))
        examples = [item for item in items if isinstance(item, Example)]
        found = found or bool(examples)
        bad = [item for item in items if isinstance(item, BadItem)]
        size = spec.extract.batch_size
        for start in range(0, max(len(examples), 1), size):
            yield examples[start : start + size], bad if start == 0 else []
    if not found:
        yield [_first_sound(spec, source, plan)], []


def _read(source: PoolSpec, shard: Shard) -> Iterator[Example | BadItem]:
    return read_examples(open_pool(source), source.format, shard, rules_of(source))


def _places(plan: Plan, kind: str) -> list[Shard]:
    """Return parts of shards, evenly spread over the pool, whose first examples are tried."""
    units = np.array([len(shard.pieces or shard.entries) for shard in plan.shards])
    ends = np.cumsum(units)
    total = int(ends[-1]) if len(ends) else 0
    starts = sorted({total * place // PLACES for place in range(PLACES)} if total else ())
    places = []
    for start, stop in pairwise([*starts, total]):
        number = int(np.searchsorted(ends, start, side="right"))
        shard, offset = plan.shards[number], start - int(ends[number] - units[number])
        if shard.pieces:
            places += _cut(shard, offset, PLACES // len(starts) if kind in _BY_ROW else 1)
        else:
            length = min(TRIED // PLACES, stop - start) if kind == "images" else 1
            places.append(shard._replace(entries=shard.entries[offset : offset + length]))
    return places


def _cut(shard: Shard, offset: int, parts: int) -> list[Shard]:
    """Return one piece of a shard, or ``parts`` of its rows, each as a shard."""
    piece = shard.pieces[offset]
    rows = piece.stop - piece.start
    starts = sorted({piece.start + rows * part // parts for part in range(parts)})
    most = rows if parts == 1 else TRIED // PLACES
    cuts = [piece._replace(start=a, stop=min(b, a + most)) for a, b in pairwise([*starts, piece.stop])]
    return [shard._replace(entries=(cut.entry,), pieces=(cut,)) for cut in cuts if cut.start < cut.stop]


def _first_sound(spec: Spec, source: PoolSpec, plan: Plan) -> Example:
    """Return the first example that decodes; only ``SHARDS_TRIED`` shards with bad examples alone are searched."""
    reason, tried = None, 0
    for shard in plan.shards:
        for item in _read(source, shard):
            if isinstance(item, Example):
                return item
            check_bad(spec, source, [item])
            reason = reason or f"{item.id}: {item.reason}"
        tried += reason is not None
        if tried == SHARDS_TRIED:
            break
    if reason is None:
        raise left_nothing(source)
    where = f"the first {tried} shards of " if tried < len(plan.shards) else ""
    raise DataError(f"no example of {where}{source.uri} could be read, the first because of {reason}; check the pool")


def left_nothing(source: PoolSpec) -> DataError:
    """Return the error for a pool without an example, or whose filter matches none."""
    if source.filter is None:
        return DataError(f"{source.uri} holds no example; check the URI")
    return DataError(f"pool.filter {source.filter!r} matches nothing in {source.uri}; correct it, or remove it")


class Pace(NamedTuple):
    """Time and memory of some batches."""

    examples: int  # that were measured
    read: float  # seconds per example to read, decode and transform, waiting included
    read_cpu: float  # of that, seconds of the CPU
    compute: float  # seconds per example in the model
    input_bytes: int  # of one input of the model
    example_bytes: int  # of the largest decoded example
    feature_bytes: int  # of one example's features in a file, uris and ids included
    file_bytes: int  # of a file without its features
    process_bytes: int  # of this process with the model loaded


def measure_pace(job: Extraction, shards: Sequence[Shard], num_batches: int, device: str = "cpu") -> Pace:
    """Measure the first batches of some shards, after one that opens connections and compiles; nothing is written.

    Raises DataError if they hold no example that can be used.
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
    num = sum(len(batch.ids) for batch, _, _ in timed)
    read, read_cpu, compute = np.sum([seconds for _, _, seconds in timed], axis=0) / num
    batch, columns, _ = timed[0]
    whole = FeatureShard(batch.ids, batch.uris, columns, [], batch.own_ids)
    half = whole.take(range(len(batch.ids) // 2))  # shows the bytes per row
    num_bytes, of_half = (len(encode_shard(part, extractor.prepare().machine)) for part in (whole, half))
    per_example = (num_bytes - of_half) / max(1, len(whole.ids) - len(half.ids))
    return Pace(
        examples=num,
        read=float(read),
        read_cpu=float(read_cpu),
        compute=float(compute),
        input_bytes=batch.inputs[0].nbytes,
        example_bytes=max(batch.largest for batch, _, _ in timed),
        feature_bytes=max(1, round(per_example)),
        file_bytes=max(0, round(num_bytes - per_example * len(whole.ids))),
        process_bytes=resident_bytes(),
    )


def _timed(
    extractor: Extractor, shard: Shard, bad: list[BadItem]
) -> Iterator[tuple[Batch, Columns, tuple[float, float, float]]]:
    """Yield each batch with its columns, and the seconds to read it, of the CPU to read it, and to compute."""
    batches = extractor.read_batches(shard, bad)
    while True:
        begun, cpu = time.monotonic(), time.process_time()
        batch = next(batches, None)
        if batch is None:
            return
        read, cpu = time.monotonic() - begun, time.process_time() - cpu
        begun = time.monotonic()
        columns, _ = extractor.compute(batch)
        yield batch, columns, (read, cpu, time.monotonic() - begun)
