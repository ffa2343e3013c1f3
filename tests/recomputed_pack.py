"""The verifier of `opacc evidence pack`, run in this process on a pack of a run."""

import io
import runpy
import sys
from contextlib import redirect_stdout
from importlib import resources
from pathlib import Path

import pytest

from opacc_ray.audit.evidence_pack import VERIFIER, pack
from opacc_ray.runs.run import Run


def recomputed(run: Run, home: Path) -> str:
    """Return what the verifier says of the pack of a run: every number is recomputed, and agrees."""
    pack(run, str(home / "evidence.zip"))
    code, text = verify_pack(home / "evidence.zip")
    assert (code, text.splitlines()[-1]) == (0, "everything else agrees"), text
    others = [line for line in text.splitlines() if "stated, not recomputed" in line]
    assert all(line.endswith("earlier estimates of the log") for line in others), text
    return text


def verify_pack(file: Path, *keys: str) -> tuple[int, str]:
    folder, said = str(resources.files("opacc_ray.audit")), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.syspath_prepend(folder)
        patch.setattr(sys, "argv", ["verify.py", str(file), *keys])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(Path(folder, VERIFIER["verify.py"])), run_name="__main__")
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.getvalue()
