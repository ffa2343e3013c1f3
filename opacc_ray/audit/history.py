"""What a run knows before its first label: labels of the reference and of earlier audits, and judges.

They are gathered once, for all rounds and the estimate, and stored:

    history/DIGEST/labelled-1.parquet  features and outcomes of labelled examples from one source
    history/DIGEST/judges.parquet      scores of each judge, one per example of the pool; NaN where it has not judged
    history/history.json               sources, with a digest of each file; created once, after the files

Estimates stay valid if it is wrong. It stays the same for all rounds, even if other runs are labelled meanwhile, so
that the estimate uses exactly what the draws used.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, SpecError, counted, shortened
from opacc_ray.extract import reference
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.feature_set import model_of
from opacc_ray.extract.model_code import is_same
from opacc_ray.extract.shards import Columns
from opacc_ray.extract.table_columns import read_words, try_words
from opacc_ray.labels.formats import Label, LabelFile, parse
from opacc_ray.labels.joining import ids_of_names, join, reading_by
from opacc_ray.labels.label_log import outcome_of, read_log
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, outcomes_of_another, read_rounds
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.parquet_io import encode, numbers, read_bytes, to_numpy
from opacc_ray.lake.pools import planned_ids
from opacc_ray.lake.store_uris import open_store, read_uri
from opacc_ray.pool import NO_HISTORY, History, Pool, read_judges, read_said, text_of
from opacc_ray.runs.run import Run, find_rows, read_column, read_kept, read_rows, unchanged_plan
from opacc_ray.runs.run_documents import HistorySource, KeptHistory, described_files
from opacc_ray.runs.series import names_of_runs
from opacc_ray.spec import ReferenceSpec, Spec

log = logging.getLogger(__name__)

FOLDER, RECORD, JUDGES = "history", "history/history.json", "judges.parquet"

LEARNED_FROM = ("hidden", "confidence", "dsa", "lsa", "prediction")
"""Features that predict failures."""

MOST = 10_000
"""Maximum of labelled examples from one source; of more, a random part is used."""


class _Labelled(NamedTuple):
    """Labelled examples of one source."""

    source: HistorySource
    features: Columns  # (k, ...) each
    outcome: NDArray[np.float64]  # (k,)


def read_history(run: Run, *, keep: bool = True) -> History:
    """Read the history that a run's spec defines; gather it before the first round, and write it if ``keep``.

    Raises DataError if it is damaged or lost after rounds were drawn, or one of its sources is not readable; LabelError
    if labels of the reference are no classes of the model, or in conflict.
    """
    if not run.spec.has_history:
        return NO_HISTORY
    kept = read_record(run)
    if kept is None:
        if run.rounds():
            raise DataError(f"{history_uri(run)} is lost, and rounds were drawn with it; restore it from a backup")
        sources, files = gather(run)
        if not keep:
            return _decode(files, run.uri)
        folder, described = described_files(files)
        run.store.store(f"{FOLDER}/{folder}").write_many(files.items(), 8)
        record = KeptHistory(run=run.header.digest, folder=folder, files=described, sources=sources)
        # of two commands at the same time, one creates it
        kept = KeptHistory.from_bytes(run.store.create(RECORD, record.to_bytes()), history_uri(run))
    return _decode({name: read_file(run, kept, name) for name in kept.files}, run.store.uri_of(FOLDER))


def read_record(run: Run) -> KeptHistory | None:
    """Read the record, or None; raises DataError if it is damaged or belongs to another run."""
    kept = run.read_document(KeptHistory, RECORD)
    if kept is not None and kept.run != run.header.digest:
        raise DataError(f"{history_uri(run)} was gathered for another run than that of spec.json; restore both")
    return kept


def read_file(run: Run, kept: KeptHistory, name: str) -> bytes:
    """Read a stored file; raises DataError if it is lost or was changed."""
    return read_kept(run.store.store(f"{FOLDER}/{kept.folder}"), kept.files, name, "gathered")


def history_uri(run: Run) -> str:
    """Return the URI of the record."""
    return run.store.uri_of(RECORD)


def _decode(files: dict[str, bytes], place: str) -> History:
    def columns(name: str) -> dict[str, Any]:
        table = read_bytes(files[name])
        return {column: to_numpy(table[column]) for column in table.column_names}

    try:
        tables = [columns(name) for name in sorted(files) if name != JUDGES]
        labelled = [{"outcomes": own.pop("outcome"), "pool": Pool(**own)} for own in tables]
        return History(labelled, columns(JUDGES) if JUDGES in files else {})
    except (ValueError, KeyError, OSError) as error:
        raise DataError(f"{place} has no valid history ({shortened(str(error))}); restore it") from None


# -- checking before a run ------------------------------------------------------------------------------------


def check_history(spec: Spec, plan: Plan, compared: Plan | None) -> str:
    """Check the sources of a history; returns a summary. Without ``compared``, ids of the reference are not checked.

    Raises DataError or LabelError if the file of labels, a run or the column is not readable, if there is no label, or
    if a label has an id that the listing of the reference lacks. Raises SpecError if ``history: auto`` needs the digest
    of weights and there is none, or if a run is named twice.
    """
    said = []
    if spec.reference is not None and spec.reference.labels is not None:
        planned = [planned_ids(spec.reference.format, shard) for shard in compared.shards] if compared else [None]
        known = None if None in planned else {name for names in planned if names for name in names}
        labels = _read_labels(spec.reference, known)
        rows = sum(row.label is not None for row in labels)
        if not rows:
            raise _no_label(spec.reference)
        given = [row for row in labels if row.run is None]
        read = reading_by(spec.model, None, numbers_are_classes=spec.labels.numbers_are_classes)
        join(given, list({row.id: None for row in given}), run="", conflict=spec.labels.conflict, read=read)
        said.append(f"{counted(rows, 'label')} of the reference")
    if spec.history == "auto":
        _refuse_without_digest(spec)
        said.append("earlier audits of the same weights, if there are any")
    elif spec.history:
        runs = [other.uri for other, _ in _named(spec.history)]
        refuse_twice("history", runs)
        said.append(f"labels of {counted(len(runs), 'run')}")
    if spec.pool.columns.judges is not None:
        said.append(f"{counted(len(spec.pool.columns.judges), 'judge')}: {_try_judges(spec, plan)}")
    return "; ".join(said)


def refuse_twice(key: str, uris: Sequence[str]) -> None:
    """Raise SpecError if the list of runs under ``key`` of a spec has a duplicate."""
    twice = next((uri for place, uri in enumerate(uris) if uri in uris[:place]), None)
    if twice is not None:
        raise SpecError(f"{key} names {twice} twice; give each run once")


def _refuse_without_digest(spec: Spec) -> None:
    if spec.model.sha256 is None:
        raise SpecError(
            "history: auto finds audits of the same model by the digest of its weights, and this spec has none; "
            "list the runs: history: [RUN, ...]"
        )


# -- gathering -----------------------------------------------------------------------------------------------


def gather(run: Run) -> tuple[list[HistorySource], dict[str, bytes]]:
    """Gather the sources of a run's history, and the files to store, by name."""
    import pyarrow as pa

    sources, files = list[HistorySource](), dict[str, bytes]()
    for number, (source, features, outcome) in enumerate([*_of_reference(run), *_of_audits(run)], start=1):
        columns = {name: numbers(values) for name, values in (features | {"outcome": outcome}).items()}
        files[f"labelled-{number}.parquet"] = encode(pa.table(columns))
        sources.append(source)
    if run.spec.pool.columns.judges is not None:
        scores = _judge(run)
        files[JUDGES] = encode(pa.table(scores))
        sources += [_source(run, name, score) for name, score in scores.items()]
    for source in sources:
        what = f"{source.kind} {source.column}" if source.column else "history"
        log.info("%s: %s of %s", what, counted(source.examples, "example"), source.uri)
    return sources, files


