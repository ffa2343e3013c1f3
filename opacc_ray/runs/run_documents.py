"""The documents that a run stores as JSON, and the answer of the commands that draw a round.

The stored estimate is in :mod:`opacc_ray.runs.estimate_documents`.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import PurePath
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import Field

from opacc_ray.documents import Document, Part, SealedDocument, format_field
from opacc_ray.errors import DataError
from opacc_ray.extract.feature_set import FeatureLink
from opacc_ray.extract.model_code import Code
from opacc_ray.lake.store_uris import Store
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ChangedObjects
from opacc_ray.spec import Spec

# -- the run -------------------------------------------------------------------------------------------------


class IgnoredFiles(Part):
    """Files of other formats under the pool's prefix, of one kind."""

    kind: str  # a suffix, or the type of an object that is no regular file, such as a FIFO
    num_files: int = Field(ge=1)  # number of files
    first: list[str]  # some of their names


class PoolListing(Part):
    """Listing of the pool when the run was created."""

    digest: str  # digest of the listing: names, sizes and versions of the files
    num_files: int | None = Field(default=None, ge=0)  # files in the pool
    num_shards: int = Field(ge=0)  # number of shards for extraction
    ignored: list[IgnoredFiles] = Field(default=[])  # other files there, which are not read, by kind
    version: str | None = None  # version of the table that all shards belong to; null if the pool is no table
    data_as_of: str | None = None  # when that version, or the newest file, was written: ISO 8601, UTC; null: unknown


class ReferenceListing(Part):
    """The reference data that features are compared with."""

    digest: str  # digest of its data, the model and the settings of extraction; name of its folder


class ModelDigest(Part):
    """The model under audit."""

    sha256: str | None  # digest of the weights; null if the factory loads its own


class RunHeader(SealedDocument):
    """Header of a run: its spec, and the origin of everything that decides its result."""

    remedy: ClassVar[str] = "restore it or start a new run"

    format: Literal["opacc-run/2"] = format_field("opacc-run/2")
    spec: Spec  # the spec, with every default
    digest: str  # digest of everything that decides the result
    pool: PoolListing  # listing of the pool
    reference: ReferenceListing | None  # the reference data; null if no feature is compared with them
    features: FeatureLink | None = None  # the shared set of features; null if they are in the run's own prefix
    code: Code | None = None  # the code that made the features; null if the pool contains the features
    grown_from: str | None = None  # earlier run of the audit whose features of unchanged objects are taken; null: none
    model: ModelDigest  # the model's weights
    versions: dict[str, str]  # version of Python and of each package that matters
    git_commit: str | None  # git commit of the working directory at the start, if there is one
    created: str  # when the run was created: ISO 8601, UTC

    @property
    def code_digest(self) -> str | None:
        """Digest of the code that made the features; None if no code ran."""
        if self.code is None:
            return None
        return hashlib.sha256(json.dumps(self.code.model_dump(), sort_keys=True).encode()).hexdigest()


# -- the model before any label ------------------------------------------------------------------------------


class Spread(Part):
    """Range of some numbers."""

    low: float  # minimum
    median: float  # median
    high: float  # maximum


class Predicted(Part):
    """Predictions of the model for some examples, in numbers."""

    examples: int = Field(ge=0)  # number of examples
    # predicted class -> examples, most frequent first; null for a regression, or if unknown
    classes: dict[str, int] | None
    confidence: Spread | None  # range of the confidences; null if the features have none
    values: Spread | None  # range of the values of a regression; null for a classification

    def __str__(self) -> str:
        found = []
        if self.classes is not None:
            rest = len(self.classes) - 10  # that are named
            more = f" and {rest} more class{'es' * (rest > 1)}" if rest > 0 else ""
            found.append(", ".join(f"{name}: {num}" for name, num in [*self.classes.items()][:10]) + more)
        if spread := self.confidence:
            found.append(f"confidence {spread.low:.2f} to {spread.high:.2f}, median {spread.median:.2f}")
        if spread := self.values:
            found.append(f"{spread.low:.4g} to {spread.high:.4g}, median {spread.median:.4g}")
        return "; ".join(found)


