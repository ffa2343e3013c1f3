"""``PYTHONPATH=tests python -m golden_documents``: write the golden run anew with the code of today."""

import contextlib
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import golden_run
import pyarrow as pa
import pyarrow.parquet as pq
from golden_run import CLASSES, CONFIDENCE, EXPECTED, HIDDEN, HOME, IDS, PREDICTION

from opacc_ray.cli.main import main

SPEC: dict[str, Any] = {
    "name": "golden",
    "seed": 5,
    "pool": {
        "format": "features",
        "columns": {"id": "id", "prediction": "predicted", "confidence": "confidence", "hidden": "hidden"},
    },
    "model": {"classes": CLASSES},
    "extract": {"shard_size": 40},
    "sample": {"method": "css", "budget": 30},
}


def opacc(*arguments: str) -> dict[str, Any]:
    """Run a command; returns the document that it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*arguments, "--json"])
    if code not in (0, 7):
        raise SystemExit(f"opacc {' '.join(arguments)} ended with {code}: {out.getvalue()}")
    found: dict[str, Any] = json.loads(out.getvalue().splitlines()[-1])
    return found


def write_run(folder: Path) -> Path:
    """Write a pool of features and audit it: two rounds with labels, an estimate, and another track."""
    pool = folder / "pool"
    pool.mkdir(parents=True)
    columns = {"id": IDS, "predicted": PREDICTION, "confidence": CONFIDENCE, "hidden": list(HIDDEN)}
    pq.write_table(pa.table(columns), pool / "rows.parquet", row_group_size=40)
    spec = SPEC | {"pool": SPEC["pool"] | {"uri": str(pool)}, "output": str(folder / "runs")}
    (folder / "spec.yaml").write_text(json.dumps(spec))
    run = opacc("run", str(folder / "spec.yaml"))["run"]
    label(run, folder)
    opacc("next", run, "--budget", "20", "--until", "0.02")
    label(run, folder)
    opacc("select", run, "--method", "neyman", "--budget", "25", "--track", "second")
    label(run, folder, "second")
    opacc("estimate", run, "--track", "second")
    opacc("estimate", run)
    return Path(run)


def label(run: str, folder: Path, track: str | None = None) -> None:
    """Answer all that is chosen and has no label."""
    home = Path(run) / "tracks" / track if track else Path(run)
    last = max((home / "rounds").iterdir(), key=lambda path: int(path.name))
    golden_run.write_labels(folder / "labels.csv", json.loads((last / "selection.json").read_text())["ids"])
    opacc("labels", "import", run, str(folder / "labels.csv"), *(["--track", track] if track else []))


def write_golden_run() -> None:
    """Put a new run in the place of the golden one, with what is stated of it next."""
    with tempfile.TemporaryDirectory(prefix="opacc-") as place:
        run = write_run(Path(place))
        shutil.rmtree(HOME, ignore_errors=True)
        shutil.copytree(run, HOME / run.name, ignore=shutil.ignore_patterns("derived"))
        kept = ("n", "value", "low", "high", "standard_error")
        stated = {track or "": opacc("estimate", str(run), *arguments(track)) for track in (None, "second")}
        drawn = {
            track or "": opacc("next", str(run), "--budget", "10", *arguments(track)) and _ids(run, track)
            for track in (None, "second")
        }
        expected = {
            "estimate": {track: {key: own[key] for key in kept} for track, own in stated.items()},
            "next": drawn,
        }
    EXPECTED.write_text(json.dumps(expected, indent=1) + "\n")


def arguments(track: str | None) -> list[str]:
    """Name a track on the command line."""
    return ["--track", track] if track else []


def _ids(run: Path, track: str | None) -> list[str]:
    home = run / "tracks" / track if track else run
    last = max((home / "rounds").iterdir(), key=lambda path: int(path.name))
    found: list[str] = json.loads((last / "selection.json").read_text())["ids"]
    return found


if __name__ == "__main__":
    write_golden_run()
    sys.exit()
