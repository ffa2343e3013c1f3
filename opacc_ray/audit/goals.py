"""Goals of `opacc next --until`: whether the interval of a number is narrow enough, and how many labels it still takes.

The accuracy, a metric, or either in slices or classes: the widest interval of these decides. Every number stops by the
rule of :mod:`opacc_ray.estimation.sequential`, with half the width of its own interval as h, and as m the events
that this interval rests on (:meth:`opacc_ray.estimation.class_totals.ClassTotals`). Once a goal is reached, all
numbers of the run are stated at the level of interim analyses, because the stop depends on the labels of all of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from opacc_ray.audit import verbs
from opacc_ray.audit.accuracy import circumstances_of, measure_accuracy, whole_rounds, with_labels
from opacc_ray.audit.run_numbers import checked_metric, class_names, measure_run, open_for_estimates
from opacc_ray.errors import LabelError, SpecError, shown
from opacc_ray.estimation.adjustments import baseline
from opacc_ray.estimation.class_totals import Interim
from opacc_ray.estimation.intervals import Estimate, joined_reasons
from opacc_ray.estimation.sequential import InterimAnalysis, advice, analyse, forecast, interim_level, labels_for
from opacc_ray.labels.labelled_rounds import LabelledRound, read_rounds, reason_of
from opacc_ray.metrics.metric import ACCURACY, Metric, parse_metric
from opacc_ray.parts.view import View
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Goal, RoundLook
from opacc_ray.samplers.base import Report, unreported
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH, CROSSING, Slicing
from opacc_ray.spec.model_spec import check_ratio
from opacc_ray.spec.validation import read_share

_OF_CLASSES = (BY_PREDICTION, BY_TRUTH)


class Target(NamedTuple):
    """The number that a goal is about."""

    metric: Metric = Metric(ACCURACY)
    by: str | None = None  # name of slices, "prediction" or "truth"
    part: str | None = None  # one slice of these; None: the one with the widest interval

    @property
    def is_accuracy(self) -> bool:
        """Whether it is the accuracy of the pool."""
        return self.metric.name == ACCURACY and self.by is None

    @property
    def parts(self) -> str | None:
        """Return what ``--by`` says."""
        return self.by if self.part is None else f"{self.by}={self.part}"

    def __str__(self) -> str:
        return str(self.metric) if self.by is None else f"{self.metric} by {self.parts}"

    def slicings(self, view: View) -> dict[str, Slicing]:
        """Return the slices that it is about; raises SpecError if the pool does not have them."""
        if self.by is None or self.by in _OF_CLASSES:
            return {}
        found = view.slicing(self.by)
        if self.part is not None and self.part not in found.names:
            few = ", ".join(found.names[:10]) + (", …" if len(found.names) > 10 else "")
            raise SpecError(f"--by {self.parts}: {self.by} has no slice {shown(self.part)}; choose one of {few}")
        return {self.by: found}

    def choose(self, found: Mapping[str, Interim]) -> tuple[str, Interim]:
        """Return the part that decides, and its name; of all, the one with the widest interval."""
        if self.part is not None and self.part not in found:
            raise SpecError(f"--by {self.parts}: there is no such class; choose one of {', '.join(found)}")
        own = found if self.part is None else {self.part: found[self.part]}
        return max(own.items(), key=lambda item: _look(item[1], 1).cautious_half_width)


ACCURACY_OF_POOL = Target()


def served(run: Run, target: Target) -> list[str]:
    """Return the numbers that a draw for a goal serves: its metric, and the slices that it is in."""
    metric = ACCURACY if target.metric.ratio is not None else str(target.metric)
    found = [metric] if target.metric.name != ACCURACY or target.by is None else []
    if target.by is None:
        return found
    named = target.by in (*_OF_CLASSES, *run.spec.pool.slice_names)
    return found + ([target.by] if named else [name.strip() for name in target.by.split(CROSSING)])


def read_goal(text: str | float, by: str | None = None) -> tuple[float, Target]:
    """Read half the width of an interval and what it is of, ``"f1@defect ±0.02"``; raises SpecError for anything else.

    ``by`` is as for :func:`read_target`.
    """
    try:
        metric, half_width = read_share(str(text))
    except ValueError as meant:
        raise SpecError(
            f"{shown(text)}: give a half-width between 0 and 1, such as 0.02 or 'f1@defect ±0.02'{meant}"
        ) from None
    return half_width, read_target(metric or ACCURACY, by)


def read_target(metric: str = ACCURACY, by: str | None = None) -> Target:
    """Read what a goal is about; ``by`` is a name of slices or classes, or NAME=SLICE.

    Raises SpecError for a metric that there is not, or that is not stated by these.
    """
    asked, (name, is_one, part) = parse_metric(metric), (by or "").partition("=")
    found = Target(asked, name or None, part if is_one else None)
    if found.by is not None and asked.is_of_pool:
        raise SpecError(f"{metric} is stated of the whole pool only; remove --by {by}")
    if found.by in _OF_CLASSES and asked.name != ACCURACY:
        raise SpecError(f"{found}: by {found.by} there is the accuracy; remove {metric}, or give slices")
    return found


def goal_on_classes(target: Target, classes: Sequence[str] | None) -> Target:
    """Return a target whose metric names its class; raises SpecError if there is no such class."""
    return target._replace(metric=checked_metric(str(target.metric), classes))


def target_of(run: Run, target: Target) -> Target:
    """Return what a goal is about in a run; raises SpecError for a metric or a class that there is not."""
    if target.metric.is_error:
        raise SpecError(
            f"a goal is a share, and {target} is in the unit of the prediction; give ±W alone for the score"
        )
    if run.spec.model.counts is not None and target.metric.name != ACCURACY:
        check_ratio(target.metric, run.spec.model, "--until")
    elif not run.spec.model.has_classes and (target.metric.name != ACCURACY or target.by in _OF_CLASSES):
        raise SpecError(f"{target} needs classes, and the task is {run.spec.model.task}; give ±W alone")
    return goal_on_classes(target, class_names(run))


def next_until(
    run: Run,
    half_width: float,
    target: Target = ACCURACY_OF_POOL,
    *,
    budget: int | None = None,
    method: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    close: bool = False,
    progress: Report = unreported,
) -> Goal:
    """Draw the next planned round, unless the goal is reached; keep the goal with the run.

    A round of `neyman` serves the number of the goal, unless ``parameters`` name others. The other arguments are those
    of :func:`opacc_ray.audit.verbs.next_round`. Raises as that and :func:`look_for_goal`.
    """
    target = target_of(run, target)
    goal = look_for_goal(run, half_width, target, close=close)
    if goal.reached:
        if close:
            verbs.close_round(run)
    else:
        by_neyman = (method or run.read_selection(run.rounds()[-1]).method) == "neyman"
        verbs.next_round(
            run,
            goal.sizes[0] if budget is None else budget,
            method=method,
            parameters=parameters,
            serve=served(run, target) if by_neyman and not target.is_accuracy else None,
            close=close,
            progress=progress,
        )
    run.write_goal(goal)
    return goal


def look_for_goal(
    run: Run, half_width: float, target: Target = ACCURACY_OF_POOL, *, level: float = 0.95, close: bool = False
) -> Goal:
    """Decide whether the labels suffice for an interval of ``± half_width``, and forecast how many more it needs.

    Only complete or closed rounds count; with ``close`` also a round that is about to be closed. Writes nothing. The
    same labels and earlier goals give the same answer. Raises LabelError if there is no label or no complete round, or
    ``half_width`` is not positive; SpecError if there is no such number.
    """
    rounds = read_rounds(run)
    known = with_labels(run, rounds, partial=True)
    complete, looks, estimate, plain, part = analyse_rounds(run, known, level, target, close=close)
    pool_size = complete[0].selection.pool_size
    ahead = forecast(looks, half_width, pool_size)
    by_srs = labels_for(half_width, plain.labels, plain.half_width, pool_size)
    later = sum(len(item.outcome) for item in known[len(complete) :])
    low, high, notes = estimate.low, estimate.high, list[str]()
    if target.is_accuracy:
        statement = circumstances_of(run, complete, level)._replace(goal=None).statement(estimate)
        low, high, notes = statement.estimate.low, statement.estimate.high, list(statement.notes)
    return Goal(
        metric=str(target.metric),
        by=target.parts,
        slice=part,
        half_width=half_width,
        level=level,
        look_level=estimate.level,
        reached=ahead.reached,
        value=estimate.value,
        low=low,
        high=high,
        reason=joined_reasons([reason_of(estimate.reason, rounds), *notes]),
        looks=[
            RoundLook(
                round=item.number,
                labels=one.labels,
                half_width=one.half_width,
                cautious_half_width=one.cautious_half_width,
            )
            for item, one in zip(complete, looks, strict=True)
        ],
        total_labels=ahead.total,
        labels_to_go=0 if ahead.reached else max(1, ahead.total - looks[-1].labels - later),
        sizes=list(ahead.sizes),
        srs_labels=max(1, math.ceil(by_srs)),
        advice=advice(ahead, by_srs if rounds[-1].selection.method != "srs" else math.inf, looks[-1], pool_size),
        earlier_goals=_earlier_goals(run, target, half_width),
    )


class Analyses(NamedTuple):
    """Interim analyses of complete rounds."""

    rounds: list[LabelledRound]
    looks: list[InterimAnalysis]  # after each of them
    estimate: Estimate  # after the last one, at the level of interim analyses
    plain: InterimAnalysis  # a simple random sample with as many labels
    part: str | None = None  # the slice that decides


def analyse_rounds(
    run: Run,
    known: Sequence[LabelledRound],
    level: float,
    target: Target = ACCURACY_OF_POOL,
    *,
    close: bool = False,
) -> Analyses:
    """Analyse the labels after every complete round; raises LabelError without one. ``close`` counts all of them."""
    rounds, own_level, looks = list(known) if close else whole_rounds(known), interim_level(level), []
    if not rounds:
        raise LabelError(
            f"round {known[0].number} of {run.uri} needs {len(known[0].missing)} labels, and only complete "
            "rounds count; import them, or give --close to continue without them"
        )
    if target.is_accuracy:
        for k in range(1, len(rounds) + 1):
            accuracy = measure_accuracy(run, rounds[:k])
            estimate = accuracy.estimate(own_level)
            looks.append(analyse(accuracy.sample, estimate))
        plain = baseline(accuracy.sample, replace(estimate, level=level))
        by_srs = InterimAnalysis(plain.n, max(plain.high - plain.low, 1e-9) / 2, looks[-1].met)
        return Analyses(rounds, looks, estimate, by_srs)
    with open_for_estimates(run, [item.known for item in rounds]) as view:
        slicings = target.slicings(view)
        for k in range(1, len(rounds) + 1):
            numbers = measure_run(run, rounds[:k], rounds[:k], view, slicings, [target.metric])
            part, number = target.choose(numbers.numbers.interim(target.metric, target.by, own_level))
            looks.append(_look(number, numbers.sample.size))
        at_random = numbers.numbers.by_random_sample().interim(target.metric, target.by, level)
    return Analyses(rounds, looks, number.estimate, _look(at_random.get(part, number), looks[-1].labels), part or None)


def _look(found: Interim, labels: int) -> InterimAnalysis:
    return InterimAnalysis(labels, max(found.estimate.high - found.estimate.low, 1e-9) / 2, found.met())


def _earlier_goals(run: Run, target: Target, half_width: float) -> list[float | str]:
    """Return the other goals so far, each once: half-widths of the accuracy, texts of other numbers."""

    def text(target: str, half_width: float) -> float | str:
        return half_width if target == ACCURACY else f"{target} ±{half_width:g}"

    goals = [own for goal in run.goals().values() for own in (*goal.earlier_goals, text(goal.target, goal.half_width))]
    return [own for own in dict.fromkeys(goals) if own != text(str(target), half_width)]
