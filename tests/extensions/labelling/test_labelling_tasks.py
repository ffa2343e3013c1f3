"""Tasks for labelling tools: every example of the round, images that open, no prediction; labels come back."""

import io
import json
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audited_run import CLASSES, KEYS, TRUTH, write_features
from PIL import Image
from waiting import LONG

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, LabelError, SpecError, StorageError
from opacc_ray.extensions.labelling.labelling_tasks import deal, refuse_blind, write_tasks
from opacc_ray.labels.formats import FORMATS, Context, LabelFile, parse
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.labels.shown_examples import doubled
from opacc_ray.lake.store_uris import join, open_store
from opacc_ray.runs.run import Run


def drawn_run(home: str) -> Run:
    """A run over real pictures, each of the grey of its place in the pool, with a round of 20."""
    store = open_store(join(home, "pool"))
    store.write_many((key, grey(place)) for place, key in enumerate(KEYS))
    run, _ = write_features(home)
    verbs.select(run, "srs", 20, {})
    return run


def grey(place: int) -> bytes:
    sink = io.BytesIO()
    Image.new("L", (30, 20), place).save(sink, "PNG")
    return sink.getvalue()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return drawn_run(str(tmp_path / "home"))


def tasks_of(uri: str) -> list[dict[str, str]]:
    return [item["data"] for item in json.loads(open_store(uri).read("tasks-1.json"))]


def shows(data: bytes) -> int:
    return int(np.asarray(Image.open(io.BytesIO(data)))[0, 0])


@pytest.mark.parametrize("tool", [name for name in FORMATS if name != "ground-truth"])
def test_every_tool_is_given_every_example_and_nothing_of_the_model(run: Run, tmp_path: Path, tool: str) -> None:
    written = write_tasks(run, tool, str(tmp_path / "out"))
    assert (written.tool, written.round, written.examples, written.twice) == (tool, 1, 20, 0)
    text = b"".join(Path(uri).read_bytes() for uri in written.files)
    assert b"predict" not in text
    assert b"confidence" not in text
    if tool == "cvat":
        names = sorted(path.name for path in (tmp_path / "out" / "images").iterdir())
        assert names == sorted(run.read_selection(1).ids)
    else:
        (own,) = [uri for uri in written.files if not uri.endswith("xml")]
        assert sorted(label.id for label in parse(LabelFile(own, Path(own).read_bytes()))) == sorted(
            run.read_selection(1).ids
        )


def test_images_of_another_round_in_the_folder_are_named(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_tasks(run, "cvat", str(tmp_path))
    write_tasks(run, "cvat", str(tmp_path))
    assert "images holds" not in caplog.text
    (tmp_path / "images" / "older.png").write_bytes(b"")
    write_tasks(run, "cvat", str(tmp_path))
    assert "images has 1 image from another round or run, such as older.png" in caplog.text


def test_a_lost_image_is_named_with_what_to_do(run: Run, tmp_path: Path) -> None:
    lost = run.read_selection(1).ids[3]
    (Path(run.spec.pool.uri) / lost).unlink()
    told = rf"{lost}: there is no such file.*; if it is lost, label the other examples .*`opacc label {run.uri}`"
    with pytest.raises(StorageError, match=told):
        write_tasks(run, "cvat", str(tmp_path / "tasks"))


@pytest.mark.parametrize("tool", ["cvat", "label-studio"])
def test_an_image_that_became_a_symbolic_link_is_not_sent(run: Run, tmp_path: Path, tool: str) -> None:
    (tmp_path / "secret").write_bytes(grey(7))
    image = Path(run.spec.pool.uri, run.read_selection(1).ids[0])
    image.unlink()
    image.symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match=r"cannot read .*: it is a symbolic link now; .* label the other examples"):
        write_tasks(run, tool, str(tmp_path / "out"))


def test_links_open_without_credentials_and_end(bucket: str, tmp_path: Path) -> None:
    run = drawn_run(bucket)
    written = write_tasks(run, "label-studio", str(tmp_path / "out"))
    assert written.images == "links"
    for data in tasks_of(written.folder)[:3]:
        with urllib.request.urlopen(data["image"], timeout=LONG) as answer:
            assert KEYS[shows(answer.read())] == data["opacc_id"]
    first = tasks_of(written.folder)[0]["image"]
    for wrong in (first.replace(KEYS[0], "x"), first[:-4] + "0000", first.partition("?")[0]):
        if wrong != first:
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(wrong, timeout=LONG)
    short = write_tasks(run, "csv", str(tmp_path / "csv"), images="links", lifetime=timedelta(seconds=90))
    assert short.links_end is not None
    assert short.links_end < (written.links_end or "")
    assert b"X-Amz-Expires=90&" in (tmp_path / "csv" / "manifest-1.csv").read_bytes()


def test_ground_truth_is_given_the_places_in_s3(bucket: str, tmp_path: Path) -> None:
    run = drawn_run(bucket)
    [uri] = write_tasks(run, "ground-truth", str(tmp_path)).files
    lines = [json.loads(line) for line in Path(uri).read_text().splitlines()]
    assert {line["source-ref"] for line in lines} == {f"{bucket}/pool/{id}" for id in run.read_selection(1).ids}


