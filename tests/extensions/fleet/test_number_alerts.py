"""Limits of metrics and slices, and the lowest slice of each audit, in a fleet of one table."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from opacc_ray.errors import AlertError
from opacc_ray.extensions.fleet.alerts import Evidence
from opacc_ray.extensions.fleet.fleet_spec import load_fleet
from opacc_ray.extensions.fleet.fleet_summary import AuditSummary
from opacc_ray.extensions.fleet.run_fleet import Written, run_fleet
from opacc_ray.extensions.fleet.summary_page import summary_text
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.metrics.metric import Metric
from opacc_ray.runs.run import Run

N = 600
RNG = np.random.default_rng(2)
CAMERA = np.array(["front", "rear", "roof"])[RNG.integers(0, 3, N)]
TRUTH = RNG.integers(0, 2, N)
WRONG = RNG.random(N) < np.where(CAMERA == "roof", 0.6, 0.05)
PREDICTION = np.where(WRONG, 1 - TRUTH, TRUTH)
IDS = [f"x{i:03d}" for i in range(N)]


def write_fleet(home: Path, alerts: dict[str, Any], prediction: str = "said") -> Path:
    columns = {
        "key": IDS,
        "said": PREDICTION,
        "better": np.where(CAMERA == "roof", TRUTH, PREDICTION),
        "sure": np.full(N, 0.9),
        "camera": CAMERA,
    }
    if not (home / "pool").exists():
        (home / "pool").mkdir()
        pq.write_table(pa.table(columns), home / "pool" / "part.parquet")
    audit = {
        "name": "weekly-shop",
        "pool": {
            "uri": str(home / "pool"),
            "format": "features",
            "columns": {"id": "key", "prediction": prediction, "confidence": "sure"},
            "slices": ["camera"],
        },
        "model": {"classes": ["cat", "dog"]},
        "sample": {"method": "srs", "budget": 240},
        "metrics": ["accuracy", "f1@dog"],
    }
    content = {"name": "weekly", "output": str(home / "audits"), "audits": [audit], "alerts": alerts}
    file = home / "fleet.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def run_with(home: Path, alerts: dict[str, Any], prediction: str = "said") -> Written:
    return run_fleet(load_fleet(write_fleet(home, alerts, prediction)), trial=False)


def audited(home: Path, alerts: dict[str, Any], prediction: str = "said") -> tuple[Written, AuditSummary]:
    """The summary of the fleet once all labels are there."""
    run = Run.open(run_with(home, alerts, prediction).summary.audits[0].run or "")
    if run.read_estimate() is None:
        rows = "".join(f"{id},{['cat', 'dog'][TRUTH[IDS.index(id)]]}\n" for id in run.read_selection(1).ids)
        import_labels(run, "labels.csv", f"id,label\n{rows}".encode())
    written = run_with(home, alerts, prediction)
    return written, written.summary.audits[0]


def test_a_metric_and_the_worst_slice_raise_alerts_by_intervals_that_share_the_error(tmp_path: Path) -> None:
    alerts = {"min": {"f1@dog": 0.9}, "min_slices": {"camera": 0.6}}
    written, audit = audited(tmp_path, alerts)
    metric, part = audit.alerts
    assert written.failure.exit_code == AlertError.exit_code
    evidence = Evidence.of(Run.open(audit.run or ""))
    level = 1 - 0.05 / 2
    expected = evidence.number("f1@dog", level)
    assert (metric.kind, metric.of, metric.limit, metric.raised) == ("min", "f1@dog", 0.9, True)
    assert (metric.value, metric.low, metric.high, metric.level) == (expected.value, expected.low, expected.high, level)
    assert (part.kind, part.of, part.slice, part.raised) == ("min_slices", "camera", "roof", True)
    with evidence.numbers("camera") as numbers:
        each = numbers.numbers.by(Metric("accuracy"), "camera", 1 - 0.05 / 2 / 3)
    assert (part.low, part.high) == (each["roof"].low, each["roof"].high)
    assert part.high == min(own.high for own in each.values())
    text = summary_text(written.summary)
    assert "weekly-shop: the F1 of dog is" in text
    assert "weekly-shop: the accuracy in roof (camera) is" in text
    assert "an interval of F1 of dog below 90 % or an interval of the accuracy of any camera below 60 %" in text


def test_a_metric_that_fell_since_the_audit_before_raises_an_alert(tmp_path: Path) -> None:
    alerts = {"max_drop": {"f1@dog": 0.05, "macro_recall": 0.9}}
    _, before = audited(tmp_path, alerts, "better")
    assert [check.reason for check in before.alerts] == [
        "there are no two runs of one population with a fully labelled round"
    ] * 2
    written, audit = audited(tmp_path, alerts)
    fell, other = audit.alerts
    assert (fell.kind, fell.of, fell.raised, other.raised) == ("max_drop", "f1@dog", True, False)
    now, then = (Evidence.of(Run.open(own.run or "")) for own in (audit, before))
    change = now.change(then, fell.level, "f1@dog")
    assert (fell.low, fell.high) == (-change.high, -change.low)
    apart = [now.number("f1@dog", fell.level), then.number("f1@dog", fell.level)]
    assert change.high - change.low < sum(own.high - own.low for own in apart)
    text = summary_text(written.summary)
    assert "weekly-shop: the F1 of dog dropped by" in text
    assert "an interval of the drop of F1 of dog above 5 %" in text
