"""Later versions read what version 0.2.0 wrote, and continue from there."""

import json
from pathlib import Path
from typing import Any

import pytest
from golden_run import EXPECTED, copy_golden_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.status import status
from opacc_ray.audit.verify import verify
from opacc_ray.cli.document_kinds import kinds
from opacc_ray.runs.run import Run

STATED = json.loads(EXPECTED.read_text())
TRACKS = [None, "second"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(str(copy_golden_run(tmp_path)))


@pytest.mark.parametrize("track", TRACKS)
def test_golden_run_gives_the_same_estimate(run: Run, track: str | None) -> None:
    found = accuracy.estimate(run.along(track)).to_dict()
    expected = STATED["estimate"][track or ""]
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("track", TRACKS)
def test_golden_run_draws_the_same_next_round(run: Run, track: str | None) -> None:
    chosen = verbs.next_round(run.along(track), 10)
    assert list(chosen.ids) == STATED["next"][track or ""]


def test_golden_run_has_a_status(run: Run) -> None:
    found = status(run)
    assert (found.waits_for, len(found.rounds), len(found.others)) == ("nothing", 2, 1)
    assert [item.labelled for item in found.rounds] == [30, 20]
    assert found.predicted is not None
    assert found.predicted.examples == 120


def test_golden_run_is_sound(run: Run) -> None:
    found = verify(run.uri)
    assert found.faults == []
    assert found.checked > 20


# -- documents -------------------------------------------------------------------------------------------------

KINDS = {kind.model_fields["format"].default: kind for kind in kinds()}
DOCUMENTS = {json.loads(path.read_bytes()).get("format"): path for path in EXPECTED.parent.glob("*.json")}
DOCUMENTS.pop(None)  # expected.json


def test_every_kind_of_document_has_a_golden_one() -> None:
    """`PYTHONPATH=tests python -m golden_documents` writes them; add the file of a new kind, and leave the others."""
    assert DOCUMENTS.keys() == KINDS.keys()


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_golden_document_keeps_its_meaning(name: str) -> None:
    """Later versions may add keys, and change none."""
    old = json.loads(DOCUMENTS[name].read_bytes())
    read = KINDS[name].from_dict(old, DOCUMENTS[name].name).to_dict()
    assert changed(old, read) == []


def test_a_key_that_changed_is_found() -> None:
    assert changed({"a": [{"b": 1}]}, {"a": [{"b": 1, "new": None}], "more": 0}) == []
    assert changed({"a": [{"b": 1}], "c": 2}, {"a": [{"b": 2}]}) == [".a[0].b", ".c"]


def changed(old: Any, new: Any, place: str = "") -> list[str]:
    """Return the places of an old document whose values a new one lacks or changes; digests of itself aside."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in old if (place, key) != ("", "sha256")]
        return [found for key in keys for found in changed(old[key], new.get(key, ...), f"{place}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [found for i, pair in pairs for found in changed(*pair, f"{place}[{i}]")]
    return [] if old == new else [place]
