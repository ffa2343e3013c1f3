"""The accuracy of an audit over time as a file of its own, in the colours of whoever looks at it."""

from opacc_ray.errors import DataError
from opacc_ray.fleet.documents import AccuracyHistory
from opacc_ray.fleet.figures import course
from opacc_ray.report.alone import write_alone
from opacc_ray.svg import WIDE


def with_picture(history: AccuracyHistory, uri: str) -> AccuracyHistory:
    """Draw a history to a file or object; returns it with the URI of that.

    Raises
    ------
    DataError
        No run has stated anything, or they state different things.
    """
    measures = {point.measure for point in history.points}
    if len(measures) != 1:
        said = f"state different things: {', '.join(sorted(measures))}" if measures else "have stated nothing yet"
        raise DataError(f"the runs of {history.name!r} {said}, so there is no picture; leave --picture out")
    drawn = str(course(history.points, "history", WIDE))
    return history.model_copy(update={"picture": write_alone(drawn, uri)})
