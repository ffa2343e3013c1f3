"""Filters of tables: what they keep, beside SQL's own answer, and what they refuse."""

import datetime
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.filters import Bounds, may_keep, parse_filter, rows_kept

TABLE = pa.table(
    {
        "split": pa.array(["test", "train", "it's", None, "test"]).dictionary_encode(),
        "score": [0.5, 1.5, None, -2.0, 3.0],
        "day": pa.array([datetime.date(2026, 1, day) for day in (1, 2, 3, 4, 5)]),
        "seen": [True, False, True, None, True],
        "number": pa.array([1, 2, 3, 4, 5], pa.int8()),
        "odd name": ["a", "b", "c", "d", "e"],
        "time": pa.array([None] * 5, pa.timestamp("us")),
        "zoned": pa.array([None] * 5, pa.timestamp("us", "UTC")),
        "price": pa.array(map(Decimal, ["4.35", "3.00", "8.54", "-1.00", "0.00"]), pa.decimal128(9, 2)),
        "whole": [2**53 + 1, 2**53, None, -1, 2**63 - 1],
        "single": pa.array([0.1, float("nan"), None, -2.0, 0.5], pa.float32()),
        "meta": [{"camera": "a", "at": {"n": 1}}, {"camera": None, "at": None}, None, {"camera": "b", "at": {"n": 3}}]
        * 1
        + [{"camera": "a_b", "at": {"n": 4}}],
        "note": ["50 % off", "a\\b", "x_y", None, "Ω\nz"],
        "row": [0, 1, 2, 3, 4],
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "split = 'test'",
        "split = 'it''s'",
        "not not number = 1",
        "price in (3, 8.54, 100000000)",
        "price >= 99999999999 or price < -99999999999.5",
        "whole > 9007199254740992.5",
        "not whole >= 99999999999999999999",
        "number < -129 or number > -128.5",
        "single = 0.1",
        "not single < 0.1",
        "seen < true",
        "not (day between '2026-01-02' and date '2026-01-03')",
        "meta.camera is null and row > 0",
        "not meta.camera in ('a', 'c')",
        "note like '%\\%'",
        "note like '_\n_'",
        "day > timestamp '2026-01-02 12:00:00'",
        "cast(whole as varchar) like '90%'",
        "cast(day as timestamp) >= '2026-01-04 00:00:00'",
        "score = '0.5' and number = '1'",
    ],
)
def test_a_filter_keeps_the_rows_that_sql_keeps(text: str) -> None:
    kept = np.flatnonzero(rows_kept(parse_filter(text), TABLE)).tolist()
    with duckdb.connect() as database:
        database.register("pool", TABLE)
        assert kept == [
            row for (row,) in database.execute(f"SELECT row FROM pool WHERE {text} ORDER BY row").fetchall()
        ]


@pytest.mark.parametrize("kind", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal256(50, 2), pa.decimal128(20, 4)])
def test_decimals_of_all_widths_are_compared_exactly(kind: pa.DataType) -> None:
    table = pa.table({"price": TABLE["price"].cast(kind)})
    found = {
        text: np.flatnonzero(rows_kept(parse_filter(f"price {text}"), table)).tolist()
        for text in ("= 4.35", "> 3", "<= 1e30")
    }
    assert found == {"= 4.35": [0], "> 3": [0, 2], "<= 1e30": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("values", "text", "kept"),
    [
        (pa.array(["a", None, "b"], pa.string_view()), "not c = 'a'", [2]),
        (pa.array(["a", None, "b"], pa.large_string()), "c > 'a'", [2]),
        (pa.array([0.5, None, 2.0], pa.float16()), "c > 0.5", [2]),
        (pa.array([0, None, 2**64 - 1], pa.uint64()), "c > -1 and c != 18446744073709551614.5", [0, 2]),
        (pa.array([datetime.time(12), None, datetime.time(13, 5)]), "c > '12:00'", [2]),
        (pa.nulls(3), "not c = 1", []),
        (pa.nulls(3), "c in ('a') or c is null", [0, 1, 2]),
        (pa.array([0, -1, None], pa.int64()), "c < 0.0000000001 and c >= -0.5", [0]),
        (pa.array([0, -1, None], pa.int64()), "c < 1e300 and c > -1e-300", [0]),
    ],
)
def test_columns_of_other_types_are_compared(values: pa.Array, text: str, kept: list[int]) -> None:
    table = pa.table({"c": values, "beside": pa.array(["a", "b", "c"], pa.string_view())})
    assert np.flatnonzero(rows_kept(parse_filter(text), table)).tolist() == kept


