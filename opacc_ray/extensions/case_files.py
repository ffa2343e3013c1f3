"""Read files of labelled examples, ``.npz``, Parquet or CSV, as columns by field and as pools.

A column is found by its name. Upper case and a bracket after the name are ignored ("Outcome(Pass/Fail)"):

    hidden · output, logits · prediction, pred, sut · confidence · dsa · lsa · coverage      features, as in opacc.Pool
    probability           of class 1, where the classes are 0 and 1: a confidence, if there is none
    outcome, correct · squared_error · label · target                                        the truth

A regression without an output layer uses its prediction as its output.
"""

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Number
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, meant, shortened
from opacc_ray.lake.parquet_io import arrow_owned, is_list, read_bytes
from opacc_ray.lake.store_uris import read_uri
from opacc_ray.pool import FEATURES, Pool

ALIASES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden",),
    "output": ("output", "logits"),
    "prediction": ("prediction", "pred", "sut"),
    "confidence": ("confidence",),
    "dsa": ("dsa",),
    "lsa": ("lsa",),
    "coverage": ("coverage",),
    "probability": ("probability",),
    "outcome": ("outcome", "correct"),
    "squared_error": ("squared_error",),
    "label": ("label",),
    "target": ("target",),
}
"""Names a column may have, per field."""

OUTCOMES = tuple(name for name in ALIASES if name not in (*FEATURES, "probability"))
"""Fields that tell the truth."""

UNKNOWN = frozenset(("?", "nan", "n/a", "null"))
"""Texts that mean no class, unless the model predicts a class of that name."""


def read_npz(data: bytes) -> Mapping[str, Any]:
    """Return the arrays of an .npz file; raises DataError if it is none."""
    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"it is not a .npz file: {error}") from None


def _read_table(data: bytes, kind: str) -> Mapping[str, Any]:
    import pyarrow as pa
    from pyarrow import csv

    try:
        return _columns_of(read_bytes(data) if kind == "Parquet" else csv.read_csv(pa.BufferReader(arrow_owned(data))))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"it is not a {kind} file: {shortened(str(error))}") from None


def _columns_of(table: Any) -> dict[str, NDArray[Any]]:
    """Return Arrow columns as arrays: numbers (N,), lists of numbers (N, length)."""
    arrays = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        listed = is_list(column.type)
        rows = column.to_numpy(zero_copy_only=False)
        if listed and len({None if row is None else len(row) for row in rows}) > 1:
            raise DataError(f"the lists of column {name} differ in length")
        arrays[name] = np.stack(rows) if listed else rows
    return arrays


READERS: dict[str, Callable[[bytes], Mapping[str, Any]]] = {
    "npz": read_npz,
    "csv": partial(_read_table, kind="CSV"),
    "parquet": partial(_read_table, kind="Parquet"),
}
"""By the end of the name: reads the bytes of a file as columns."""


def suffix_of(uri: str) -> str:
    """Return the end of a file's name, which says how it is read."""
    return uri.rpartition(".")[2].lower()


def stem_of(uri: str) -> str:
    """Return the name of a file, without folder and suffix."""
    return uri.rpartition("/")[2].rpartition(".")[0]


class Table:
    """Columns by field, whatever their names."""

    def __init__(self, arrays: Mapping[str, Any], columns: Mapping[str, str]) -> None:
        self._arrays = arrays
        self._columns = columns
        self._names = {_plain(name): name for name in reversed(list(arrays))}  # the first of equal names counts

    @property
    def names(self) -> list[str]:
        return list(self._arrays)

    def get(self, field: str) -> NDArray[Any] | None:
        names = (self._names[alias] for alias in ALIASES[field] if alias in self._names)
        name = self._columns.get(field, next(names, None))
        return None if name is None else self._read(name, f"which columns of the spec names for {field}")

    def slice_column(self, name: str) -> NDArray[Any]:
        """Return the column that names slices; raises DataError if there is none, or if it says what is to be found."""
        values, field_of = self._read(name, "which names slices"), {column: f for f, column in self._columns.items()}
        names = {alias: field for field in ALIASES for alias in ALIASES[field] if field not in self._columns}
        if field_of.get(name, names.get(_plain(name))) in OUTCOMES:
            raise DataError(f"slices by {name!r}: it is known only for labelled examples; give another column")
        return values

    def _read(self, name: str, why: str) -> NDArray[Any]:
        if name not in self._arrays:
            hint = meant(name, self.names, f"its columns are {', '.join(self.names)}")
            raise DataError(f"there is no column {name!r}, {why}; {hint}")
        try:
            return np.asarray(self._arrays[name])
        except ValueError as error:  # pickled objects
            raise DataError(f"{name} cannot be read: {error}") from None


def open_table(uri: str, columns: Mapping[str, str] = MappingProxyType({})) -> tuple[Table, str]:
    """Return the columns of a file, and its digest; raises DataError if it cannot be read."""
    data = read_uri(uri)
    return Table(READERS[suffix_of(uri)](data), columns), hashlib.sha256(data).hexdigest()


def _plain(name: str) -> str:
    return re.sub(r"\(.*\)", "", name.lstrip("\ufeff")).strip().lower()


def pool_of(
    table: Table,
    classes: NDArray[np.int64] | None = None,
    slices: Mapping[str, NDArray[Any]] | None = None,
) -> Pool:
    """Return the features of a table; ``classes`` (N,) replaces its predictions by numbers of classes."""
    features = {name: values for name in FEATURES if (values := table.get(name)) is not None}
    probability = table.get("probability")
    if probability is not None and "confidence" not in features:
        features["confidence"] = _of_prediction(real_numbers("probability", probability), features.get("prediction"))
    if classes is not None:
        features["prediction"] = classes
    if not features:
        raise DataError(
            f"it has no feature; give one of {', '.join(FEATURES)} (its columns are {', '.join(table.names)})"
        )
    prediction = features.get("prediction")
    if prediction is not None and prediction.dtype.kind not in "biuf":  # names of classes
        features["prediction"] = np.unique(prediction.astype(str), return_inverse=True)[1]
    elif prediction is not None and prediction.dtype.kind == "f" and "output" not in features:
        features["output"] = prediction
    if features.get("output", np.empty((0, 0))).ndim == 1:
        features["output"] = features["output"][:, None]
    size = len(next(iter(features.values())))
    columns: dict[str, Any] = features
    return Pool([str(row) for row in range(size)], **columns, slices=slices)


def _of_prediction(probability: NDArray[np.float64], prediction: NDArray[Any] | None) -> NDArray[np.float64]:
    """Return the probability (N,) that a prediction of class 0 or 1 is right, from that of class 1."""
    if prediction is None or not np.isin(prediction, (0, 1)).all():
        raise DataError(
            "probability is that of class 1, and the predictions are not 0 and 1; give confidence instead: the "
            "probability of the predicted class"
        )
    return np.where(prediction == 1, probability, 1 - probability)


def are_numbers(values: NDArray[Any]) -> bool:
    """Return whether all values are numbers."""
    return values.dtype.kind in "biuf" or all(isinstance(value, Number) for value in values.ravel().tolist())


def real_numbers(name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers (N,), also from text; raise DataError for anything else."""
    try:
        numbers = values.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(f"{name}: {error}; give numbers") from None
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise DataError(f"{name} of row {bad[0] + 1} is {numbers.ravel()[bad[0]]}; give a number, or remove such rows")
    return numbers
