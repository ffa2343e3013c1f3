"""Filters of tables: what they keep, beside SQL's own answer, and what they refuse."""

import datetime
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.filters import check_filter, columns_of, keeps, needed_of, parse_filter, rows_kept

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
        ("zoned > '2026-01-05'", r"with '2026-01-05'; write a time such as '2026-01-31 12:00:00Z', with its zone"),
        ("time > '2026-01-05T12:00Z'", "write a time such as '2026-01-31 12:00:00', without a zone"),
    ],
)
def test_what_does_not_fit_the_columns_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_filter(parse_filter(text), TABLE.schema)


def test_conditions_on_folders_are_separated() -> None:
    condition = parse_filter("country = 'NL' and score > 1 and (day = 3 or day = 4)")
    assert [columns_of(part) for part in needed_of(condition)] == [("country",), ("score",), ("day",)]
    assert keeps(needed_of(condition)[2], {"day": pa.scalar(4)})
    assert not keeps(needed_of(condition)[2], {"day": pa.scalar(5)})
    assert not keeps(parse_filter("day = 4"), {"day": pa.scalar(None, pa.int64())})
    assert keeps(parse_filter("day is null"), {"day": pa.scalar(None, pa.int64())})
    assert not keeps(parse_filter("day not in (4)"), {"day": pa.scalar(None, pa.int64())})
