"""Files of selections: saved and loaded without loss, and refused where they contradict themselves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opacc_ray.designs.draw_probability import HansenHurwitz
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.errors import DataError, SpecError
from opacc_ray.selection import Selection

SRS = Selection("srs", {"replacement": False}, 7, 50, np.array([4, 0, 9]), ("e", "a", "j"), SimpleRandom(3, 50, False))
SUPS = Selection(
    "sups", {}, 7, 50, np.array([4, 0, 4]), ("e", "a", "e"), HansenHurwitz(np.array([0.1, 0.2, 0.1]), 50, 0.01), 2
)


def test_restricts_to_labelled_examples() -> None:
    part = SUPS.restrict(np.array([True, False, True]))
    assert (part.index.tolist(), part.ids, part.round) == ([4, 4], ("e", "e"), 2)
    assert part.design.columns()["draw_probability"].tolist() == [0.1, 0.1]


def test_a_name_of_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"selection\.parquet: a selection is saved as JSON"):
        SRS.save(tmp_path / "selection.parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "opacc-selection/9"}, "has format 'opacc-selection/9'; this version reads"),
        ({"index": [4, 0]}, "index lists 2 examples and ids 3"),
        ({"index": [4, 0, 50]}, "index 50 is outside of its pool of 50 examples"),
        ({"index": [4, 0, -1]}, "index -1 is outside"),
        ({"index": [4, 0, 4]}, "index 4 occurs twice, and its design draws no example twice"),
        ({"index": [4, 0, 1.5]}, "index 1.5 is not a whole number"),
        ({"index": "400"}, "index is '400', and must be of type list"),
        ({"ids": ["e", "a", "a"]}, "index names 3 examples and ids 2"),
        ({"ids": ["e", "a", 7]}, "id 7 is not text"),
        ({"design": SimpleRandom(4, 50, False).to_json()}, "index lists 3 examples and its design 4"),
        ({"design": None}, "design is None, and must be of type dict"),
        ({"pool_size": True}, "pool_size is True, and must be of type int"),
        ({"seed": "7"}, "seed is '7', and must be of type int"),
        ({"method": 3}, "method is 3, and must be of type str"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_text(json.dumps(SRS.to_dict() | change))
    with pytest.raises(DataError, match=f"^{path}:? {message}"):
        Selection.load(path)


def test_a_file_that_lacks_an_entry_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    for name in SRS.to_dict().keys() - {"format"}:
        path.write_text(json.dumps({key: item for key, item in SRS.to_dict().items() if key != name}))
        with pytest.raises(DataError, match=f"{name} is None"):
            Selection.load(path)


@pytest.mark.parametrize("content", ["[]", "3", "id,label"])
def test_what_is_no_selection_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "selection.json").write_text(content)
    with pytest.raises(DataError, match=r"selection\.json (has format None|is not the JSON)"):
        Selection.load(tmp_path / "selection.json")
