"""The memory of a draw and an estimate of neyman on a large pool, as docs/scale.md states it."""

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.parts import view as views
from opacc_ray.parts.view import LocalParts, View

NUM_PARTS, SIZE_OF_PART = 12, 25_000


def view_of_parts(size: int = SIZE_OF_PART) -> View:
    rng, parts = np.random.default_rng(0), []
    for _ in range(NUM_PARTS):
        confidence, prediction = 1 - rng.beta(0.3, 4, size), rng.integers(0, 20, size)
        hidden = rng.standard_normal((size, 8), dtype=np.float32)
        parts.append(opacc.Pool(confidence=confidence, prediction=prediction, hidden=hidden))
    return View(LocalParts(parts))


def peak_per_example(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the most bytes that are held at once, beyond what was held before, and the result."""
    tracemalloc.start()
    try:
        result = work()
        return tracemalloc.get_traced_memory()[1] / (NUM_PARTS * SIZE_OF_PART), result
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_neyman_holds_as_many_bytes_of_an_example_as_the_documentation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs/scale.md").read_text()
    stated = re.search(r"\| neyman \| .* \((\d+) with six\)", text)
    assert stated
    opacc.select(view_of_parts(100), "neyman", 60)  # what is imported and compiled at first use
    monkeypatch.setattr(views, "_AT_ONCE", 2 * SIZE_OF_PART)
    monkeypatch.setattr(views, "CODED_FROM", NUM_PARTS * SIZE_OF_PART)
    view = view_of_parts()
    held, drawn = peak_per_example(lambda: opacc.select(view, "neyman", 60, seed=1))
    assert held < int(stated[1])
    view = view_of_parts()
    outcome = np.random.default_rng(1).random(60) < 0.9
    held, _ = peak_per_example(lambda: opacc.estimate(drawn, outcome, pool=view))
    assert held < int(stated[1])
