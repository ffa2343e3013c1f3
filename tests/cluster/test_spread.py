"""Calls that are spread over copies of an object in actors."""

import os
import time
from functools import partial
from pathlib import Path

import pytest

from opacc_ray.cluster.session import connected
from opacc_ray.errors import DataError
from opacc_ray.spec import ExtractSpec

pytestmark = pytest.mark.processes


class Counter:
    """Adds a number, and refuses one below 0; the copy that first sees 7 dies of it."""

    def __init__(self, folder: str, device: str) -> None:
        self.folder, self.device = folder, device

    def add(self, number: int) -> tuple[str, int, int]:
        time.sleep(0.2)
        if number < 0:
            raise DataError(f"{number} is below 0")
        mark = Path(self.folder, "died")
        if number == 7 and not mark.exists():
            mark.touch()
            os._exit(1)
        return self.device, os.getpid(), number + 1


def test_copies_answer_in_order_restart_when_one_dies_and_pass_errors_on(tmp_path: Path) -> None:
    with connected():
        from opacc_ray.cluster.tasks import spread

        with spread(partial(Counter, str(tmp_path)), ExtractSpec(actors=2), 2) as ask:
            found = ask("add", [3, 7, 5, 6])
            assert [number for _, _, number in found] == [4, 8, 6, 7]
            assert {device for device, _, _ in found} == {"cpu"}
            assert len({process for _, process, _ in found}) >= 2
            with pytest.raises(DataError, match="-1 is below 0"):
                ask("add", [1, -1])
