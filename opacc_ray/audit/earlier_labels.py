"""Labels of before a run, and labels that leave it: what it knows before its first label, labels that are carried to
the next run of a pool that grew, and labels that are exported as training data.

**Known** are labels of the reference and of earlier audits, and judges. They are gathered once, for all rounds and the
estimate, and stored:

    history/DIGEST/labelled-1.parquet  features and outcomes of labelled examples from one source
    history/DIGEST/judges.parquet      scores of each judge, one per example of the pool; NaN where it has not judged
    history/history.json               sources, with a digest of each file; created once, after the files

Estimates stay valid if it is wrong. It stays the same for all rounds, even if other runs are labelled meanwhile, so
that the estimate uses exactly what the draws used.

**Carried** labels are those of a sample with known probabilities, of the part of the pool that both runs have in common
(:mod:`opacc_ray.designs.inclusion_probability`). Examples that are gone take their labels with them. The part that is
new or changed has a draw of its own, with the share of the budget that it has of the pool, at least :data:`LEAST`
examples.

**Exported** examples are remembered: they cannot judge the model that learned them.

    id, uri, label, prediction, outcome, weight

``weight`` is the number of examples of the pool that the label stands for in the estimate. A model that is trained with
these weights sees failures as often as the pool has them; without weights it sees them as often as they were drawn.
"""

import csv
import io
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import CARRIED, NEW, OLD, Grown, InclusionProbability
from opacc_ray.designs.simple_random import SimpleRandom, Stratified
from opacc_ray.errors import DataError, LabelError, OpaccError, SpecError, counted, shortened
from opacc_ray.estimation.failures import trusted_share
from opacc_ray.estimation.sample import Rounds
from opacc_ray.extract import reference
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.feature_set import model_of
from opacc_ray.extract.model_code import is_same
from opacc_ray.extract.shards import Columns
from opacc_ray.extract.table_columns import read_words, try_words
from opacc_ray.labels import labelled_rounds
from opacc_ray.labels.formats import Label, LabelFile, as_jsonl, parse, spreadsheet_safe
from opacc_ray.labels.joining import ids_of_names, join, reading_by
from opacc_ray.labels.label_actions import ExportedLabels, import_labels, list_answers
from opacc_ray.labels.label_log import LabelAction, outcome_of, read_log
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, outcomes_of_another, read_rounds
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.parquet_io import encode, numbers, read_bytes, to_numpy
from opacc_ray.lake.pools import planned_ids
from opacc_ray.lake.store_uris import open_store, read_uri, write_object
from opacc_ray.parts.view import View, subset
from opacc_ray.pool import NO_HISTORY, History, Pool, read_judges, read_said, text_of
from opacc_ray.runs.run import Run, find_rows, open_view, read_column, read_kept, read_rows, unchanged_plan
from opacc_ray.runs.run_documents import Draw, Happening, HistorySource, KeptHistory, Taught, described_files
from opacc_ray.runs.series import grown_from, names_of_runs, output_of, run_beside, runs_of
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.samplers.base import Report
from opacc_ray.samplers.neyman.failure_model import predict_failure
from opacc_ray.samplers.neyman.sampling import signals_for
from opacc_ray.samplers.select import select as select_from
from opacc_ray.selection import Selection
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


# -- labels carried to the next run of a pool that grew --------------------------------------------------------------


LEAST = 10
"""Examples that are drawn from the new part, if it has so many."""

_DESIGNS = (SimpleRandom, Stratified, InclusionProbability)


class Carried(NamedTuple):
    """Labels of an earlier run that count in a later one."""

    run: Run  # the earlier one
    places: NDArray[np.int64]  # (n,) in the pool of the later run
    ids: list[str]  # (n,)
    truth: list[str]  # (n,)
    probability: NDArray[np.float64]  # (n,) π
    num_labels: int  # of the earlier run
    common: NDArray[np.bool_]  # (N,) examples of the later pool that the earlier one has as well
    reason: str | None  # what an estimate from them assumes about labels that are not there


