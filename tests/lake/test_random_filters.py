"""Random filters keep the rows that DuckDB keeps, whatever the table: ``OPACC_FILTERS=10000`` tries as many."""

import datetime
import os
import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, LongType
from tables import parquet, read_table

from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.formats import find_format
from opacc_ray.lake.store_uris import open_store

FILTERS = int(os.environ.get("OPACC_FILTERS", "240"))
"""How many are tried, over all kinds of tables."""

# -- filters, each in our words and in DuckDB's -------------------------------------------------------------------

SIGNS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=")


class Filter(NamedTuple):
    """A condition in both languages, which differ in how a column of any name is quoted."""

    ours: str
    duckdb: str


TEXTS = ("country", "meta.camera", "cast(month as varchar)", "cast(day as varchar)")
PATTERNS = ("'%'", "'N_'", "'%''s'", "'B%'", "'_'", "''", "'%Ω%'", "'%1%'", "'n%'")
"""Patterns of "like", for columns of text."""


def random_filter(chance: random.Random, literals: Mapping[str, Sequence[str]], depth: int = 3) -> Filter:
    """A condition on some columns.

    Parameters
    ----------
    literals : texts of values that go with each column, some of which are its own; a column may be ``struct.field`` or
        a cast
    depth : how often conditions may be nested
    """
    form = chance.choice(["one", "one", "and", "or", "not"]) if depth else "one"
    if form == "one":
        return _one(chance, literals)
    if form == "not":
        inner = random_filter(chance, literals, depth - 1)
        return Filter(f"not ({inner.ours})", f"not ({inner.duckdb})")
    parts = [random_filter(chance, literals, depth - 1) for _ in range(chance.choice([2, 2, 3]))]
    return Filter(*(f" {form} ".join(f"({part[side]})" for part in parts) for side in (0, 1)))


def _one(chance: random.Random, literals: Mapping[str, Sequence[str]]) -> Filter:
    column = chance.choice(list(literals))
    values = literals[column]
    forms: list[Callable[[], str]] = [
        lambda: f"{chance.choice(SIGNS)} {chance.choice(values)}",
        lambda: f"{chance.choice(SIGNS)} {chance.choice(values)}",
        lambda: f"in ({', '.join(chance.choices(values, k=chance.randint(1, 4)))})",
        lambda: f"not in ({', '.join(chance.choices(values, k=chance.randint(1, 4)))})",
        lambda: f"{chance.choice(['between', 'not between'])} {chance.choice(values)} and {chance.choice(values)}",
        lambda: chance.choice(["is null", "is not null"]),
    ]
    if column in TEXTS:
        forms += [lambda: f"{chance.choice(['like', 'not like'])} {chance.choice(PATTERNS)}"] * 2
    said = chance.choice(forms)()
    if column.startswith("cast("):
        return Filter(f"{column} {said}", f"{column} {said}")
    parts = column.split(".")
    ours = ".".join(f"`{part}`" if " " in part else part for part in parts)
    return Filter(f"{ours} {said}", f"{_quoted(parts)} {said}")


def _quoted(parts: Sequence[str]) -> str:
    return ".".join(f'"{part}"' for part in parts)


# -- tables ----------------------------------------------------------------------------------------------------------

DAY, TIME = datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 5, 12)
ROWS = 80


class Table(NamedTuple):
    """A table as it lies in a folder, and its rows in DuckDB."""

    kind: str
    uri: str
    rows: str | pa.Table  # how DuckDB reads it by itself; or what the table's own library reads
    literals: Mapping[str, Sequence[str]]


