"""Export a run as Parquet tables for DuckDB, pandas, Ray Data and Spark, partitioned by run and round.

    URI/dictionary.csv                                description of each column of each table
    URI/views.sql                                     views of the estimates: accuracy by week, worst slices
    URI/features/run=NAME/part-000000.parquet         predictions and features of each example
    URI/selections/run=NAME/round=1/rounds.parquet    the chosen examples, one row per draw
    URI/labels/run=NAME/round=1/rounds.parquet        label and outcome of each of them
    URI/estimates/run=NAME/ID.parquet                 every number of an estimate that was stated (estimates_table.py)

The same run gives the same files, so a repeated export changes nothing. The tables of many runs share one place, and
``estimates`` is the history of all of them. It may be a Delta or an Iceberg table, which appends what it lacks.

The views are in standard SQL. A series is one population and one model by its name. Two populations, or two models, are
never one series.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field

from opacc_ray.documents import Document, format_field
from opacc_ray.errors import DataError
from opacc_ray.extensions.lakes.estimates_table import (
    ESTIMATES,
    OPTIONS,
    RUN,
    VIEWS,
    Column,
    estimates_of,
    stated_rows,
    table_of,
)
from opacc_ray.labels.labelled_rounds import LabelledRound, read_rounds
from opacc_ray.lake.parquet_io import encode, read_footer
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs.run import Run, read_tables
from opacc_ray.runs.run_documents import digest_of
from opacc_ray.selection import Selection

_PLACE = (
    RUN,
    Column("round", "int64", "number of the round (partition)"),
    Column("order", "int64", "position in the order of choice, from 1"),
)

FEATURES = (
    RUN,
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

TABLES = {"features": FEATURES, "selections": SELECTIONS, "labels": LABELS, "estimates": ESTIMATES}


def dictionary() -> bytes:
    """Return the description of every column of every table, as CSV."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["table", "column", "type", "meaning"])
    writer.writerows([name, *column] for name, columns in TABLES.items() for column in columns)
    return sink.getvalue().encode()


_OWNER = b"opacc.run"
"""Key in the files of a run's tables: the digest of its log's first entry, which a moved run keeps, and its URI."""

DICTIONARY = "dictionary.csv"


class ExportedTables(Document):
    """Report of exported tables."""

    format: Literal["opacc-tables/1"] = format_field("opacc-tables/1")
    run: str = Field(description="URI of the run")
    to: str = Field(description="URI of the tables")
    rows: dict[str, int] = Field(description="table -> rows of this run")
    dictionary: str = Field(description="URI of the description of all columns")
    views: str | None = Field(default=None, description="URI of the views in SQL; null in documents without views")


def export_tables(
    run: Run, uri: str, *, features: bool = True, delta: bool = False, iceberg: str | None = None
) -> ExportedTables:
    """Write a run with complete features as tables below ``uri``; tables of other runs there are kept.

    With ``features``, also write these, which are as large as in the run. With ``delta``, the table of estimates is a
    Delta table; with ``iceberg``, it is the Iceberg table of that address.

    Raises DataError if the features are incomplete, the estimates there are of the other kind, or another run of the
    same name was exported there; LabelError if labels are in conflict; StorageError if the place is not writable.
    """
    target, own = open_store(uri), digest_of(run.commits[0].to_bytes())
    rows = dict.fromkeys(TABLES, 0)
    estimates = estimates_of(target, delta=delta, iceberg=iceberg)
    _check_run(target, run, own)
    for name, key, table in _tables(run, features):
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), _OWNER: f"{own} {run.uri}"})
        target.write(f"{name}/run={run.name}/{key}", encode(table, **OPTIONS))
        rows[name] += len(table)
    stated = list(stated_rows(run))
    rows["estimates"] = sum(len(item.rows) for item in stated)
    estimates.append(own, stated)
    target.write(DICTIONARY, dictionary())
    target.write(VIEWS, f"{views_sql(estimates.sql)}\n".encode())
    return ExportedTables(
        run=run.uri, to=target.uri, rows=rows, dictionary=target.uri_of(DICTIONARY), views=target.uri_of(VIEWS)
    )


