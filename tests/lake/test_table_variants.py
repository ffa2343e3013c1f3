"""Tables as their writers left them, read row by row as DuckDB or the writer's own library reads them."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import duckdb
import lance
import pyarrow as pa
import pytest
from delta_logs import mapped, write_mapped
from iceberg_deletes import as_version_3, delete_by_vectors, delete_places, delete_values
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, StructType
from tables import parquet, read_table

from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.store_uris import open_store

META = pa.struct([("camera", pa.string()), ("n", pa.int64())])
POINT = pa.struct([("a", pa.int64()), ("b", pa.string())])
NOON = datetime.datetime(2026, 1, 5, 12)


class Table(NamedTuple):
    """A table in a folder, and its rows by another reader."""

    kind: str
    uri: str
    rows: pa.Table
    rules: Rules = Rules()


def rows(start: int, stop: int, **more: object) -> pa.Table:
    numbers = range(start, stop)
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "kind": ["even" if i % 2 == 0 else "odd" for i in numbers],
        "score": pa.array([None if i % 5 == 0 else i / 4 for i in numbers], pa.float64()),
        "day": [NOON.date() + datetime.timedelta(days=i % 3) for i in numbers],
        "time": pa.array([NOON + datetime.timedelta(hours=i) for i in numbers], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal(i) / 4 for i in numbers], pa.decimal128(9, 2)),
        "x": [[i / 2, 1.0] for i in numbers],
        "meta": pa.array([None if i % 7 == 0 else {"camera": f"c{i % 3}", "n": i} for i in numbers], META),
    }
    return pa.table({**columns, **more})


# -- Delta -------------------------------------------------------------------------------------------------------


def delta_of(folder: Path, version: int | None = None) -> Table:
    table = deltalake.DeltaTable(folder, version=version)
    read = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return Table("delta", str(folder), pa.table(read), Rules(version=version))


def delta(change: Callable[[deltalake.DeltaTable], Any] | None = None, **options: Any) -> Callable[[Path], Table]:
    def made(folder: Path) -> Table:
        deltalake.write_deltalake(folder, rows(0, 20), **options)
        deltalake.write_deltalake(folder, rows(20, 40), mode="append", **options)
        if change:
            change(deltalake.DeltaTable(folder))
        return delta_of(folder)

    return made


def _compact(table: deltalake.DeltaTable) -> None:
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()


MAPPED = [
    mapped("number", "long", 1),
    mapped("id", "long", 2),
    mapped("meta", {"type": "struct", "fields": [mapped("camera", "string", 4), mapped("n", "integer", 5)]}, 3),
    mapped("day", "date", 6),
    mapped("later", "double", 7),
]


def mapped_rows(start: int, stop: int, *, swapped: bool = False) -> pa.Table:
    numbers = range(start, stop)
    names = ["col-5", "col-4"] if swapped else ["col-4", "col-5"]
    values = {"col-4": [f"c{i}" for i in numbers], "col-5": pa.array(numbers, pa.int32())}
    struct = pa.StructArray.from_arrays([pa.array(values[name]) for name in names], names)
    ids = {"col-1": [-i for i in numbers], "col-2": [*numbers]}
    return pa.table({**(dict(reversed(ids.items())) if swapped else ids), "col-3": struct})


def delta_mapped(folder: Path) -> Table:
    files = {"a b/1.parquet": mapped_rows(0, 9), "2.parquet": mapped_rows(9, 20, swapped=True)}
    days = {"a b/1.parquet": {"col-6": "2026-01-05"}, "2.parquet": {"col-6": "2026-01-06"}}
    write_mapped(folder, MAPPED, files, partitions=days)
    return delta_of(folder)


def delta_swapped(folder: Path) -> Table:
    """Two columns of a struct in lists whose names in files are each the other's."""
    names = {"a": "b", "b": "a"}
    fields = [mapped(name, "long", number) for number, name in enumerate(names, 2)]
    for field in fields:
        field["metadata"]["delta.columnMapping.physicalName"] = names[field["name"]]
    kind = {"type": "array", "containsNull": True, "elementType": {"type": "struct", "fields": fields}}
    files = {"1.parquet": pa.table({"col-1": [[{"a": 1, "b": 2}], None, [], [{"a": 3, "b": None}]]})}
    write_mapped(folder, [mapped("points", kind, 1)], files)
    wanted = [[{"a": 2, "b": 1}], None, [], [{"a": None, "b": 3}]]
    return Table("delta", str(folder), pa.table({"points": wanted}))


