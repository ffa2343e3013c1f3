"""Labels or outcomes as Python users give them: by id, in tables, or in the order of a selection.

Both come in the same forms: a mapping of ids; a column of a table whose index has the ids; a table with the column
``id``; or values in the order of ``selection.ids``. What could mean two things is refused. So is a missing value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError, counted, shown
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import Pool
from opacc_ray.selection import Outcome, Selection, checked_outcome

P = ParamSpec("P")
R = TypeVar("R")
Kind = Literal["label", "outcome"]

ROUNDS = "[opacc.Labelled(selection, labels=…), …], or outcomes=… (1 right, 0 wrong) in place of labels"

_AS_NUMBER = {"False": "0", "True": "1"}
"""Class names that a truth value may mean where the classes are 0 and 1."""


def named(call: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function refuse a list of values that does not say whether it has labels or outcomes."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        kinds = [own.kind for own in signature(function).parameters.values()]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if len(args) > kinds.count(Parameter.POSITIONAL_OR_KEYWORD):
                raise SpecError(f"true classes are labels, 1 for right and 0 for wrong are outcomes: give {call}")
            return function(*args, **kwargs)

        return checked

    return decorate


class Labelled:
    """A selection with the labels, or the outcomes, of its examples: one round.

    Parameters
    ----------
    selection : what :func:`opacc_ray.select` returned, of n examples
    labels : true classes, as the pool names them: a mapping of ids, a pandas Series with the ids as index, a table with
        the columns ``id`` and ``label``, or (n,) values in the order of ``selection.ids``
    outcomes : in the same forms, 1 where the model is right, 0 where it is wrong, or a score in [0, 1]. For several
        models a list with those of each

    Raises
    ------
    LabelError
        A value is missing, belongs to no chosen example, or could be of two; or an outcome is not in [0, 1].
    SpecError
        Neither labels nor outcomes are given, or both.
    """

    @named("opacc.Labelled(selection, labels=…) or opacc.Labelled(selection, outcomes=…)")
    def __init__(self, selection: Selection, *, labels: Any = None, outcomes: Any = None) -> None:
        if not isinstance(selection, Selection):
            raise SpecError(f"a selection of type {type(selection).__name__}: give what opacc.select returned")
        if (labels is None) == (outcomes is None):
            number = "neither" if labels is None else "both"
            raise SpecError(f"{number} of labels=… (true classes) and outcomes=… (1 right, 0 wrong): give one of them")
        self.selection = selection
        self.labels = None if labels is None else _complete(selection, labels, "label")
        self.outcomes = None if outcomes is None else _numbers(selection, outcomes)

    def __repr__(self) -> str:
        return f"Labelled({self.selection!r}, {'labels' if self.outcomes is None else 'outcomes'})"

    def outcome(self, pool: Pool | View | None) -> Outcome:
        """Return 1 for right, 0 for wrong, or scores, (n,): the labels are compared with what ``pool`` predicts."""
        if self.outcomes is None:
            return np.equal(*self.predicted_and_true(pool)).astype(np.float64)
        if self.outcomes.ndim > 1:
            raise LabelError(f"outcomes of {len(self.outcomes)} models for one pool: give those of its model")
        return self.outcomes

    def rows(self, pools: Sequence[Pool | View] | None) -> list[Outcome]:
        """Return the outcomes (n,) of each of several models."""
        if self.outcomes is None:
            return [self.outcome(pool) for pool in pools] if pools else [self.outcome(None)]
        if self.outcomes.ndim == 1 or (pools is not None and len(self.outcomes) != len(pools)):
            models = "one model" if self.outcomes.ndim == 1 else f"{len(self.outcomes)} models"
            number = "several" if pools is None else len(pools)
            raise LabelError(
                f"round {self.selection.round} has outcomes of {models} instead of {number}: give a list with the "
                "outcomes of each model, in their order"
            )
        return list(self.outcomes)

    def predicted_and_true(self, pool: Pool | View | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the predicted and the true class of each example, (n,); raises LabelError for an unknown class."""
        from opacc_ray.labels.joining import why_no_class

        if pool is None:
            raise LabelError("labels are compared with predictions: give the pool, as in estimate(…, pool=pool)")
        predicted, names, indexes = _classes(pool)
        texts = list(map(_text, self.labels or ()))
        codes = {text: _find(text, names) for text in set(texts)}
        unknown = [place for place, text in enumerate(texts) if codes[text] < 0]
        if unknown:
            text, name = texts[unknown[0]], self.selection.ids[unknown[0]]
            remedy = "" if getattr(pool, "classes", None) else ", or name all classes: Pool(classes=[…])"
            raise LabelError(
                f"{counted(len(unknown), 'label')} of no class, the first {shown(text)} of example {shown(name)}, "
                f"{why_no_class(text, names)}{remedy}"
            )
        true = indexes[[codes[text] for text in texts]]
        return predicted[self.selection.index], true

    def errors(self, pool: Pool | View) -> NDArray[np.float64]:
        """Return the predicted value less the label of each example, (n,); raises LabelError for another label."""
        view = view_of(pool)
        if self.labels is None:
            raise LabelError("errors are of true values: give labels=…, not outcomes=…")
        if "prediction" not in view.fields or getattr(pool, "classes", None):
            raise LabelError("errors are of predicted values, and the pool has none: give Pool(prediction=…)")
        values = np.empty(len(self.selection))
        for place, (name, label) in enumerate(zip(self.selection.ids, self.labels, strict=True)):
            try:
                values[place] = float(label)
            except (TypeError, ValueError):
                values[place] = np.nan
            if not np.isfinite(values[place]):
                raise LabelError(f"label {shown(label)} of example {shown(name)} is no number: give its true value")
        return view.column("prediction")[self.selection.index].astype(np.float64) - values


