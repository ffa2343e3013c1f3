"""Columns of a pool's own table: features that are already stored, ``pool.columns.prior`` and ``judges``.

In a pool of features no model runs, so there is no actor and no torch: the driver reads shards on some threads.
Predictions and confidence follow from ``output`` by ``model.output``, unless a column has them. Predictions are class
numbers, or names in ``model.classes``; for a regression they are values.

The prior has larger numbers where a failure is more likely. It and what judges say are joined to the examples by id,
shard by shard, without the rows that extraction excluded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError, shown
from opacc_ray.extract import reference
from opacc_ray.extract.carried import left_of, merged, read_carried
from opacc_ray.extract.extraction import Extraction, kept_rows, surprise_of
from opacc_ray.extract.feature_set import Complete
from opacc_ray.extract.inference import read_output
from opacc_ray.extract.neighbours import HOST
from opacc_ray.extract.shards import Columns, FeatureShard, ShardReport, encode_shard, report_on, stacked
from opacc_ray.extract.trial import left_nothing
from opacc_ray.lake.examples import BadItem, Batch, Plan, Shard, source_of
from opacc_ray.lake.examples import Columns as PoolColumns
from opacc_ray.lake.parquet_io import is_list, numbers, numbers_of, to_numpy
from opacc_ray.lake.pools import read_rows
from opacc_ray.lake.row_examples import ids_of, uris_of
from opacc_ray.lake.store import in_order
from opacc_ray.pool import LAYERS
from opacc_ray.spec import ModelSpec, PoolSpec, Spec, open_pool, rules_of
from opacc_ray.spec.model_spec import SEPARATOR
from opacc_ray.spec.predictions_table import ROUNDING, remedy_for

THREADS = 4  # shards that are read at a time

Rows = Callable[[PoolSpec, Shard], Iterator[tuple[str, Any]]]
"""Yields id and value of each row of a shard."""


def extract_shards(job: Extraction, shards: Sequence[Shard], on_done: Callable[[Shard, ShardReport], None]) -> None:
    """Write the features of shards; ``on_done`` is called with each one and its report, in their order.

    Raises DataError if a column has another form than the spec states, or an example is unusable and not excluded.
    """
    loaded = reference.NONE if job.reference is None else reference.load(job.reference, job.spec, HOST)
    reports = in_order(lambda shard: _extract(job, shard, loaded), shards, THREADS)
    for shard, report in zip(shards, reports, strict=True):
        on_done(shard, report)


def try_rows(spec: Spec, plan: Plan) -> FeatureShard:
    """Read the first rows of a pool of features; raises the errors of extraction."""
    job = Extraction(spec, spec.pool, spec.stored(), open_pool(spec.pool))
    for shard in plan.shards:
        for part in _parts(job, shard):
            kept = kept_rows(job, reference.NONE, part, tuple(part.columns))
            if kept.ids:
                return kept
    raise left_nothing(spec.pool)


def _extract(job: Extraction, shard: Shard, loaded: reference.Loaded) -> ShardReport:
    whole = _read(job, shard, left_of(shard))
    if shard.carried:
        whole = merged(shard, [read_carried(job, shard), whole])
    whole = whole._replace(columns=whole.columns | surprise_of(job, loaded, whole.columns, job.names))
    whole = kept_rows(job, loaded, whole, job.names)
    data = encode_shard(whole)
    job.target.write(shard.file, data)
    return report_on(whole, data, job.target.uri_of(shard.file))


def _read(job: Extraction, shard: Shard, numbers_of_parts: Sequence[int]) -> FeatureShard:
    """Return the features of some parts of a shard, by their numbers."""
    parts = []
    for number in numbers_of_parts:
        source = source_of(shard.parts[number])
        for part in _parts(job, shard.only([number])):
            bad = [item._replace(source=source) for item in part.bad]
            parts.append(part._replace(bad=bad, sources=[source] * len(part.ids)))
    return stacked(parts)._replace(own_ids=job.source.columns.id is not None)


def _parts(job: Extraction, shard: Shard) -> Iterator[FeatureShard]:
    """Yield the features of a shard, batch by batch; rows without an id or a value are bad items."""
    store, rules = open_pool(job.source), rules_of(job.source)
    for batch in read_rows(store, job.source.format, shard, rules):
        uris = uris_of(store, batch, rules.columns.uri)
        named = _named(batch, rules.columns.id, job.source.columns.features)
        sound = np.array([row for row, name in enumerate(named) if isinstance(name, str)], dtype=np.int64)
        part = batch
        if len(sound) < len(named):
            part = Batch(batch.entry, batch.rows[sound], batch.columns.take(numbers(sound)))
        try:
            columns = _columns(job, part) if len(sound) else {}
        except DataError as error:
            raise DataError(f"{store.uri_of(batch.entry.key)}: {error}") from None
        ids = [name for name in named if isinstance(name, str)]
        bad = [name for name in named if isinstance(name, BadItem)]
        yield FeatureShard(ids, [uris[row] for row in sound], columns, bad)


def _named(
    batch: Batch, column: str | tuple[str, ...] | None, features: dict[str, tuple[str, ...]]
) -> list[str | BadItem]:
    """Return the id of each row, or a bad item if its id or a feature is null."""
    found = ids_of(batch, column)
    for feature, names in features.items():
        for name in names:
            for row in np.flatnonzero(to_numpy(batch.columns[name].is_null())).tolist():
                own = found[row]
                found[row] = BadItem(own, f"its {feature} ({name}) is null") if isinstance(own, str) else own
    return found


def _columns(job: Extraction, batch: Batch) -> Columns:
    """Return all features that are stored, or follow from stored ones."""
    model, stored = job.spec.model, job.source.columns.features
    columns: Columns = {name: _layer(batch, stored[name], name) for name in LAYERS if name in stored}
    if "output" in columns:
        columns |= read_output(columns["output"], model, job.spec.extract.precision)
    for feature, name in {feature: names[0] for feature, names in stored.items() if feature not in LAYERS}.items():
        column = batch.columns[name].combine_chunks()
        if feature == "prediction":
            columns[feature] = _prediction(column, name, model)
        elif feature == "confidence":
            columns[feature] = _confidence(column, name)
        else:
            columns[feature] = _numbers(column, name).astype(np.float32)
    if model.task in ("grade", "counts"):
        columns["prediction"] = np.zeros(len(batch.rows))  # labels judge the answer, which is no feature
    return {name: columns[name] for name in columns if name in (*job.names, "prediction", "hidden")}


def _layer(batch: Batch, names: Sequence[str], feature: str) -> NDArray[np.float32]:
    """Return one column of lists, or several columns of numbers, as (k, width)."""
    columns = [batch.columns[name].combine_chunks() for name in names]
    if len(names) > 1 and (found := next((n for n, c in zip(names, columns, strict=True) if is_list(c.type)), None)):
        raise DataError(
            f"the column {found!r} of {feature} holds lists; with several columns, each must hold one number per row"
        )
    parts = [numbers_of(column, name) for column, name in zip(columns, names, strict=True)]
    if parts[0] is None:
        raise DataError(
            f"{feature} ({names[0]!r}) holds lists of different lengths; give each row the same number of values"
        )
    whole = parts[0].reshape(len(parts[0]), -1) if len(parts) == 1 else np.stack(parts, axis=1)  # type: ignore[arg-type]
    with np.errstate(over="ignore"):  # too large for float32: infinity is reported later
        return np.ascontiguousarray(whole, dtype=np.float32)


def _prediction(column: Any, name: str, model: ModelSpec) -> NDArray[Any]:
    """Return predicted classes (k,) int64, or values (k,) float64 of a regression."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if model.task == "multilabel":
        return np.array([_set_code(value, name, model) for value in column.to_pylist()], dtype=np.float64)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        found = column.to_pylist()
        codes = {text: number for number, text in enumerate(model.classes or ())}
        unknown = next((text for text in found if text not in codes), None)
        if unknown is not None:
            there = f"has {', '.join(map(shown, codes))}" if codes else "is missing"
            raise DataError(
                f"the prediction ({name!r}) holds {shown(unknown)}, and model.classes {there}; name all classes"
            )
        return np.array([codes[text] for text in found], dtype=np.int64)
    values = _numbers(column, name)
    if model.task == "regression":
        return values.astype(np.float64)
    with np.errstate(invalid="ignore"):  # of NaN, which is refused below
        whole = values.astype(np.int64)
    unfit = np.flatnonzero((whole != values) | (whole < 0))
    if len(unfit):
        raise DataError(f"the prediction ({name!r}) holds {values[unfit[0]]}, which is not a class number, 0 or more")
    return whole