LITERALS = {
    "country": ["'NL'", "'BE'", "'it''s'", "''", "'n'", "'Ω'"],
    "month": ["1", "2", "3", "'2'", "2.0", "2.5", "-1", "99999999999999999999"],
    "day": ["'2026-01-01'", "'2026-01-02'", "'2026-01-03'", "'1999-12-31'", "date '2026-01-02'"],
    "price": ["4.35", "2.3", "8.54", "3", "3.00", "4.355", "4.3499999", "-8.54", "99999999999", "-0.001"],
    "num id": ["7", "8", "7.0", "7.5", "9007199254740993", "9007199254740992", "-7"],
    "small": ["-128", "127", "0", "300", "-129", "0.5", "1"],
    "large": ["18446744073709551615", "18446744073709551614.5", "9007199254740993", "-1", "0"],
    "score": ["0.5", "0.1", "-2", "1e0", "0.25", "1e300"],
    "single": ["0.5", "0.1", "-2", "1", "0.25"],  # beside 1e0 DuckDB compares single precision as double
    "seen": ["true", "false"],
    "time": [
        "'2026-01-05 12:00:00'",
        "'2026-01-05T12:00:00Z'",
        "timestamp '2026-01-05 12:00:00'",
        "'2026-01-05'",
        "'2026-01-05 12:00:00.000001'",
        "'1999-01-01'",
    ],
    "zoned": [
        "'2026-01-05 12:00:00'",
        "'2026-01-05T12:00:00Z'",
        "'2026-01-05T12:00:00Z'",
        "'1999-01-01T00:00:00Z'",
    ],
    "meta.camera": ["'a'", "'NL'", "'b'", "''"],
    "meta.at.n": ["1", "2", "1.5", "-7"],
    "cast(time as date)": ["'2026-01-05'", "date '2026-01-06'", "timestamp '2026-01-05 12:00:00'"],
    "cast(zoned as date)": ["'2026-01-05'", "'2026-01-06'"],
    "cast(day as timestamp)": ["'2026-01-02 00:00:00'", "timestamp '2026-01-02 12:00:00'"],
    "cast(month as varchar)": ["'1'", "'10'", "'2'"],
    "cast(day as varchar)": ["'2026-01-02'", "'2026'"],
    "cast(month as double)": ["1.5", "2", "2.0"],
    "cast(seen as bigint)": ["1", "0", "0.5"],
}


