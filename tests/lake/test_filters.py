"""Filters of tables: what they keep, beside SQL's own answer, and what they refuse."""

import datetime
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.file_footers import constant_bounds
from opacc_ray.lake.filter_parser import columns_of, needed_of, parse_filter
from opacc_ray.lake.filters import Bounds, check_filter, may_keep, rows_kept

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
        "split <> 'test'",
        "split = 'it''s'",
        "split IN ('test', 'train') AND NOT score > 1",
        "split not in ('test')",
        "score is null or score <= 0.5",
        "score is not null and not (score < 0 or score > 2)",
        "score > -2.5 and score < 1e0",
        "day >= '2026-01-03'",
        "day in ('2026-01-03', '2026-01-05')",
        "seen = true or number in (2, 4)",
        "seen != true",
        "number = 2.0",
        "number > 300",
        "not not number = 1",
        "number = 1 or number = 2 and score > 100",
        "price = 4.35",
        "price = 3",
        "price in (3, 8.54, 100000000)",
        "price not in (8.54)",
        "price <= 4.354",
        "not price > 4.349",
        "price != 4.351",
        "price >= 99999999999 or price < -99999999999.5",
        "whole = 9007199254740993",
        "whole > 9007199254740992.5",
        "whole < 99999999999999999999",
        "not whole >= 99999999999999999999",
        "number = 1.5",
        "not number != 1.5",
        "number < -129 or number > -128.5",
        "single = 0.1",
        "single >= 0.1",
        "not single < 0.1",
        "seen < true",
        "score between 0 and 1.5",
        "score not between 0 and 1.5",
        "not (day between '2026-01-02' and date '2026-01-03')",
        "meta.camera = 'a'",
        "meta.camera is null and row > 0",
        "not meta.camera in ('a', 'c')",
        "meta.at.n >= 3",
        "meta is null",
        "note like '%\\%'",
        "note like '50 ! % off' escape ' '",
        "note like '50 !% %' escape '!'",
        "note like '_\n_' or note like 'x!_y' escape '!'",
        "note not like '%o%'",
        "note like ''",
        "day > timestamp '2026-01-02 12:00:00'",
        "day = date '2026-01-02'",
        "cast(whole as varchar) like '90%'",
        "cast(day as timestamp) >= '2026-01-04 00:00:00'",
        "cast(number as double) = 2.0",
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
        ("= 3", "expected a column after '', found '='"),
        ("score in 3", r"expected '\(' after 'score in'"),
        ("(score = 3", r"expected '\)' after"),
        ("score is 3", "expected null after"),
        ("score not 3", "expected in, between or like after 'score not', found '3'"),
        ("score between 1", "expected and after 'score between 1', found its end"),
        ("split like 3", "expected a text in quotes after 'split like', found '3'"),
        ("cast(score as blob) = 1", "expected a type: bigint, double, varchar, date or timestamp after"),
        ("__import__('os').system('x')", r"cannot parse .*system"),
        ("score; drop", "cannot parse ';"),
        (f"score = {'9' * 401}", "has more digits than any column; use fewer"),
        ("score < 1e1000", "1e1000 has more digits than any column; use fewer"),
        ("(" * 60 + "score = 1" + ")" * 60, "nested more than 50 levels deep"),
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
        ("day > 'today'", "compares day, which is date32.*, with 'today'; write a date such as '2026-01-31'"),
        ("seen = 1", "compares seen, which is bool, with 1; give a value of that type"),
        ("number = true", "compares number, which is int8, with true; give a value of that type"),
        ("zoned > 'noon'", r"with 'noon'; write a time such as '2026-01-31 12:00:00', in UTC, or '2026-"),
        ("time > '2026-01-05T12:00+01:00'", "write a time such as '2026-01-31 12:00:00', without a zone"),
        ("number = '1.5'", "compares number, which is int8, with '1.5'; give a value of that type"),
        ("score like '1%'", "compares score, which is double, by like; only texts have patterns"),
        ("meta.colour = 'red'", "has the column 'meta.colour', and the pool has only"),
        ("cast(meta as date) > '2026-01-01'", r"casts meta, which is struct.*, to date, which is not supported"),
    ],
)
def test_what_does_not_fit_the_columns_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_filter(parse_filter(text), TABLE.schema)


