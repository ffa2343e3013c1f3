"""``opacc demo``: a whole audit on real handwritten digits, in less than a minute, with nothing to configure.

A team trained a small network on clean digits. In the field, scans are rotated, shifted, faded and noisy. How
accurate is the network there? The demo plays all parts: the team that trains, the field that fills a bucket of a real
S3 server with images, the audit that reads them on two Ray actors and chooses 100 to label in two rounds, and the
annotator. The true labels are kept aside and only looked at for the chosen examples, and at the end to show the truth.
CES and a simple random sample choose from the same features, for comparison.
"""

import contextlib
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import numpy as np

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.progress import Progress
from opacc_ray.cluster import local
from opacc_ray.demo.documents import DemoResult
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.estimators.intervals import clipped
from opacc_ray.labels import label_actions
from opacc_ray.lake.store_uris import open_store, read_uri
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import AccuracyEstimate, StatedEstimate
from opacc_ray.runs.run import Run
from opacc_ray.samplers.estimate import estimate
from opacc_ray.samplers.select import select
from opacc_ray.spec import load_spec

log = logging.getLogger(__name__)

SEED = 0
POOL_SIZE = 6000
BUDGETS = (40, 60)
"""Labels of the two rounds."""

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
sample: {{method: neyman, budget: {budget}}}
output: s3://audits/
"""


def run_demo(folder: Path | None = None) -> tuple[DemoResult, str]:
    """Run the demo; everything it makes stays in ``folder``.

    Returns
    -------
    (DemoResult, str)
        The result for machines and for people: what three methods say, and the truth.
    """
    begun = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="opacc-demo-")) if folder is None else folder.absolute()
    home.mkdir(parents=True, exist_ok=True)
    with LocalS3(home / "s3") as server, _environment(server.environment()), local.ahead():
        log.info("a real S3 server at %s keeps its buckets in %s", server.endpoint, server.folder)
        server.create_bucket("field")
        server.create_bucket("audits")
        local.begin()  # its workers are to know the server
        truth = _fill_bucket()
        run, estimate = _audit(home, truth)
        compared = _compare(run, truth)
    result = DemoResult(
        run=run.uri,
        folder=str(home),
        seconds=round(time.monotonic() - begun, 1),
        estimate=estimate,
        **compared,
    )
    return result, _table(result, home)


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


def _audit(home: Path, truth: dict[str, int]) -> tuple[Run, AccuracyEstimate]:
    """What a user does: write a spec, run it, have the examples labelled, draw again, and estimate."""
    spec_path = home / "spec.yaml"
    digest = hashlib.sha256(read_uri(WEIGHTS)).hexdigest()
    spec_path.write_text(SPEC.format(seed=SEED, budget=BUDGETS[0], weights=WEIGHTS, sha256=digest))
    with Progress("extract", "shards") as extracting:
        run = verbs.run(load_spec(spec_path), extracting)
    _label(run, 1, home, truth)
    for number, budget in enumerate(BUDGETS[1:], start=2):
        verbs.next_round(run, budget)
        _label(run, number, home, truth)
    return run, accuracy.estimate(run)


def _label(run: Run, number: int, home: Path, truth: dict[str, int]) -> None:
    """What the annotator does: fill in the labels of a round, and send them back."""
    chosen = run.read_selection(number).ids
    returned = home / f"labels-{number}.csv"
    returned.write_text("id,label\n" + "".join(f"{name},{truth[name]}\n" for name in chosen))
    log.info("round %d: the annotator labels the %d chosen scans", number, len(chosen))
    label_actions.import_labels(run, returned.name, returned.read_bytes())


class _Compared(TypedDict):
    true_accuracy: float
    ces: StatedEstimate
    srs: StatedEstimate


def _compare(run: Run, truth: dict[str, int]) -> _Compared:
    """The true accuracy, which nobody knows in the field, and what other methods state of as many labels."""
    with feature_store.open_view(run, ["prediction", "hidden"]) as view:
        predicted = view.column("prediction")
        names = view.identify(np.arange(view.size))
        others = [select(view, method, sum(BUDGETS), SEED) for method in ("ces", "srs")]
    correct = (predicted == np.array([truth[name] for name in names])).astype(np.float64)  # (N,)
    ces, srs = (estimate(other, correct[other.index]).to_dict() for other in others)
    return {"true_accuracy": float(correct.mean()), "ces": StatedEstimate(**ces), "srs": StatedEstimate(**srs)}


def _table(result: DemoResult, home: Path) -> str:
    """The result for people."""
    rows = {f"neyman, {len(BUDGETS)} rounds": result.estimate, "ces": result.ces, "srs": result.srs}
    return "\n".join(
        [
            f"accuracy in the field, from {sum(BUDGETS)} labels of {result.estimate.pool_size} scans",
            "  method             estimate   95% interval       width    truth",
            *(_row(name, stated, result.true_accuracy) for name, stated in rows.items()),
            "the truth was kept aside: nobody knows it in the field; † not design-based, but the interval of SRS",
            f"run        {home / 's3' / result.run.removeprefix('s3://')}",
            f"spec       {home / 'spec.yaml'}",
            f"labels     {home / 'labels-1.csv'}, one file per round",
            f"took       {result.seconds:.0f} s",
        ]
    )


def _row(name: str, stated: StatedEstimate, truth: float) -> str:
    width = stated.high - stated.low
    name = name if stated.design_based else f"{name} †"
    return f"  {name:<17}  {clipped(stated):8.4f}   {stated.low:.4f} to {stated.high:.4f}   {width:.4f}   {truth:.4f}"


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
