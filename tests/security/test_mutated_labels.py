"""Mutated files of labels are imported or refused in a sentence: no traceback, no hang, no memory over the limit."""

from pathlib import Path

import pytest
from security.mutated_labels import run_mutations, sound_files
from written_run import PREDICTION, write_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.labels import label_actions


@pytest.mark.slow
def test_mutated_files_are_imported_or_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "mutated", PREDICTION)
    chosen = verbs.select(run, "srs", 20, {})
    found = run_mutations(run.uri, sound_files(chosen.ids), range(120), tmp_path)
    assert set(found) == {"imported", "refused"}
    assert min(found.values()) > 10
    for item in label_actions.list_answers(run).answers:  # whatever was imported, the run is not at a dead end
        if item.state != "counts":
            label_actions.correct(run, item.id, "1", "the owner")
    label_actions.set_rule(run, "error")
    assert accuracy.estimate(run, partial=True).n > 0
