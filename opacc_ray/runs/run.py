"""Read and write a run: the files below its prefix in storage, which docs/reference.md lists.

The log decides (run_documents.py): the rest is read where it says so, and compared with the digests that it has.

    rounds/2/DIGEST/    selection, predictions and manifests of one draw; DIGEST is computed from the first two

A draw happens when the log names it. All reads use the folder of the draw and compare digests. So files of two draws
never mix, however many commands draw at the same time. Manifests are for people, who may fill them in: no command reads
one of a round.

A run is identified by the digest of everything that decides its result: the same spec and data give the same run.

Each round learns from the labels of the rounds before it, and all give one estimate. No draw uses labels of examples
that another design chose, because the estimate assumes a design that does not.
"""

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, TypeVar

import numpy as np

from opacc_ray.documents import Document
from opacc_ray.errors import DataError, LabelError, SpecError, StorageError, shortened
from opacc_ray.extract import reference
from opacc_ray.extract.feature_set import Complete, FeatureLink, FeatureReader, Index, feature_set
from opacc_ray.extract.model_code import Code
from opacc_ray.extract.shards import FEATURES_FORMAT, finished_shards
from opacc_ray.lake import parquet_io
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.parquet_io import numbers, texts
from opacc_ray.lake.store_uris import Store, absolute, open_store, read_uri
from opacc_ray.runs.estimate_documents import AccuracyEstimate, Stated
from opacc_ray.runs.run_documents import FOLDER as LOG
from opacc_ray.runs.run_documents import (
    ClosedRound,
    Commit,
    CommitLog,
    Draw,
    Goal,
    Happening,
    IgnoredFiles,
    KeptFile,
    ModelDigest,
    PoolListing,
    ReferenceListing,
    RunHeader,
    digest_of,
    name_of_labels,
)
from opacc_ray.samplers import METHODS
from opacc_ray.selection import Selection
from opacc_ray.spec import Spec

AnyDocument = TypeVar("AnyDocument", bound=Document)
Closing = Callable[["Run"], Sequence[ClosedRound]]
"""What a draw closes, of the run as it is when the draw is logged."""

HEADER, ESTIMATE, ROUNDS = "spec.json", "estimate.json", "rounds/"


_FILES = "listing|estimate|report|characterization|failure|sanity|spec"
_FOLDERS = "features|reference|history|rounds|labels|log|estimates|signatures|figures|generated|characterized-test"
RUN_FILES = re.compile(rf"(?:{_FILES})\.(?:json|parquet|html|md)|(?:{_FOLDERS})/.*", re.DOTALL)
"""Keys of the files of a run, below its prefix."""

SELECTION, PREDICTIONS, MANIFEST = "selection.json", "predictions.parquet", "manifest."
"""Names of a draw's files; the names of manifests begin with the last."""

THREADS = 8
"""Files that are read or written at the same time."""


def read_kept(folder: Store, files: Mapping[str, KeptFile], name: str, since: str = "drawn") -> bytes:
    """Read a file of a draw or a history from its folder; raises DataError if it is lost, or was changed afterwards."""
    data = folder.read_if_there(name) if name in files else None
    if data is None:
        raise DataError(f"{folder.uri_of(name)} is lost; restore it from a backup")
    if digest_of(data) != files[name].sha256:
        raise DataError(f"{folder.uri_of(name)} was changed since it was {since}; restore it from a backup")
    return data


class Chosen(NamedTuple):
    """The chosen examples of a round, apart from the design."""

    ids: list[str]
    uris: list[str]
    predictions: list[Any]
    objects: list[str | None]  # keys of the pool's objects that hold them; None if unknown
    tags: list[str | None]  # of those objects, when the pool was listed
    labelled: list[bool]  # whether each had a label before it was chosen

    @property
    def labelled_ids(self) -> set[str]:
        """Return the ids of the examples that had a label before they were chosen."""
        return {name for name, known in zip(self.ids, self.labelled, strict=True) if known}

    def to_bytes(self) -> bytes:
        """Return the bytes of ``predictions.parquet``."""
        import pyarrow as pa

        values = self.predictions
        columns = {
            "id": texts(self.ids),
            "uri": texts(self.uris),
            "object": texts(self.objects),
            "tag": texts(self.tags),
            "prediction": pa.nulls(len(values)) if set(values) <= {None} else numbers(np.array(values)),
            "labelled": numbers(np.array(self.labelled, dtype=bool)),
        }
        return parquet_io.encode(pa.table(columns))

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> "Chosen":
        """Read ``predictions.parquet``; raises DataError, which names ``source``, if it is something else."""
        import pyarrow as pa

        try:
            table = parquet_io.read_bytes(data)
            return cls(*(table[name].to_pylist() for name in ("id", "uri", "prediction", "object", "tag", "labelled")))
        except (pa.ArrowException, OSError, KeyError) as error:
            raise DataError(f"{source} is no table of predictions ({shortened(str(error))}); restore it") from None


