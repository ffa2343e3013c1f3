"""Pictures of the gallery: of the very examples that the model saw, or a reason why there is none."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from reported_run import labelled_run, picture

from opacc_ray.audit import verbs
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report import run_report
from opacc_ray.report.page import Picture
from opacc_ray.report.report_documents import Misprediction
from opacc_ray.report.run_report import LONGEST, gather
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


def pixels(found: Picture | str) -> np.ndarray:
    assert isinstance(found, Picture), found
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found.uri.partition(",")[2]))))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return labelled_run(tmp_path, 60)


def shown(run: Run) -> list[Misprediction]:
    gallery = gather(run)[0].gallery
    assert gallery is not None
    return gallery.examples


def test_each_is_the_example_itself(run: Run) -> None:
    report, pictures = gather(run)
    assert report.gallery is not None
    for item in report.gallery.examples:
        assert item.not_shown is None
        assert (pixels(pictures[item.id]) == int(item.id[:3])).all()
        assert pixels(pictures[item.id]).shape == (8, 12)


@pytest.mark.parametrize("place", ["tmp_path", pytest.param("bucket", marks=pytest.mark.processes)])
def test_a_changed_and_a_lost_object_are_said_and_not_shown(place: str, request: pytest.FixtureRequest) -> None:
    run = labelled_run(request.getfixturevalue(place), 60)
    first, second = (item.id for item in shown(run)[:2])
    pool = open_store(run.spec.pool.uri)
    pool.write(first, picture(7) + b" ")
    pool.delete(second)
    report, pictures = gather(run)
    assert report.gallery is not None
    said = {item.id: item.not_shown for item in report.gallery.examples}
    assert said.pop(first) == "its object changed since extraction"
    assert said.pop(second) == "its object is gone"
    assert set(said.values()) == {None}
    assert all((pixels(pictures[id]) == int(id[:3])).all() for id in said)
    assert not isinstance(pictures[first], Picture)
    assert report.estimate is not None
    assert report.estimate.objects is not None
    assert (report.estimate.objects.changed, report.estimate.objects.lost) == (1, 1)


def rows_run(home: Path) -> Run:
    rows = np.repeat(np.arange(240, dtype=np.uint8), 12).reshape(240, 3, 4)
    return labelled_run(home, 60, form="npy", rows=rows, extract={"shard_size": 240})


def test_rows_that_are_pictures_are_shown_unless_the_pool_has_another_file(tmp_path: Path) -> None:
    run = rows_run(tmp_path)
    report, pictures = gather(run)
    assert report.gallery is not None
    assert report.gallery.examples
    for item in report.gallery.examples:
        assert (pixels(pictures[item.id]) == int(item.id.partition(":")[2])).all()
    np.save(Path(run.spec.pool.uri) / "again.npy", np.zeros((5, 3, 4), np.uint8))
    assert all("has changed since it was listed" in str(item.not_shown) for item in shown(run))


def test_image_files_that_predictions_name_are_shown(tmp_path: Path) -> None:
    rows = [f"img/{i}.png,{'cat' if i % 2 else 'dog'},0.9" for i in range(30)]
    open_store(f"{tmp_path}/img").write_many((f"{i}.png", picture(i)) for i in range(30))
    (tmp_path / "answers.csv").write_text("\n".join(["image,prediction,confidence", *rows]))
    pool = {"uri": f"{tmp_path}/answers.csv", "format": "features"}
    pool["columns"] = {"id": "image", "uri": "image", "prediction": "prediction", "confidence": "confidence"}
    content = {"name": "named", "pool": pool, "model": {"classes": ["cat", "dog"]}, "output": f"{tmp_path}/out"}
    run = verbs.first_round(parse_spec(content | {"sample": {"method": "srs", "budget": 10}}, "spec"))
    ids = run.read_chosen(1).ids
    import_labels(run, "labels.csv", "\n".join(["id,label", *(f"{id},cat" for id in ids)]).encode())
    Path(tmp_path, shown(run)[0].id).unlink()
    gone, *others = shown(run)
    assert gone.not_shown == "its file cannot be read as a picture"
    pictures = gather(run)[1]
    for item in others:
        assert (pixels(pictures[item.id]) == int(Path(item.id).stem)).all()
    assert others


def test_no_more_is_read_than_a_page_is_worth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_report, "MOST_BYTES", 100)
    assert all("pictures would take more than" in str(item.not_shown) for item in shown(rows_run(tmp_path)))


def test_a_large_picture_is_made_small(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, 60, form="npy", rows=np.zeros((240, 300, 400, 3), np.uint8))
    pictures = gather(run)[1].values()
    assert {(found.width, found.height) for found in pictures if isinstance(found, Picture)} == {(400, 300)}
    assert all(pixels(found).shape == (144, LONGEST, 3) for found in pictures)
