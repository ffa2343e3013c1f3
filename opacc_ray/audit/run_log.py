"""The log of a run in words: who did what and when, the digest that tells later whether any of it is gone, and the
run as it was at a time.
"""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from opacc_ray.audit.evidence_documents import Signed
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import SpecError
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.labels.label_documents import LabelAction
from opacc_ray.runs.commit_log import Commit
from opacc_ray.runs.estimate_documents import Stated
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import ClosedRound, Draw, Goal, Seal, Taught

log = logging.getLogger(__name__)


class LoggedEntry(Part):
    """One entry of the log of a run."""

    number: int = Field(ge=1, description="number of the entry")
    at: str = Field(description="time in ISO 8601, UTC")
    track: str | None = Field(description="track that it is about; null for the first track")
    round: int | None = Field(description="round that it is about; null: none")
    what: str = Field(description="what happened, in words")


class RunLog(Document):
    """The log of a run."""

    format: Literal["opacc-log/1"] = format_field("opacc-log/1")
    run: str = Field(description="URI of the run")
    head: str | None = Field(description="SHA-256 of the newest entry, which depends on all; null: no entry yet")
    entries: list[LoggedEntry] = Field(description="all entries, in their order")


def run_log(run: Run) -> RunLog:
    """Return the log of a run on all tracks."""
    entries = [
        LoggedEntry(
            number=commit.number, at=commit.at, track=commit.track, round=commit.round, what="; ".join(_said(commit))
        )
        for commit in run.commits
    ]
    return RunLog(run=run.uri, head=run.head, entries=entries)


def run_as_of(run: Run, time: datetime) -> Run:
    """Return the run as it was at a time; raises SpecError if its log was empty then."""
    seen = tuple(commit for commit in run.commits if datetime.fromisoformat(commit.at) <= time)
    if run.commits and not seen:
        raise SpecError(
            f"nothing had been drawn in {run.uri} at {time:%Y-%m-%d %H:%M:%S} UTC; its log begins at "
            f"{run.commits[0].at[:19]}"
        )
    newest, now = run.commits[-1:], datetime.now(UTC)
    if newest and datetime.fromisoformat(newest[0].at) > max(time, now):
        log.warning(
            "%s has entries as late as %s UTC, and it is %s: a clock was wrong; more may have been known at %s",
            run.uri,
            newest[0].at[:19],
            f"{now:%H:%M:%S}",
            f"{time:%Y-%m-%d %H:%M:%S}",
        )
    return run.at(seen)


def _said(commit: Commit) -> Iterator[str]:
    """Yield what an entry says, in words."""
    for closed in commit.documents(ClosedRound):
        yield f"closed, {len(closed.given_up)} labels given up"
    for draw in commit.documents(Draw):
        yield f"drawn, from the features {draw.features[:12]}"
    for action in commit.documents(LabelAction):
        yield _labels(action)
    for goal in commit.documents(Goal):
        of = "" if goal.target == ACCURACY else f"{goal.target} "
        yield f"goal {of}±{goal.half_width:g} {'reached' if goal.reached else 'not reached'}"
    for seal in commit.documents(Seal):
        yield f"sealed: {', '.join(seal.metrics)} at level {seal.level:g}"
    for signed in commit.documents(Signed):
        yield f"signed by {signed.by} ({signed.role})"
    for taught in commit.documents(Taught):
        yield f"{len(taught.ids)} labelled examples exported as training data"
    for stated in commit.documents(Stated):
        yield "estimate stated" if stated.value is None else f"estimate {100 * stated.value:.1f} % stated"


def _labels(action: LabelAction) -> str:
    """Return an action on labels in words."""
    by = f" by {action.annotator}" if action.annotator else ""
    ids = ", ".join(action.ids[:3]) + (", …" if len(action.ids) > 3 else "")
    if action.action == "import":
        return f"labels of {action.source or action.file} imported{by}"
    if action.action == "correct":
        return f"label of {ids} corrected{by}"
    if action.action == "withdraw":
        return f"labels of {action.file or ids} withdrawn"
    rules = action.model_dump(
        include={"conflict", "score", "overlap", "numbers_are_classes", "show"}, exclude_none=True
    )
    texts = [f"{name} {value}" for name, value in rules.items()] + ["guidance"] * (action.guidance is not None)
    return f"rule of labels set: {', '.join(texts)}"
