"""Exported examples: all labelled ones, with the labels and weights that reproduce the estimate."""

import json
from pathlib import Path

import numpy as np
import pytest
from audited_run import CLASSES, CONFIDENCE, KEYS, PREDICTION, TRUTH, label, write_features, write_pool
from shown_pool import text_run

from opacc_ray.audit import verbs
from opacc_ray.audit.accuracy import estimate
from opacc_ray.errors import LabelError
from opacc_ray.extensions.labelling.fiftyone_export import export_labels
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    verbs.select(run, "sups", 30, {})
    return run


def test_samples_are_the_labelled_examples_and_their_weights_give_the_estimate(run: Run, tmp_path: Path) -> None:
    label(run, run.read_selection(1).ids)
    verbs.next_round(run, 20)
    label(run, run.read_selection(2).ids, "second.csv")
    written = export_labels(run, str(tmp_path / "out"))
    samples = json.loads((tmp_path / "out" / "samples.json").read_bytes())["samples"]
    chosen = {id for number in (1, 2) for id in run.read_selection(number).ids}
    assert len(samples) == len({sample["opacc_id"] for sample in samples}) == written.examples == len(chosen)
    for sample in samples:
        place = KEYS.index(sample["opacc_id"])
        assert sample["ground_truth"]["label"] == CLASSES[TRUTH[place]]
        assert sample["prediction"]["label"] == CLASSES[PREDICTION[place]]
        assert sample["prediction"]["confidence"] == pytest.approx(CONFIDENCE[place])
        assert sample["outcome"] == float(TRUTH[place] == PREDICTION[place])
        assert (tmp_path / "out" / sample["filepath"]).read_bytes() == f"picture {sample['opacc_id']}".encode()
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_bytes())
    assert metadata == {"media_type": "image", "classes": {"ground_truth": CLASSES}}
    failures = np.array([1 - sample["outcome"] for sample in samples])
    weights = np.array([sample["weight"] for sample in samples])
    assert 1 - weights @ failures == pytest.approx(estimate(run).value)


def test_examples_without_pictures_are_not_exported(tmp_path: Path) -> None:
    run = text_run(tmp_path, ["text"])
    answers = "".join(f"{id},ham\n" for id in run.read_selection(1).ids)
    import_labels(run, "a.csv", f"id,label\n{answers}".encode())
    with pytest.raises(LabelError, match=r"the examples of .* are no pictures, which fiftyone shows: nothing can be"):
        export_labels(run, str(tmp_path / "out"))


def test_without_labels_there_is_nothing_to_export(run: Run, tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="has a label yet"):
        export_labels(run, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_another_export_in_the_folder_is_kept(run: Run, tmp_path: Path) -> None:
    label(run, run.read_selection(1).ids)
    for _ in range(2):
        export_labels(run, str(tmp_path / "out"))
    verbs.next_round(run, 20)
    label(run, run.read_selection(2).ids, "second.csv")
    before = (tmp_path / "out" / "samples.json").read_bytes()
    with pytest.raises(LabelError, match=r"out/samples\.json already exists with other content"):
        export_labels(run, str(tmp_path / "out"))
    assert (tmp_path / "out" / "samples.json").read_bytes() == before
