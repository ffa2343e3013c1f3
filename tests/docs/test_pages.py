"""Pages that a command writes are as it would write them now."""

from pathlib import Path

import pytest
import write_pages

from opacc_ray.spec import Spec


@pytest.mark.parametrize("name", write_pages.pages())
def test_page_is_up_to_date(name: str) -> None:
    written = (Path(__file__).parents[2] / "docs" / name).read_text()
    assert written == write_pages.pages()[name], "run `make docs-pages`"


def test_every_key_has_a_meaning() -> None:
    keys = {key.path: key for key in write_pages.keys_of(Spec)}
    assert [path for path, key in keys.items() if not key.meaning] == []
    assert keys["extract.on_bad_item"].type == "error, exclude"
    assert keys["extract.batch_size"].type == "whole number, ≥ 1"
    assert keys["model.classes"].type == "list of text"
    assert (keys["pool.uri"].required, keys["extract.actors"].default) == (True, "auto")
