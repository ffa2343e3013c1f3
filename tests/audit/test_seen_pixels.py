"""What the model is given, and that people are shown the same: real photos with orientations, deep greys, tar files."""

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extracting_here import extracting_here
from PIL import Image, ImageOps
from safetensors.torch import save
from small_model import trained

from opacc_ray.audit import verbs
from opacc_ray.audit.checks import SpecChecks, check
from opacc_ray.audit.status import status
from opacc_ray.errors import OpaccError
from opacc_ray.extensions.labelling.labelling_tasks import write_tasks
from opacc_ray.extensions.labelling.labelling_tools import export_to_fiftyone
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.labels.shown_examples import ExampleFiles
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report.run_report import gather, pictures_of
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

NAMES = ["top left", "top right", "bottom left", "bottom right"]
UPRIGHT = {0: 1, 1: 3, 3: 2, 2: 0}
"""The quarter that becomes of a stored one when orientation 6 is applied: a quarter turn to the right."""

NUM, EVERY = 40, 5  # photos, and every how many one is turned


def photo(i: int, orientation: int = 1) -> bytes:
    """A JPEG of 80 x 80 pixels whose stored quarter i % 4 is bright."""
    pixels = np.full((80, 80, 3), 30, np.uint8)
    row, column = divmod(i % 4, 2)
    pixels[40 * row : 40 * row + 40, 40 * column : 40 * column + 40] = 220
    exif = Image.Exif()
    exif[0x0112] = orientation
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, "JPEG", quality=95, exif=exif)
    return sink.getvalue()


def deep(i: int) -> bytes:
    """The same as a grey PNG of 16 bits."""
    grey = np.asarray(Image.open(io.BytesIO(photo(i)))).mean(axis=2)
    sink = io.BytesIO()
    Image.fromarray((grey * 257).astype(np.uint16)).save(sink, "PNG")
    return sink.getvalue()


def bright(pixels: Any) -> int:
    """The bright quarter of a picture."""
    grey = np.asarray(pixels, dtype=np.float64)
    grey = grey.mean(axis=2) if grey.ndim == 3 else grey
    high, wide = grey.shape
    quarters = grey[: high // 2 * 2, : wide // 2 * 2].reshape(2, high // 2, 2, wide // 2).mean(axis=(1, 3))
    return int(quarters.argmax())


def to_input(image: np.ndarray) -> np.ndarray:
    """The transform of a service: each type by its own maximum, in 8 x 8 pixels."""
    grey = image / np.iinfo(image.dtype).max
    grey = grey.mean(axis=2) if grey.ndim == 3 else grey
    return grey[None, ::10, ::10].astype(np.float32)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "pool").mkdir()
    for i in range(NUM):
        (tmp_path / "pool" / f"{i:03d}.jpg").write_bytes(photo(i, 6 if i % EVERY == 0 else 1))
    (tmp_path / "model.safetensors").write_bytes(save(trained().state_dict()))
    return tmp_path


def spec_of(home: Path, **sections: Any) -> dict[str, Any]:
    return {
        "name": "seen",
        "pool": {"uri": f"{home}/pool", "format": "images"} | sections.pop("pool", {}),
        "model": {"factory": "small_model:network", "weights": f"{home}/model.safetensors", "classes": NAMES},
        "transform": f"{__name__}:to_input",
        "sample": {"method": "srs", "budget": 20},
        "output": f"{home}/runs",
    } | sections


def checked(given: dict[str, Any]) -> tuple[SpecChecks, OpaccError | None]:
    return check(parse_spec(given, "spec.yaml"), "spec.yaml")


def run_spec(given: dict[str, Any]) -> Run:
    with extracting_here():
        return verbs.first_round(parse_spec(given, "spec.yaml"), trial=True)


def seen_by(orientation: str, id: str) -> int:
    """The bright quarter of an example, as the model was given it."""
    i = int(id[:3])
    return UPRIGHT[i % 4] if orientation == "apply" and i % EVERY == 0 else i % 4


@pytest.mark.slow
@pytest.mark.parametrize("orientation", ["ignore", "apply"])
def test_people_are_shown_the_pixels_that_the_model_was_given(home: Path, orientation: str) -> None:
    given = spec_of(home, pool={} if orientation == "ignore" else {"orientation": orientation})
    made, failure = checked(given)
    assert failure is None
    run = run_spec(given)
    for told in (made.warnings, status(run).warnings):
        said = [text for text in told if "EXIF orientation" in text]
        assert [text.split(" state")[0] for text in said] == ["8 of 40 images"] * (orientation == "ignore")
    chosen = run.read_chosen(1)
    seen = {id: seen_by(orientation, id) for id in chosen.ids}
    turned = [id for id in chosen.ids if int(id[:3]) % EVERY == 0]
    assert turned
    assert list(map(int, chosen.predictions)) == list(seen.values())

    label = "".join(json.dumps({"id": id, "label": NAMES[0]}) + "\n" for id in chosen.ids)
    import_labels(run, "labels.jsonl", label.encode())
    files = ExampleFiles(run, [1])
    arrays = files.arrays(chosen.ids)
    gallery = gather(run)[0].gallery
    assert gallery is not None
    for id, uri in ((id, found.uri) for id, found in pictures_of(run, gallery.examples).items()):
        assert bright(opened(uri)) == seen[id]
    for tool, images in (("label-studio", "copies"), ("cvat", "copies"), ("jsonl", "copies")):
        write_tasks(run, tool, str(home / tool), images=images)
    export_to_fiftyone(run, str(home / "fiftyone"))
    for id in chosen.ids:
        assert bright(arrays[id]) == seen[id]
        assert bright(Image.open(io.BytesIO(files.picture(id, 1600).data))) == seen[id]
        for folder in ("label-studio/images", "cvat/images", "jsonl/images", "fiftyone/data"):
            copy = home / folder / id
            assert bright(Image.open(copy)) == bright(ImageOps.exif_transpose(Image.open(copy))) == seen[id]
            assert (copy.read_bytes() == (home / "pool" / id).read_bytes()) == (id not in turned)


