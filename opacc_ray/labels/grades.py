"""Labels that judge an answer, labels of several classes, and counts: their canonical forms.

A grade is named by its own name, by `SYNONYMS`, or by its outcome, such as 1 and 0.5. Of a preference, A and B are the
two answers in the order in which they were shown.
"""

import hashlib
import re
from collections.abc import Sequence

from opacc_ray.errors import LabelError
from opacc_ray.judges import SYNONYMS
from opacc_ray.labels.label_rows import (
    NUMBER,
    canonical_number,
    number_in,
    plain_words,
    quoted,
    whole_number,
    why_no_class,
)
from opacc_ray.spec import ModelSpec
from opacc_ray.spec.model_spec import NONE, SEPARATOR


def grade_of(label_text: str, model: ModelSpec, *, id: str) -> str:
    """Return the grade that a label names, or its score in canonical form.

    Besides its name, a grade is named by `SYNONYMS`, and by its outcome: 1, 0.5. Of a preference, A and B are the
    answers in the order in which they were shown (:func:`is_swapped`). Raises LabelError if the label is no grade.
    """
    outcomes, found = model.outcomes, f"example {quoted(id)} has the label {quoted(label_text)}"
    if outcomes is None:
        value = number_in(label_text)
        if value is None or not 0 <= value <= 1:
            raise LabelError(f"{found}: write a score from 0 to 1, such as 0.8")
        return canonical_number(value)
    text = plain_words(label_text)
    if model.prefers and text in ("a", "b"):
        return "first" if (text == "a") != is_swapped(id) else "second"
    names = {plain_words(name): name for name in outcomes}
    are_numbers = any(whole_number(name) is not None for name in names)
    number = float(text) if NUMBER.fullmatch(text) and not are_numbers and not model.prefers else None
    by_outcome = [name for name, outcome in outcomes.items() if outcome == number]
    grade = names.get(text) or names.get(SYNONYMS.get(text, "")) or names.get(str(whole_number(text)))
    if grade is None and len(by_outcome) == 1:
        grade = by_outcome[0]
    if grade is None:
        shown = ["A", "B", "tie"] if model.prefers else list(outcomes)
        raise LabelError(f"{found}, which is none of the grades: use {', '.join(map(quoted, shown))}")
    return grade


def set_of(label_text: str, model: ModelSpec, *, id: str) -> str:
    """Return the canonical form of a label of several classes; raises LabelError if one is none of the classes."""
    try:
        return model.set_name(model.classes_in(label_text))
    except ValueError as error:
        why = why_no_class(str(error), model.classes)
        raise LabelError(
            f"example {quoted(id)} has the label {quoted(label_text)} with {quoted(str(error))}, {why}, "
            f"with {SEPARATOR!r} between them, or {NONE!r}"
        ) from None


def counts_of(label_text: str, names: Sequence[str], *, id: str) -> str:
    """Return the canonical form of counts, ``tp=5 fp=0 fn=2``, or the numbers alone in their order, ``5 0 2``.

    Raises LabelError if one is missing or no count.
    """
    pairs = [part.partition("=") for part in re.split(r"[\s,;]+", label_text.strip())]
    if len(pairs) == len(names) and not any(is_named for _, is_named, _ in pairs):
        pairs = [(name, "=", text) for name, (text, _, _) in zip(names, pairs, strict=True)]
    given, found = {name: text for name, _, text in pairs}, f"example {quoted(id)} has the label {quoted(label_text)}"
    form = " ".join(f"{name}=0" for name in names)
    if len(given) < len(pairs) or given.keys() != set(names):
        raise LabelError(f"{found}: write each count once, as in {form}, or {len(names)} numbers in that order")
    unfit = next((name for name, text in given.items() if not NUMBER.fullmatch(text) or float(text) < 0), None)
    if unfit is not None:
        raise LabelError(f"{found}, where {unfit} is no count: write numbers of at least 0, as in {form}")
    return " ".join(f"{name}={canonical_number(float(given[name]))}" for name in names)


def numbers_in(canonical: str) -> dict[str, float]:
    """Return the counts by name that a label in canonical form has."""
    pairs = (part.partition("=") for part in canonical.split())
    return {name: float(text) for name, _, text in pairs}


def is_swapped(id: str) -> bool:
    """Return whether the two answers to an example are shown in reverse order: for half of all ids, by their digest.

    So neither annotators nor a preference for what stands first favour one model.
    """
    return hashlib.sha256(f"preference\0{id}".encode()).digest()[0] % 2 == 1


def as_shown(label: str | None, model: ModelSpec, id: str) -> str | None:
    """Return a canonical label as annotators know it: of a preference, A or B."""
    if not model.prefers or label not in ("first", "second"):
        return label
    return "A" if (label == "first") != is_swapped(id) else "B"
