"""The documents in docs/results have the form that their commands write, and pages quote them word for word.

A row or column that a script has gained or lost makes a document stale; so does a command that is gone. How large the
numbers are is for the commands to say.
"""

import re
import shlex
import subprocess
import sys
from datetime import date
from importlib import import_module
from pathlib import Path

import bench
import bound_gap
import ces_objectives
import coverage_grid
import deepest_table2
import documents
import driver_memory
import fashion_job
import intervals_coverage
import listing
import many_models
import misled
import number_tables
import numpy as np
import papers
import prices
import pytest
import study_tables
import until
import write_results
import yaml

from opacc_ray.samplers import METHODS
from opacc_ray.samplers.neyman import Parameters
from opacc_ray.study.peers import PEERS, kind_of
from opacc_ray.study.study_spec import MethodSpec, parse_method

ROOT = documents.ROOT

Table = list[list[str]]
"""Cells by row, the header first."""


def read(name: str) -> str:
    return documents.path_of(name).read_text()


def tables(name: str) -> list[Table]:
    content = documents.blocks(read(name))[name]
    runs = re.findall(r"(?:^\|.*\n)+", content, re.MULTILINE)
    return [[cells_of(line) for line in run.splitlines() if not re.fullmatch(r"[|:-]+", line)] for run in runs]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def first_column(table: Table) -> list[str]:
    return [row[0] for row in table[1:]]


def labels_of(spec: str) -> list[str]:
    """What a study's tables call its methods."""
    content = yaml.safe_load((ROOT / spec).read_text())
    items = (parse_method(item) if isinstance(item, str) else item for item in content["methods"])
    return [MethodSpec(**item).name for item in items]


def budgets_of(spec: str) -> list[str]:
    return [str(budget) for budget in yaml.safe_load((ROOT / spec).read_text())["budgets"]]


def test_every_document_is_there_and_no_other() -> None:
    found = {path.stem for path in (ROOT / documents.RESULTS).glob("*.md")}
    assert found == set(documents.DOCUMENTS)


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_a_document_begins_with_the_command_that_writes_it(name: str) -> None:
    title, command, stamp = read(name).split("\n\n")[:3]
    assert title == f"# {documents.DOCUMENTS[name].title}"
    python, script, *arguments = shlex.split(command)
    assert python == "python"
    assert ROOT / script == Path(write_results.__file__)
    given = write_results.parser().parse_args(arguments)
    assert given.name == name
    measured_by, *first = documents.DOCUMENTS[name].script
    import_module(Path(measured_by).stem).parser().parse_args([*first, *given.arguments])
    written = re.match(r"Written (\d{4}-\d\d-\d\d) ", stamp)
    assert written
    assert date.fromisoformat(written[1]) >= date(2026, 11, 21)
    assert re.search(r"opacc_ray \d+\.\d+|version \d+\.\d+", stamp)
    assert "machine" in stamp or "cores" in stamp


def test_a_document_says_what_its_numbers_are_and_has_a_cell_for_each_column() -> None:
    for name, document in documents.DOCUMENTS.items():
        assert document.text in read(name)
        assert [row for table in tables(name) for row in table if len(row) != len(table[0])] == [], name


def test_methods_compared_are_those_of_the_study_and_exist() -> None:
    """A method of the registry may be absent: its row needs many repetitions on cases that are not public."""
    [table] = tables("methods")
    assert table[0][0] == "method"
    assert first_column(table) == [*labels_of(study_tables.TABLES["methods"].spec), "bound"]
    named = {re.split("[,:]", label)[0] for label in first_column(table)} - {"bound"}
    assert named <= {*METHODS, *PEERS}


def test_neyman_is_stated_for_every_case_and_budget() -> None:
    [table] = tables("neyman")
    assert tuple(table[0]) == study_tables.NEYMAN_COLUMNS
    budgets, cases = budgets_of(study_tables.TABLES["neyman"].spec), dict.fromkeys(first_column(table))
    assert [row[:2] for row in table[1:]] == [[case, budget] for case in cases for budget in budgets]


def test_neyman_is_compared_on_all_cases_of_the_methods_and_more() -> None:
    [methods], [neyman] = tables("methods"), tables("neyman")
    assert len(set(first_column(neyman))) >= len(methods[0]) - 1


def test_the_control_has_every_method_and_budget_of_its_study() -> None:
    [table] = tables("control")
    spec = study_tables.TABLES["control"].spec
    assert table[0][:2] == ["method", "n"]
    assert [row[:2] for row in table[1:]] == [[label, n] for label in labels_of(spec) for n in budgets_of(spec)]


def test_numbers_are_stated_for_every_case_and_method_that_estimates_them() -> None:
    found = tables("numbers")
    assert len(found) == len(number_tables.NUMBERS)
    known = labels_of(str(number_tables.SPEC.relative_to(ROOT)))
    for table, number in zip(found, number_tables.NUMBERS, strict=True):
        assert table[0][:2] == ["case", "method"]
        kind = kind_of(number.metric, number.by)
        methods = [name for name in known if name not in PEERS or PEERS[name].kind == kind]
        cases = [case.replace("_", " ") for case in number.cases]
        assert [row[:2] for row in table[1:]] == [[case, method] for case in cases for method in methods]


