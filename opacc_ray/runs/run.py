"""Read and write a run: the files below its prefix in storage, which docs/reference.md lists.

The log decides (run_documents.py): the rest is read where it says so, and compared with the digests that it has.

    rounds/2/DIGEST/    selection, predictions and manifests of one draw; DIGEST is computed from the first two

A draw happens when the log names it. All reads use the folder of the draw and compare digests. So files of two draws
never mix, however many commands draw at the same time. Manifests are for people, who may fill them in: no command reads
one of a round.

A run is identified by the digest of everything that decides its result: the same spec and data give the same run.

Each round learns from the labels of the rounds before it, and all give one estimate. No draw uses labels of examples
that another design chose, because the estimate assumes a design that does not.

A sampler gets a view of the features; a chosen example gets its place, its prediction, and the object that holds it.
The model processed the objects as they were listed; annotators see those of today. If the tag of an object (its ETag,
or its time and size) has changed, the label belongs to another picture than the prediction.
"""

import hashlib
import json
import logging
import platform
import re
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.documents import Document
from opacc_ray.errors import DataError, LabelError, OpaccError, SpecError, StorageError, shortened
from opacc_ray.extract import reference
from opacc_ray.extract.feature_files import Features, StoredParts, TooLarge
from opacc_ray.extract.feature_set import Complete, FeatureLink, FeatureReader, Index, feature_set
from opacc_ray.extract.inference import refusal
from opacc_ray.extract.model_code import Code
from opacc_ray.extract.shards import FEATURES_FORMAT, finished_shards
from opacc_ray.extract.table_columns import with_slices
from opacc_ray.lake import pools
from opacc_ray.lake.examples import BadItem, Plan
from opacc_ray.lake.parquet_io import encode, numbers, read_bytes, texts, to_numpy
from opacc_ray.lake.store import Entry, in_order
from opacc_ray.lake.store_uris import Store, absolute, open_store, read_uri
from opacc_ray.parts.view import Call, Parts, View
from opacc_ray.pool import COLUMNS
from opacc_ray.runs.run_documents import FOLDER as LOG
from opacc_ray.runs.run_documents import (
    AccuracyEstimate,
    ChangedObjects,
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
    Stated,
    digest_of,
    name_of_labels,
)
from opacc_ray.samplers import METHODS
from opacc_ray.selection import Selection
from opacc_ray.spec import Spec, open_pool, plan_pool, rules_of

log = logging.getLogger(__name__)

AnyDocument = TypeVar("AnyDocument", bound=Document)
Closing = Callable[["Run"], Sequence[ClosedRound]]
"""What a draw closes, of the run as it is when the draw is logged."""

HEADER, ESTIMATE, ROUNDS = "spec.json", "estimate.json", "rounds/"


_FILES = "listing|estimate|report|characterization|extraction|failure|sanity|spec"
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
        return encode(pa.table(columns))

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> "Chosen":
        """Read ``predictions.parquet``; raises DataError, which names ``source``, if it is something else."""
        import pyarrow as pa

        try:
            table = read_bytes(data)
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


# -- features of a run, and the objects of its pool ------------------------------------------------------------------


MEMORY_LIMIT = 2 << 30
"""Bytes of layers and coverage above which actors hold them instead of this process."""

SAMPLE = 1 << 24
"""Maximum of examples that are read to summarize a column."""

LISTING = "listing.parquet"
BEYOND = b"beyond_content"  # key of its metadata: what the table says of the files, as JSON

LISTED_AT_ONCE = 40
"""Objects listed in the time of one request: a page of 1,000 takes as long as 25 parallel requests."""

NAMED = 5
"""Number of objects that are named; the others are counted."""


# -- views -----------------------------------------------------------------------------------------------------


def unchanged_plan(run: Run) -> Plan:
    """List the pool of a run as extraction read it; raises DataError if it has changed since."""
    pool = run.spec.pool
    plan = plan_pool(pool, run.spec.extract)
    if plan.digest != run.header.pool.digest:
        raise DataError(
            f"the pool {pool.uri} has changed since it was listed for the run; run the spec again, or restore its files"
        )
    return plan


