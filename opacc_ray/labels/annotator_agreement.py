"""How far annotators agree on the examples that two or more of them answered, beyond what chance would give.

Cohen's κ of two annotators, for classes, on the examples that both answered (J. Cohen, "A coefficient of agreement for
nominal scales", Educational and Psychological Measurement 20, 1960):

    κ = (p_o - p_e) / (1 - p_e),    p_o the share on which they agree,  p_e = Σ_c share_1(c) · share_2(c)

Krippendorff's α of all annotators, whoever answered what (K. Krippendorff, "Computing Krippendorff's
alpha-reliability", 2011), for classes with δ² = 1 where two differ, for numbers with δ² their squared difference:

    α = 1 - (n - 1) · Σ_u S(u) / (m_u - 1) / S(all),    S(values) = Σ over ordered pairs of δ²
      S = m² - Σ_c m_c²  for classes,   S = 2·(m·Σx² - (Σx)²)  for numbers

Both are 1 where all agree and 0 where they agree as often as chance would. They are not defined where nobody ever used
a second label.

Legend: u an example with m_u ≥ 2 answers, n = Σ m_u, m_c answers of class c.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from opacc_ray.errors import LabelError
from opacc_ray.labels.joining import votes_of
from opacc_ray.labels.rows import Label

Opinions = dict[str, str]
"""Annotator -> label, of one example."""


class PairAgreement(NamedTuple):
    """Two annotators on the examples that both answered."""

    first: str
    second: str
    examples: int
    agree: int  # examples on which they say the same
    kappa: float | None  # None: not defined, or of numbers


def opinions_of(answers: Sequence[Label], read: Callable[[str, str], str]) -> Opinions:
    """Return what each named annotator says of an example, by their last answer; a correction is no opinion.

    Parameters
    ----------
    answers : all answers to one example, as they were joined.
    read : as in :func:`.joining.join`; what is no label is left out.
    """
    found: Opinions = {}
    for row in votes_of([row for row in answers if not row.correction and row.annotator is not None]):
        try:
            found[str(row.annotator)] = read(row.id, str(row.label))
        except LabelError:
            continue
    return found


def pairs(opinions: Mapping[str, Opinions], *, are_numbers: bool = False) -> list[PairAgreement]:
    """Return how far each two annotators agree who answered an example in common, by their names.

    Parameters
    ----------
    opinions : id → what its annotators say.
    """
    common: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for said in opinions.values():
        for first, second in combinations(sorted(said), 2):
            common.setdefault((first, second), []).append((said[first], said[second]))
    return [
        PairAgreement(*names, len(labels), sum(a == b for a, b in labels), None if are_numbers else kappa(labels))
        for names, labels in sorted(common.items())
    ]


def kappa(labels: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's κ of pairs of labels; None if it is not defined."""
    num = len(labels)
    observed = sum(first == second for first, second in labels) / num
    one, other = Counter(first for first, _ in labels), Counter(second for _, second in labels)
    by_chance = sum(one[c] * other[c] for c in one) / num**2
    return None if by_chance == 1 else (observed - by_chance) / (1 - by_chance)


def alpha(opinions: Mapping[str, Opinions], *, are_numbers: bool = False) -> float | None:
    """Return Krippendorff's α, nominal or for numbers interval; None if it is not defined."""
    units = [list(said.values()) for said in opinions.values() if len(said) > 1]
    disagreement = _of_numbers if are_numbers else _of_classes
    total = [label for unit in units for label in unit]
    expected = disagreement(total)
    if not expected:
        return None
    observed = sum(disagreement(unit) / (len(unit) - 1) for unit in units)
    return 1 - (len(total) - 1) * observed / expected


def _of_classes(labels: Sequence[str]) -> float:
    return len(labels) ** 2 - sum(count**2 for count in Counter(labels).values())


def _of_numbers(labels: Sequence[str]) -> float:
    values = np.array(labels, dtype=np.float64)
    return 2 * len(values) * float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0
