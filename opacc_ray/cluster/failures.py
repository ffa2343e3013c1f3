"""Errors that came through Ray, as the errors of this package."""

from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from opacc_ray.errors import OpaccError

LOST = (RayActorError, WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError)
"""What Ray says when work was lost with its process, its node or its result, and not by a fault of its own.

An actor that Ray ends because its node runs out of memory is an OutOfMemoryError, and no RayActorError; one whose owner
died is an OwnerDiedError, an ObjectLostError.
"""


def cause_of(error: RayTaskError) -> Exception:
    """Return the error that the work raised, without the traceback that Ray puts into its text."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, OpaccError) else error


def ran_out_of_memory(error: BaseException) -> bool:
    """Tell whether work failed because it was given too little memory."""
    return isinstance(error, OutOfMemoryError) or isinstance(getattr(error, "cause", error), MemoryError)
