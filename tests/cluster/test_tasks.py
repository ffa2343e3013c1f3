"""Tasks on a real Ray: results by item, workers that die, unchanged errors of the function."""

import os
from pathlib import Path

import pytest

from opacc_ray.cluster import tasks
from opacc_ray.errors import DataError

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_task_whose_worker_dies_is_retried(tmp_path: Path) -> None:
    item = str(tmp_path / "seen")
    assert list(tasks.map_tasks(_die_once, [item])) == [(item, "done")]


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


def _die_once(path: str) -> str:
    if not os.path.exists(path):
        Path(path).touch()
        os._exit(1)
    return "done"


def _refuse(item: str) -> None:
    raise DataError(f"{item} cannot be used")