def choose_first(
    run: Run, progress: Report, labels_of_new: Callable[[], int] | None = None
) -> tuple[Selection, set[str]] | None:
    """Return the first round of a grown pool and its ids with carried labels.

    None if no label can be carried; labels of the same pool that do not count are then logged. ``labels_of_new``
    returns how many examples are drawn from the new part; default: its share of the budget.
    """
    sample, newest_first = run.spec.sample, runs_of(run.spec.output, run.spec.name)[0][::-1]
    carried = None
    if not (sample.fresh or sample.budget is None or sample.models):
        try:
            carried = _find_carried(run, newest_first)
        except OpaccError as error:
            log.warning("no label is carried over from an earlier run: %s", error)
    if carried is None:
        _tell_other_labels(run, newest_first)
        return None
    assert sample.budget is not None
    size = run.complete_features().index.num_examples
    new = int((~carried.common).sum())
    wanted = math.ceil(sample.budget * new / size) if labels_of_new is None else labels_of_new()
    return _choose(run, carried, min(new, max(LEAST, wanted)), progress), set(carried.ids)


def _find_carried(run: Run, newest_first: Sequence[Run]) -> Carried | None:
    """Return the labels of the newest earlier run that count in this one; None if there is no such run or label.

    Raises OpaccError if its labels or features are damaged.
    """
    for before in grown_from(newest_first, run.spec, run.header.pool.digest):
        asked = (before.spec.model.task, before.spec.model.classes) == (run.spec.model.task, run.spec.model.classes)
        if not asked or not before.rounds() or before.read_features() is None:
            continue
        rounds = labelled_rounds.read_rounds(before)
        if missing := sum(len(item.missing) for item in rounds):
            _tell_unused(run, before, sum(int(item.labelled.sum()) for item in rounds), missing)
            continue
        return _carried(run, before, labelled_rounds.having_labels(rounds))
    return None


def _tell_unused(run: Run, before: Run, labels: int, missing: int) -> None:
    """Warn that the labels of a run that waits for more do not count, and how they can, if it has any of its own."""
    if own := labels - before.read_selection(1).facts.get(CARRIED, {}).get("labels", 0):
        missed = f"{missing} {'is' if missing == 1 else 'are'} missing"
        log.warning(
            "%s of %s are not used, because %s: import %s (? for can't tell), then `opacc runs remove %s --force` "
            "and run again",
            *(counted(own, "label"), before.name, missed, "it" if missing == 1 else "them", run.uri),
        )


def _tell_other_labels(run: Run, newest_first: Sequence[Run]) -> None:
    """Warn of the labels of another run of the same audit, pool and model, with another budget, method or seed."""
    for before in newest_first:
        same = before.header.pool.digest == run.header.pool.digest and before.spec.model == run.spec.model
        if same and before.uri != run.uri and (labels := labelled_rounds.read_labelled(before)):
            log.warning(
                "%s has %s of the same pool: `opacc next %s` goes on with them, and `opacc labels import %s %s` takes "
                "those of examples that are chosen here",
                *(before.name, counted(len(labels), "label"), before.uri, run.uri, before.uri),
            )
            return


