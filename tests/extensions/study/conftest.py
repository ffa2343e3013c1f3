"""The cases that several modules study, and where they are studied."""

from pathlib import Path

import numpy as np
import pytest
from small_study import arrays, run_here

from opacc_ray.extensions.study import experiment


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a case that has all features, and one with a table of numbers only. Not to be changed."""
    folder = tmp_path_factory.mktemp("cases")
    full = arrays()
    np.savez(folder / "full.npz", **full)
    words = np.where(full["correct"], "Pass", "Fail")
    rows = [f"{i},{word},{c!r}\r\n" for i, (word, c) in enumerate(zip(words, full["confidence"].tolist(), strict=True))]
    text = "ID,Outcome(Pass/Fail),CONFIDENCE\r\n" + "".join(rows)
    (folder / "table.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    return folder


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run blocks in this process instead of on Ray."""
    monkeypatch.setattr(experiment, "_run", run_here)