@contextmanager
def open_view(
    run: Run, names: Sequence[str], optional: Sequence[str] = (), instead: Mapping[str, str] | None = None
) -> Iterator[View]:
    """Open a view of the named features for a sampler, in this process if they fit, otherwise in actors.

    Each feature is read at its first use, and ids only for chosen rows. Parts have the slices of the spec.

    Parameters
    ----------
    names : features that must exist
    optional : features that are included if the run has them
    instead : how to avoid a feature, by its name, for the error if it is missing
    """
    complete = _features_of(run)
    columns = with_slices(run.spec.pool, complete) if run.spec.pool.slice_rules else complete.features
    features, index = columns.holding(), complete.index
    _refuse_missing(run, index, names, instead or {})
    held = [name for name in optional if name in index.features]
    wanted = tuple(dict.fromkeys([*names, *held, "prediction"]))
    layers = [name for name in wanted if name not in COLUMNS]
    width = sum(index.features[name] * (1 if name == "coverage" else 4) for name in layers)  # bytes per example
    if index.num_examples * width <= MEMORY_LIMIT:
        yield View(StoredParts(features, wanted), features.derived)
        return
    with ExitStack() as actors:
        yield View(_LateActors(features, wanted, layers, actors), features.derived)


class _LateActors(StoredParts):
    """Parts that move to actors once a function needs features that are too large for this process.

    Results that were kept here are lost then: see :mod:`opacc_ray.parts.view`.
    """

    def __init__(self, features: Features, names: Sequence[str], layers: Sequence[str], actors: ExitStack) -> None:
        super().__init__(features, names, layers)
        self._actors = actors
        self._held: Parts | None = None

    def call(self, calls: Sequence[Call]) -> list[Any]:
        if self._held is None:
            with suppress(TooLarge):
                return super().call(calls)
        return self._hold().call(calls)

    def total(self, calls: Sequence[Call]) -> Any:
        if self._held is None:
            with suppress(TooLarge):
                return super().total(calls)
        return self._hold().total(calls)

    def _hold(self) -> Parts:
        if self._held is None:
            from opacc_ray.cluster.session import connected

            self._actors.enter_context(connected())
            from opacc_ray.cluster.tasks import hold  # imports Ray, which reads its token mode then

            self._held = self._actors.enter_context(hold(self._features, self._names))
        return self._held


# -- rows and columns ------------------------------------------------------------------------------------------


def find_chosen(run: Run, selection: Selection, labelled: Collection[str]) -> Chosen:
    """Return what is stored of the chosen examples, from the shards that contain them, given the labelled ids."""
    table = _features_of(run).features.take(["uri", "prediction"], selection.index)
    uris, predictions = table["uri"].to_pylist(), table["prediction"].to_pylist()
    listing, root = read_listing(run), f"{open_pool(run.spec.pool).uri}/"
    places = [uri.removeprefix(root) for uri in uris]  # KEY, or KEY#row=7 for a row of an array file
    entries = [listing.get(place) or listing.get(place.rpartition("#")[0]) for place in places]
    keys, tags = [entry and entry.key for entry in entries], [entry and entry.tag for entry in entries]
    return Chosen(list(selection.ids), uris, predictions, keys, tags, [name in labelled for name in selection.ids])


def find_rows(run: Run, index: NDArray[np.int64]) -> tuple[list[str], list[Any]]:
    """Return ids and predictions of the examples at ``index`` (n,)."""
    table = _features_of(run).features.take(["id", "prediction"], index)
    return table["id"].to_pylist(), table["prediction"].to_pylist()


def check_drawn_from(run: Run, numbers: Sequence[int]) -> None:
    """Raise DataError if the rounds of a run were drawn from the features of another model.

    Features that were extracted again may differ in their last bits; then only the chosen examples are compared.
    """
    if run.draw_of(numbers[-1]).features == _features_of(run).digest:
        return
    for number in numbers:
        check_chosen(run, run.read_selection(number))
    log.warning("the features of %s were extracted again after round %d was drawn from them", run.uri, numbers[-1])