class ModelSanity(SealedDocument):
    """Predictions and warnings before any label, by which users recognize a wrong model."""

    remedy: ClassVar[str] = "delete it and run the spec again"

    format: Literal["opacc-sanity/1"] = format_field("opacc-sanity/1")
    trial: list[str]  # warnings from the trial of some examples before extraction
    predicted: Predicted | None  # predictions for the pool; null before extraction
    warnings: list[str]  # warnings about these predictions


# -- rounds ------------------------------------------------------------------------------------------------


class KeptFile(Part):
    """A stored file."""

    sha256: str  # SHA-256 of its content
    size: int = Field(ge=0)  # bytes


def described_files(files: Mapping[str, bytes]) -> tuple[str, dict[str, KeptFile]]:
    """Return the name of the folder of some files, a digest of all of them, and each file by its name."""
    described = {name: KeptFile(sha256=digest_of(data), size=len(data)) for name, data in sorted(files.items())}
    content = {name: file.sha256 for name, file in described.items()}
    return digest_of(json.dumps(content, sort_keys=True).encode())[:16], described


class Draw(SealedDocument):
    """The draw of a round. It is created after its files; the round exists from then on."""

    format: Literal["opacc-draw/1"] = format_field("opacc-draw/1")
    run: str  # digest of the run that owns the draw
    features: str  # digest of the features that it was drawn from
    folder: str  # folder of the files below the round: a digest of all of them
    files: dict[str, KeptFile]  # by name: selection.json, predictions.parquet

    @classmethod
    def of(cls, files: Mapping[str, bytes], run: str, features: str) -> "Draw":
        """Return the draw that consists of some files; ``features`` is the digest of what it was drawn from."""
        folder, described = described_files(files)
        return cls(run=run, features=features, folder=folder, files=described)

    def words(self) -> str:
        return f"drawn, from the features {self.features[:12]}"


class ClosedRound(SealedDocument):
    """A round that was closed although labels are missing."""

    remedy: ClassVar[str] = "restore it, or delete it to open the round again"

    format: Literal["opacc-closed/2"] = format_field("opacc-closed/2")
    selection: str  # SHA-256 of the selection of the round
    given_up: list[str]  # ids without a label; they count as not drawn

    def words(self) -> str:
        return f"closed, {len(self.given_up)} labels given up"


class Taught(Document):
    """Labelled examples that were exported as training data."""

    format: Literal["opacc-taught/1"] = format_field("opacc-taught/1")
    ids: list[str]  # ids of the examples

    def words(self) -> str:
        return f"{len(self.ids)} labelled examples exported as training data"


class RoundLook(Part):
    """Interval after a round: one interim analysis."""

    round: int = Field(ge=1)  # number of the round
    labels: int = Field(ge=1)  # labels of all rounds so far
    half_width: float = Field(ge=0)  # half the width of the interval
    # half the width that decides whether the goal is reached; larger while there are few failures
    cautious_half_width: float = Field(ge=0)