def delta_by_number(folder: Path) -> Table:
    def own(number: int, kind: pa.DataType) -> pa.Field:
        return pa.field(f"f{number}", kind, metadata={"PARQUET:field_id": str(number)})

    numbers, struct = range(9), pa.struct([own(4, pa.string()), own(5, pa.int32())])
    metas = [{"camera": f"c{i}", "n": i} for i in numbers]
    columns = {"f1": [-i for i in numbers], "f2": [*numbers], "f3": [{"f4": f"c{i}", "f5": i} for i in numbers]}
    file = pa.table(columns, pa.schema([own(1, pa.int64()), own(2, pa.int64()), own(3, struct)]))
    there = [column for column in MAPPED if column["name"] not in ("day", "later")]
    write_mapped(folder, there, {"1.parquet": file}, mode="id")
    return Table("delta", str(folder), pa.table({"number": columns["f1"], "id": columns["f2"], "meta": metas}))


def delta_vectors(folder: Path) -> Table:
    kinds = {"id": "long", "kind": "string"}
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    files = {"0.parquet": rows(100_000, 100_009), "1.parquet": rows(0, 65_540)}
    files = {name: table.select(["id", "kind"]) for name, table in files.items()}
    write_mapped(folder, columns, files, {"1.parquet": [0, 5, 65_535, 65_536, 65_539]}, mode="none")
    return delta_of(folder)


# -- Iceberg -----------------------------------------------------------------------------------------------------


def in_catalog(folder: Path, schema: pa.Schema) -> Any:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    return catalog.create_table("db.pool", schema=schema)


def as_left(table: Any, wanted: pa.Table | None = None, **rules: Any) -> Table:
    wanted = table.refresh().scan().to_arrow() if wanted is None else wanted
    return Table("iceberg", table.location().removeprefix("file://"), wanted, Rules(**rules))


def iceberg(change: Callable[[Any], Any]) -> Callable[[Path], Table]:
    def made(folder: Path) -> Table:
        table = in_catalog(folder, of_iceberg(0, 1).schema)
        for start in (0, 20):
            table.append(of_iceberg(start))
        found = change(table)
        return found if isinstance(found, Table) else as_left(table)

    return made


def of_iceberg(start: int, stop: int | None = None) -> pa.Table:
    stop = stop or start + 20
    return rows(start, stop, small=pa.array([i % 11 for i in range(start, stop)], pa.int32()))


def _added(table: Any) -> None:
    with table.update_schema() as update:
        update.add_column("more", StructType(NestedField(1, "a", StringType(), required=False)))
        update.add_column(("meta", "lens"), StringType())
        update.move_first("price")
        update.delete_column("kind")


def _maps(folder: Path) -> Table:
    points = pa.array([[("p", {"a": 1, "b": "t"})], None, [("q", None)]], pa.map_(pa.string(), POINT))
    nested = pa.array([[[{"a": 1, "b": "t"}], []], [None], None], pa.list_(pa.list_(POINT)))
    given = pa.table({"id": [1, 2, 3], "points": points, "nested": nested})
    table = in_catalog(folder, given.schema)
    table.append(given)
    for place in (("points", "value"), ("nested", "element", "element")):
        with table.update_schema() as update:
            update.rename_column((*place, "a"), "was_a")
        with table.update_schema() as update:
            update.add_column((*place, "a"), LongType())
    return as_left(table)


def _promoted(table: Any) -> None:
    with table.update_schema() as update:
        update.update_column("small", LongType())
        update.update_column("price", field_type=DecimalType(18, 2))
    table.append(of_iceberg(40).set_column(8, "small", pa.array([2**40] * 20, pa.int64())))


