"""What a run knows before its first label: gathered once, and kept for all its rounds and its estimate.

    history/DIGEST/labelled-1.parquet  features and outcomes of labelled examples, of one source
    history/DIGEST/prior.npy           the user's own column, one number for each example of the pool
    history/history.json               where they come from, with a digest of each file; created once, after them

Nothing of it is trusted (:mod:`opacc_ray.history`). It is the same for all rounds, whatever is labelled
elsewhere meanwhile, so that the estimate knows what the draws knew.
"""

import hashlib
import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.history_documents import HistorySource, KeptFile, KeptHistory
from opacc_ray.errors import DataError, OpaccError, SpecError, counted, shortened
from opacc_ray.extract import reference
from opacc_ray.extract.columns import Columns
from opacc_ray.extract.features import Features
from opacc_ray.extract.prior import read_prior, try_prior
from opacc_ray.extract.source import plan_pool
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.labels.formats.parsing import parse
from opacc_ray.labels.joining import join
from opacc_ray.labels.labelled_rounds import (
    LabelledRound,
    having_labels,
    outcome_of,
    outcomes_of_another,
    read_rounds,
    reading_by,
)
from opacc_ray.labels.log import read_log
from opacc_ray.labels.rows import Label
from opacc_ray.lake.arrow import numbers, to_numpy
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.parquet_io import encode, read_bytes
from opacc_ray.lake.pools import planned_ids
from opacc_ray.lake.storage import Store, open_store, read_uri
from opacc_ray.pool import Pool
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.spec import ReferenceSpec, Spec

log = logging.getLogger(__name__)

FOLDER, RECORD, PRIOR = "history", "history.json", "prior.npy"

LEARNED_FROM = ("hidden", "confidence", "dsa", "lsa", "prediction")
"""Features from which failures are learned."""

MOST = 10_000
"""Labelled examples of one source; of more a random part is taken."""


class _Labelled(NamedTuple):
    """Labelled examples of one source."""

    source: HistorySource
    features: Columns  # (k, ...) each
    outcome: NDArray[np.float64]  # (k,)


def read_history(run: Run, *, keep: bool = True) -> History:
    """The history that a run's spec asks for, gathered if no round is drawn yet; without ``keep`` nothing is written.

    Raises
    ------
    DataError
        It is damaged or lost, though rounds were drawn by it; or what it is to be made of cannot be read.
    LabelError
        Labels of the reference are none of the model's classes, or in conflict.
    """
    if not run.spec.has_history:
        return NO_HISTORY
    kept = read_record(run)
    if kept is None:
        if any(track.rounds() for track in run.tracks()):
            raise DataError(
                f"{_home(run).uri_of(RECORD)} is lost, and rounds were drawn by it; restore it from a backup"
            )
        sources, files = _gather(run)
        if not keep:
            return _decode(files, run.uri)
        kept = _keep(run, sources, files)
    return _decode({name: read_file(run, kept, name) for name in kept.files}, _home(run).uri)


def read_record(run: Run) -> KeptHistory | None:
    """What is kept, or None; raises DataError if it is damaged, or of another run."""
    home = _home(run)
    if not home.exists(RECORD):
        return None
    kept = KeptHistory.from_bytes(home.read(RECORD), home.uri_of(RECORD))
    if kept.run != run.header.digest:
        raise DataError(f"{home.uri_of(RECORD)} was gathered for another run than that of spec.json; restore both")
    return kept


def read_file(run: Run, kept: KeptHistory, name: str) -> bytes:
    """A file of the history; raises DataError if it is lost, or was changed."""
    folder = _home(run).store(kept.folder)
    if not folder.exists(name):
        raise DataError(f"{folder.uri_of(name)} is lost; restore it from a backup")
    data = folder.read(name)
    if hashlib.sha256(data).hexdigest() != kept.files[name].sha256:
        raise DataError(f"{folder.uri_of(name)} was changed since it was gathered; restore it from a backup")
    return data


def uri_of(run: Run, name: str = RECORD) -> str:
    """Where a file of the history lies, or its record."""
    return _home(run).uri_of(name)


