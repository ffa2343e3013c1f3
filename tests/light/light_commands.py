"""What users of the light install do; prints JSON: the commands that work, the page, and what others answer.

PYTHONPATH=tests/light:tests:. python -m light_commands  # in an empty folder
"""

import io
import json
import os
import signal
import threading
import urllib.request
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from journeys.journeys import csv_journey, run_command

from opacc_ray.cli.main import main
from opacc_ray.labels.web_app import serve
from opacc_ray.runs.run import Run

HOME = Path.cwd()


def run_of(file: str, *options: str) -> Run:
    """Audit a file; return its run."""
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["run", file, "--budget", "20", "--json", *options]) == 0
    return Run.open(json.loads(printed.getvalue())["run"])


def status_of_page(run: Run) -> list[int]:
    """Serve the labelling page of a run, and open it once."""
    found = []

    def fetch(url: str) -> None:
        try:
            with urllib.request.urlopen(url, timeout=300) as answer:
                found.append(answer.status)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    serve(run, "127.0.0.1", 0, lambda url: threading.Timer(0.5, fetch, [url]).start())
    return found


def refused(*arguments: str) -> tuple[int, str]:
    """Return the exit code of a command and what it prints."""
    with redirect_stderr(io.StringIO()) as printed, redirect_stdout(printed):
        code = main([*arguments])
    return code, printed.getvalue()


def write_spec(kind: str, **changes: object) -> str:
    """Write a spec with a pool of this format and a model; return its file."""
    spec = {
        "name": kind,
        "pool": {"uri": "pictures", "format": kind} | ({} if kind == "images" else {"columns": {"image": "image"}}),
        "model": {"factory": "small_model:network", "weights": "net.pt"},
        "sample": {"method": "srs", "budget": 2},
        "output": "audits",
    }
    Path(f"{kind}.yaml").write_text(yaml.safe_dump(spec | changes))
    return f"{kind}.yaml"


def write_pools() -> None:
    """Write 40 rows with a place for annotators, the same with pictures, and a folder of broken pictures."""
    ids, rng = [f"{row:02d}.png" for row in range(40)], np.random.default_rng(0)
    rows = {"id": ids, "prediction": rng.integers(0, 2, 40), "confidence": rng.random(40), "shelf": ids}
    pq.write_table(pa.table(rows), "rows.parquet")
    Path("pictures").mkdir()
    for name in ids:
        Path("pictures", name).write_bytes(b"none")
    pq.write_table(pa.table(rows | {"uri": [str(HOME / "pictures" / name) for name in ids]}), "pictures.parquet")
    Path("net.pt").write_bytes(b"none")
    np.savez("case.npz", prediction=rows["prediction"], confidence=rows["confidence"], label=rng.integers(0, 2, 40))


def work() -> dict[str, object]:
    worked = [step.command for step in csv_journey(HOME, run_command)]
    audited = str(next(Path("audits").glob("*/spec.json")).parent)
    write_pools()
    page = status_of_page(run_of("rows.parquet", "--show", "shelf"))
    images = write_spec("images")
    with_pictures = run_of("pictures.parquet")
    commands = {
        "run": ("run", images),
        "audit": ("audit", images, "--no-browser"),
        "check": ("check", images),
        "submit": ("submit", images, "--address", "http://127.0.0.1:1"),
        "demo": ("demo", "--folder", "demo"),
        "study": ("study", "case.npz", "--method", "srs", "--budget", "10", "--repetitions", "2"),
        "drift": ("drift", "pictures", "--kind", "blur", "--out", "drifted"),
        "label": ("label", with_pictures.uri, "--port", "0"),
        "delta": ("run", write_spec("delta")),
        "iceberg": ("run", write_spec("iceberg")),
        "lance": ("run", write_spec("lance")),
        "mlflow": ("mlflow", audited),
        "metrics": ("metrics", "audits"),
        "sign": ("evidence", "sign", audited, "--as", "me", "--role", "auditor", "--key", "key.pem"),
    }
    return {"worked": worked, "page": page, "refused": {name: refused(*own) for name, own in commands.items()}}


if __name__ == "__main__":
    print(json.dumps(work()))
