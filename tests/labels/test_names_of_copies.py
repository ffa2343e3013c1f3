"""Names of copied images: safe in every folder and URL, and the id comes back."""

import re

import pytest
from awkward_ids import random_ids

from opacc_ray.errors import DataError
from opacc_ray.labels.label_rows import id_of_copy, name_of_copy

IDS = [
    id for id in [*random_ids(3000, seed=2), "../../etc/passwd", "..", "~", "~2F", "a~.png", "C:\\x"] if len(id) < 70
]


@pytest.mark.parametrize("is_made", [False, True])
def test_the_id_comes_back(is_made: bool) -> None:
    assert [id_of_copy(name_of_copy(id, is_made=is_made)) for id in IDS] == IDS


def test_no_name_leaves_its_folder_or_is_hidden() -> None:
    for id in IDS:
        assert re.fullmatch(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*", name_of_copy(id) or "x"), id


def test_an_id_that_is_no_name_is_refused() -> None:
    with pytest.raises(DataError, match="is too long for a file name"):
        name_of_copy("é" * 100)
