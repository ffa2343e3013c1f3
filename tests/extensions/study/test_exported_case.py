"""The labelled pool of a run as a case: what a study reads of it is what the run knows.

The runs here are written by hand (`written_run.py`).
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from audited_run import CLASSES as NAMES
from audited_run import KEYS, label, write_features, write_pool
from written_run import CLASSES, CONFIDENCE, IDS, PREDICTION, TRUTH, N, write_run

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.extensions.study.cases import Case, Source, export_case, read_case
from opacc_ray.labels import label_actions
from opacc_ray.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with a round of 100 examples, none of which has a label."""
    made = write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)
    verbs.select(made, "srs", 100, {})
    return made


def import_for(run: Run, ids: Sequence[str], unsure: Sequence[str] = ()) -> None:
    rows = [f"{name},{'?' if name in unsure else CLASSES[TRUTH[IDS.index(name)]]}\n" for name in ids]
    label_actions.import_labels(run, "labels.csv", ("id,label\n" + "".join(rows)).encode())


def case_of(path: Path) -> Case:
    return read_case(Source("case", str(path)))


def test_fully_labelled_pool_is_a_case_of_all_its_features_and_outcomes(run: Run, tmp_path: Path) -> None:
    import_for(run, run.read_selection(1).ids)
    import_for(run, verbs.next_round(run, N - 100).ids)
    written = export_case(run, str(tmp_path / "case.npz"))
    assert written.examples == N
    assert written.notes == [f"accuracy {np.mean(PREDICTION == TRUTH):.1%} of these examples".replace("%", " %")]
    case = case_of(tmp_path / "case.npz")
    assert np.array_equal(case.outcome, PREDICTION == TRUTH)
    assert np.array_equal(case.view.column("confidence"), CONFIDENCE)
    assert np.array_equal(case.view.column("prediction"), PREDICTION)
    with np.load(tmp_path / "case.npz") as arrays:
        assert (arrays["hidden"].shape, arrays["output"].shape) == ((N, 5), (N, 3))
        assert np.array_equal(arrays["label"], TRUTH)


def test_case_of_a_part_of_the_pool_says_so(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "case.npz"
    with pytest.raises(LabelError, match=r"no example of .* has a label yet"):
        export_case(run, str(path))
    with pytest.raises(SpecError, match=r"a case is an \.npz file"):
        export_case(run, str(tmp_path / "case.csv"))
    chosen = run.read_selection(1).ids
    import_for(run, chosen[:60], unsure=chosen[:3])
    assert main(["labels", "export", run.uri, str(path), "--to", "case"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "57 labelled examples for case" in told
    assert "19.0 % of the pool, and no random sample" in told
    assert f'{N - 60} have no label, 3 got "can\'t tell"' in told
    places = sorted(IDS.index(name) for name in chosen[3:60])
    case = case_of(path)
    assert np.array_equal(case.outcome, (PREDICTION == TRUTH)[places])
    assert np.array_equal(case.view.column("confidence"), CONFIDENCE[places])


def test_case_of_a_regression_has_its_scores(tmp_path: Path) -> None:
    values = np.linspace(0, 3, N)
    run = write_run(tmp_path, "mine", values, task="regression", error_scale=2.0)
    chosen = verbs.select(run, "srs", N, {}).ids
    rows = "".join(f"{name},{values[IDS.index(name)] + IDS.index(name) % 3}\n" for name in chosen)
    label_actions.import_labels(run, "labels.csv", ("id,label\n" + rows).encode())
    written = export_case(run, str(tmp_path / "case.npz"))
    expected = np.array([1, 0.75, 0])[np.arange(N) % 3]
    case = case_of(tmp_path / "case.npz")
    assert case.outcome == pytest.approx(expected)
    assert written.notes[0].startswith("mean score, max(0, 1 - (error / 2)²) ")
    with np.load(tmp_path / "case.npz") as arrays:
        assert arrays["target"] == pytest.approx(values + np.arange(N) % 3)


def test_study_reads_what_was_exported_and_changed_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    label(run, verbs.select(run, "srs", len(KEYS), {}).ids)
    (tmp_path / "pool" / KEYS[0]).write_bytes(b"another picture")
    assert main(["labels", "export", run.uri, str(tmp_path / "case.npz"), "--to", "case", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["notes"][-1] == "1 object of a chosen example changed since extraction"
    assert set(np.load(tmp_path / "case.npz")["label"]) == set(range(len(NAMES)))
    assert case_of(tmp_path / "case.npz").view.size == len(KEYS)