def test_what_is_asked_wrongly_is_refused_in_a_sentence(run: Run, tmp_path: Path) -> None:
    asked: list[tuple[str, dict[str, Any], type[Exception], str]] = [
        ("cvat", {"images": "links"}, SpecError, "--images links is not supported for cvat: use copies"),
        ("csv", {"overlap": 0.1}, SpecError, "an overlap of 0.1 assigns examples to two annotators"),
        ("csv", {"annotators": ("ann", "ann ")}, SpecError, "has a name twice"),
        ("csv", {"annotators": ("../x", "ann")}, SpecError, "--annotators '../x': use letters"),
        ("csv", {"images": "links"}, StorageError, "has no link that a browser opens"),
        ("csv", {"round": 2}, LabelError, "has no round 2"),
        ("csv", {"round": 0}, LabelError, "has no round 0"),
        ("ground-truth", {}, DataError, "reads images from S3"),
    ]
    for tool, options, error, words in asked:
        with pytest.raises(error, match=words):
            write_tasks(run, tool, str(tmp_path / "out"), **options)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tool", ["cvat", "ground-truth"])
def test_tools_that_show_pictures_alone_are_given_no_answers_to_judge(
    run: Run, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SpecError, match=f"{tool} shows pictures alone, so nobody would see the answers to judge: use"):
        refuse_blind(Context(("right", "wrong"), "grade", columns=("question", "answer")), tool)
    refuse_blind(Context(CLASSES, columns=("subject", "text")), tool)
    shown = f"{tool} shows the pictures alone, without subject, text; label-studio and `opacc label` show both"
    assert shown in caplog.text


# -- files that people fill in --------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("tool", [name for name in FORMATS if name != "ground-truth"])
@pytest.mark.parametrize("annotators", ["", "ann,bob"])
def test_a_file_that_was_filled_in_is_never_replaced(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], tool: str, annotators: str
) -> None:
    out = tmp_path / "out"
    command = ["manifest", run.uri, "--to", tool, "--out", str(out), "--annotators", annotators]
    assert main(command) == 0
    capsys.readouterr()
    written = contents(out)
    assert main(command) == 0, "the same command on untouched files changes nothing"
    assert contents(out) == written
    capsys.readouterr()
    tasks = [name for name in sorted(written) if not name.startswith("images/")]
    for name in tasks + sorted(written.keys() - {*tasks})[:2]:
        (out / name).write_bytes(written[name] + b"filled in")
        before = contents(out)
        assert main(command) == 6
        said = capsys.readouterr().err
        assert f"{out}/{name} already exists with other content and was not replaced" in said
        assert "write to another folder, or move the file away" in said
        if not name.startswith("images/"):
            assert f"import them with `opacc labels import {run.uri} {out}/{name}`" in said
        assert contents(out) == before
        (out / name).write_bytes(written[name])


def test_each_round_has_files_of_its_own(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_tasks(run, "csv", str(out))
    ids = run.read_selection(1).ids
    filled = "id,label\n" + "".join(f"{id},{CLASSES[TRUTH[KEYS.index(id)]]}\n" for id in ids)
    (out / "manifest-1.csv").write_text(filled)
    import_labels(run, "manifest-1.csv", filled.encode())
    verbs.next_round(run, 10)
    write_tasks(run, "csv", str(out))
    assert sorted(contents(out)) == ["manifest-1.csv", "manifest-2.csv"]
    assert (out / "manifest-1.csv").read_text() == filled


def test_another_image_of_the_same_name_is_kept(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_tasks(run, "cvat", str(out))
    image = sorted((out / "images").iterdir())[3]
    image.write_bytes(b"of another pool")
    with pytest.raises(LabelError, match=rf"{image} already exists .*not replaced; write to another folder"):
        write_tasks(run, "label-studio", str(out), images="copies")
    assert image.read_bytes() == b"of another pool"
    assert not (out / "tasks-1.json").exists()


# -- who labels what -------------------------------------------------------------------------------------


NAMES = [f"{i:04d}.png" for i in range(1000)]


def test_the_share_is_exact_nested_and_the_same_for_any_order() -> None:
    few, many = doubled(NAMES, 0.2, "run"), doubled(NAMES[::-1], 0.35, "run")
    assert (len(few), len(many)) == (200, 350)
    assert few < many
    assert doubled(NAMES, 0, "run") == frozenset()
    assert doubled(NAMES, 0.2, "another run") != few


@pytest.mark.parametrize("names", [["ann", "bob"], ["ann", "bob", "cy"], list("abcdefg")])
def test_examples_are_dealt_once_and_doubled_ones_to_two_people(names: list[str]) -> None:
    twice = doubled(NAMES, 0.3, "run")
    dealt = deal(NAMES, names, twice)
    for id in NAMES:
        assert sum(id in own for own in dealt.values()) == 1 + (id in twice)
    assert all(len(set(own)) == len(own) and own == sorted(own) for own in dealt.values())
    assert max(map(len, dealt.values())) - min(map(len, dealt.values())) < 60
