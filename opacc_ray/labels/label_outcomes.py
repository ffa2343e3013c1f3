"""Canonical form of labels, and the score of a regression's prediction.

A label has one canonical form, whatever tool wrote it: a class has the name or index that the run uses, a value the
shortest text of its number. Labels are compared in that form.

If classes have names, a number is no label: some people count from 0, others from 1, and files do not record which.
:func:`name_by_number` reads numbers as indexes, for files that are known to count from 0.
"""

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from opacc_ray.errors import LabelError
from opacc_ray.labels.label_rows import few, is_cant_tell, quoted, whole_number
from opacc_ray.spec.model_spec import plain_name

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)  # unambiguous: linear time

COUNTED = (
    "or declare that numbers count the classes from 0: opacc labels import --numbers-are-classes, "
    "numbers_are_classes=True in Python, or labels.numbers_are_classes: true in the spec"
)
"""Remedy for numbers where classes have names."""

LONGEST_GUESS = 100
"""Most characters of a label that is compared with the class names."""


def class_of(label_text: str, classes: Sequence[str] | None, num_classes: int | None = None, *, id: str) -> int:
    """Return the index of the class that a label names.

    Only two kinds of class are named by their index: classes without names (`classes` None), below `num_classes` if
    that is known; and a class whose name means "can't tell". Raises LabelError if the label is no class.
    """
    index = find_class(label_text, classes)
    if index is None:
        advice = f"; {COUNTED}" if name_by_number(label_text, classes) != label_text else ""
        why = why_no_class(label_text, classes)
        raise LabelError(f"example {quoted(id)} has the label {quoted(label_text)}, {why}{advice}")
    if num_classes is not None and index >= num_classes:
        raise LabelError(
            f"example {quoted(id)} has the label {quoted(label_text)}, which is none of the {num_classes} classes: "
            f"use a whole number from 0 to {num_classes - 1}"
        )
    return index


def value_of(label_text: str, *, id: str) -> float:
    """Return the number in a label of a regression; raises LabelError if it is none."""
    if not NUMBER.fullmatch(label_text):
        raise LabelError(f"example {quoted(id)} has the label {quoted(label_text)}: write a number such as 12.5")
    return float(label_text)


def canonical_number(value: float) -> str:
    """Return the shortest text of a number, which :func:`value_of` parses: the same for 7, 7.0 and 70e-1."""
    if math.isinf(value):  # such as 1e400
        return "1e999" if value > 0 else "-1e999"
    return repr(value + 0.0).removesuffix(".0")  # + 0.0: no -0


@dataclass(frozen=True)
class Score:
    """Score of a predicted value: 1 minus a bounded loss, in [0, 1], defined for every error."""

    scale: float = 1.0  # smallest error whose score is 0: max(0, 1 − (error / scale)²)
    within: float | None = None  # if given, the score is 1 for errors of at most this, else 0

    @property
    def measure(self) -> str:
        """Name of the mean score."""
        if self.within is not None:
            return f"share within ±{self.within:g}"
        return f"mean score, max(0, 1 - (error / {self.scale:g})²)"

    def of(self, label: float, prediction: float) -> float:
        """Return the score of one prediction."""
        error = abs(label - float(prediction))
        if self.within is not None:
            return float(error <= self.within)
        relative = error / self.scale
        return 1.0 - relative * relative if relative < 1 else 0.0

    def clips(self, label: float, prediction: float) -> bool:
        """Return whether the error exceeds the scale, so that the score no longer depends on it."""
        return self.within is None and not abs(label - float(prediction)) <= self.scale


def find_class(text: str, classes: Sequence[str] | None) -> int | None:
    """Return the index of the class that a text names, as :func:`class_of` does, or None."""
    number = whole_number(text)
    if classes is None:
        return number
    for name in [text] if number is None else [text, str(number)]:
        if name in classes:
            return classes.index(name)
    plain = [plain_name(name) for name in classes]
    if plain_name(text) in plain:
        return plain.index(plain_name(text))
    name = name_by_number(text, classes)
    return classes.index(name) if is_cant_tell(name) and name != text else None


def name_by_number(text: str, classes: Sequence[str] | None) -> str:
    """Return the name of the class whose index a text is, counted from 0; other texts are returned unchanged.

    If the name of a class is a whole number, whole numbers are names, so that "1" never means two classes.
    """
    number = whole_number(text)
    if classes is None or number is None or number >= len(classes) or have_numbers_for_names(tuple(classes)):
        return text
    return classes[number]


@lru_cache(maxsize=8)
def have_numbers_for_names(classes: tuple[str, ...]) -> bool:
    """Return whether the name of a class is a whole number."""
    return any(whole_number(plain_name(name)) is not None for name in classes)


def why_no_class(text: str, classes: Sequence[str] | None) -> str:
    """Explain why a text is no class, with the most similar name."""
    if classes is None:
        return "but the run has no class names: give the index of the class, a whole number from 0"
    if name_by_number(text, classes) != text:
        return f"which is a number, and the classes have names: use one of {_few_names(classes)}"
    by_lower = {name.lower(): name for name in classes}
    near = difflib.get_close_matches(text.lower(), by_lower, n=1) if len(text) <= LONGEST_GUESS else []
    guess = f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
    return f"which is none of the {len(classes)} classes{guess}: use one of {_few_names(classes)}"


def _few_names(classes: Sequence[str]) -> str:
    return few([quoted(name) if len(name) > 60 else name for name in classes], most=20)