def _carried(run: Run, before: Run, rounds: list[LabelledRound]) -> Carried | None:
    known = [item.known for item in rounds]
    if not known:
        return None
    strange = next((part.method for part in known if not isinstance(part.design, _DESIGNS)), None)
    late = Rounds(known).late
    if strange or late or not all(part.design.is_distinct for part in known):
        reason = late or f"a sample by {strange or known[0].method} does not keep its probabilities"
        log.info("the labels of %s are not carried over: %s", before.name, reason)
        return None
    old, new = before.complete_features().features, run.complete_features().features
    there, here = [list(part.sources()) for part in (old, new)]
    if not there or not here:
        return None
    sources, own = np.concatenate(there), np.concatenate(here)
    common = np.isin(own, sources)
    if common.sum() != np.isin(sources, own).sum():
        log.info("the labels of %s are not carried over: its pool left out other examples", before.name)
        return None
    ids = [name for part in known for name in part.ids]
    truth = [text for item in rounds for text in item.truth]
    places = new.places(ids)
    kept = [row for row, name in enumerate(ids) if name in places and common[places[name]]]
    if not kept:
        log.warning(
            "the %s of %s do not count here, because the files that held their examples changed or are gone; a file "
            "counts as a whole, so add rows as a new file to a folder and leave its other files as they are",
            *(counted(len(ids), "label"), before.name),
        )
        return None
    weights = Rounds(known).weights[kept]
    probability = np.minimum(1 / (known[0].pool_size * weights), 1.0)
    index = np.array([places[ids[row]] for row in kept], dtype=np.int64)
    names, texts = [ids[row] for row in kept], [truth[row] for row in kept]
    differ = any(np.nan_to_num(item.disagreement).any() for item in rounds)
    assumed = labelled_rounds.reason_of(
        "errors that differences of annotators show are not allowed for" if differ else None, rounds
    )
    return Carried(before, index, names, texts, probability, len(ids), common, assumed)


def _choose(run: Run, carried: Carried, num: int, progress: Report) -> Selection:
    """Return the carried labels and a draw of ``num`` from the rest of the pool as one selection."""
    spec, sample = run.spec, run.spec.sample
    parameters = parse_parameters(sample.method, spec.drawn_with(sample.method, sample.parameters))
    needs = find_method(sample.method).needs(parameters)
    failure, learns = 1 - _outcomes(run, carried), parameters.learns_from_history
    history = _history(run, carried, failure) if learns else NO_HISTORY
    added, inclusion, num_new = np.empty(0, dtype=np.int64), np.empty(0), int((~carried.common).sum())
    with open_view(run, needs, parameters.optional_features, parameters.instead) as view:
        p, leverage = _predicted(view, parameters, carried.places, failure, learns)
        drawn = _draw(run, view, carried, num, history, progress)
        if drawn is not None:
            added, inclusion = drawn.index, np.minimum(1 / (num_new * drawn.design.weights), 1.0)
        places = np.concatenate([carried.places, added])
        ids = tuple(view.identify(places))
    sizes = [len(carried.ids), len(added)]
    design = Grown(
        inclusion_probability=np.concatenate([carried.probability, inclusion]),
        predicted_failure=np.clip(p[places], 0, 1),
        predicted_failures=float(p.sum()),
        population=len(p),
        num_drawn=len(places),
        labelled_before=np.empty(0, dtype=np.int64),
        part=np.repeat([OLD, NEW], sizes),
        leverage=np.concatenate([leverage, np.zeros(len(added))]),
        drawn=np.array(sizes if drawn is not None else sizes[:1]),
    )
    facts = {
        "run": carried.run.name,
        "labels": len(carried.ids),
        "of": carried.num_labels,
        "share": float(carried.common.mean()),
        "new": num_new,
    }
    if carried.reason:
        facts["reason"] = f"of the labels carried over from {carried.run.name}, {carried.reason}"
    made = drawn.parameters if drawn is not None else json.loads(json.dumps(asdict(parameters)))
    facts = dict(drawn.facts if drawn is not None else {}) | {CARRIED: facts}
    return Selection(sample.method, made, spec.seed, len(p), places, ids, design, facts=facts)


def _outcomes(run: Run, carried: Carried) -> NDArray[np.float64]:
    """Return the outcomes (n,) of the carried labels for the run's own model."""
    score, model = read_log(run).score, run.spec.model
    _, said = find_rows(run, carried.places)
    pairs = zip(said, carried.truth, strict=True)
    return np.array([outcome_of(model, score, prediction, truth) for prediction, truth in pairs], dtype=np.float64)


