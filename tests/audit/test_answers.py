"""Labels that come back to an audit: in pieces, in rounds, in any order, and what is then stated."""

from pathlib import Path

import pytest
from logged import read_labels
from picture_audits import answer, labels_for
from written_run import PREDICTION, label, write_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.errors import LabelError
from opacc_ray.labels import label_actions, label_log
from opacc_ray.runs.run import Run


def test_labels_of_another_run_or_with_an_unknown_id_change_nothing(run: Run) -> None:
    foreign = b'{"id": "000.png", "label": "1", "run": "other-12345678"}\n'
    with pytest.raises(LabelError, match="other-12345678"):
        label_actions.import_labels(run, "foreign.jsonl", foreign)
    with pytest.raises(LabelError, match=r"no\.png"):
        label_actions.import_labels(run, "unknown.csv", labels_for(run) + b"\nno.png,1")
    assert read_labels(run, 1) == []


def forget_labels(run: Run) -> None:
    """Withdraw all files of labels."""
    for file in {Path(key).name for key in label_log.label_files(run)}:
        label_actions.withdraw(run, file)


def test_three_rounds_with_files_out_of_order_and_twice(run: Run) -> None:
    label_actions.import_labels(run, "one.csv", answer(run, 1))
    for number in (2, 3):
        chosen = verbs.next_round(run, 15, method="neyman")
        assert chosen.round == number
        header, *rows = answer(run, number).splitlines()
        label_actions.import_labels(run, "late.csv", b"\n".join([header, *rows[6:]]))
        label_actions.import_labels(run, "early.csv", b"\n".join([header, *rows[:9]]))
        label_actions.import_labels(run, "again.csv", b"\n".join([header, *rows[6:]]))
    in_pieces = accuracy.estimate(run).model_dump(exclude={"label_files"})
    assert in_pieces["n"] == 70
    assert [item["method"] for item in in_pieces["rounds"]] == ["ces", "neyman", "neyman"]
    labelled = [set(run.read_selection(number).ids) for number in (1, 2, 3)]
    assert not labelled[0] & labelled[1]
    assert not (labelled[0] | labelled[1]) & labelled[2]
    forget_labels(run)
    whole = b"\n".join([answer(run, 1), *(answer(run, number).partition(b"\n")[2] for number in (2, 3))])
    label_actions.import_labels(run, "all.csv", whole)
    assert accuracy.estimate(run).model_dump(exclude={"label_files"}) == in_pieces


def test_example_drawn_twice_is_labelled_once(tmp_path: Path) -> None:
    run = write_run(tmp_path, "twice", PREDICTION)
    chosen = verbs.select(run, "sups", 80, {"auxiliary": "confidence"})
    assert len(set(chosen.ids)) < 80
    manifest = run.folder(1).read("manifest.jsonl").splitlines()
    assert len(manifest) == len(set(chosen.ids))
    label(run, chosen.ids)
    assert accuracy.estimate(run).to_dict()["n"] == 80
