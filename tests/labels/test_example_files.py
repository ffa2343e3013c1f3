"""Chosen examples as pictures: the right row of every kind of pool, upright, small enough, and of pixels only."""

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from stored_run import store_run

from opacc_ray.audit import verbs
from opacc_ray.errors import DataError
from opacc_ray.extensions.labelling.labelling_tasks import THUMBNAIL, THUMBNAIL_BYTES, thumbnail
from opacc_ray.extract.shards import FeatureShard
from opacc_ray.labels.desk import Desk
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.labels.shown_examples import ExampleFiles, Picture, render, render_array
from opacc_ray.lake.examples import Example, Shard
from opacc_ray.lake.pools import plan_shards, read_chosen, read_examples
from opacc_ray.runs.run import Run
from opacc_ray.spec import open_pool, parse_spec, rules_of

RNG = np.random.default_rng(0)


def encoded(image: Image.Image, kind: str = "PNG", **settings: object) -> bytes:
    sink = io.BytesIO()
    image.save(sink, kind, **settings)
    return sink.getvalue()


def pixels(picture: Picture) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture.data)))


def noise(*shape: int) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 256, shape, dtype=np.uint8))


def test_an_image_is_rotated_by_its_exif_and_loses_its_metadata() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "the secret place"  # orientation: turn right; description
    picture = render(encoded(noise(600, 900, 3), "JPEG", exif=exif), longest=450)
    assert (picture.width, picture.height) == (600, 900)
    assert pixels(picture).shape == (450, 300, 3)
    assert b"secret" not in picture.data


def test_deep_grey_is_spread_over_what_a_screen_shows() -> None:
    deep = Image.fromarray(np.array([[1000, 1100], [1200, 1255]], np.uint16))
    assert pixels(render(encoded(deep))).tolist() == [[0, 100], [200, 255]]


def test_transparent_parts_lie_on_white() -> None:
    glass = Image.new("RGBA", (2, 2), (9, 9, 9, 0))
    for picture in (render(encoded(glass)), render_array(np.asarray(glass))):
        assert pixels(picture).tolist() == [[[255] * 3] * 2] * 2


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"])
def test_every_mode_of_a_file_is_shown(mode: str) -> None:
    image = Image.new("L", (5, 4), 77).convert("RGB").convert("CMYK") if mode == "CMYK" else Image.new(mode, (5, 4))
    assert pixels(render(encoded(image, "TIFF"))).shape[:2] == (4, 5)


def test_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(DataError, match=r"5000 x 4000 pixels, and at most 1000000 are read"):
        render(encoded(Image.new("1", (5000, 4000))), max_pixels=1_000_000)


