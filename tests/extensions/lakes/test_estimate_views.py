"""The history of two models over four weeks, in one query on exported tables: against what each run stated."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import duckdb
import numpy as np
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import load_catalog
from stated_numbers import with_numbers
from written_run import CLASSES, IDS, TRUTH, write_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, SpecError, StorageError
from opacc_ray.extensions.lakes.exported_tables import export_tables, stated_rows, views_sql
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.runs.run import Run

pytestmark = pytest.mark.slow  # 9 audits

MODELS, WEEKS, FIRST = ("a", "b"), 4, dt.date(2026, 8, 31)  # a Monday
BACKFILLED = [("a", 1), ("b", 3)]  # audited after all others


class Audit(NamedTuple):
    model: str
    week: int
    run: Run


def monday(week: int) -> dt.date:
    return FIRST + dt.timedelta(weeks=week)


def audited(home: Path, model: str, week: int, **spec: Any) -> Run:
    """The run of a model on a week's data, which are of its Wednesday; the share of errors tells them apart."""
    number = MODELS.index(model)
    wrong = TRUTH.copy()
    wrong[: 10 * number + 4 * week] = (TRUTH[: 10 * number + 4 * week] + 1) % 3
    sections = {
        "population": "traffic",
        "data_as_of": str(monday(week) + dt.timedelta(days=2)),
        "model": {"factory": "user:network", "weights": f"/models/{model}-{week}", "name": model, "classes": CLASSES},
    }
    run = write_run(home, f"weekly-{model}-{week}-{len(spec)}0000000", wrong, sections=sections | spec)
    verbs.select(run, "srs", 40, {}, seed=week)
    rows = "".join(f"{id},{CLASSES[TRUTH[IDS.index(id)]]}\n" for id in run.read_selection(1).ids)
    import_labels(run, "labels.csv", f"id,label\n{rows}".encode())
    accuracy.estimate(run)
    return run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("history")


@pytest.fixture(scope="module")
def audits(home: Path) -> list[Audit]:
    """Every week's audit of each model, in the order in which they were made: three are backfilled."""
    wanted = [(model, week) for week in range(WEEKS) for model in MODELS]
    ordered = [pair for pair in wanted if pair not in BACKFILLED] + BACKFILLED
    made = [Audit(model, week, audited(home / "audits", model, week)) for model, week in ordered]
    accuracy.estimate(made[0].run, level=0.9)  # stated twice: the second one counts
    elsewhere = audited(home / "audits", "a", 3, population="parking")
    for run in (*(audit.run for audit in made), elsewhere):
        export_tables(run, str(home / "lake"), features=False)
    return made


