"""The operational pool as arrays: what a model said of N unlabelled examples, and what else is known before a label.

**Judges** are columns in which a language model, a rule or another model says whether an answer is right: a score in
[0, 1], a verdict (right, wrong, partly), or the class that it would answer itself, which is compared with the
prediction. A value may be missing: the judge has not seen the example.

A **history** has labels of other examples, and judges of the pool. ``labelled`` are examples outside this pool, with
their features and outcomes: the model's labelled test set, or an earlier audit of the same model. None of it is
trusted.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError, SpecError, meant, shown

HAS_TAG = ("no", "yes")
"""Slices of a tag: the examples without it, and those that have it."""

NOT_GIVEN = "(none)"
"""Slice of the examples without a value."""

MOST = 1000
"""Most slices that a column may have: more are names of examples, or numbers that should be cut."""

_BLOCK = 1 << 18  # examples that are crossed at a time: NumPy makes 8 bytes of each index

CROSSING = "*"
"""Stands between the names of two slicings that are crossed."""

OF_CLASSES = BY_PREDICTION, BY_TRUTH = "prediction", "truth"
"""Parts that are no slices: the examples predicted as each class, and those of each true class."""

FOLDER = "folder"
"""Names the slices by the folder of each example."""


class SliceRule(NamedTuple):
    """How slices are made of one column of a pool."""

    name: str
    column: str  # FOLDER: the folder of each example, from its place below the pool
    cuts: tuple[float, ...] | None = None  # of numbers
    levels: int | None = None  # of a folder: the first ones that count; None: all
    tag: str | None = None  # of a column with several per row
    is_cluster: bool = False  # its values may be many, and are no slices to state numbers for

    @property
    def content(self) -> dict[str, Any]:
        """Return the fields that are set, and those that every rule has had."""
        return {name: own for name, own in self._asdict().items() if own or name not in ("tag", "is_cluster")}


class Slicing(NamedTuple):
    """A partition of N examples in S named slices."""

    names: tuple[str, ...]  # (S,)
    codes: NDArray[np.int32]  # (N,) 0 .. S - 1

    @classmethod
    def of(cls, name: str, values: ArrayLike, cuts: Sequence[float] | None = None, most: float = MOST) -> Self:
        """Make slices of the values (N,) of a column: one for each value, or for each interval between ``cuts``.

        Raises DataError for more than ``most`` different values, for values that are no column.
        """
        array = np.asarray(values)
        if array.ndim != 1:
            raise DataError(f"slices {name!r} have the shape {array.shape}; give one value per example: (N,)")
        if cuts is not None:
            return cls._cut(name, array, [float(cut) for cut in cuts])
        places: Any = slice(None)
        if array.dtype.kind in "biuf":  # few numbers, of many rows
            array, places = np.unique(array, return_inverse=True)
        texts = np.array([_text(value) for value in array.tolist()], dtype=object)
        found, codes = np.unique(texts.astype(str), return_inverse=True)
        if len(found) > most:
            refuse_many(name, found.tolist())
        names = _ordered(found.tolist())
        place = {own: number for number, own in enumerate(names)}
        return cls(names, np.array([place[own] for own in found.tolist()], dtype=np.int32)[codes][places])

    @classmethod
    def _cut(cls, name: str, array: NDArray[Any], cuts: list[float]) -> Self:
        if not cuts or sorted(set(cuts)) != cuts:
            raise SpecError(f"slices {name!r} are cut at {shown(cuts)}; give one or more numbers, rising")
        try:
            numbers = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"slices {name!r} are cut, and their values are not all numbers ({error})") from None
        ends = [f"{cut:g}" for cut in cuts]
        between = [f"{low} to {high}" for low, high in pairwise(ends)]
        names = [f"< {ends[0]}", *between, f">= {ends[-1]}"]
        codes = np.searchsorted(np.array(cuts), numbers, side="right")
        missing = np.isnan(numbers)
        if missing.any():
            names.append(NOT_GIVEN)
            codes[missing] = len(names) - 1
        return cls(tuple(names), codes.astype(np.int32))

    def cross(self, other: "Slicing") -> "Slicing":
        """Return a slice for each pair of slices that occurs."""
        most = len(self.names) * len(other.names)
        if most <= len(self.codes):
            seen, codes = _pairs(self.codes, other.codes, len(other.names), most)
        else:
            pair = self.codes.astype(np.int64) * len(other.names) + other.codes
            seen, codes = np.unique(pair, return_inverse=True)
        rows = [divmod(one, len(other.names)) for one in seen.tolist()]
        return Slicing(tuple(f"{self.names[a]}, {other.names[b]}" for a, b in rows), codes.astype(np.int32, copy=False))

    def packed(self) -> "Slicing":
        """Return the same slices with codes of the smallest type, for keeping; :func:`joined` unpacks them."""
        return self._replace(codes=self.codes.astype(np.min_scalar_type(len(self.names))))


def joined(parts: Iterable[Slicing]) -> Slicing:
    """Join the slices of consecutive parts of a pool: those of the same name are one, however the pool is cut."""
    parts = list(parts)
    every = set().union(*(part.names for part in parts))
    most = max((part.names for part in parts), key=len)
    names = most if len(most) == len(every) else _ordered(every)
    number = {name: place for place, name in enumerate(names)}
    codes = np.empty(sum(len(part.codes) for part in parts), dtype=np.int32)
    start = 0
    for part in parts:
        stop = start + len(part.codes)
        codes[start:stop] = np.array([number[name] for name in part.names], dtype=np.int32)[part.codes]
        start = stop
    return Slicing(names, codes)


def _pairs(
    first: NDArray[Any], second: NDArray[Any], width: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the numbers ``first * width + second`` that occur, of ``most``, and the place of each pair, (N,)."""
    pair, seen = np.empty(len(first), dtype=np.int32), np.zeros(most, dtype=np.bool_)
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(first), _BLOCK)]
    for own in blocks:
        pair[own] = first[own].astype(np.int32) * np.int32(width) + second[own]
        seen[pair[own]] = True
    place = np.cumsum(seen, dtype=np.int32) - 1
    for own in blocks:
        pair[own] = place[pair[own]]
    return np.flatnonzero(seen), pair


