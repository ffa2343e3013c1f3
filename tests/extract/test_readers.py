"""Processes that read for one that computes: the same bytes, faults in the sentences of extraction, nothing left."""

import gzip
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoded_files import tar
from one_shard import extract, spec_of
from small_pictures import picture, to_input

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.extractor import Extractor
from opacc_ray.extract.readers import Readers, units_of
from opacc_ray.extract.user_code import EndedError
from opacc_ray.lake.examples import Piece, Shard
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store import Entry
from opacc_ray.lake.store_uris import open_store

pytestmark = pytest.mark.processes


def colour_net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


def written(folder: Path, readers: int) -> bytes:
    return (folder / f"features-{readers}" / "part-000000.parquet").read_bytes()


@pytest.mark.parametrize("on_bad", ["nothing is bad", "excluded"])
def test_readers_change_no_byte(tmp_path: Path, on_bad: str) -> None:
    """Batches hold the same examples, even if one of a unit cannot be used, and the last is short."""
    pool = open_store(str(tmp_path / "pool"))
    pool.write_many((f"{i:03d}.png", picture(i)) for i in range(45))
    if on_bad == "excluded":
        pool.write("003.png", picture(3)[:60])
        pool.write("044.png", b"")
    spec = spec_of(tmp_path, transform="faulty_transforms:channels", model={"factory": "test_readers:colour_net"})
    spec = spec.model_copy(update={"extract": spec.extract.model_copy(update={"on_bad_item": "exclude"})})
    reports = [extract(spec, tmp_path, readers) for readers in (0, 1, 2, 4)]
    assert [report.num_examples for report in reports] == [45 if on_bad == "nothing is bad" else 43] * 4
    assert len({written(tmp_path, readers) for readers in (0, 1, 2, 4)}) == 1


def test_rows_of_arrays_are_read_by_several(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    np.save(tmp_path / "pool" / "x.npy", np.random.default_rng(0).normal(size=(30, 64)).astype(np.float32))
    pool = {"uri": str(tmp_path / "pool"), "format": "npy"}
    spec = spec_of(tmp_path, pool=pool, model={"function": "numpy_model:random"})
    for readers in (0, 2):
        extract(spec, tmp_path, readers)
    assert written(tmp_path, 0) == written(tmp_path, 2)


@pytest.mark.parametrize("kind", ["plain", "compressed", "cut short"])
def test_a_tar_file_is_decoded_by_several(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte, with a member that is no image, also if units are shorter than batches."""
    whole = tar(*((f"{i:03d}.png", picture(i) if i != 3 else b"none") for i in range(45)))
    name = "a.tar.gz" if kind == "compressed" else "a.tar"
    content = {"plain": whole, "compressed": gzip.compress(whole), "cut short": whole[: len(whole) // 2]}[kind]
    open_store(str(tmp_path / "pool")).write(name, content)
    spec = spec_of(
        tmp_path,
        pool={"uri": str(tmp_path / "pool"), "format": "webdataset"},
        model={"function": "numpy_model:random"},
        extract={"batch_size": 8, "on_bad_item": "exclude"},
    )
    reports = [extract(spec, tmp_path, num) for num in (0, 2)]
    monkeypatch.setattr("opacc_ray.extract.readers.UNIT_BYTES", 1000)
    reports.append(extract(spec, tmp_path, 3))
    bad = {f"{name}/003"} | ({name} if kind == "cut short" else set())
    assert [{item.id for item in report.bad} for report in reports] == [bad] * 3
    assert len({written(tmp_path, num) for num in (0, 2, 3)}) == 1


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        ("dying", EndedError, "was killed"),
        ("hanging", EndedError, r"finished nothing for 6 s at .*faulty_transforms.py:\d+ in hanging"),
        (
            "raising",
            DataError,
            r"transform, given example '055.png' .* raised ValueError: no 55 at .*faulty_transforms.py:\d+",
        ),
        ("greedy", MemoryError, "no memory for 55"),
    ],
)
def test_a_fault_names_its_place_and_the_next_shard_is_read(
    tmp_path: Path, fault: str, kind: type[Exception], text: str
) -> None:
    pool, target = open_store(str(tmp_path / "pool")), open_store(str(tmp_path / "features"))
    pool.write_many((f"{i:03d}.png", picture(i)) for i in range(40, 72))
    model = {"function": "numpy_model:random"}
    spec = spec_of(tmp_path, model=model, transform=f"faulty_transforms:{fault}")
    shards = plan_shards(pool, "images", 16).shards
    job = Extraction(spec, spec.pool, spec.features(), target)
    with closing(Extractor(job, readers=2, seconds=6 if fault == "hanging" else None)) as extractor:
        with pytest.raises(kind, match=text):
            extractor.extract(shards[0])
        assert extractor.extract(shards[1]).num_examples == 16
        children = [reader._child._process for reader in extractor._readers._readers if reader._child]
    assert len(children) == 2 - (kind is EndedError) or all(child.returncode is not None for child in children)
    assert not [name for name in os.listdir("/dev/shm") if "opacc" in name]


def test_a_transform_of_the_main_module_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(str(tmp_path / "pool")).write("000.png", picture(0))
    monkeypatch.setattr(sys.modules["__main__"], "to_input", to_input, raising=False)
    spec = spec_of(tmp_path, model={"function": "numpy_model:random"}, transform="__main__:to_input")
    assert extract(spec, tmp_path, 0).num_examples == 1
    with pytest.raises(SpecError, match=r"'__main__:to_input'.*extract\.readers: 0"):
        extract(spec, tmp_path, 1)


def test_shards_that_are_not_wanted_any_more_free_their_memory(tmp_path: Path) -> None:
    pool = open_store(str(tmp_path / "pool"))
    pool.write_many((f"{i:03d}.png", picture(i)) for i in range(80))
    spec = spec_of(tmp_path, model={"function": "numpy_model:random"})
    job = Extraction(spec, spec.pool, spec.features(), open_store(str(tmp_path / "features")))
    with closing(Readers(job, 2)) as readers:
        for shard in plan_shards(pool, "images", 40).shards * 3:
            batches = readers.read(shard, [])
            next(batches).release()
            batches.close()
        assert [reader._free.qsize() for reader in readers._readers] == [3, 3]


def test_a_shard_is_cut_where_its_format_allows_it() -> None:
    entries = tuple(Entry(f"{i}.x", 1, "") for i in range(5))
    sizes: list[Any] = [len(unit.shard.entries) for unit in units_of(Shard(0, entries), "images", 2)]
    assert sizes == [2, 2, 1]
    assert len(units_of(Shard(0, entries), "npy", 2)) == 5
    rows = Shard(0, entries[:1], (Piece(entries[0], 3, 8),))
    assert [(unit.shard.pieces[0].start, unit.shard.pieces[0].stop) for unit in units_of(rows, "npy", 2)] == [
        (3, 5),
        (5, 7),
        (7, 8),
    ]
