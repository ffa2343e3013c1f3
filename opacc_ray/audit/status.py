"""The state of a run: what is done, and what it waits for."""

from collections.abc import Sequence

from opacc_ray.audit.documents import RunStatus, ShardCounts
from opacc_ray.audit.labelled_rounds import LabelledRound, digest_of, read_rounds
from opacc_ray.audit.run import Run


def status(run: Run) -> RunStatus:
    """What is done and what the run waits for.

    Labels in conflict are counted by the most frequent one here: `opacc estimate` refuses them.
    """
    index, total = run.read_index(), run.header.pool.num_shards
    rounds = read_rounds(run, conflict="majority") if index and run.rounds() else []
    estimate = run.read_estimate()
    is_current = None if estimate is None else bool(rounds) and estimate.labels_digest == digest_of(rounds)
    return RunStatus(
        run=run.uri,
        shards=ShardCounts(done=total if index else len(run.finished_shards()), total=total),
        examples=index.num_examples if index else None,
        excluded=len(index.bad) if index else None,
        rounds=[item.counts() for item in rounds],
        estimate=estimate,
        estimate_is_current=is_current,
        waits_for=_waits_for(rounds, is_current)
        if index
        else "extraction: run the spec again, finished shards are kept",
    )


def _waits_for(rounds: Sequence[LabelledRound], is_current: bool | None) -> str:
    """What a run whose features are complete waits for."""
    if not rounds:
        return "a selection: run the spec again, or `opacc select`"
    missing = sum(len(item.missing) for item in rounds)
    if missing:
        return f"{missing} labels"
    return "nothing" if is_current else "nothing but `opacc estimate`"
