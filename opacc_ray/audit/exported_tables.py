"""Export a run as Parquet tables for DuckDB, pandas, Ray Data and Spark, partitioned by run and round.

    URI/dictionary.csv                                description of each column of each table
    URI/features/run=NAME/part-000000.parquet         predictions and features of each example
    URI/selections/run=NAME/round=1/rounds.parquet    the chosen examples, one row per draw; of a track: track-T.parquet
    URI/labels/run=NAME/round=1/rounds.parquet        label and outcome of each of them
    URI/estimates/run=NAME/DIGEST.parquet             one row: an estimate as it was reported
    URI/numbers/run=NAME/DIGEST.parquet               all its numbers: the accuracy, metrics, slices and classes

The same run gives the same files: a repeated export replaces changed files and adds a new estimate. So the tables of
many runs share one place, and ``estimates`` is the history of all of them.
"""

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from pydantic import Field

from opacc_ray.audit.number_rows import number_rows
from opacc_ray.documents import Document
from opacc_ray.labels.labelled_rounds import LabelledRound, read_rounds
from opacc_ray.lake.parquet_io import encode, read_bytes
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs.estimate_documents import AccuracyEstimate
from opacc_ray.runs.feature_store import read_tables
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import Run
from opacc_ray.selection import Selection


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str  # of Arrow
    meaning: str


_RUN = Column("run", "string", "name of the run (partition)")
_TRACK = Column("track", "string", "track of rounds; null: the first one")
_PLACE = (
    _RUN,
    Column("round", "int64", "number of the round (partition)"),
    _TRACK,
    Column("order", "int64", "position in the order of choice, from 1"),
)

FEATURES = (
    _RUN,
    Column("id", "string", "id of the example"),
    Column("uri", "string", "place of the example"),
    Column("hidden", "list<float>", "the recorded hidden layer"),
    Column("output", "list<float>", "the last layer"),
    Column("prediction", "int64 or double", "predicted class, by its number; for a regression the predicted value"),
    Column("confidence", "double", "largest softmax probability, or the score from the pool"),
    Column("dsa", "float", "distance-based surprise"),
    Column("lsa", "float", "likelihood-based surprise"),
    Column("coverage", "list<uint8>", "covered requirements, eight to a byte"),
)
"""Columns of the table of features; each run has those that it extracted."""

SELECTIONS = (
    *_PLACE,
    Column("id", "string", "id of the example; one that is drawn twice has two rows"),
    Column("uri", "string", "place of the example"),
    Column("place", "int64", "position in the pool, from 0"),
    Column("method", "string", "sampling method"),
    Column("seed", "int64", "seed of the draw"),
    Column("weight", "double", "weight by this round's design alone, with all labels; an estimate may add predictions"),
    Column("prediction", "string", "prediction, in the terms of the labels"),
    Column("object", "string", "key of the pool's object with the example; null if unknown"),
    Column("tag", "string", "tag of that object, which identifies its content, when the pool was listed"),
)

LABELS = (
    *_PLACE,
    Column("id", "string", "id of the example"),
    Column(
        "status",
        "string",
        "labelled, missing, unsure (can't tell), given up (the round was closed) or not counted (a labelled "
        "example drawn again, after a draw without a label)",
    ),
    Column("label", "string", "label, from all answers together; null without a label"),
    Column("prediction", "string", "prediction, in the same terms; null without a label"),
    Column(
        "outcome",
        "double",
        "1: the prediction is right, 0: it is wrong; for a regression the score; null without a label",
    ),
)

ESTIMATES = (
    _RUN,
    Column("uri", "string", "URI of the run"),
    Column("name", "string", "name of the audit, in its spec"),
    _TRACK,
    Column("pool", "string", "URI of the pool"),
    Column("pool_digest", "string", "digest of the pool's listing"),
    Column("pool_version", "string", "version of the pool's table; null if the pool is no table"),
    Column("pool_format", "string", "format of the pool"),
    Column("pool_filter", "string", "filter of the pool's rows; null: all"),
    Column("pool_split", "string", "split of the pool's dataset; null: its only one"),
    Column("pool_catalog", "string", "catalog of the pool's table; null: the table is found by its URI"),
    Column("pool_table", "string", "name of the pool's table in the catalog"),
    Column("task", "string", "classification or regression"),
    Column("classes", "list<string>", "names of the classes, sorted; null: no names"),
    Column("population_name", "string", "name of the population in the spec; null: the pool, its filter and so on"),
    Column("population", "string", "digest of the population: rows with the same one are a series over time"),
    Column(
        "model",
        "string",
        "the model: its factory, program or function with its weights, or the column of its predictions",
    ),
    Column("model_sha256", "string", "digest of the model's weights; null if the spec has none"),
    Column("methods", "string", "sampling methods of the rounds, in order"),
    Column("rounds", "int64", "number of rounds"),
    Column("measure", "string", "what is estimated: accuracy, or the score of a regression"),
    Column("n", "int64", "draws that it is computed from"),
    Column("pool_size", "int64", "examples in the pool that it is for"),
    Column("excluded", "int64", "further examples that could not be read"),
    Column("value", "double", "the estimate"),
    Column("standard_error", "double", "its estimated standard error"),
    Column("low", "double", "lower end of the interval"),
    Column("high", "double", "upper end of the interval"),
    Column("level", "double", "confidence level"),
    Column("interval", "string", "name of the interval"),
    Column("design_based", "bool", "whether the interval holds by the sampling design alone"),
    Column("reason", "string", "assumptions of the interval; null if it holds by the sampling design alone"),
    Column("labels_digest", "string", "digest of its labels"),
    Column("exported", "string", "time of the first export: ISO 8601, UTC"),
)