def test_a_number_is_stated_with_error_coverage_and_width() -> None:
    cell = {"case": "a_b", "method": "srs", "budget": 50, "mse": 0.0004, "coverage": 0.955, "width": 0.0784}
    case = {"case": "a_b", "truth": {"": 0.8}}
    spec = {"budgets": [50], "level": 0.95, "repetitions": 1000}
    results = {"cases": [case], "methods": ["srs", "oasis"], "cells": [cell], "spec": spec}
    *_, row, truth = number_tables.table(results)
    assert row == "| a b | srs | 0.0200, 96, 1.00 |"
    assert truth == "\nTrue: a b 0.8000. 1,000 repetitions."


def test_every_aid_of_neyman_is_measured() -> None:
    [table] = tables("misled")
    assert tuple(table[0]) == misled.COLUMNS
    assert first_column(table) == list(misled.AIDS)


def test_every_aid_is_measured_at_the_default_price_and_beside_it() -> None:
    [table] = tables("prices")
    assert tuple(table[0]) == prices.COLUMNS
    assert list(dict.fromkeys(first_column(table))) == list(prices.AIDS)
    measured = [float(row[1]) for row in table[1:]][: len(table[1:]) // len(prices.AIDS)]
    assert Parameters().price in measured[1:-1]


def test_the_gap_to_the_bound_is_split_for_every_case_of_neyman() -> None:
    [table] = tables("gap")
    assert tuple(table[0]) == bound_gap.COLUMNS
    [neyman] = tables("neyman")
    bounded = dict.fromkeys(row[0] for row in neyman[1:] if row[2] != "–")
    assert first_column(table) == [*bounded, "mean"]


def test_ces_has_every_setting_and_number_of_labels() -> None:
    [table] = tables("ces")
    cases = dict.fromkeys(column.rpartition(" n=")[0] for column in table[0][1:])
    assert table[0] == ["E (bias)", *ces_objectives.columns_of(cases)]
    assert first_column(table) == list(ces_objectives.SETTINGS)


def test_papers_have_every_table_and_figure() -> None:
    items, ranked = tables("papers")
    assert tuple(items[0]) == papers.COLUMNS
    assert first_column(items) == [row.item for row in papers.ROWS]
    assert len(papers.ROWS) == 25
    assert {row.study for row in papers.ROWS} - {"–"} == set(papers.studies(ROOT, ROOT))
    assert set(first_column(ranked)) == {"pools", "classes", "pairs"}


def test_deepest_has_every_subject_and_variable() -> None:
    [table] = tables("deepest")
    assert tuple(table[0]) == deepest_table2.COLUMNS
    assert first_column(table) == list(deepest_table2.SUBJECTS)


def test_intervals_are_measured_for_every_statement() -> None:
    statements, assisted = tables("intervals")
    assert tuple(statements[0]) == intervals_coverage.COLUMNS
    assert tuple(assisted[0]) == intervals_coverage.ASSISTED_COLUMNS
    for table, names in (
        (statements, intervals_coverage.STATEMENTS),
        (assisted, intervals_coverage.ASSISTED_STATEMENTS),
    ):
        cases = dict.fromkeys(first_column(table))
        assert [row[:2] for row in table[1:]] == [[case, name] for case in cases for name in names]


def test_until_has_every_goal_of_every_case_and_every_rule() -> None:
    rows, methods, counts = tables("until")
    assert tuple(rows[0]) == until.COLUMNS
    assert tuple(methods[0]) == until.SUMMARY
    assert tuple(counts[0]) == until.BINOMIAL
    goals = [f"{goal:g}" for goal in until.parser().parse_args(["case"]).goals]
    cases = dict.fromkeys((case, method) for case, method, *_ in rows[1:])
    assert [tuple(row[:3]) for row in rows[1:]] == [(*case, goal) for case in cases for goal in goals]
    assert first_column(methods) == list(dict.fromkeys(method for _, method in cases))
    assert [row[:2] for row in counts[1:]] == [[goal, f"{share:g}"] for goal in goals for share in until.SHARES]


def test_coverage_is_stated_for_every_accuracy_confidence_design_and_budget() -> None:
    [table] = tables("coverage")
    assert tuple(table[0]) == coverage_grid.COLUMNS
    rows = [
        [f"{accuracy:g}", confidence, design, str(budget)]
        for accuracy in coverage_grid.ACCURACIES
        for confidence in coverage_grid.CONFIDENCES
        for design in coverage_grid.DESIGNS
        for budget in coverage_grid.BUDGETS
    ]
    assert [row[:4] for row in table[1:]] == rows


def test_several_models_are_stated_for_every_design_and_budget() -> None:
    [table] = tables("models")
    assert tuple(table[0]) == many_models.COLUMNS
    budgets = dict.fromkeys(row[2] for row in table[1:])
    rows = [[way, design, n] for way in many_models.WAYS for design in many_models.DESIGNS for n in budgets]
    assert [row[:3] for row in table[1:]] == rows


def test_speed_has_every_task() -> None:
    [table] = tables("speed")
    assert tuple(table[0]) == bench.COLUMNS
    names = [[re.sub(r" \(\d+ chosen\)", "", row[0]), row[1]] for row in table[1:]]
    assert names == [[task.name, task.size] for task in bench.TASKS]


def test_the_job_has_every_step_and_method() -> None:
    times, accuracy = tables("fashion")
    assert tuple(times[0]) == fashion_job.TIME_COLUMNS
    assert first_column(times) == list(fashion_job.STEPS)
    assert tuple(accuracy[0]) == fashion_job.ACCURACY_COLUMNS
    assert first_column(accuracy) == ["all labels", *fashion_job.METHODS]


def test_pages_quote_documents_word_for_word() -> None:
    for text in (page.read_text() for page in documents.pages()):
        quoted = documents.blocks(text)
        marks = re.findall(r"^<!-- (/?)results\b.*-->$", text, re.MULTILINE)
        assert marks == ["", "/"] * len(quoted), text[:60]
        for name, content in quoted.items():
            found = documents.blocks(read(name))[name]
            assert content == found, f"run: python benchmarks/write_results.py --copy ({name})"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("docs/compared.md", {"methods"}),
        ("docs/ces.md", {"ces"}),
        ("docs/neyman.md", {"neyman", "control", "prices", "misled", "gap"}),
        ("docs/intervals.md", {"models"}),
    ],
)
def test_pages_quote_the_documents_they_speak_of(page: str, names: set[str]) -> None:
    assert documents.blocks((ROOT / page).read_text()).keys() == names