def _history(run: Run, carried: Carried, failure: NDArray[np.float64]) -> History:
    """Return what is known before the draw: the run's history, and the carried labels."""
    rows: dict[str, Any] = read_rows(run, LEARNED_FROM, carried.places)
    known = read_history(run)
    return replace(known, labelled=[*known.labelled, {"pool": Pool(**rows), "outcomes": 1 - failure}])


def _predicted(
    view: View, parameters: Any, places: NDArray[np.int64], failure: NDArray[np.float64], learns: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return p (N,) of every example, and the leverage (n,) of the carried labels at ``places`` (n,)."""
    mean = np.full(view.size, (failure.sum() + 0.5) / (len(failure) + 1))
    if not learns:
        return mean, np.zeros(len(places))
    forecast = predict_failure(signals_for(view, parameters, NO_HISTORY), places, failure)
    share = trusted_share(len(places))
    return share * forecast.failure + (1 - share) * mean, np.clip(share * forecast.leverage, 0, 1)


def _draw(run: Run, view: View, carried: Carried, num: int, history: History, progress: Report) -> Selection | None:
    """Return a draw from what is new or changed, by its places in the whole pool; None if nothing is."""
    new = np.flatnonzero(~carried.common)
    if not len(new):
        return None
    sample = run.spec.sample
    given = run.spec.drawn_with(sample.method, sample.parameters)
    known = None if history is NO_HISTORY else history.take(new)
    found = select_from(subset(view, new), sample.method, num, run.spec.seed, history=known, progress=progress, **given)
    return replace(found, index=new[found.index])


def carried_facts(run: Run) -> dict[str, Any] | None:
    """Return what the first draw of a run states of labels that it carries over; None if it carries none."""
    return run.read_selection(1).facts.get(CARRIED) if 1 in run.rounds() else None


def import_carried(run: Run) -> None:
    """Import the labels that the first round carries, unless that is done."""
    facts = carried_facts(run)
    if facts is None:
        return
    source = f"labels of {facts['run']}.jsonl"
    if any(action.source == source for commit in run.commits for action in commit.documents(LabelAction)):
        return
    before = run_beside(output_of(run), facts["run"])
    known = labelled_rounds.having_labels(labelled_rounds.read_rounds(before)) if before else []
    label = {name: text for item in known for name, text in zip(item.known.ids, item.truth, strict=True)}
    selection = run.read_selection(1)
    assert isinstance(selection.design, Grown)
    ids = [name for name, part in zip(selection.ids, selection.design.part.tolist(), strict=True) if part == OLD]
    if not all(name in label for name in ids):
        log.warning("the labels of %s can no longer be read; label its examples again", facts["run"])
        return
    import_labels(run, source, as_jsonl({"id": name, "label": label[name]} for name in ids))
    log.info("%s", describe(facts, len(selection) - facts["labels"]))


def carried_to(run: Run, id: str) -> list[Run]:
    """Return the later runs of an audit in which a run's label of an example counts, the oldest first."""
    found = [run]
    for later in runs_of(output_of(run).uri, run.spec.name)[0]:
        selection = later.read_selection(1) if 1 in later.rounds() else None
        source = selection.facts.get(CARRIED, {}).get("run") if selection else None
        if selection and any(source == own.name for own in found) and isinstance(selection.design, Grown):
            part = dict(zip(selection.ids, selection.design.part.tolist(), strict=True))
            found += [later] if part.get(id) == OLD else []
    return [own for own in found[1:] if _counts(own, id)]


def _counts(run: Run, id: str) -> bool:
    """Return whether a carried label counts: it is neither corrected nor withdrawn."""
    return any(item.state == "counts" and not item.correction for item in list_answers(run, id).answers)


def describe(facts: dict[str, Any], drawn: int) -> str:
    """Describe what is carried: how many labels, for which share of the pool, and how many are to come."""
    labels = counted(facts["labels"], "label")
    lost = facts["of"] - facts["labels"]
    left = f"; {counted(lost, 'other')} do not, whose files changed or are gone" if lost else ""
    more = f"{counted(drawn, 'example')} drawn from the {counted(facts['new'], 'new or changed one')}"
    return f"{labels} of {facts['run']} still count, for {100 * facts['share']:.1f} % of the pool{left}; {more}"


COLUMNS = ("id", "uri", "label", "prediction", "outcome", "weight")


def export_failures(run: Run, file: str) -> ExportedLabels:
    """Write the labelled mispredictions of a run as a CSV file; see :func:`export_training`."""
    return export_training(run, file, only_failures=True)


def export_training(run: Run, file: str, *, only_failures: bool = False) -> ExportedLabels:
    """Write all labelled examples of a run as a CSV file, or ``only_failures``.

    The ids are kept in the log of the run, so that :func:`taught_ids` finds them. Raises SpecError if ``file`` has
    another suffix; LabelError if there is no such example, or labels are in conflict.
    """
    if not file.lower().endswith(".csv"):
        raise SpecError(f"{file}: training data are a CSV file; give a name such as training.csv")
    known = labelled_rounds.read_known(run)
    rows = _rows(run, known, only_failures=only_failures)
    if not rows:
        labels = counted(sum(len(item.truth) for item in known), "label")
        raise LabelError(f"none of the {labels} of {run.uri} is a misprediction; give --to training for the others")
    sink = io.StringIO()
    table = csv.writer(sink, lineterminator="\n")
    table.writerows([COLUMNS, *([spreadsheet_safe(text) for text in row] for row in rows)])
    written = write_object(file, sink.getvalue().encode())
    taught = Taught(ids=[row[0] for row in rows])
    run.log.append(lambda commits: Happening([taught]))
    notes = [
        f"{sum(float(row[4]) < 1 for row in rows)} of them are mispredicted",
        "train on them, audit the new model on a fresh draw, and compare both (docs/guide.md)",
    ]
    tool = "failures" if only_failures else "training"
    return ExportedLabels(run=run.uri, tool=tool, to=written, examples=len(rows), notes=notes)


def taught_ids(runs: Sequence[Run]) -> set[str]:
    """Return the ids of examples that were exported as training data from one of the runs."""
    return {id for run in runs for commit in run.commits for item in commit.documents(Taught) for id in item.ids}


def drawn_after_export(run: Run, others: Sequence[Run]) -> bool:
    """Return whether all rounds of a run were drawn after the last export of training data.

    False if neither the run nor one of the others exported any.
    """
    own = [commit.number for commit in run.commits for _ in commit.documents(Taught)]
    theirs = [commit.at for other in others for commit in other.commits for _ in commit.documents(Taught)]
    drawn = [run.logged(Draw, number)[-1][0] for number in run.rounds()]
    if not own and not theirs:
        return False
    return all(commit.number > max(own, default=0) and commit.at >= max(theirs, default="") for commit in drawn)


def _rows(run: Run, known: Sequence[LabelledRound], *, only_failures: bool) -> list[list[str]]:
    """Return a row of COLUMNS for each example once, in the order of the rounds."""
    weight, size, found = (
        labelled_rounds.weights_of(known),
        run.read_selection(known[0].number).pool_size,
        dict[str, list[str]](),
    )
    for item in known:
        chosen = run.read_chosen(item.number)
        uris = dict(zip(chosen.ids, chosen.uris, strict=True))
        answers = zip(item.known.ids, item.truth, item.predicted, item.outcome.tolist(), strict=True)
        for id, truth, predicted, outcome in answers:
            if outcome < 1 or not only_failures:
                stands_for = f"{weight[id] * size:.6g}" if id in weight else ""
                found[id] = [id, uris.get(id, ""), truth, predicted, f"{outcome:g}", stands_for]
    return list(found.values())