def test_names_in_backticks_are_any_columns() -> None:
    assert np.flatnonzero(rows_kept(parse_filter("`odd name` = 'c'"), TABLE)).tolist() == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("score >", "pool.filter: expected a number, a text in quotes, true or false after 'score >', found its end"),
        ("score > 1 2", "expected and, or, or the end after 'score > 1', found '2'"),
        ("score > 'a", "cannot parse"),
        ("score not 3", "expected in, between or like after 'score not', found '3'"),
        ("cast(score as blob) = 1", "expected a type: bigint, double, varchar, date or timestamp after"),
        ("__import__('os').system('x')", r"cannot parse .*system"),
        (f"score = {'9' * 401}", "has more digits than any column; use fewer"),
        ("(score = 1) and " * 60 + "(" * 60 + "score = 1" + ")" * 60, "nested more than 50 levels deep"),
    ],
)
def test_an_invalid_filter_is_refused_with_the_place_of_the_mistake(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_filter(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scores > 1", "has the column 'scores', and the pool has only split, score"),
        ("score > 'high'", "compares score, which is double, with 'high'"),
        ("split = 3", "compares split, which is string, with 3"),
        ("zoned > 'noon'", r"with 'noon'; write a time such as '2026-01-31 12:00:00', in UTC, or '2026-"),
        ("time > '2026-01-05T12:00+01:00'", "write a time such as '2026-01-31 12:00:00', without a zone"),
        ("number = '1.5'", "compares number, which is int8, with '1.5'; give a value of that type"),
        ("score like '1%'", "compares score, which is double, by like; only texts have patterns"),
        ("cast(meta as date) > '2026-01-01'", r"casts meta, which is struct.*, to date, which is not supported"),
    ],
)
def test_what_does_not_fit_the_columns_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows_kept(parse_filter(text), TABLE.slice(0, 0))


def test_a_text_that_is_not_of_the_type_of_a_cast_is_named() -> None:
    with pytest.raises(DataError, match=r"casts split to date: .*test.*; correct the data"):
        rows_kept(parse_filter("cast(split as date) > '2026-01-01'"), TABLE)


def test_times_without_a_zone_are_in_utc() -> None:
    times = pa.array([datetime.datetime(2026, 1, 5, hour) for hour in (11, 12, 13)], pa.timestamp("us"))
    table = pa.table({"plain": times, "zoned": times.cast(pa.timestamp("us", "Europe/Berlin"))})
    for name in table.column_names:
        for text in ("2026-01-05 12:00:00", "2026-01-05T12:00:00Z", "2026-01-05T12:00+00:00"):
            assert rows_kept(parse_filter(f"{name} > '{text}'"), table).tolist() == [False, False, True]


@pytest.mark.parametrize("quote", ["", "'"])
def test_a_long_list_of_numbers_keeps_parts_by_their_size_and_not_by_their_texts(quote: str) -> None:
    condition = parse_filter(f"n in ({', '.join(f'{quote}{i}{quote}' for i in range(1, 31))})")
    limits = pa.array([15, 40])
    bounds = {"n": Bounds(limits, limits, np.zeros(2, bool), np.ones(2, bool))}
    kept = may_keep(condition, bounds, pa.table({}), 2)
    assert kept.tolist() == rows_kept(condition, pa.table({"n": limits})).tolist() == [True, False]


def test_half_of_a_character_in_a_list_is_refused() -> None:
    with pytest.raises(DataError, match="split"):
        rows_kept(parse_filter("split in ('test', '\ud800')"), TABLE)