def _judge(run: Run) -> dict[str, NDArray[np.float64]]:
    """Return the scores (N,) of each judge of the pool."""
    there = run.complete_features()
    words, model = read_words(run.spec.pool, unchanged_plan(run), there), run.spec.model
    predicted = read_column(run, "prediction").tolist() if model.has_classes else None
    names = None if predicted is None else [model.name_of(prediction) for prediction in predicted]
    return read_judges(words, names, there.index.num_examples)


def _source(run: Run, name: str, score: NDArray[np.float64]) -> HistorySource:
    """Return a judge as a source, and log advice if it has judged few examples."""
    judged = int(np.count_nonzero(~np.isnan(score)))
    if judged < len(score) / 2:
        log.info(
            "%s has judged %d of %d answers; if these were drawn at random, audit them alone, with "
            "pool.filter and pool.sample_of: %d, which takes far fewer labels (docs/judges.md)",
            *(name, judged, len(score), len(score)),
        )
    return HistorySource(kind="judge", uri=run.spec.pool.uri, examples=judged, column=name)


def _try_judges(spec: Spec, plan: Plan) -> str:
    """Describe the judges by the first rows; raises DataError for a value that is neither a score nor a class."""
    found = []
    for name, values in try_words(spec.pool, plan).items():
        judged = [text for value in values if (text := text_of(value)) is not None]
        if spec.model.classes or not spec.model.has_classes:
            read_said(name, judged, spec.model.classes or ())
        found.append(f"{name} ({len(judged)} of the first {counted(len(values), 'row')})")
    return ", ".join(found)


