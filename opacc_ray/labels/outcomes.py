"""From a label to an outcome: 1 if the model said the same, 0 if not; for a value, a score.

A label has one canonical form, whatever tool wrote it: a class is the name or the index that the run uses, a value the
shortest text of its number. Labels are compared in that form.

Where classes have names, a number names none of them: people count from 0 or from 1, and a file does not say which.
:func:`name_by_number` reads numbers as indexes, for files of which somebody said that they count from 0.
"""

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from opacc_ray.errors import LabelError
from opacc_ray.labels.messages import few, quoted
from opacc_ray.labels.rows import says_unsure, whole_number
from opacc_ray.spec.model import plain_name

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)  # one way to match each text: linear

COUNTED = (
    "or say that numbers count the classes from 0: --numbers-are-classes of opacc labels import, "
    "numbers_are_classes=True in Python, or labels.numbers_are_classes: true in the spec"
)
"""What to do about numbers where classes have names."""

LONGEST_GUESS = 100
"""Characters of a label beyond which it is not compared with the names of the classes."""


def class_of(label_text: str, classes: Sequence[str] | None, num_classes: int | None = None, *, id: str) -> int:
    """The index of the class that a label names.

    A label is the name of a class. Only classes without names (`classes` None) are named by their index, which is below
    `num_classes` if that is known; and a class whose name means "can't tell", which could not be named otherwise.

    Raises
    ------
    LabelError : the label is no class.
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
    """The number that a label of a regression is; raises LabelError if it is none."""
    if not NUMBER.fullmatch(label_text):
        raise LabelError(f"example {quoted(id)} has the label {quoted(label_text)}: write a number such as 12.5")
    return float(label_text)


def canonical_number(value: float) -> str:
    """The shortest text of a number, the same for 7, 7.0 and 70e-1, which :func:`value_of` reads as that number."""
    if math.isinf(value):  # of 1e400, say
        return "1e999" if value > 0 else "-1e999"
    return repr(value + 0.0).removesuffix(".0")  # + 0.0: no -0


@dataclass(frozen=True)
class Score:
    """What a prediction of a value is worth: a bounded loss turned round, in [0, 1], defined for every error.

    Attributes
    ----------
    scale : the error from which on the score is 0: max(0, 1 − (error / scale)²).
    within : if given, the score is 1 where the error is at most this, else 0.
    """

    scale: float = 1.0
    within: float | None = None

    @property
    def measure(self) -> str:
        """What the mean of such scores is called."""
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
        """Whether the error is larger than the scale, so that the score no longer tells how large."""
        return self.within is None and not abs(label - float(prediction)) <= self.scale


def find_class(text: str, classes: Sequence[str] | None) -> int | None:
    """The index of the class that a text names, as :func:`class_of` reads it, or None."""
    number = whole_number(text)
    if classes is None:
        return number
    for name in [text] if number is None else [text, str(number)]:
        if name in classes:
            return classes.index(name)
    plain = [plain_name(name) for name in classes]
    if plain_name(text) in plain:
        return plain.index(plain_name(text))
    meant = name_by_number(text, classes)
    return classes.index(meant) if says_unsure(meant) and meant != text else None


def name_by_number(text: str, classes: Sequence[str] | None) -> str:
    """Return the name of the class whose index a text is, counted from 0; another text as it is.

    Where a class has a whole number for a name, whole numbers are names, so that "1" never means two classes.
    """
    number = whole_number(text)
    if classes is None or number is None or number >= len(classes) or have_numbers_for_names(tuple(classes)):
        return text
    return classes[number]


@lru_cache(maxsize=8)
def have_numbers_for_names(classes: tuple[str, ...]) -> bool:
    """Tell whether a class has a whole number for its name."""
    return any(whole_number(plain_name(name)) is not None for name in classes)


def why_no_class(text: str, classes: Sequence[str] | None) -> str:
    """Say what a text that is no class could have been."""
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
