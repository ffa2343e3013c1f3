"""Trial of transform and model on some examples, before any actor starts; and its time and memory per example.

**Spot check**: a few examples are extracted again, to compare stored features with those of today's code. Code that was
loaded is compared file by file (:mod:`opacc_ray.extract.model_code`). The check is for what that does not see, such as
an environment variable, or data that compiled code reads. Examples from shards spread over the pool run one by one on
the CPU. Their outputs are compared; if none is stored, hidden layers, confidence and predictions.

An example differs if ``‖today - stored‖ > TOLERANCE · (spread + magnitude / 10)``, where the spread is the root mean
square distance of the stored rows from their mean, and the magnitude their root mean square norm. So a score that is
large everywhere is compared by its variation. Another machine, a GPU or another batch changes float32 by some 1e-5 of
that, and bfloat16 and float16, whose roundoff is .4 % and .05 %, by a few times their roundoff.

A model whose outputs are random, or depend on the rest of the batch, cannot be compared. It is recognised by running
the example's batch twice, as extraction does; its features are kept, with a warning.
"""

import logging
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, counted
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.extractor import Extractor
from opacc_ray.extract.inference import Batch, Feed, FunctionModel, check_bad, load_transform, transformed
from opacc_ray.extract.machine import resident_bytes
from opacc_ray.extract.model_code import watched
from opacc_ray.extract.shards import Columns, FeatureShard, encode_shard, joined, not_finite, read_shard
from opacc_ray.extract.table_columns import read_batches
from opacc_ray.extract.user_code import user_code
from opacc_ray.lake.examples import BadItem, Example, Plan, Shard, source_of
from opacc_ray.lake.pools import read_examples
from opacc_ray.lake.store_uris import Store
from opacc_ray.registry import has_package
from opacc_ray.spec import PoolSpec, Spec, open_pool, rules_of

log = logging.getLogger(__name__)

EXAMPLES = 8  # that are extracted again
MOST_OTHER_CLASSES = 0.25  # share of examples whose class may differ, if neither output nor hidden layer is stored
TOLERANCE = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 1e-1}  # largest distance from stored values

TRIED, PLACES = 64, 8  # number of examples, at most, and of evenly spread places of the pool that they are read from
SECONDS = 10.0  # time after which no further place is read
RANDOM = 1e-4  # difference of two results for the same examples, relative to their spread, that no rounding explains
SHARDS_TRIED = 8  # shards that are searched for an example that decodes, if none of the places has one
RUNS, RUNNING = 3, 1.0  # of a batch, whose fastest counts, and seconds after which no further one begins
WORTH = 1.1  # gain of bfloat16 below which it is not advised
MOST_MEASURES = 4096  # values of an input that are compared one by one


class Kind(NamedTuple):
    """A kind of decoded examples."""

    shape: str  # that of an image as (H, W, 3), since the sizes may differ
    dtype: str
    mode: str | None  # of the image file

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}" + (f" {self.mode}" if self.mode else "")


class Trial(NamedTuple):
    """Results of the model for some examples."""

    first: Example
    input: tuple[int, ...]  # shape of the first one after the transform
    hidden: int  # neurons of the recorded layer; 0 if the model returns its output alone
    columns: Columns  # output (n, C), prediction (n,) and, for classes, confidence (n,)
    inputs: NDArray[np.float64]  # (n, k) measures of the inputs, see :func:`measures_of`; (n, 0) if shapes differ
    excluded: int  # further examples that would be left out
    note: str | None  # how the keys of the weights were changed, if they were
    kinds: Counter[Kind]  # of the examples that the transform is given
    turned: int  # image files that state an orientation
    random: str | None = None  # what gives another result for the same examples: the transform, or the model
    pace: float = 0.0  # seconds of an example in the median batch

    @property
    def num(self) -> int:
        """Number of examples that the transform was given."""
        return self.kinds.total()