def _repartitioned(table: Any) -> None:
    for step in (("kind", IdentityTransform()), ("time", DayTransform()), ("id", BucketTransform(4))):
        with table.update_spec() as update:
            update.add_field(*step, f"by_{step[0]}")
        table.append(of_iceberg(40 + 20 * ("kind", "time", "id").index(step[0])))
    with table.update_spec() as update:
        update.remove_field("by_kind")
    table.append(of_iceberg(100))


def _file_of(table: Any, id: int) -> str:
    [task] = table.scan(row_filter=f"id = {id}").plan_files()
    return str(task.file.file_path)


def _deleted_by_place(table: Any) -> None:
    delete_places(table, _file_of(table, 3), [0, 3, 19])
    delete_places(table, _file_of(table, 3), [4])
    table.append(of_iceberg(40))


def _deleted_by_value(table: Any) -> Table:
    whole = table.scan().to_arrow()
    delete_values(table, pa.table({"id": [3, 25]}))
    delete_values(table, pa.table({"kind": ["odd", "even"], "score": pa.array([None, 1.0])}))
    table.append(of_iceberg(3, 6))  # newer than the deletes
    kept = [
        not (row["id"] in (3, 25) or (row["kind"] == "odd" and row["score"] is None) or row["score"] == 1.0)
        for row in whole.to_pylist()
    ]
    return as_left(table, pa.concat_tables([whole.filter(pa.array(kept)), of_iceberg(3, 6).cast(whole.schema)]))


def _deleted_by_vectors(table: Any) -> Table:
    first, second = _file_of(table, 3), _file_of(table, 25)
    delete_places(table, second, [1])  # which its deletion vector has, too
    table.append(of_iceberg(40))
    delete_by_vectors(table, {first: [0, 3, *range(5, 15)], second: [1, 19]})
    return _of_version_3(table, {})


def _of_version_3(table: Any, defaults: dict[str, Any]) -> Table:
    place = as_version_3(table, defaults)
    return as_left(table, StaticTable.from_metadata(place).scan().to_arrow())


# -- Parquet, by hand and by other writers -----------------------------------------------------------------------


def by_duckdb(folder: Path, pattern: str = "*.parquet", rows: str = "*") -> Table:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        source = f"read_parquet('{folder}/{pattern}', union_by_name = true, hive_partitioning = true)"
        return Table("parquet", str(folder), database.execute(f"SELECT {rows} FROM {source}").to_arrow_table())


def drifted(folder: Path) -> Table:
    """Files whose types differ, as those of several writers and years do."""
    first = rows(0, 10)
    second = rows(10, 20).select([*reversed(first.column_names)])
    kinds = {
        "id": pa.int32(),
        "kind": pa.large_string(),
        "score": pa.float32(),
        "time": pa.timestamp("ns", "Etc/UTC"),
        "price": pa.decimal128(12, 4),
        "x": pa.large_list(pa.float32()),
        "meta": pa.struct([("n", pa.int16()), ("camera", pa.large_string())]),
    }
    second = second.set_column(0, "meta", pa.array(second["meta"].to_pylist(), kinds["meta"]))
    for name, kind in kinds.items():
        second = second.set_column(second.column_names.index(name), name, second[name].cast(kind))
    third = rows(20, 30)
    third = third.set_column(1, "kind", third["kind"].dictionary_encode())
    third = third.set_column(6, "x", third["x"].cast(pa.list_(pa.float64(), 2))).drop_columns(["score"])
    (folder / "1.parquet").write_bytes(parquet(first))
    (folder / "2.parquet").write_bytes(parquet(second))
    (folder / "3.parquet").write_bytes(parquet(third))
    return by_duckdb(folder)


