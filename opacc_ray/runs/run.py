"""Read and write a run: the files below its prefix in storage, which docs/reference.md lists.

The log decides (commit_log.py): the rest is read where it says so, and compared with the digests that it has.

Each round learns from the labels of the rounds before it, and all give one estimate. No draw uses labels of examples
that another design chose, because the estimate assumes a design that does not.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from opacc_ray.documents import Document
from opacc_ray.errors import DataError, LabelError
from opacc_ray.extract.feature_set import Complete, FeatureReader, Index, feature_set
from opacc_ray.extract.shards import finished_shards
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs import draws
from opacc_ray.runs.commit_log import FOLDER as LOG
from opacc_ray.runs.commit_log import Commit, CommitLog, Happening, digest_of, name_of_labels
from opacc_ray.runs.draws import Chosen
from opacc_ray.runs.estimate_documents import AccuracyEstimate, Stated
from opacc_ray.runs.run_documents import ClosedRound, Draw, Goal, RunHeader
from opacc_ray.selection import Selection

AnyDocument = TypeVar("AnyDocument", bound=Document)
Closing = Callable[["Run"], Sequence[ClosedRound]]
"""What a draw closes, of the run as it is when the draw is logged."""

HEADER, ESTIMATE, ROUNDS = "spec.json", "estimate.json", "rounds/"


_FILES = "listing|estimate|report|characterization|failure|sanity|spec"
_FOLDERS = "features|reference|history|rounds|labels|log|estimates|signatures|figures|generated|characterized-test"
RUN_FILES = re.compile(rf"(?:{_FILES})\.(?:json|parquet|html|md)|(?:{_FOLDERS})/.*", re.DOTALL)
"""Keys of the files of a run, below its prefix."""


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
        found = self.read_features()
        if found is None:
            raise DataError(f"the features of {self.uri} are incomplete; run its spec again, finished shards are kept")
        return found

    def read_index(self) -> Index | None:
        """Read the index of the features; None while extraction is incomplete."""
        found = self.read_features()
        return found.index if found else None

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
        data, source = self._read_drawn(number, draws.SELECTION)
        selection = draws.decode_selection(data, source)
        if selection.round != number:
            raise DataError(f"{source} belongs to round {selection.round}, not {number}; restore it from a backup")
        return selection

    def read_chosen(self, number: int) -> Chosen:
        """Read the predictions for the examples of a round; raises DataError if the file is damaged."""
        return draws.decode_chosen(*self._read_drawn(number, draws.PREDICTIONS))

    def _read_drawn(self, number: int, name: str) -> tuple[bytes, str]:
        """Return the content of a file of a round, and its URI."""
        draw = self.draw_of(number)
        folder = self.folder(number, draw)
        data = self._drawn.get((draw.folder, name)) or draws.read_file(folder, draw, name)
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
        files = {draws.SELECTION: selection.to_json(), draws.PREDICTIONS: draws.encode_chosen(chosen)}
        own = draws.describe(files, self.header.digest, self.complete_features().digest)
        folder = self.folder(number, own)
        folder.write_many(files.items(), draws.THREADS)
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
        return [folder.uri_of(entry.key) for entry in folder.list(draws.MANIFEST)]

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
        return self.draw_of(number).files[draws.SELECTION].sha256

    def goals(self) -> dict[int, Goal]:
        """Return the last answer of `opacc next --until` after each round that has one, by round."""
        found = {commit.round: goal for commit, goal in self.logged(Goal) if commit.round}
        return {number: found[number] for number in sorted(found)}

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
        found = AccuracyEstimate.from_bytes(data, source)
        if found.run.rpartition("/")[2] != self.name:
            raise DataError(f"{source} belongs to the run {found.run}; {remedy}")
        return found

    def read_document(self, kind: type[AnyDocument], key: str) -> AnyDocument | None:
        """Read a document below the prefix of the run; None if it does not exist, DataError if it is damaged."""
        data = self.store.read_if_there(key) if self.store.exists(key) else None  # another command may delete it
        return None if data is None else kind.from_bytes(data, self.store.uri_of(key))
