"""Random filters of tables, each in our words and in DuckDB's."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

SIGNS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=")


class Filter(NamedTuple):
    """A condition in both languages, which differ in how a column of any name is quoted."""

    ours: str
    duckdb: str


def random_filter(chance: random.Random, literals: Mapping[str, Sequence[str]], depth: int = 3) -> Filter:
    """A condition on some columns.

    Parameters
    ----------
    literals : texts of values that go with each column, some of which are its own
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
        lambda: chance.choice(["is null", "is not null"]),
    ]
    said = chance.choice(forms)()
    return Filter(f"{f'`{column}`' if ' ' in column else column} {said}", f'"{column}" {said}')