def refuse_many(name: str, values: Sequence[str]) -> None:
    """Raise DataError for more than MOST different values."""
    if len(values) > MOST:
        way = f"cut numbers, as in {{{name}: [18, 30, 50]}}, or give a column with at most {MOST}"
        if re.match(r"\d{4}-\d\d", values[0]):
            way = f"times have no cuts, so name a column with the day or week, such as 2026-W40, with at most {MOST}"
        raise DataError(f"slices {name!r} have {len(values)} different values, such as {shown(values[0])}: {way}")


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in an order that no cut of a pool changes: numbers by value, text, and NOT_GIVEN."""
    return tuple(sorted(set(names), key=rank))


def rank(name: str) -> tuple[int, float, list[tuple[str, int]], str]:
    """Return the key that orders names of slices: numbers by value, text by the numbers in it (W9, W10), NOT_GIVEN."""
    if name == NOT_GIVEN:
        return 2, 0, [], name
    with suppress(ValueError):
        if math.isfinite(number := float(name)):
            return 0, number, [], name
    return 1, 0, [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name)], name


def _text(value: Any) -> str:
    """Return the name of a value: NOT_GIVEN for None and NaN."""
    if value is None or value != value:
        return NOT_GIVEN
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip() or NOT_GIVEN


# -- slices ----------------------------------------------------------------------------------------------------------


COLUMNS = ("prediction", "confidence", "dsa", "lsa")
"""Features with one number per example."""

LAYERS = ("hidden", "output")
"""Features with one row of neurons per example."""

FEATURES = (*LAYERS, *COLUMNS, "coverage")
"""All features."""

MISSING = {"None", "nan", "NaN", "NaT", "<NA>"}
"""Texts of missing values."""

SOFTMAX_ROUNDING = 1e-6
"""A confidence of float32 may exceed 1 by it."""


class Pool:
    """N operational examples; every feature may be missing, and a method that needs one says so.

    Parameters
    ----------
    ids : N unique strings, default "0" .. "N-1"
    hidden : (N, m) float32, outputs of the last hidden layer
    output : (N, C) float32, outputs of the last layer (logits, or the value of a regression)
    prediction : (N,), predicted class, by name or index, or value
    confidence : (N,) float, largest softmax probability, in [0, 1]
    dsa, lsa : (N,) float, distance- and likelihood-based surprise
    coverage : (N, requirements) bool, or packed bits (N, ceil(requirements / 8)) uint8
    classes : names of the classes, in the order of the model's outputs. Default: the predicted names, sorted
    slices : name -> (N,) values, or -> ((N,) numbers, where they are cut): parts of the pool to state numbers for
    judges : name -> (N,) what a judge says of each answer: a score in [0, 1] that it is right, "right" or "wrong", or
        the class that the judge would predict; None or NaN where it has not judged

    Attributes
    ----------
    slices : name -> Slicing
    judges : name -> (N,) scores, NaN where the judge has not judged
    prediction : (N,), predicted class by index, or value
    classes : names of the classes, or None if they have none
    numbered : whether predictions were given as numbers, not by name

    Raises
    ------
    DataError
        If the features have different N, none is given, one is not made of numbers or has another shape, the ids or
        classes are not unique, a predicted class is none of ``classes``, or a judge says something else.
    """

    def __init__(
        self,
        ids: Iterable[Any] | None = None,
        hidden: ArrayLike | None = None,
        output: ArrayLike | None = None,
        prediction: ArrayLike | None = None,
        confidence: ArrayLike | None = None,
        dsa: ArrayLike | None = None,
        lsa: ArrayLike | None = None,
        coverage: ArrayLike | None = None,
        *,
        classes: Iterable[str] | None = None,
        slices: Mapping[str, Any] | None = None,
        judges: Mapping[str, Any] | None = None,
    ) -> None:
        self.hidden = _matrix("hidden", hidden)
        self.output = _matrix("output", output)
        texts = None if prediction is None else _texts(prediction)
        self.numbered = texts is None
        self.prediction, self.classes = _predicted(prediction, texts, classes)
        self.confidence = _vector("confidence", confidence)
        self.dsa = _vector("dsa", dsa)
        self.lsa = _vector("lsa", lsa)
        self.coverage = None if coverage is None else _requirements(coverage)
        self._ids = None if ids is None else _unique(ids)
        given = {f"judge {name!r}": np.asarray(own, dtype=object) for name, own in (judges or {}).items()}
        self.size = _agreed_size(self._arrays() | given, self._ids)
        self.slices = _slicings(slices or {}, self.size)
        self.judges = read_judges(judges, _names_of(self.prediction, self.classes), self.size) if judges else {}
        self.kept: dict[str, tuple[str, Any]] = {}  # name -> (key, value), made from the features: see parts/view.py

    def share(self) -> "Pool":
        """The same features, with nothing kept of them yet."""
        pool = copy(self)
        pool.kept = {}
        return pool

    @property
    def ids(self) -> Sequence[str]:
        """N unique strings."""
        return self._ids if self._ids is not None else _Numbers(self.size)

    @property
    def named(self) -> bool:
        """Whether ids were given."""
        return self._ids is not None

    @property
    def fields(self) -> frozenset[str]:
        """Names of the features that are there."""
        return frozenset(self._arrays())

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}{array.shape}" for name, array in self._arrays().items())
        return f"Pool({self.size} examples: {shapes})"

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: array for name in FEATURES if (array := getattr(self, name)) is not None}


class _Numbers(Sequence[str]):
    """Ids "0" to "N-1", made on demand."""

    def __init__(self, size: int) -> None:
        self._range = range(size)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        found = self._range[place]
        return str(found) if isinstance(found, int) else list(map(str, found))


def _slicings(given: Mapping[str, Any], size: int) -> dict[str, Slicing]:
    result = dict[str, Slicing]()
    for name, values in given.items():
        if isinstance(values, Slicing):
            result[name] = values
        else:
            values, cuts = values if isinstance(values, tuple) and len(values) == 2 else (values, None)
            result[name] = Slicing.of(name, values, cuts)
        if len(result[name].codes) != size:
            raise DataError(
                f"slices {name!r} have {len(result[name].codes)} values, for {size} examples; give one each"
            )
    return result


def _matrix(name: str, values: ArrayLike | None) -> NDArray[np.float32] | None:
    if values is None:
        return None
    array = _numbers(name, values).astype(np.float32, copy=False)
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{name} has shape {array.shape}; give one row per example: (N, neurons)")
    return array


def _vector(name: str, values: ArrayLike | None) -> NDArray[Any] | None:
    if values is None:
        return None
    array = _numbers(name, values)
    if array.ndim != 1:
        raise DataError(f"{name} has shape {array.shape}; give one number per example: (N,)")
    return array


def _predicted(
    values: ArrayLike | None, texts: list[str] | None, classes: Iterable[str] | None
) -> tuple[NDArray[Any] | None, tuple[str, ...] | None]:
    names = None if classes is None else _class_names(classes)
    if texts is None:
        indices = _vector("prediction", values)
        return (indices if indices is None or names is None else _checked(indices, len(names))), names
    names = names or tuple(sorted(set(texts)))
    index = {name: number for number, name in enumerate(names)}
    for place, text in enumerate(texts):
        if text not in index:
            guess = f" ({near})" if (near := meant(text, names)) else ""
            raise DataError(f"prediction[{place}] is {shown(text)}, which is none of the {len(names)} classes{guess}")
    return np.array([index[text] for text in texts]), names


def _names_of(prediction: NDArray[Any] | None, classes: Sequence[str] | None) -> list[str] | None:
    """Return the names of the predicted classes, (N,); None without classes."""
    if prediction is None or prediction.dtype.kind not in "iu":
        return None
    return [classes[place] if classes else str(place) for place in prediction.tolist()]


def _texts(values: ArrayLike) -> list[str] | None:
    """The values as texts, or None if they are something else."""
    try:
        # as objects, because NumPy makes the text nan of a missing name in a list
        array = np.asarray(values, dtype=object if isinstance(values, list | tuple) else None)
    except (TypeError, ValueError, RuntimeError):  # _numbers states what is wrong
        return None
    texts = array.tolist() if array.ndim == 1 and array.dtype.kind in "OUT" else []
    return texts if texts and all(isinstance(text, str) for text in texts) else None


def _class_names(classes: Iterable[str]) -> tuple[str, ...]:
    names = tuple(classes)
    if isinstance(classes, str) or not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise DataError(f"classes is {shown(classes)}; give the name of each class, in the model's order")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"classes has {shown(twice[0])} more than once; give each class its own name")
    return names


def _checked(indices: NDArray[Any], num_classes: int) -> NDArray[np.int64]:
    """Return predictions (N,) that are indexes of the classes."""
    wrong = np.flatnonzero(~np.isin(indices, np.arange(num_classes)))
    if len(wrong):
        raise DataError(
            f"prediction[{wrong[0]}] is {indices[wrong[0]]}, and there are {num_classes} classes; give their names, or "
            f"their indexes from 0 to {num_classes - 1}"
        )
    return indices.astype(np.int64)


def _numbers(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cmM":  # NumPy would make numbers of them, and lose what they say
            raise TypeError(f"{array.dtype} is no real number")
        return array if array.dtype.kind in "biuf" else array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # text, rows that differ in length, a tensor with a gradient
        of_column = "one row per example, of a column of lists np.stack(column)"
        fix = of_column if name in LAYERS else "numbers, or the name of a class for every example"
        raise DataError(f"{name} is not made of numbers ({error}); give {fix}") from None


def _requirements(values: ArrayLike) -> NDArray[Any]:
    array = _numbers("coverage", values)
    if array.ndim != 2 or array.dtype not in (np.bool_, np.uint8):
        raise DataError(
            f"coverage has shape {array.shape} and dtype {array.dtype}; give one row per example, either "
            "bool (N, requirements) or the bits of that packed by numpy.packbits(..., axis=1)"
        )
    return array


def _agreed_size(arrays: dict[str, NDArray[Any]], ids: Sequence[str] | None) -> int:
    sizes = {name: len(array) for name, array in arrays.items()}
    if ids is not None:
        sizes["ids"] = len(ids)
    if not sizes:
        raise DataError("the pool is given no feature and no ids; give at least one, e.g. confidence=")
    if len(set(sizes.values())) > 1:
        stated = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise DataError(f"the features disagree about the number of examples: {stated}")
    if 0 in sizes.values():
        raise DataError("the pool holds no example; check the source it was read from")
    return next(iter(sizes.values()))


def _unique(ids: Iterable[str]) -> list[str]:
    if not isinstance(ids, Iterable):
        raise DataError(f"ids is of type {type(ids).__name__}; give one name per example: N unique texts")
    given = list(ids)
    names = [str(name) for name in given]
    if not MISSING.isdisjoint(names):
        for place, name in enumerate(given):
            if not isinstance(name, str) and str(name) in MISSING:
                raise DataError(f"ids[{place}] is {name}; give each example a unique id")
    if len(set(names)) < len(names):
        repeated = next(name for name, count in Counter(names).items() if count > 1)
        raise DataError(f"id {repeated!r} stands twice in the pool; ids must be unique")
    return names


# -- judges --------------------------------------------------------------------------------------------------------


Array = NDArray[np.float64]

SYNONYMS = {
    **dict.fromkeys(("correct", "true", "yes", "pass"), "right"),
    **dict.fromkeys(("incorrect", "false", "no", "fail"), "wrong"),
    **dict.fromkeys(("partial", "partially", "partly right", "partially correct"), "partly"),
    **dict.fromkeys(("equal", "draw", "both"), "tie"),
}
"""Other words for grades."""

VERDICTS = {"right": 1.0, "partly": 0.5, "wrong": 0.0}
"""Score of each verdict; it may also be named by one of the SYNONYMS."""

SAYS_WRONG, SAYS_RIGHT, NOT_JUDGED = range(3)
"""Slices of a pool by what a judge says of each example."""

_MISSING = ("", "?", "nan", "null", "none")
_RIGHT_FROM = 0.5


def read_judges(judges: Mapping[str, Any], predicted: Sequence[str] | None, size: int) -> dict[str, Array]:
    """Return the scores (N,) of each judge, NaN where it has not judged; raises DataError as :func:`scores_of`."""
    return {name: scores_of(name, values, predicted, size) for name, values in judges.items()}


def scores_of(name: str, values: Sequence[Any] | NDArray[Any], predicted: Sequence[str] | None, size: int) -> Array:
    """Return the scores (N,) of one judge, NaN where it has not judged.

    Parameters
    ----------
    values : (N,) numbers in [0, 1], verdicts or names of classes; None, NaN, "" and "?" are missing
    predicted : (N,) names of the predicted classes, with which names of classes are compared; None: there are none

    Raises DataError for values that are none of these, another number than ``size``, or no value at all.
    """
    if np.shape(values) != (size,):
        raise DataError(
            f"judge {name!r} has the shape {np.shape(values)}, for {size} examples; give one value for each"
        )
    with suppress(TypeError, ValueError):  # other texts than numbers
        numbers = np.array(values, dtype=np.float64)
        there = ~np.isnan(numbers)
        if there.any() and ((numbers[there] >= 0) & (numbers[there] <= 1)).all():
            return numbers
    texts = [text_of(value) for value in values]
    there = np.array([text is not None for text in texts])
    if not there.any():
        raise DataError(f"judge {name!r} has judged no example; fill the column for some, or leave it out")
    result = np.full(size, np.nan)
    scores = read_said(name, [text for text in texts if text is not None], predicted or ())
    if scores is None:
        pairs = zip(texts, predicted or (), strict=True)
        result[there] = [own == text for text, own in pairs if text is not None]
    else:
        result[there] = scores
    return result


def read_said(name: str, said: Sequence[str], classes: Iterable[str]) -> list[float] | None:
    """Return the scores that texts state; None if they name ``classes``, and raises DataError if they are neither."""
    scores = [_score(text) for text in said]
    strange = next((text for text, score in zip(said, scores, strict=True) if score is None), None)
    if strange is None:
        return [score for score in scores if score is not None]
    if set(said).isdisjoint(classes):
        raise DataError(
            f"judge {name!r} says {shown(strange)}; give a score from 0 to 1 that the answer is right, one of "
            f"{', '.join(VERDICTS)}, or the name of a class that the model predicts"
        )
    return None


def text_of(value: Any) -> str | None:
    """Return a value as text, or None if it is missing."""
    text = "" if value is None or value != value else str(value).strip()
    return None if text.lower() in _MISSING else text


def _score(text: str) -> float | None:
    """Return the score that a number or a verdict states; None for any other text."""
    word = SYNONYMS.get(text.lower(), text.lower())
    if word in VERDICTS:
        return VERDICTS[word]
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None


def verdicts(score: Array) -> Slicing:
    """Return the slices of a pool by what a judge says: it calls a score of at least one half right."""
    codes = np.where(np.isnan(score), NOT_JUDGED, score >= _RIGHT_FROM).astype(np.int32)
    return Slicing(("says wrong", "says right", "not judged"), codes)


# -- history -------------------------------------------------------------------------------------------------------


CALL = 'opacc.History(labelled=[{"pool": pool, "outcomes": outcomes}]), with 1 for right and 0 for wrong'


@dataclass(frozen=True, eq=False)
class History:
    """Knowledge that `neyman` may start from; the estimate is unbiased for any history.

    Signals from a history are cached with the view of a pool, so a history does not change: outcomes and ``judges`` are
    copied, and the copies are read-only. The labelled pools are not copied; do not change their arrays.

    Parameters
    ----------
    labelled : ``{"pool": pool, "outcomes": outcomes}`` for each pool of labelled examples. It has the features that the
        audited pool has, and outcomes (k,): 1 where its model is right, 0 where it is wrong, or a score in [0, 1]
    judges : name -> (N,) scores or verdicts for the audited pool, as ``Pool(judges=…)``, to which they are added

    Raises
    ------
    DataError
        If outcomes do not fit their pool or are not in [0, 1], or a judge says neither a score nor a verdict.
    """

    labelled: Sequence[Mapping[str, Any]] = ()
    judges: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.labelled, Iterable):
            raise DataError(f"history: labelled has the type {type(self.labelled).__name__}; give {CALL}")
        object.__setattr__(self, "labelled", tuple(map(_labelled, self.labelled)))
        object.__setattr__(self, "judges", {name: _scores(name, own) for name, own in self.judges.items()})

    def take(self, index: NDArray[np.int64]) -> "History":
        """Return the same knowledge of the examples ``index`` (k,) of the pool; judges of none of them are left out."""
        judges = {name: own[index] for name, own in self.judges.items()}
        return replace(self, judges={name: own for name, own in judges.items() if not np.isnan(own).all()})

    def failures(self) -> list[tuple[Pool, NDArray[np.float64]]]:
        """Return the labelled pools with 1 - outcome, (k,) each."""
        return [(own["pool"], 1 - np.asarray(own["outcomes"], dtype=np.float64)) for own in self.labelled]


def _labelled(item: Any) -> dict[str, Any]:
    """Return a pool and its outcomes (k,), a read-only copy; bare pairs could hold true classes of 0 and 1 instead."""
    if not isinstance(item, Mapping) or set(item) != {"pool", "outcomes"}:
        keys = ", ".join(map(str, item)) if isinstance(item, Mapping) else None
        found = f"the type {type(item).__name__}" if keys is None else f"the keys {keys}"
        raise DataError(f"history: an item of labelled has {found}; give {CALL}")
    pool = item["pool"]
    try:
        values = np.array(item["outcomes"])
    except ValueError as error:  # rows that differ in length
        raise DataError(f"history: outcomes is not made of numbers ({error}); give one number per example") from None
    values.setflags(write=False)
    if not isinstance(pool, Pool):
        raise DataError(f"history: a labelled pool is of type {type(pool).__name__}; give opacc.Pool(confidence=...)")
    if values.shape != (pool.size,) or values.dtype.kind not in "biuf":
        raise DataError(
            f"history: outcomes of shape {values.shape} and type {values.dtype} for {pool.size} labelled "
            "examples; give one number per example"
        )
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("history: an outcome is not in [0, 1]: 1 is correct, 0 a misprediction")
    return {"pool": pool, "outcomes": values}


def _scores(name: str, given: Any) -> NDArray[np.float64]:
    """Return the scores (N,) of a judge, read-only."""
    values = given if isinstance(given, np.ndarray) else np.asarray(given, dtype=object)
    scores = scores_of(name, values, None, values.size)
    scores.setflags(write=False)
    return scores


NO_HISTORY = History()


def histories_of(history: History | Sequence[History] | None, num: int) -> list[History]:
    """Return one history for each of ``num`` models; raises SpecError if the type or the number is wrong."""
    if history is None:
        return [NO_HISTORY] * num
    if isinstance(history, History):
        return [history] * num
    given = list(history) if isinstance(history, Sequence) else [history]
    strange = next((own for own in given if not isinstance(own, History)), None)
    if strange is not None:
        raise SpecError(f"a history has the type {type(strange).__name__}; give {CALL}")
    if len(given) != num:
        raise SpecError(f"{len(given)} histories for {num} models: give one for all, or one for each")
    return given
