"""From a label to an outcome: 1 if the model said the same, 0 if not; for a value, a score.

A label has one canonical form, whatever tool wrote it: a class is the name or the index that the run uses, a value the
shortest text of its number. Labels are compared in that form.
"""

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from opacc_ray.errors import LabelError
from opacc_ray.labelling.messages import few, quoted
from opacc_ray.labelling.rows import whole_number
from opacc_ray.spec.model import plain_name

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)  # one way to match each text: linear

LONGEST_GUESS = 100
"""Characters of a label beyond which it is not compared with the names of the classes."""


def class_of(label_text: str, classes: Sequence[str] | None, num_classes: int | None = None, *, id: str) -> int:
    """The index of the class that a label names.

    A label is the name of a class or its index (`classes` None: always an index, below `num_classes` if that is known).
    Where a class has a whole number for a name, whole numbers are names only, so that "1" never means two classes.

    Raises
    ------
    LabelError : the label is no class.
    """
    index = find_class(label_text, classes)
    if index is None:
        raise LabelError(
            f"example {quoted(id)} has the label {quoted(label_text)}, {why_no_class(label_text, classes)}"
        )
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
    if number is None or number >= len(classes) or any(whole_number(name) is not None for name in classes):
        return None
    return number


def why_no_class(text: str, classes: Sequence[str] | None) -> str:
    """Say what a text that is no class could have been."""
    if classes is None:
        return "but the run has no class names: give the index of the class, a whole number from 0"
    by_lower = {name.lower(): name for name in classes}
    near = difflib.get_close_matches(text.lower(), by_lower, n=1) if len(text) <= LONGEST_GUESS else []
    guess = f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
    names = few([quoted(name) if len(name) > 60 else name for name in classes], most=20)
    return f"which is none of the {len(classes)} classes{guess}: use one of {names}"