def test_a_text_that_is_not_of_the_type_of_a_cast_is_named() -> None:
    with pytest.raises(DataError, match=r"casts split to date: .*test.*; correct the data"):
        rows_kept(parse_filter("cast(split as date) > '2026-01-01'"), TABLE)


def test_times_without_a_zone_are_in_utc() -> None:
    times = pa.array([datetime.datetime(2026, 1, 5, hour) for hour in (11, 12, 13)], pa.timestamp("us"))
    table = pa.table({"plain": times, "zoned": times.cast(pa.timestamp("us", "Europe/Berlin"))})
    for name in table.column_names:
        for text in ("2026-01-05 12:00:00", "2026-01-05T12:00:00Z", "2026-01-05T12:00+00:00"):
            assert rows_kept(parse_filter(f"{name} > '{text}'"), table).tolist() == [False, False, True]


def test_a_column_of_uuids_is_compared_by_its_text() -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16)), bytes(16)], pa.binary(16)))
    kept = rows_kept(parse_filter("id = '00010203-0405-0607-0809-0a0b0c0d0e0f'"), pa.table({"id": ids}))
    assert kept.tolist() == [True, False]


def test_conditions_joined_by_and_are_separated() -> None:
    condition = parse_filter("country = 'NL' and score > 1 and (day = 3 or day = 4)")
    assert [columns_of(part) for part in needed_of(condition)] == [("country",), ("score",), ("day",)]


NOTHING = np.zeros(2, dtype=bool)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("n = 4", [True, False]),
        ("n = 11", [False, True]),
        ("n = 7", [False, False]),
        ("n != 4", [True, True]),
        ("n > 5", [False, True]),
        ("n >= 5", [True, True]),
        ("n < 1", [False, False]),
        ("n <= 1", [True, False]),
        ("n in (0, 5)", [True, False]),
        ("n not in (0, 5)", [True, True]),
        ("n is null", [True, False]),
        ("not (n > 5 or n < 10)", [False, False]),
        ("n > 5 or other = 1", [True, True]),
        ("n > 5 and other = 1", [False, True]),
        ("s like 'm%'", [False, True]),
        ("s like '%m'", [True, True]),
        ("s >= 'n' or s = 'b_'", [True, True]),
        ("x > 2", [True, True]),
        ("x < 1", [False, False]),
        ("x != 1", [True, True]),
        ("e = 1", [False, True]),
        ("e is not null", [False, True]),
        ("not e = 1", [False, True]),
    ],
)
def test_bounds_exclude_what_no_row_can_meet(text: str, kept: list[bool]) -> None:
    both = np.ones(2, dtype=bool)
    bounds = {
        "n": Bounds(pa.array([1, 10]), pa.array([5, 20]), np.array([True, False]), both),
        "s": Bounds(pa.array(["a", "l"]), pa.array(["c", "n"]), NOTHING, both),
        "x": Bounds(pa.array([1.0, 1.0]), pa.array([1.0, 1.0]), NOTHING, both),  # NaN is not in its bounds
        "e": constant_bounds([None, None], pa.int64())._replace(
            may_be_null=both, may_have_values=np.array([False, True])
        ),
    }
    assert may_keep(parse_filter(text), bounds, 2).tolist() == kept


def test_a_value_of_a_folder_is_compared_exactly() -> None:
    bounds = {"n": constant_bounds([pa.scalar(4.5), pa.scalar(float("nan"))], pa.float64())}
    kept = {text: may_keep(parse_filter(text), bounds, 2).tolist() for text in ("n > 4.5", "n != 4.5", "n is null")}
    assert kept == {"n > 4.5": [False, True], "n != 4.5": [False, True], "n is null": [False, False]}
