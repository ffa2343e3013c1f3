"""The state of a run: how far it is, the command to run next, its last error, and its log in words."""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from shlex import quote
from typing import Literal

from pydantic import Field

from opacc_ray.audit.sanity import predicted_by, warnings_now, warnings_of
from opacc_ray.designs.inclusion_probability import CARRIED
from opacc_ray.documents import Document, Part
from opacc_ray.errors import LabelError, OpaccError, as_ours, counted, redacted
from opacc_ray.extract.readers import most_ready
from opacc_ray.extract.shards import Spent
from opacc_ray.labels.label_log import label_rules, read_log
from opacc_ray.labels.labelled_rounds import LabelledRound, digest_of, read_rounds
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.registry import Registry
from opacc_ray.runs.run import Run, find_changed
from opacc_ray.runs.run_documents import (
    AccuracyEstimate,
    Commit,
    DrawnRound,
    Ended,
    Goal,
    GoalProgress,
    Predicted,
    RoundCounts,
)
from opacc_ray.runs.series import PoolChanges, pool_changes
from opacc_ray.samplers import plausibility

log = logging.getLogger(__name__)


def command_of(run: Run, verb: str, *rest: str) -> str:
    """Return a command on a run, as it can be pasted into a shell."""
    return " ".join(["opacc", verb, quote(run.uri), *rest])


def step_of(run: Run, rounds: Sequence[RoundCounts], *, stated: bool = False) -> list[str]:
    """Return the command to run next and its arguments, without the run.

    ``stated`` says whether an estimate uses all labels that are there.
    """
    if any(item.missing for item in rounds):
        return ["label"] if has_page(run) else ["labels import", "FILE"]
    if not any(item.labelled for item in rounds):
        return ["next"]
    goal = run.newest_goal(reached=False)
    if goal is not None:
        return ["next", *until_options(goal.half_width, goal.metric, goal.by)]
    return ["report" if stated else "estimate"]


def until_options(half_width: float, metric: str = ACCURACY, by: str | None = None) -> list[str]:
    """Return the options that state a goal, for a shell."""
    width = f"±{half_width:g}"
    return [
        "--until",
        width if metric == ACCURACY else quote(f"{metric} {width}"),
        *(["--by", quote(by)] if by else []),
    ]


def has_page(run: Run) -> bool:
    """Return whether the labelling page can show the examples of a run: pictures, answers or columns of rows."""
    from opacc_ray.labels.shown_examples import may_have_pictures  # decoders, which few commands need

    return bool(run.spec.pool.columns.answer or label_rules(run).show) or may_have_pictures(run)


def no_page(run: Run) -> str:
    """Return why the labelling page shows nothing of a run, and what to do."""
    manifest = next((uri for uri in run.manifests(run.rounds()[-1]) if uri.endswith(".csv")), None)
    instead = f", or fill in a copy of {manifest} and import it" if manifest else ""
    return (
        "the labelling page has nothing to show: name columns of the pool to show, by --show for a CSV, or "
        f"manifest.show in the spec{instead}"
    )


FAILURE, EXTRACTION = "failure.json", "extraction.json"


class RunFailure(Document):
    """Error of the last `opacc run`, kept until a later one succeeds."""

    remedy = "delete it"

    format: Literal["opacc-run-failure/1"] = "opacc-run-failure/1"
    at: str  # time: ISO 8601, UTC
    error: str  # error message
    exit_code: int = Field(ge=1)  # exit code of `opacc run`


BUSY = 0.85
"""Share of time in which the model must run to be what limits extraction."""


class ExtractionWork(Document):
    """Who extracted the features of a run, in the last command that did, and what limited it."""

    remedy = "delete it"

    format: Literal["opacc-extraction/1"] = "opacc-extraction/1"
    executor: Literal["ray", "local"]  # actors of Ray, or the process of the command
    processes: int = Field(ge=1)  # that computed
    readers: int = Field(ge=0)  # of each, that read for it
    shards: int = Field(ge=1)  # that were extracted
    busy: float = Field(ge=0)  # share of time in which the model ran, from the first batch to the last
    ready: float = Field(ge=0)  # batches that were read when the model asked for one, on average
    read_rate: float = Field(ge=0)  # bytes of files a second, of all processes

    @classmethod
    def of(cls, executor: Literal["ray", "local"], spent: Collection[Spent]) -> "ExtractionWork | None":
        """Summarize what each process has spent, in each stage; None if no model ran."""
        if not spent:
            return None
        elapsed, processes = max(1e-9, sum(each.elapsed for each in spent)), len({each.worker for each in spent})
        return cls(
            executor=executor,
            processes=processes,
            readers=max(each.readers for each in spent),
            shards=sum(each.shards for each in spent),
            busy=round(sum(each.computing for each in spent) / elapsed, 4),
            ready=round(sum(each.ready for each in spent) / len(spent), 1),
            read_rate=round(sum(each.num_bytes for each in spent) / elapsed * processes),
        )

    @property
    def load(self) -> str:
        """What limits it, in words."""
        words = f"device {100 * self.busy:.0f} % busy, {'the model' if self.busy >= BUSY else 'reading'} limits"
        return f"{words}; queue {self.ready:.0f} of {most_ready(self.readers)}; {self.read_rate / 1e6:.3g} MB/s"

    def __str__(self) -> str:
        who = counted(self.processes, "actor") if self.executor == "ray" else "this command"
        return f"{counted(self.shards, 'shard')} by {who} with {counted(self.readers, 'reader')}: {self.load}"


