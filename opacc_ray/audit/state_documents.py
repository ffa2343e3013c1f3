"""The documents that say how a run stands: what of it is done, what it waits for, and what is wrong with it.

| document | where |
|---|---|
| :class:`RunStatus` | answer of `opacc status` |
| :class:`Verification` | answer of `opacc verify` |
| :class:`RunExit` | where `opacc run --exit-file` writes it |
| :class:`Submission` | answer of `opacc submit` |
"""

from typing import Literal

from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ChangedObjects, RoundCounts
from opacc_ray.runs.failure import RunFailure
from opacc_ray.runs.run_documents import Predicted


class ShardCounts(Part):
    """Shards of the pool."""

    done: int = Field(ge=0, description="shards whose features are there")
    total: int = Field(ge=0, description="shards in all")


class TrackStatus(Part):
    """A track of a run, and what it waits for."""

    track: str | None = Field(default=None, description="its name; null: the first one")
    rounds: list[RoundCounts] = Field(description="every round in numbers")
    estimate: AccuracyEstimate | None = Field(description="the last estimate, if there is one")
    estimate_is_current: bool | None = Field(
        default=None, description="whether the last estimate is of all labels that are in now; null if there is none"
    )
    waits_for: str = Field(description="what is to be done next, in words")


class RunStatus(Document, TrackStatus):
    """What of a run is done, and what it waits for, along one of its tracks and all others."""

    format: Literal["opacc-status/1"] = Field(default="opacc-status/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    shards: ShardCounts = Field(description="progress of extraction")
    examples: int | None = Field(ge=0, description="examples in the pool; null while extraction is not complete")
    excluded: int | None = Field(ge=0, description="examples that could not be read; null as above")
    predicted: Predicted | None = Field(
        default=None, description="what the model predicts of the pool; null: not known"
    )
    warnings: list[str] = Field(default=[], description="reasons to doubt that this is the model that is meant")
    others: list[TrackStatus] = Field(default=[], description="the other tracks")
    failure: RunFailure | None = Field(default=None, description="why the last `opacc run` failed; null: it did not")


class Fault(Part):
    """Something wrong with a run."""

    file: str = Field(description="URI of the file that is damaged, lost or not of the run")
    problem: str = Field(description="what is wrong, and what to do")


class Verification(Document):
    """All files of a run, compared with their digests and with one another."""

    format: Literal["opacc-verification/1"] = Field(
        default="opacc-verification/1", description="name and version of this form"
    )
    run: str = Field(description="URI of the run")
    sound: bool = Field(description="whether nothing is wrong")
    checked: int = Field(ge=0, description="files that were read and compared")
    faults: list[Fault] = Field(description="all that is wrong")
    objects: ChangedObjects | None = Field(description="objects of the pool that changed; null if that is not known")


Ended = Literal["done", "waits for labels", "wrong spec", "failed", "interrupted"]
"""How a job ended."""


class RunExit(Document):
    """How `opacc run` ended, kept in storage: a job server knows less of it."""

    format: Literal["opacc-run-exit/1"] = Field(default="opacc-run-exit/1", description="name and version of this form")
    ended: Ended = Field(description="done: nothing is missing; wrong spec: exit code 2; interrupted: run it again")
    exit_code: int = Field(description="that of `opacc run`; 0 also where labels are waited for")
    run: str | None = Field(description="URI of the run; null if there is none yet")
    waits_for: str | None = Field(description="what the run waits for, in words; null if it failed")
    error: str | None = Field(description="the sentence that it ended with; null if it did not fail")


class Submission(Document):
    """A job that was sent to a cluster, or found there, and how it ended."""

    format: Literal["opacc-submission/1"] = Field(
        default="opacc-submission/1", description="name and version of this form"
    )
    id: str = Field(description="submission id of the job: the name of its run, and -2, -3, … after a failure")
    run: str = Field(description="URI of the run")
    found: bool = Field(description="whether the job was there already, and nothing was sent")
    status: str = Field(description="what Ray says of it: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED")
    modules: list[str] = Field(description="files of code that were sent; none if the job was found")
    ended: Ended | None = Field(description="how it ended; null while it runs")
    exit_code: int | None = Field(description="that of `opacc run` in the job; null while it runs")
    waits_for: str | None = Field(
        description="what the run waits for now, in words; null while it runs, or if it failed"
    )
    error: str | None = Field(description="the sentence that the job ended with, if it failed")