def _of_reference(run: Run) -> Iterator[_Labelled]:
    """Yield the labelled examples of the reference."""
    given = run.spec.reference
    if given is None or given.labels is None or run.header.reference is None:
        return
    folder = reference.folder_of(run.spec, run.header.reference.digest, run.store)
    index = reference.complete_index(folder)
    features = Features.of(folder, index.files)
    ids = [name for part in range(len(features.sizes)) for name in features.ids(part)]
    rules = run.spec.labels
    read = reading_by(run.spec.model, run.num_classes, numbers_are_classes=rules.numbers_are_classes)
    label = join(_read_labels(given, set(ids)), ids, run=run.name, conflict=rules.conflict, read=read).label
    places = _sample(run, np.flatnonzero([name in label for name in ids]))
    if not len(places):
        raise _no_label(given)
    table = features.take([name for name in LEARNED_FROM if name in index.features], places)
    rows = {name: to_numpy(table[name]) for name in table.column_names}
    score, said = read_log(run).score, rows["prediction"].tolist()
    outcome = [
        outcome_of(run.spec.model, score, prediction, label[ids[place]])
        for prediction, place in zip(said, places.tolist(), strict=True)
    ]
    source = HistorySource(kind="reference", uri=given.uri, examples=len(places), column=None)
    yield _Labelled(source, _comparable(run, rows), np.array(outcome, dtype=np.float64))


def _read_labels(source: ReferenceSpec, known: set[str] | None) -> list[Label]:
    """Read the labels of a reference; raises DataError if an id is not ``known``, unless that is None."""
    assert source.labels is not None
    labels = list(parse(LabelFile(source.labels, read_uri(source.labels))))
    names = ids_of_names({row.id for row in labels}, known, lambda ids: ()) if known is not None else {}
    labels = [row._replace(id=names.get(row.id, row.id)) for row in labels]
    unknown = next((row.id for row in labels if known is not None and row.id not in known), None)
    if unknown is not None:
        raise DataError(
            f"reference.labels: {source.labels} has the id {unknown!r}, which is no example of {source.uri}; "
            f"use the ids of its examples, such as {min(known or [''])!r}"
        )
    return labels


def _no_label(source: ReferenceSpec) -> DataError:
    return DataError(f"reference.labels: {source.labels} has no label; remove the key, or fill the file")