def labelled_rounds(rounds: Any, labels: Any = None, outcomes: Any = None) -> list[Labelled]:
    """Return the labelled rounds that a caller gives: a selection with labels or outcomes, or a list of Labelled."""
    if isinstance(rounds, Selection):
        return [Labelled(rounds, labels=labels, outcomes=outcomes)]
    items = [rounds] if isinstance(rounds, Labelled) or not isinstance(rounds, Iterable) else list(rounds)
    strange = next((own for own in items if not isinstance(own, Labelled)), None)
    if strange is not None or rounds is None:
        raise SpecError(f"a round of type {type(strange).__name__}: give {ROUNDS}")
    if labels is not None or outcomes is not None:
        raise SpecError("these rounds have their labels: remove labels and outcomes, or give a selection")
    return items


# -- values in the order of a selection -------------------------------------------------------------------------------


def _complete(selection: Selection, given: Any, kind: Kind) -> list[Any]:
    """Return n values in the order of the selection; raises LabelError if one is missing."""
    values = _in_order(selection, given, kind)
    if len(values) != len(selection):
        raise _refused(kind, f"{counted(len(values), kind)} for {counted(len(selection), 'chosen example')}")
    strange = next((own for own in values if isinstance(own, Iterable) and not isinstance(own, str | bytes)), None)
    if strange is not None:
        raise _refused(kind, f"{kind}s hold an item of type {type(strange).__name__}")
    missing = [name for name, own in zip(selection.ids, values, strict=True) if _is_missing(own, kind)]
    if missing:
        raise LabelError(
            f"{counted(len(missing), 'chosen example')} without {'a label' if kind == 'label' else 'an outcome'}, the "
            f"first {shown(missing[0])}: label all of them, or give selection.restrict(labelled) with its {kind}s, "
            f"which assumes that {kind}s are missing at random"
            + (", as a class NA that pandas.read_csv made missing is not" if kind == "label" else "")
        )
    return values