class Run:
    """One audit in storage."""

    def __init__(
        self,
        store: Store,
        header: RunHeader,
        reader: FeatureReader | None = None,
        log: CommitLog | None = None,
        seen: tuple[Commit, ...] | None = None,
    ) -> None:
        self.store, self.header, self.spec = store, header, header.spec
        self.log = log or CommitLog(store, header.digest)
        self._seen = seen  # what this run sees of its log; None: all of it, whenever it looks
        self._drawn: dict[tuple[str, str], bytes] = {}  # files of draws by folder and name, if it sees a part alone
        self.feature_set = feature_set(store, header.features, header.spec.surprise())
        self.features = self.feature_set.folder
        self._reader = reader or FeatureReader(self.feature_set.read, self.feature_set.tags)

    @classmethod
    def open(cls, uri: str) -> "Run":
        """Open the run at ``uri``; raises DataError if there is none."""
        store = open_store(uri)
        header = store.read_if_there(HEADER)
        if header is None:
            raise DataError(f"there is no run at {store.uri} (no {HEADER}); give the URI that `opacc run` printed")
        return cls(store, RunHeader.from_bytes(header, store.uri_of(HEADER)))

    @classmethod
    def create(cls, uri: str, header: RunHeader) -> "Run":
        """Open the run at ``uri``; write ``header`` unless the run exists, which gets its changeable keys."""
        store = open_store(uri)
        if not store.exists(HEADER):
            store.create(HEADER, header.to_bytes())
        run = cls.open(uri)
        spec = run.spec.described_as(header.spec)
        if spec == run.spec:
            return run
        store.write(HEADER, run.header.model_copy(update={"spec": spec}).to_bytes())
        return cls.open(uri)

    @property
    def uri(self) -> str:
        return self.store.uri

    @property
    def name(self) -> str:
        """Last part of the prefix. Manifests contain it, and labels that name another run are refused."""
        return self.uri.rpartition("/")[2]

    # -- log ---------------------------------------------------------------------------------------------

    def snapshot(self) -> "Run":
        """Return the run as it is now, so that the files of rounds are read only once."""
        return Run(self.store, self.header, self._reader.once(), self.log, self.commits)

    def at(self, commits: tuple[Commit, ...]) -> "Run":
        """Return the run as it was when its log had these entries."""
        return Run(self.store, self.header, self._reader, self.log, commits)

    @property
    def commits(self) -> tuple[Commit, ...]:
        """The entries of the log that this run sees."""
        return self.log.read() if self._seen is None else self._seen

    @property
    def head(self) -> str | None:
        """Digest of the newest entry of the log, which depends on all; None without an entry."""
        return digest_of(self.commits[-1].to_bytes()) if self.commits else None

    def refuse_rollback(self, head: str | None) -> None:
        """Raise DataError if the log lost an entry that it once ended with."""
        if head is not None and head not in map(digest_of, (commit.to_bytes() for commit in self.commits)):
            raise DataError(
                f"the log of {self.uri} has no entry {head[:16]}, with which it ended before: it was restored from an "
                f"earlier time, or written again; restore the newest {LOG}"
            )

    def logged(self, kind: type[AnyDocument], number: int | None = None) -> list[tuple[Commit, AnyDocument]]:
        """Return the documents of a kind in the log, or of one of its rounds, in their order."""
        return [
            (commit, document)
            for commit in self.commits
            if number in (None, commit.round)
            for document in commit.documents(kind)
        ]

    # -- features ----------------------------------------------------------------------------------------

    def finished_shards(self) -> set[str]:
        """Return the names of the shards that have features."""
        return set.intersection(*(finished_shards(folder) for folder in self.feature_set.folders))

    def read_features(self) -> Complete | None:
        """Read the features and their index; None while extraction is incomplete."""
        return self._reader.read()

    def complete_features(self) -> Complete:
        """Read the features and their index; raises DataError while extraction is incomplete."""
        features = self.read_features()
        if features is None:
            raise DataError(f"the features of {self.uri} are incomplete; run its spec again, finished shards are kept")
        return features

    def read_index(self) -> Index | None:
        """Read the index of the features; None while extraction is incomplete."""
        features = self.read_features()
        return features.index if features else None

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the model; None for other tasks, or if neither spec nor features define it."""
        if not self.spec.model.has_classes:
            return None
        named = len(self.spec.model.classes or ())
        index = self.read_index()
        return named or (index.features.get("output") if index else None)

    # -- rounds ------------------------------------------------------------------------------------------

    def rounds(self) -> list[int]:
        """Return the numbers of the rounds that were drawn."""
        return sorted({commit.round for commit, _ in self.logged(Draw) if commit.round})

    def drawn_rounds(self) -> list[int]:
        """Return the numbers of the rounds; raises LabelError if there is none, DataError as :meth:`rounds`."""
        numbers = self.rounds()
        if not numbers:
            raise LabelError(f"{self.uri} has no selection yet; run its spec")
        return numbers

    def folder(self, number: int, draw: Draw | None = None) -> Store:
        """Return the folder of a draw of a round; None: of the draw in the log."""
        return self.store.store(f"{ROUNDS}{number}/{(draw or self.draw_of(number)).folder}")

    def drawn_at(self, number: int) -> datetime:
        """Return when a round was drawn."""
        return datetime.fromisoformat(self.logged(Draw, number)[0][0].at)

    def read_selection(self, number: int) -> Selection:
        """Read the selection of a round; raises DataError if its file is damaged."""
        data, source = self._read_drawn(number, SELECTION)
        try:
            selection = Selection.from_json(data, source)
        except (RecursionError, OverflowError, TypeError) as error:
            raise DataError(f"{source} is no selection ({type(error).__name__}: {error}); restore it") from None
        if selection.method not in METHODS:
            raise DataError(f"{source}: there is no method {selection.method!r}; restore it")
        if selection.round != number:
            raise DataError(f"{source} belongs to round {selection.round}, not {number}; restore it from a backup")
        return selection

    def read_chosen(self, number: int) -> Chosen:
        """Read the predictions for the examples of a round; raises DataError if the file is damaged."""
        return Chosen.from_bytes(*self._read_drawn(number, PREDICTIONS))

    def _read_drawn(self, number: int, name: str) -> tuple[bytes, str]:
        """Return the content of a file of a round, and its URI."""
        draw = self.draw_of(number)
        folder = self.folder(number, draw)
        data = self._drawn.get((draw.folder, name)) or read_kept(folder, draw.files, name)
        if self._seen is not None:
            self._drawn[draw.folder, name] = data
        return data, folder.uri_of(name)

    def draw_of(self, number: int) -> Draw:
        """Return the draw of a round; raises DataError if it belongs to another run, or a round has several."""
        draw, *others = (draw for _, draw in self.logged(Draw, number))
        if others or draw.run != self.header.digest:
            raise DataError(f"round {number} of {self.uri} was drawn twice, or for another run; restore {LOG}")
        return draw

    def write_round(self, selection: Selection, chosen: Chosen, manifests: dict[str, bytes], closing: Closing) -> None:
        """Create a round with all its files; ``closing`` returns what the draw closes.

        Raises LabelError if another command drew another round of this number first.
        """
        number = selection.round
        files = {SELECTION: selection.to_json(), PREDICTIONS: chosen.to_bytes()}
        own = Draw.of(files, self.header.digest, self.complete_features().digest)
        folder = self.folder(number, own)
        folder.write_many(files.items(), THREADS)
        for name, data in manifests.items():
            folder.create(name, data)  # one of the same draw, which a person may have filled in, stays
        keys = {f"{ROUNDS}{number}/{own.folder}/{name}": file.sha256 for name, file in own.files.items()}

        def decide(commits: tuple[Commit, ...]) -> Happening | None:
            now = self.at(commits)
            drawn = [draw for _, draw in now.logged(Draw, number)]
            if not drawn:
                return Happening([*closing(now), own], number, keys)
            if drawn == [own]:
                return None
            raise LabelError(
                f"another `opacc {'next' if number > 1 else 'run'}` drew round {number} of {self.uri} first; label "
                "those examples, or run the command again to continue from there"
            )

        self.log.append(decide)

    def manifests(self, number: int) -> list[str]:
        """Return the URIs of a round's manifests."""
        folder = self.folder(number)
        return [folder.uri_of(entry.key) for entry in folder.list(MANIFEST)]

    # -- labels ------------------------------------------------------------------------------------------

    def write_labels(self, number: int, name: str, data: bytes) -> dict[str, str]:
        """Store a file of labels unchanged; returns its digest by its key, which is named by the digest."""
        key = f"{ROUNDS}{number}/labels/{name_of_labels(name, data)}"
        self.store.write(key, data)
        return {key: digest_of(data)}

    def read_closed(self, number: int) -> list[str] | None:
        """Return the ids without a label at the closing of a round; None while it is open."""
        digest = self._selection_digest(number)
        closed = [item for _, item in self.logged(ClosedRound) if item.selection == digest]
        return list(dict.fromkeys(id for item in closed for id in item.given_up)) if closed else None

    def closing(self, number: int, given_up: Sequence[str]) -> ClosedRound:
        """Return the document that gives up the missing labels of a round."""
        return ClosedRound(selection=self._selection_digest(number), given_up=list(given_up))

    def _selection_digest(self, number: int) -> str:
        return self.draw_of(number).files[SELECTION].sha256

    def goals(self) -> dict[int, Goal]:
        """Return the last answer of `opacc next --until` after each round that has one, by round."""
        goals = {commit.round: goal for commit, goal in self.logged(Goal) if commit.round}
        return {number: goals[number] for number in sorted(goals)}

    def newest_goal(self, *, reached: bool) -> Goal | None:
        """Return the newest goal of `opacc next --until` if it was ``reached``, or if it was not."""
        goal = next(reversed(self.goals().values()), None)
        return goal if goal is not None and goal.reached is reached else None

    def write_goal(self, goal: Goal) -> None:
        """Log an answer of `opacc next --until` with the last round that it covers."""
        number = goal.looks[-1].round
        happened = Happening([goal], number)
        self.log.append(lambda commits: None if self.at(commits).goals().get(number) == goal else happened)

    # -- result ------------------------------------------------------------------------------------------

    def results(self, out: str | None = None) -> Store:
        """Return the folder for results: the prefix of the run, or ``out``."""
        return self.store if out is None else open_store(out)

    def write_estimate(self, estimate: AccuracyEstimate) -> None:
        """Keep an estimate, and log it unless it is the newest one already."""
        data = estimate.to_bytes()
        digest = digest_of(data)
        key = f"estimates/{digest[:16]}.json"
        self.store.write(key, data)

        def decide(commits: tuple[Commit, ...]) -> Happening | None:
            last = self.at(commits).logged(Stated)
            if last and last[-1][0].files == {key: digest}:
                return None
            return Happening([Stated(value=estimate.value)], files={key: digest})

        self.log.append(decide)
        self.store.write(ESTIMATE, data)

    def estimates(self) -> list[tuple[Commit, AccuracyEstimate]]:
        """Read all estimates that were stated, in their order; raises DataError as :meth:`read_estimate`."""
        return [(commit, self._estimate_of(commit)) for commit, _ in self.logged(Stated)]

    def read_estimate(self) -> AccuracyEstimate | None:
        """Read the newest estimate, None if there is none; raises DataError if it is damaged or of another run."""
        stated = self.logged(Stated)
        return self._estimate_of(stated[-1][0]) if stated else None

    def _estimate_of(self, commit: Commit) -> AccuracyEstimate:
        [(key, digest)] = commit.files.items()
        remedy, data, source = AccuracyEstimate.remedy, self.store.read_if_there(key), self.store.uri_of(key)
        if data is None:
            raise DataError(f"{source} is lost; {remedy}")
        if digest_of(data) != digest:
            raise DataError(f"{source} was changed since it was written; {remedy}")
        estimate = AccuracyEstimate.from_bytes(data, source)
        if estimate.run.rpartition("/")[2] != self.name:
            raise DataError(f"{source} belongs to the run {estimate.run}; {remedy}")
        return estimate

    def read_document(self, kind: type[AnyDocument], key: str) -> AnyDocument | None:
        """Read a document below the prefix of the run; None if it does not exist, DataError if it is damaged."""
        data = self.store.read_if_there(key) if self.store.exists(key) else None  # another command may delete it
        return None if data is None else kind.from_bytes(data, self.store.uri_of(key))


