"""Random filters of tables, each in our words and in DuckDB's."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

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
