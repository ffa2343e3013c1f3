"""CSV as spreadsheets, countries and people make it; nothing in it runs, and every text comes back."""

import csv
import io
import random

import pytest
from awkward_ids import random_ids
from reading_labels import pairs, read, refusal

from opacc_ray.labels.formats.csv_file import from_spreadsheet, spreadsheet_safe, write
from opacc_ray.labels.joining import join
from opacc_ray.labels.label_rows import Context, Label, Task


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


def test_all_columns() -> None:
    text = "id,label,annotator,status,run,round,labelled_at,mood\na,cat,ann,done,r,2,2026-11-03T10:00Z,fine\n"
    assert read(text) == [Label("a", "cat", "labelled", "ann", "r", 2, "2026-11-03T10:00Z", "back.csv line 2")]


def test_a_round_that_a_tool_made_a_float() -> None:
    assert read("id,label,round\na,cat,2.0\n")[0].round == 2


def test_csv_ids_are_not_trimmed_but_other_texts_are() -> None:
    label = read('id,label,annotator\n" a ", cat , ann \n')[0]
    assert (label.id, label.label, label.annotator) == (" a ", "cat", "ann")


def test_csv_place_is_the_first_line_of_the_row() -> None:
    labels = read('id,label\n"a\nb",cat\n\nc,dog\n')
    assert [label.place for label in labels] == ["back.csv line 2", "back.csv line 5"]


def test_a_short_row_is_not_answered_yet() -> None:
    assert [label.status for label in read("id,label\na\nb,cat\n")] == ["blank", "labelled"]


def test_apostrophe_of_the_manifest_is_removed() -> None:
    assert pairs("id,label\n'=a,'-1\n''=b,-2\n'c,+\n") == [("=a", "-1"), ("'=b", "-2"), ("'c", "+")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "back.csv is empty: start it with a header"),
        (" \n\n", "back.csv is empty"),
        ("a,cat\nb,dog\n", "back.csv starts with 'a,cat': start it with a header"),
        ("id,class\na,cat\n", "back.csv starts with 'id,class'"),
        ("id,lable\na,cat\n", "with the columns id and label (rename 'lable' to label)"),
        ('"Image ID";"True label"\na;cat\n', "(rename 'Image ID' to id and 'True label' to label)"),
        ("id,label,label\na,cat,dog\n", "two columns 'label'"),
        ("id,label\na,cat\n,dog\n", "back.csv line 3 has no id"),
        ("id,label\na,cat, maybe\n", "back.csv line 2 has 3 cells, but the header has 2"),
        ('id,label\na,cat\n"b,dog\nc,cat\n', "back.csv line 3 is not valid CSV"),
        ('id,label\n"a"b,cat\n', "back.csv line 2 is not valid CSV"),
        ("id,label,round\na,cat,two\n", "back.csv line 2 has the round 'two'"),
        ("id,label,status\na,cat,rejected\n", "back.csv line 2 has the status 'rejected'"),
        ("id,label,status\na,,labelled\n", "back.csv line 2 has the status 'labelled' but no label"),
        (b"id,label\na,cat\nb,caf\xe9\n", "back.csv line 3 is not UTF-8"),
        (b"PK\x03\x04\x14\x00", "back.csv is a ZIP archive or a workbook: import the file of labels"),
        (b"PAR1\x15\x04", "back.csv is a Parquet file: write its columns id and label as CSV"),
        ("id,label\na,cat\n".encode("utf-16"), "back.csv line 1 is not UTF-8"),
        ("id,label\na," + "x" * 200_000, "back.csv line 2 is not valid CSV"),
    ],
)
def test_csv_that_is_refused(text: str | bytes, words: str) -> None:
    assert words in refusal(text)


def test_a_header_without_a_near_name_gets_no_guess() -> None:
    assert refusal("zebra,label\na,cat\n").endswith("with the columns id and label")


def test_a_manifest_comes_back_filled_in_from_a_european_spreadsheet() -> None:
    rng = random.Random(0)
    pieces = [*"a7 ',\";=+-@\t\r\n\\?{[", "\r\n", "\u2028", "\x85", "\x00", "é", "日", "🙂"]
    ids = sorted({"".join(rng.choices(pieces, k=rng.randint(1, 6))) for _ in range(2000)})
    answers = {id: rng.choice(["cat", "dog, big", "7; 8"]) for id in ids}
    sent = write([Task(id, None, "r", 1, order) for order, id in enumerate(ids)], Context())["manifest.csv"]
    header, *rows = csv.reader(io.StringIO(sent.decode("utf-8-sig"), newline=""))
    column = header.index("label")
    filled = [[*cells[:column], answers[id], *cells[column + 1 :]] for id, cells in zip(ids, rows, strict=True)]
    back = io.StringIO(newline="")
    csv.writer(back, delimiter=";").writerows([header, *rng.sample(filled, len(filled))])
    assert join(read(back.getvalue()), ids, run="r").label == answers


@pytest.mark.parametrize(
    ("text", "cell"),
    [("=1", "'=1"), ("'=1", "''=1"), ("''@", "'''@"), ("'a", "'a"), ("'", "'"), ("a=1", "a=1"), ("", "")],
)
def test_apostrophe(text: str, cell: str) -> None:
    assert spreadsheet_safe(text) == cell
    assert from_spreadsheet(cell) == text


def test_apostrophe_is_undone_for_random_text() -> None:
    for text in random_ids(3000, seed=3):
        assert from_spreadsheet(spreadsheet_safe(text)) == text


def test_an_unguarded_cell_is_its_own_text() -> None:
    assert from_spreadsheet("=1") == "=1"
