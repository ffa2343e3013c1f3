"""Errors that came through Ray, as the errors of this package."""

from ray.exceptions import RayTaskError

from opacc_ray.errors import OpaccError


def cause_of(error: RayTaskError) -> Exception:
    """Return the error that the work raised, without the traceback that Ray puts into its text."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, OpaccError) else error


def brief(error: BaseException) -> str:
    """Return an error's text on one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]
