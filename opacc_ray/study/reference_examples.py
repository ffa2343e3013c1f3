"""Read examples of known classes from a file: a reference, or a labelled test set.

The columns are those of :mod:`opacc_ray.study.cases`; `hidden`, `output` and `confidence` are optional, and so is
`label`. The classes in `prediction` and `label` become the model's numbers of classes:

    names              by name, ignoring spaces and accents; an unknown name is refused
    whole numbers      places in the model's classes, from 0; refused if class names are other numbers
    empty, NaN, "?"    for a label: the example has none
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shown
from opacc_ray.parts.view import View, view_of
from opacc_ray.spec.model_spec import plain_name
from opacc_ray.study.cases import UNKNOWN, Source, are_numbers, open_table, pool_of

MOST_NAMES = 20  # classes that a message lists


class Labelled(NamedTuple):
    """Examples with predictions and labels."""

    view: View
    label: NDArray[np.int64] | None  # (N,) numbers of classes, -1 where there is no label; None: no labels
    remarks: list[str]  # how classes were read


class ClassList(NamedTuple):
    """The classes of a model."""

    names: Sequence[str]  # in the model's order; numbers as text where it has none
    named: bool  # whether the user gave names


def class_list(uris: Sequence[str]) -> ClassList:
    """Return the classes of files without a run: all names in them in alphabetical order, or numbers from 0.

    Raises DataError if a file cannot be read, lacks predictions, or has names where another has numbers.
    """
    names, last, kinds = set[str](), 0, dict[bool, str]()
    for uri in uris:
        try:
            table, _ = open_table(Source("set", uri))
            if table.get("prediction") is None:
                raise DataError("it has no predictions; give prediction for every example")
        except DataError as error:
            raise DataError(f"{uri}: {error}") from None
        for values in (values for field in ("prediction", "label") if (values := table.get(field)) is not None):
            known = [one for one in values.ravel().tolist() if one is not None and one == one]
            texts = {str(one).strip() for one in known} - {"", *UNKNOWN}
            kinds.setdefault(are_numbers(values), uri)
            if are_numbers(values):
                last = max([last, *(int(one) for one in known)])
            else:
                names |= texts
    if len(kinds) > 1:
        raise DataError(f"{kinds[False]} has names of classes and {kinds[True]} numbers; give both in one form")
    if names:
        return ClassList(sorted(names), True)
    return ClassList([str(number) for number in range(last + 1)], False)


def read_labelled(uri: str, classes: ClassList) -> Labelled:
    """Read one file; raises DataError if it is not readable, lacks predictions, or has a class that the model lacks."""
    try:
        table, _ = open_table(Source("reference", uri))
        given = table.get("prediction")
        if given is None:
            raise DataError("it has no predictions; give prediction for every example")
        prediction = numbers_of("prediction", given, classes)
        if (prediction < 0).any():
            row = int(np.flatnonzero(prediction < 0)[0])
            raise DataError(f"prediction of row {row + 1} is missing; fill it in, or remove such rows")
        given_label = table.get("label")
        label = None if given_label is None else numbers_of("label", given_label, classes)
        if label is not None and (label < 0).all():
            label = None
        pool = pool_of(table, (), prediction)
        if label is not None and len(label) != pool.size:
            raise DataError(f"there are {len(label)} labels and {pool.size} examples; give one per example")
    except DataError as error:
        raise DataError(f"{uri}: {error}") from None
    names = ", ".join(f"{i} is {name!r}" for i, name in enumerate(classes.names[:3]))
    remark = f"its classes are numbers, read as places in model.classes: {names}, …"
    return Labelled(view_of(pool), label, [remark] if classes.named and are_numbers(given) else [])


def numbers_of(column: str, values: NDArray[Any], classes: ClassList) -> NDArray[np.int64]:
    """Return the number of each class of ``values`` (N,), -1 for none; raise DataError for other values."""
    if values.ndim != 1:
        raise DataError(f"{column} has the shape {values.shape}; give one class per example: (N,)")
    missing = np.array([value is None or value != value for value in values.tolist()], dtype=bool)
    if are_numbers(values[~missing]):
        if classes.named and np.array(values[~missing].tolist()).dtype.kind == "b":
            raise DataError(
                f"{column} holds true and false, and the model's classes have names; write the names as text, or "
                "numbers"
            )
        return _places(column, np.where(missing, np.nan, values).astype(np.float64), missing, classes)
    texts, first, code = np.unique(np.where(missing, "", values).astype(str), return_index=True, return_inverse=True)
    found = np.array([_number_of_name(column, text, row, classes) for text, row in zip(texts, first, strict=True)])
    return found[code]


def _number_of_name(column: str, text: str, row: int, classes: ClassList) -> int:
    plain = [plain_name(name) for name in classes.names]
    if plain_name(text) in plain:
        return plain.index(plain_name(text))
    if text.strip().lower() in ("", *UNKNOWN):
        return -1
    names = ", ".join(classes.names[:MOST_NAMES]) + (", …" if len(classes.names) > MOST_NAMES else "")
    hint = "correct it" if classes.named else "name them in model.classes of the spec, or write the model's numbers"
    raise DataError(
        f"{column} of row {row + 1} is {shown(text)}, which is none of the model's {len(classes.names)} classes: "
        f"{names}; {hint}"
    )


def _places(
    column: str, values: NDArray[np.float64], missing: NDArray[np.bool_], classes: ClassList
) -> NDArray[np.int64]:
    plain = [plain_name(name) for name in classes.names]
    other = next((name for i, name in enumerate(plain) if name.isdecimal() and name != str(i)), None)
    if other is not None:
        raise DataError(
            f"{column} holds numbers, and a class has the number {other!r} for a name, so it is not clear whether "
            "numbers are names or places; write the names as text"
        )
    known = np.where(missing, 0, values)
    bad = np.flatnonzero((known != np.floor(known)) | (known < 0) | (known >= len(classes.names)))
    if len(bad):
        raise DataError(
            f"{column} of row {bad[0] + 1} is {known[bad[0]]:g}, and the model has {len(classes.names)} classes, "
            f"0 to {len(classes.names) - 1}; correct it, or write the names of classes"
        )
    return np.where(missing, -1, known).astype(np.int64)