class ShardCounts(Part):
    """Shards of the pool."""

    done: int = Field(ge=0)  # shards with features
    total: int = Field(ge=0)  # all shards


class RunStatus(Document):
    """State of a run: extraction, rounds and estimate."""

    format: Literal["opacc-status/1"] = "opacc-status/1"
    run: str  # URI of the run
    shards: ShardCounts  # progress of extraction
    extraction: ExtractionWork | None = None  # the last command that extracted; null: none did since
    examples: int | None = Field(ge=0)  # examples in the pool; null while extraction is incomplete
    excluded: int | None = Field(ge=0)  # examples that could not be read; null as above
    # objects of the pool, compared with the run that it has grown from; null: none
    pool_changes: PoolChanges | None = None
    predicted: Predicted | None = None  # predictions for the pool; null if unknown
    warnings: list[str] = Field(default=[])  # signs that this may be the wrong model
    rounds: list[RoundCounts]  # every round in numbers
    estimate: AccuracyEstimate | None  # the last estimate; null if there is none
    # whether the last estimate uses all present labels; null without an estimate
    estimate_is_current: bool | None = None
    lost: list[str] = Field(default=[])  # files of labels that are missing, a sentence each
    waits_for: str  # the next thing to do, in words
    # command to run next and its arguments, without the run; empty: run the spec again
    step: list[str] = Field(default=[])
    failure: RunFailure | None = None  # error of the last `opacc run`; null if it succeeded


def status(run: Run, *, with_warnings: bool = True) -> RunStatus:
    """Return the state of a run.

    A run with lost labels, or with labels in conflict, waits for their repair. Warnings are found by all labels, so a
    caller that does not show them leaves them out.
    """
    index, total = run.read_index(), run.header.pool.num_shards
    lost, failure = list(read_log(run).lost.values()), read_failure(run)
    rounds, conflict = _rounds(run) if index and run.rounds() else ([], None)
    counts, estimate, is_current = [item.counts() for item in rounds], run.read_estimate(), None
    if estimate is not None:
        goal = run.newest_goal(reached=True) if rounds else None
        stops_at = (None, ACCURACY) if goal is None else (goal.half_width, goal.target)
        stated = estimate.labels_digest, (estimate.goal, estimate.goal_of)
        is_current = bool(rounds) and stated == (digest_of(rounds), stops_at)
    waits_for, step = "; ".join(lost) or conflict or _waits_for(rounds, is_current), list[str]()
    if failure and not rounds:
        waits_for = f"another run of its spec, which failed: {failure.error}"
    elif not index:
        waits_for = "extraction: run the spec again, finished shards are kept"
    elif rounds:
        step = ["labels list"] if lost or conflict else step_of(run, counts, stated=is_current is True)
    return RunStatus(
        run=run.uri,
        shards=ShardCounts(done=total if index else len(run.finished_shards()), total=total),
        extraction=run.read_document(ExtractionWork, EXTRACTION),
        examples=index.num_examples if index else None,
        excluded=len(index.bad) if index else None,
        pool_changes=pool_changes(run),
        predicted=predicted_by(run) if index else None,
        warnings=warnings_of(run, rounds) if index and with_warnings else [],
        failure=failure,
        rounds=counts,
        estimate=estimate,
        estimate_is_current=is_current,
        lost=lost,
        waits_for=waits_for,
        step=step,
    )


def _rounds(run: Run) -> tuple[list[LabelledRound], str | None]:
    """Return the rounds, and the conflict of labels if there is one; the majority is counted then."""
    try:
        return read_rounds(run, with_lost=True), None
    except LabelError as error:
        reason = str(error)
    try:
        return read_rounds(run, conflict="majority", with_lost=True), reason
    except LabelError:
        return [], reason


def _waits_for(rounds: Sequence[LabelledRound], is_current: bool | None) -> str:
    """Return what a run with complete features waits for."""
    if not rounds:
        return "a selection: run the spec again"
    missing = sum(len(item.missing) for item in rounds)
    if missing:
        return counted(missing, "label")
    if not any(item.labelled.any() for item in rounds):
        return 'another round: all answers so far are "can\'t tell", so draw more examples with `opacc next`'
    return "nothing" if is_current else "nothing but `opacc estimate`"


