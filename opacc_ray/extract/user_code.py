"""Running the user's own functions: what they raise becomes one sentence that names their file and line.

The whole traceback travels with the error, across processes too, as its ``details``; the command line keeps it in a
file.
"""

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opacc_ray.errors import DataError, OpaccError, shortened

_INSTALLED = tuple(str(Path(place).resolve()) for place in {sysconfig.get_path(name) for name in ("stdlib", "purelib")})
_OURS = str(Path(__file__).resolve().parents[1])


@contextmanager
def user_code(what: str, remedy: str = "") -> Iterator[None]:
    """Turn what the block raises into a DataError; errors of this package and memory that runs out pass as they are.

    Parameters
    ----------
    what : names the function and where it is asked for, such as ``model.factory 'mypkg:net'``
    remedy : what to do, for errors that have a usual cause
    """
    try:
        yield
    except (OpaccError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # the latter would end the process, as if all were done
        reason = shortened(str(error))
        said = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        place = _place(error)
        sentence = f"{what} raised {said}" + (f" at {place}" if place else "") + (f"; {remedy}" if remedy else "")
        failure = DataError(sentence)
        failure.details = "".join(traceback.format_exception(error))
        raise failure from None


def _place(error: BaseException) -> str:
    """File and line of the last frame that is the user's: neither installed nor of this package."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _is_users(filename: str) -> bool:
    path = str(Path(filename).resolve())
    return Path(filename).exists() and not path.startswith((*_INSTALLED, f"{_OURS}/"))