def _home(run: Run) -> Store:
    return run.store.store(FOLDER)


def _keep(run: Run, sources: Sequence[HistorySource], files: dict[str, bytes]) -> KeptHistory:
    """Write the files, then create the record; of two that gather at once, one is kept."""
    described = {
        name: KeptFile(sha256=hashlib.sha256(data).hexdigest(), size=len(data)) for name, data in files.items()
    }
    joined = "".join(f"{name} {item.sha256}\n" for name, item in sorted(described.items()))
    folder = hashlib.sha256(joined.encode()).hexdigest()[:16]
    home = _home(run)
    home.store(folder).write_many(files.items(), 8)
    record = KeptHistory(run=run.header.digest, folder=folder, files=described, sources=list(sources))
    return KeptHistory.from_bytes(home.create(RECORD, record.to_bytes()), home.uri_of(RECORD))


def check_history(spec: Spec, plan: Plan, compared: Plan | None) -> str:
    """Try what a history is to be made of; returns it in words.

    Parameters
    ----------
    plan, compared : the shards of pool and reference; without those of the reference its ids are not checked

    Raises
    ------
    DataError, LabelError
        The file of labels, a run or the column cannot be read; there is no label, or one of an id that the listing of
        the reference does not have, where that tells the ids.
    SpecError
        Earlier audits are to be found by the digest of weights, and there is none; or a run is named twice.
    """
    said = []
    if spec.reference is not None and spec.reference.labels is not None:
        labels = _read_labels(spec.reference, _listed(spec.reference, compared))
        rows = sum(row.label is not None for row in labels)
        if not rows:
            raise _no_label(spec.reference)
        _check_labels(spec, labels)
        said.append(f"{counted(rows, 'label')} of the reference")
    if spec.history == "auto":
        _digest_of_weights(spec)
        said.append("earlier audits of the same weights, if there are any")
    elif spec.history:
        runs = [other.uri for other, _ in _named(spec.history)]
        refuse_twice("history", runs)
        said.append(f"labels of {counted(len(runs), 'run')}")
    if spec.pool.columns.prior is not None:
        said.append(try_prior(spec.pool, plan))
    return "; ".join(said)


def _check_labels(spec: Spec, labels: Sequence[Label]) -> None:
    """Raise LabelError if a label of the reference is none of the model's classes, or in conflict."""
    rows = [row for row in labels if row.run is None]
    ids = list({row.id: None for row in rows})
    read = reading_by(spec.model, None, numbers_are_classes=spec.labels.numbers_are_classes)
    join(rows, ids, run="", conflict=spec.labels.conflict, read=read)


def refuse_twice(key: str, uris: Sequence[str]) -> None:
    """Raise SpecError if a list of runs, which ``key`` of a spec holds, names one twice."""
    twice = next((uri for place, uri in enumerate(uris) if uri in uris[:place]), None)
    if twice is not None:
        raise SpecError(f"{key} names {twice} twice; give each run once")


def _listed(source: ReferenceSpec, plan: Plan | None) -> set[str] | None:
    """The ids that the reference may have; None where its listing does not tell them."""
    planned = [planned_ids(source.format, shard) for shard in plan.shards] if plan else [None]
    return None if None in planned else {name for names in planned if names for name in names}


def _digest_of_weights(spec: Spec) -> str:
    if spec.model.sha256 is None:
        raise SpecError(
            "history: auto finds audits of the same model by the digest of its weights, and this spec names none; "
            "list the runs: history: [RUN, ...]"
        )
    return spec.model.sha256


# -- gathering -----------------------------------------------------------------------------------------------


def _gather(run: Run) -> tuple[list[HistorySource], dict[str, bytes]]:
    found = [*_of_reference(run), *_of_audits(run)]
    sources = [own.source for own in found]
    files = {f"labelled-{number}.parquet": _encode(own) for number, own in enumerate(found, start=1)}
    column = run.spec.pool.columns.prior
    if column is not None:
        prior = _read_prior(run)
        files[PRIOR] = _npy(prior)
        sources.append(HistorySource(kind="prior", uri=run.spec.pool.uri, examples=len(prior), column=column))
    for source in sources:
        log.info("history: %d examples of %s", source.examples, source.uri)
    return sources, files


