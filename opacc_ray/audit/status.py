"""The state of a run: what is done, and what it waits for."""

from collections.abc import Sequence

from opacc_ray.audit.sanity import predicted_by, warnings_of
from opacc_ray.audit.state_documents import RunStatus, ShardCounts, TrackStatus
from opacc_ray.errors import LabelError, counted
from opacc_ray.labels.labelled_rounds import LabelledRound, digest_of, read_rounds
from opacc_ray.labels.log import lost_files
from opacc_ray.runs.estimate_documents import AccuracyEstimate
from opacc_ray.runs.failure import RunFailure, read_failure
from opacc_ray.runs.run import Run


def status(run: Run) -> RunStatus:
    """What is done and what the run waits for: first along its own track, then along all others.

    Labels that are lost, or in conflict under the rule of the run, are said to be what it waits for.
    """
    index, total = run.read_index(), run.header.pool.num_shards
    others = [track for track in run.tracks() if track.track != run.track]
    lost, failure, complete = "; ".join(lost_files(run).values()), read_failure(run), index is not None
    tracks = (run, *others)
    known = [_rounds(track) if complete and track.rounds() else ([], None) for track in tracks]
    own, *rest = [
        _track_status(track, *found, lost, failure, complete=complete)
        for track, found in zip(tracks, known, strict=True)
    ]
    return RunStatus(
        run=run.uri,
        shards=ShardCounts(done=total if index else len(run.finished_shards()), total=total),
        examples=index.num_examples if index else None,
        excluded=len(index.bad) if index else None,
        predicted=predicted_by(run) if index else None,
        warnings=warnings_of(run, known[0][0]) if index else [],
        others=[track for track in rest if track.rounds],
        failure=failure,
        **{name: getattr(own, name) for name in TrackStatus.model_fields},
    )


def _track_status(
    run: Run,
    rounds: Sequence[LabelledRound],
    conflict: str | None,
    lost: str,
    failure: RunFailure | None,
    *,
    complete: bool,
) -> TrackStatus:
    """What is done along one track of a run whose features are complete or not, and files of labels are ``lost``."""
    estimate = run.read_estimate()
    is_current = None if estimate is None else bool(rounds) and _is_current(run, estimate, rounds)
    waits_for = lost or conflict or _waits_for(rounds, is_current)
    if not complete:
        waits_for = "extraction: run the spec again, finished shards are kept"
    if failure and not rounds:
        waits_for = f"another run of its spec, which failed: {failure.error}"
    return TrackStatus(
        track=run.track,
        rounds=[item.counts() for item in rounds],
        estimate=estimate,
        estimate_is_current=is_current,
        waits_for=waits_for,
    )


def _is_current(run: Run, estimate: AccuracyEstimate, rounds: Sequence[LabelledRound]) -> bool:
    """Whether an estimate is of all labels that are in now, and allows for a goal that was reached."""
    goal = run.reached_goal()
    stops_at = None if goal is None else goal.half_width
    return estimate.labels_digest == digest_of(rounds) and estimate.goal == stops_at


def _rounds(run: Run) -> tuple[list[LabelledRound], str | None]:
    """The rounds; and why they have no result yet, if labels are in conflict. They are counted by majority then."""
    try:
        return read_rounds(run), None
    except LabelError as error:
        reason = str(error)
    try:
        return read_rounds(run, conflict="majority"), reason
    except LabelError:
        return [], reason


def _waits_for(rounds: Sequence[LabelledRound], is_current: bool | None) -> str:
    """What a run whose features are complete waits for."""
    if not rounds:
        return "a selection: run the spec again, or `opacc select`"
    missing = sum(len(item.missing) for item in rounds)
    if missing:
        return counted(missing, "label")
    if not any(item.labelled.any() for item in rounds):
        return "another round: no example of those so far has a label, so draw others with `opacc next`"
    return "nothing" if is_current else "nothing but `opacc estimate`"
