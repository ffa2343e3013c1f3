"""A run's prefix in storage: what lies where, and reading and writing it.

    spec.json                     the resolved spec, versions, git commit, digests of model and listing
    features/                     features, if the spec names no weights; else in a set beside the runs (feature_set.py)
    reference/                    what features compare with; with weights in the spec, beside the runs (reference.py)
    listing.parquet               key, size and tag of every object of the pool, as it was listed
    rounds/1/selection.json       the chosen examples with their design
    rounds/1/predictions.parquet  id, uri, prediction, and the pool object with its tag, of each chosen example
    rounds/1/manifest.*           what annotators get
    rounds/1/draw-1.json, draws/  the three as they were drawn, with their digests (draws.py)
    rounds/1/labels/              the files that came back, as they came
    labels/                       what was done with those files: imports, corrections, withdrawals, rules
    rounds/1/closed.json          if the round was closed: the ids that were given up
    rounds/1/goal.json            what `opacc next --until` found after the round, and what it decided
    estimate.json

All of it reads with pyarrow or a JSON parser alone. Objects are written whole or not at all.
"""

import hashlib
import io
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from opacc_ray.audit import draws
from opacc_ray.audit.documents import AccuracyEstimate, ClosedRound, Goal, RunHeader
from opacc_ray.errors import DataError, LabelError
from opacc_ray.extract.feature_set import Complete, feature_set
from opacc_ray.extract.index import Index
from opacc_ray.extract.shards import finished_shards
from opacc_ray.lake.parquet_io import read_bytes
from opacc_ray.lake.storage import Store, open_store
from opacc_ray.samplers import METHODS
from opacc_ray.selection import Selection
from opacc_ray.spec import Spec

HEADER, ESTIMATE = "spec.json", "estimate.json"


class Chosen(NamedTuple):
    """What is known of the chosen examples of a round beside the design."""

    ids: list[str]
    uris: list[str]
    predictions: list[Any]
    objects: list[str | None]  # keys of the pool's objects that hold them; None where that is not known
    tags: list[str | None]  # of those objects, when the pool was listed