def _refused(kind: Kind, what: str) -> LabelError:
    return LabelError(
        f"{what}: give a mapping of chosen ids to {kind}s, or one {kind} each in the order of selection.ids"
    )


def _is_missing(value: Any, kind: Kind) -> bool:
    from opacc_ray.labels.formats import is_cant_tell

    if isinstance(value, str):
        return kind == "label" and (not value.strip() or is_cant_tell(value.strip()))
    try:
        return value is None or bool(value != value)
    except TypeError:  # the NA of pandas has no truth value
        return True


def read_table(given: Any) -> tuple[Any, list[Any]]:
    """Return a table of any library with the names of its columns; anything else with none."""
    given = given.collect() if hasattr(given, "collect") else given  # a lazy table of Polars
    return given, list(getattr(given, "column_names", getattr(given, "columns", ())))


def _in_order(selection: Selection, given: Any, kind: Kind) -> list[Any]:
    given, columns = read_table(given)
    if isinstance(given, Mapping):
        return _aligned(selection.ids, list(given), [_plain(own) for own in given.values()], kind)
    if columns:
        given, names = _column(given, columns, kind)
        if names is not None:
            return _aligned(selection.ids, names, scalars(given, kind), kind)
    values, index = scalars(given, kind), getattr(given, "index", None)
    if index is None or callable(index):  # a list has a method of that name
        return values
    return _by_index(selection, list(index), values, kind)


def scalars(given: Any, kind: Kind) -> list[Any]:
    """Return the values of a column, an array or a list; None where a mask hides one."""
    if isinstance(given, str | bytes | Set) or not isinstance(given, Iterable):
        raise _refused(kind, f"{kind}s of type {type(given).__name__}")
    for name in ("to_pylist", "tolist", "to_list"):  # of Arrow; of NumPy, pandas and torch; of Polars
        if hasattr(given, name):
            values: list[Any] = getattr(given, name)()
            return values if isinstance(values, list) else [values]
    return [_plain(own) for own in given]


def _plain(value: Any) -> Any:
    """Return a number of NumPy or torch as one of Python, and None for a masked one."""
    if value is np.ma.masked:
        return None
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _column(table: Any, columns: list[Any], kind: Kind) -> tuple[Any, list[Any] | None]:
    """Return the values of a table, and the ids next to them, or None if its index has them."""
    others = [name for name in columns if name != "id"]
    columns_of_values = [name for name in others if name == kind] or others
    if len(columns_of_values) != 1 or columns.count("id") > 1 or ("id" not in columns and not hasattr(table, "index")):
        names = ", ".join(map(str, columns))
        raise LabelError(f"a table of {kind}s with the columns {names}: give the columns id and {kind}")
    if columns_of_values[0] == (other := "outcome" if kind == "label" else "label"):
        raise LabelError(
            f"a table with the column {other} instead of {kind}: give it as {other}s=…, or rename the column"
        )
    return table[columns_of_values[0]], scalars(table["id"], kind) if "id" in columns else None


def _aligned(keys: Sequence[str], names: Sequence[Any], values: Sequence[Any], kind: Kind) -> list[Any]:
    """Return the values in the order of the keys that are their names, None where there is none."""
    by_name: dict[str, Any] = {}
    for name, own in zip(map(str, names), values, strict=True):
        if name in by_name and repr(by_name[name]) != repr(own):
            raise LabelError(f"example {shown(name)} has two {kind}s, {by_name[name]!r} and {own!r}: give one")
        by_name[name] = own
    if unknown := list(by_name.keys() - set(keys)):
        first = next(name for name in by_name if name in unknown)
        what = f"{counted(len(unknown), kind)} for examples that were not chosen, the first {shown(first)}"
        raise _refused(kind, what)
    return [by_name.get(key) for key in keys]


