"""The spot check: the tolerated difference from stored features, and the choice of examples."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.extractor import Extractor
from opacc_ray.extract.feature_set import locate, make_index, write_index
from opacc_ray.extract.shards import read_report
from opacc_ray.extract.trial import Difference, difference
from opacc_ray.lake.examples import BadItem
from opacc_ray.lake.pools import read_examples
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import Spec, parse_spec, plan_pool

pytestmark = pytest.mark.slow

VALUES = np.random.default_rng(2).normal(size=(40, 2)).astype(np.float32) + np.array([5, 0], dtype=np.float32)


def spec_of(home: Path, by: float, shard_size: int = 5, precision: str = "float32", **more: Any) -> Spec:
    content = {
        "name": "spot",
        "pool": {"uri": str(home / "pool"), "format": "npy"},
        "model": {"function": "numpy_model:moved", "arguments": {"by": by} | more},
        "extract": {"batch_size": 4, "shard_size": shard_size, "precision": precision},
        "sample": {"method": "srs", "budget": 6},
        "output": str(home / "audits"),
    }
    return parse_spec(content, "spec")


def found(
    home: Path, values: np.ndarray, by: float, names: tuple[str, ...] = ("output", "prediction"), **more: Any
) -> Difference | None:
    """What a comparison finds of features that were stored when the score was not moved."""
    (home / "pool").mkdir(exist_ok=True)
    np.save(home / "pool" / "a.npy", values)
    stored = {key: value for key, value in more.items() if key != "all"}
    spec, folder = spec_of(home, 0, **stored), open_store(str(home / "features"))
    plan = plan_pool(spec.pool, spec.extract)
    extractor = Extractor(Extraction(spec, spec.pool, names, folder))
    for shard in plan.shards:
        extractor.extract(shard)
    return difference(spec_of(home, by, **more), spec.pool, plan, folder)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("float16", 1e-2), ("bfloat16", 1e-1)])
def test_difference_counts_beyond_the_tolerance_of_the_precision(
    precision: str, tolerance: float, tmp_path: Path
) -> None:
    """Of the spread of the eight that are compared, the first of each of eight shards, and a tenth of their size."""
    values = VALUES.copy()
    values[15, 0] = 7
    looked_at = values[::5].astype(np.float64)
    spread = np.sqrt(np.square(looked_at - looked_at.mean(0)).sum(1).mean())
    allowed = tolerance * (spread + np.sqrt(np.square(looked_at).sum(1).mean()) / 10)
    assert found(tmp_path, values, 0.98 * allowed, precision=precision) is None
    most = found(tmp_path, values, 1.02 * allowed, precision=precision)
    assert (most.id, most.feature, most.tolerance) == ("a.npy:15", "output", tolerance)
    assert most.distance == pytest.approx(1.02 * tolerance, rel=1e-3)


def test_rows_that_a_shard_takes_from_another_file_are_compared(tmp_path: Path) -> None:
    """Those of an earlier listing, whose shards have other numbers."""
    assert found(tmp_path, VALUES, 0.0) is None
    spec, folder = spec_of(tmp_path, 9.0, all=True), open_store(str(tmp_path / "features"))
    plan = plan_pool(spec.pool, spec.extract)
    files = [shard.file for shard in plan.shards]
    write_index(folder, make_index(files, [read_report(folder, file, folder.size(file)) for file in files]))
    later = locate(folder, [shard._replace(number=100 + shard.number) for shard in plan.shards])
    assert all(shard.carried for shard in later)
    most = difference(spec, spec.pool, plan._replace(shards=tuple(later)), folder)
    assert most is not None
    assert most.feature == "output"


@pytest.mark.parametrize(("moved", "differs"), [(2, False), (3, True)])
def test_few_other_classes_are_near_ties(moved: int, differs: bool, tmp_path: Path) -> None:
    """Where nothing but predictions is stored."""
    values = np.tile(np.float32([9, 8]), (8, 1))
    values[:moved] = [7, 6]
    most = found(tmp_path, values, -2.0, names=("prediction",), shard_size=1)
    assert (most is not None) is differs
    assert most is None or str(most) == "example 'a.npy:0' has another prediction than is stored"


def test_example_that_cannot_be_read_any_more_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as by another decoder, where the spec leaves out what cannot be read."""

    def lost(*given: Any) -> Iterator[Any]:
        for item in read_examples(*given):
            yield BadItem(item.id, "it cannot be read") if item.id == "a.npy:15" else item

    assert found(tmp_path, VALUES, 0.0) is None
    monkeypatch.setattr("opacc_ray.extract.trial.read_examples", lost)
    monkeypatch.setattr("opacc_ray.lake.pools.read_examples", lost)
    spec = spec_of(tmp_path, 0)
    spec = spec.model_copy(update={"extract": spec.extract.model_copy(update={"on_bad_item": "exclude"})})
    most = difference(spec, spec.pool, plan_pool(spec.pool, spec.extract), open_store(str(tmp_path / "features")))
    assert str(most) == "example 'a.npy:15' has another output than is stored"


def test_machine_without_torch_keeps_stored_features_and_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A function needs none, and is compared."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert found(tmp_path, VALUES, 9.0, all=True) is not None
    spec = spec_of(tmp_path, 0)
    torch = spec.model.model_copy(update={"function": None, "factory": "small_model:network", "arguments": {}})
    spec = spec.model_copy(update={"model": torch})
    plan = plan_pool(spec.pool, spec.extract)
    assert difference(spec, spec.pool, plan, open_store(str(tmp_path / "features"))) is None
    assert "is not compared with today's outputs of the model: torch is not installed here" in caplog.text
