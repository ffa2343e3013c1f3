"""``PYTHONPATH=tests python -m golden_documents``: write the golden run and documents anew with the code of today.

Commands run in this process, on a run of features and on a small fleet. Every document that they write or print is
recorded, and one of each kind is kept. Four kinds that need a cluster, a page or a long demo are made from parts.
"""

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden_run
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import small_fleet
from consistent_edits import make_keys
from extracting_here import extracting_here
from golden_run import CLASSES, CONFIDENCE, EXPECTED, HIDDEN, HOME, IDS, PREDICTION, TRUTH
from small_pictures import picture
from small_study import arrays, labelled, run_here

from opacc_ray.audit.submission import Submission
from opacc_ray.cli.document_kinds import kinds
from opacc_ray.cli.main import main
from opacc_ray.demo.demo_documents import DemoResult
from opacc_ray.documents import Document
from opacc_ray.labels.label_documents import LabelSession
from opacc_ray.runs.estimate_documents import AccuracyEstimate, StatedEstimate
from opacc_ray.runs.run import Run
from opacc_ray.study import experiment

SMALL = 3000
"""Bytes of a document that is preferred; of several small ones the largest is kept."""

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
    "manifest": {"formats": ["csv"]},
}

Recorded = dict[str, list[bytes]]


@contextlib.contextmanager
def recording() -> Iterator[Recorded]:
    """Record every document that is written or printed in the block, by format."""
    found: Recorded = {}
    original = Document.to_dict

    def to_dict(self: Document) -> dict[str, Any]:
        content = original(self)
        if self.format not in found or len(found[self.format]) < 20:
            found.setdefault(self.format, []).append(self)  # type: ignore[arg-type]
        return content

    Document.to_dict = to_dict  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Document.to_dict = original  # type: ignore[method-assign]
        for name, items in found.items():
            found[name] = [item.to_bytes() for item in items]  # type: ignore[attr-defined]


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
    """Write a pool of features and audit it: two rounds with labels, an estimate, and another track."""
    pool = folder / "pool"
    pool.mkdir(parents=True)
    columns = {"id": IDS, "predicted": PREDICTION, "confidence": CONFIDENCE, "hidden": list(HIDDEN)}
    pq.write_table(pa.table(columns), pool / "rows.parquet", row_group_size=40)
    run = opacc("run", write_spec(folder))["run"]
    label(run, folder)
    opacc("next", run, "--budget", "20", "--until", "0.02")
    label(run, folder)
    opacc("select", run, "--method", "neyman", "--budget", "25", "--track", "second")
    label(run, folder, "second")
    opacc("estimate", run, "--track", "second")
    opacc("estimate", run)
    return Path(run)


def write_spec(folder: Path, **changes: Any) -> str:
    """Write the spec of the golden run with some changes; returns its path."""
    spec = SPEC | {"pool": SPEC["pool"] | {"uri": str(folder / "pool")}, "output": str(folder / "runs")} | changes
    path = folder / f"{spec['name']}.yaml"
    path.write_text(json.dumps(spec))
    return str(path)


def label(run: str, folder: Path, track: str | None = None) -> None:
    """Answer all that is chosen and has no label."""
    golden_run.write_labels(folder / "labels.csv", chosen(Path(run), track))
    opacc("labels", "import", run, str(folder / "labels.csv"), *on(track))


def chosen(run: Path, track: str | None) -> list[str]:
    """Return the ids of the newest round."""
    home = run / "tracks" / track if track else run
    last = max((home / "rounds").iterdir(), key=lambda path: int(path.name))
    found: list[str] = json.loads((last / "selection.json").read_text())["ids"]
    return found


def on(track: str | None) -> list[str]:
    """Name a track on the command line."""
    return ["--track", track] if track else []


def state_next(run: Path) -> dict[str, Any]:
    """Return what the run states and draws next, on both tracks."""
    kept, tracks = ("n", "value", "low", "high", "standard_error"), (None, "second")
    stated = {track or "": opacc("estimate", str(run), *on(track)) for track in tracks}
    drawn = {}
    for track in tracks:
        opacc("next", str(run), "--budget", "10", *on(track))
        drawn[track or ""] = chosen(run, track)
    return {"estimate": {track: {key: own[key] for key in kept} for track, own in stated.items()}, "next": drawn}


# -- documents -------------------------------------------------------------------------------------------------


