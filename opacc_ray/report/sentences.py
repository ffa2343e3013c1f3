"""Sentences of a report: the result, what it is worth, what it leaves out."""

from collections.abc import Sequence

from opacc_ray.errors import counted
from opacc_ray.estimators.intervals import clipped
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.report.facts import changed_texts, digits_for, is_share, level_text, number, percent, sentence, thousands
from opacc_ray.report.facts import stated as texts_of
from opacc_ray.report.report_documents import Reliability, RunReport
from opacc_ray.report.stated_numbers import metric_name, stated_number
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ChangedObjects
from opacc_ray.runs.run_documents import HistorySource


def answer(stated: AccuracyEstimate | None, pool_size: int, rounds: Sequence[LabelledRound]) -> str:
    """Return the result in one sentence."""
    if stated is None:
        asked, unsure = sum(len(item.missing) for item in rounds), sum(len(item.unsure) for item in rounds)
        if unsure and not asked:
            return f'There is no label: all {counted(unsure, "answer")} are "can\'t tell".'
        return f"There is no label yet: {thousands(asked)} of {counted(pool_size, 'example')} wait for one."
    digits = digits_for(stated.low, stated.high)
    value, low, high = (number(item, stated.measure, digits) for item in (clipped(stated), stated.low, stated.high))
    is_known = stated.low == stated.high
    value = value if is_known else f"about {value}"
    confidence = f"{level_text(stated.level)} confidence{'' if stated.design_based else ' under assumptions'}"
    pool = counted(pool_size, "example")
    if stated.measure == "accuracy":
        result = f"The model is right on {value} of the {pool}"
    elif stated.measure.startswith("share in which "):
        result = f"In {value} of the {pool}, {stated.measure.removeprefix('share in which ')}"
    elif is_share(stated.measure):
        what = "predictions" if stated.measure.startswith("share within") else "answers"
        result = f"On the {pool}, {value} of the model's {what} are {stated.measure.removeprefix('share ')}"
    else:
        result = f"The model scores {value} on average over the {pool} ({stated.measure})"
    if is_known:
        return f"{result}: every one of them is labelled."
    return f"{result}: between {low} and {high} with {confidence}, from {counted(stated.n, 'label')}."


def worth(stated: AccuracyEstimate) -> str | None:
    """Return how many random labels would be as precise; None if that is unknown, or errors of labels matter more."""
    effective, n = stated.srs.effective_size, stated.srs.n
    if effective is None or "label noise" in stated.allows_for:
        return None
    labels, worth = counted(n, "label"), thousands(effective)
    if effective > 1.05 * n:
        return f"These {labels} are worth {worth}: they are as precise as {worth} labels chosen at random."
    if effective < 0.95 * n:
        return (
            f"These {labels} are worth only {worth}: they are as precise as {worth} labels chosen at random. The "
            "method lost precision here, and a simple random sample would have been more precise."
        )
    return f"These {labels} are about as precise as {labels} chosen at random."


def started_from(sources: Sequence[HistorySource] | None) -> str | None:
    """Return what a run used before its first label; None if it asked for nothing."""
    if sources is None:
        return None
    if not sources:
        return "It was to start from earlier audits of the same weights, and found none with labels."
    known = []
    for source in sources:
        kind = "reference" if source.kind == "reference" else "audit"
        labels = f"{counted(source.examples, 'label')} from the {kind} {source.uri}"
        known.append(f"the column {source.column} of the pool" if source.column else labels)
    return f"Used before the first label: {'; '.join(known)}. The interval does not rely on it."


def guessed(reliability: Reliability, stated: AccuracyEstimate) -> str | None:
    """Return the accuracies that a labelled reference predicts without labels of the pool; None without one."""
    if len(reliability.without_labels) < 2:
        return None
    guesses = ", ".join(f"{percent(value)} ({name})" for name, value in reliability.without_labels.items())
    return (
        f"Without labels of the pool, the confidence and the labelled reference predict {guesses}. Such a prediction "
        f"has no error bound; the labels give {percent(stated.low)} to {percent(stated.high)}."
    )


