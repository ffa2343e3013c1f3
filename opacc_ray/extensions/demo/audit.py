"""``opacc demo``: a whole audit on handwritten digits, with nothing to configure.

A small network was trained on clean digits. In operation, scans are rotated, shifted, faded and noisy. How accurate is
the network on them? The demo plays all parts: it writes the network and the scans to a folder, extracts features with
two Ray actors, chooses 100 scans to label in two rounds, labels them, and
writes the report. With ``opacc demo --label`` you label ten more scans on the labelling page. The true labels are used
only for the chosen scans, and at the end to show the true accuracy. Two more runs on the same features, by CES and as a
simple random sample, are for comparison.
"""

import hashlib
import itertools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.progress import Progress
from opacc_ray.cluster import local
from opacc_ray.documents import Document, format_field
from opacc_ray.estimation.intervals import clipped
from opacc_ray.labels import label_actions
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.decode import encode_png
from opacc_ray.lake.store_uris import open_store, read_uri
from opacc_ray.registry import require
from opacc_ray.report.facts import ends, percent
from opacc_ray.report.run_report import make_report
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import AccuracyEstimate
from opacc_ray.runs.run import Run
from opacc_ray.spec import load_spec


class DemoResult(Document):
    """Estimates of three methods with the same number of labels, and the true accuracy."""

    format: Literal["opacc-demo/1"] = format_field("opacc-demo/1")
    run: str = Field(description="URI of the run")
    report: str = Field(description="path of the report, an HTML page")
    folder: str = Field(description="folder with all files of the demo")
    seconds: float = Field(ge=0, description="duration")
    true_accuracy: float = Field(ge=0, le=1, description="accuracy on the whole pool, unknown in practice")
    agreed: int | None = Field(
        default=None, description="labels of the user that are true; null: the user was not asked to label"
    )
    estimate: AccuracyEstimate = Field(description="by neyman, in the rounds of the run")
    ces: AccuracyEstimate = Field(description="of a run by CES on the same features")
    srs: AccuracyEstimate = Field(description="of a run by a simple random sample of the same features")


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
  factory: "opacc_ray.extensions.demo.digits:digits_cnn"
  weights: "{weights}"
  sha256: {sha256}
extract: {{shard_size: 500, actors: 2}}
sample: {{method: neyman, budget: {budget}}}
output: "{audits}/"
"""


def run_demo(folder: Path | None = None, *, ask: Callable[[Run], object] | None = None) -> tuple[DemoResult, str]:
    """Run the demo and leave all its files in ``folder``; return the result for machines, and for people.

    Parameters
    ----------
    folder : default: a new one here, opacc-demo
    ask : has the user label a further round of ten scans; None: there is none
    """
    require("the demo", "ray", "torch", "safetensors", "PIL")
    begun = time.monotonic()
    home = _free(Path(HOME)) if folder is None else folder.absolute()
    home.mkdir(parents=True, exist_ok=True)
    log.info("all files are in %s", home)
    with local.ahead():
        local.begin()
        field = str(home / "field")
        truth = _fill(field)
        run = _audit(home, field, truth)
        agreed = None if ask is None else _ask(run, ask, truth)
        estimate = accuracy.estimate(run, partial=True)
        ces, srs = (_by(method, run, home, truth) for method in ("ces", "srs"))
        true_accuracy = _true_accuracy(run, truth)
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
    return result, _table(result)


def _free(path: Path) -> Path:
    """Return the path, or with the first number at its end that is not taken."""
    others = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(one for one in itertools.chain([path], others) if not one.exists()).absolute()


def _ask(run: Run, ask: Callable[[Run], object], truth: dict[str, int]) -> int:
    """Have the user label a further round; return how many of the labels are true. Missing ones are given up."""
    chosen = verbs.next_round(run, OWN_LABELS).ids
    log.info("your turn: label %d scans; the keys 0 to 9 are the digits", OWN_LABELS)
    ask(run)
    last = read_rounds(run)[-1]
    if last.missing:
        verbs.close_round(run)
    given = dict(zip(last.known.ids, last.truth, strict=True))
    return sum(given.get(name) == str(truth[name]) for name in chosen)


def _fill(uri: str) -> dict[str, int]:
    """Write the weights of the network and the scans; returns the true label of each scan."""
    from opacc_ray.extensions.demo import digits

    images, labels = digits.load()
    _, second = digits.halves(labels, SEED)
    scans, truth = digits.field_pool(images[second], labels[second], POOL_SIZE, SEED)
    log.info("writing the weights and %d distorted scans", len(scans))
    field = open_store(uri)
    field.write(WEIGHTS, digits.WEIGHTS.read_bytes())
    keys = [digits.key(i) for i in range(len(scans))]
    field.write_many((f"scans/{key}", encode_png(scan)) for key, scan in zip(keys, scans, strict=True))
    return {key: int(label) for key, label in zip(keys, truth, strict=True)}


def _audit(home: Path, field: str, truth: dict[str, int]) -> Run:
    """Do what a user does: write a spec, run it, import labels, and draw the next round."""
    weights = f"{field}/{WEIGHTS}"
    values = {"seed": SEED, "budget": BUDGETS[0], "field": field, "audits": str(home / "audits"), "weights": weights}
    spec_path = home / "spec.yaml"
    spec_path.write_text(SPEC.format(**values, sha256=hashlib.sha256(read_uri(weights)).hexdigest()))
    with Progress("extract", "shards") as extracting:
        run = verbs.first_round(load_spec(spec_path), extracting)
    _label(run, 1, home / "labels-1.csv", truth)
    for number, budget in enumerate(BUDGETS[1:], start=2):
        verbs.next_round(run, budget)
        _label(run, number, home / f"labels-{number}.csv", truth)
    return run


def _label(run: Run, number: int, returned: Path, truth: dict[str, int]) -> None:
    """Do what an annotator does: fill in the labels of a round and import them."""
    chosen = run.read_selection(number).ids
    returned.write_text("id,label\n" + "".join(f"{name},{truth[name]}\n" for name in chosen))
    log.info("round %d of %s: labelling the %d chosen scans", number, run.name, len(chosen))
    label_actions.import_labels(run, returned.name, returned.read_bytes())


def _by(method: str, run: Run, home: Path, truth: dict[str, int]) -> AccuracyEstimate:
    """Return the estimate of a run like this one by another method, with as many labels in one round."""
    other = verbs.first_round(run.spec.like(method, sum(BUDGETS), None, {}))
    _label(other, 1, home / f"labels-{method}.csv", truth)
    return accuracy.estimate(other)


def _true_accuracy(run: Run, truth: dict[str, int]) -> float:
    with feature_store.open_view(run, ["prediction"]) as view:
        names = view.identify(np.arange(view.size))
        return float(np.mean(view.column("prediction") == np.array([truth[name] for name in names])))


def _table(result: DemoResult) -> str:
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
    if result.agreed is None:
        own_round = f"next {result.run} --budget {OWN_LABELS}", f"label {result.run}", f"report {result.run}"
        lines += ["next, label ten scans yourself, and see what they change:", *(f"  opacc {one}" for one in own_round)]
    return "\n".join(lines)
