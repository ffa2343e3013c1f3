"""Extraction of one shard without Ray: one example is decoded at a time, and bad ones are excluded."""

import io
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_shard import extract, spec_of
from PIL import Image
from small_pictures import picture
from waiting import LONG

from opacc_ray.errors import DataError
from opacc_ray.extract import extractor, inference
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.extractor import Extractor
from opacc_ray.extract.inference import Batch, Feed, run_that_fits
from opacc_ray.extract.shards import encode_shard
from opacc_ray.extract.torch_model import Model
from opacc_ray.extract.user_code import Activations, Running
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store import ChangedError
from opacc_ray.lake.store_uris import open_store


@pytest.mark.parametrize("fault", ["no rule", "damaged"])
def test_image_that_cannot_be_used_is_an_error_or_left_out(tmp_path: Path, fault: str) -> None:
    pool = open_store(str(tmp_path / "pool"))
    pool.write_many((f"{i:03d}.png", picture(i)) for i in range(10))
    glass = io.BytesIO()
    Image.fromarray(np.full((8, 8, 4), 9, dtype=np.uint8)).save(glass, format="PNG")
    content = {"no rule": glass.getvalue(), "damaged": picture(3)[:60]}[fault]
    pool.write("003.png", content)
    section = {"uri": str(tmp_path / "pool"), "format": "images"}
    reason = {"no rule": "set pool.alpha", "damaged": "cannot be decoded"}[fault]
    with pytest.raises(DataError, match=rf"example '003\.png' of .*{reason}.*on_bad_item: exclude"):
        extract(spec_of(tmp_path, pool=section), tmp_path)
    report = extract(spec_of(tmp_path, pool=section, extract={"batch_size": 4, "on_bad_item": "exclude"}), tmp_path)
    assert report.num_examples == 9
    assert [item.id for item in report.bad] == ["003.png"]


def test_pool_that_changes_during_extraction_is_an_error(tmp_path: Path) -> None:
    pool = open_store(str(tmp_path / "pool"))
    pool.write_many((f"{i:03d}.png", picture(i)) for i in range(10))
    spec = spec_of(tmp_path, extract={"on_bad_item": "exclude"})
    plan = plan_shards(pool, "images", 100)
    pool.write("004.png", picture(4) + b"more")
    job = Extraction(spec, spec.pool, spec.features(), open_store(str(tmp_path / "features")))
    with pytest.raises(ChangedError, match=r"004\.png has changed since the pool was listed"):
        Extractor(job).extract(plan.shards[0])


def test_shard_that_lost_an_example_on_the_way_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The actor compares what it has with its shard, so that the driver need not."""
    open_store(str(tmp_path / "pool")).write_many((f"{i:03d}.png", picture(i)) for i in range(10))
    plain = inference.read_numbered
    monkeypatch.setattr(inference, "read_numbered", lambda *given: list(plain(*given))[:-1])
    with pytest.raises(DataError, match=r"part-000000\.parquet holds 9 examples .* which are not the 10 of its plan"):
        extract(spec_of(tmp_path), tmp_path)
    assert not (tmp_path / "features-0").exists()


def test_a_shard_that_another_process_has_finished_is_not_computed_again(tmp_path: Path) -> None:
    open_store(str(tmp_path / "pool")).write_many((f"{i:03d}.png", picture(i)) for i in range(10))
    first = extract(spec_of(tmp_path), tmp_path)
    again = extract(spec_of(tmp_path, model={"factory": "small_model:no_such"}), tmp_path)
    assert again == first._replace(hashes=None, spent=None)


def test_a_shard_is_written_while_another_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, features = open_store(str(tmp_path / "pool")), open_store(str(tmp_path / "features"))
    pool.write_many((f"{i:03d}.png", picture(i)) for i in range(16))
    spec, calls = spec_of(tmp_path), itertools.count()
    written = threading.Event()

    def run(model: Model, batch: np.ndarray) -> Activations:
        if next(calls):  # the second shard's only batch
            assert written.wait(LONG)
        return model(batch)

    def encode(*given: Any) -> bytes:
        written.set()
        return encode_shard(*given)

    monkeypatch.setattr(inference, "run_model", run)
    monkeypatch.setattr(extractor, "encode_shard", encode)
    both = Extractor(Extraction(spec, spec.pool, spec.features(), features))
    both.prepare()
    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(both.extract, plan_shards(pool, "images", 8).shards))
    assert [report.num_examples for report in reports] == [8, 8]


@pytest.mark.parametrize("readers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_a_batch_is_waited_for_once_the_next_has_begun_and_its_memory_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: int
) -> None:
    """As on a GPU, which has its own copy of a batch that has begun: here, the memory is spoilt after."""
    open_store(str(tmp_path / "pool")).write_many((f"{i:03d}.png", picture(i)) for i in range(60))
    spec, order = spec_of(tmp_path), list[str]()
    extract(spec, tmp_path)

    def start(feed: Feed, batch: Batch) -> Running:
        order.append(f"begin {len(order) - order.count('end')}")
        copied = batch.inputs.copy()
        batch.inputs[:] = np.nan

        def finish() -> tuple[Activations, float]:
            order.append("end")
            return feed.model(copied), 0.25

        return finish

    monkeypatch.setattr(Feed, "start", start)
    (tmp_path / "features-0").rename(tmp_path / "features")
    report = extract(spec, tmp_path, readers)
    written = [(tmp_path / name / "part-000000.parquet").read_bytes() for name in ("features", f"features-{readers}")]
    assert written[0] == written[1]
    assert order[:4] == ["begin 0", "begin 1", "end", "begin 2"]
    assert order[-2:] == ["end", "end"]
    assert report.spent is not None
    assert report.spent.computing == 2.0  # eight batches


def test_a_batch_for_which_memory_is_short_runs_in_halves(caplog: pytest.LogCaptureFixture) -> None:
    given, most = list[int](), 3

    def run(batch: np.ndarray) -> Activations:
        given.append(len(batch))
        if len(batch) > most:
            raise MemoryError("CUDA out of memory")
        return Activations(batch, 2 * batch, (batch[:, :1],))

    batch = np.arange(20, dtype=np.float32).reshape(10, 2)
    found = run_that_fits(run, batch)
    assert given == [10, 5, 2, 3, 5, 2, 3]
    np.testing.assert_array_equal(found.hidden, batch)
    np.testing.assert_array_equal(found.output, 2 * batch)
    np.testing.assert_array_equal(found.layers[0], batch[:, :1])
    assert "the batch of 10 runs in halves: lower extract.batch_size" in caplog.text
    most = 0  # not even for one
    with pytest.raises(MemoryError):
        run_that_fits(run, batch)
