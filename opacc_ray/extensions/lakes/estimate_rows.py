"""The table of estimates: a row for each number of each estimate that a run stated, by its log.

A row has what it is stated for (audit, model, population, time of the data, metric, slice), what was stated (value,
interval, labels, design), and when. So rows of many runs are one history. The same run always gives the same rows.

Schemas and the data dictionary are made from the columns of all exported tables.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, get_args

from opacc_ray.runs.commit_log import Commit, digest_of
from opacc_ray.runs.estimate_documents import AccuracyEstimate, NumberRow, number_rows
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Draw

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


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str  # of Arrow; timestamp: microseconds in UTC
    meaning: str


NAMES = {"by": "sliced_by"}
"""Columns of fields of a number whose name SQL reserves."""

_TYPES = {str: "string", float: "double", int: "int64", bool: "bool"}


def _of_numbers(*names: str) -> Iterator[Column]:
    """Yield the columns for fields of :class:`NumberRow`, which say what they mean."""
    for name in names:
        field = NumberRow.model_fields[name]
        kind = next(own for own in (field.annotation, *get_args(field.annotation)) if own in _TYPES)
        yield Column(NAMES.get(name, name), _TYPES[kind], str(field.description))


_RUN = Column("run", "string", "name of the run (partition)")
_PLACE = (
    _RUN,
    Column("round", "int64", "number of the round (partition)"),
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
    Column("estimate", "string", "id of the statement: rows with the same one were stated together"),
    Column("log_entry", "int64", "number of its entry in the log of the run"),
    Column("stated", "timestamp", "when it was stated"),
    Column("audit", "string", "name of the audit, in its spec"),
    Column("uri", "string", "URI of the run"),
    Column("run_created", "timestamp", "when the run was created"),
    Column("data_as_of", "timestamp", "time of the data; see data_as_of_from"),
    Column(
        "data_as_of_from",
        "string",
        "spec: its key data_as_of; version: when that version of the table was written; files: when the newest file "
        "of the pool was written; run: when the run was created, since nothing else is known",
    ),
    Column("week", "date", "the Monday before data_as_of, in UTC"),
    Column("population", "string", "digest of the population: rows with the same one are a series over time"),
    Column("population_name", "string", "name of the population in the spec; null: the pool, its filter and so on"),
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
    Column(
        "model",
        "string",
        "model.name of the spec; without it, the factory, program or function with its weights, or the column of "
        "predictions and its pool",
    ),
    Column("model_digest", "string", "digest of the model's weights; null if the spec has none"),
    Column("features_digest", "string", "digest of the predictions and features that the last round was drawn from"),
    *_of_numbers("metric"),
    Column("measure", "string", "meaning of the accuracy: accuracy, or the score of a regression"),
    *_of_numbers("by", "slice", "value", "low", "high", "level", "low_together", "high_together", "tells"),
    *_of_numbers("unclipped", "standard_error", "method", "design_based", "reason", "n", "size"),
    Column("pool_size", "int64", "examples of the pool"),
    Column("excluded", "int64", "further examples that could not be read"),
    Column("methods", "string", "sampling methods of the rounds, in order"),
    Column("rounds", "int64", "number of rounds"),
    Column("labels_digest", "string", "digest of its labels"),
)
"""Columns of the table of estimates: a row for each number of each estimate that was stated."""

TABLES = {"features": FEATURES, "selections": SELECTIONS, "labels": LABELS, "estimates": ESTIMATES}


def table_of(columns: Sequence[Column], values: Mapping[str, Sequence[Any]]) -> Any:
    """Return the columns that have values as an Arrow table whose fields state their meaning."""
    import pyarrow as pa

    others = {"list<string>": pa.list_(pa.string()), "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32()}
    fields = [
        pa.field(name, others.get(kind) or pa.type_for_alias(kind), metadata={"comment": meaning})
        for name, kind, meaning in columns
        if name in values
    ]
    return pa.table([pa.array(values[field.name], field.type) for field in fields], schema=pa.schema(fields))


def dictionary() -> bytes:
    """Return the description of every column of every table, as CSV."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["table", "column", "type", "meaning"])
    writer.writerows([name, *column] for name, columns in TABLES.items() for column in columns)
    return sink.getvalue().encode()


class StatedRows(NamedTuple):
    """An estimate that was stated, as rows."""

    id: str
    number: int  # of its entry in the log of the run
    rows: Any  # pyarrow.Table with all columns of the table


def stated_rows(run: Run) -> Iterator[StatedRows]:
    """Yield every estimate that was stated, in the order of the log."""
    for commit, estimate in run.estimates():
        id = digest_of(commit.to_bytes())[:16]
        yield StatedRows(id, commit.number, _rows(run, commit, estimate, id))


def _rows(run: Run, commit: Commit, estimate: AccuracyEstimate, id: str) -> Any:
    numbers = [row.model_dump() for row in number_rows(estimate)]
    stated = estimate.model_dump(include={"measure", "pool_size", "excluded", "labels_digest"})
    stated |= {
        "estimate": id,
        "log_entry": commit.number,
        "stated": datetime.fromisoformat(commit.at),
        "features_digest": _drawn_from(run, commit.number),
        "methods": ", ".join(item.method for item in estimate.rounds),
        "rounds": len(estimate.rounds),
    }
    values: dict[str, Sequence[Any]] = {name: [value] * len(numbers) for name, value in (_of(run) | stated).items()}
    return table_of(ESTIMATES, values | {NAMES.get(name, name): [row[name] for row in numbers] for name in numbers[0]})


def _of(run: Run) -> dict[str, Any]:
    """Return what all rows of a run have."""
    header, spec, pool, population = run.header, run.spec, run.spec.pool, Population.of(run.spec)
    time, source = _time_of_data(run)
    return {
        "run": run.name,
        "audit": spec.name,
        "uri": run.uri,
        "run_created": _utc(header.created),
        "data_as_of": time,
        "data_as_of_from": source,
        "week": (time - timedelta(days=time.weekday())).date(),
        "population": population.digest,
        **{POPULATION[key]: getattr(pool, key, None) for key in ("format", "filter", "split", "catalog", "table")},
        **{POPULATION[key]: getattr(population, key) for key in ("name", "task", "classes")},
        "pool": pool.uri,
        "pool_digest": header.pool.digest,
        "pool_version": header.pool.version,
        "model": spec.model.name or _model(run),
        "model_digest": header.model.sha256,
    }


def _model(run: Run) -> str:
    """Return what identifies a model without a name."""
    model, pool = run.spec.model, run.spec.pool
    if pool.holds_features:
        columns, place = pool.columns, pool.own("table") or pool.uri
        said = [columns.prediction] if columns.prediction else columns.features.get("output") or columns.answer
        return f"column {', '.join(said)} of {place}" if said else f"the model of {place}"
    return " ".join(filter(None, [model.factory or model.program or model.function, model.weights]))


def _time_of_data(run: Run) -> tuple[datetime, str]:
    """Return the time of the data, and what it is from."""
    pool = run.header.pool
    if run.spec.data_as_of is not None:
        return _utc(run.spec.data_as_of), "spec"
    if pool.data_as_of is not None:
        return _utc(pool.data_as_of), "files" if pool.version is None else "version"
    return _utc(run.header.created), "run"


def _utc(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _drawn_from(run: Run, before: int) -> str | None:
    """Return the digest of the features of the last draw before an entry of the log."""
    drawn = [draw.features for commit, draw in run.logged(Draw) if commit.number < before]
    return drawn[-1] if drawn else None