def numbers_and_texts(folder: Path) -> Table:
    values = {"1": pa.array([7, 8], pa.int64()), "2": pa.array(["9", "ten"]), "3": pa.array([NOON.date(), None])}
    values |= {"4": pa.array([True, False]), "5": pa.array([2.0, 1e16]), "6": pa.array([0.1, 1e10], pa.float32())}
    for name, column in values.items():
        (folder / f"{name}.parquet").write_bytes(parquet(pa.table({"id": [f"{name}a", f"{name}b"], "value": column})))
    return by_duckdb(folder)


def drifted_maps(folder: Path) -> Table:
    old, new = pa.struct([("n", pa.int32())]), pa.struct([("n", pa.int64()), ("unit", pa.string())])
    files = [
        pa.array([[("a", {"n": 1}), ("b", None)], [], None], pa.map_(pa.string(), old)),
        pa.array([None, [("a", {"n": 2**40, "unit": "mm"})], []], pa.map_(pa.large_string(), new)),
    ]
    for number, column in enumerate(files):
        table = pa.table({"id": [f"{number}{i}" for i in "abc"], "m": column})
        (folder / f"{number}.parquet").write_bytes(parquet(table))
    return by_duckdb(folder)


def hive_by_duckdb(folder: Path, *, twice: bool = False) -> Table:
    given = rows(0, 40).append_column("code", pa.array([None if i % 9 == 0 else f"0{i % 3}" for i in range(40)]))
    with duckdb.connect() as database:
        database.register("given", given)
        more = ", WRITE_PARTITION_COLUMNS true" if twice else ""
        options = f"FORMAT parquet, PARTITION_BY (day, kind, code){more}"
        database.execute(f"COPY given TO '{folder}/t' ({options})")
    return by_duckdb(folder / "t", "**/*.parquet")


# -- Lance and Hugging Face --------------------------------------------------------------------------------------


def lance_of(change: Callable[[Any], Any]) -> Callable[[Path], Table]:
    def made(folder: Path) -> Table:
        table = lance.write_dataset(rows(0, 40), f"{folder}/t", max_rows_per_file=16)
        change(table)
        return Table("lance", f"{folder}/t", lance.dataset(f"{folder}/t").to_table())

    return made


VARIANTS: dict[str, Callable[[Path], Table]] = {
    "delta delete": delta(lambda table: table.delete("id % 3 = 1")),
    "delta compact, vacuum, checkpoint": delta(_compact, partition_by=["kind", "day"]),
    "delta column mapping by name": delta_mapped,
    "delta column mapping with swapped names": delta_swapped,
    "delta column mapping by number": delta_by_number,
    "delta deletion vectors": delta_vectors,
    "iceberg delete": iceberg(lambda table: table.delete("id < 7")),
    "iceberg added, moved and dropped": iceberg(_added),
    "iceberg renamed in maps and lists": _maps,
    "iceberg promoted": iceberg(_promoted),
    "iceberg partitions that change": iceberg(_repartitioned),
    "iceberg position deletes": iceberg(_deleted_by_place),
    "iceberg equality deletes": iceberg(_deleted_by_value),
    "iceberg deletion vectors": iceberg(_deleted_by_vectors),
    "parquet of drifted types": drifted,
    "parquet of numbers and texts": numbers_and_texts,
    "parquet of drifted maps": drifted_maps,
    "hive by duckdb": hive_by_duckdb,
    "hive by duckdb with its columns": lambda folder: hive_by_duckdb(folder, twice=True),
    "lance append and delete": lance_of(lambda table: table.delete("id % 4 = 2")),
    "lance added columns": lance_of(lambda table: table.add_columns({"double": "id * 2"})),
}


def plain(value: Any) -> Any:
    """A value of either reader in one form."""
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC) if value.tzinfo else value
    return value


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_a_table_has_the_rows_that_its_writer_reads(name: str, tmp_path: Path) -> None:
    table = VARIANTS[name](tmp_path)
    rules = table.rules._replace(columns=Columns(features=(("all", tuple(table.rows.column_names)),)))
    both = read_table(open_store(table.uri), table.kind, rules, 7), table.rows.to_pylist()
    found, wanted = (sorted((plain(row) for row in own), key=repr) for own in both)
    assert len(found) == len(wanted) > 0
    assert found == wanted
