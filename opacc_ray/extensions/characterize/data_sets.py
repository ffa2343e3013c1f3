"""Data sets to characterise, and the classes of their model: runs, files of labelled examples, and pools in memory.

Of a file, `hidden`, `output`, `confidence` and `label` are optional. The classes in `prediction` and `label` become the
model's numbers of classes:

    names              by name, ignoring spaces and accents; an unknown name is refused
    whole numbers      places in the model's classes, from 0; refused if class names are other numbers
    empty, NaN, "?"    for a label: the example has none
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shown
from opacc_ray.extensions.case_files import READERS, UNKNOWN, Table, are_numbers, open_table, pool_of, suffix_of
from opacc_ray.extensions.characterize.classes import Grouped
from opacc_ray.extract import reference as training
from opacc_ray.extract.feature_files import Features, StoredParts
from opacc_ray.parts.view import View, subset, view_of
from opacc_ray.runs.run import Run, open_view, predicted_classes
from opacc_ray.spec.spec_sections import plain_name

By = Literal["label", "prediction"]
"""What assigns examples to classes."""

FEATURES = ("hidden", "output", "confidence", "coverage")
"""Features that the measures use, in addition to predictions."""

MOST_NAMES = 20  # classes that a message lists


class ClassList(NamedTuple):
    """The classes of a model."""

    names: Sequence[str]  # in the model's order; numbers as text where it has none
    named: bool  # whether the user gave names


class DataSet(NamedTuple):
    """Examples with predictions, and perhaps labels."""

    uri: str
    view: View
    label: NDArray[np.int64] | None = None  # (N,) numbers of classes, -1 where there is no label; None: no labels
    remarks: Sequence[str] = ()  # how it was read

    def grouped(self, num_classes: int, by: By) -> Grouped:
        """Group all examples by prediction, or those with a label by it; raises DataError if there are no labels."""
        if by == "prediction":
            return Grouped(self.view, num_classes)
        if self.label is None:
            raise DataError(f"{self.uri} has no labels; give a .npz, .parquet or .csv with the column label")
        labelled = np.flatnonzero(self.label >= 0)
        view = self.view if len(labelled) == self.view.size else subset(self.view, labelled)
        return Grouped(view, num_classes, self.label[labelled])

    def remarks_by(self, by: By) -> list[str]:
        """Return how it was read, and what is left out."""
        num = 0 if self.label is None or by == "prediction" else int((self.label < 0).sum())
        left_out = [f"{num} of {self.view.size} examples have no label and are left out"] if num else []
        return [*self.remarks, *left_out]


# -- runs --------------------------------------------------------------------------------------------------------


def class_list(run: Run) -> ClassList:
    """Return the classes of a run's model; raises DataError while features are incomplete."""
    predicted = predicted_classes(run)
    num = run.num_classes or 1 + max(predicted or {0: 0})
    names = run.spec.model.classes
    return ClassList(names or [str(number) for number in range(num)], names is not None)


def open_reference(uri: str, run: Run, stack: ExitStack) -> DataSet:
    """Open a file of labelled examples, or the pool of another run, until the stack closes.

    Raises DataError if its classes are not those of ``run``.
    """
    if suffix_of(uri) in READERS:
        return read_file(uri, class_list(run))
    other = Run.open(uri)
    here, there = run.spec.model.classes, other.spec.model.classes
    if here and there and here != there:
        place = next((i for i, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]), len(here))
        raise DataError(
            f"the classes of {uri} are not those of {run.uri}: they differ from class {place} on; give a run of "
            "the same model"
        )
    return DataSet(uri, stack.enter_context(open_view(other, ("prediction",), FEATURES)))


def training_data(run: Run) -> DataSet | None:
    """Return the features of the run's training data; None if they were not compared with it."""
    compared = run.header.reference
    if compared is None or "traces" not in run.spec.compares_with():
        return None
    folder = training.folder_of(run.spec, compared.digest, run.store)
    index = training.complete_index(folder)
    names = [name for name in (*FEATURES, "prediction") if name in index.features]
    return DataSet(folder.uri, View(StoredParts(Features.of(folder, index.files), names)))


# -- files -------------------------------------------------------------------------------------------------------


def classes_of_files(uris: Collection[str]) -> ClassList:
    """Return the classes of files without a run: all names in them in alphabetical order, or numbers from 0.

    Raises DataError if a file cannot be read, lacks predictions, or has names where another has numbers.
    """
    names, last, kinds = set[str](), 0, dict[bool, str]()
    for uri in uris:
        table = _read(uri)
        for values in (values for field in ("prediction", "label") if (values := table.get(field)) is not None):
            filled = [one for one in values.ravel().tolist() if one is not None and one == one]
            kinds.setdefault(are_numbers(values), uri)
            if are_numbers(values):
                last = max([last, *(int(one) for one in filled)])
            else:
                names |= {str(one).strip() for one in filled} - {"", *UNKNOWN}
    if len(kinds) > 1:
        raise DataError(f"{kinds[False]} has names of classes and {kinds[True]} numbers; give both in one form")
    return ClassList(sorted(names) or [str(number) for number in range(last + 1)], bool(names))


def read_file(uri: str, classes: ClassList) -> DataSet:
    """Read one file; raises DataError if it is not readable, lacks predictions, or has a class that the model lacks."""
    table = _read(uri)
    try:
        columns = {field: table.get(field) for field in ("prediction", "label")}
        prediction, label = (
            None if values is None else numbers_of(field, values, classes) for field, values in columns.items()
        )
        assert prediction is not None
        if (prediction < 0).any():
            row = int(np.flatnonzero(prediction < 0)[0])
            raise DataError(f"prediction of row {row + 1} is missing; fill it in, or remove such rows")
        pool = pool_of(table, prediction)
        if label is not None and len(label) != pool.size:
            raise DataError(f"there are {len(label)} labels and {pool.size} examples; give one per example")
    except DataError as error:
        raise DataError(f"{uri}: {error}") from None
    names = ", ".join(f"{i} is {name!r}" for i, name in enumerate(classes.names[:3]))
    remark = f"its classes are numbers, read as places in model.classes: {names}, …"
    remarks = [remark] if classes.named and are_numbers(np.asarray(columns["prediction"])) else []
    return DataSet(uri, view_of(pool), label if label is not None and (label >= 0).any() else None, remarks)


def _read(uri: str) -> Table:
    """Return the columns of a file; raises DataError if it cannot be read or has no predictions."""
    try:
        table, _ = open_table(uri)
        if table.get("prediction") is None:
            raise DataError("it has no predictions; give prediction for every example")
    except DataError as error:
        raise DataError(f"{uri}: {error}") from None
    return table


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
    numbers = [_number_of_name(column, text, row, classes) for text, row in zip(texts, first, strict=True)]
    return np.array(numbers)[code]


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
    numbers = np.where(missing, 0, values)
    bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= len(classes.names)))
    if len(bad):
        raise DataError(
            f"{column} of row {bad[0] + 1} is {numbers[bad[0]]:g}, and the model has {len(classes.names)} classes, "
            f"0 to {len(classes.names) - 1}; correct it, or write the names of classes"
        )
    return np.where(missing, -1, numbers).astype(np.int64)