def _read_prior(run: Run) -> NDArray[np.float64]:
    there, pool = run.complete_features(), run.spec.pool
    plan = plan_pool(pool, run.spec.extract)
    if plan.digest != run.header.pool.digest:
        raise DataError(f"{pool.uri} is not as it was when its features were made; run the spec again")
    return read_prior(pool, plan, there)


def _of_reference(run: Run) -> Iterator[_Labelled]:
    """The labelled examples of the reference."""
    given = run.spec.reference
    if given is None or given.labels is None or run.header.reference is None:
        return
    folder = reference.folder_of(run.spec, run.header.reference.digest, run.store)
    index = reference.complete_index(folder)
    features = Features.of(folder, index)
    ids = [name for part in range(len(features.sizes)) for name in features.ids(part)]
    labels = _read_labels(given, set(ids))
    rules = run.spec.labels
    read = reading_by(run.spec.model, run.num_classes, numbers_are_classes=rules.numbers_are_classes)
    label = join(labels, ids, run=run.name, conflict=rules.conflict, read=read).label
    places = _sample(run, np.flatnonzero([name in label for name in ids]))
    if not len(places):
        raise _no_label(given)
    names = [name for name in LEARNED_FROM if name in index.features]
    rows = features.rows(names, places)
    score = read_log(run).score
    outcome = [
        outcome_of(run.spec.model, score, said, label[ids[place]])
        for said, place in zip(rows["prediction"].tolist(), places.tolist(), strict=True)
    ]
    source = HistorySource(kind="reference", uri=given.uri, examples=len(places), column=None)
    yield _Labelled(source, _comparable(run, rows), np.array(outcome, dtype=np.float64))


def _read_labels(source: ReferenceSpec, known: set[str] | None) -> list[Label]:
    """The labels of a reference; raises DataError if one is of none of the ids ``known``; None: any may be."""
    assert source.labels is not None
    labels = list(parse(read_uri(source.labels), source.labels))
    unknown = next((row.id for row in labels if known is not None and row.id not in known), None)
    if unknown is not None:
        raise DataError(
            f"reference.labels: {source.labels} names {unknown!r}, which is no example of {source.uri}; "
            f"write the ids of its examples, such as {min(known or [''])!r}"
        )
    return labels


def _no_label(source: ReferenceSpec) -> DataError:
    return DataError(f"reference.labels: {source.labels} has no label; leave the key out, or fill the file")


def _of_audits(run: Run) -> Iterator[_Labelled]:
    """The labelled examples of earlier audits; of those that were found, not named, what is damaged is left out."""
    asked = run.spec.history
    if isinstance(asked, list):
        for other, rounds in _named(asked):
            yield _of_audit(run, other, rounds)
    elif asked == "auto":
        for other in _earlier(run):
            try:
                rounds = _labelled_rounds(other)
                found = _of_audit(run, other, rounds) if rounds else None
            except OpaccError as error:
                log.warning("history: %s is left out: %s", other.uri, error)
                continue
            if found is not None:
                yield found


def _named(uris: Sequence[str]) -> Iterator[tuple[Run, list[LabelledRound]]]:
    """Earlier audits with their rounds that have labels; raises DataError if one has none."""
    for uri in uris:
        other = Run.open(uri)
        rounds = _labelled_rounds(other)
        if not rounds:
            raise DataError(f"history: no example of {uri} has a label yet; import some, or leave it out")
        yield other, rounds


def _labelled_rounds(other: Run) -> list[LabelledRound]:
    """The rounds of all tracks that have labels."""
    return having_labels(item for track in other.tracks() if track.rounds() for item in read_rounds(track))


