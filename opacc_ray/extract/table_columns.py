"""Columns of a pool's own table: stored features, slices, clusters that were drawn, and judges.

In a pool of features no model runs, so there is no actor and no torch: the driver reads shards on some threads.
Predictions and confidence follow from ``output`` by ``model.output``, unless a column has them. Predictions are class
numbers, or names in ``model.classes``, which may be numbers as well; for a regression they are values.

Columns of slices and of clusters are stored next to the features of the examples, in their order:

    features/DIGEST/slices-DIGEST/part-000000.parquet     raw values of the columns, and the folder of each example
    features/DIGEST/slices-DIGEST/index.json              written last

The second DIGEST is that of the names of the columns, so other cuts, levels and crossings need no new file, and a
further column needs no new features. Columns are joined to the examples by id. The folder of an example is that of its
file, below the pool. In a table that is the place in ``columns.uri``.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shown
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.feature_files import Features, as_stored, check_type, slicing_of
from opacc_ray.extract.feature_set import (
    INDEX,
    Complete,
    IndexedShard,
    left_of,
    locate,
    make_index,
    read_index,
    write_index,
)
from opacc_ray.extract.inference import read_output
from opacc_ray.extract.shards import (
    SOURCE,
    Columns,
    FeatureFile,
    FeatureShard,
    ShardReport,
    encode_reported,
    parse_report,
    read_report,
    read_table,
    stacked,
)
from opacc_ray.lake.examples import BadItem, Batch, Plan, Shard, ids_of, source_of, uris_of
from opacc_ray.lake.examples import Columns as ColumnNames
from opacc_ray.lake.parquet_io import is_list, numbers, numbers_of, taken, texts, to_numpy
from opacc_ray.lake.pools import planned_ids, read_rows
from opacc_ray.lake.store import Store, in_order
from opacc_ray.pool import FOLDER, LAYERS, refuse_many
from opacc_ray.spec import ModelSpec, PoolSpec, open_pool, rules_of
from opacc_ray.spec.spec_sections import SEPARATOR
from opacc_ray.spec.table_spec import class_numbers, confidences

THREADS = 4  # shards that are read at a time


def folder_of(pool: PoolSpec, features: Features) -> Store:
    """Return the folder of the slice columns, below that of the features."""
    columns = sorted({rule.column for rule in pool.slice_rules})
    return features.store.store(f"slices-{hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]}")


def with_slices(pool: PoolSpec, there: Complete) -> Features:
    """Return features with the slices of a spec; raises DataError unless these are complete."""
    folder = folder_of(pool, there.features)
    index = read_index(folder)
    if index is None or [shard.ids for shard in index.shards] != [shard.ids for shard in _held(there)]:
        raise DataError(f"{folder.uri} lacks the slices of pool.slices; run the spec again, which reads only them")
    return there.features.with_slices(pool.slice_rules, folder.uri.rpartition("/")[2], index.files)


def store_slices(pool: PoolSpec, plan: Plan, there: Complete, known: Store | None = None) -> None:
    """Write the slice columns of all examples with features, as far as they are missing or damaged.

    Those of parts that are ``known`` from an earlier listing are taken from there. Raises DataError if a column has too
    many values, or lacks an example; SpecError if its type fits no slices.
    """
    if not pool.slice_rules:
        return
    folder, held = folder_of(pool, there.features), _held(there)
    shards = [shard for shard, own in zip(plan.shards, there.index.shards, strict=True) if own.examples]
    sizes = {entry.key: entry.size for entry in folder.list()}
    found = list(in_order(lambda own: _stored(folder, own, sizes), held, THREADS))
    missing = [part for part, report in enumerate(found) if report is None]
    before = None if known is None or not missing else known.store(folder.uri.rpartition("/")[2])
    if known is not None and before is not None and _is_complete(before):
        located = dict(zip(missing, locate(known, [shards[part] for part in missing]), strict=True))
        shards = [located.get(part, shard) for part, shard in enumerate(shards)]
    earlier = (known, before) if known is not None and before is not None else None

    def write(part: int) -> ShardReport:
        table = _read(pool, shards[part], there.features.part((there.features.files[part],)), earlier)
        known: dict[str, Any] = {"ids": held[part].ids, "predicted": None, "bad": [], "own_ids": False, "machine": None}
        data = encode_reported(table, known, use_dictionary=True)
        folder.write(held[part].file, data)
        return parse_report(data, folder.uri_of(held[part].file))

    made = dict(zip(missing, in_order(write, missing, THREADS), strict=True))
    if INDEX in sizes and not missing:
        return
    reports = [made.get(part) or report for part, report in enumerate(found)]
    index = make_index([own.file for own in held], [report for report in reports if report])
    rules = [rule for rule in pool.slice_rules if not rule.is_cluster]
    _refuse_many(there.features.with_slices(rules, folder.uri.rpartition("/")[2], index.files))
    write_index(folder, index)


def try_slices(pool: PoolSpec, plan: Plan) -> str:
    """Check the slices and clusters of the first rows; returns their names, and raises as :func:`store_slices`."""
    for _, table in islice(_slice_rows(pool, plan.shards[0]) if pool.slice_columns else (), 1):
        for rule in pool.slice_rules:
            if rule.column != FOLDER:
                slicing_of(rule, as_stored(table[rule.column]))
    return ", ".join([*pool.slice_names, *(f"clusters {rule.name}" for rule in pool.slice_rules if rule.is_cluster)])


def check_slices(folder: Store, own: IndexedShard) -> None:
    """Raise DataError if a file of slice columns is not the one of its index, in any byte."""
    report = read_report(folder, own.file, folder.size(own.file), whole=True)
    if (report.sha256, report.ids) != (own.sha256, own.ids):
        raise DataError(f"{folder.uri_of(own.file)} is not the one of its index; run the spec again")


def _held(there: Complete) -> list[IndexedShard]:
    return [shard for shard in there.index.shards if shard.examples]


def _stored(folder: Store, own: IndexedShard, sizes: dict[str, int]) -> ShardReport | None:
    """Return the report of a stored file for the examples of a shard; None if it is missing or damaged."""
    if own.file not in sizes:
        return None
    try:
        report = read_report(folder, own.file, sizes[own.file], whole=True)
    except DataError:
        return None
    return report if report.ids == own.ids else None


def _refuse_many(features: Features) -> None:
    """Raise DataError if one of the slices has too many values in the whole pool."""
    names: dict[str, set[str]] = {}
    for part in features.slicings():
        for name, own in part.items():
            names.setdefault(name, set()).update(own.names)
            refuse_many(name, sorted(names[name]))


def _is_complete(folder: Store) -> bool:
    try:
        return read_index(folder) is not None
    except DataError:
        return False


def _read(pool: PoolSpec, shard: Shard, features: Features, earlier: tuple[Store, Store] | None) -> Any:
    """Return the slice columns of the examples of one file of features, as an Arrow table.

    ``earlier`` are the folders of features and slice columns that have the carried parts of the shard.
    """
    [known] = features.tables(["id", "uri"])
    ids = known["id"].combine_chunks()
    own = pa.table({})
    if pool.slice_columns:
        carried = _carried(pool, shard, *earlier) if earlier else []
        own = _aligned(pool, ids, [*carried, *_slice_rows(pool, shard.only(left_of(shard)))])
    columns = {name: as_stored(own[name]) for name in own.column_names}
    if any(rule.column == FOLDER for rule in pool.slice_rules):
        columns[FOLDER] = as_stored(texts(_folders(pool, shard, known)))
    return pa.table(columns)


def _folders(pool: PoolSpec, shard: Shard, known: Any) -> list[str]:
    """Return the folder of each example, below the pool; empty for a file without one."""
    if planned_ids(pool.format, shard) is not None:
        return [name.rpartition("/")[0] for name in known["id"].to_pylist()]
    root = f"{open_pool(pool).uri}/"
    places = (uri.removeprefix(root) for uri in known["uri"].to_pylist())
    if pool.columns.uri is None:
        places = (place.rpartition("#")[0] or place for place in places)
    return [place.rpartition("/")[0] for place in places]


def _carried(pool: PoolSpec, shard: Shard, features: Store, slices: Store) -> Iterator[tuple[Any, Any]]:
    """Yield ids and slice columns of the parts of a shard that have them, as :func:`_rows`."""
    by_file: dict[str, list[int]] = {}
    for number, file in shard.carried:
        by_file.setdefault(file, []).append(source_of(shard.parts[number]))
    for file, sources in by_file.items():
        report = read_report(features, file, features.size(file))
        known = FeatureFile(file, report.num_examples, report.size, report.footer_size)
        own = read_table(features, known, ["id", SOURCE])
        columns = read_table(slices, FeatureFile(file, len(own)), list(pool.slice_columns))
        rows = numbers(np.flatnonzero(np.isin(to_numpy(own[SOURCE]), np.array(sources, dtype=np.uint64))))
        yield own["id"].combine_chunks().take(rows), columns.take(rows)


def _aligned(pool: PoolSpec, ids: Any, found: Sequence[tuple[Any, Any]]) -> Any:
    """Return the slice columns of the examples with these ids, in their order, of ids and tables in any order."""
    names = pa.concat_arrays([texts([]), *(own for own, _ in found)])
    places = None if names.equals(ids) else pc.index_in(ids, value_set=names)
    if places is not None and places.null_count:
        lost = ids.filter(places.is_null())[0].as_py()
        raise DataError(f"{pool.uri} has no row of {lost!r} any more; restore the pool, or run the spec on it as it is")
    plain = [pa.table({name: _plain(table[name]) for name in table.column_names}) for _, table in found]
    whole = pa.concat_tables(plain, promote_options="permissive")
    return whole if places is None else whole.take(places)


def _plain(column: Any) -> Any:
    """Return a column as it is stored, with texts in full."""
    whole = as_stored(column)
    return whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole


def _slice_rows(pool: PoolSpec, shard: Shard) -> Iterator[tuple[Any, Any]]:
    """Yield the slice columns of rows as :func:`_rows`; raises SpecError if the type of one makes no slices."""
    for ids, table in _rows(pool, shard, pool.slice_columns):
        for rule in pool.slice_rules:
            if rule.column != FOLDER:
                check_type(rule, table.schema.field(rule.column).type)
        yield ids, table


def _rows(pool: PoolSpec, shard: Shard, names: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """Yield ids and some columns of the rows with an id, batch by batch, as an Arrow array and a table."""
    rules = rules_of(pool)
    rules = rules._replace(columns=ColumnNames(id=rules.columns.id, features=(("named", tuple(names)),)))
    for batch in read_rows(open_pool(pool), pool.format, shard, rules):
        found = ids_of(batch, rules.columns.id)
        sound = np.array([row for row, name in enumerate(found) if isinstance(name, str)], dtype=np.int64)
        yield texts([name for name in found if isinstance(name, str)]), taken(batch.columns.select(list(names)), sound)


def read_words(pool: PoolSpec, plan: Plan, there: Complete) -> dict[str, list[Any]]:
    """Return what each judge says of every example with features, N values in their order; None where it is null."""
    names, features = pool.columns.judges or [], there.features
    shards = [shard for shard, own in zip(plan.shards, there.index.shards, strict=True) if own.examples]

    def read(part: int) -> Any:
        return _aligned(pool, texts(features.ids(part)), [*_rows(pool, shards[part], names)])

    tables = list(in_order(read, range(len(shards)), THREADS))
    return {name: [value for table in tables for value in table[name].to_pylist()] for name in names}


def try_words(pool: PoolSpec, plan: Plan) -> dict[str, list[Any]]:
    """Return what each judge says of the rows of the first shard that has some."""
    names = pool.columns.judges or []
    tables = next((found for shard in plan.shards if (found := [own for _, own in _rows(pool, shard, names)])), [])
    return {name: [value for table in tables for value in table[name].to_pylist()] for name in names}


def read_parts(job: Extraction, shard: Shard) -> FeatureShard:
    """Return the features of a shard of a pool of features, each row with the digest of its part."""
    parts = []
    for number in range(len(shard.parts)):
        source = source_of(shard.parts[number])
        for part in read_batches(job, shard.only([number])):
            bad = [item._replace(source=source) for item in part.bad]
            parts.append(part._replace(bad=bad, sources=[source] * len(part.ids)))
    return stacked(parts)._replace(own_ids=job.source.columns.id is not None)


def read_batches(job: Extraction, shard: Shard) -> Iterator[FeatureShard]:
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
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if model.task == "multilabel":
        return np.array([_set_code(value, name, model) for value in column.to_pylist()], dtype=np.float64)
    names: dict[int, str] = {}
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        values = _numbers(column, name)
        if model.task == "regression":
            return values.astype(np.float64)
        classes, names = class_numbers(values, name), _names_by_number(model.classes or ())
        if not names:
            return classes
        column = numbers(classes)
    encoded = column.dictionary_encode()  # few values, in the order of their first rows
    found = [names.get(own, str(own)) for own in encoded.dictionary.to_pylist()]
    codes = {text: number for number, text in enumerate(model.classes or ())}
    unknown = next((text for text in found if text not in codes), None)
    if unknown is not None:
        there = f"has {', '.join(map(shown, codes))}" if codes else "is missing"
        raise DataError(
            f"the prediction ({name!r}) holds {shown(unknown)}, and model.classes {there}; name all classes"
        )
    return np.array([codes[text] for text in found], dtype=np.int64)[to_numpy(encoded.indices)]


def _names_by_number(classes: Sequence[str]) -> dict[int, str]:
    """Return the names of classes that are all numbers; none if they are those of their places, or others are not."""
    if not all(name.isdecimal() for name in classes) or [*map(int, classes)] == [*range(len(classes))]:
        return {}
    longest_first = sorted(classes, key=len, reverse=True)  # 7 is the name "7", if also "007" is one
    return {int(name): name for name in longest_first}


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
