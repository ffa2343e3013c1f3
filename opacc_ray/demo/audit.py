"""``opacc demo``: a whole audit on handwritten digits, with nothing to configure.

A small network was trained on clean digits. In operation, scans are rotated, shifted, faded and noisy. How accurate is
the network on them? The demo plays all parts: it trains the network, writes the scans to a folder (or to a bucket of a
local S3 server), extracts features with two Ray actors, chooses 100 scans to label in two rounds, labels them, and
writes the report. With ``opacc demo --label`` you label ten more scans on the labelling page. The true labels are used
only for the chosen scans, and at the end to show the true accuracy. CES and a simple random sample use the same
features, for comparison.
"""

import contextlib
import hashlib
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.guided import GoOn
from opacc_ray.audit.progress import Progress
from opacc_ray.cluster import local
from opacc_ray.demo.demo_documents import DemoResult
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.estimators.intervals import clipped
from opacc_ray.labels import label_actions
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.decode import encode_png
from opacc_ray.lake.store_uris import open_store, read_uri
from opacc_ray.report.facts import ends, percent
from opacc_ray.report.run_report import make_report
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import StatedEstimate
from opacc_ray.runs.run import Run
from opacc_ray.samplers.estimate import estimate
from opacc_ray.samplers.select import select
from opacc_ray.spec import load_spec

log = logging.getLogger(__name__)

SEED = 0
POOL_SIZE = 3000
BUDGETS = (40, 60)  # labels of the two rounds
OWN_LABELS = 10  # scans that the user labels, if asked to
HOME = "opacc-demo"

WEIGHTS = "models/digits.safetensors"

SPEC = """\
name: digits
seed: {seed}
goal: 85 %
pool: {{uri: "{field}/scans/", format: images}}
model:
  factory: "opacc_ray.demo.model:digits_cnn"
  weights: "{weights}"
  sha256: {sha256}
extract: {{shard_size: 500, actors: 2}}
sample: {{method: neyman, budget: {budget}}}
output: "{audits}/"
"""


def run_demo(
    folder: Path | None = None, *, s3: bool = False, ask: Callable[[Run, GoOn], object] | None = None
) -> tuple[DemoResult, str]:
    """Run the demo and leave all its files in ``folder``; return the result for machines, and for people.

    Parameters
    ----------
    folder : default: a new one here, opacc-demo
    s3 : keep pool and run in buckets of a local S3 server, which ends with the demo
    ask : has the user label a further round of ten scans; None: there is none
    """
    begun = time.monotonic()
    home = _free(Path(HOME)) if folder is None else folder.absolute()
    home.mkdir(parents=True, exist_ok=True)
    with _storage(home, s3) as (field, audits), local.ahead():
        local.begin()  # after the environment is set: its workers inherit it
        truth = _fill(field)
        run = _audit(home, field, audits, truth)
        agreed = None if ask is None else _ask(run, ask, truth)
        estimate = accuracy.estimate(run, partial=True)
        true_accuracy, ces, srs = _compare(run, truth)
        log.info("writing the report")
        make_report(run, str(home))
    result = DemoResult(
        run=run.uri,
        report=str(home / "report.html"),
        folder=str(home),
        seconds=round(time.monotonic() - begun, 1),
        true_accuracy=true_accuracy,
        agreed=agreed,
        estimate=estimate,
        ces=ces,
        srs=srs,
    )
    return result, _table(result, s3)


def _free(path: Path) -> Path:
    """Return the path, or with the first number at its end that is not taken."""
    others = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(one for one in itertools.chain([path], others) if not one.exists()).absolute()


def _ask(run: Run, ask: Callable[[Run, GoOn], object], truth: dict[str, int]) -> int:
    """Have the user label a further round; return how many of the labels are true. Missing ones are given up."""
    chosen = verbs.next_round(run, OWN_LABELS).ids
    log.info("your turn: label %d scans; the keys 0 to 9 are the digits", OWN_LABELS)
    ask(run, lambda: False)
    last = read_rounds(run)[-1]
    if last.missing:
        verbs.close(run)
    given = dict(zip(last.known.ids, last.truth, strict=True))
    return sum(given.get(name) == str(truth[name]) for name in chosen)