class GoalProgress(Part):
    """Progress towards a goal of `opacc next --until`, with a forecast of the labels."""

    metric: str = "accuracy"  # the number that the goal is about, such as f1@defect
    by: str | None = None  # slices that the goal is about, or NAME=SLICE; null: the pool
    slice: str | None = None  # the one of these with the widest interval, which is stated
    half_width: float = Field(gt=0)  # the goal: half the width of the interval
    level: float = Field(gt=0, lt=1)  # confidence level of the interval at the goal
    look_level: float = Field(gt=0, lt=1)  # confidence level of the interim intervals, adjusted for repeated analyses
    reached: bool  # whether the goal is reached
    value: float  # the estimate so far
    low: float  # lower end of the interval to report
    high: float  # upper end of the interval to report
    reason: str | None  # assumptions of the interval; null if it holds by the sampling design alone
    looks: list[RoundLook]  # one interim analysis after each complete or closed round
    total_labels: int = Field(ge=1)  # labels for the goal in total, as forecast; the actual number once it is reached
    labels_to_go: int = Field(ge=0)  # forecast of the labels that are still needed
    sizes: list[int]  # labels of each further round, as forecast
    srs_labels: int = Field(ge=1)  # labels that a simple random sample would need in total, planned in advance
    advice: str | None  # one sentence if the goal is too expensive; otherwise null
    # earlier goals, in order: half-widths of the accuracy, or texts such as f1@defect ±0.02
    earlier_goals: list[float | str]

    @property
    def target(self) -> str:
        """The number that the goal is about, in words."""
        return self.metric if self.by is None else f"{self.metric} by {self.by}"


class Goal(GoalProgress, SealedDocument):
    """Answer of `opacc next --until` after a round: progress and decision."""

    remedy: ClassVar[str] = "restore it, or delete it"

    format: Literal["opacc-goal/1"] = format_field("opacc-goal/1")

    def words(self) -> str:
        of = "" if self.target == "accuracy" else f"{self.target} "
        return f"goal {of}±{self.half_width:g} {'reached' if self.reached else 'not reached'}"


class Seal(SealedDocument):
    """What will be stated of a run, written before its first label."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-seal/1"] = format_field("opacc-seal/1")
    metrics: list[str]  # numbers that will be stated; accuracy is always one
    level: float = Field(gt=0, lt=1)  # confidence level of the intervals
    by: list[str] = Field(default=[])  # slices that they will be stated by
    half_width: float | None = None  # goal of `opacc next --until` at which sampling will stop; null: none
    promised_by: str | None = None  # who promises it

    def words(self) -> str:
        return f"sealed: {', '.join(self.metrics)} at level {self.level:g}"

    def deviations(self, stated: AccuracyEstimate) -> Iterator[str]:
        """Yield how an estimate deviates from the seal, in sentences."""
        if stated.level != self.level:
            yield f"the level is {stated.level:g}, and {self.level:g} was sealed"
        if stated.goal is None and self.half_width is not None and len(stated.rounds) == 1:
            yield f"no round was drawn towards ±{self.half_width:g} yet, which `opacc next --until` does"
        elif stated.goal != self.half_width:
            goals = ["none" if goal is None else f"±{goal:g}" for goal in (stated.goal, self.half_width)]
            yield f"the goal is {goals[0]}, and {goals[1]} was sealed"
        slices = list(dict.fromkeys(table.by for table in stated.by_slice))
        for name, found, sealed in (("metric", [*stated.metrics], self.metrics[1:]), ("slices", slices, self.by)):
            yield from (f"{name} {item} was sealed and is not stated" for item in sealed if item not in found)
            yield from (f"{name} {item} is stated and was not sealed" for item in found if item not in sealed)


class DrawnRound(Document):
    """A round that was drawn, or the answer that no further round is needed."""

    format: Literal["opacc-round/1"] = format_field("opacc-round/1")
    run: str  # URI of the run
    method: str | None = None  # sampling method; null if nothing was drawn
    round: int | None = Field(default=None, ge=1)  # number of the round; null if nothing was drawn
    n: int = Field(default=0, ge=0)  # number of draws; an example that is drawn twice counts twice
    labelled: int = Field(default=0, ge=0)  # examples that already had a label, which the manifests leave out
    carried_from: str | None = None  # run that labelled these before; null: an earlier round
    pool_size: int | None = Field(default=None, ge=0)  # examples in the pool; null if nothing was drawn
    manifests: list[str] = Field(default=[])  # URIs of the manifests for annotators
    notice: str | None = None  # evidence in the labels against the way examples are chosen; null if there is none
    # objects of its examples that changed after extraction; null if nothing was drawn
    objects: ChangedObjects | None = None
    predicted: Predicted | None = None  # predictions for the pool; null if unknown, or if nothing was drawn
    warnings: list[str] = Field(default=[])  # signs that this may be the wrong model
    goal: GoalProgress | None = None  # progress towards `--until`; null without it
    step: list[str] = Field(default=[])  # command to run next and its arguments, without the run

    @property
    def reached(self) -> bool:
        """Whether the interval is as narrow as `--until` requires, so that nothing was drawn."""
        return self.goal is not None and self.goal.reached


# -- what was known before the first label --------------------------------------------------------------------


class HistorySource(Part):
    """One source of knowledge from before the first label."""

    # labels of the reference, labels of an earlier audit, or a judge, a column of the pool
    kind: Literal["reference", "audit", "judge"]
    uri: str  # URI of the source
    examples: int = Field(ge=0)  # number of labelled examples, or of values of the column
    column: str | None  # name of the column; null for labels


class KeptHistory(SealedDocument):
    """Record of what a run knew before its first label."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-kept-history/1"] = format_field("opacc-kept-history/1")
    run: str | None  # digest of the run
    folder: str = Field(pattern="^[0-9a-f]{16}$")  # folder of the files: a digest of all of them
    files: dict[str, KeptFile]  # by name: labelled-1.parquet, judges.parquet
    sources: list[HistorySource]  # sources; labelled-1.parquet belongs to the first


