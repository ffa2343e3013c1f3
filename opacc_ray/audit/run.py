"""A run's prefix in storage: what lies where, and reading and writing it.

    spec.json                     the resolved spec, versions, git commit, digests of model and listing
    features/part-000000.parquet  one per shard, the checkpoint of extraction
    features/index.json           written last: its presence says that extraction is complete
    reference/                    what features compare with; with weights in the spec, beside the runs (reference.py)
    rounds/1/selection.json       the chosen examples with their design
    rounds/1/predictions.parquet  id, uri and prediction of each chosen example
    rounds/1/manifest.*           what annotators get
    rounds/1/labels/              the files that came back, as they came
    labels/                       what was done with those files: imports, corrections, withdrawals, rules
    rounds/1/closed.json          if the round was closed: the ids that were given up
    estimate.json

All of it reads with pyarrow or a JSON parser alone. Objects are written whole or not at all.
"""

import hashlib
import io
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from opacc_ray.audit.documents import AccuracyEstimate, ClosedRound, RunHeader
from opacc_ray.errors import DataError
from opacc_ray.extract.index import Index, read_index
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


class Run:
    """One audit under its prefix."""

    def __init__(self, store: Store, header: RunHeader) -> None:
        self.store = store
        self.header = header
        self.features = store.store("features")

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
        return finished_shards(self.features)

    def read_index(self) -> Index | None:
        """The index of features, or None while extraction is not complete."""
        return read_index(self.features)

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
        """Numbers of the rounds that have a selection."""
        keys = (entry.key for entry in self.store.list("rounds/"))
        found = (re.fullmatch(r"rounds/(\d+)/selection\.json", key) for key in keys)
        return sorted(int(match[1]) for match in found if match)

    def read_selection(self, number: int) -> Selection:
        """The selection of a round; raises DataError if its file is damaged."""
        key = f"rounds/{number}/selection.json"
        return _decode_selection(self.store.read(key), self.store.uri_of(key))

    def write_round(self, selection: Selection, chosen: Chosen, manifests: dict[str, bytes]) -> None:
        """Manifests and predictions first, the selection last: a round exists when its selection does."""
        folder = self.store.store(f"rounds/{selection.round}")
        folder.write("predictions.parquet", _encode_chosen(chosen))
        for name, content in manifests.items():
            folder.write(name, content)
        folder.write("selection.json", selection.to_json())

    def manifests(self, number: int) -> list[str]:
        """URIs of a round's manifests."""
        keys = (entry.key for entry in self.store.list(f"rounds/{number}/manifest."))
        return [self.store.uri_of(key) for key in keys]

    def set_aside(self, number: int) -> None:
        """Keep a round's selection and manifests under ``superseded/``, since a manifest may be out already."""
        folder = self.store.store(f"rounds/{number}")
        keys = [entry.key for entry in folder.list() if "/" not in entry.key]
        digest = hashlib.sha256(folder.read("selection.json")).hexdigest()[:12]
        for key in keys:
            folder.write(f"superseded/{digest}/{key}", folder.read(key))
        for key in sorted(keys, key=lambda key: key != "selection.json"):  # the selection first: see write_round
            folder.delete(key)

    def read_chosen(self, number: int) -> Chosen:
        """What the model says of the examples of a round; raises DataError if its file is damaged."""
        key = f"rounds/{number}/predictions.parquet"
        return _decode_chosen(self.store.read(key), self.store.uri_of(key))

    # -- labels ------------------------------------------------------------------------------------------

    def write_labels(self, number: int, name: str, data: bytes) -> str:
        """Keep a file as it came. Its name is made of its content, so that sending it twice changes nothing."""
        key = f"rounds/{number}/labels/{name_of_labels(name, data)}"
        self.store.write(key, data)
        return key

    def read_labels(self, number: int) -> list[tuple[str, bytes]]:
        """(name, content) of every file of labels that came back for a round."""
        keys = [entry.key for entry in self.store.list(f"rounds/{number}/labels/")]
        return [(key, self.store.read(key)) for key in keys]

    def read_closed(self, number: int) -> list[str] | None:
        """Ids that had no label when the round was closed; None while it is open."""
        key = f"rounds/{number}/closed.json"
        if not self.store.exists(key):
            return None
        return ClosedRound.from_bytes(self.store.read(key), self.store.uri_of(key)).given_up

    def close(self, number: int, given_up: Sequence[str]) -> None:
        """Give up the labels of a round that are missing."""
        self.store.write(f"rounds/{number}/closed.json", ClosedRound(given_up=list(given_up)).to_bytes())

    # -- result ------------------------------------------------------------------------------------------

    def write_estimate(self, estimate: AccuracyEstimate) -> None:
        self.store.write(ESTIMATE, estimate.to_bytes())

    def read_estimate(self) -> AccuracyEstimate | None:
        """The last estimate, or None if none was made."""
        if not self.store.exists(ESTIMATE):
            return None
        return AccuracyEstimate.from_bytes(self.store.read(ESTIMATE), self.store.uri_of(ESTIMATE))


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
    table = pa.table({"id": chosen.ids, "uri": chosen.uris, "prediction": chosen.predictions})
    pq.write_table(table, sink)
    return sink.getvalue()


def _decode_chosen(data: bytes, source: str) -> Chosen:
    import pyarrow as pa

    try:
        table = read_bytes(data)
        return Chosen(*(table[name].to_pylist() for name in ("id", "uri", "prediction")))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{source} is no table of predictions ({error}); restore it") from None