# -- rounds ----------------------------------------------------------------------------------------------------


def newest_round(run: Run, goal: Goal | None = None, *, again: bool = False, like: Run | None = None) -> DrawnRound:
    """Return the newest round of a run, the progress towards its goal, and the command to run next.

    ``again``: it was drawn by an earlier call. The labels of a run that it is ``like`` are imported next, if that has
    some of the chosen examples.
    """
    progress = goal and GoalProgress(**{name: getattr(goal, name) for name in GoalProgress.model_fields})
    if goal is not None and goal.reached:  # nothing was drawn
        return DrawnRound(run=run.uri, step=["report"], goal=progress)
    selection, warnings = run.read_selection(run.rounds()[-1]), warnings_now(run)
    step, chosen = status(run, with_warnings=False).step, set(selection.ids)
    if like and like.uri != run.uri and any(row.id in chosen for row in read_log(like).labels()):
        step = ["labels import", like.uri]
    return DrawnRound(
        run=run.uri,
        method=selection.method,
        round=selection.round,
        n=len(selection),
        labelled=len(run.read_chosen(selection.round).labelled_ids),
        carried_from=selection.facts.get(CARRIED, {}).get("run"),
        pool_size=selection.pool_size,
        manifests=run.manifests(selection.round),
        notice=f"round {selection.round} was drawn already; label it"
        if again
        else plausibility.without_lead(selection.facts.get("notice"), warnings),
        objects=find_changed(run, [selection.round]),
        predicted=predicted_by(run),
        warnings=warnings,
        step=step,
        goal=progress,
    )


# -- failures --------------------------------------------------------------------------------------------------


def read_failure(run: Run) -> RunFailure | None:
    """Read the error of the last `opacc run`; None if it succeeded."""
    return run.read_document(RunFailure, FAILURE)


def write_failure(run: Run, error: str, exit_code: int) -> None:
    """Keep the error of a run with it."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    run.store.write(FAILURE, RunFailure(at=at, error=redacted(error), exit_code=exit_code).to_bytes())


@contextmanager
def failure_kept(run: Run) -> Iterator[None]:
    """Store an error of the block; once the block succeeds, remove an earlier error."""
    try:
        yield
    except Exception as error:
        ours = as_ours(error)
        try:
            write_failure(run, str(ours), ours.exit_code)
        except OpaccError as trouble:  # the first error matters more
            log.warning("the error of the run could not be stored: %s", trouble)
        raise
    if run.store.exists(FAILURE):
        run.store.delete(FAILURE)


def ended_by(waits_for: str) -> Ended:
    """Return the result of a run that did not fail, by what it waits for."""
    return "done" if waits_for.startswith("nothing") else "waits for labels"


# -- log ---------------------------------------------------------------------------------------------------------------

_RUNS = "opacc_ray.runs"
ENTRIES = Registry(
    "entries",
    {
        "opacc-closed/2": f"{_RUNS}.run_documents:ClosedRound",
        "opacc-draw/1": f"{_RUNS}.run_documents:Draw",
        "opacc-goal/1": f"{_RUNS}.run_documents:Goal",
        "opacc-label-action/1": "opacc_ray.labels.label_log:LabelAction",
        "opacc-removal/1": f"{_RUNS}.run_documents:Removal",
        "opacc-seal/1": f"{_RUNS}.run_documents:Seal",
        "opacc-stated/1": f"{_RUNS}.run_documents:Stated",
        "opacc-taught/1": f"{_RUNS}.run_documents:Taught",
    },
)
"""Format -> document of an entry of the log, which says in ``words()`` what happened."""


class LoggedEntry(Part):
    """One entry of the log of a run."""

    number: int = Field(ge=1)  # number of the entry
    at: str  # time in ISO 8601, UTC
    round: int | None  # round that it is about; null: none
    what: str  # what happened, in words


class RunLog(Document):
    """The log of a run."""

    format: Literal["opacc-log/1"] = "opacc-log/1"
    run: str  # URI of the run
    head: str | None  # SHA-256 of the newest entry, which depends on all; null: no entry yet
    entries: list[LoggedEntry]  # all entries, in their order


def run_log(run: Run) -> RunLog:
    """Return the log of a run."""
    entries = [
        LoggedEntry(number=commit.number, at=commit.at, round=commit.round, what="; ".join(_said(commit)))
        for commit in run.commits
    ]
    return RunLog(run=run.uri, head=run.head, entries=entries)


def _said(commit: Commit) -> Iterator[str]:
    """Yield what an entry says, in words; what nothing here knows by the name of its format."""
    for content in commit.content:
        form = str(content.get("format"))
        yield ENTRIES[form].from_dict(content, f"entry {commit.number} of the log").words() if form in ENTRIES else form
