"""Every form and type in which labels or outcomes may come is read rightly or refused; none is misread."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import opacc_ray as opacc
from opacc_ray.errors import OpaccError

N = 60
RNG = np.random.default_rng(4)
TRUE, WRONG = RNG.integers(0, 2, N), RNG.random(N) < 0.3
PREDICTED = np.where(WRONG, 1 - TRUE, TRUE)
IDS = [f"row {place:02d}" for place in RNG.permutation(N)]  # the order of ids is not that of the pool
CHOSEN = opacc.select(opacc.Pool(IDS, prediction=PREDICTED), "srs", 40, seed=2)
TRUTH = TRUE[CHOSEN.index]
RIGHT = (PREDICTED == TRUE)[CHOSEN.index]
ACCURACY = float(RIGHT.mean())
OTHER = RNG.permutation(40)  # another order of the chosen examples


def named(codes: Any, *names: str) -> list[str]:
    return [names[code] for code in codes]


def shuffled(values: Any) -> tuple[list[str], list[Any]]:
    """Ids and values of the chosen examples in another order."""
    values = list(values)
    return [CHOSEN.ids[place] for place in OTHER], [values[place] for place in OTHER]


def table(values: Any, name: str = "y") -> pd.DataFrame:
    ids, own = shuffled(values)
    return pd.DataFrame({"id": ids, name: own})


# -- forms: how values come ---------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "values of a mapping": lambda own: dict(zip(CHOSEN.ids, own, strict=True)).values(),
    "array": np.array,
    "array of objects": lambda own: np.array(own, dtype=object),
    "masked array, nothing masked": lambda own: np.ma.array(own, mask=False),
    "mapping": lambda own: dict(zip(*shuffled(own), strict=True)),
    "pandas, no index": pd.Series,
    "pandas, ids as index": lambda own: pd.Series(shuffled(own)[1], index=shuffled(own)[0]),
    "pandas, places of the pool as index": lambda own: pd.Series(own, index=CHOSEN.index).sort_index(),
    "pandas array": pd.array,
    "pandas index": pd.Index,
    "categorical": pd.Categorical,
    "categorical column": lambda own: pd.Series(own, index=list(CHOSEN.ids)).astype("category").sort_index(),
    "convert_dtypes": lambda own: pd.Series(own).convert_dtypes(),
    "Arrow column of pandas": lambda own: pd.Series(own).convert_dtypes(dtype_backend="pyarrow"),
    "pandas table": table,
    "pandas table, one column, ids as index": lambda own: table(own).set_index("id"),
    "polars": pl.Series,
    "polars table": lambda own: pl.from_pandas(table(own)),
    "lazy polars table": lambda own: pl.from_pandas(table(own)).lazy(),
    "Arrow array": pa.array,
    "Arrow table": lambda own: pa.Table.from_pandas(table(own), preserve_index=False),
}

# -- types: what the values are -------------------------------------------------------------------------------------

TYPES: dict[str, Callable[[Any], list[Any]]] = {
    "whole numbers": lambda codes: codes.tolist(),
    "floats": lambda codes: codes.astype(float).tolist(),
    "truth values": lambda codes: codes.astype(bool).tolist(),
    "texts 0 and 1": lambda codes: named(codes, "0", "1"),
    "texts 0.0 and 1.0": lambda codes: named(codes, "0.0", "1.0"),
    "texts False and True": lambda codes: named(codes, "False", "True"),
    "names": lambda codes: named(codes, "no", "yes"),
    "names with spaces": lambda codes: named(codes, " no", "yes "),
    "1 and 2": lambda codes: (codes + 1).tolist(),
    "-1 and 1": lambda codes: (2 * codes - 1).tolist(),
    "other names": lambda codes: named(codes, "cat", "dog"),
}
NUMBERS = {"whole numbers", "floats", "truth values", "texts 0 and 1", "texts 0.0 and 1.0", "texts False and True"}
SAME = {
    "whole numbers": NUMBERS,
    "floats": NUMBERS,
    "truth values": NUMBERS,
    "texts 0 and 1": NUMBERS,
    "texts False and True": NUMBERS - {"texts 0.0 and 1.0"},
    "names": {"names", "names with spaces"},
    "1 and 2": {"1 and 2"},
    "-1 and 1": {"-1 and 1"},
}
"""Type of the predictions -> types of the labels that mean the same."""


def accuracy(given: Any, predicted: Any) -> float | None:
    """The accuracy by labels; None if they are refused."""
    try:
        return float(opacc.estimate(CHOSEN, labels=given, pool=opacc.Pool(IDS, prediction=predicted)).value)
    except OpaccError:
        return None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["whole numbers", "truth values", "names"])
def test_labels_in_every_form_are_right(form: str, kind: str) -> None:
    predicted = TYPES[kind](PREDICTED)
    assert accuracy(FORMS[form](TYPES[kind](TRUTH)), predicted) == ACCURACY


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [int, float, bool])
def test_outcomes_in_every_form_are_right(form: str, kind: type) -> None:
    given = FORMS[form](list(map(kind, RIGHT)))
    assert opacc.estimate(CHOSEN, outcomes=given).value == ACCURACY


@pytest.mark.parametrize("said", SAME)
@pytest.mark.parametrize("kind", TYPES)
def test_labels_of_every_type_are_right_or_refused(said: str, kind: str) -> None:
    expected = ACCURACY if kind in SAME[said] else None
    forms = list, np.array, lambda own: dict(zip(CHOSEN.ids, own, strict=True)), pd.Series, pl.Series
    for form, column in zip(forms, (pd.Categorical, list, np.array, pl.Series, pd.Series), strict=True):
        assert accuracy(form(TYPES[kind](TRUTH)), column(TYPES[said](PREDICTED))) == expected


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor(TRUTH),
        torch.tensor(TRUTH).bool(),
        torch.tensor(TRUTH, dtype=torch.uint8),
        torch.tensor(TRUTH, dtype=torch.float32, requires_grad=True),
        list(torch.tensor(TRUTH)),
        dict(zip(CHOSEN.ids, torch.tensor(TRUTH), strict=True)),
        [np.int8(code) for code in TRUTH],
        [np.bool_(code) for code in TRUTH],
        [np.str_(code) for code in TRUTH],
        [Decimal(int(code)) for code in TRUTH],
        np.array(TRUTH, dtype=np.float16),
        pd.Series(TRUTH, dtype="Int8", index=list(CHOSEN.ids)),
        pd.Series(TRUTH, dtype="boolean"),
    ],
    ids=lambda own: f"{type(own).__name__} {getattr(own, 'dtype', '')}",
)
def test_numbers_of_other_libraries_are_classes(given: Any) -> None:
    for predicted in (PREDICTED, PREDICTED.astype(bool), torch.tensor(PREDICTED), named(PREDICTED, "0", "1")):
        assert accuracy(given, predicted) == ACCURACY


NAN, FIRST = float("nan"), CHOSEN.ids[0]


def gap(values: Any, hole: Any) -> list[Any]:
    """The values without the first one."""
    return [hole, *list(values)[1:]]


@pytest.mark.parametrize("kind", ["labels", "outcomes"])
@pytest.mark.parametrize(
    "form",
    [
        lambda own: gap(own, None),
        lambda own: gap(own, NAN),
        lambda own: gap(own, pd.NA),
        lambda own: gap(own, pd.NaT),
        lambda own: gap(own, Decimal("nan")),
        lambda own: gap(own, np.ma.masked),
        lambda own: np.array(gap(own, NAN)),
        lambda own: np.ma.array(own, mask=np.arange(40) == 0),
        lambda own: torch.tensor(gap(own, NAN)),
        lambda own: pd.Series(gap(own, None)),
        lambda own: pd.Series(gap(own, None), dtype="Int64"),
        lambda own: pd.Series(gap(own, None), index=list(CHOSEN.ids)).sort_index(),
        lambda own: pd.Series(own, index=list(CHOSEN.ids))[1:],
        lambda own: dict(zip(CHOSEN.ids[1:], own[1:], strict=True)),
        lambda own: dict(zip(CHOSEN.ids, gap(own, None), strict=True)),
        lambda own: pd.DataFrame({"id": CHOSEN.ids[1:], "y": own[1:]}),
        lambda own: pd.DataFrame({"id": CHOSEN.ids, "y": gap(own, pd.NA)}),
        lambda own: pl.Series(gap(own, None)),
        lambda own: pl.DataFrame({"id": CHOSEN.ids, "y": gap(own, None)}),
        lambda own: pa.array(gap(own, None)),
    ],
)
def test_what_is_missing_is_counted_and_named(form: Callable[[list[int]], Any], kind: str) -> None:
    given = form((TRUTH if kind == "labels" else RIGHT.astype(int)).tolist())
    with pytest.raises(OpaccError, match=f'^1 chosen example without an? {kind[:-1]}, the first "{FIRST}": '):
        opacc.estimate(CHOSEN, **{kind: given}, pool=opacc.Pool(IDS, prediction=PREDICTED))


@pytest.mark.parametrize("kind", ["labels", "outcomes"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (TRUTH[1:], "39 .* for 40 chosen examples"),
        (TRUE, "60 .* for 40 chosen examples"),
        (TRUTH[:, None], "hold an item of type list|1 outcome for 40"),
        (np.eye(2)[TRUTH], "hold an item of type list|2 outcomes for 40"),
        (set(TRUTH.tolist()), "of type set"),
        ("0101", "of type str"),
        (1, "of type int"),
        (list(zip(CHOSEN.ids, TRUTH, strict=True)), "hold an item of type tuple|2 outcomes for 40"),
        (dict(zip(IDS, TRUE, strict=True)), "20 .* for examples that were not chosen"),
        (dict(zip(range(40), TRUTH, strict=True)), "40 .* for examples that were not chosen"),
        (pd.Series(TRUTH, index=range(100, 140)), "the index of the .*, 100, …, has no ids of the selection"),
        (pd.Series(TRUTH, index=[f"x{k}" for k in range(40)]), "has no ids of the selection"),
        (pd.Series(TRUE, index=IDS), "20 .* for examples that were not chosen"),
        (pd.Series(TRUTH[1:]), "39 .* for 40 chosen examples"),
        (pd.DataFrame({"y": TRUTH, "z": TRUTH}), "with the columns y, z: give the columns id and"),
        (pd.DataFrame({"id": CHOSEN.ids, "y": TRUTH, "z": TRUTH}), "with the columns id, y, z"),
        (pl.DataFrame({"y": TRUTH}), "with the columns y: give the columns id and"),
        (pd.DataFrame({"id": [*CHOSEN.ids, FIRST], "y": [*TRUTH, 1 - TRUTH[0]]}), f'example "{FIRST}" has two'),
        ([b"1"] * 40, "1"),
        ([[1]] * 40, "hold an item of type list|1 outcome for 40"),
        (["right"] * 40, "right"),
        ([7] * 40, "7"),
        ([0.5 + 1j] * 40, "0.5|not all numbers"),
        ([pd.Timestamp("2026-01-01")] * 40, "2026|not all numbers"),
    ],
)
def test_what_could_be_misread_is_refused(given: Any, message: str, kind: str) -> None:
    with pytest.raises(OpaccError, match=message) as caught:
        opacc.estimate(CHOSEN, **{kind: given}, pool=opacc.Pool(IDS, prediction=PREDICTED))
    assert "\n" not in str(caught.value)


def test_an_index_that_may_mean_ids_or_an_order_is_refused() -> None:
    """If all of a pool with the ids 0 to N - 1 is chosen, a column that counts from 0 may have ids or an order."""
    pool = opacc.Pool(prediction=PREDICTED)
    chosen = opacc.select(pool, "srs", N, seed=1)
    with pytest.raises(OpaccError, match="may be the ids, or places of another order"):
        opacc.estimate(chosen, labels=pd.Series(TRUE), pool=pool)
    right = float((PREDICTED == TRUE).mean())
    same = pd.Series(np.zeros(N, dtype=int))  # the same in any order
    assert opacc.estimate(chosen, labels=same, pool=pool).value == np.mean(PREDICTED == 0)
    for given in (pd.Series(TRUE[chosen.index], index=chosen.index), pd.Series(TRUE, index=map(str, range(N)))[::-1]):
        assert opacc.estimate(chosen, labels=given, pool=pool).value == right
    some = opacc.select(pool, "srs", 20, seed=1)
    for given in (pd.Series(TRUE[some.index]), pd.Series(TRUE)[some.index], pd.Series(TRUE)[sorted(some.index)]):
        expected = float((PREDICTED == TRUE)[some.index].mean())
        assert opacc.estimate(some, labels=given, pool=pool).value == expected


def test_draws_with_replacement_take_one_label_for_each_example() -> None:
    pool = opacc.Pool(IDS, prediction=PREDICTED)
    chosen = opacc.select(pool, "srs", 40, replacement=True)
    assert len(set(chosen.ids)) < 40
    expected = float((PREDICTED == TRUE)[chosen.index].mean())
    by_id = {name: TRUE[IDS.index(name)] for name in chosen.ids}
    column = pd.Series(TRUE[chosen.index], index=list(chosen.ids))
    for given in (by_id, pd.Series(by_id), column, column.sort_index(), TRUE[chosen.index]):
        assert opacc.estimate(chosen, labels=given, pool=pool).value == expected
