"""Manifests: fixed bytes, no hint for annotators, nothing that runs in a spreadsheet."""

import csv
import io
from typing import Any, Literal

import pytest
from awkward_ids import random_ids

from opacc_ray.errors import DataError
from opacc_ray.labels.formats import link_to, parse, write_manifest
from opacc_ray.labels.label_rows import Context, LabelFile, Task

ROWS = [
    Task("b", "s3://lake/b.png", "digits-7", 1, 2),
    Task("a", None, "digits-7", 1, 1),
]


def encode(kind: Literal["csv", "jsonl"], rows: list[Task]) -> bytes:
    [(name, data)] = write_manifest(kind, rows, Context()).items()
    assert name == f"manifest.{kind}"
    return data


def rows_of(ids: list[str]) -> list[Task]:
    return [Task(id, id, "r", 1, order) for order, id in enumerate(ids, start=1)]


def csv_table(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def test_jsonl_bytes() -> None:
    assert encode("jsonl", ROWS).decode() == (
        '{"id": "a", "uri": null, "run": "digits-7", "round": 1, "order": 1, "label": null}\n'
        '{"id": "b", "uri": "s3://lake/b.png", "run": "digits-7", "round": 1, "order": 2, "label": null}\n'
    )


@pytest.mark.parametrize("format", ["csv", "jsonl"])
class TestEveryFormat:
    def test_every_id_comes_back_as_it_was(self, format: Any) -> None:
        ids = random_ids(3000, seed=1)
        labels = list(parse(LabelFile(f"m.{format}", encode(format, rows_of(ids)))))
        assert [label.id for label in labels] == ids
        assert {label.status for label in labels} == {"blank"}
        assert {(label.run, label.round) for label in labels} == {("r", 1)}

    def test_id_twice(self, format: Any) -> None:
        with pytest.raises(DataError, match="id 'a' is in two rows"):
            encode(format, rows_of(["a", "a"]))

    def test_id_that_no_file_can_hold(self, format: Any) -> None:
        with pytest.raises(DataError, match=r"'a\\udc80' is not valid Unicode"):
            encode(format, rows_of(["a\udc80"]))


def test_no_cell_of_a_csv_runs_as_a_formula() -> None:
    ids = random_ids(2000, seed=2)
    rows = [Task(id, id, "=run", 1, order, id) for order, id in enumerate(ids, start=1)]
    for cells in csv_table(encode("csv", rows))[1:]:
        assert not any(cell.startswith(tuple("=+-@\t\r\n＝")) for cell in cells)


def test_text_stays_in_its_cell_where_the_list_separator_is_a_semicolon() -> None:
    data = encode("csv", rows_of(["a;=cmd|calc"])).decode()
    assert data.splitlines()[1].startswith('"a;=cmd|calc",')


@pytest.mark.parametrize(
    ("uri", "template", "link"),
    [
        ("s3://lake/pool/a b.png", None, "s3://lake/pool/a b.png"),
        ("/home/me/pool/a b.png", None, None),
        ("file:///home/me/a.png", None, None),
        ("pool/a.png", None, None),
        ("/home/me/pool/a b.png", "{uri}", "/home/me/pool/a b.png"),
        ("/home/me/pool/a b.png", "https://view/{run}/{round}?i={id}", "https://view/r/2?i=x/a%20b%26c.png"),
    ],
)
def test_link_is_of_the_runs_choice_and_no_path_of_this_machine(uri: str, template: str | None, link: str) -> None:
    assert link_to(uri, template, id="x/a b&c.png", run="r", round=2) == link