@pytest.mark.parametrize("content", [b"", b"<svg onload=alert(1)>", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"bytes that (are not|cannot be decoded as) an image"):
        render(content)


@pytest.mark.parametrize(
    ("shape", "shown"), [((8, 6), (8, 6)), ((8, 6, 1), (8, 6)), ((8, 6, 3), (8, 6, 3)), ((3, 8, 6), (8, 6, 3))]
)
def test_arrays_are_shown_in_either_order_of_axes(shape: tuple[int, ...], shown: tuple[int, ...]) -> None:
    for array in (RNG.integers(0, 256, shape, dtype=np.uint8), RNG.normal(size=shape).astype(np.float32)):
        assert pixels(render_array(array)).shape == shown


def test_an_array_that_is_no_picture_is_refused() -> None:
    with pytest.raises(DataError, match=r"an array of shape \(7,\) is no picture"):
        render_array(np.zeros(7))


def test_a_thumbnail_fits_a_task() -> None:
    small = thumbnail(render(encoded(noise(1500, 2000, 3), "JPEG"), longest=THUMBNAIL))
    assert len(small.data) <= THUMBNAIL_BYTES
    assert (small.width, small.height) == (2000, 1500)


NUM = 40


def grey(value: int) -> bytes:
    sink = io.BytesIO()
    Image.new("L", (6, 4), value).save(sink, "PNG")
    return sink.getvalue()


def write_npy(home: Path) -> dict[str, Any]:
    for part in range(2):
        rows = np.arange(20 * part, 20 * part + 20, dtype=np.uint8)
        np.save(home / f"{part}.npy", np.tile(rows[:, None, None], (1, 4, 6)))
    return {"format": "npy"}


def write_parquet(home: Path) -> dict[str, Any]:
    table = pa.table({"name": [f"example {i}" for i in range(NUM)], "picture": [grey(i) for i in range(NUM)]})
    pq.write_table(table, home / "pool.parquet", row_group_size=7)
    return {"format": "parquet", "columns": {"id": "name", "image": "picture"}}


def write_webdataset(home: Path) -> dict[str, Any]:
    for part in range(2):
        with tarfile.open(home / f"{part}.tar", "w") as file:
            for i in range(20 * part, 20 * part + 20):
                info = tarfile.TarInfo(f"{i:03d}.png")
                info.size = len(grey(i))
                file.addfile(info, io.BytesIO(grey(i)))
    return {"format": "webdataset"}


def run_over(home: Path, pool: dict[str, Any]) -> Run:
    """A run over a pool whose example of number i is of the grey i, with 15 of them chosen."""
    content = {
        "name": "audit",
        "pool": {"uri": str(home / "pool")} | pool,
        "model": {"factory": "user:network"},
        "extract": {"shard_size": 8},
        "sample": {"method": "srs", "budget": 15},
        "output": str(home),
    }
    spec = parse_spec(content, "audit")
    store, rules = open_pool(spec.pool), rules_of(spec.pool)
    plan = plan_shards(store, spec.pool.format, 8, rules=rules)

    def features(shard: Shard) -> FeatureShard:
        items = [item for item in read_examples(store, spec.pool.format, shard, rules) if isinstance(item, Example)]
        columns = {
            "hidden": np.ones((len(items), 2), np.float32),
            "output": np.ones((len(items), 3), np.float32),
            "prediction": np.array([int(item.array.flat[0]) for item in items]),
            "confidence": np.full(len(items), 0.5),
        }
        ids, uris = [item.id for item in items], [item.uri for item in items]
        return FeatureShard(ids, uris, columns, [], items[0].own_id)

    run = store_run(str(home / "audit"), spec, plan, map(features, plan.shards))
    verbs.select(run, "srs", 15, {})
    return run


@pytest.mark.parametrize("write", [write_npy, write_parquet, write_webdataset])
def test_every_chosen_row_is_shown_as_itself(tmp_path: Path, write: Any) -> None:
    (tmp_path / "pool").mkdir()
    run = run_over(tmp_path, write(tmp_path / "pool"))
    files, chosen = ExampleFiles(run, [1]), run.read_chosen(1)
    for id, value in zip(chosen.ids, chosen.predictions, strict=True):
        picture = files.picture(id, 800)
        assert (np.asarray(Image.open(io.BytesIO(picture.data))) == value).all()
        name, data = files.copy(id)
        assert name.endswith("~.png")
        assert data == picture.data
    with pytest.raises(DataError, match="has no link"):
        files.link(chosen.ids[0], 60)


def test_a_shard_is_read_once_for_all_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pool").mkdir()
    run = run_over(tmp_path, write_parquet(tmp_path / "pool"))
    files, read = ExampleFiles(run, [1]), []
    monkeypatch.setattr(
        "opacc_ray.labels.shown_examples.read_chosen",
        lambda *asked: read.append(asked[2].number) or read_chosen(*asked),
    )
    index = run.read_index()
    assert index is not None
    ends = np.cumsum([shard.examples for shard in index.shards])
    wanted = set(np.searchsorted(ends, run.read_selection(1).index, side="right").tolist())
    assert 1 < len(wanted) < len(run.read_chosen(1).ids)
    for id in files.in_pool_order(run.read_chosen(1).ids):
        files.picture(id)
    assert read == sorted(wanted)


def test_the_page_shows_rows_of_rounds_that_were_drawn_since_it_began(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    run = run_over(tmp_path, write_npy(tmp_path / "pool"))
    desk = Desk(run)
    shown = run.read_selection(1).ids
    rows = "".join(f"{id},0\n" for id in shown)
    import_labels(run, "labels.csv", f"id,label\n{rows}".encode())
    ids = verbs.next_round(run, 5).ids
    desk.queue.look(now=True)
    assert all(desk.picture(desk.queue.ids.index(id), whole=False).data for id in ids)


def test_a_pool_that_changed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    run = run_over(tmp_path, write_npy(tmp_path / "pool"))
    np.save(tmp_path / "pool" / "0.npy", np.zeros((30, 4, 6), np.uint8))
    with pytest.raises(DataError, match=r"cannot be shown: the pool .* has changed since it was listed"):
        ExampleFiles(run, [1]).picture(run.read_chosen(1).ids[0])