class Run:
    """One audit under its prefix."""

    def __init__(self, store: Store, header: RunHeader) -> None:
        self.store = store
        self.header = header
        self.feature_set = feature_set(store, header.features)
        self.features = self.feature_set.folder

    @classmethod
    def open(cls, uri: str) -> "Run":
        """The run at ``uri``; raises DataError if there is none."""
        store = open_store(uri)
        if not store.exists(HEADER):
            raise DataError(f"there is no run at {store.uri} (no {HEADER}); give the URI that `opacc run` printed")
        return cls(store, RunHeader.from_bytes(store.read(HEADER), store.uri_of(HEADER)))

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

    # -- features ----------------------------------------------------------------------------------------

    def finished_shards(self) -> set[str]:
        """Names of the shards whose features are there."""
        return set.intersection(*(finished_shards(folder) for folder in self.feature_set.folders))

    def read_features(self) -> Complete | None:
        """The features and their index, or None while extraction is not complete."""
        return self.feature_set.read()

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
        keys = (entry.key for entry in self.store.list("rounds/"))
        found = (re.fullmatch(r"rounds/(\d+)/(?:selection|draw-\d+)\.json", key) for key in keys)
        numbers = sorted({int(match[1]) for match in found if match})
        lost = set(range(1, max(numbers, default=0) + 1)) - set(numbers)
        if lost:
            raise DataError(f"{self._round(min(lost)).uri} is lost; restore it from a backup")
        return numbers

    def _round(self, number: int) -> Store:
        return self.store.store(f"rounds/{number}")

    def num_draws(self, number: int) -> int:
        """How often a round was drawn: 0 if it was not, or by version 0.1.0."""
        folder = self._round(number)
        return len(draws.numbers([entry.key for entry in folder.list()], folder.uri))

    def keep_draw(self, number: int) -> None:
        """Make a round of version 0.1.0 the first draw of its number, so that another may replace it."""
        folder = self._round(number)
        draws.write(folder, 1, draws.files_of(folder), self.header.digest)

    def read_selection(self, number: int) -> Selection:
        """The selection of a round; raises DataError if its file is damaged."""
        data = self._read_drawn(number, draws.SELECTION)
        return _decode_selection(data, self._round(number).uri_of(draws.SELECTION))

    def _read_drawn(self, number: int, name: str) -> bytes:
        folder = self._round(number)
        return draws.read_file(folder, draws.newest(folder, self.header.digest), name)

    def write_round(self, selection: Selection, chosen: Chosen, manifests: dict[str, bytes], before: int = 0) -> None:
        """Create a round, or the draw after ``before`` others of it, with all files.

        Raises
        ------
        LabelError
            Another command did so first.
        """
        number, folder = selection.round, self._round(selection.round)
        files = {draws.SELECTION: selection.to_json(), draws.PREDICTIONS: _encode_chosen(chosen)} | manifests
        drawn = draws.write(folder, before + 1, files, self.header.digest)
        draws.publish(folder, draws.newest(folder, self.header.digest) or drawn)
        if drawn != draws.describe(files, self.header.digest):
            raise LabelError(
                f"another `opacc {'select' if before else 'next'}` drew round {number} of {self.uri} first; "
                "label what it chose, or run the command again to go on from there"
            )

    def restore_copies(self, number: int) -> list[str]:
        """Copy the files of a round again to where people look for them; returns URIs of those that were not there."""
        folder = self._round(number)
        draw = draws.newest(folder, self.header.digest)
        return [folder.uri_of(name) for name in draws.publish(folder, draw)] if draw else []

    def check_copies(self, number: int) -> None:
        """Raise DataError if what people see of a round, such as a manifest, is not what was drawn."""
        folder = self._round(number)
        draw = draws.newest(folder, self.header.digest)
        if draw:
            draws.check_copies(folder, draw)

    def manifests(self, number: int) -> list[str]:
        """URIs of a round's manifests."""
        keys = (entry.key for entry in self.store.list(f"rounds/{number}/{draws.MANIFEST}"))
        return [self.store.uri_of(key) for key in keys]

    def read_chosen(self, number: int) -> Chosen:
        """What the model says of the examples of a round; raises DataError if its file is damaged."""
        data = self._read_drawn(number, draws.PREDICTIONS)
        return _decode_chosen(data, self._round(number).uri_of(draws.PREDICTIONS))

    # -- labels ------------------------------------------------------------------------------------------

    def write_labels(self, number: int, name: str, data: bytes) -> str:
        """Keep a file as it came. Its name is made of its content, so that sending it twice changes nothing."""
        key = f"rounds/{number}/labels/{name_of_labels(name, data)}"
        self.store.write(key, data)
        return key

    def label_files(self, number: int) -> list[str]:
        """Keys of the files of labels that came back for a round."""
        return [entry.key for entry in self.store.list(f"rounds/{number}/labels/")]

    def all_label_files(self) -> list[str]:
        """Keys of the files of labels of all rounds, and of what was done with them."""
        actions = [entry.key for entry in self.store.list("labels/")]
        return actions + [key for number in self.rounds() for key in self.label_files(number)]

    def check_label_files(self, estimate: AccuracyEstimate | None) -> None:
        """Raise DataError if a file of labels that an estimate was made of is lost."""
        there = set(self.all_label_files())
        lost = [key for key in (estimate.label_files if estimate else ()) if key not in there]
        if lost:
            raise DataError(
                f"{self.store.uri_of(lost[0])} is lost, and the last estimate was made with it; restore it, or "
                f"delete {ESTIMATE} to go on without it"
            )

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
        key = f"rounds/{number}/closed.json"
        if not self.store.exists(key):
            return None
        closed = ClosedRound.from_bytes(self.store.read(key), self.store.uri_of(key))
        if closed.selection not in (None, self._selection_digest(number)):
            raise DataError(f"{self.store.uri_of(key)} closes another round than this one; {closed.remedy}")
        return closed.given_up

    def close(self, number: int, given_up: Sequence[str]) -> None:
        """Give up the labels of a round that are missing."""
        closed = ClosedRound(selection=self._selection_digest(number), given_up=list(given_up))
        self.store.write(f"rounds/{number}/closed.json", closed.to_bytes())

    def _selection_digest(self, number: int) -> str:
        return hashlib.sha256(self._read_drawn(number, draws.SELECTION)).hexdigest()

    def read_goal(self, number: int) -> Goal | None:
        """What `opacc next --until` last found after a round; None if it was not asked."""
        key = f"rounds/{number}/goal.json"
        return Goal.from_bytes(self.store.read(key), self.store.uri_of(key)) if self.store.exists(key) else None

    def write_goal(self, number: int, goal: Goal) -> None:
        self.store.write(f"rounds/{number}/goal.json", goal.to_bytes())

    # -- result ------------------------------------------------------------------------------------------

    def write_estimate(self, estimate: AccuracyEstimate) -> None:
        self.store.write(ESTIMATE, estimate.to_bytes())

    def read_estimate(self) -> AccuracyEstimate | None:
        """The last estimate, or None if none was made; raises DataError if it is damaged, or of another run."""
        if not self.store.exists(ESTIMATE):
            return None
        source = self.store.uri_of(ESTIMATE)
        found = AccuracyEstimate.from_bytes(self.store.read(ESTIMATE), source)
        if found.run.rpartition("/")[2] != self.name:
            raise DataError(f"{source} is that of the run {found.run}; {AccuracyEstimate.remedy}")
        return found


def name_of_labels(name: str, data: bytes) -> str:
    """The name that a file of labels is kept under: the digest of its content, and the end of its own name."""
    suffix = PurePath(name).suffix.lower()
    safe = suffix if re.fullmatch(r"\.[a-z0-9]{1,8}", suffix) else ""
    return f"{hashlib.sha256(data).hexdigest()[:16]}{safe}"


def _decode_selection(data: bytes, source: str) -> Selection:
    try:
        selection = Selection.from_json(data, source)
    except (RecursionError, OverflowError, TypeError) as error:
        raise DataError(f"{source} is no selection ({type(error).__name__}: {error}); restore it") from None
    if selection.method not in METHODS:
        raise DataError(f"{source}: there is no method {selection.method!r}; restore it")
    return selection


def _encode_chosen(chosen: Chosen) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    texts = {"id": chosen.ids, "uri": chosen.uris, "object": chosen.objects, "tag": chosen.tags}
    columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    pq.write_table(pa.table(columns | {"prediction": chosen.predictions}), sink)
    return sink.getvalue()


def _decode_chosen(data: bytes, source: str) -> Chosen:
    import pyarrow as pa

    try:
        table = read_bytes(data)
        known = [table[name].to_pylist() for name in ("id", "uri", "prediction")]
        unknown = [None] * len(table)  # in files of version 0.1.0
        own = [table[name].to_pylist() if name in table.column_names else unknown for name in ("object", "tag")]
        return Chosen(*known, *own)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{source} is no table of predictions ({' '.join(str(error).split())}); restore it") from None
