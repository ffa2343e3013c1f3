"""Read and write a run: the files below its prefix in storage, which docs/reference.md lists.

The log decides (commit_log.py): the rest is read where it says so, and compared with the digests that it has.

A track is a series of rounds: each round learns from the labels of the rounds before it, and all give one estimate. The
first track has no name. A label belongs to an example, so it counts in every track that chose the example. But no draw
uses labels of another track, because the estimate assumes a design that does not.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from opacc_ray.documents import Document
from opacc_ray.errors import DataError, LabelError, SpecError, shown
from opacc_ray.extract.feature_set import Complete, FeatureReader, Index, feature_set
from opacc_ray.extract.shards import finished_shards
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs import draws
from opacc_ray.runs.commit_log import FOLDER as LOG
from opacc_ray.runs.commit_log import Commit, CommitLog, Happening, digest_of, name_of_labels
from opacc_ray.runs.draws import Chosen, Snapshot
from opacc_ray.runs.earlier_layout import happened_before
from opacc_ray.runs.estimate_documents import AccuracyEstimate, Stated
from opacc_ray.runs.run_documents import ClosedRound, Draw, Goal, RunHeader
from opacc_ray.selection import Selection

AnyDocument = TypeVar("AnyDocument", bound=Document)
Closing = Callable[["Run"], Sequence[ClosedRound]]
"""What a draw closes, of the run as it is when the draw is logged."""

HEADER, ESTIMATE, TRACKS = "spec.json", "estimate.json", "tracks/"

_TRACK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Run:
    """One audit in storage, on one of its tracks: the one whose rounds and estimate are read; None: the first one."""

    def __init__(
        self,
        store: Store,
        header: RunHeader,
        track: str | None = None,
        reader: FeatureReader | None = None,
        log: CommitLog | None = None,
        seen: tuple[Commit, ...] | None = None,
    ) -> None:
        self.store, self.header, self.spec = store, header, header.spec
        self.log = log or CommitLog(store, header.digest, lambda: happened_before(store, header.created))
        self._seen = seen  # what this run sees of its log; None: all of it, whenever it looks
        self.feature_set = feature_set(store, header.features)
        self.features = self.feature_set.folder
        self._reader = reader or FeatureReader(self.feature_set.read, self.feature_set.tags)
        self.track = track
        self._folder = "" if track is None else f"{TRACKS}{track}/"

    @classmethod
    def open(cls, uri: str, track: str | None = None) -> "Run":
        """Open the run at ``uri`` on a track.

        Raises DataError if there is no run; SpecError if the run has no such track.
        """
        store = open_store(uri)
        header = store.read_if_there(HEADER)
        if header is None:
            raise DataError(f"there is no run at {store.uri} (no {HEADER}); give the URI that `opacc run` printed")
        run = cls(store, RunHeader.from_bytes(header, store.uri_of(HEADER)))
        return run if track is None else run.find_track(track)

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

    # -- tracks ------------------------------------------------------------------------------------------

    def tracks(self) -> list["Run"]:
        """Return the run on each of its tracks: the first track, then the others by name, even without rounds."""
        names = {commit.track for commit in self.commits if commit.track is not None}
        return [self.along(None), *map(self.along, sorted(names))]

    def along(self, track: str | None) -> "Run":
        """Return the run on a track that need not exist; raises SpecError if the name is not valid."""
        if track is not None and not _TRACK_NAME.fullmatch(track):
            raise SpecError(
                f"--track {shown(track)}: give a name of 1 to 64 letters, digits, '.', '_' and '-', such as ces-200"
            )
        return Run(self.store, self.header, track, self._reader, self.log, self._seen)

    def snapshot(self) -> "Run":
        """Return the run as it is now, so that rounds and labels are listed and read only once."""
        there = Snapshot(self.store, {place: self.store.list(place) for place in ("rounds/", TRACKS)})
        return Run(there, self.header, self.track, self._reader.once(), self.log, self.commits)

    def at(self, commits: tuple[Commit, ...]) -> "Run":
        """Return the run as it was when its log had these entries."""
        return Run(self.store, self.header, self.track, self._reader, self.log, commits)

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
        """Return the documents of a kind in the log of the track, or of one of its rounds, in their order."""
        return [
            (commit, document)
            for commit in self.commits
            if commit.track == self.track and number in (None, commit.round)
            for document in commit.documents(kind)
        ]

    def find_track(self, name: str) -> "Run":
        """Return the run on an existing track; raises SpecError if there is no such track."""
        named = self.along(name)
        if not named.rounds():
            others = ", ".join(str(run.track) for run in self.tracks()[1:])
            raise SpecError(
                f"{self.uri} has no track {name!r}, {f'only {others}' if others else 'only the main one'}; "
                f"start it with `opacc select RUN --track {name}`"
            )
        return named

    @property
    def title(self) -> str:
        """URI of the run, and its track if that is not the first one, for messages."""
        return self.uri if self.track is None else f"{self.uri} (track {self.track})"

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
            raise LabelError(f"{self.title} has no selection yet; run its spec, or `opacc select`")
        return numbers

    def key_of(self, place: str) -> str:
        """Return the key, below the prefix of the run, of a place among the rounds of the track."""
        return f"{self._folder}rounds/{place}"

    def folder(self, number: int) -> Store:
        """Return the folder of a round."""
        return self.store.store(self.key_of(str(number)))

    @property
    def drawn_for(self) -> str:
        """Owner of the track's draws: the digest of the run, and the track if it is not the first one."""
        return self.header.digest if self.track is None else f"{self.header.digest}/{self.track}"

    def drawn_at(self, number: int) -> datetime:
        """Return when a round was last drawn."""
        return datetime.fromisoformat(self.logged(Draw, number)[-1][0].at)

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
        """Return the content of a file of a round as it was drawn, and the URI of its copy."""
        folder = self.folder(number)
        return draws.read_file(folder, self.newest_draw(number), name), folder.uri_of(name)

    def newest_draw(self, number: int) -> Draw:
        """Return the draw of a round that counts; raises DataError if it belongs to another run or track."""
        draw = self.logged(Draw, number)[-1][1]
        if draw.run != self.drawn_for:
            raise DataError(f"round {number} of {self.title} was drawn for another run or track; restore {LOG}")
        return draw

    def write_round(
        self, selection: Selection, chosen: Chosen, manifests: dict[str, bytes], before: int, closing: Closing
    ) -> None:
        """Create a round with all its files, or draw it again after ``before`` earlier draws.

        ``closing`` returns what the draw closes. Raises LabelError if another command drew the round first.
        """
        number, folder = selection.round, self.folder(selection.round)
        files = {draws.SELECTION: selection.to_json(), draws.PREDICTIONS: draws.encode_chosen(chosen)} | manifests
        own = draws.describe(files, self.drawn_for, self.complete_features().digest)
        folder.store(own.folder).write_many(files.items(), draws.THREADS)
        keys = {self.key_of(f"{number}/{own.folder}/{name}"): file.sha256 for name, file in own.files.items()}

        def decide(commits: tuple[Commit, ...]) -> Happening | None:
            now = self.at(commits)
            drawn = [draw for _, draw in now.logged(Draw, number)]
            if len(drawn) == before:
                return Happening([*closing(now), own], self.track, number, keys)
            if drawn[-1] == own:
                return None
            raise LabelError(
                f"another `opacc {'next' if number > 1 and not before else 'select'}` drew round {number} of "
                f"{self.title} first; label those examples, or run the command again to continue from there"
            )

        self.log.append(decide)
        newest = self.newest_draw(number)
        if newest == own:
            draws.copy(folder, files)
        else:
            draws.publish(folder, newest)

    def restore_copies(self, number: int) -> list[str]:
        """Restore the copies of a round's files; returns the URIs of those that were lost or changed."""
        folder = self.folder(number)
        return [folder.uri_of(name) for name in draws.publish(folder, self.newest_draw(number))]

    def check_copies(self, number: int) -> None:
        """Raise DataError if a copy that people see, such as a manifest, differs from what was drawn."""
        draws.check_copies(self.folder(number), self.newest_draw(number))

    def manifests(self, number: int) -> list[str]:
        """Return the URIs of a round's manifests."""
        return [self.store.uri_of(entry.key) for entry in self.store.list(self.key_of(f"{number}/{draws.MANIFEST}"))]

    # -- labels ------------------------------------------------------------------------------------------

    def write_labels(self, number: int, name: str, data: bytes) -> dict[str, str]:
        """Store a file of labels unchanged; returns its digest by its key, which is named by the digest."""
        key = self.key_of(f"{number}/labels/{name_of_labels(name, data)}")
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
        return self.newest_draw(number).files[draws.SELECTION].sha256

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
        happened = Happening([goal], self.track, number)
        self.log.append(lambda commits: None if self.at(commits).goals().get(number) == goal else happened)

    # -- result ------------------------------------------------------------------------------------------

    def results(self, out: str | None = None) -> Store:
        """Return the folder for results of the track, or the folder ``out``."""
        if out is not None:
            return open_store(out)
        return self.store.store(self._folder) if self._folder else self.store

    @property
    def estimate_key(self) -> str:
        return f"{self._folder}{ESTIMATE}"

    def write_estimate(self, estimate: AccuracyEstimate) -> None:
        """Keep an estimate, and log it unless it is the newest one already."""
        data, before = estimate.to_bytes(), self.store.read_if_there(self.estimate_key)
        key, digest = self._kept(data), digest_of(data)
        for own in (before, data):
            if own is not None and not self.store.exists(self._kept(own)):
                self.store.write(self._kept(own), own)

        def decide(commits: tuple[Commit, ...]) -> Happening | None:
            last = self.at(commits).logged(Stated)
            if last and last[-1][0].files == {key: digest}:
                return None
            return Happening([Stated(value=estimate.value)], self.track, files={key: digest})

        self.log.append(decide)
        self.store.write(self.estimate_key, data)

    def _kept(self, data: bytes) -> str:
        return f"{self._folder}estimates/{digest_of(data)[:16]}.json"

    def estimates(self) -> list[tuple[Commit, AccuracyEstimate]]:
        """Read all estimates that were stated, in their order; raises DataError as :meth:`read_estimate`."""
        return [(commit, self._estimate_of(commit)) for commit, _ in self.logged(Stated)]

    def read_estimate(self) -> AccuracyEstimate | None:
        """Read the newest estimate, None if there is none; raises DataError if it is damaged or of another run."""
        stated = self.logged(Stated)
        return self._estimate_of(stated[-1][0]) if stated else None

    def _estimate_of(self, commit: Commit) -> AccuracyEstimate:
        [(key, digest)] = commit.files.items()
        remedy, copy, kept = AccuracyEstimate.remedy, self.store.read_if_there(self.estimate_key), None
        if copy is None or digest_of(copy) != digest:  # it is of a later estimate, or nothing else was kept by 0.2.0
            kept = self.store.read_if_there(key)
        data, source = (copy, self.store.uri_of(self.estimate_key)) if kept is None else (kept, self.store.uri_of(key))
        if data is None:
            raise DataError(f"{source} is lost; {remedy}")
        if digest_of(data) != digest:
            raise DataError(f"{source} was changed since it was written; {remedy}")
        found = AccuracyEstimate.from_bytes(data, source)
        if (found.run.rpartition("/")[2], found.track) != (self.name, self.track):
            track = f", track {found.track}" if found.track else ""
            raise DataError(f"{source} belongs to the run {found.run}{track}; {remedy}")
        return found

    def read_document(self, kind: type[AnyDocument], key: str) -> AnyDocument | None:
        """Read a document below the prefix of the run; None if it does not exist, DataError if it is damaged."""
        data = self.store.read_if_there(key) if self.store.exists(key) else None  # another command may delete it
        return None if data is None else kind.from_bytes(data, self.store.uri_of(key))
