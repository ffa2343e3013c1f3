"""Features that the columns of a pool's own table hold.

In a pool of features no model runs, so there is no actor and no torch: the driver reads shards on some threads.
Predictions and confidence follow from ``output`` by ``model.output``, unless a column has them. Predictions are class
numbers, or names in ``model.classes``; for a regression they are values.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shown
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.feature_set import left_of
from opacc_ray.extract.inference import read_output
from opacc_ray.extract.reference import StoredSurprise
from opacc_ray.extract.shards import Columns, FeatureShard, ShardReport, encode_shard, report_on, stacked
from opacc_ray.extract.surprise import HOST
from opacc_ray.extract.trial import left_nothing
from opacc_ray.lake.examples import BadItem, Batch, Plan, Shard, ids_of, source_of, uris_of
from opacc_ray.lake.parquet_io import is_list, numbers, numbers_of, to_numpy
from opacc_ray.lake.pools import read_rows
from opacc_ray.lake.store import in_order
from opacc_ray.pool import LAYERS
from opacc_ray.spec import ModelSpec, Spec, open_pool, rules_of
from opacc_ray.spec.model_spec import SEPARATOR
from opacc_ray.spec.predictions_table import class_numbers, confidences

THREADS = 4  # shards that are read at a time


def extract_shards(job: Extraction, shards: Sequence[Shard], on_done: Callable[[Shard, ShardReport], None]) -> None:
    """Write the features of shards for which no model runs, in this process.

    ``on_done`` is called with each one and its report, in their order. Raises DataError if a column has another form
    than the spec states, or an example is unusable and not excluded.
    """
    surprise = None if job.hidden is None else StoredSurprise(job, job.hidden, HOST)

    def write(shard: Shard) -> ShardReport:
        if surprise is None:
            features = job.features_of(shard, lambda part: _read(job, part))
        else:
            features = surprise.compute(surprise.read(shard))
        data = encode_shard(features)
        job.target.write(shard.file, data)
        return report_on(features, data, job.target.uri_of(shard.file))

    for shard, report in zip(shards, in_order(write, shards, THREADS), strict=True):
        on_done(shard, report)


def needs_model(job: Extraction, shard: Shard) -> bool:
    """Return whether the features of a shard are computed in actors, by a model or from its hidden layer."""
    return not job.source.holds_features and bool(job.hidden or left_of(shard))


def try_rows(spec: Spec, plan: Plan) -> FeatureShard:
    """Read the first rows of a pool of features; raises the errors of extraction."""
    job = Extraction(spec, spec.pool, spec.stored(), open_pool(spec.pool))
    for shard in plan.shards:
        for part in _parts(job, shard):
            kept = job.usable(part)
            if kept.ids:
                return kept
    raise left_nothing(spec.pool)


def _read(job: Extraction, shard: Shard) -> FeatureShard:
    """Return the features of a shard, each row with the digest of its part."""
    parts = []
    for number in range(len(shard.parts)):
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
            values = _numbers(column, name).astype(np.float64)
            is_number = ~np.isnan(values)  # others are bad items, which a spec may leave out
            values[is_number] = confidences(values[is_number], name)
            columns[feature] = values
        else:
            columns[feature] = _numbers(column, name).astype(np.float32)
    if model.task in ("grade", "counts"):
        columns["prediction"] = np.zeros(len(batch.rows))  # labels judge the answer, which is no feature
    return {name: columns[name] for name in columns if name in (*job.names, "prediction")}


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
    return values.astype(np.float64) if model.task == "regression" else class_numbers(values, name)


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


def _numbers(column: Any, name: str) -> NDArray[Any]:
    found = numbers_of(column, name)
    if found is None or found.ndim != 1:
        raise DataError(f"the column {name!r} is {column.type}; name a column with one number per row")
    return found
