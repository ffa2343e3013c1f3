"""Audits whose labels are counts: of a file or the page, to ratios of totals, goals, slices, alerts and the report."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import opacc_ray as opacc
from opacc_ray.audit import accuracy, comparison, goals, verbs
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.extensions.fleet.alerts import Evidence
from opacc_ray.extensions.lakes.exported_tables import export_tables
from opacc_ray.labels.joining import counts_of
from opacc_ray.labels.label_actions import correct, import_labels
from opacc_ray.report.run_report import make_report
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec
from opacc_ray.stored_audit import Audit

N = 700
RNG = np.random.default_rng(1)
OBJECTS = RNG.poisson(RNG.gamma(1.5, 2.5, N))
QUALITY = RNG.beta(6, 1, N)
TP = RNG.binomial(OBJECTS, QUALITY)
FP = RNG.poisson(0.5, N)
CAMERA = np.array(["front", "rear"])[RNG.integers(0, 2, N)]
IDS = [f"frame{k}" for k in range(N)]
COUNTS = {id: {"tp": int(t), "fp": int(f), "fn": int(o - t)} for id, t, f, o in zip(IDS, TP, FP, OBJECTS, strict=True)}
F1 = "2 tp / (2 tp + fp + fn)"
RECALL = "tp / (tp + fn)"
TRUE = {F1: 2 * TP.sum() / (TP + FP + OBJECTS).sum(), RECALL: TP.sum() / OBJECTS.sum()}


def spec_of(home: Path, **changes: Any) -> dict[str, Any]:
    if not (home / "pool").exists():
        (home / "pool").mkdir()
        table = {"frame": IDS, "sure": QUALITY, "camera": CAMERA}
        pq.write_table(pa.table(table), home / "pool" / "part.parquet")
    return {
        "name": "detector",
        "pool": {
            "uri": str(home / "pool"),
            "format": "features",
            "columns": {"id": "frame", "confidence": "sure"},
            "slices": ["camera"],
        },
        "model": {"task": "counts", "counts": ["tp", "fp", "fn"]},
        "metrics": ["2*tp/(2 tp+fp+fn)", RECALL],
        "sample": {"method": "neyman", "budget": 60},
        "output": str(home / "audits"),
    } | changes


def new_run(home: Path, **changes: Any) -> Run:
    return verbs.first_round(parse_spec(spec_of(home, **changes), "spec.yaml"))


def manifest(run: Run, number: int = 1) -> list[dict[str, str]]:
    text = run.folder(number).read("manifest.csv").decode()
    return list(csv.DictReader(io.StringIO(text)))


def filled(run: Run, number: int = 1) -> bytes:
    """The manifest as an annotator returns it."""
    rows = [row | COUNTS[row["id"]] for row in manifest(run, number)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=";")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def test_a_detector_is_audited_from_its_manifest_to_its_report(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    assert list(manifest(run)[0])[5:8] == ["tp", "fp", "fn"]
    assert import_labels(run, "one.csv", filled(run)).labelled == 60
    with pytest.raises(SpecError, match="only known from labels"):
        goals.label_budget(new_run(tmp_path, name="other"), 0.05, goals.read_target(F1))
    first = goals.next_until(run, 0.02, goals.target_of(run, goals.read_target(F1)))
    assert (first.metric, first.reached) == (F1, False)
    assert first.labels_to_go > 60
    import_labels(run, "two.csv", filled(run, 2))
    found = accuracy.estimate(run)
    assert list(found.metrics) == [F1, RECALL]
    for name, own in found.metrics.items():
        assert own.low <= TRUE[name] <= own.high
        assert own.design_based
        selections = [run.read_selection(number) for number in run.rounds()]
        in_memory = opacc.estimate_ratio(selections, COUNTS, name)
        assert (own.value, own.low, own.high, own.n) == (in_memory.value, in_memory.low, in_memory.high, in_memory.n)
    assert found.measure == f"mean of {F1} per example"
    mean = np.mean(np.where(OBJECTS + FP > 0, 2 * TP / np.maximum(TP + FP + OBJECTS, 1), 1.0))
    assert found.low <= mean <= found.high
    [table] = found.by_slice
    assert (table.metric, table.by, sum(own.n for own in table.slices.values())) == (F1, "camera", found.n)
    for name, own in table.slices.items():
        inside = name == CAMERA
        assert own.low <= 2 * TP[inside].sum() / (TP + FP + OBJECTS)[inside].sum() <= own.high
    _, report = make_report(run)
    assert report.reliability is None, "a score of detections is no forecast of a mean F1"
    assert not any("confident" in item.text for item in report.findings)
    assert "ratio of totals over the pool" in run.store.read("report.html").decode()
    assert goals.label_budget(run, 0.02, goals.read_target(F1)).total_labels > found.n
    tables = str(tmp_path / "lake")
    export_tables(run, tables, features=False)
    rows = {(row["metric"], row["slice"]): row for row in pq.read_table(f"{tables}/estimates").to_pylist()}
    for number, own in {(F1, None): found.metrics[F1], (F1, "rear"): table.slices["rear"]}.items():
        assert (rows[number]["value"], rows[number]["low"], rows[number]["high"]) == (own.value, own.low, own.high)


def test_json_lines_single_labels_and_the_page_have_the_same_counts(tmp_path: Path) -> None:
    runs = [new_run(tmp_path / name) for name in ("a", "b", "c") if (tmp_path / name).mkdir() is None]
    ids = [row["id"] for row in manifest(runs[0])]
    lines = [
        "".join(json.dumps({"id": id} | COUNTS[id]) + "\n" for id in ids),
        json.dumps([{"id": id, "label": " ".join(f"{k}={v}" for k, v in COUNTS[id].items())} for id in ids]),
        "id,label\n" + "".join(f"{id},{' '.join(map(str, COUNTS[id].values()))}\n" for id in ids),
    ]
    found = []
    for run, text in zip(runs, lines, strict=True):
        import_labels(run, "labels", text.encode())
        found.append(accuracy.estimate(run).metrics[F1])
    assert found[0] == found[1] == found[2]
    correct(runs[0], ids[0], "tp=9 fp=9 fn=9", "ann")
    assert accuracy.estimate(runs[0]).metrics[F1] != found[0]


def test_a_metric_can_be_asked_later_and_an_alert_reads_it(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    import_labels(run, "one.csv", filled(run))
    later = accuracy.estimate(run, metrics=["fp/(tp+fp)"], by=["camera"])
    assert list(later.metrics) == ["fp / (tp + fp)"]
    evidence = Evidence.of(run)
    assert evidence is not None
    assert evidence.number(F1, 0.9).value == pytest.approx(accuracy.estimate(run).metrics[F1].value)
    assert Audit.open(run.uri).estimate().metrics[F1].n == 60
    for asked, said in (("f1@2", "needs classes"), ("tp / (tp + words)", '"words", which is none of model.counts')):
        with pytest.raises(SpecError, match=said):
            accuracy.estimate(run, metrics=[asked])
    with pytest.raises(SpecError, match="judge the answers of one model"):
        comparison.compare(run, run)


def test_error_rates_are_subtracted_from_one(tmp_path: Path) -> None:
    model = {"task": "counts", "counts": ["edits", "words"]}
    run = new_run(
        tmp_path, model=model, metrics=["1 - edits / words", "edits / words"], sample={"method": "srs", "budget": 50}
    )
    rows = "".join(f"{row['id']},{k % 7},{20 + k % 3}\n" for k, row in enumerate(manifest(run)))
    import_labels(run, "wer.csv", f"id,edits,words\n{rows}".encode())
    found = accuracy.estimate(run).metrics
    [note] = accuracy.estimate(run).notes
    assert note.startswith("Examples of a kind that is less than 7.1 % of the pool may be missing among 50 labels.")
    right, wrong = found["1 - edits / words"], found["edits / words"]
    assert (right.value, right.low, right.high) == pytest.approx((1 - wrong.value, 1 - wrong.high, 1 - wrong.low))


def test_ratios_are_widened_where_annotators_count_otherwise(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    ids = [row["id"] for row in manifest(run)]
    first = "".join(f"{id},{','.join(map(str, COUNTS[id].values()))},ann\n" for id in ids)
    other = "".join(f"{id},0,0,{sum(COUNTS[id].values())},bob\n" for id in ids[:30])
    import_labels(run, "a.csv", f"id,tp,fp,fn,annotator\n{first}".encode())
    before = accuracy.estimate(run).metrics[RECALL]
    import_labels(run, "b.csv", f"id,tp,fp,fn,annotator\n{other}".encode(), conflict="latest")
    correct(run, ids[0], " ".join(map(str, COUNTS[ids[0]].values())), "boss")
    after = accuracy.estimate(run).metrics[RECALL]
    assert after.high - after.low > before.high - before.low
    assert after.method == "ratio of totals widened for label noise"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tp=1 fp=0", "which is no 3 counts: write each once, as in tp=0 fp=0 fn=0"),
        ("tp=1 tp=2 fp=0 fn=0", "which is no 3 counts"),
        ("tp=1 fp=-1 fn=0", "where fp is no count"),
        ("1 2 x", "where fn is no count"),
        ("cat", "which is no 3 counts"),
    ],
)
def test_what_is_no_count_is_refused(text: str, said: str) -> None:
    with pytest.raises(LabelError, match=said):
        counts_of(text, ("tp", "fp", "fn"))
    assert counts_of("3, 0.0 1", ("tp", "fp", "fn")) == "tp=3 fp=0 fn=1"


def test_a_row_with_some_counts_is_refused_and_an_empty_one_waits(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    first, second, *_ = (row["id"] for row in manifest(run))
    with pytest.raises(LabelError, match="line 2 has no fn: fill in tp, fp, fn, or leave all of them empty"):
        import_labels(run, "a.csv", f"id,tp,fp,fn\n{first},1,0,\n".encode())
    with pytest.raises(LabelError, match="start it with a header with the columns id, tp, fp, fn"):
        import_labels(run, "a.csv", f"id,hits\n{first},1\n".encode())
    done = import_labels(run, "a.csv", f"id,tp,fp,fn\n{first},1,0,0\n{second},,,\n".encode())
    assert (done.labelled, done.rows) == (1, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metrics": []}, "metrics is missing, which task: counts needs"),
        ({"metrics": ["tp / words"]}, '"words", which is none of model.counts: tp, fp, fn'),
        ({"metrics": ["macro_f1"]}, "needs classes, and model.task is counts"),
        ({"metrics": ["tp / (tp - fn)"]}, "is no sum of names"),
        ({"model": {"task": "counts"}}, "counts are missing"),
        ({"model": {"counts": ["tp"]}}, "model.counts is only supported for counts"),
        ({"model": {"task": "counts", "counts": ["id"]}}, "'id' is no name of a count"),
        ({"model": {"task": "counts", "counts": ["tp", "tp"]}}, "appears twice"),
        ({"model": {"classes": ["a", "b"]}}, "names no output and no prediction"),
    ],
)
def test_a_spec_that_does_not_fit_counts_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(spec_of(tmp_path) | changes, "spec.yaml")


def test_a_pool_of_ids_alone_can_be_counted(tmp_path: Path) -> None:
    pool = spec_of(tmp_path)["pool"] | {"columns": {"id": "frame"}}
    run = new_run(tmp_path, pool=pool, sample={"method": "srs", "budget": 40})
    import_labels(run, "one.csv", filled(run))
    found = accuracy.estimate(run).metrics[RECALL]
    assert found.low <= TRUE[RECALL] <= found.high