def _by_index(selection: Selection, names: list[Any], values: list[Any], kind: Kind) -> list[Any]:
    """Return the values of a column in the order of the selection: by ids, by places in the pool, or as they stand.

    Raises LabelError if the index of the column means none of these, or two that differ.
    """
    texts, places = list(map(str, names)), list(map(str, selection.index.tolist()))
    named = [keys for keys in (selection.ids, places) if set(texts) == set(keys)]
    meanings = [_aligned(keys, texts, values, kind) for keys in named]
    is_default = texts == [str(place) for place in range(len(texts))]
    if is_default and len(values) == len(selection):
        meanings.append(values)
    if any(list(map(repr, own)) != list(map(repr, meanings[0])) for own in meanings[1:]):
        raise _refused(kind, f"the index of the {kind}s, {names[0]!r}, …, may be the ids, or places of another order")
    if meanings:
        return meanings[0]
    if not is_default and set(texts) & set(selection.ids):
        return _aligned(selection.ids, texts, values, kind)  # which says what is missing or too much
    if len(values) != len(selection):
        return values
    raise _refused(kind, f"the index of the {kind}s, {names[0]!r}, …, has no ids of the selection")


# -- outcomes and classes ---------------------------------------------------------------------------------------------


def _numbers(selection: Selection, given: Any) -> Outcome:
    """Return outcomes (n,), or (models, n) if a list has those of each model."""
    if isinstance(given, list | tuple) or (getattr(given, "ndim", 1) == 2 and not hasattr(given, "columns")):
        rows = list(given)
        if rows and all(map(_has_values, rows)):
            return np.stack([_numbers(selection, row) for row in rows])
    values = _complete(selection, given, "outcome")
    for name, own in zip(selection.ids, values, strict=True):
        if isinstance(own, str | bytes):
            raise LabelError(
                f"outcome {shown(own)} of example {shown(name)} is a text: give 1 for right, 0 for wrong, or a score; "
                "true classes are labels=…"
            )
    return checked_outcome(selection, values)


def _has_values(row: Any) -> bool:
    return isinstance(row, Iterable) and not isinstance(row, str | bytes) and getattr(row, "shape", None) != ()


def _classes(pool: Pool | View) -> tuple[NDArray[Any], tuple[str, ...], NDArray[np.int64]]:
    """Return the prediction of every example (N,), the names of the classes, and the prediction that each stands for.

    Classes without names are those that are predicted.
    """
    view = view_of(pool)
    if "prediction" not in view.fields:
        raise LabelError(
            "the pool has no predictions to compare labels with: give Pool(prediction=…), or outcomes=… (1 right, "
            "0 wrong)"
        )
    predicted = view.column("prediction")
    if names := getattr(pool, "classes", None):
        other = next((name for k, name in enumerate(names) if name.isdecimal() and name != str(k)), None)
        if other is not None and getattr(pool, "numbered", False):
            raise LabelError(
                f"the predictions are indexes, and the class {shown(other)} has another number as its name: give the "
                "predictions by name, Pool(prediction=[classes[k] for k in …])"
            )
        return predicted, tuple(names), np.arange(len(names))
    if not np.array_equal(predicted, np.rint(predicted)):
        raise LabelError("the pool predicts values, not classes: give outcomes=…, scores in [0, 1], instead of labels")
    classes = np.arange(2) if predicted.dtype == np.bool_ else np.unique(predicted).astype(np.int64)
    return predicted, tuple(map(str, classes.tolist())), classes


def _text(label: Any) -> str:
    label = _plain(label)
    return str(int(label) if isinstance(label, float) and label.is_integer() else label).strip()


def _find(text: str, names: tuple[str, ...]) -> int:
    """Return the number of the class that a text names, -1 for none; 0 and 1 are False and True."""
    from opacc_ray.labels.joining import find_class

    index = find_class(text, names)
    if index is None and set(names) <= {"0", "1"}:
        index = find_class(_AS_NUMBER.get(text, text), names)
    if index is None and set(names) == set(_AS_NUMBER):
        index = next((names.index(name) for name, number in _AS_NUMBER.items() if number == text), None)
    return -1 if index is None else index
