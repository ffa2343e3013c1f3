"""Gather labelled examples from before the first label: labels of the reference, and earlier audits."""

import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.documents import Part
from opacc_ray.errors import DataError, OpaccError, SpecError, counted
from opacc_ray.extract import reference
from opacc_ray.extract.content_digest import model_of
from opacc_ray.extract.features import Features
from opacc_ray.extract.shards import Columns
from opacc_ray.extract.stored_features import read_prior, try_prior
from opacc_ray.labels.formats.label_formats import parse
from opacc_ray.labels.joining import join
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.label_rows import Label
from opacc_ray.labels.labelled_rounds import (
    LabelledRound,
    having_labels,
    outcome_of,
    outcomes_of_another,
    read_rounds,
    reading_by,
)
from opacc_ray.lake.arrow_columns import numbers
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.parquet_io import encode
from opacc_ray.lake.pools import planned_ids
from opacc_ray.lake.store_uris import open_store, read_uri
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.spec import ReferenceSpec, Spec, plan_pool

log = logging.getLogger(__name__)

PRIOR = "prior.npy"
"""File of the user's own column."""

LEARNED_FROM = ("hidden", "confidence", "dsa", "lsa", "prediction")
"""Features that predict failures."""

MOST = 10_000
"""Maximum of labelled examples from one source; of more, a random part is used."""


class HistorySource(Part):
    """One source of knowledge from before the first label."""

    kind: Literal["reference", "audit", "prior"] = Field(
        description="labels of the reference, labels of an earlier audit, or a column of the pool"
    )
    uri: str = Field(description="URI of the source")
    examples: int = Field(ge=0, description="number of labelled examples, or of values of the column")
    column: str | None = Field(description="name of the column; null for labels")


class _Labelled(NamedTuple):
    """Labelled examples of one source."""

    source: HistorySource
    features: Columns  # (k, ...) each
    outcome: NDArray[np.float64]  # (k,)


def check_history(spec: Spec, plan: Plan, compared: Plan | None) -> str:
    """Check the sources of a history; returns a summary.

    Parameters
    ----------
    plan, compared : shards of pool and reference; without the latter, ids of the reference are not checked

    Raises
    ------
    DataError, LabelError
        The file of labels, a run or the column is not readable; there is no label; or a label has an id that the
        listing of the reference lacks, if the listing contains ids.
    SpecError
        ``history: auto`` needs the digest of weights, and there is none; or a run is named twice.
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
    """Raise LabelError if a label of the reference is no class of the model, or in conflict."""
    rows = [row for row in labels if row.run is None]
    ids = list({row.id: None for row in rows})
    read = reading_by(spec.model, None, numbers_are_classes=spec.labels.numbers_are_classes)
    join(rows, ids, run="", conflict=spec.labels.conflict, read=read)


def refuse_twice(key: str, uris: Sequence[str]) -> None:
    """Raise SpecError if the list of runs under ``key`` of a spec has a duplicate."""
    twice = next((uri for place, uri in enumerate(uris) if uri in uris[:place]), None)
    if twice is not None:
        raise SpecError(f"{key} names {twice} twice; give each run once")


def _listed(source: ReferenceSpec, plan: Plan | None) -> set[str] | None:
    """Return the ids of the reference; None if its listing does not contain them."""
    planned = [planned_ids(source.format, shard) for shard in plan.shards] if plan else [None]
    return None if None in planned else {name for names in planned if names for name in names}


def _digest_of_weights(spec: Spec) -> str:
    if spec.model.sha256 is None:
        raise SpecError(
            "history: auto finds audits of the same model by the digest of its weights, and this spec has none; "
            "list the runs: history: [RUN, ...]"
        )
    return spec.model.sha256


# -- gathering -----------------------------------------------------------------------------------------------


def gather(run: Run) -> tuple[list[HistorySource], dict[str, bytes]]:
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
    """Yield the labelled examples of the reference."""
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
    """Read the labels of a reference; raises DataError if an id is not ``known``, unless that is None."""
    assert source.labels is not None
    labels = list(parse(read_uri(source.labels), source.labels))
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
    """Yield the named audits with their rounds that have labels; raises DataError if one has none."""
    for uri in uris:
        other = Run.open(uri)
        rounds = _labelled_rounds(other)
        if not rounds:
            raise DataError(f"history: no example of {uri} has a label yet; import some, or remove it")
        yield other, rounds


def _labelled_rounds(other: Run) -> list[LabelledRound]:
    """Return the rounds of all tracks that have labels."""
    return having_labels(item for track in other.tracks() if track.rounds() for item in read_rounds(track))


def _earlier(run: Run) -> Iterator[Run]:
    """Yield the other runs under the output whose model has the same weights and code, as far as known."""
    _digest_of_weights(run.spec)
    own, code, output = model_of(run.spec), run.header.code, open_store(run.uri.rpartition("/")[0])
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
        if model_of(other.spec) != own or not same_code:
            continue
        if _asks(other.spec) != _asks(run.spec):
            log.warning("history: %s is left out: it has other classes or another task", other.uri)
            continue
        yield other


def _asks(spec: Spec) -> tuple[Any, ...]:
    """Return task and classes, which decide whether a prediction is right."""
    return spec.model.task, spec.model.classes


def _of_audit(run: Run, other: Run, rounds: Sequence[LabelledRound]) -> _Labelled:
    """Return the labelled examples of another run, each once.

    If both runs have the same pool, outcomes are those of this run's model.
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
    """Return the run's predictions for the examples ``index`` (k,) of another run; None if its pool differs."""
    if run.header.pool.digest != other.header.pool.digest or _asks(run.spec) != _asks(other.spec):
        return None
    there = run.read_index()
    if there is None or there.num_examples != rounds[0].selection.pool_size:
        return None
    ids, said = feature_store.find_rows(run, index)
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


# -- files ---------------------------------------------------------------------------------------------------


def _encode(found: _Labelled) -> bytes:
    import pyarrow as pa

    columns = {name: numbers(values) for name, values in found.features.items()}
    return encode(pa.table(columns | {"outcome": numbers(found.outcome)}))


def _npy(values: NDArray[np.float64]) -> bytes:
    sink = io.BytesIO()
    np.save(sink, values, allow_pickle=False)
    return sink.getvalue()
