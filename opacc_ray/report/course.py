"""The estimate against the labels used, round by round."""

from collections.abc import Sequence

from opacc_ray.audit.accuracy import accuracy_of
from opacc_ray.estimators.confidence_sequence import confidence_sequence
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.report.documents import CoursePoint
from opacc_ray.runs.run import Run


def course_of(run: Run, known: Sequence[LabelledRound], level: float) -> list[CoursePoint]:
    """Return what the labels of the first round say, of the first two, and so on.

    The interval that holds at any time counts whole rounds only, so a round that waits for labels has none.

    Parameters
    ----------
    run : whose features a method that learns from all labels reads again
    known : rounds with at least one label each
    level : confidence level of every interval
    """
    points = []
    for k in range(1, len(known) + 1):
        selections, outcomes = [item.known for item in known[:k]], [item.outcome for item in known[:k]]
        found = accuracy_of(run, selections, outcomes, level)
        is_whole = not any(item.missing for item in known[:k])
        anytime = confidence_sequence(selections, outcomes, level) if is_whole else None
        points.append(
            CoursePoint(
                round=known[k - 1].number,
                labels=sum(len(outcome) for outcome in outcomes),
                value=found.value,
                low=found.low,
                high=found.high,
                anytime_low=anytime.low if anytime else None,
                anytime_high=anytime.high if anytime else None,
            )
        )
    return points