NUMBERS = (
    _RUN,
    Column("uri", "string", "URI of the run"),
    Column("name", "string", "name of the audit, in its spec"),
    _TRACK,
    Column("population", "string", "digest of the population: rows with the same one are a series over time"),
    Column("labels_digest", "string", "digest of the labels of the estimate"),
    Column("metric", "string", "the metric, such as accuracy or f1@defect"),
    Column("by", "string", "the slices, or prediction or truth for classes; null: the whole pool"),
    Column("slice", "string", "the slice or class; null: the whole pool"),
    Column("value", "double", "the estimate, inside its interval"),
    Column("low", "double", "lower end of the interval"),
    Column("high", "double", "upper end of the interval"),
    Column("low_together", "double", "lower end of the interval that holds for all slices at once; null: no slice"),
    Column("high_together", "double", "its upper end"),
    Column("level", "double", "confidence level"),
    Column("n", "int64", "labels that it is computed from"),
    Column("size", "int64", "examples of the pool, the slice or the predicted class; null: unknown"),
    Column("design_based", "bool", "whether the interval holds by the sampling design alone"),
)

POPULATION = {
    "name": "population_name",
    "pool": "pool",
    "format": "pool_format",
    "filter": "pool_filter",
    "split": "pool_split",
    "catalog": "pool_catalog",
    "table": "pool_table",
    "task": "task",
    "classes": "classes",
}
"""Column for each key of a population."""

_OPTIONS = {"compression": "zstd", "write_page_checksum": True}
"""Options of the Parquet files."""

TABLES = {"features": FEATURES, "selections": SELECTIONS, "labels": LABELS, "estimates": ESTIMATES, "numbers": NUMBERS}

DICTIONARY = "dictionary.csv"


class ExportedTables(Document):
    """Report of exported tables."""

    format: Literal["opacc-tables/1"] = Field(default="opacc-tables/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    to: str = Field(description="URI of the tables")
    rows: dict[str, int] = Field(description="table -> rows of this run")
    dictionary: str = Field(description="URI of the description of all columns")


def export_tables(run: Run, uri: str, *, features: bool = True) -> ExportedTables:
    """Write a run with complete features as tables below ``uri``; tables of other runs there are kept.

    With ``features``, also write these, which are as large as in the run.

    Raises DataError if the features are incomplete; LabelError if labels are in conflict; StorageError if the place is
    not writable.
    """
    target = open_store(uri)
    rows = dict.fromkeys(TABLES, 0)
    for name, key, table in _tables(run, features):
        target.write(f"{name}/run={run.name}/{key}", encode(table, **_OPTIONS))
        rows[name] += len(table)
    for track in run.tracks():
        estimate = track.read_estimate()
        if estimate is not None:
            key = f"run={track.name}/{hashlib.sha256(estimate.to_bytes()).hexdigest()[:16]}.parquet"
            _add_estimate(target, f"estimates/{key}", track, estimate)
            rows["estimates"] += 1
            numbers = _table(NUMBERS, _numbers(track, estimate))
            target.write(f"numbers/{key}", encode(numbers, **_OPTIONS))
            rows["numbers"] += len(numbers)
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["table", "column", "type", "meaning"])
    writer.writerows([name, *column] for name, columns in TABLES.items() for column in columns)
    target.write(DICTIONARY, sink.getvalue().encode())
    return ExportedTables(run=run.uri, to=target.uri, rows=rows, dictionary=target.uri_of(DICTIONARY))


