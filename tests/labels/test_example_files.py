"""Pictures of chosen examples from every kind of pool: the right row, read once, or a clear error."""

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
from opacc_ray.extract.shards import FeatureShard
from opacc_ray.labels.example_files import ExampleFiles
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.labels.page.desk import Desk
from opacc_ray.lake.examples import Example, Shard
from opacc_ray.lake.pools import plan_shards, read_chosen, read_examples
from opacc_ray.runs.run import Run
from opacc_ray.spec import open_pool, parse_spec, rules_of

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
        "opacc_ray.labels.example_files.read_chosen",
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
