"""``opacc demo``: a whole audit on handwritten digits, with nothing to configure.

A small network was trained on clean digits. In operation, scans are rotated, shifted, faded and noisy. How accurate is
the network on them? The demo plays all parts: it writes the network and the scans to a folder, extracts features with
two Ray actors, chooses 100 scans to label in two rounds, labels them, and
writes the report. With ``opacc demo --label`` you label ten more scans on the labelling page. The true labels are used
only for the chosen scans, and at the end to show the true accuracy.
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
from opacc_ray.documents import Document
from opacc_ray.errors import counted
from opacc_ray.labels import label_actions
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.decode import encode_png
from opacc_ray.lake.store_uris import open_store, read_uri
from opacc_ray.registry import require
from opacc_ray.report.facts import Line, facts, in_a_line, percent, stated
from opacc_ray.report.run_report import make_report
from opacc_ray.runs.run import Run, open_view
from opacc_ray.runs.run_documents import AccuracyEstimate
from opacc_ray.spec import load_spec


class DemoResult(Document):
    """The estimate of the demo, and the true accuracy."""

    format: Literal["opacc-demo/1"] = "opacc-demo/1"
    run: str  # URI of the run
    report: str  # path of the report, an HTML page
    folder: str  # folder with all files of the demo
    seconds: float = Field(ge=0)  # duration
    true_accuracy: float = Field(ge=0, le=1)  # accuracy on the whole pool, unknown in practice
    agreed: int | None = None  # labels of the user that are true; null: the user was not asked to label
    estimate: AccuracyEstimate  # by neyman, in the rounds of the run


log = logging.getLogger(__name__)

SEED = 0
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


def run_demo(
    folder: Path | None = None, *, ask: Callable[[Run], object] | None = None
) -> tuple[DemoResult, list[Line]]:
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
    )
    return result, _lines(result)


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

    log.info("writing the weights and the distorted scans")
    scans, truth = digits.load_scans()
    field = open_store(uri)
    field.write(WEIGHTS, digits.WEIGHTS.read_bytes())
    keys = [f"scan-{i:05d}.png" for i in range(len(scans))]
    field.write_many((f"scans/{key}", encode_png(scan)) for key, scan in zip(keys, scans, strict=True))
    return dict(zip(keys, truth.tolist(), strict=True))


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


def _true_accuracy(run: Run, truth: dict[str, int]) -> float:
    with open_view(run, ["prediction"]) as view:
        names = view.identify(np.arange(view.size))
        return float(np.mean(view.column("prediction") == np.array([truth[name] for name in names])))


def _lines(result: DemoResult) -> list[Line]:
    own = result.estimate
    value = in_a_line(stated(own), own.level, f"{counted(own.n, 'label')} in {counted(len(own.rounds), 'round')}")
    agreed = f"{own.rounds[-1].labelled} scans, {result.agreed} of them right"
    lines = facts(
        ("you labelled", None if result.agreed is None else agreed),
        ("accuracy", value),
        ("the truth", f"{percent(result.true_accuracy)} of {own.pool_size:,} scans, unknown in practice"),
        ("run", result.run),
        ("report", result.report),
        ("took", f"{result.seconds:.0f} s"),
    )
    if result.agreed is not None:
        return [*lines]
    steps = f"next {result.run} --budget {OWN_LABELS}", f"label {result.run}", f"report {result.run}"
    return [*lines, "next, label ten scans yourself, and see what they change:", *(f"  opacc {one}" for one in steps)]
