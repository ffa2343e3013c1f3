"""Whether labels contradict what was foreseen before them, such as by the model's confidence.

Before each round every example of it had a predicted probability p to fail. Let these be right but for their level,
which a model may overrate: with logits off by one number δ, 1.5 at most, by a factor of 4.5 of the odds. Then the
labels so far have the likelihood Π p^f (1 - p)^(1 - f), and any other way to predict each label from those before it
has a mean ratio of 1 to that. Here the other way is a single rate of failure for all, learned as it goes (R. E.
Krichevsky, V. K. Trofimov, IEEE Transactions on Information Theory 27, 1981):

    e = [Γ(k + ½) Γ(n - k + ½) / (π Γ(n + 1))] / max_δ Π p^f (1 - p)^(1 - f)

So e is ever above 1/α with probability α at most (J. Ville, 1939), however often one looks. If it is, knowing nothing
would have foreseen the failures better. What is foreseen in later rounds has learned from the labels, so it is mostly
the first round that is contradicted.

Legend: n labels of the rounds so far, k of them failures, f = 1 - outcome.
"""

import math
from collections.abc import Sequence

import numpy as np

from opacc_ray.estimators.base import Outcome, is_binary
from opacc_ray.selection import Selection

FORESEEN_FROM = "foreseen_from"
"""The entry of a selection's facts that names what its predictions rest on, if that is anything the user gave."""

LEAST_RATIO = 100.0
"""1/α."""

_SHIFTS = np.linspace(-1.5, 1.5, 31)
"""δ."""


def contradiction(selections: Sequence[Selection], outcomes: Sequence[Outcome]) -> str | None:
    """One sentence if the labels of 0/1 outcomes contradict what their rounds foresaw; else None."""
    failures, foreseen, num, log_likelihood = 0.0, 0.0, 0, np.zeros(len(_SHIFTS))
    for selection, outcome in zip(selections, outcomes, strict=True):
        prediction, failure = selection.design.prediction, 1 - np.asarray(outcome, dtype=np.float64)
        if prediction is None or FORESEEN_FROM not in selection.facts or not is_binary(failure):
            return None
        p = np.clip(prediction.labelled, 1e-6, 1 - 1e-6)
        logit = np.log(p / (1 - p)) + _SHIFTS[:, None]  # (δ, n)
        log_likelihood -= np.logaddexp(0, np.where(failure > 0, -logit, logit)).sum(axis=1)
        num, failures, foreseen = num + len(p), failures + float(failure.sum()), foreseen + float(p.sum())
        if _log_of_one_rate(failures, num) - log_likelihood.max() >= math.log(LEAST_RATIO):
            return (
                f"the labels contradict your {selections[0].facts[FORESEEN_FROM]}: {foreseen:.1f} of the first {num} "
                f"labelled examples were foreseen to fail, and {failures:g} did, so that one rate of failure for all "
                "would have foreseen them better; check that confidence is the probability to be right"
            )
    return None


def _log_of_one_rate(failures: float, num: int) -> float:
    """log of Krichevsky and Trofimov's probability of a sequence."""
    return math.lgamma(failures + 0.5) + math.lgamma(num - failures + 0.5) - math.lgamma(num + 1) - math.log(math.pi)