def test_links_which_browsers_turn_are_not_chosen_and_warned_of(
    home: Path, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_store(bucket).write_many((f"pool/{path.name}", path.read_bytes()) for path in (home / "pool").iterdir())
    for orientation, images in (("ignore", "thumbnails"), ("apply", "links")):
        given = spec_of(home, pool={"uri": f"{bucket}/pool", "orientation": orientation}, name=orientation)
        run = run_spec(given)
        assert write_tasks(run, "label-studio", str(home / orientation)).images == images
        caplog.clear()
        write_tasks(run, "label-studio", str(home / f"{orientation} links"), images="links")
        assert ("8 images of the pool state" in caplog.text) == (orientation == "ignore")


def opened(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


@pytest.mark.slow
def test_a_pool_that_grows_counts_the_turned_images_of_all_its_files(home: Path) -> None:
    given = spec_of(home)
    before = run_spec(given)
    for i in range(NUM, NUM + 8):
        (home / "pool" / f"{i:03d}.jpg").write_bytes(photo(i, 8 if i % 4 == 0 else 1))
    (home / "pool" / "005.jpg").unlink()
    after = run_spec(given)
    assert [run.read_index().turned for run in (before, after)] == [8, 9]  # type: ignore[union-attr]


@pytest.mark.slow
def test_check_counts_each_kind_of_example_and_doubts_a_transform_for_one_of_them(home: Path) -> None:
    for i in range(7):
        (home / "pool" / f"deep{i}.png").write_bytes(deep(i))
    made, failure = checked(spec_of(home))
    assert failure is None
    assert "; read 40 × (H, W, 3) uint8 RGB, 7 × (H, W) uint16 I;16; " in made.checks[-1].found
    assert "the transform is given 40 as uint8 and 7 as uint16" in " ".join(made.warnings)
    assert sum(run_spec(spec_of(home)).read_index().predicted.values()) == 47  # type: ignore[union-attr]


def test_check_says_what_was_done_to_pixels_without_a_transform(home: Path) -> None:
    for path in (home / "pool").iterdir():
        path.unlink()
    for i in range(8):
        Image.open(io.BytesIO(photo(i))).convert("L").resize((8, 8)).save(home / "pool" / f"{i}.png")
    given = spec_of(home, sample={"method": "srs", "budget": 2})
    del given["transform"]
    made, _ = checked(given)
    assert "becomes (1, 8, 8), no transform: divided by 255; read 8 × (H, W) uint8 L; " in made.checks[-1].found
    for i in range(8):
        Image.fromarray(np.asarray(Image.open(home / "pool" / f"{i}.png")).astype(np.uint16) * 257).save(
            home / "pool" / f"{i}.png"
        )
    made, _ = checked(given)
    assert "becomes (1, 8, 8), no transform: divided by 65535; read 8 × (H, W) uint16 I;16; " in made.checks[-1].found


def test_a_model_that_gives_nearly_one_class_is_doubted_with_the_numbers(home: Path) -> None:
    given = spec_of(home)
    assert not [text for text in checked(given)[0].warnings if "predicted as" in text]
    for i in range(NUM):
        (home / "pool" / f"{i:03d}.jpg").write_bytes(photo(0 if i % 20 else 3))
    [told] = [text for text in checked(given)[0].warnings if "predicted as" in text]
    assert told.startswith("38 of 40 examples are predicted as 'top left', with a mean confidence of 0.")


def tar(path: Path, names: list[str]) -> None:
    with tarfile.open(path, "w") as file:
        for name in names:
            content = photo(int(name[0])) if name.endswith("jpg") else b"{}"
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("names", "reason", "on_bad_item"),
    [
        ([f"{i}.jpg" for i in range(9)] + ["7.jpg"], "holds '7.jpg' twice", "exclude"),
        ([f"{i}.{kind}" for kind in ("jpg", "json") for i in range(6)], "is not sorted: '0.json' comes", "error"),
        ([f"{i}.{kind}" for kind in ("json", "jpg") for i in range(6)], "is not sorted: '0.jpg' comes", "exclude"),
    ],
)
def test_a_tar_file_that_makes_no_whole_examples_is_refused_by_check_and_run(
    home: Path, names: list[str], reason: str, on_bad_item: str
) -> None:
    (home / "tars").mkdir()
    tar(home / "tars" / "a.tar", names)
    pool = {"uri": f"{home}/tars", "format": "webdataset"}
    given = spec_of(home, pool=pool, sample={"method": "srs", "budget": 2}, extract={"on_bad_item": on_bad_item})
    made, failure = checked(given)
    assert reason in str(failure)
    assert next(item.name for item in made.checks if not item.ok) == "ids"
    with pytest.raises(OpaccError, match=reason):
        run_spec(given)


def test_check_reads_the_names_of_a_sound_tar_file(home: Path) -> None:
    (home / "tars").mkdir()
    tar(home / "tars" / "a.tar", [f"{i}.{kind}" for i in range(6) for kind in ("jpg", "json")])
    pool = {"uri": f"{home}/tars", "format": "webdataset"}
    made, failure = checked(spec_of(home, pool=pool, sample={"method": "srs", "budget": 2}))
    assert failure is None
    assert {item.name: item.found for item in made.checks}["ids"] == "6 examples in 1 tar file, each member once"
