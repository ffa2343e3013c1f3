"""What a report says in words."""

import math
from collections.abc import Sequence

from opacc_ray.audit.prior_labels import HistorySource
from opacc_ray.estimators.intervals import clipped
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.report.documents import Reliability
from opacc_ray.runs.estimate_documents import AccuracyEstimate


def percent(value: float, digits: int = 1) -> str:
    """0.843 -> 84.3%; 1 and 0 without decimals."""
    text = f"{100 * value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if value in (0, 1) else text}%"


def digits_for(low: float, high: float) -> int:
    """Decimals of a percentage whose interval is this wide: two figures of the width can be told apart."""
    width = 100 * (high - low)
    return 1 if width >= 1 or width <= 0 else min(4, 1 - math.floor(math.log10(width)))


def number(value: float, measure: str, digits: int = 1) -> str:
    """A share as a percentage, a mean score as a number."""
    return percent(value, digits) if is_share(measure) else f"{value:.{digits + 2}f}"


def is_share(measure: str) -> bool:
    """Whether what is stated is a share of examples."""
    return not measure.startswith("mean")


def noun(measure: str) -> str:
    """What the result is called: the score of a regression is no accuracy."""
    return "accuracy" if measure == "accuracy" else "score"


def sentence(text: str) -> str:
    """A text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def thousands(value: float) -> str:
    """6000 -> 6,000."""
    return f"{value:,.0f}"


def answer(stated: AccuracyEstimate | None, pool_size: int, rounds: Sequence[LabelledRound]) -> str:
    """The result in one sentence that one may repeat."""
    if stated is None:
        asked, unsure = sum(len(item.missing) for item in rounds), sum(len(item.unsure) for item in rounds)
        if unsure and not asked:
            return f"No label is in: of {thousands(unsure)} examples nobody could tell what they are."
        return f"No label is in yet: {thousands(asked)} of {thousands(pool_size)} examples wait for one."
    digits = digits_for(stated.low, stated.high)
    value, low, high = (number(item, stated.measure, digits) for item in (clipped(stated), stated.low, stated.high))
    whole = stated.low == stated.high
    value = value if whole else f"about {value}"
    sure = f"with {100 * stated.level:g}% confidence{'' if stated.design_based else ' under assumptions'}"
    basis = f"{sure}, from {thousands(stated.n)} labels"
    of_all = f"{thousands(pool_size)} examples"
    if stated.measure == "accuracy":
        said = f"The model is right on {value} of the {of_all}"
    elif is_share(stated.measure):
        said = f"On the {of_all} {value} of the model's predictions are {stated.measure.removeprefix('share ')}"
    else:
        said = f"The model scores {value} on average over the {of_all}"
    return f"{said}: every one of them is labelled." if whole else f"{said}: between {low} and {high} {basis}."


def worth(stated: AccuracyEstimate) -> str | None:
    """What the labels are worth, beside a simple random sample; None if that cannot be told."""
    effective, n = stated.srs.effective_size, stated.srs.n
    if effective is None:
        return None
    labels, worth = f"{thousands(n)} labels", thousands(effective)
    if effective > 1.05 * n:
        return f"These {labels} are worth {worth} chosen at random."
    if effective < 0.95 * n:
        return (
            f"These {labels} are worth only {worth} chosen at random: the method cost precision here, "
            "and a simple random sample would have done better."
        )
    return f"These {labels} are worth about as many chosen at random."


def started_from(sources: Sequence[HistorySource] | None) -> str | None:
    """What a run knew before its first label; None if it asked for nothing."""
    if sources is None:
        return None
    if not sources:
        return "It was to start from earlier audits of the same weights, and found none with labels."
    known = "; ".join(map(_known_before, sources))
    return f"What was known before the first label: {known}. None of it is trusted."


def _known_before(source: HistorySource) -> str:
    if source.kind == "prior":
        return f"the column {source.column} of the pool"
    labels = "1 label" if source.examples == 1 else f"{thousands(source.examples)} labels"
    return f"{labels} of the {'reference' if source.kind == 'reference' else 'audit'} {source.uri}"


def guessed(belief: Reliability, stated: AccuracyEstimate) -> str | None:
    """What a labelled reference lets one guess without any label of the pool; None if there was none."""
    if len(belief.without_labels) < 2:
        return None
    said = ", ".join(f"{percent(value)} ({name})" for name, value in belief.without_labels.items())
    return (
        f"Without any label of the pool, the confidence and the labelled reference let one guess {said}. Nothing tells "
        f"how far off a guess is; the labels say {percent(stated.low)} to {percent(stated.high)}."
    )


def claim(belief: Reliability, stated: AccuracyEstimate) -> str:
    """What the model says of itself, beside what is so."""
    sure, right = belief.mean_confidence, clipped(stated)
    said = f"On average over the pool the model is {percent(sure)} sure, and right on about {percent(right)}"
    if stated.low <= sure <= stated.high:
        return f"{said}: within the interval, its average confidence is about right."
    if sure > stated.high:
        return f"{said}: it is too sure of itself, by about {100 * (sure - right):.1f} points."
    return f"{said}: it is better than it believes, by about {100 * (right - sure):.1f} points."
