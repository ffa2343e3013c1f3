"""The answers of the commands that draw a round, and the file that `opacc run --exit-file` writes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opacc_ray.audit.sanity import predicted_by, warnings_now
from opacc_ray.audit.status import status
from opacc_ray.audit.submission import Ended, RunExit
from opacc_ray.cli import texts
from opacc_ray.cli.command import Answer, ending
from opacc_ray.errors import OpaccError, SpecError
from opacc_ray.lake.store_uris import open_store, split
from opacc_ray.runs.feature_store import find_changed
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import DrawnRound, Goal, GoalProgress

log = logging.getLogger(__name__)


def drawn(run: Run, goal: Goal | None = None) -> Answer:
    """Return the newest round of a run, and the progress towards its goal, if it has one."""
    selection = run.read_selection(run.rounds()[-1])
    document = DrawnRound(
        run=run.uri,
        track=run.track,
        method=selection.method,
        round=selection.round,
        n=len(selection),
        labelled=len(run.read_chosen(selection.round).labelled_ids),
        pool_size=selection.pool_size,
        manifests=run.manifests(selection.round),
        notice=selection.facts.get("notice"),
        objects=find_changed([run], [selection.round]),
        predicted=predicted_by(run),
        warnings=warnings_now(run),
        reached=None if goal is None else goal.reached,
        labels_to_go=None if goal is None else goal.labels_to_go,
        goal=None if goal is None else _progress(goal),
    )
    return Answer(document, texts.drawn(document, with_page=has_page(run)))


def reached(run: Run, goal: Goal) -> Answer:
    """Return a goal that is reached; nothing was drawn."""
    progress = _progress(goal)
    document = DrawnRound(run=run.uri, track=run.track, reached=True, labels_to_go=0, goal=progress)
    return Answer(document, texts.reached(progress, run.uri, run.track))


def has_page(run: Run) -> bool:
    """Return whether the labelling page can show the examples of a run."""
    return not run.spec.pool.holds_features


def _progress(goal: Goal) -> GoalProgress:
    return GoalProgress(**{name: getattr(goal, name) for name in GoalProgress.model_fields})


@contextmanager
def exit_file(uri: str | None) -> Iterator[Callable[[Run], None]]:
    """Write to ``uri`` how the block ended; the block passes the finished run to the function that it gets."""
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
    except OpaccError as trouble:  # the error that ended the command matters more
        log.warning("the exit file could not be written: %s", trouble)


def _write(uri: str, data: bytes) -> None:
    place, name = split(uri)
    open_store(place).write(name, data)