# -- the end of a command ------------------------------------------------------------------------------------

Ended = Literal["done", "waits for labels", "wrong spec", "failed", "interrupted"]
"""How a job ended."""


class RunExit(Document):
    """Exit status of `opacc run`, written to storage for other programs."""

    format: Literal["opacc-run-exit/1"] = format_field("opacc-run-exit/1")
    ended: Ended  # done: nothing is missing; wrong spec: exit code 2; interrupted: run it again
    exit_code: int  # exit code of `opacc run`; also 0 if the run waits for labels
    run: str | None  # URI of the run; null if it was not created
    waits_for: str | None  # the next thing to do, in words; null if the run failed
    error: str | None  # error message; null if the run did not fail


# -- the log -------------------------------------------------------------------------------------------------------


AnyDocument = TypeVar("AnyDocument", bound=Document)

FOLDER = "log/"


class Commit(SealedDocument):
    """One entry of the log of a run, in ``log/NUMBER.json``."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-commit/1"] = format_field("opacc-commit/1")
    run: str  # digest of the run
    number: int = Field(ge=1)  # number of the entry
    previous: str | None  # SHA-256 of the file of the entry before; null: the first entry
    at: str  # time in ISO 8601, UTC; later than that of the entry before, whatever clocks show
    round: int | None = Field(default=None, ge=1)  # round that it is about; null: none
    # SHA-256 of each file that it speaks of, by its key; at least the first 16 digits
    files: dict[str, str] = Field(default={})
    content: list[dict[str, Any]]  # what happened: documents with a `format`

    def documents(self, kind: type[AnyDocument]) -> Iterator[AnyDocument]:
        """Yield the documents of a kind."""
        wanted = _format_of(kind)
        for content in self.content:
            if content.get("format") == wanted:
                yield kind.from_dict(content, f"entry {self.number} of the log")


class Removal(Document):
    """The last entry of a run: its files are deleted."""

    format: Literal["opacc-removal/1"] = format_field("opacc-removal/1")

    def words(self) -> str:
        return "removed"


@cache
def _format_of(kind: type[Document]) -> str:
    """Return the format of a kind of document, which a log of thousands of entries is searched for."""
    return str(kind.model_fields["format"].default)


class Happening(NamedTuple):
    """What a command does to a run, as an entry of the log will say."""

    content: Sequence[Document | Mapping[str, Any]]
    round: int | None = None
    files: Mapping[str, str] = {}
    at: str | None = None  # no earlier than now; None: the time of writing


class CommitLog:
    """The log of one run in storage; entries that were read are kept.

    Parameters
    ----------
    store : the prefix of the run
    run : digest of the run
    """

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._read: list[Commit] = []
        self._last: str | None = None  # digest of the last entry's file
        self._lock = threading.RLock()

    def read(self) -> tuple[Commit, ...]:
        """Return all entries; raises DataError if one is lost, damaged or of another run."""
        with self._lock:
            self._refresh()
            return tuple(self._read)

    def _refresh(self) -> None:
        if self._read and not self._store.exists(_key(len(self._read) + 1)):
            return  # entries are numbered without gaps
        keys = [entry.key for entry in self._store.list(FOLDER)]
        new = [_key(number) for number in range(len(self._read) + 1, len(keys) + 1)]
        lost = sorted({*map(_key, range(1, len(keys) + 1))} - set(keys))
        if lost:
            raise DataError(f"{self._store.uri_of(lost[0])} is lost; restore it from a backup")
        for key, data in zip(new, self._store.read_many(new), strict=True):
            self._take(data, self._checked(key, data))

    def append(self, decide: Callable[[tuple[Commit, ...]], Happening | None]) -> Commit | None:
        """Write what ``decide`` returns for the log as it is; None if it returns None.

        It is called again if another command wrote first. What it raises ends the attempt, and nothing is written.
        Raises DataError if the run is being removed.
        """
        with self._lock:
            if not self._read:
                self._refresh()
            while (happening := decide(tuple(self._read))) is not None:
                if any(True for commit in self._read[-1:] for _ in commit.documents(Removal)):
                    raise DataError(self._removed)
                data, number = self._next(happening), len(self._read) + 1
                if self._store.create(_key(number), data) == data:
                    self._refuse_orphan(number)
                    self._take(data, Commit.from_bytes(data, "the log"))
                    return self._read[-1]
                self._refresh()
            return None

    @property
    def _removed(self) -> str:
        return f"{self._store.uri} was removed by `opacc runs remove` meanwhile, so nothing was done"

    def _refuse_orphan(self, number: int) -> None:
        """Raise DataError, and delete an entry that was just created, if those before it are gone."""
        if number > 1 and not self._store.exists(_key(number - 1)):
            self._store.delete(_key(number))
            raise DataError(self._removed)

    def _next(self, happening: Happening) -> bytes:
        last = [datetime.fromisoformat(commit.at) + timedelta(microseconds=1) for commit in self._read[-1:]]
        time = datetime.now(UTC) if happening.at is None else datetime.fromisoformat(happening.at)
        return Commit(
            run=self._run,
            number=len(self._read) + 1,
            previous=self._last,
            at=max([time, *last]).isoformat(timespec="microseconds"),
            round=happening.round,
            files=dict(happening.files),
            content=[entry.to_dict() if isinstance(entry, Document) else dict(entry) for entry in happening.content],
        ).to_bytes()

    def _checked(self, key: str, data: bytes) -> Commit:
        commit, uri = Commit.from_bytes(data, self._store.uri_of(key)), self._store.uri_of(key)
        if commit.run != self._run:
            raise DataError(f"{uri} belongs to another run than spec.json; restore both from one backup")
        if (commit.number, commit.previous) != (len(self._read) + 1, self._last):
            raise DataError(f"{uri} does not follow the entry before it: one was changed; restore {FOLDER} as a whole")
        return commit

    def _take(self, data: bytes, commit: Commit) -> None:
        self._read.append(commit)
        self._last = digest_of(data)


def _key(number: int) -> str:
    return f"{FOLDER}{number:08d}.json"


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of the content of a file."""
    return hashlib.sha256(data).hexdigest()


def name_of_labels(name: str, data: bytes) -> str:
    """Return the name for a stored file of labels: the digest of its content, and its suffix."""
    suffix = PurePath(name).suffix.lower()
    safe = suffix if re.fullmatch(r"\.[a-z0-9]{1,8}", suffix) else ""
    return f"{digest_of(data)[:16]}{safe}"