def _set_code(value: Any, name: str, model: ModelSpec) -> float:
    """Return a set of classes as a number, whose bits are the classes in their order."""
    text = SEPARATOR.join(map(str, value)) if isinstance(value, list) else str(value)
    try:
        found = set(model.classes_in(text))
    except ValueError as error:
        raise DataError(
            f"the prediction ({name!r}) holds {shown(str(error))}, which is none of model.classes; name all classes"
        ) from None
    return float(sum(1 << place for place, own in enumerate(model.classes or ()) if own in found))


def _confidence(column: Any, name: str) -> NDArray[np.float64]:
    values = _numbers(column, name).astype(np.float64)
    unfit = values[(values < -ROUNDING) | (values > 1 + ROUNDING)]
    if len(unfit):
        raise DataError(f"the confidence ({name!r}) holds {unfit[0]:g}, outside [0, 1]; {remedy_for(values)}")
    return np.clip(values, 0, 1)


def _numbers(column: Any, name: str) -> NDArray[Any]:
    found = numbers_of(column, name)
    if found is None or found.ndim != 1:
        raise DataError(f"the column {name!r} is {column.type}; name a column with one number per row")
    return found


def read_prior(pool: PoolSpec, plan: Plan, there: Complete) -> NDArray[np.float64]:
    """Return the prior of every example with features, (N,), in their order; raises DataError if it lacks one."""
    return np.array(_in_order(pool, plan, there, _rows), dtype=np.float64)