def use_run(run: str, folder: Path) -> None:
    """Run the commands that answer with documents on a run of features."""
    opacc("check", write_spec(folder))
    example = chosen(Path(run), None)[0]
    golden_run.write_labels(folder / "bo.csv", [example])
    opacc("labels", "import", run, str(folder / "bo.csv"), "--annotator", "bo")
    opacc("labels", "correct", run, example, CLASSES[TRUTH[IDS.index(example)]], "--annotator", "ann")
    opacc("labels", "withdraw", run, example)
    for verb in ("list", "agreement"):
        opacc("labels", verb, run)
    opacc("next", run, "--budget", "5", "--close")
    opacc("next", run, "--budget", "5", "--close")
    (folder / "exit.json").touch()
    opacc("run", write_spec(folder, name="other", history=[run], sample={"method": "neyman", "budget": 20}),
          "--exit-file", str(folder / "exit.json"))  # fmt: skip
    other = next(str(path) for path in (folder / "runs").glob("other-*"))
    opacc("evidence", "seal", other, "--metric", "macro_f1", "--as", "ann")
    key, _ = make_keys(folder, "ann")
    opacc("evidence", "sign", other, "--as", "ann", "--role", "auditor", "--key", key)
    opacc("evidence", "pack", other, "--to", str(folder / "evidence.zip"))
    opacc("estimate", run, "--partial")
    opacc("compare", run, other, "--partial")
    opacc("budget", run, "--until", "0.05")
    for command in ("status", "verify", "report", "characterize"):
        opacc(command, run)
    opacc("log", run)
    opacc("export", run, "--case", str(folder / "case.npz"), "--partial")
    opacc("export", run, "--to", str(folder / "tables"))
    opacc("export", run, "--training", str(folder / "training.csv"), "--all")
    opacc("suite", run, str(folder / "suite"))
    opacc("regress", run, str(folder / "suite"))
    np.savez(folder / "study.npz", **arrays())
    opacc("generate", run, "--count", "20")
    experiment._run = run_here  # without Ray
    opacc("study", str(folder / "study.npz"), "--method", "srs", "--budget", "30", "--repetitions", "5",
          "--output", str(folder / "study"))  # fmt: skip
    np.savez(folder / "labelled.npz", **labelled())
    opacc("study", "--as", "characterization", str(folder / "labelled.npz"), "--output", str(folder / "covered"))
    np.savez(folder / "scans.npz", x=np.zeros((6, 8, 8), dtype=np.uint8))
    opacc("drift", str(folder / "scans.npz"), "--kind", "noise", "--out", str(folder / "noisy.npz"))
    opacc("history", "golden", "--output", str(folder / "runs"))
    opacc("methods")
    opacc("spec", "--template")
    opacc("schemas", str(folder / "schemas"))
    opacc("runs", "list", str(folder / "runs"))
    opacc("runs", "remove", other, "--force")
    opacc("runs", "expire", str(folder / "runs"), "--days", "0")


def use_fleet(folder: Path) -> None:
    """Audit a small fleet of pictures, whose runs share features."""
    alerts = {"to": str(folder / "alerts.json"), "min_accuracy": 0.9}
    file = small_fleet.write_fleet(folder, alerts=alerts)
    spec = SPEC | {"name": "plan", "pool": {"uri": str(folder / "shop"), "format": "images"}, "output": str(folder)}
    spec |= {"model": small_fleet.model(folder, "random"), "transform": "small_pictures:to_input"}
    (folder / "plan.yaml").write_text(json.dumps(spec))
    opacc("plan", str(folder / "plan.yaml"))
    opacc("fleet", str(file))
    runs = sorted((folder / "audits").glob("*-*/spec.json"))
    for path in runs:
        small_fleet.label(Run.open(str(path.parent)), wrong=0.5)
    opacc("fleet", str(file), "--alert-to", str(folder / "alerts.json"))
    opacc(
        "alerts", "ack", str(folder / "audits"), "weekly-random-shop", "--as", "ann", "--note", "new weights on Monday"
    )
    opacc("metrics", str(folder / "audits"))
    (folder / "shop" / "new.png").write_bytes(picture(60))
    opacc("fleet", str(file))
    opacc("watch", "weekly-random-shop", "--output", str(folder / "audits"))
    run = str(runs[0].parent)
    opacc("manifest", run, "--to", "csv", "--out", str(folder / "tasks"), "--images", "copies")
    opacc("labels", "export", run, str(folder / "fiftyone"))
    found = opacc("features", "list", str(folder / "audits"))
    opacc("features", "remove", str(folder / "audits"), found["sets"][0]["digest"], "--force")


def make_rest(estimate: AccuracyEstimate) -> list[Document]:
    """Return documents of the kinds that need a cluster, a page or a long demo."""
    stated = StatedEstimate(**{name: getattr(estimate, name) for name in StatedEstimate.model_fields})
    run = "s3://bucket/audits/golden-00000000"
    return [
        LabelSession(run=run, saved=3, done=2, total=4, different=0),
        DemoResult(
            run=run, report="demo/report.html", folder="demo", seconds=9.5, true_accuracy=0.7, estimate=estimate,
            ces=stated, srs=stated,
        ),
        Submission(
            id="golden-00000000", run=run, found=False, status="FAILED", modules=["user.py"], ended="failed",
            exit_code=5, waits_for=None, error="the pool is empty",
        ),
    ]  # fmt: skip


def write_documents(recorded: Recorded) -> None:
    """Write one document of each kind, and name kinds without one."""
    for kind in kinds():
        name = kind.model_fields["format"].default
        data = sorted(set(recorded.get(name, [])), key=lambda item: (len(item) > SMALL, abs(len(item) - SMALL)))
        if data:
            content = json.loads(data[0])
            (HOME.parent / f"{name.partition('/')[0].removeprefix('opacc-')}.json").write_text(
                json.dumps(content, ensure_ascii=False) + "\n"
            )
        else:
            print(f"no document of {name}")


def write_all() -> None:
    """Put new files in the place of the golden ones."""
    with tempfile.TemporaryDirectory(prefix="opacc-") as place, recording() as recorded, extracting_here():
        run = write_run(Path(place))
        shutil.rmtree(HOME, ignore_errors=True)
        shutil.copytree(run, HOME / run.name, ignore=shutil.ignore_patterns("derived"))
        estimate = AccuracyEstimate.from_bytes((run / "estimate.json").read_bytes(), "estimate.json")
        EXPECTED.write_text(json.dumps(state_next(run), indent=1) + "\n")
        use_run(str(run), Path(place))
        (Path(place) / "fleet").mkdir()
        use_fleet(Path(place) / "fleet")
        for document in make_rest(estimate):
            document.to_bytes()
    write_documents(recorded)


if __name__ == "__main__":
    write_all()
