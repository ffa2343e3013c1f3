"""Filters of tables: what they keep, beside SQL's own answer, and what they refuse."""

import datetime

import duckdb
import pyarrow as pa
import pytest

from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.filters import columns_of, expression_of, keeps, needed_of, parse_filter

TABLE = pa.table(
    {
        "split": pa.array(["test", "train", "it's", None, "test"]).dictionary_encode(),
        "score": [0.5, 1.5, None, -2.0, 3.0],
        "day": pa.array([datetime.date(2026, 1, day) for day in (1, 2, 3, 4, 5)]),
        "seen": [True, False, True, None, True],
        "number": pa.array([1, 2, 3, 4, 5], pa.int8()),
        "odd name": ["a", "b", "c", "d", "e"],
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
    ],
)
def test_a_filter_keeps_the_rows_that_sql_keeps(text: str) -> None:
    kept = TABLE.filter(expression_of(parse_filter(text), TABLE.schema))["row"].to_pylist()
    with duckdb.connect() as database:
        database.register("pool", TABLE)
        assert kept == [
            row for (row,) in database.execute(f"SELECT row FROM pool WHERE {text} ORDER BY row").fetchall()
        ]


def test_names_in_backticks_are_any_columns() -> None:
    found = TABLE.filter(expression_of(parse_filter("`odd name` = 'c'"), TABLE.schema))
    assert found["row"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("score >", "pool.filter: a number, a text in quotes, true or false should follow 'score >', and it ends does"),
        ("score > 1 2", "and, or, or the end should follow 'score > 1', and '2' does"),
        ("score > 'a", "cannot read"),
        ("= 3", "a column should follow '', and '=' does"),
        ("score in 3", r"'\(' should follow 'score in'"),
        ("(score = 3", r"'\)' should follow"),
        ("score is 3", "null should follow"),
        ("__import__('os').system('x')", r"cannot read .*system"),
        ("score; drop", "cannot read ';"),
        ("(" * 60 + "score = 1" + ")" * 60, "nested more than 50 deep"),
    ],
)
def test_what_is_no_filter_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_filter(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scores > 1", "names the column 'scores', and the pool has split, score"),
        ("score > 'high'", "compares score, which is double, with 'high'"),
        ("split = 3", "compares split, which is string, with 3"),
        ("day > 'today'", "compares day, which is date32"),
        ("seen = 1", "compares seen, which is bool, with 1"),
    ],
)
def test_what_does_not_fit_the_columns_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        expression_of(parse_filter(text), TABLE.schema)


def test_conditions_on_folders_are_told_apart() -> None:
    condition = parse_filter("country = 'NL' and score > 1 and (day = 3 or day = 4)")
    assert [columns_of(part) for part in needed_of(condition)] == [("country",), ("score",), ("day",)]
    assert keeps(needed_of(condition)[2], {"day": 4})
    assert not keeps(needed_of(condition)[2], {"day": 5})
    assert not keeps(parse_filter("day = 4"), {"day": None})
    assert keeps(parse_filter("day is null"), {"day": None})