def read_words(pool: PoolSpec, plan: Plan, there: Complete) -> dict[str, list[Any]]:
    """Return what each judge says of every example with features, N values in their order; None where it is null."""
    names = pool.columns.judges or []
    rows = _in_order(pool, plan, there, _said)
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def try_words(pool: PoolSpec, plan: Plan) -> dict[str, list[Any]]:
    """Return what each judge says of the rows of the first shard that has some."""
    names = pool.columns.judges or []
    for shard in plan.shards:
        if rows := [row for _, row in _said(pool, shard)]:
            return {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return {}


def try_prior(pool: PoolSpec, plan: Plan) -> str:
    """Describe the prior of the first row; raises DataError like :func:`read_prior`."""
    for shard in plan.shards:
        for name, value in _rows(pool, shard):
            return f"{pool.columns.prior} of {name!r} is {value:g}"
    return f"{pool.columns.prior} of no row"


def _in_order(pool: PoolSpec, plan: Plan, there: Complete, rows: Rows) -> list[Any]:
    """Return a value of every example with features, N in their order, from ``rows`` with ids."""
    held = [shard for shard, own in zip(plan.shards, there.index.shards, strict=True) if own.examples]
    parts = in_order(
        lambda part: _of_shard(pool, rows(pool, held[part]), there.features.ids(part)), range(len(held)), THREADS
    )
    return [value for part in parts for value in part]


def _of_shard(pool: PoolSpec, rows: Iterator[tuple[str, Any]], ids: list[str]) -> list[Any]:
    found = dict(rows)
    lost = next((name for name in ids if name not in found), None)
    if lost is not None:
        raise DataError(f"{pool.uri} has no row of {lost!r} any more; restore the pool, or run the spec on it as it is")
    return [found[name] for name in ids]


def _said(pool: PoolSpec, shard: Shard) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield id and what the judges say, in their order, of each row with an id."""
    for _, ids, columns in _given(pool, shard, pool.columns.judges or []):
        rows = zip(ids, *(column.to_pylist() for column in columns), strict=True)
        yield from ((own, tuple(values)) for own, *values in rows if isinstance(own, str))


def _rows(pool: PoolSpec, shard: Shard) -> Iterator[tuple[str, float]]:
    """Yield id and prior of each row with an id."""
    name = pool.columns.prior
    assert name is not None
    for source, ids, (column,) in _given(pool, shard, [name]):
        missing = np.flatnonzero(to_numpy(column.is_null()))
        if len(missing) == len(ids):
            raise DataError(f"{source} has no number in the column {name!r}, which pool.columns.prior names")
        if len(missing):
            raise DataError(f"{source}: {name} of {ids[missing[0]]!r} is null; give each example a number")
        values = None
        with suppress(DataError):  # its message lacks the key of the spec
            values = numbers_of(column, name)
        if values is None or values.ndim != 1:
            raise SpecError(f"pool.columns.prior: {name!r} is {column.type}; name a column with one number per row")
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
        if len(bad):
            raise DataError(f"{source}: {name} of {ids[bad[0]]!r} is {values[bad[0]]}; give each example a number")
        yield from ((own, float(value)) for own, value in zip(ids, values, strict=True) if isinstance(own, str))


def _given(pool: PoolSpec, shard: Shard, names: Sequence[str]) -> Iterator[tuple[str, Sequence[Any], list[Any]]]:
    """Yield the file, the ids and some columns of each batch of rows."""
    rules = rules_of(pool)
    rules = rules._replace(columns=PoolColumns(id=rules.columns.id, features=(("given", tuple(names)),)))
    store = open_pool(pool)
    for batch in read_rows(store, pool.format, shard, rules):
        columns = [batch.columns[name].combine_chunks() for name in names]
        yield store.uri_of(batch.entry.key), ids_of(batch, rules.columns.id), columns
