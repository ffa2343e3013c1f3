"""CSV and JSON Lines, as manifests and as people send them back: every text comes back, and nothing runs."""

import csv
import io
import json
import random

import pytest
from awkward_ids import random_ids
from reading_labels import pairs, read, refusal

from opacc_ray.labels.formats import FORMATS, Context, LabelFile, Task, link_to, parse
from opacc_ray.labels.joining import join

ROWS = [Task("a", None, "digits-7", 1, 1), Task("b", "s3://lake/b.png", "digits-7", 1, 2)]


def encode(kind: str, rows: list[Task]) -> bytes:
    [(name, data)] = FORMATS[kind].write(rows, Context()).items()
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
def test_every_id_comes_back_as_it_was(format: str) -> None:
    ids = random_ids(3000, seed=1)
    labels = list(parse(LabelFile(f"m.{format}", encode(format, rows_of(ids)))))
    assert [label.id for label in labels] == ids
    assert {label.status for label in labels} == {"blank"}
    assert {label.run for label in labels} == {"r"}


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


@pytest.mark.parametrize(
    ("label", "status", "expected"),
    [
        ("cat", "", "labelled"),
        ("cat", "Labelled", "labelled"),
        ("cat", "completed", "labelled"),
        ("", "", "blank"),
        ("  ", "", "blank"),
        ("?", "", "unsure"),
        (" Can’t  tell ", "", "unsure"),
        ("", "unsure", "unsure"),
        ("", "skipped", "unsure"),
        ("cat", "can't tell", "unsure"),
    ],
)
def test_status(label: str, status: str, expected: str) -> None:
    for text in (
        f"id,label,status\na,{label},{status}\n",
        json.dumps({"id": "a", "label": label, "status": status}),
    ):
        (read_back,) = read(text)
        assert read_back.status == expected
        assert (read_back.label is not None) == (expected == "labelled")


@pytest.mark.parametrize(
    "text",
    [
        "id,label\na,cat\nb,dog\n",
        "id,label\r\na,cat\r\nb,dog\r\n",
        "\ufeffid,label\na,cat\nb,dog",
        '"id","label"\n"a","cat"\n"b","dog"\n',
        '\ufeff"id";"label"\r\n"a";"cat"\r\n"b";"dog"\r\n',
        "id,label\ra,cat\rb,dog\r",
        "id;label\na;cat\nb;dog\n",
        "id\tlabel\na\tcat\nb\tdog\n",
        "ID, Label\na,cat\nb, dog \n",
        "\nid,label\na,cat\n\nb,dog\n\n\n",
        "id,label,,\na,cat,,\nb,dog,,\n,,,\n,,,\n",
        "label,seen,id\ncat,yes,a\ndog,no,b\n",
    ],
)
def test_the_same_labels_in_many_a_csv(text: str) -> None:
    assert pairs(text) == [("a", "cat"), ("b", "dog")]


def test_apostrophe_of_the_manifest_is_removed() -> None:
    assert pairs("id,label\n'=a,'-1\n''=b,-2\n'c,+\n") == [("=a", "-1"), ("'=b", "-2"), ("'c", "+")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "back.csv is empty: start it with a header"),
        (" \n\n", "back.csv is empty"),
        ("a,cat\nb,dog\n", "back.csv starts with 'a,cat': start it with a header"),
        ("id,class\na,cat\n", "back.csv starts with 'id,class'"),
        ("id,label,label\na,cat,dog\n", "two columns 'label'"),
        ("id,label\na,cat\n,dog\n", "back.csv line 3 has no id"),
        ("id,label\na,cat, maybe\n", "back.csv line 2 has 3 cells, but the header has 2"),
        ('id,label\na,cat\n"b,dog\nc,cat\n', "back.csv line 3 is not valid CSV"),
        ('id,label\n"a"b,cat\n', "back.csv line 2 is not valid CSV"),
        ("id,label,status\na,cat,rejected\n", "back.csv line 2 has the status 'rejected'"),
        ("id,label,status\na,,labelled\n", "back.csv line 2 has the status 'labelled' but no label"),
        (b"id,label\na,cat\nb,caf\xe9\n", "back.csv line 3 is not UTF-8"),
        (b"PK\x03\x04\x14\x00", "start it with a header with the columns id and label"),
        ("id,label\na,cat\n".encode("utf-16"), "back.csv line 1 is not UTF-8"),
        ("id,label\na," + "x" * 200_000, "back.csv line 2 is not valid CSV"),
    ],
)
def test_csv_that_is_refused(text: str | bytes, words: str) -> None:
    assert words in refusal(text)


