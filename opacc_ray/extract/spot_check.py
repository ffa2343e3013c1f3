"""Comparison of stored features with those of today's code: a few examples are extracted again.

The digest of features covers the code that import statements lead to. This check covers the rest: a data file, an
environment variable, another version of a library. Examples from shards spread over the pool run one by one on the CPU.
Their outputs are compared; if none is stored, hidden layers, confidence and predictions.

An example differs if ``‖today - stored‖ > TOLERANCE · (spread + magnitude / 10)``, where the spread is the root mean
square distance of the stored rows from their mean, and the magnitude their root mean square norm. So a score that is
large everywhere is compared by its variation. Another machine, a GPU or another batch changes float32 by some 1e-5 of
that, and bfloat16 and float16, whose roundoff is .4 % and .05 %, by a few times their roundoff.

A model whose outputs are random, or depend on the rest of the batch, cannot be compared. It is recognised by running
the example's batch twice, as extraction does; its features are kept, with a warning.
"""

import importlib.util
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.carried import locate
from opacc_ray.extract.extraction import Extraction, Known
from opacc_ray.extract.extractor import Extractor
from opacc_ray.extract.inference import columns_of, load_model, run_model
from opacc_ray.extract.inputs import load_transform, transformed
from opacc_ray.extract.shards import SOURCE, Columns, joined, not_finite, read_report, read_table
from opacc_ray.lake.examples import Example, Plan, Shard, source_of
from opacc_ray.lake.parquet_io import numbers, to_numpy
from opacc_ray.lake.pools import read_examples
from opacc_ray.lake.store_uris import Store
from opacc_ray.spec import PoolSpec, Spec, open_pool, rules_of

log = logging.getLogger(__name__)

EXAMPLES = 8
MOST_OTHER_CLASSES = 0.25  # share of examples whose class may differ, if neither output nor hidden layer is stored
TOLERANCE = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 1e-1}  # largest distance from stored values


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


class _Rows(NamedTuple):
    shard: Shard
    ids: list[str]
    columns: Columns  # (k, ...) each


def difference(spec: Spec, source: PoolSpec, plan: Plan, place: Store | Known) -> Difference | None:
    """Return the stored example that differs most from today's code; None if all agree.

    ``place`` is the folder of the plan's shards, or what they take from an earlier run. Missing or damaged shards are
    skipped. Raises the errors of extraction.
    """
    folder = place.folder if isinstance(place, Known) else place
    stored = list(_known(plan, place) if isinstance(place, Known) else _stored(plan, folder))
    if not stored:
        return None
    if spec.model.function is None and importlib.util.find_spec("torch") is None:
        log.warning("%s is not compared with today's outputs of the model: torch is not installed here", folder.uri)
        return None
    today = _made_today(spec, source, stored)
    ids = [name for rows in stored for name in rows.ids]
    before = joined([rows.columns for rows in stored])
    found = _largest(spec, ids, before, [today.get(name, {}) for name in ids])
    if found is not None:
        own = next(rows.shard for rows in stored if found.id in rows.ids)
        reason = _varies(Extraction(spec, source, tuple(before), folder), own, found.id)
        if reason is None:
            return found
        log.warning("%s holds features of a model that %s; they are kept as they are", folder.uri, reason)
    return None


def _stored(plan: Plan, folder: Store) -> Iterator[_Rows]:
    """Yield the first rows of some shards, :data:`EXAMPLES` in all."""
    keys = {entry.key for entry in folder.list()}
    there = [shard for shard in plan.shards if shard.file in keys]
    num = min(EXAMPLES, len(there))
    for place in range(num):
        wanted = (place + 1) * EXAMPLES // num - place * EXAMPLES // num
        with suppress(DataError):  # a damaged shard is extracted again
            rows = _rows_of(folder, there[place * len(there) // num])
            if rows.ids:
                columns = {name: values[:wanted] for name, values in rows.columns.items()}
                yield rows._replace(ids=rows.ids[:wanted], columns=columns)


def _known(plan: Plan, known: Known) -> Iterator[_Rows]:
    """Yield one example that each of some shards takes from an earlier run, :data:`EXAMPLES` in all."""
    there = [shard for shard in locate(known, plan.shards) if shard.carried]
    num = min(EXAMPLES, len(there))
    for place in range(num):
        shard = there[place * len(there) // num]
        number, file = shard.carried[len(shard.carried) // 2]
        own = shard.only([number])
        with suppress(DataError):
            rows = _rows_of(known.folder, own, file, source_of(own.parts[0]))
            yield rows._replace(ids=rows.ids[:1], columns={name: values[:1] for name, values in rows.columns.items()})


def _rows_of(folder: Store, shard: Shard, file: str | None = None, source: int | None = None) -> _Rows:
    """Return the stored rows of a shard, or those of one part of the pool in another ``file``."""
    file = file or shard.file
    size = folder.size(file)
    report = read_report(folder, file, size)
    compared = ["output"] if "output" in report.widths else ["hidden", "confidence", "prediction"]
    names = [name for name in compared if name in report.widths]
    table = read_table(folder, file, ["id", *names, *([] if source is None else [SOURCE])], size, report.footer_size)
    if source is not None:
        table = table.take(numbers(np.flatnonzero(to_numpy(table[SOURCE]) == np.uint64(source))))
    return _Rows(shard, table["id"].to_pylist(), {name: to_numpy(table[name]) for name in names})


def _made_today(spec: Spec, source: PoolSpec, stored: Sequence[_Rows]) -> dict[str, Columns]:
    """Return all columns of the stored examples, (1, ...) each, by id, without those that cannot be read now."""
    transform, model = load_transform(spec), load_model(spec, "cpu", None)
    made: dict[str, Columns] = {}
    for rows in stored:
        wanted = set(rows.ids)
        for item in read_examples(open_pool(source), source.format, rows.shard, rules_of(source)):
            if item.id not in wanted:
                continue
            if isinstance(item, Example):
                made[item.id] = columns_of(spec, run_model(model, transformed(transform, item)[None]))
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


def _varies(job: Extraction, shard: Shard, name: str) -> str | None:
    """Return why a model cannot be compared example by example; None if its outputs are reproducible.

    The batch of the example ``name`` runs twice as in extraction, each time with a new model.
    """
    (ids, first), (_, second) = _batch_of(job, shard, name), _batch_of(job, shard, name)
    if not first or not_finite(joined(first)):
        return None
    if _largest(job.spec, ids, joined(first), second):
        return "returns other outputs each time, so it is random without a seed"
    rows, by_id = _rows_of(job.target, shard), dict(zip(ids, first, strict=True))
    places = [row for row, key in enumerate(rows.ids) if key in by_id]
    names = [rows.ids[row] for row in places]
    kept = {key: values[places] for key, values in rows.columns.items()}
    if _largest(job.spec, names, kept, [by_id[key] for key in names]) is None:
        return "returns other outputs for an example if the rest of its batch differs"
    return None


def _batch_of(job: Extraction, shard: Shard, name: str) -> tuple[list[str], list[Columns]]:
    """Return the ids of an example's batch, and the columns of each of its examples, (1, ...) each.

    Empty if the example cannot be read now.
    """
    extractor = Extractor(job)
    with closing(extractor.read_batches(shard, [])) as batches:
        batch = next((batch for batch in batches if name in batch.ids), None)
        if batch is None:
            return [], []
        columns, _ = extractor.compute(batch)
    num = len(batch.ids)
    return batch.ids, [{key: values[row : row + 1] for key, values in columns.items()} for row in range(num)]