@contextlib.contextmanager
def _storage(home: Path, s3: bool) -> Iterator[tuple[str, str]]:
    if not s3:
        log.info("all files are in %s", home)
        yield str(home / "field"), str(home / "audits")
        return
    with LocalS3(home / "s3") as server:
        log.info("a local S3 server at %s keeps its buckets in %s", server.endpoint, server.folder)
        own = server.environment()
        before = {name: os.environ[name] for name in own if name in os.environ}
        os.environ |= own
        try:
            yield server.create_bucket("field"), server.create_bucket("audits")
        finally:
            for name in own:
                del os.environ[name]
            os.environ |= before


def _fill(uri: str) -> dict[str, int]:
    """Train the network and write its weights and the scans; returns the true label of each scan."""
    from opacc_ray.demo import digits, model  # which import torch

    images, labels = digits.load()
    first, second = digits.halves(labels, SEED)
    log.info("training a small network on %d clean digits", len(first))
    weights = model.to_bytes(model.train(images[first], labels[first], SEED))
    scans, truth = digits.field_pool(images[second], labels[second], POOL_SIZE, SEED)
    log.info("writing the weights and %d distorted scans", len(scans))
    field = open_store(uri)
    field.write(WEIGHTS, weights)
    keys = [digits.key(i) for i in range(len(scans))]
    field.write_many((f"scans/{key}", encode_png(scan)) for key, scan in zip(keys, scans, strict=True))
    return {key: int(label) for key, label in zip(keys, truth, strict=True)}


def _audit(home: Path, field: str, audits: str, truth: dict[str, int]) -> Run:
    """Do what a user does: write a spec, run it, import labels, and draw the next round."""
    weights = f"{field}/{WEIGHTS}"
    values = {"seed": SEED, "budget": BUDGETS[0], "field": field, "audits": audits, "weights": weights}
    spec_path = home / "spec.yaml"
    spec_path.write_text(SPEC.format(**values, sha256=hashlib.sha256(read_uri(weights)).hexdigest()))
    with Progress("extract", "shards") as extracting:
        run = verbs.run(load_spec(spec_path), extracting)
    _label(run, 1, home, truth)
    for number, budget in enumerate(BUDGETS[1:], start=2):
        verbs.next_round(run, budget)
        _label(run, number, home, truth)
    return run


def _label(run: Run, number: int, home: Path, truth: dict[str, int]) -> None:
    """Do what an annotator does: fill in the labels of a round and import them."""
    chosen = run.read_selection(number).ids
    returned = home / f"labels-{number}.csv"
    returned.write_text("id,label\n" + "".join(f"{name},{truth[name]}\n" for name in chosen))
    log.info("round %d: labelling the %d chosen scans", number, len(chosen))
    label_actions.import_labels(run, returned.name, returned.read_bytes())


def _compare(run: Run, truth: dict[str, int]) -> tuple[float, StatedEstimate, StatedEstimate]:
    """Return the true accuracy, and the estimates of CES and SRS with as many labels."""
    with feature_store.open_view(run, ["prediction", "hidden"]) as view:
        predicted = view.column("prediction")
        names = view.identify(np.arange(view.size))
        others = [select(view, method, sum(BUDGETS), SEED) for method in ("ces", "srs")]
    correct = (predicted == np.array([truth[name] for name in names])).astype(np.float64)  # (N,)
    ces, srs = (StatedEstimate(**estimate(other, correct[other.index]).to_dict()) for other in others)
    return float(correct.mean()), ces, srs


def _table(result: DemoResult, s3: bool) -> str:
    own = result.estimate
    rows = {f"neyman, {len(own.rounds)} rounds": own, "ces †": result.ces, "srs": result.srs}
    lines = [
        f"true accuracy on {own.pool_size:,} scans: {percent(result.true_accuracy)}, unknown in practice",
        f"estimates from {own.n} labels, and {sum(BUDGETS)} of the others",
        "  method             estimate  95 % interval",
        *(f"  {name:<17}  {percent(clipped(part)):>8}  {ends(part.low, part.high)}" for name, part in rows.items()),
        "  † the interval of a simple random sample, because ces has none of its own",
        f"run     {result.run}",
        f"report  {result.report}",
        f"took    {result.seconds:.0f} s",
    ]
    if result.agreed is not None:
        lines.insert(0, f"you labelled {own.rounds[-1].labelled} scans, {result.agreed} of them right")
    if not s3 and result.agreed is None:
        own_round = f"next {result.run} --budget {OWN_LABELS}", f"label {result.run}", f"report {result.run}"
        lines += ["next, label ten scans yourself, and see what they change:", *(f"  opacc {one}" for one in own_round)]
    return "\n".join(lines)