def _of_audits(run: Run) -> Iterator[_Labelled]:
    """Yield the labelled examples of earlier audits; damaged runs are left out unless the spec names them."""
    asked = run.spec.history
    if isinstance(asked, list):
        for other, rounds in _named(asked):
            yield _of_audit(run, other, rounds)
    elif asked == "auto":
        _refuse_without_digest(run.spec)
        output = open_store(run.uri.rpartition("/")[0])
        for uri in (output.uri_of(name) for name in names_of_runs(output) if name != run.name):
            try:
                other = Run.open(uri)
                rounds = _labelled_rounds(other) if _is_of_same_model(run, other) else []
                found = [_of_audit(run, other, rounds)] if rounds else []
            except OpaccError as error:
                log.warning("history: %s is left out: %s", uri, error)
                continue
            yield from found


def _named(uris: Sequence[str]) -> Iterator[tuple[Run, list[LabelledRound]]]:
    """Yield the named audits with their rounds that have labels; raises DataError if one has none."""
    for uri in uris:
        other = Run.open(uri)
        rounds = _labelled_rounds(other)
        if not rounds:
            raise DataError(f"history: no example of {uri} has a label yet; import some, or remove it")
        yield other, rounds


def _labelled_rounds(other: Run) -> list[LabelledRound]:
    """Return the rounds that have labels."""
    return having_labels(read_rounds(other)) if other.rounds() else []


def _is_of_same_model(run: Run, other: Run) -> bool:
    """Return whether another run's model has the same weights, classes and code, as far as known."""
    code, theirs = run.header.code, other.header.code
    if model_of(other.spec) != model_of(run.spec):
        return False
    if code and theirs and not (code.files == theirs.files and is_same(other.features, run.features)):
        return False
    same = _asks(other.spec) == _asks(run.spec)
    if not same:
        log.warning("history: %s is left out: it has other classes or another task", other.uri)
    return same


def _asks(spec: Spec) -> tuple[Any, ...]:
    """Return task, classes and grades, which decide whether a prediction is right."""
    return spec.model.task, spec.model.classes, spec.model.outcomes


def _of_audit(run: Run, other: Run, rounds: Sequence[LabelledRound]) -> _Labelled:
    """Return the labelled examples of another run, each once.

    If both runs have the same pool, outcomes are those of this run's model.
    """
    index = np.concatenate([item.known.index for item in rounds])
    values = np.concatenate([item.outcome for item in rounds])
    source, said = other, _said_of(run, other, rounds, index)
    if said is not None:
        source = run
        values = np.concatenate(outcomes_of_another(rounds, run.spec.model, said, read_log(run).score))
    outcome = dict(zip(index.tolist(), values.tolist(), strict=True))
    places = _sample(run, np.array(sorted(outcome), dtype=np.int64))
    rows = read_rows(source, LEARNED_FROM, places)
    found = HistorySource(kind="audit", uri=other.uri, examples=len(places), column=None)
    return _Labelled(found, _comparable(run, rows), np.array([outcome[place] for place in places.tolist()]))


def _said_of(run: Run, other: Run, rounds: Sequence[LabelledRound], index: NDArray[np.int64]) -> list[Any] | None:
    """Return the run's predictions for the examples ``index`` (k,) of another run; None if its pool differs."""
    there = run.read_index()
    same_pool = run.header.pool.digest == other.header.pool.digest and _asks(run.spec) == _asks(other.spec)
    if not same_pool or there is None or there.num_examples != rounds[0].selection.pool_size:
        return None
    ids, said = find_rows(run, index)
    return said if ids == [name for item in rounds for name in item.known.ids] else None


def _sample(run: Run, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``places`` (k,), or a random part of them, sorted."""
    if len(places) <= MOST:
        return places
    return np.sort(np.random.default_rng(run.spec.seed).choice(places, MOST, replace=False))


def _comparable(run: Run, rows: Columns) -> Columns:
    """Return the features that the run's own pool has with the same width."""
    index = run.read_index()
    own = index.features if index else {}
    return {
        name: values
        for name, values in rows.items()
        if name in own and (values.ndim == 1 or values.shape[1] == own[name])
    }
