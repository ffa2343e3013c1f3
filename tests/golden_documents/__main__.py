"""``PYTHONPATH=tests python -m golden_documents``: write the golden run anew with the code of today."""

import contextlib
import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import golden_run
import pyarrow as pa
import pyarrow.parquet as pq
from golden_run import CLASSES, CONFIDENCE, EXPECTED, HIDDEN, HOME, IDS, PREDICTION

from opacc_ray.cli.main import main
from opacc_ray.runs.run import Run

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
    if code not in (0, 7, 8, 9):
        raise SystemExit(f"opacc {' '.join(arguments)} ended with {code}: {out.getvalue()}")
    found: dict[str, Any] = json.loads(out.getvalue().splitlines()[-1])
    return found


# -- a run of features -----------------------------------------------------------------------------------------


def write_run(folder: Path) -> Path:
    """Write a pool of features and audit it: two rounds with labels, and an estimate."""
    pool = folder / "pool"
    pool.mkdir(parents=True)
    columns = {"id": IDS, "predicted": PREDICTION, "confidence": CONFIDENCE, "hidden": list(HIDDEN)}
    pq.write_table(pa.table(columns), pool / "rows.parquet", row_group_size=40)
    run = opacc("run", write_spec(folder))["run"]
    label(run, folder)
    opacc("next", run, "--budget", "20", "--until", "0.02")
    label(run, folder)
    opacc("estimate", run)
    return Path(run)


def write_spec(folder: Path, **changes: Any) -> str:
    """Write the spec of the golden run with some changes; returns its path."""
    spec = SPEC | {"pool": SPEC["pool"] | {"uri": str(folder / "pool")}, "output": str(folder / "runs")} | changes
    path = folder / f"{spec['name']}.yaml"
    path.write_text(json.dumps(spec))
    return str(path)


def label(run: str, folder: Path) -> None:
    """Answer all that is chosen and has no label."""
    golden_run.write_labels(folder / "labels.csv", chosen(Path(run)))
    opacc("labels", "import", run, str(folder / "labels.csv"))


def chosen(run: Path) -> list[str]:
    """Return the ids of the newest round."""
    found = Run.open(str(run))
    return list(found.read_selection(found.rounds()[-1]).ids)


def state_next(run: Path) -> dict[str, Any]:
    """Return what the run states and draws next."""
    stated = opacc("estimate", str(run))
    opacc("next", str(run), "--budget", "10")
    kept = ("n", "value", "low", "high", "standard_error")
    return {"estimate": {key: stated[key] for key in kept}, "next": chosen(run)}


def write_all() -> None:
    """Put a new run in the place of the golden one."""
    with tempfile.TemporaryDirectory(prefix="opacc-") as place:
        run = write_run(Path(place))
        shutil.rmtree(HOME, ignore_errors=True)
        shutil.copytree(run, HOME / run.name, ignore=shutil.ignore_patterns("derived"))
        EXPECTED.write_text(json.dumps(state_next(run), indent=1) + "\n")


if __name__ == "__main__":
    write_all()