def check_chosen(run: Run, selection: Selection) -> None:
    """Compare ids and predictions of a round with the features; raises DataError if they differ."""
    chosen = run.read_chosen(selection.round)
    rows = zip(selection.ids, chosen.ids, chosen.predictions, *find_rows(run, selection.index), strict=True)
    for name, here, said, found, own in rows:
        if (name, name, said) != (here, found, own):
            raise DataError(
                f"round {selection.round} of {run.uri} has {name!r} with the prediction {said!r} where its features "
                f"have {found!r} with {own!r}; restore the round, or the features"
            )


def read_rows(run: Run, names: Sequence[str], index: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return the named features that the run has, (k, ...) each, of the examples at ``index`` (k,)."""
    complete = _features_of(run)
    table = complete.features.take([name for name in names if name in complete.index.features], index)
    return {name: to_numpy(table[name]) for name in table.column_names}


def find_known(run: Run, ids: Sequence[str]) -> dict[str, Any]:
    """Return a run's predictions by id, of those examples that are in its pool."""
    features = _features_of(run).features
    places = features.places(ids)
    values = features.take(["prediction"], np.array(list(places.values()), dtype=np.int64))["prediction"].to_pylist()
    return dict(zip(places, values, strict=True))


def find_predictions(run: Run, ids: Sequence[str]) -> list[Any]:
    """Return a run's predictions for some examples, found by id.

    Raises DataError if an example is not in the pool; the message names the first.
    """
    predictions = find_known(run, ids)
    absent = [name for name in dict.fromkeys(ids) if name not in predictions]
    if absent:
        raise DataError(
            f"{run.uri} lacks {len(absent)} of {len(set(ids))} labelled examples, the first {absent[0]!r}; "
            "give a run on the same pool, with the same ids"
        )
    return [predictions[name] for name in ids]


def read_column(run: Run, name: str) -> NDArray[Any]:
    """Return one number per example, (N,), in the order of the pool; reads no other feature."""
    complete = _features_of(run)
    _refuse_missing(run, complete.index, [name], {})
    return complete.features.column(name)


def read_sample(run: Run, name: str) -> NDArray[Any]:
    """Return one number per example, (k,): of the whole pool, or of evenly spread files of a very large pool."""
    features = _features_of(run).features
    step = -(-sum(features.sizes) // SAMPLE)
    return features.column(name) if step <= 1 else features.part(features.files[::step]).column(name)


def read_tables(run: Run) -> Iterator[Any]:
    """Yield ids, places and all features of the pool, file by file, as Arrow tables."""
    complete = _features_of(run)
    return complete.features.tables(["id", "uri", *complete.index.features])


def predicted_classes(run: Run) -> dict[int, int] | None:
    """Return the number of predictions of each class in the pool; None if the index lacks it."""
    return _features_of(run).index.predicted


def check_fit(spec: Spec, index: Index) -> None:
    """Raise DataError if complete features do not fit a spec.

    The spec names fewer classes than the model predicts, or does not allow examples that were left out.
    """
    refuse_nameless(spec, index, spec.pool.uri)
    if index.bad and spec.extract.on_bad_item == "error":
        raise refusal(spec, spec.pool, BadItem(index.bad[0].id, index.bad[0].reason))


def refuse_nameless(spec: Spec, index: Index, uri: str) -> None:
    """Raise DataError if the model predicts a class of the data at ``uri`` that the spec does not name."""
    classes = spec.model.classes
    if classes is not None and index.predicted and max(index.predicted) >= len(classes):
        raise DataError(
            f"the model predicts class {max(index.predicted)} in {uri}, and model.classes names "
            f"{len(classes)} classes, 0 to {len(classes) - 1}; name all classes, in the order of the model"
        )


def _refuse_missing(run: Run, index: Index, names: Sequence[str], instead: Mapping[str, str]) -> None:
    missing = next((name for name in names if name not in index.features), None)
    if missing is not None:
        ways = [run.spec.remedy(missing), *([instead[missing]] if missing in instead else [])]
        raise SpecError(f"{run.uri} has {', '.join(index.features)}, not {missing}; {', or '.join(ways)}")


def _features_of(run: Run) -> Complete:
    complete = run.complete_features()
    check_fit(run.spec, complete.index)
    return complete


# -- objects of the pool ---------------------------------------------------------------------------------------


def write_listing(run: Run, plan: Plan) -> None:
    """Write the listing of the run's digest, unless it is stored and undamaged."""
    import pyarrow as pa

    entries = plan.entries
    if not entries or plan.digest != run.header.pool.digest:
        return
    try:
        if run.store.exists(LISTING):
            read_listing(run)
            return
    except DataError as error:
        log.warning("%s; it is written again", str(error).partition("; ")[0])
    keys, sizes, tags = zip(*entries, strict=True)
    columns = {"key": texts(keys), "size": numbers(np.array(sizes)), "tag": texts(tags)}
    beyond = pools.beyond_content(plan)
    table = pa.table(columns, metadata={BEYOND: json.dumps(beyond)} if beyond else None)
    run.store.write(LISTING, encode(table, compression="zstd", write_page_checksum=True))


def read_listing(run: Run) -> dict[str, Entry]:
    """Read the listing by key, empty if none is stored; raises DataError unless it fits the run's digest."""
    import pyarrow as pa

    if not run.store.exists(LISTING):
        return {}
    source = run.store.uri_of(LISTING)
    try:
        table = read_bytes(run.store.read(LISTING))
        entries = [Entry(*row) for row in zip(*(table[name].to_pylist() for name in Entry._fields), strict=True)]
        beyond = json.loads((table.schema.metadata or {}).get(BEYOND, b"[]"))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        reason = shortened(str(error))
        raise DataError(f"{source} is no listing ({reason}); run the spec again, which writes it anew") from None
    if pools.digest_of(entries, beyond) != run.header.pool.digest:
        raise DataError(
            f"{source} is not the listing that the run was made of; run the spec again, which writes it anew"
        )
    return {entry.key: entry for entry in entries}


def compare_objects(run: Run, rounds: Sequence[Chosen]) -> tuple[ChangedObjects, dict[str, str]]:
    """Find objects of chosen examples that changed or vanished after the pool was listed.

    Uses one listing of the pool, or one request per object, whichever is faster. An unreachable pool raises no error:
    the result then has the reason why nothing was compared.

    Returns the objects in numbers, and by the key of each such object ``"changed"`` or ``"lost"``.
    """
    tags = {key: tag for chosen in rounds for key, tag in zip(chosen.objects, chosen.tags, strict=True) if key and tag}
    unknown = len({name for chosen in rounds for name, tag in zip(chosen.ids, chosen.tags, strict=True) if not tag})
    try:
        now = _tags(run, tags.keys()) if tags else {}
        version = _newer_version(run)
    except OpaccError as error:
        return ChangedObjects(changed=0, lost=0, unknown=len(tags) + unknown, first=[], reason=str(error)), {}
    states = {key: "changed" if key in now else "lost" for key, tag in tags.items() if now.get(key) != tag}
    lost = sum(state == "lost" for state in states.values())
    first = sorted(states)[:NAMED]
    objects = ChangedObjects(changed=len(states) - lost, lost=lost, unknown=unknown, first=first, version=version)
    return objects, states


def find_changed(run: Run, numbers: Sequence[int] | None = None) -> ChangedObjects:
    """Count changed and lost objects of the chosen examples of a run, in the given rounds or in all of them."""
    return compare_objects(run, list(map(run.read_chosen, run.rounds() if numbers is None else numbers)))[0]


def _newer_version(run: Run) -> str | None:
    """Return the current version of the pool's table if it differs from the run's and the spec pins none."""
    pool = run.spec.pool
    if run.header.pool.version is None or isinstance(pool.version, int) or pool.timestamp:
        return None
    newest = pools.newest_version(open_pool(pool), pool.format, rules_of(pool))
    return None if newest == run.header.pool.version else newest


def _tags(run: Run, keys: Collection[str]) -> dict[str, str]:
    """Return the tag of each object that exists."""
    store = open_pool(run.spec.pool)
    num_files = run.header.pool.num_files
    if num_files is not None and num_files <= LISTED_AT_ONCE * len(keys):
        return {entry.key: entry.tag for entry in store.list() if entry.key in keys}
    return {entry.key: entry.tag for entry in in_order(store.entry, list(keys)) if entry}
