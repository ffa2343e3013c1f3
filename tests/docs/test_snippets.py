"""The Python of the pages runs as it stands, one block after the other, on a small pool."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opacc_ray as opacc

DOCS = Path(__file__).parents[2] / "docs"
N = 400
RNG = np.random.default_rng(0)
IDS = [f"part {place}" for place in range(N)]
CLASSES = np.array(["fine", "defect", "odd"])
COUNTS = ("intersection", "union", "edits", "words", "right", "frames")
TRUTH = RNG.integers(0, 3, N)


def names_of_a_model(share: float) -> list[str]:
    return CLASSES[np.where(RNG.random(N) < share, TRUTH, (TRUTH + 1) % 3)].tolist()


def prepared() -> dict[str, Any]:
    """What the reader of a page has."""
    right = dict(zip(IDS, RNG.random(N) < 0.8, strict=True))
    truth = dict(zip(IDS, CLASSES[TRUTH].tolist(), strict=True))
    return {
        "opacc": opacc,
        "ids": IDS,
        "names": names_of_a_model(0.8),
        "confidence": RNG.uniform(0.5, 1, N),
        "hidden": RNG.normal(size=(N, 4)),
        "cameras": RNG.choice(["north", "south"], N).tolist(),
        "ages": RNG.integers(10, 70, N),
        "scores": RNG.random(N),
        "verdicts": [None if k % 2 else "right" for k in range(N)],
        "old_scores": RNG.random(50),
        "old_outcomes": (RNG.random(50) < 0.8).astype(float),
        "test_pool": opacc.Pool(confidence=RNG.uniform(0.5, 1, 50), prediction=RNG.integers(0, 3, 50)),
        "test_outcomes": (RNG.random(50) < 0.8).astype(float),
        "counts": {name: dict.fromkeys(COUNTS, 1 + k % 5) for k, name in enumerate(IDS)},
        "pool": opacc.Pool(IDS, confidence=RNG.uniform(0.5, 1, N)),
        "videos": [f"video {k // 10}" for k in range(N)],
        "ask": truth.__getitem__,
        "is_right": right.__getitem__,
        "of_a": names_of_a_model(0.9),
        "of_b": names_of_a_model(0.8),
        "of_c": names_of_a_model(0.7),
    }


def blocks(page: str) -> list[str]:
    """The Python of a page that works on arrays; that on runs needs storage."""
    found = re.findall(r"^```python\n(.+?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in found if re.search(r"opacc\.(select|estimate|discover)\(", block)]


@pytest.mark.parametrize(("page", "number"), [("python.md", 5), ("metrics.md", 5), ("judges.md", 1), ("guide.md", 1)])
def test_snippets_run(page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = (f"{name},{k % 4},{k % 2},{k % 3}\n" for k, name in enumerate(IDS))
    Path("counts.csv").write_text("id,tp,fp,fn\n" + "".join(rows))
    known, found = prepared(), blocks(page)
    assert len(found) == number
    for block in found:
        exec(block, known)
