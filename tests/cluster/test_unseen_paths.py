"""Paths that workers cannot see are refused before extraction starts."""

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_pictures import picture

from opacc_ray.audit import verbs
from opacc_ray.cluster.tasks import refuse_unfit
from opacc_ray.errors import StorageError
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture
def private(tmp_path: Path) -> Iterator[str]:
    """A folder of pictures by a path that this process alone sees."""
    open_store(str(tmp_path)).write_many((f"{i:03d}.png", picture(i)) for i in range(12))
    opened = os.open(tmp_path, os.O_RDONLY)
    descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD, 900)  # a number that no worker has for something else
    yield f"/proc/self/fd/{descriptor}"
    os.close(descriptor)
    os.close(opened)


@pytest.mark.parametrize("key", ["pool", "output"])
def test_path_that_workers_do_not_see_is_refused(spec: Callable[..., dict[str, Any]], private: str, key: str) -> None:
    content = spec(sample={"method": "srs", "budget": 5})
    content |= {"output": private} if key == "output" else {"pool": {"uri": private, "format": "images"}}
    name = "output" if key == "output" else "pool.uri"
    with pytest.raises(
        StorageError, match=rf"^{name}: there is no {private}\S* for the worker on \S+ \([\d.]+\); put it on"
    ):
        verbs.first_round(parse_spec(content, "spec"))


def test_path_that_all_see_is_fine(tmp_path: Path) -> None:
    refuse_unfit({"pool.uri": str(tmp_path)})
    refuse_unfit({})


def test_relative_paths_mean_the_drivers_folder(
    spec: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(str(tmp_path / "pool")).write_many((f"{i:03d}.png", picture(i)) for i in range(12))
    monkeypatch.chdir(tmp_path)
    pool, model = {"uri": "pool", "format": "images"}, {"function": "numpy_model:random"}
    content = spec(pool=pool, model=model, sample={"method": "srs", "budget": 5}, output="runs")
    run = verbs.first_round(parse_spec(content, "spec"))
    assert run.spec.pool.uri == str(tmp_path / "pool")
    assert run.uri.startswith(str(tmp_path / "runs"))
    assert len(Run.open(run.uri).finished_shards()) == 2
