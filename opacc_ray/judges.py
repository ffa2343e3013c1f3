"""Judges: columns in which a language model, a rule or another model says whether an answer is right.

A judge gives a score in [0, 1] that the model's answer is right, a verdict (right, wrong, partly), or the class that it
would answer itself, which is compared with the prediction. A value may be missing: the judge has not seen the example.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shown
from opacc_ray.slices import Slicing

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
    found = np.full(size, np.nan)
    scores = read_said(name, [text for text in texts if text is not None], predicted or ())
    if scores is None:
        pairs = zip(texts, predicted or (), strict=True)
        found[there] = [own == text for text, own in pairs if text is not None]
    else:
        found[there] = scores
    return found


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
