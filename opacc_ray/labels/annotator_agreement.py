"""How far annotators agree on the examples that two or more of them answered, beyond agreement by chance.

Cohen's κ of two annotators, for classes, on the examples that both answered (J. Cohen, "A coefficient of agreement for
nominal scales", Educational and Psychological Measurement 20, 1960):

    κ = (p_o - p_e) / (1 - p_e),    p_o the share on which they agree,  p_e = Σ_c share_1(c) · share_2(c)

Krippendorff's α of all annotators, whatever examples each answered (K. Krippendorff, "Computing Krippendorff's
alpha-reliability", 2011), for classes with δ² = 1 where two differ, for numbers with δ² their squared difference:

    α = 1 - (n - 1) · Σ_u S(u) / (m_u - 1) / S(all),    S(values) = Σ over ordered pairs of δ²
      S = m² - Σ_c m_c²  for classes,   S = 2·(m·Σx² - (Σx)²)  for numbers

Both are 1 for full agreement and 0 for agreement by chance. They are undefined if all labels are equal.

Legend: u an example with m_u ≥ 2 answers, n = Σ m_u, m_c answers of class c.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from opacc_ray.labels.joining import Opinions, opinions_of
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.label_rows import Label
from opacc_ray.labels.labelled_rounds import canonical_form
from opacc_ray.runs.estimate_documents import PairOfAnnotators
from opacc_ray.runs.run import Run


class Agreement(NamedTuple):
    """How far annotators agree, beyond agreement by chance."""

    examples: int  # that two or more named annotators answered
    alpha: float | None  # Krippendorff's; None if it is not defined
    pairs: list[PairOfAnnotators]


def measure_agreement(run: Run) -> Agreement:
    """Measure how far the annotators of a run agree, before corrections.

    Labels in conflict are measured, so none is refused.
    """
    opinions, are_numbers = opinions_of_run(run)
    return Agreement(len(opinions), alpha(opinions, are_numbers=are_numbers), pairs(opinions, are_numbers=are_numbers))


def opinions_of_run(run: Run) -> tuple[dict[str, Opinions], bool]:
    """Return the labels by annotator of each example that has two or more, and whether labels are numbers."""
    answers: dict[str, list[Label]] = {}
    for row in read_log(run).labels():
        answers.setdefault(row.id, []).append(row)
    model, read = run.spec.model, canonical_form(run)
    opinions = {id: opinions_of(given, read) for id, given in answers.items()}
    return {id: own for id, own in opinions.items() if len(own) > 1}, model.reads_numbers or model.grades == "1-5"


def pairs(opinions: Mapping[str, Opinions], *, are_numbers: bool = False) -> list[PairOfAnnotators]:
    """Return the agreement of each two annotators with examples in common, sorted by their names.

    ``opinions`` has the labels of the annotators of each example, by id.
    """
    common: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for own in opinions.values():
        for first, second in combinations(sorted(own), 2):
            common.setdefault((first, second), []).append((own[first], own[second]))
    return [
        PairOfAnnotators(
            first=first,
            second=second,
            examples=len(labels),
            agree=sum(a == b for a, b in labels),
            kappa=None if are_numbers else kappa(labels),
        )
        for (first, second), labels in sorted(common.items())
    ]


def kappa(labels: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's κ of pairs of labels; None if it is undefined."""
    num = len(labels)
    observed = sum(first == second for first, second in labels) / num
    one, other = Counter(first for first, _ in labels), Counter(second for _, second in labels)
    by_chance = sum(one[c] * other[c] for c in one) / num**2
    return None if by_chance == 1 else (observed - by_chance) / (1 - by_chance)


def alpha(opinions: Mapping[str, Opinions], *, are_numbers: bool = False) -> float | None:
    """Return Krippendorff's α, nominal or for numbers interval; None if it is undefined."""
    units = [list(own.values()) for own in opinions.values() if len(own) > 1]
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
