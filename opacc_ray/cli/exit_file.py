"""A file or object that says how a command ended, for whoever cannot see its exit code."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opacc_ray.audit.status import status
from opacc_ray.audit.submission import Ended, RunExit
from opacc_ray.cli.command import ending
from opacc_ray.errors import OpaccError, SpecError
from opacc_ray.runs.run import Run

log = logging.getLogger(__name__)


@contextmanager
def noted(uri: str | None) -> Iterator[Callable[[Run], None]]:
    """Write to ``uri`` how the block ended, whatever ended it; it calls what it is given with the run it has done."""
    done: list[Run] = []
    try:
        yield done.append
        if uri is not None:
            _write_done(uri, done[-1])
    except BaseException as error:
        if uri is not None:
            _write_failed(uri, error)
        raise


def _write_done(uri: str, run: Run) -> None:
    from opacc_ray.audit.submission import ended_by

    waits_for = status(run).waits_for
    left = RunExit(ended=ended_by(waits_for), exit_code=0, run=run.uri, waits_for=waits_for, error=None)
    _write(uri, left.to_bytes())


def _write_failed(uri: str, error: BaseException) -> None:
    message, code = ending(error)
    ended: Ended = "wrong spec" if isinstance(error, SpecError) else "failed"
    if isinstance(error, KeyboardInterrupt):
        ended = "interrupted"
    left = RunExit(ended=ended, exit_code=code, run=None, waits_for=None, error=message)
    try:
        _write(uri, left.to_bytes())
    except OpaccError as trouble:  # what ended the command matters more
        log.warning("how this ended could not be written: %s", trouble)


def _write(uri: str, data: bytes) -> None:
    from opacc_ray.lake.store_uris import open_store, split

    place, name = split(uri)
    open_store(place).write(name, data)
