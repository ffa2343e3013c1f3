"""From a label to an outcome: 1 if the model said the same, 0 if not; for a value, a score."""

import difflib
import re
from collections.abc import Sequence

from opacc_ray.errors import LabelError
from opacc_ray.labelling.joining import few
from opacc_ray.labelling.rows import whole_number


def class_of(label_text: str, classes: Sequence[str] | None, *, id: str) -> int:
    """The index of the class that a label names.

    A label is the name of a class or its index (`classes` None: always an index). Where a class has a whole number
    for a name, whole numbers are names only, so that "1" never means two classes.

    Raises
    ------
    LabelError : the label is no class.
    """
    index = find_class(label_text, classes)
    if index is None:
        raise LabelError(f"example {id!r} has the label {label_text!r}, {why_no_class(label_text, classes)}")
    return index


def outcome_of_classes(label_text: str, prediction: int, classes: Sequence[str] | None, *, id: str) -> float:
    """Return 1.0 if the label is the predicted class, 0.0 if it is another one; raises as :func:`class_of`."""
    return float(class_of(label_text, classes, id=id) == prediction)


def outcome_of_values(label_text: str, prediction: float, scale: float = 1.0, *, id: str) -> float:
    """Return the score 1 − ((label − prediction) / scale)², in [0, 1]: `scale` is the error that scores 0.

    Raises
    ------
    LabelError : the label is not a decimal number, or the error is larger than the scale.
    """
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", label_text, re.ASCII):
        raise LabelError(f"example {id!r} has the label {label_text!r}: write a number such as 12.5")
    error = float(label_text) - float(prediction)
    score = 1.0 - (error / scale) * (error / scale)
    if not score >= 0.0:
        raise LabelError(
            f"example {id!r} with label {label_text} and prediction {prediction:g} scores {score:g}, but"
            f" scores must lie in [0, 1]: set model.error_scale (now {scale:g}) to {abs(error)!r} or more"
        )
    return score


def find_class(text: str, classes: Sequence[str] | None) -> int | None:
    """The index of the class that a text names, as :func:`class_of` reads it, or None."""
    number = whole_number(text)
    if classes is None:
        return number
    for name in [text] if number is None else [text, str(number)]:
        if name in classes:
            return classes.index(name)
    if number is None or number >= len(classes) or any(whole_number(name) is not None for name in classes):
        return None
    return number


def why_no_class(text: str, classes: Sequence[str] | None) -> str:
    """Say what a text that is no class could have been."""
    if classes is None:
        return "but the run has no class names: give the index of the class, a whole number from 0"
    by_lower = {name.lower(): name for name in classes}
    near = difflib.get_close_matches(text.lower(), by_lower, n=1)
    guess = f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
    return f"which is none of the {len(classes)} classes{guess}: use one of {few(classes, most=20)}"
