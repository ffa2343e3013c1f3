"""A run as tables of a lake: what DuckDB reads of it is what the run holds, for several runs beside one another."""

import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from audited_run import CLASSES, KEYS, TRUTH, N, label, write_features, write_pool
from stated_numbers import CAMERAS, with_numbers

from opacc_ray.audit import accuracy, verbs
from opacc_ray.errors import DataError
from opacc_ray.extensions.lakes.exported_tables import export_tables
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import number_rows

DOCUMENTED = Path(__file__).parents[3] / "docs" / "lakes.md"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pool and of a run of two rounds, the second of which lacks some labels."""
    home = tmp_path_factory.mktemp("prepared")
    write_pool(str(home))
    run, _ = write_features(str(home))
    verbs.select(run, "css", 20, {})
    label(run, run.read_selection(1).ids)
    accuracy.estimate(run)
    verbs.next_round(run, 10)
    label(run, run.read_selection(2).ids[:7])
    return home


@pytest.fixture
def run(prepared: Path, tmp_path: Path) -> Run:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return Run.open(f"{tmp_path}/audit")


ACCURACY = "metric = 'accuracy' AND sliced_by IS NULL"


def query(sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        return database.execute(sql).fetchall()


def table(home: Path, name: str) -> str:
    return f"read_parquet('{home}/{name}/**/*.parquet', hive_partitioning=true, union_by_name=true)"


def numbers_of(run: Run) -> int:
    stated = run.read_estimate()
    assert stated is not None
    return len(list(number_rows(stated)))


def test_duckdb_reads_what_the_run_holds(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "lake"
    written = export_tables(run, str(home))
    assert written.rows == {"features": N, "selections": 30, "labels": 30, "estimates": numbers_of(run)}
    assert query(f"SELECT count(*), count(DISTINCT id), any_value(run) FROM {table(home, 'features')}") == [
        (N, N, run.name)
    ]
    [(hidden,)] = query(f"SELECT hidden FROM {table(home, 'features')} WHERE id = '{KEYS[7]}'")
    assert len(hidden) == 5
    for number in (1, 2):
        rows = query(
            f'SELECT id, place, weight FROM {table(home, "selections")} WHERE round = {number} ORDER BY "order"'
        )
        selection = run.read_selection(number)
        assert [row[0] for row in rows] == list(selection.ids)
        assert [row[1] for row in rows] == selection.index.tolist()
        assert np.array_equal([row[2] for row in rows], selection.design.weights)
    assert query(f"SELECT status, count(*) FROM {table(home, 'labels')} GROUP BY ALL ORDER BY ALL") == [
        ("labelled", 27),
        ("missing", 3),
    ]
    assert all(
        said == CLASSES[TRUTH[KEYS.index(id)]] and outcome == (said == predicted)
        for id, said, predicted, outcome in query(
            f"SELECT id, label, prediction, outcome FROM {table(home, 'labels')} WHERE status = 'labelled'"
        )
    )


@pytest.mark.parametrize("method", ["css", "sups", "deepest"])
def test_the_estimate_follows_from_the_tables_in_sql(method: str, tmp_path: Path) -> None:
    """As the documentation has it; weights of ``sups`` and ``deepest`` do not sum to 1."""
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    verbs.select(run, method, 20, {})
    label(run, run.read_selection(1).ids)
    accuracy.estimate(run)
    export_tables(run, str(tmp_path / "lake"))
    [documented] = re.findall(r"^SELECT (1?.*sum\(.*\)) +--", DOCUMENTED.read_text(), re.MULTILINE)
    [(value,)] = query(
        f"SELECT {documented} FROM {table(tmp_path / 'lake', 'selections')} AS s "
        f'JOIN {table(tmp_path / "lake", "labels")} AS l USING (run, round, "order") WHERE round = 1'
    )
    [(stated,)] = query(f"SELECT unclipped FROM {table(tmp_path / 'lake', 'estimates')} WHERE {ACCURACY}")
    assert value == pytest.approx(stated, rel=1e-12)


def test_estimates_are_a_history_of_all_runs(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "lake"
    export_tables(run, str(home))
    store = open_store(str(home))
    content = [store.read(entry.key) for entry in store.list("estimates/")]
    export_tables(run, str(home))
    again = open_store(str(home))
    assert [again.read(entry.key) for entry in again.list("estimates/")] == content
    label(run, run.read_selection(2).ids)
    accuracy.estimate(run)
    export_tables(run, str(home), features=False)
    other, _ = write_features(str(tmp_path), "other")
    verbs.select(other, "srs", 10, {})
    label(other, other.read_selection(1).ids)
    accuracy.estimate(other)
    export_tables(other, str(home))
    assert query(f"SELECT run, rounds, n, methods FROM {table(home, 'estimates')} WHERE {ACCURACY} ORDER BY ALL") == [
        ("audit", 1, 20, "css"),
        ("audit", 2, 30, "css, css"),
        ("other", 1, 10, "srs"),
    ]
    assert query(f"SELECT count(DISTINCT run) FROM {table(home, 'features')}") == [(2,)]


def test_another_run_of_the_same_name_is_refused(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "lake"
    export_tables(run, str(home), features=False)
    write_pool(str(tmp_path / "elsewhere"))
    other, _ = write_features(str(tmp_path / "elsewhere"))
    verbs.select(other, "srs", 10, {})
    assert other.name == run.name
    with pytest.raises(DataError, match=rf"another run of the name audit, {run.uri}; export to another place"):
        export_tables(other, str(home))
    assert query(f"SELECT count(*) FROM {table(home, 'selections')}") == [(30,)]
    moved = Path(run.uri).rename(tmp_path / "moved-audit")
    (tmp_path / "moved").mkdir()
    again = Run.open(str(moved.rename(tmp_path / "moved" / run.name)))
    assert export_tables(again, str(home), features=False).rows["selections"] == 30


def test_all_numbers_of_an_estimate_are_rows(run: Run, tmp_path: Path) -> None:
    stated = run.read_estimate()
    assert stated is not None
    assert stated.by_predicted_class is not None
    assert stated.by_true_class is not None
    run.write_estimate(with_numbers(stated))
    fields = "value", "low", "high", "low_together", "high_together", "level", "n", "size"
    export_tables(run, str(tmp_path / "lake"), features=False)
    found = query(
        "SELECT metric, sliced_by, slice, value, low, high, low_together, high_together, level, n, size "
        f"FROM {table(tmp_path / 'lake', 'estimates')} WHERE log_entry = {run.commits[-1].number}"
    )
    assert found[:6] == [
        ("accuracy", None, None, stated.value, stated.low, stated.high, None, None, 0.95, stated.n, stated.pool_size),
        ("f1@dog", None, None, 0.7, 0.6, 0.8, None, None, 0.95, 100, stated.pool_size),
        ("recall@dog", None, None, 0.8, 0.2, 0.93, None, None, 0.95, 100, stated.pool_size),
        *(("accuracy", "camera", name, *(getattr(own, field) for field in fields)) for name, own in CAMERAS.items()),
    ]
    classes = [row[:3] for row in found[6:]]
    assert classes == [
        *(("accuracy", "prediction", name) for name in stated.by_predicted_class),
        *((f"recall@{name}", "truth", name) for name in stated.by_true_class),
    ]