def _tables(run: Run, features: bool) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of a table, the key below the run's partition, and rows as an Arrow table."""
    for number, part in enumerate(read_tables(run) if features else ()):
        yield "features", f"part-{number:06d}.parquet", part
    for track in run.tracks():
        file = "rounds.parquet" if track.track is None else f"track-{track.track}.parquet"
        for item in read_rounds(track) if track.rounds() else ():
            yield "selections", f"round={item.number}/{file}", _table(SELECTIONS, _selection(track, item.selection))
            yield "labels", f"round={item.number}/{file}", _table(LABELS, _labels(track, item))


def _selection(run: Run, selection: Selection) -> dict[str, Sequence[Any]]:
    chosen, count = run.read_chosen(selection.round), len(selection)
    return {
        "track": [run.track] * count,
        "order": range(1, count + 1),
        "id": selection.ids,
        "uri": chosen.uris,
        "place": selection.index.tolist(),
        "method": [selection.method] * count,
        "seed": [selection.seed] * count,
        "weight": selection.design.weights.tolist(),
        "prediction": [run.spec.model.name_of(value) for value in chosen.predictions],
        "object": chosen.objects,
        "tag": chosen.tags,
    }


def _labels(run: Run, item: LabelledRound) -> dict[str, Sequence[Any]]:
    labelled = item.labelled.tolist()
    known = iter(zip(item.truth, item.predicted, item.outcome.tolist(), strict=True))
    said = [next(known) if is_labelled else (None, None, None) for is_labelled in labelled]
    ids = item.selection.ids
    why = dict.fromkeys(item.missing, "missing") | dict.fromkeys(item.given_up, "given up")
    why |= dict.fromkeys(item.unsure, "unsure")
    state = ["labelled" if own else why.get(name, "not counted") for name, own in zip(ids, labelled, strict=True)]
    return {
        "track": [run.track] * len(ids),
        "order": range(1, len(ids) + 1),
        "id": ids,
        "status": state,
        "label": [label for label, _, _ in said],
        "prediction": [prediction for _, prediction, _ in said],
        "outcome": [outcome for _, _, outcome in said],
    }


def _add_estimate(target: Store, key: str, run: Run, estimate: AccuracyEstimate) -> None:
    """Add the last estimate of a track to the history, unless it is there."""
    there = target.read_if_there(key)
    former = read_bytes(there).to_pylist()[0] if there else {}
    if not former.keys() >= {column.name for column in ESTIMATES[1:]}:  # none, or a row of an earlier version
        row = {name: [value] for name, value in _estimate(run, estimate).items()}
        row["exported"] = [former.get("exported") or row["exported"][0]]
        target.write(key, encode(_table(ESTIMATES, row), **_OPTIONS))


def _estimate(run: Run, estimate: AccuracyEstimate) -> Mapping[str, Any]:
    """Return the row of an estimate by column."""
    header, stated, model = run.header, estimate.model_dump(), run.spec.model
    pool, population = run.spec.pool, Population.of(run.spec)
    ways = [model.factory or model.program or model.function, model.weights]
    if pool.holds_features:
        ways = [f"column {pool.columns.prediction or ', '.join(pool.columns.features['output'])}"]
    own = {
        **{POPULATION[key]: getattr(pool, key) for key in ("format", "filter", "split", "catalog", "table")},
        **{POPULATION[key]: getattr(population, key) for key in ("name", "task", "classes")},
        "population": population.digest,
        "model": " ".join(text for text in ways if text),
        "uri": run.uri,
        "name": run.spec.name,
        "track": run.track,
        "pool": pool.uri,
        "pool_digest": header.pool.digest,
        "pool_version": header.pool.version,
        "model_sha256": header.model.sha256,
        "methods": ", ".join(item.method for item in estimate.rounds),
        "rounds": len(estimate.rounds),
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return own | {column.name: stated[column.name] for column in ESTIMATES[1:] if column.name not in own}


def _numbers(run: Run, estimate: AccuracyEstimate) -> dict[str, Sequence[Any]]:
    """Return all numbers of an estimate by column."""
    found = [row.model_dump() for row in number_rows(estimate)]
    population = Population.of(run.spec).digest
    of_run = {"uri": run.uri, "name": run.spec.name, "track": run.track, "population": population}
    of_run |= {"labels_digest": estimate.labels_digest}
    return {name: [value] * len(found) for name, value in of_run.items()} | {
        name: [row[name] for row in found] for name in found[0]
    }


def _table(columns: Sequence[Column], values: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as an Arrow table, without those that the folders contain."""
    import pyarrow as pa

    lists = {"list<string>": pa.list_(pa.string())}
    kinds = {column.name: lists.get(column.type) or pa.type_for_alias(column.type) for column in columns}
    return pa.table({name: pa.array(own, kinds[name]) for name, own in values.items()})
