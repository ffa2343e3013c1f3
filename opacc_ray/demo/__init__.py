"""``opacc demo``: a whole audit on real handwritten digits, in about a minute, with nothing to configure.

A team trained a small network on clean digits. In the field, scans are rotated, shifted, faded and noisy. How
accurate is the network there? The demo plays all parts: the team that trains, the field that fills a bucket of a real
S3 server with images, the audit that reads them on two Ray actors and chooses 100 to label, and the annotator. The
true labels are kept aside and only looked at for those 100, and at the end to tell the truth.
"""

import contextlib
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from opacc_ray.audit import feature_store, labelled_rounds, results, steps
from opacc_ray.audit.progress import Progress
from opacc_ray.audit.run import Run
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.estimators.estimate import estimate
from opacc_ray.lake.storage import open_store, read_uri
from opacc_ray.samplers import select
from opacc_ray.spec import load_spec

log = logging.getLogger(__name__)

SEED = 7
POOL_SIZE = 6000
BUDGET = 100
WEIGHTS = "s3://field/models/digits.safetensors"

SPEC = """\
name: digits
seed: {seed}
pool: {{uri: s3://field/scans/, format: images}}
model:
  factory: "opacc_ray.demo.model:digits_cnn"
  weights: {weights}
  sha256: {sha256}
extract: {{shard_size: 500, actors: 2}}
sample: {{method: ces, budget: {budget}}}
output: s3://audits/
"""


def run_demo(folder: Path | None = None) -> tuple[dict[str, Any], str]:
    """Run the demo; everything it makes stays in ``folder``.

    Returns
    -------
    (dict, str)
        The result for machines and for people: estimate, interval, truth, and what SRS would have given.
    """
    begun = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="opacc-demo-")) if folder is None else folder.absolute()
    home.mkdir(parents=True, exist_ok=True)
    with LocalS3(home / "s3") as server, _environment(server.environment()):
        log.info("a real S3 server at %s keeps its buckets in %s", server.endpoint, server.folder)
        server.create_bucket("field")
        server.create_bucket("audits")
        truth = _fill_bucket()
        run, estimate = _audit(home, truth)
        compared = _compare(run, truth)
    result = {"estimate": estimate, **compared, "run": run.uri, "folder": str(home)}
    result["seconds"] = round(time.monotonic() - begun, 1)
    return result, _tell(result, home)


def _fill_bucket() -> dict[str, int]:
    """Train the model, upload it with the field's scans; returns the true label of each scan."""
    from opacc_ray.demo import digits, model  # scikit-learn and torch

    images, labels = digits.load()
    first, second = digits.halves(labels, SEED)
    log.info("training a small CNN on %d clean digits", len(first))
    weights = model.to_bytes(model.train(images[first], labels[first], SEED))
    scans, truth = digits.field_pool(images[second], labels[second], POOL_SIZE, SEED)
    log.info("uploading the model and %d field scans as PNG", len(scans))
    field = open_store("s3://field")
    field.write("models/digits.safetensors", weights)
    keys = [digits.key(i) for i in range(len(scans))]
    field.write_many((f"scans/{key}", digits.png_bytes(scan)) for key, scan in zip(keys, scans, strict=True))
    return {key: int(label) for key, label in zip(keys, truth, strict=True)}


def _audit(home: Path, truth: dict[str, int]) -> tuple[Run, dict[str, Any]]:
    """What a user does: write a spec, run it, have the examples labelled, estimate."""
    spec_path, returned = home / "spec.yaml", home / "labels.csv"
    digest = hashlib.sha256(read_uri(WEIGHTS)).hexdigest()
    spec_path.write_text(SPEC.format(seed=SEED, budget=BUDGET, weights=WEIGHTS, sha256=digest))
    run = steps.run(load_spec(spec_path), Progress("extract", "shards"))
    chosen = run.read_selection(1).ids
    returned.write_text("id,label\n" + "".join(f"{name},{truth[name]}\n" for name in chosen))
    log.info("the annotator labels the %d chosen scans", len(chosen))
    labelled_rounds.import_labels(run, returned.name, returned.read_bytes())
    return run, results.estimate(run)


def _compare(run: Run, truth: dict[str, int]) -> dict[str, Any]:
    """The true accuracy, which nobody knows in the field, and what a simple random sample would have said."""
    with feature_store.open_view(run, ["prediction"]) as view:
        predicted = view.column("prediction")
        names = view.identify(np.arange(view.size))
        plain = select.select(view, "srs", BUDGET, SEED)
    correct = predicted == np.array([truth[name] for name in names])  # (N,)
    return {
        "true_accuracy": float(correct.mean()),
        "srs": estimate(plain, correct[plain.index].astype(np.float64)).to_dict(),
    }


def _tell(result: dict[str, Any], home: Path) -> str:
    mine, plain = result["estimate"], result["srs"]
    return "\n".join(
        [
            f"accuracy in the field, from {mine['n']} labels of {mine['pool_size']} scans",
            f"  estimated by CES   {mine['value']:.4f}   95% interval {mine['low']:.4f} to {mine['high']:.4f}",
            f"  estimated by SRS   {plain['value']:.4f}   95% interval {plain['low']:.4f} to {plain['high']:.4f}",
            f"  true               {result['true_accuracy']:.4f}   (kept aside; nobody knows it in the field)",
            f"run        {home / 's3' / result['run'].removeprefix('s3://')}",
            f"spec       {home / 'spec.yaml'}",
            f"labels     {home / 'labels.csv'}",
            f"took       {result['seconds']:.0f} s",
        ]
    )


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