def _earlier(run: Run) -> Iterator[Run]:
    """The other runs under the output whose model has the same weights and code, as far as that is known."""
    _digest_of_weights(run.spec)
    own, code, output = reference.model_of(run.spec), run.header.code, open_store(run.uri.rpartition("/")[0])
    for key in sorted(entry.key for entry in output.list() if entry.key.count("/") == 1):
        name, _, file = key.partition("/")
        if file != HEADER or name == run.name:
            continue
        try:
            other = Run.open(output.uri_of(name))
        except OpaccError as error:
            log.warning("history: %s is left out: %s", output.uri_of(name), error)
            continue
        theirs = other.header.code
        same_code = code is None or theirs is None or code.files == theirs.files
        if reference.model_of(other.spec) != own or not same_code:
            continue
        if _asks(other.spec) != _asks(run.spec):
            log.warning("history: %s is left out: its classes or its task are others", other.uri)
            continue
        yield other


def _asks(spec: Spec) -> tuple[Any, ...]:
    """What decides whether an answer is right."""
    return spec.model.task, spec.model.classes


def _of_audit(run: Run, other: Run, rounds: Sequence[LabelledRound]) -> _Labelled:
    """The labelled examples of rounds of another run, each once.

    Labels of the run's own pool say how its own model did, whichever model they were drawn for.
    """
    index = np.concatenate([item.known.index for item in rounds])
    values = np.concatenate([item.outcome for item in rounds])
    source, said = other, _said_of(run, other, rounds, index)
    if said is not None:
        score = read_log(run).score
        source = run
        values = np.concatenate(outcomes_of_another(rounds, run.spec.model, said, score))
    outcome = dict(zip(index.tolist(), values.tolist(), strict=True))
    places = _sample(run, np.array(sorted(outcome), dtype=np.int64))
    rows = feature_store.read_rows(source, LEARNED_FROM, places)
    found = HistorySource(kind="audit", uri=other.uri, examples=len(places), column=None)
    return _Labelled(found, _comparable(run, rows), np.array([outcome[place] for place in places.tolist()]))


def _said_of(run: Run, other: Run, rounds: Sequence[LabelledRound], index: NDArray[np.int64]) -> list[Any] | None:
    """What the run's model says of the examples ``index`` (k,) of another run; None if that is of another pool."""
    if run.header.pool.digest != other.header.pool.digest or _asks(run.spec) != _asks(other.spec):
        return None
    there = run.read_index()
    if there is None or there.num_examples != rounds[0].selection.pool_size:
        return None
    ids, said = feature_store.find_rows(run, index)
    return said if ids == [name for item in rounds for name in item.known.ids] else None


def _sample(run: Run, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """``places`` (k,), or a random part of them, sorted."""
    if len(places) <= MOST:
        return places
    return np.sort(np.random.default_rng(run.spec.seed).choice(places, MOST, replace=False))


def _comparable(run: Run, rows: Columns) -> Columns:
    """The features that the run's own pool has, too, of the same width."""
    index = run.read_index()
    own = index.features if index else {}
    return {
        name: values
        for name, values in rows.items()
        if name in own and (values.ndim == 1 or values.shape[1] == own[name])
    }


# -- files ---------------------------------------------------------------------------------------------------


def _encode(found: _Labelled) -> bytes:
    import pyarrow as pa

    columns = {name: numbers(values) for name, values in found.features.items()}
    return encode(pa.table(columns | {"outcome": numbers(found.outcome)}))


def _npy(values: NDArray[np.float64]) -> bytes:
    sink = io.BytesIO()
    np.save(sink, values, allow_pickle=False)
    return sink.getvalue()


def _decode(files: dict[str, bytes], place: str) -> History:
    try:
        labelled = [_labelled(files[name]) for name in sorted(files) if name != PRIOR]
        prior = np.load(io.BytesIO(files[PRIOR]), allow_pickle=False) if PRIOR in files else None
    except (ValueError, KeyError, OSError) as error:
        raise DataError(f"{place} holds what is no history ({shortened(str(error))}); restore it") from None
    return History(labelled, prior)


def _labelled(data: bytes) -> tuple[Pool, NDArray[np.float64]]:
    table = read_bytes(data)
    arrays: dict[str, Any] = {name: to_numpy(table[name]) for name in table.column_names}
    outcome = arrays.pop("outcome")
    return Pool(**arrays), outcome