def claim(reliability: Reliability, stated: AccuracyEstimate) -> str:
    """Compare the model's mean confidence with its accuracy."""
    confidence, accuracy = reliability.mean_confidence, clipped(stated)
    found = "the mean confidence is within the interval"
    if not stated.low <= confidence <= stated.high:
        kind, points = "over" if confidence > accuracy else "under", 100 * abs(confidence - accuracy)
        found = f"it is {kind}confident by about {points:.1f} points"
    means = f"{percent(confidence)}, its accuracy about {percent(accuracy)}"
    return f"The model's mean confidence over the pool is {means}: {found}."


def verdict(report: RunReport) -> tuple[str, str]:
    """Return whether the goal is met, in a heading and a sentence; without a goal, two empty texts."""
    found, estimate = report.verdict, report.estimate
    if found is None or estimate is None:
        return "", ""
    is_accuracy = found.metric == ACCURACY
    measure = report.measure if is_accuracy else found.metric
    goal = number(found.goal, measure).replace(".0 ", " ")
    own = texts_of(stated_number(estimate, found.metric) or estimate, measure)
    goal += "" if is_accuracy else f" {metric_name(found.metric)}"
    if found.met is None:
        more = ""
        if found.labels_to_go:
            more = f"; about {counted(rounded(found.labels_to_go), 'more label')} {_be(found.labels_to_go, 'decides')}"
        return f"Cannot tell yet whether it meets {goal}", f"{own.interval}{more}."
    side = "above" if found.met else "below"
    return f"{'Meets' if found.met else 'Does not meet'} {goal}", f"The interval, {own.interval}, is {side} the goal."


def unlabelled(report: RunReport) -> int:
    """Return how many examples of the pool have no label."""
    return max(report.pool_size - sum(item.labelled + item.unsure for item in report.rounds), 0)


def rounded(count: int) -> int:
    """Return a forecast count with two digits."""
    return int(float(f"{count:.2g}"))


def previous(report: RunReport) -> str:
    """Return the result of the audit before; empty if there is none."""
    before = report.previous
    if before is None:
        return ""
    model = "the same model" if before.same_model else "another model"
    when = f" of {before.created[:10]}" if before.created else ""
    texts = texts_of(before, report.measure)
    return f"The last audit{when}, of {model}: {texts.value} ({texts.interval})."


def no_findings(report: RunReport) -> str:
    """Return what the labels cannot tell; empty without labels."""
    if report.estimate is None:
        return ""
    parts = "class, slice or confusion" if report.tables else "part of the pool"
    return f"No {parts} stands out from {counted(report.estimate.n, 'label')}."


def not_read(report: RunReport) -> list[str]:
    """Return one sentence for each kind of file and example of the pool that could not be read."""
    found = []
    if report.num_excluded:
        found.append(f"{counted(report.num_excluded, 'example')} could not be read; the result is for the others.")
    for kind in report.header.pool.ignored:
        files = counted(kind.num_files, "other file")
        found.append(
            f"{files} in the pool's folder {_be(kind.num_files, 'was')} not read: {kind.kind}, such as {kind.first[0]}."
        )
    return found


def _be(count: int, verb: str) -> str:
    """Return a verb in the singular or plural."""
    return verb if count == 1 else {"was": "were", "is": "are", "decides": "decide"}[verb]


def changed_objects(objects: ChangedObjects) -> str | None:
    """Return which objects of chosen examples changed since the model read them; None if none did."""
    if objects.reason:
        return sentence(f"whether objects of the pool changed since extraction is not known: {objects.reason}")
    found = changed_texts(objects)
    if not found:
        return None
    return f"{' and '.join(found)}, such as {', '.join(objects.first)}: their labels may be of other examples."
