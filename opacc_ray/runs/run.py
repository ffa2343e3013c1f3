"""A run's prefix in storage: what lies where, and reading and writing it.

    spec.json                     the resolved spec, versions, git commit, digests of model and listing
    features/                     features, if the spec names no weights; else in a set beside the runs (feature_set.py)
    reference/                    what features compare with; with weights in the spec, beside the runs (reference.py)
    sanity.json                   what the model predicts, and warnings about it (audit/sanity.py)
    listing.parquet               key, size and tag of every object of the pool, as it was listed
    history/                      what was known before the first label (history.py)
    rounds/1/selection.json       the chosen examples with their design
    rounds/1/predictions.parquet  id, uri, prediction, and the pool object with its tag, of each chosen example, and
                                  whether it had a label when it was chosen
    rounds/1/manifest.*           what annotators get
    rounds/1/draw-1.json, draws/  the three as they were drawn, with their digests (draws.py)
    rounds/1/labels/              the files that came back, as they came
    labels/                       what was done with those files: imports, corrections, withdrawals, rules (log.py)
    rounds/1/closed.json          if the round was closed: the ids that were given up
    rounds/1/goal.json            what `opacc next --until` found after the round, and what it decided
    failure.json                  if the last `opacc run` failed: when and why (failure.py)
    estimate.json
    tracks/NAME/rounds/1/ …       rounds of another track, and their estimate, which lie as those of the first

A track is a series of rounds: each learns from the labels of those before it, and one estimate follows from them. The
first has no name. A label is of an example, so it counts in every track that chose the example; but no draw knows the
labels of another track than its own, because an estimate is that of a design which assumes so.

All of it reads with pyarrow or a JSON parser alone. Objects are written whole or not at all.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath

from opacc_ray.errors import DataError, LabelError, SpecError, shown
from opacc_ray.extract.feature_set import Complete, FeatureReader, feature_set
from opacc_ray.extract.index import Index
from opacc_ray.extract.shards import finished_shards
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs import draws
from opacc_ray.runs.chosen import Chosen, decode, encode
from opacc_ray.runs.documents import AccuracyEstimate, ClosedRound, Goal, RunHeader
from opacc_ray.runs.snapshot import Snapshot
from opacc_ray.selection import Selection
from opacc_ray.spec import Spec

HEADER, ESTIMATE, TRACKS = "spec.json", "estimate.json", "tracks/"

TRACK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Run:
    """One audit under its prefix, along one of its tracks.

    Attributes
    ----------
    store : the prefix of the run.
    track : name of the track whose rounds and estimate are meant; None: the first one.
    """

    def __init__(
        self, store: Store, header: RunHeader, track: str | None = None, reader: FeatureReader | None = None
    ) -> None:
        self.store = store
        self.header = header
        self.feature_set = feature_set(store, header.features)
        self.features = self.feature_set.folder
        self._reader = reader or FeatureReader(self.feature_set.read, self.feature_set.tags)
        self.track = track
        self._folder = "" if track is None else f"{TRACKS}{track}/"

    @classmethod
    def open(cls, uri: str, track: str | None = None) -> "Run":
        """The run at ``uri``, along a track.

        Raises
        ------
        DataError
            There is no run.
        SpecError
            It has no such track.
        """
        store = open_store(uri)
        header = store.read_if_there(HEADER)
        if header is None:
            raise DataError(f"there is no run at {store.uri} (no {HEADER}); give the URI that `opacc run` printed")
        run = cls(store, RunHeader.from_bytes(header, store.uri_of(HEADER)))
        return run if track is None else run.find_track(track)

    @classmethod
    def create(cls, uri: str, header: RunHeader) -> "Run":
        """The run at ``uri``, written with ``header`` unless it exists."""
        store = open_store(uri)
        if not store.exists(HEADER):
            store.write(HEADER, header.to_bytes())
        return cls.open(uri)

    @property
    def spec(self) -> Spec:
        return self.header.spec

    @property
    def uri(self) -> str:
        return self.store.uri

    @property
    def name(self) -> str:
        """The last part of the prefix: manifests name it, and labels that name another run are refused."""
        return self.uri.rpartition("/")[2]

    # -- tracks ------------------------------------------------------------------------------------------

    def tracks(self) -> list["Run"]:
        """The run along each of its tracks, the first one first, then by name; one that lost its rounds included."""
        names = {entry.key.split("/")[1] for entry in self.store.list(TRACKS)}
        return [self.along(None), *(self.along(name) for name in sorted(names) if TRACK_NAME.fullmatch(name))]

    def along(self, track: str | None) -> "Run":
        """The run along a track that need not be there; raises SpecError for a name that none can have."""
        if track is not None and not TRACK_NAME.fullmatch(track):
            raise SpecError(
                f"--track {shown(track)}: give a name of 1 to 64 letters, digits, '.', '_' and '-', such as ces-200"
            )
        return Run(self.store, self.header, track, self._reader)

    def snapshot(self) -> "Run":
        """The run as it is now, for what is read of its rounds and labels more than once."""
        there = Snapshot.of(self.store, ("rounds/", TRACKS, "labels/"))
        return Run(there, self.header, self.track, self._reader.once())

    def find_track(self, name: str) -> "Run":
        """The run along a track that is there; raises SpecError if it is not."""
        named = self.along(name)
        if not named.rounds():
            others = ", ".join(str(run.track) for run in self.tracks()[1:])
            raise SpecError(
                f"{self.uri} has no track {name!r}, {f'only {others}' if others else 'only its first one'}; "
                f"`opacc select RUN --track {name}` opens it"
            )
        return named

    @property
    def title(self) -> str:
        """The run and its track, as messages name them."""
        return self.uri if self.track is None else f"{self.uri} (track {self.track})"

    # -- features ----------------------------------------------------------------------------------------

    def finished_shards(self) -> set[str]:
        """Names of the shards whose features are there."""
        return set.intersection(*(finished_shards(folder) for folder in self.feature_set.folders))

    def read_features(self) -> Complete | None:
        """The features and their index, or None while extraction is not complete."""
        return self._reader.read()

    def complete_features(self) -> Complete:
        """The features and their index; raises DataError while extraction is not complete."""
        found = self.read_features()
        if found is None:
            raise DataError(
                f"the features of {self.uri} are not complete; run its spec again, finished shards are kept"
            )
        return found

    def read_index(self) -> Index | None:
        """The index of features, or None while extraction is not complete."""
        found = self.read_features()
        return found.index if found else None

    @property
    def num_classes(self) -> int | None:
        """How many classes the model tells apart, or None if neither the spec nor the features say."""
        if self.spec.model.task == "regression":
            return None
        named = len(self.spec.model.classes or ())
        index = self.read_index()
        return named or (index.features.get("output") if index else None)

    # -- rounds ------------------------------------------------------------------------------------------

    def rounds(self) -> list[int]:
        """Numbers of the rounds that have a selection; raises DataError if one is lost."""
        keys = (entry.key.removeprefix(self._folder) for entry in self.store.list(self.key_of("")))
        found = (re.fullmatch(r"rounds/(\d+)/(?:selection|draw-\d+)\.json", key) for key in keys)
        numbers = sorted({int(match[1]) for match in found if match})
        lost = set(range(1, max(numbers, default=0) + 1)) - set(numbers)
        if lost:
            raise DataError(f"{self.folder(min(lost)).uri} is lost; restore it from a backup")
        return numbers

    def drawn_rounds(self) -> list[int]:
        """Numbers of the rounds; raises LabelError if there is none, DataError as :meth:`rounds`."""
        numbers = self.rounds()
        if not numbers:
            raise LabelError(f"{self.title} has no selection yet; run its spec, or `opacc select`")
        return numbers

    def key_of(self, place: str) -> str:
        """The key, below the prefix of the run, of what lies at ``place`` among the rounds of the track."""
        return f"{self._folder}rounds/{place}"

    def folder(self, number: int) -> Store:
        """Where a round lies."""
        return self.store.store(self.key_of(str(number)))

    @property
    def drawn_for(self) -> str | None:
        """What draws name as their owner: the digest of the run, and the track if it is not the first."""
        return self.header.digest if self.track is None else f"{self.header.digest or ''}/{self.track}"

    def num_draws(self, number: int) -> int:
        """How often a round was drawn: 0 if it was not, or by version 0.1.0."""
        folder = self.folder(number)
        return len(draws.numbers([entry.key for entry in folder.list()], folder.uri))

    def drawn_at(self, number: int) -> datetime:
        """When a round was drawn, or drawn again, by the clock of the storage."""
        folder = self.folder(number)
        newest = self.num_draws(number)
        return folder.written(draws.name_of(newest) if newest else draws.SELECTION)

    def keep_draw(self, number: int) -> None:
        """Make a round of version 0.1.0 the first draw of its number, so that another may replace it."""
        folder = self.folder(number)
        files = draws.files_of(folder)
        draws.write(folder, 1, draws.describe(files, self.drawn_for), files)

    def read_selection(self, number: int) -> Selection:
        """The selection of a round; raises DataError if its file is damaged."""
        data = self._read_drawn(number, draws.SELECTION)
        return draws.decode_selection(data, self.folder(number).uri_of(draws.SELECTION))

    def _read_drawn(self, number: int, name: str) -> bytes:
        folder = self.folder(number)
        return draws.read_file(folder, draws.newest(folder, self.drawn_for), name)

    def write_round(self, selection: Selection, chosen: Chosen, manifests: dict[str, bytes], before: int = 0) -> None:
        """Create a round, or the draw after ``before`` others of it, with all files.

        Raises
        ------
        LabelError
            Another command did so first.
        """
        number, folder = selection.round, self.folder(selection.round)
        files = {draws.SELECTION: selection.to_json(), draws.PREDICTIONS: encode(chosen)} | manifests
        own = draws.describe(files, self.drawn_for, self.complete_features().digest)
        drawn = draws.write(folder, before + 1, own, files)
        newest = draws.newest(folder, self.drawn_for) or drawn
        if newest == own:
            draws.copy(folder, files)
        else:
            draws.publish(folder, newest)
        if drawn != own:
            raise LabelError(
                f"another `opacc {'next' if number > 1 and not before else 'select'}` drew round {number} of "
                f"{self.title} first; label what it chose, or run the command again to go on from there"
            )

    def restore_copies(self, number: int) -> list[str]:
        """Copy the files of a round again to where people look for them; returns URIs of those that were not there."""
        folder = self.folder(number)
        draw = draws.newest(folder, self.drawn_for)
        return [folder.uri_of(name) for name in draws.publish(folder, draw)] if draw else []

    def check_copies(self, number: int) -> None:
        """Raise DataError if what people see of a round, such as a manifest, is not what was drawn."""
        folder = self.folder(number)
        draw = draws.newest(folder, self.drawn_for)
        if draw:
            draws.check_copies(folder, draw)

    def drawn_from(self, number: int) -> str | None:
        """Digest of the features that a round was drawn from; None if it is not known."""
        draw = draws.newest(self.folder(number), self.drawn_for)
        return draw.features if draw else None

    def manifests(self, number: int) -> list[str]:
        """URIs of a round's manifests."""
        keys = (entry.key for entry in self.store.list(self.key_of(f"{number}/{draws.MANIFEST}")))
        return [self.store.uri_of(key) for key in keys]

    def read_chosen(self, number: int) -> Chosen:
        """What the model says of the examples of a round; raises DataError if its file is damaged."""
        data = self._read_drawn(number, draws.PREDICTIONS)
        return decode(data, self.folder(number).uri_of(draws.PREDICTIONS))

    # -- labels ------------------------------------------------------------------------------------------

    def write_labels(self, number: int, name: str, data: bytes) -> str:
        """Keep a file as it came. Its name is made of its content, so that sending it twice changes nothing."""
        key = self.key_of(f"{number}/labels/{name_of_labels(name, data)}")
        self.store.write(key, data)
        return key

    def label_files(self, number: int) -> list[str]:
        """Keys of the files of labels that came back for a round."""
        return [entry.key for entry in self.store.list(self.key_of(f"{number}/labels/"))]

    def read_labels(self, number: int) -> list[tuple[str, bytes]]:
        """(name, content) of every file of labels that came back for a round.

        Raises
        ------
        DataError
            A file is not the one that its name is the digest of.
        """
        keys = self.label_files(number)
        files = list(zip(keys, self.store.read_many(keys), strict=True))
        for key, data in files:
            if PurePath(key).name != name_of_labels(key, data):
                raise DataError(
                    f"{self.store.uri_of(key)} was changed since it was imported: its name is not the digest of its "
                    "content; restore it, or delete it and import the file as it came again"
                )
        return files

    def read_closed(self, number: int) -> list[str] | None:
        """Ids that had no label when the round was closed; None while it is open.

        Raises
        ------
        DataError
            The file is damaged, or closes another round.
        """
        key = self.key_of(f"{number}/closed.json")
        if not self.store.exists(key):
            return None
        closed = ClosedRound.from_bytes(self.store.read(key), self.store.uri_of(key))
        if closed.selection not in (None, self._selection_digest(number)):
            raise DataError(f"{self.store.uri_of(key)} closes another round than this one; {closed.remedy}")
        return closed.given_up

    def close(self, number: int, given_up: Sequence[str]) -> None:
        """Give up labels of a round that are missing, besides those that were given up before."""
        ids = dict.fromkeys([*(self.read_closed(number) or ()), *given_up])
        closed = ClosedRound(selection=self._selection_digest(number), given_up=list(ids))
        self.store.write(self.key_of(f"{number}/closed.json"), closed.to_bytes())

    def reopen(self, number: int, given_up: Sequence[str] | None) -> None:
        """Let these ids alone be given up in a round; None: the round is open."""
        self.store.delete(self.key_of(f"{number}/closed.json"))
        if given_up is not None:
            self.close(number, given_up)

    def _selection_digest(self, number: int) -> str:
        return hashlib.sha256(self._read_drawn(number, draws.SELECTION)).hexdigest()

    def read_goal(self, number: int) -> Goal | None:
        """What `opacc next --until` last found after a round; None if it was not asked."""
        key = self.key_of(f"{number}/goal.json")
        return Goal.from_bytes(self.store.read(key), self.store.uri_of(key)) if self.store.exists(key) else None

    def reached_goal(self) -> Goal | None:
        """The newest goal of `opacc next --until`, if it was reached: sampling stopped by it."""
        goals = [goal for number in self.rounds() if (goal := self.read_goal(number)) is not None]
        return goals[-1] if goals and goals[-1].reached else None

    def write_goal(self, number: int, goal: Goal) -> None:
        self.store.write(self.key_of(f"{number}/goal.json"), goal.to_bytes())

    # -- result ------------------------------------------------------------------------------------------

    def results(self, out: str | None = None) -> Store:
        """Where results of the track lie, or the folder ``out``."""
        own = self.store.store(self._folder) if self._folder else self.store
        return own if out is None else open_store(out)

    @property
    def estimate_key(self) -> str:
        return f"{self._folder}{ESTIMATE}"

    def write_estimate(self, estimate: AccuracyEstimate) -> None:
        self.store.write(self.estimate_key, estimate.to_bytes())

    def read_estimate(self) -> AccuracyEstimate | None:
        """The last estimate, or None if none was made; raises DataError if it is damaged, or of another run."""
        if not self.store.exists(self.estimate_key):
            return None
        source = self.store.uri_of(self.estimate_key)
        found = AccuracyEstimate.from_bytes(self.store.read(self.estimate_key), source)
        if (found.run.rpartition("/")[2], found.track) != (self.name, self.track):
            track = "" if found.track is None else f", track {found.track}"
            raise DataError(f"{source} is that of the run {found.run}{track}; {AccuracyEstimate.remedy}")
        return found


def name_of_labels(name: str, data: bytes) -> str:
    """The name that a file of labels is kept under: the digest of its content, and the end of its own name."""
    suffix = PurePath(name).suffix.lower()
    safe = suffix if re.fullmatch(r"\.[a-z0-9]{1,8}", suffix) else ""
    return f"{hashlib.sha256(data).hexdigest()[:16]}{safe}"