def rows(chance: random.Random, start: int, partitions: Sequence[str] = ()) -> pa.Table:
    """Rows in which about every fourth value is null; columns of partitions have two values and null."""

    def some(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        own = values[:2] if name in partitions else values
        return pa.array([chance.choice([*own, *[None] * max(1, len(own) // 3)]) for _ in range(ROWS)], kind)

    prices = [Decimal(text) for text in ("4.35", "2.30", "8.54", "3.00", "-8.54", "0.00")]
    metas = [{"camera": name, "at": at} for name in ("a", "NL", "b", None) for at in ({"n": 1}, {"n": None}, None)]
    times = [TIME + datetime.timedelta(microseconds=own) for own in (0, 1, 86_400_000_000)]
    return pa.table(
        {
            "id": pa.array(range(start, start + ROWS), pa.int64()),
            "country": some("country", ["NL", "BE", "it's", "", "Ω"], pa.string()),
            "month": some("month", [1, 2, 3], pa.int64()),
            "day": some("day", [DAY + datetime.timedelta(days=own) for own in range(4)], pa.date32()),
            "price": some("price", prices, pa.decimal128(9, 2)),
            "num id": some("num id", [Decimal(own) for own in (7, 8, 9007199254740993)], pa.decimal128(38, 0)),
            "small": some("small", [-128, -1, 0, 1, 127], pa.int8()),
            "large": some("large", [0, 9007199254740993, 2**64 - 1], pa.uint64()),
            "score": some("score", [0.1, 0.5, -2.0, float("nan"), float("inf")], pa.float64()),
            "single": some("single", [0.1, 0.5, -2.0, float("nan")], pa.float32()),
            "seen": some("seen", [True, False], pa.bool_()),
            "time": some("time", times, pa.timestamp("us")),
            "meta": some("meta", metas, pa.struct([("camera", pa.string()), ("at", pa.struct([("n", pa.int32())]))])),
            "zoned": some("zoned", [own.replace(tzinfo=datetime.UTC) for own in times], pa.timestamp("us", "UTC")),
        }
    )


def without(table: pa.Table, *names: str) -> pa.Table:
    return table.drop_columns(list(names))


def flat(folder: Path, chance: random.Random) -> Table:
    for number, order in enumerate(("price", "score", "country", "time", "large", "month")):  # many groups are skipped
        table = rows(chance, ROWS * number).sort_by(order)
        place = table.schema.get_field_index("country")
        table = table.set_column(place, "country", table["country"].dictionary_encode())
        (folder / f"{number}.parquet").write_bytes(parquet(table, row_group_size=ROWS // 10))
    return Table("parquet", str(folder), f"read_parquet('{folder}/*.parquet')", LITERALS)


def hive(folder: Path, chance: random.Random) -> Table:
    given = without(rows(chance, 0, ("country", "month", "day")), "seen")
    with duckdb.connect() as database:
        database.register("given", given)
        database.execute(f"COPY given TO '{folder}/t' (FORMAT parquet, PARTITION_BY (country, month, day))")
    literals = {name: values for name, values in LITERALS.items() if name not in ("seen", "cast(seen as bigint)")}
    return Table(
        "parquet", f"{folder}/t", f"read_parquet('{folder}/t/**/*.parquet', hive_partitioning = true)", literals
    )


def delta(folder: Path, chance: random.Random) -> Table:
    unknown = ("small", "large", "single")  # to Delta as it is written here
    partitions = ["price", "day"]
    first, second = (without(rows(chance, start, partitions), *unknown) for start in (0, ROWS))
    early = without(first, "num id", "score", "seen")
    deltalake.write_deltalake(folder, early, partition_by=partitions)
    deltalake.write_deltalake(folder, second, partition_by=partitions, mode="append", schema_mode="merge")
    literals = {name: values for name, values in LITERALS.items() if name not in unknown}
    return Table("delta", str(folder), deltalake.DeltaTable(folder).to_pyarrow_table(), literals)


def iceberg(folder: Path, chance: random.Random) -> Table:
    unknown = ("small", "large")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    partitions = ("price",)
    first, second, third = (without(rows(chance, start, partitions), *unknown) for start in (0, ROWS, 2 * ROWS))
    early = without(first, "num id")
    table = catalog.create_table("db.pool", schema=early.schema)
    with table.update_spec() as spec:
        for name in partitions:
            spec.add_field(name, IdentityTransform(), name)
    table.append(early)
    with table.update_schema() as schema:
        schema.add_column("num id", DecimalType(38, 0))
    table.append(second)
    with table.update_schema() as schema:
        schema.rename_column("month", "old_month")
        schema.delete_column("num id")
    with table.update_schema() as schema:
        schema.add_column("month", LongType())
        schema.add_column("num id", DecimalType(38, 0))
    table.append(third.append_column("old_month", third["month"]))
    literals = {name: values for name, values in LITERALS.items() if name not in unknown}
    scanned = table.refresh().scan().to_arrow()
    return Table("iceberg", table.location(), scanned, literals | {"old_month": LITERALS["month"]})


def ids_of(table: Table, text: str) -> list[int]:
    store = open_store(table.uri.removeprefix("file://"))
    rules = Rules(columns=Columns(id="id", features=(("judges", ("id",)),)), filter=text)
    try:
        return sorted(row["id"] for row in read_table(store, table.kind, rules, 1000))
    except Exception as error:
        if "excludes all of its" in str(error):
            return []
        raise


@pytest.mark.slow
@pytest.mark.parametrize("make", [flat, hive, delta, iceberg])
def test_a_random_filter_keeps_the_rows_that_duckdb_keeps(
    make: Callable[[Path, random.Random], Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"0:{make.__name__}")
    table = make(tmp_path, chance)
    format = find_format(table.kind)
    if hasattr(format, "_open"):  # the log of a table is the same for all filters
        opened = format._open(open_store(table.uri.removeprefix("file://")), Rules(), "pool")
        monkeypatch.setattr(format, "_open", lambda *_: opened)
    differing, shares = [], []
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        if not isinstance(table.rows, str):
            database.register("given", table.rows)
        source = table.rows if isinstance(table.rows, str) else "given"
        database.execute(f"CREATE TABLE pool AS SELECT * FROM {source}")
        [(size,)] = database.execute("SELECT count(*) FROM pool").fetchall()
        for _ in range(FILTERS // 4):
            text = random_filter(chance, table.literals)
            wanted = (
                database.execute(f"SELECT id FROM pool WHERE {text.duckdb} ORDER BY id").fetchnumpy()["id"].tolist()
            )
            shares.append(len(wanted) / size)
            if ids_of(table, text.ours) != wanted:
                differing.append(text.ours)
    assert not differing, f"{len(differing)} of {FILTERS // 4} differ: {differing[:5]}"
    assert np.mean([0 < share < 1 for share in shares]) > 0.5  # they tell rows apart