# -- the header of a new run ---------------------------------------------------------------------------------------

PACKAGES = ("opacc_ray", "numpy", "torch", "ray", "pyarrow", "boto3")


def header_of(
    spec: Spec, plan: Plan, compared: Plan | None, features: FeatureLink | None = None, code: Code | None = None
) -> RunHeader:
    """Return the header of a spec's run, with a digest of everything that decides the result.

    Parameters
    ----------
    spec : the spec with the digest of its weights
    plan, compared : shards of the pool, and of the reference if a feature is compared with one
    features : the shared set of features; None: the run's own prefix
    code : the code that makes the features; None if the pool contains them
    """
    identity = {"spec": spec.identity(), "pool": plan.digest, "features": FEATURES_FORMAT}
    if compared is not None:
        identity["reference"] = compared.digest
    if code is not None:
        identity["code"] = code.model_dump()
    return RunHeader(
        spec=spec,
        digest=hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest(),
        pool=PoolListing(
            digest=plan.digest,
            num_files=len(plan.entries),
            num_shards=len(plan.shards),
            version=plan.version,
            data_as_of=None if plan.data_as_of is None else plan.data_as_of.isoformat(),
            ignored=[IgnoredFiles(kind=kind, num_files=num, first=list(first)) for kind, num, first in plan.ignored],
        ),
        reference=None if compared is None else ReferenceListing(digest=reference.digest(spec, compared, code)),
        features=features,
        code=code,
        model=ModelDigest(sha256=spec.model.sha256),
        versions=dict(versions()),
        git_commit=_git_commit(),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def located(spec: Spec) -> Spec:
    """Return the spec with absolute paths, which workers on other machines understand as well."""
    model, reference = spec.model, spec.reference
    files = {key: getattr(model, key) for key in ("weights", "program")}
    model = model.model_copy(update={key: absolute(uri) for key, uri in files.items() if uri is not None})
    if reference is not None:
        labels = reference.labels and absolute(reference.labels)
        reference = reference.model_copy(update={"uri": absolute(reference.uri), "labels": labels})
    pool = spec.pool.model_copy(update={"uri": absolute(spec.pool.uri)})
    sample = spec.sample
    if sample.models:
        sample = sample.model_copy(update={"models": [absolute(uri) for uri in sample.models]})
    history = [absolute(uri) for uri in spec.history] if isinstance(spec.history, list) else spec.history
    update = {"history": history, "pool": pool, "model": model, "reference": reference, "sample": sample}
    return spec.model_copy(update=update | {"output": absolute(spec.output)})


def checked_weights(spec: Spec) -> Spec:
    """Return the spec with the digest of its weights; raises SpecError if it expects another one."""
    file = spec.model.weights or spec.model.program
    if file is None:
        return spec
    try:
        digest = hashlib.sha256(read_uri(file)).hexdigest()
    except StorageError as error:
        key = "weights" if spec.model.weights else "program"
        raise type(error)(f"model.{key}: {error}") from None
    if spec.model.sha256 not in (None, digest):
        raise SpecError(
            f"model.sha256: {file} has digest {digest}, and the spec expects {spec.model.sha256}; "
            "give those weights, or correct the spec"
        )
    return spec.model_copy(update={"model": spec.model.model_copy(update={"sha256": digest})})


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the main packages; not to be changed."""
    texts = {"python": platform.python_version()} | dict.fromkeys(PACKAGES, "not installed")
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # imported from a working directory that was sent to a cluster
            texts[name] = version(name)
    return texts


def _git_commit() -> str | None:
    """Return the git commit of the working directory, if it is a repository."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