@watched()
def try_examples(spec: Spec, plan: Plan) -> Trial:
    """Build the model and run some examples from several places of the pool.

    Raises the errors of extraction, SpecError, DataError or StorageError: functions that cannot be imported, weights
    that do not fit, a transform or model that raises, an output of another form than the spec states or not finite.
    """
    feed = Feed(spec, spec.pool, coverage=spec.extract.coverage if "coverage" in spec.features() else None)
    first: Example | None = None
    parts: list[Columns] = []
    inputs: list[NDArray[np.float32]] = []
    bad: list[BadItem] = []
    random: str | None = None
    kinds: Counter[Kind] = Counter()
    turned, paces = 0, list[float]()
    since = time.monotonic()
    for examples, unread in _batches(spec, spec.pool, plan):
        kinds.update(map(_kind_of, examples))
        batch = feed.batch(examples)
        turned += batch.turned.total()
        columns = feed.columns(batch, spec.features()) if examples else {}
        paces.append((time.monotonic() - since) / max(len(examples), 1))
        if examples and not parts:
            random = "transform" if _differ(batch.inputs, feed.batch(examples).inputs) else None
            random = random or ("model" if _differ(columns["output"], feed.columns(batch)["output"]) else None)
        unfit = not_finite(columns)
        bad += [*unread, *(BadItem(examples[row].id, f"NaN or infinity in {name}") for row, name in unfit.items())]
        check_bad(spec, spec.pool, bad)
        sound = [row for row in range(len(examples)) if row not in unfit]
        if sound:
            first = first or examples[sound[0]]
            parts.append({name: values[sound] for name, values in columns.items()})
            inputs += [batch.inputs[row] for row in sound]
        since = time.monotonic()
    if first is None:
        raise DataError(
            f"none of {counted(len(bad), 'example')} tried from {spec.pool.uri} can be used, the first because of "
            f"{bad[0].id}: {bad[0].reason}; check the model and the transform"
        )
    whole = joined(parts)
    hidden = whole["hidden"].shape[1] if "hidden" in whole else 0
    note = getattr(feed.model, "note", None)
    pace, measures = statistics.median(paces), measures_of(inputs)
    return Trial(first, inputs[0].shape, hidden, whole, measures, len(bad), note, kinds, turned, random, pace)


def _kind_of(example: Example) -> Kind:
    shape = ["H", "W", *map(str, example.array.shape[2:])]
    return Kind(
        f"({', '.join(shape)})" if example.mode else str(example.array.shape), str(example.array.dtype), example.mode
    )


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
            piece = shard.pieces[offset]
            places.append(shard._replace(entries=(piece.entry,), pieces=(piece,)))
        else:
            length = min(TRIED // PLACES, stop - start) if kind == "images" else 1
            places.append(shard._replace(entries=shard.entries[offset : offset + length]))
    return places


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


def try_rows(spec: Spec, plan: Plan) -> FeatureShard:
    """Read the first rows of a pool of features; raises the errors of extraction."""
    job = Extraction(spec, spec.pool, spec.stored(), open_pool(spec.pool))
    for shard in plan.shards:
        for part in read_batches(job, shard):
            kept = job.usable(part)
            if kept.ids:
                return kept
    raise left_nothing(spec.pool)


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
    half: "HalfPrecision | None"  # None if it is not worth its rounding, or the spec or the model excludes it


def measure_pace(job: Extraction, shards: Sequence[Shard], num_batches: int, device: str = "cpu") -> Pace:
    """Measure the first batches of some shards, after one that opens connections and compiles; nothing is written.

    Raises DataError if they hold no example that can be used.
    """
    extractor = Extractor(job, device)
    bad: list[BadItem] = []
    for _ in islice(_timed(extractor, shards[0], bad), 1):
        pass
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
    num_bytes, of_half = (len(encode_shard(part, extractor.maker)) for part in (whole, half))
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
        half=measure_half(extractor.feed, batch) if job.spec.extract.precision == "float32" else None,
    )


class HalfPrecision(NamedTuple):
    """Results of a torch model for a batch in bfloat16, compared with float32."""

    gain: float  # how many times as fast
    change: float  # the largest one of an output, divided by the largest output