@pytest.fixture
def lake(audits: list[Audit], home: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as database:
        database.execute((home / "lake" / "views.sql").read_text())
        yield database


def test_accuracy_by_model_over_weeks_is_one_query(lake: duckdb.DuckDBPyConnection, audits: list[Audit]) -> None:
    sql = "SELECT model, week, value, low, high, n FROM accuracy_by_week WHERE population_name = 'traffic'"
    found = lake.execute(sql).fetchall()
    stated = {(model, monday(week)): run.read_estimate() for model, week, run in audits}
    assert len(found) == len(MODELS) * WEEKS
    assert [row[:2] for row in found] == sorted(stated)
    for model, week, *numbers in found:
        own = stated[model, week]
        assert own is not None
        assert numbers == [min(max(own.value, own.low), own.high), own.low, own.high, own.n]


def test_populations_are_never_one_series(lake: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT model, week, change, value FROM accuracy_by_week WHERE population_name = "
    [row] = lake.execute(f"{sql} 'parking'").fetchall()
    assert row[:3] == ("a", monday(3), None)
    before = None
    for _, _, change, value in lake.execute(f"{sql} 'traffic' AND model = 'b'").fetchall():
        assert change == (None if before is None else value - before)
        before = value


def test_each_statement_is_kept_with_its_time(lake: duckdb.DuckDBPyConnection, audits: list[Audit]) -> None:
    run = audits[0].run
    sql = "SELECT level, stated, data_as_of, data_as_of_from FROM estimates WHERE uri = $1 AND sliced_by IS NULL"
    found = lake.sql(f"{sql} ORDER BY log_entry", params=[run.uri]).to_arrow_table().to_pylist()
    stated = run.estimates()
    assert [row["level"] for row in found] == [0.95, 0.9]
    assert [row["stated"] for row in found] == [dt.datetime.fromisoformat(commit.at) for commit, _ in stated]
    assert {row["data_as_of"] for row in found} == {dt.datetime(2026, 9, 2, tzinfo=dt.UTC)}
    assert {row["data_as_of_from"] for row in found} == {"spec"}


def test_the_worst_slices_come_first(home: Path) -> None:
    for week in (0, 1):
        run = audited(home / "sliced", "a", week)
        stated = run.read_estimate()
        assert stated is not None
        run.write_estimate(with_numbers(stated))
        export_tables(run, str(home / "slices"), features=False)
    with duckdb.connect() as database:
        database.execute((home / "slices" / "views.sql").read_text())
        found = database.execute("SELECT place, sliced_by, slice, value, uri FROM worst_slices").fetchall()
    tells = {name: part for name, part in with_numbers(stated).by_slice[0].slices.items() if part.tells}
    worst = sorted((part.value, name) for name, part in tells.items())
    assert worst
    assert [row[:4] for row in found] == [(i + 1, "camera", name, value) for i, (value, name) in enumerate(worst)]
    assert {row[4] for row in found} == {run.uri}


def test_a_delta_table_gets_each_estimate_once(home: Path, audits: list[Audit], tmp_path: Path) -> None:
    place, exported = str(tmp_path / "lake"), sorted((audit.model, monday(audit.week)) for audit in audits[:3])
    for audit in (*audits[:3], *audits[:3]):
        assert main(["export", audit.run.uri, "--to", place, "--no-features", "--delta"]) == 0
    table = deltalake.DeltaTable(f"{place}/estimates")
    assert table.version() == 2
    assert {field.name: field.metadata["comment"] for field in table.schema().fields}["week"].startswith("the Monday")
    estimates = table.to_pyarrow_table()
    assert sorted(set(estimates["uri"].to_pylist())) == sorted(audit.run.uri for audit in audits[:3])
    with duckdb.connect() as database:
        database.register("exported", estimates)
        database.execute(views_sql("exported"))
        assert database.execute("SELECT model, week FROM accuracy_by_week").fetchall() == exported
    with pytest.raises(DataError, match=r"are in a Delta table; use --delta, or export to another place"):
        export_tables(audits[0].run, place, features=False)
    with pytest.raises(DataError, match=r"are in Parquet files; use neither --delta nor --iceberg, or"):
        export_tables(audits[0].run, str(home / "lake"), features=False, delta=True)


def test_of_two_appends_at_once_one_fails(audits: list[Audit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a second command sees it, which read the table before the first one wrote."""
    place, write = str(tmp_path / "lake"), deltalake.write_deltalake
    export_tables(audits[1].run, place, features=False, delta=True)

    def twice(table: Any, *given: Any, **named: Any) -> None:
        write(deltalake.DeltaTable(table.table_uri), *given, **named)
        write(table, *given, **named)

    monkeypatch.setattr(deltalake, "write_deltalake", twice)
    with pytest.raises(StorageError, match=r"cannot append to the table .* \(.*Concurrent.*\); run the same command"):
        export_tables(audits[2].run, place, features=False, delta=True)
    monkeypatch.undo()
    export_tables(audits[2].run, place, features=False, delta=True)
    table = deltalake.DeltaTable(f"{place}/estimates").to_pyarrow_table()
    accuracies = table.filter((pc.field("metric") == "accuracy") & pc.field("sliced_by").is_null())
    assert sorted(accuracies["uri"].to_pylist()) == sorted(audit.run.uri for audit in audits[1:3])


def test_an_iceberg_table_gets_each_estimate_once(
    audits: list[Audit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path)}
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__OWN__{name.upper()}", value)
    place, address = str(tmp_path / "lake"), "catalog://own/db.estimates"
    for audit in (*audits[:3], *audits[:3]):
        assert main(["export", audit.run.uri, "--to", place, "--no-features", "--iceberg", address]) == 0
    table = load_catalog("own", **settings).load_table("db.estimates")
    assert len(table.history()) == 3
    assert table.schema().find_field("week").doc.startswith("the Monday")
    with duckdb.connect() as database:
        database.execute("ATTACH ':memory:' AS own; CREATE SCHEMA own.db")
        database.register("exported", table.scan().to_arrow())
        database.execute("CREATE TABLE own.db.estimates AS SELECT * FROM exported")
        database.execute((tmp_path / "lake" / "views.sql").read_text())
        found = database.execute("SELECT model, week, value FROM accuracy_by_week").fetchall()
    assert [row[:2] for row in found] == sorted((audit.model, monday(audit.week)) for audit in audits[:3])
    with pytest.raises(DataError, match=r"are in an Iceberg table; use --iceberg, or export to another place"):
        export_tables(audits[0].run, place, features=False)
    for wrong in ("own.db.estimates", "catalog://own/estimates"):
        with pytest.raises(SpecError, match=r"is not the address of an Iceberg table; write catalog://CATALOG/NAMESP"):
            export_tables(audits[0].run, str(tmp_path / "new"), features=False, iceberg=wrong)


@pytest.mark.parametrize(
    ("pool", "wanted"),
    [
        ({"format": "features", "columns": {"prediction": "said"}, "uri": "/lake/t"}, "column said of /lake/t"),
        ({"format": "images", "uri": "/lake/t"}, "user:network"),
    ],
)
def test_a_model_without_a_name_is_named_by_what_it_is(pool: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    """So two tables with predictions of one column are two models."""
    sections: dict[str, Any] = {"pool": pool}
    if pool["format"] == "features":
        sections["model"] = {"classes": CLASSES}
    run = write_run(tmp_path, "audit", np.zeros(len(IDS), dtype=np.int64), sections=sections, classes=CLASSES)
    verbs.select(run, "srs", 10, {})
    import_labels(
        run, "labels.csv", b"id,label\n" + "".join(f"{id},cat\n" for id in run.read_selection(1).ids).encode()
    )
    accuracy.estimate(run)
    [stated] = stated_rows(run)
    assert set(stated.rows["model"].to_pylist()) == {wanted}
    assert set(stated.rows["data_as_of_from"].to_pylist()) == {"run"}


def test_the_names_of_a_run_may_be_given_later(tmp_path: Path) -> None:
    """Neither decides what was drawn, so it is the same run, and its rows get the names."""
    run = audited(tmp_path, "a", 0, data_as_of=None, population=None)
    spec = run.spec.model_copy(update={"population": "traffic", "data_as_of": "2026-01-07"})
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"name": "renamed"})})
    assert spec.identity() == run.spec.identity()
    Run.create(run.uri, run.header.model_copy(update={"spec": spec}))
    [stated] = stated_rows(Run.open(run.uri))
    names = {name: set(stated.rows[name].to_pylist()) for name in ("population_name", "model", "week")}
    assert names == {"population_name": {"traffic"}, "model": {"renamed"}, "week": {dt.date(2026, 1, 5)}}