def test_a_manifest_comes_back_filled_in_from_a_european_spreadsheet() -> None:
    rng = random.Random(0)
    pieces = [*"a7 ',\";=+-@\t\r\n\\?{[", "\r\n", "\u2028", "\x85", "\x00", "é", "日", "🙂"]
    ids = sorted({"".join(rng.choices(pieces, k=rng.randint(1, 6))) for _ in range(2000)})
    answers = {id: rng.choice(["cat", "dog, big", "7; 8"]) for id in ids}
    header, *rows = csv_table(encode("csv", rows_of(ids)))
    column = header.index("label")
    filled = [[*cells[:column], answers[id], *cells[column + 1 :]] for id, cells in zip(ids, rows, strict=True)]
    back = io.StringIO(newline="")
    csv.writer(back, delimiter=";").writerows([header, *rng.sample(filled, len(filled))])
    assert join(read(back.getvalue()), ids, run="r").label == answers


def test_jsonl_with_windows_lines_mark_blank_lines_and_odd_separators_in_ids() -> None:
    text = '\ufeff{"id": "a\u2028b", "label": "cat"}\r\n\r\n{"id": 7, "label": "dog", "round": 1}\r\n\r\n'
    labels = read(text, "back.jsonl")
    assert [(label.id, label.label, label.place) for label in labels] == [
        ("a\u2028b", "cat", "back.jsonl line 1"),
        ("7", "dog", "back.jsonl line 3"),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"id": "b", "label": ' + "9" * 5000 + "}", "not valid JSON"),
        ("a,cat", "not valid JSON"),
        ('["b", "cat"]', "not a JSON object with the keys id and label"),
        ('{"id": "b", "sport": 3}', "not a JSON object with the keys id and label"),
        ('{"label": "cat"}', "not a JSON object with the keys id and label"),
        ('{"id": null, "label": "cat"}', "has no id"),
        ('{"id": "b", "label": ["cat"]}', "has a list in label"),
        ('{"id": {"x": 1}, "label": "cat"}', "has a dict in id"),
    ],
)
def test_jsonl_line_that_is_refused(line: str, words: str) -> None:
    message = refusal('{"id": "a", "label": "cat"}\n' + line + "\n", "back.jsonl")
    assert message.startswith("back.jsonl line 2 ")
    assert words in message


@pytest.mark.parametrize("pretty", [None, 2])
def test_an_array_of_rows_is_read_as_lines_are(pretty: int | None) -> None:
    rows = [{"id": "a", "label": "cat", "comment": "x"}, {"id": 7, "label": None}, {"id": "c", "status": "unsure"}]
    text = "\ufeff\n" + json.dumps(rows, indent=pretty)
    assert [(row.id, row.label, row.status, row.place) for row in read(text, "back.json")] == [
        ("a", "cat", "labelled", "back.json item 1"),
        ("7", None, "blank", "back.json item 2"),
        ("c", None, "unsure", "back.json item 3"),
    ]


@pytest.mark.parametrize("item", ["3", '["b"]', '{"id": "b"}', '{"label": "b"}'])
def test_an_item_of_an_array_that_is_no_row_is_named(item: str) -> None:
    said = refusal('[{"id": "a", "label": "cat"}, ' + item + "]", "back.json")
    assert said == "back.json item 2 is not a JSON object with the keys id and label"


def test_an_array_that_is_cut_off_is_no_json() -> None:
    assert "back.json is not valid JSON" in refusal('[{"id": "a", "label": "cat"}, ', "back.json")