def measure_half(feed: Feed, batch: Batch) -> HalfPrecision | None:
    """Run a batch in float32, then in bfloat16, which the model computes in from then on.

    None if it is no torch model, fails in bfloat16, or gains less than ``WORTH``.
    """
    if isinstance(feed.model, FunctionModel):
        return None
    seconds, output = _fastest(feed, batch)
    with suppress(DataError, MemoryError), user_code("the model in bfloat16"):
        feed.model.compute_in("bfloat16")
        of_half, rounded = _fastest(feed, batch)
        change = float(np.abs(rounded - output).max() / (np.abs(output).max() or 1.0))
        if seconds >= WORTH * of_half and np.isfinite(change):
            return HalfPrecision(seconds / of_half, change)
    return None


def _fastest(feed: Feed, batch: Batch) -> tuple[float, NDArray[np.float32]]:
    """Return the seconds of a batch in the fastest of some runs, after one that compiles, and its output."""
    output, times = feed.run(batch).output, list[float]()
    while len(times) < RUNS and sum(times) < RUNNING:
        since = time.monotonic()
        feed.run(batch)
        times.append(time.monotonic() - since)
    return min(times), output


def _timed(
    extractor: Extractor, shard: Shard, bad: list[BadItem]
) -> Iterator[tuple[Batch, Columns, tuple[float, float, float]]]:
    """Yield each batch with its columns, and the seconds to read it, of the CPU to read it, and to compute."""
    batches = extractor.feed.read(shard, bad)
    while True:
        begun, cpu = time.monotonic(), time.process_time()
        batch = next(batches, None)
        if batch is None:
            return
        read, cpu = time.monotonic() - begun, time.process_time() - cpu
        begun = time.monotonic()
        columns = extractor.measure(extractor.feed.run(batch))
        yield batch, columns, (read, cpu, time.monotonic() - begun)


class Difference(NamedTuple):
    """The example with the largest difference."""

    id: str
    feature: str
    distance: float  # in units of spread + magnitude / 10; infinite if the values cannot be compared
    tolerance: float

    def __str__(self) -> str:
        if not np.isfinite(self.distance):
            return f"example {self.id!r} has another {self.feature} than is stored"
        return (
            f"example {self.id!r} has another {self.feature} than is stored: the difference is "
            f"{100 * self.distance:.3g} % of that between examples, and {100 * self.tolerance:g} % is allowed"
        )


@watched()
def difference(spec: Spec, source: PoolSpec, plan: Plan, folder: Store) -> Difference | None:
    """Return the stored example that differs most from today's code; None if all agree.

    ``folder`` has the features of the plan's shards, or those of an earlier run that they take. Missing or damaged
    shards are skipped. Raises the errors of extraction.
    """
    stored = list(_stored(plan, folder))
    if not stored:
        return None
    if spec.model.function is None and not has_package("torch"):
        log.warning("%s is not compared with today's outputs of the model: torch is not installed here", folder.uri)
        return None
    today = _made_today(spec, source, {shard: first.ids for shard, _, first in stored})
    ids = [name for _, _, first in stored for name in first.ids]
    before = joined([first.columns for _, _, first in stored])
    worst = _largest(spec, ids, before, [today.get(name, {}) for name in ids])
    if worst is None:
        return None
    reason = next(_varies(spec, source, shard, rows, worst.id) for shard, rows, _ in stored if worst.id in rows.ids)
    if reason is not None:
        log.warning("%s holds features of a model that %s; they are kept as they are", folder.uri, reason)
    return worst if reason is None else None