def run_writer(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, write_results.__file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.processes
def test_one_command_measures_writes_and_copies(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    correct = rng.random(250) < 0.8
    case = tmp_path / "cases" / "small_case.npz"
    case.parent.mkdir()
    np.savez(case, hidden=rng.normal(size=(250, 4)), logits=rng.normal(size=(250, 3)), correct=correct)
    (tmp_path / "README.md").write_text("before\n<!-- results:ces -->\nold\n<!-- /results -->\nafter\n")
    settings = "squared, the default|kl"
    done = run_writer(
        *("--root", str(tmp_path), "--note", "A first try."),
        *("ces", str(case.parent), "--repetitions", "2", "--settings", settings),
    )
    assert done.returncode == 0, done.stderr
    written = (tmp_path / documents.RESULTS / "ces.md").read_text()
    assert f"python benchmarks/write_results.py ces {case.parent} --repetitions 2" in written
    assert "A first try." in written
    content = documents.blocks(written)["ces"]
    columns, _, *rows = content.splitlines()
    assert columns == "| E (bias) | small case n=50 | small case n=100 | small case n=180 |"
    assert [row.split(" | ")[0] for row in rows] == ["| squared, the default", "| kl"]
    page = (tmp_path / "README.md").read_text()
    assert page == f"before\n<!-- results:ces -->\n{content}<!-- /results -->\nafter\n"


@pytest.mark.processes
def test_a_script_that_fails_writes_nothing(tmp_path: Path) -> None:
    done = run_writer("--root", str(tmp_path), "ces", str(tmp_path))
    assert done.returncode != 0
    assert "give a .npz, .csv or .parquet file" in done.stderr
    assert not (tmp_path / documents.RESULTS).exists()


def test_a_block_of_no_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("<!-- results:fishing -->\n<!-- /results -->\n")
    with pytest.raises(SystemExit, match="results:fishing"):
        documents.copy_blocks(tmp_path)


def test_driver_has_every_method_of_its_command() -> None:
    """And the driver's memory is what docs/scale.md states: 300 MB, and 100 bytes of an example."""
    (table,) = tables("driver")
    assert tuple(table[0]) == driver_memory.COLUMNS
    arguments = shlex.split(read("driver").split("\n\n")[1].partition(" driver ")[2])
    expected = []
    for case in driver_memory.parser().parse_args(arguments).cases:
        size, width, methods = driver_memory.parts_of(case)
        expected += [[f"{size:,}", str(width), method] for method in methods]
    assert [row[:3] for row in table[1:]] == expected
    assert all(int(row[4]) < 300 + 100e-6 * int(row[0].replace(",", "")) for row in table[1:])


def test_plans_of_many_objects_take_little_beyond_the_server() -> None:
    (table,) = tables("listing")
    assert tuple(table[0]) == listing.COLUMNS
    assert first_column(table) == [*listing.POOLS]
    numbers = [[float(cell.replace(",", "")) for cell in row[1:]] for row in table[1:]]
    assert [row[0] for row in numbers] == [200_000, 5_000, 205_000]
    assert all(row[-3] <= 10 for row in numbers)
    assert all(row[-1] <= 400 for row in numbers)