def _check_run(target: Store, run: Run, own: str) -> None:
    """Raise DataError if the tables there are those of another run of the same name, which would be overwritten."""
    for name in ("selections", "labels", "features"):
        for entry in target.list(f"{name}/run={run.name}/")[:1]:
            metadata = read_footer(target, entry.key, size=entry.size).metadata.metadata or {}
            owner, _, uri = metadata.get(_OWNER, b"").decode().partition(" ")
            if owner and owner != own:
                raise DataError(
                    f"{target.uri} has the tables of another run of the name {run.name}, {uri}; export to another place"
                )


def _tables(run: Run, features: bool) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of a table, the key below the run's partition, and rows as an Arrow table."""
    for number, part in enumerate(read_tables(run) if features else ()):
        yield "features", f"part-{number:06d}.parquet", part
    for item in read_rounds(run) if run.rounds() else ():
        file = f"round={item.number}/rounds.parquet"
        yield "selections", file, table_of(SELECTIONS, _selection(run, item.selection))
        yield "labels", file, table_of(LABELS, _labels(item))


def _selection(run: Run, selection: Selection) -> dict[str, Sequence[Any]]:
    chosen, count = run.read_chosen(selection.round), len(selection)
    return {
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


def _labels(item: LabelledRound) -> dict[str, Sequence[Any]]:
    labelled = item.labelled.tolist()
    known = iter(zip(item.truth, item.predicted, item.outcome.tolist(), strict=True))
    said = [next(known) if is_labelled else (None, None, None) for is_labelled in labelled]
    ids = item.selection.ids
    why = dict.fromkeys(item.missing, "missing") | dict.fromkeys(item.given_up, "given up")
    why |= dict.fromkeys(item.unsure, "unsure")
    state = ["labelled" if own else why.get(name, "not counted") for name, own in zip(ids, labelled, strict=True)]
    return {
        "order": range(1, len(ids) + 1),
        "id": ids,
        "status": state,
        "label": [label for label, _, _ in said],
        "prediction": [prediction for _, prediction, _ in said],
        "outcome": [outcome for _, _, outcome in said],
    }


class View(NamedTuple):
    """A view in SQL."""

    name: str
    meaning: str
    select: str  # the query


LATEST = View(
    "latest_estimates",
    "every number of the newest estimate for each population, version of a model and time of the data",
    """
SELECT * FROM (
  SELECT *, rank() OVER (
    PARTITION BY population, model, model_digest, data_as_of ORDER BY stated DESC, estimate
  ) AS age
  FROM estimates WHERE metric IS NOT NULL
) AS ranked WHERE age = 1""",
)

BY_WEEK = View(
    "accuracy_by_week",
    "the accuracy of each model on each population in each week of its data, with the change since its last week; the "
    "newest data of a week count",
    """
SELECT population, population_name, pool, pool_filter, classes, model, week, data_as_of, value, low, high, level, n,
  value - lag(value) OVER (PARTITION BY population, model ORDER BY week) AS change, measure, design_based, model_digest,
  run, uri, stated
FROM (
  SELECT *, row_number() OVER (
    PARTITION BY population, model, week ORDER BY data_as_of DESC, stated DESC, estimate
  ) AS place
  FROM latest_estimates WHERE metric = 'accuracy' AND sliced_by IS NULL
) AS weekly WHERE place = 1
ORDER BY population, model, week""",
)

WORST = View(
    "worst_slices",
    "the slices with enough labels in the newest data of each model and population, the lowest value first",
    """
SELECT population, population_name, model, data_as_of, metric, sliced_by, slice, value, low_together, high_together,
  level, n, size, row_number() OVER (PARTITION BY population, model, metric ORDER BY value, sliced_by, slice) AS place,
  run, uri, stated
FROM (
  SELECT *, dense_rank() OVER (PARTITION BY population, model ORDER BY data_as_of DESC, stated DESC, estimate) AS turn
  FROM latest_estimates
) AS newest WHERE turn = 1 AND tells
ORDER BY population, model, metric, place""",
)


def views_sql(source: str) -> str:
    """Return the statements that create the view ``estimates`` of a source in SQL, and all other views."""
    estimates = View("estimates", "all numbers of all estimates that were stated", f"\nSELECT * FROM {source}")
    return "\n\n".join(
        f"-- {view.name}: {view.meaning}\nCREATE OR REPLACE VIEW {view.name} AS{view.select};"
        for view in (estimates, LATEST, BY_WEEK, WORST)
    )
