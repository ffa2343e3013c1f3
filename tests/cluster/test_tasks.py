"""Tasks on a real Ray: results by item, workers that die, unchanged errors of the function."""

import os
from pathlib import Path

import pytest

from opacc_ray.cluster import tasks
from opacc_ray.errors import ClusterError, DataError

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_every_item_is_returned_with_its_result() -> None:
    found = list(tasks.map_tasks(_square, range(7), workers=2))
    assert sorted(found) == [(i, i * i) for i in range(7)]


def test_task_whose_worker_dies_is_retried(tmp_path: Path) -> None:
    item = str(tmp_path / "seen")
    assert list(tasks.map_tasks(_die_once, [item])) == [(item, "done")]


def test_task_whose_worker_always_dies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TASK_RETRIES", 0)
    with pytest.raises(ClusterError, match=r"^x: the worker died"):
        list(tasks.map_tasks(_die, ["x"]))


def test_error_of_the_function_is_unchanged() -> None:
    with pytest.raises(DataError) as caught:
        list(tasks.map_tasks(_refuse, ["y"]))
    assert str(caught.value) == "y cannot be used"


def test_relative_paths_in_a_task_mean_the_folder_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vocabulary").write_text("a b c")
    monkeypatch.chdir(tmp_path)
    assert list(tasks.map_tasks(_read, ["vocabulary"])) == [("vocabulary", "a b c")]


def _read(path: str) -> str:
    return Path(path).read_text()


def _square(item: int) -> int:
    return item * item


def _die_once(path: str) -> str:
    if not os.path.exists(path):
        Path(path).touch()
        os._exit(1)
    return "done"


def _die(item: str) -> None:
    os._exit(1)


def _refuse(item: str) -> None:
    raise DataError(f"{item} cannot be used")
