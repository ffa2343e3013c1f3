"""CSV as spreadsheets, countries and people make it; nothing in it runs, and every text comes back."""

import csv
import io
import random

import pytest
from reading_labels import pairs, read, refusal

from opacc_ray.labels.formats.csv_file import write
from opacc_ray.labels.joining import join
from opacc_ray.labels.label_rows import Context, Task


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
        ("id,label,round\na,cat,two\n", "back.csv line 2 has the round 'two'"),
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
    sent = write([Task(id, None, "r", 1, order) for order, id in enumerate(ids)], Context())["manifest.csv"]
    header, *rows = csv.reader(io.StringIO(sent.decode(), newline=""))
    column = header.index("label")
    filled = [[*cells[:column], answers[id], *cells[column + 1 :]] for id, cells in zip(ids, rows, strict=True)]
    back = io.StringIO(newline="")
    csv.writer(back, delimiter=";").writerows([header, *rng.sample(filled, len(filled))])
    assert join(read(back.getvalue()), ids, run="r").label == answers
