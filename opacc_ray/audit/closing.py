"""Closing a round: the labels that are missing are given up, and none that came."""

from opacc_ray.errors import LabelError, OpaccError
from opacc_ray.labels.labelled_rounds import LabelledRound, read_labelled, read_rounds, refuse_empty_strata
from opacc_ray.runs.run import Run


def close(run: Run) -> None:
    """Give up the labels that the newest round still waits for: they count as not drawn.

    Raises
    ------
    LabelError
        Those that are there would say nothing of the pool, or others came since.
    """
    last = read_rounds(run)[-1]
    refuse_empty_strata(run, last)
    if last.missing:
        give_up(run, last)


def give_up(run: Run, last: LabelledRound) -> None:
    """Close a round by its labels as they were read, or not at all if others came since.

    The labels are read again after the closing is written, and whoever imports reads the closing after the labels are
    written: so of two at once, one sees the other. If others came, what is given up is again what it was when the
    labels were read: what another command closed meanwhile is none of it, for that command sees the labels as well.

    Raises
    ------
    LabelError
        A label came since, which would be lost: what was drawn meanwhile takes its example for one without.
    """
    before = last.given_up or None
    run.close(last.number, last.missing)
    try:
        labelled = read_labelled(run)
    except OpaccError:  # such as labels in conflict
        run.reopen(last.number, before)
        raise
    if labelled.isdisjoint(last.missing):
        return
    if run.rounds()[-1] == last.number:
        run.reopen(last.number, before)
    else:  # another command has closed it, too, and gone on
        run.reopen(last.number, [name for name in run.read_closed(last.number) or () if name not in labelled])
    raise LabelError(
        f"labels of round {last.number} of {run.title} came while it was to be closed, so nothing is closed and "
        "nothing drawn; run the command again"
    )