def _stored(plan: Plan, folder: Store) -> Iterator[tuple[Shard, FeatureShard, FeatureShard]]:
    """Yield some shards, each with its stored rows and the first of these, :data:`EXAMPLES` in all.

    Of a shard that takes rows from another file, one part of the pool and its first row.
    """
    keys = {entry.key for entry in folder.list()}
    there = [shard for shard in plan.shards if shard.carried or shard.file in keys]
    num = min(EXAMPLES, len(there))
    for place in range(num):
        shard = there[place * len(there) // num]
        file, sources, wanted = shard.file, None, (place + 1) * EXAMPLES // num - place * EXAMPLES // num
        if shard.carried:
            number, file = shard.carried[len(shard.carried) // 2]
            shard, wanted = shard.only([number]), 1
            sources = [source_of(shard.parts[0])]
        with suppress(DataError):  # a damaged shard is extracted again
            rows = read_shard(folder, file, ["output"], sources)
            if not rows.columns:
                rows = read_shard(folder, file, ["hidden", "confidence", "prediction"], sources)
            if rows.ids:
                yield shard, rows, rows.take(range(min(wanted, len(rows.ids))))


def _made_today(spec: Spec, source: PoolSpec, stored: Mapping[Shard, Sequence[str]]) -> dict[str, Columns]:
    """Return all columns of examples with some ids, (1, ...) each, by id, without those that cannot be read now."""
    feed = Feed(spec, source)
    made: dict[str, Columns] = {}
    for shard, ids in stored.items():
        wanted = set(ids)
        for item in read_examples(open_pool(source), source.format, shard, rules_of(source)):
            if item.id not in wanted:
                continue
            if isinstance(item, Example):
                made[item.id] = feed.columns(feed.batch([item]))
            wanted.discard(item.id)
            if not wanted:
                break
    return made


def _largest(spec: Spec, ids: Sequence[str], before: Columns, today: Sequence[Columns]) -> Difference | None:
    """Return the largest difference of k examples, if it exceeds the tolerance.

    The columns of ``before`` are (k, ...) each, those of an example of ``today`` (1, ...).
    """
    worst = Difference("", "", 0.0, TOLERANCE[spec.extract.precision])
    for name, stored in before.items():
        now = [columns.get(name) for columns in today]
        far = _distances(stored, now, is_class=name == "prediction" and spec.model.task == "classification")
        place = int(far.argmax())
        if far[place] > worst.distance:
            worst = worst._replace(id=ids[place], feature=name, distance=float(far[place]))
    return worst if worst.distance > worst.tolerance else None


def _distances(before: NDArray[Any], today: Sequence[NDArray[Any] | None], *, is_class: bool) -> NDArray[np.float64]:
    """Return (k,) distances of k rows; infinite without a value to compare with."""
    rows = before.reshape(len(before), -1).astype(np.float64)  # (k, width)
    now = np.full_like(rows, np.nan)
    for place, value in enumerate(today):
        if value is not None and value.size == rows.shape[1]:
            now[place] = value.reshape(-1)
    if is_class:  # nearly equal scores of two classes may change places
        other = (now != rows)[:, 0]
        return np.where(other & (other.mean() > MOST_OTHER_CLASSES), np.inf, 0.0)
    spread = np.sqrt(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)))
    magnitude = np.sqrt(np.mean(np.sum(rows**2, axis=1)))
    distances = np.linalg.norm(now - rows, axis=1) / max(spread + magnitude / 10, np.finfo(np.float32).tiny)
    return np.where(np.isnan(distances), np.inf, distances)


def _varies(spec: Spec, source: PoolSpec, shard: Shard, rows: FeatureShard, name: str) -> str | None:
    """Return why a model cannot be compared example by example; None if its outputs are reproducible.

    The batch of the example ``name`` runs twice as in extraction, each time with a new model.
    """
    (ids, first), (_, second) = _batch_of(spec, source, shard, name), _batch_of(spec, source, shard, name)
    if not first or not_finite(joined(first)):
        return None
    if _largest(spec, ids, joined(first), second):
        return "returns other outputs each time, so it is random without a seed"
    by_id = dict(zip(ids, first, strict=True))
    kept = rows.take([row for row, key in enumerate(rows.ids) if key in by_id])
    if _largest(spec, kept.ids, kept.columns, [by_id[key] for key in kept.ids]) is None:
        return "returns other outputs for an example if the rest of its batch differs"
    return None


def _batch_of(spec: Spec, source: PoolSpec, shard: Shard, name: str) -> tuple[list[str], list[Columns]]:
    """Return the ids of an example's batch, and the columns of each of its examples, (1, ...) each.

    Empty if the example cannot be read now.
    """
    feed = Feed(spec, source)
    with closing(feed.read(shard, [])) as batches:
        batch = next((batch for batch in batches if name in batch.ids), None)
        if batch is None:
            return [], []
        columns = feed.columns(batch)
    num = len(batch.ids)
    return batch.ids, [{key: values[row : row + 1] for key, values in columns.items()} for row in range(num)]
