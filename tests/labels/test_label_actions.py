"""Actions on labels: one canonical form, one rule, corrections and withdrawals that destroy nothing."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from logged import label_files, log_labels, read_labels
from written_run import CLASSES, IDS, PREDICTION, TRUTH, N, write_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.status import status
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.labels import label_actions
from opacc_ray.labels.desk import LabelQueue
from opacc_ray.labels.formats import parse
from opacc_ray.labels.label_log import LabelAction, adopt_rules, log_action, read_log
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.runs.run import Run
from opacc_ray.spec import LabelsSpec, parse_spec
from opacc_ray.stored_audit import Audit


def ids_of(run: Run) -> tuple[str, ...]:
    return run.read_selection(1).ids


def csv_of(labels: Sequence[tuple[str, ...]], header: str = "id,label") -> bytes:
    return "\n".join([header, *(",".join(row) for row in labels)]).encode()


def truth(ids: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, CLASSES[TRUTH[IDS.index(name)]]) for name in ids]


def label_all(run: Run) -> None:
    label_actions.import_labels(run, "back/labels.csv", csv_of(truth(ids_of(run))))


def files_of(run: Run) -> dict[str, bytes]:
    return {key: data for number in run.rounds() for key, data in read_labels(run, number)}


def states(run: Run, id: str) -> list[tuple[str | None, str | None, str]]:
    return [(item.label, item.annotator, item.state) for item in label_actions.list_answers(run, id).answers]


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(arguments) == code
    out, err = capsys.readouterr()
    return out or err


def test_times_that_cannot_be_parsed_are_reported(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Else `latest` would go by the order of the files without a word."""
    times = ["31.01.2026 10:00"] * 3 + ["2026-01-31 10:00"] * 17
    rows = [(*row, time) for row, time in zip(truth(ids_of(run)), times, strict=True)]
    (tmp_path / "back.csv").write_bytes(csv_of(rows, "id,label,labelled_at"))
    said = told(capsys, "labels", "import", run.uri, str(tmp_path / "back.csv"))
    assert "3 rows with a labelled_at that is no time, such as '31.01.2026 10:00'; it is ignored: write 2026-" in said
    (tmp_path / "iso.csv").write_bytes(csv_of(rows[3:], "id,label,labelled_at"))
    assert "labelled_at" not in told(capsys, "labels", "import", run.uri, str(tmp_path / "iso.csv"))


# -- the rule of a run -----------------------------------------------------------------------------------


def test_conflict_of_files_is_settled_by_a_rule_or_a_correction(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    first = ids_of(run)[0]
    for text in ("cat", "dog", "dog"):  # as nothing but the log itself would let in
        log_labels(run, "old.csv", csv_of([*truth(ids_of(run)[1:]), (first, text)]) + b"\n" * len(files_of(run)))
    with pytest.raises(LabelError, match=r"in conflict on 1 example.*opacc labels correct.*--conflict majority"):
        accuracy.estimate(run)
    assert "in conflict" in status(run).waits_for
    told(capsys, "labels", "import", run.uri, "--conflict", "error", code=6)
    assert (
        told(capsys, "labels", "import", run.uri, "--conflict", "majority")
        == "rule      majority, where labels differ\n"
    )
    assert accuracy.estimate(run).n == 20
    verbs.next_round(run, 10)
    label_actions.correct(run, first, "owl", "ann")
    label_actions.set_rule(run, "error")
    assert read_rounds(run)[0].truth[0] == "owl"


def test_latest_label_counts_by_its_time_or_by_the_order_of_the_files(run: Run) -> None:
    label_all(run)
    label_actions.set_rule(run, "latest")
    first = ids_of(run)[0]
    for text in ("cat", "dog", "owl"):
        label_actions.import_labels(run, f"{text}.csv", csv_of([(first, text)]))
        assert read_rounds(run)[0].truth[0] == text
    timed = [(first, "dog", "a", "2024-01-02T00:00"), (first, "cat", "b", "2024-01-01T00:00")]
    label_actions.withdraw(run, first)
    label_actions.import_labels(run, "timed.csv", csv_of(timed, "id,label,annotator,labelled_at"))
    assert read_rounds(run)[0].truth[0] == "dog"


def test_rule_of_an_edited_spec_holds_without_another_run(run: Run) -> None:
    spec = run.spec.model_copy(update={"labels": LabelsSpec(conflict="latest")})
    assert spec.identity() == run.spec.identity()
    adopt_rules(run, run.spec)
    assert read_log(run).actions == []
    adopt_rules(run, spec)
    label_actions.set_rule(run, "majority")
    adopt_rules(run, spec)  # the spec says nothing new: the command's word stays
    assert read_log(run).rules.conflict == "majority"
    adopt_rules(run, run.spec)
    assert read_log(run).rules.conflict == "error"


# -- corrections and withdrawals -------------------------------------------------------------------------


def test_correction_outranks_earlier_answers_and_keeps_them(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    label_all(run)
    before, first = files_of(run), ids_of(run)[0]
    right = dict(truth([first]))[first]
    wrong = next(name for name in CLASSES if name != right)
    said = told(capsys, "labels", "correct", run.uri, first, wrong, "--annotator", "ann")
    assert [line.split()[1] for line in said.splitlines()[1:3]] == [repr(right), repr(wrong)]
    assert read_rounds(run)[0].truth[0] == wrong
    assert states(run, first) == [(right, None, "overruled"), (wrong, "ann", "counts")]
    label_actions.import_labels(
        run, "again.csv", csv_of(truth([first]))
    )  # a cumulative export brings the old answer again
    assert read_rounds(run)[0].truth[0] == wrong
    label_actions.correct(run, first, "?", "bob")
    assert read_rounds(run)[0].unsure == (first,)
    label_actions.correct(run, first, right, "bob")
    assert read_rounds(run)[0].truth[0] == right
    assert before.items() <= files_of(run).items()
    assert [item[2] for item in states(run, first)] == ["overruled", "overruled", "overruled", "overruled", "counts"]
    assert f"{len(ids_of(run)) + 4} answers; rule for labels that differ: error" in told(
        capsys, "labels", "list", run.uri
    )


@pytest.mark.parametrize(
    ("id", "label", "annotator", "message"),
    [
        ("no.png", "cat", "ann", "'no.png' was not selected"),
        (None, "horse", "ann", "'horse', which is none of the 3 classes"),
        (None, " ", "ann", "is empty: give a label"),
        (None, "cat", " ", 'annotator " ": give a name'),
        (None, "cat", "a\x1b[31m", r'annotator "a\\u001b\[31m": give a name'),
        (None, "x" * 40_000, "ann", r"40000 characters in the column label, where at most 1000 are"),
    ],
)
def test_correction_that_is_refused_changes_nothing(
    id: str | None, label: str, annotator: str, message: str, run: Run
) -> None:
    with pytest.raises(LabelError, match=message):
        label_actions.correct(run, id or ids_of(run)[0], label, annotator)
    assert (read_log(run).actions, files_of(run)) == ([], {})


def test_withdrawn_label_of_no_class_lets_a_run_go_on(run: Run) -> None:
    log_labels(run, "old.csv", csv_of([*truth(ids_of(run)[1:]), (ids_of(run)[0], "horse")]))
    with pytest.raises(LabelError, match="'horse', which is none of the 3 classes"):
        read_rounds(run)
    assert states(run, ids_of(run)[0]) == [("horse", None, "no label")]
    label_actions.withdraw(run, ids_of(run)[0])
    assert read_rounds(run)[0].missing == (ids_of(run)[0],)
    label_actions.import_labels(run, "new.csv", csv_of(truth(ids_of(run)[:1])))
    assert accuracy.estimate(run).n == 20


def test_withdrawn_file_counts_no_longer_until_it_comes_back(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    label_all(run)
    assert "20 labels of back/labels.csv" in told(capsys, "labels", "withdraw", run.uri, "labels.csv")
    assert len(read_rounds(run)[0].missing) == 20
    assert {item.state for item in label_actions.list_answers(run).answers} == {"withdrawn"}
    with pytest.raises(LabelError, match=r"'labels\.csv' is neither a selected id nor a file"):
        label_actions.withdraw(run, "labels.csv")
    label_all(run)
    assert accuracy.estimate(run).n == 20


@pytest.mark.parametrize("kind", ["corrections", "a file of a later round"])
def test_labels_that_are_lost_before_any_estimate_are_named(
    kind: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    label_all(run)
    first = ids_of(run)[:6]
    for id in first:
        label_actions.correct(run, id, "owl", "cy")
    if kind == "corrections":
        lost = sorted(key for key in files_of(run) if key.endswith(".jsonl"))[:2]
        said = "is lost, with the correction of '.*' by cy"
    else:
        verbs.next_round(run, 10)
        rows = truth(list(run.read_selection(2).ids))
        label_actions.import_labels(run, "second.csv", csv_of(rows))
        [lost] = [label_files(run, 2)]
        said = r"is lost, with the labels of 'second\.csv'"
    kept = {key: run.store.read(key) for key in lost}
    for key in lost:
        run.store.delete(key)
    assert run.read_estimate() is None
    for command in ("estimate", "next"):
        with pytest.raises(
            DataError, match=f"{said}.*restore it or import it again, or `opacc labels withdraw .* to go on"
        ):
            accuracy.estimate(run) if command == "estimate" else verbs.next_round(run, 10)
    assert lost[0] in told(capsys, "status", run.uri, code=5)
    found = {fault.file for fault in verify(run.uri).faults if "is lost, with" in fault.problem}
    assert found == {run.store.uri_of(key) for key in lost}
    for key, data in kept.items():
        run.store.write(key, data)
    assert accuracy.estimate(run).n == 20 + 10 * (kind != "corrections")
    assert not any("is lost, with" in fault.problem for fault in verify(run.uri).faults)


def test_a_lost_file_that_was_withdrawn_or_is_imported_again_is_not_missed(run: Run) -> None:
    label_all(run)
    (key,) = files_of(run)
    run.store.delete(key)
    label_all(run)
    assert accuracy.estimate(run).n == 20
    label_actions.correct(run, ids_of(run)[0], "owl", "cy")
    [name] = {Path(key).name for key in files_of(run)} - {Path(key).name}
    label_actions.withdraw(run, name)
    [correction] = [key for key in files_of(run) if key.endswith(name)]
    run.store.delete(correction)
    run.store.delete("estimate.json")
    assert accuracy.estimate(run).n == 20


def test_action_follows_all_earlier_ones_whatever_the_clocks_show(run: Run) -> None:
    label_all(run)
    ahead = LabelAction(action="rule", at="2100-01-01T00:00:00.000000+00:00", conflict="majority")
    log_action(run, lambda _: ahead)  # by a machine whose clock is wrong
    label_actions.set_rule(run, "latest")
    label_actions.withdraw(run, ids_of(run)[0])
    log = read_log(run)
    assert [action.action for action in log.actions] == ["import", "rule", "rule", "withdraw"]
    assert log.rules.conflict == "latest"
    assert log.actions[2].at > ahead.at


def test_action_that_was_edited_is_named(run: Run) -> None:
    label_all(run)
    entry = run.store.list("log/")[-1]
    run.store.write(entry.key, run.store.read(entry.key).replace(b'"annotator": null', b'"annotator": "eve"'))
    with pytest.raises(DataError, match=r"log/.*\.json was changed since it was written"):
        read_rounds(Run.open(run.uri))
    assert any("was changed since it was written" in fault.problem for fault in verify(run.uri).faults)


def test_a_format_of_a_later_version_is_named_and_not_guessed(run: Run) -> None:
    label_all(run)
    (file,) = read_log(run).returned
    with pytest.raises(LabelError, match=r"has the format coco, which belongs to a later version; update opacc_ray"):
        list(parse(file.content, "coco"))


# -- who wrote a file ------------------------------------------------------------------------------------


def test_the_importer_may_name_the_annotator(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [(name, text, "ann") for name, text in truth(ids_of(run))]
    path = tmp_path / "back.csv"
    path.write_bytes(csv_of(rows, "id,label,annotator"))
    said = told(capsys, "labels", "import", run.uri, str(path), "--annotator", "bob")
    assert "20 rows by others count as bob's" in said
    assert {item.annotator for item in label_actions.list_answers(run).answers} == {"bob"}
    label_actions.import_labels(run, "back.csv", path.read_bytes())
    assert {item.annotator for item in label_actions.list_answers(run).answers} == {"bob"}


# -- regressions -----------------------------------------------------------------------------------------


@pytest.fixture
def regression(tmp_path: Path) -> Run:
    value = np.linspace(0, 1, N)
    made = write_run(
        tmp_path, "values", value + np.where(np.arange(N) % 2, 0.1, 3.0), task="regression", error_scale=0.5
    )
    chosen = verbs.select(made, "srs", 30, {})
    rows = [(name, repr(value[IDS.index(name)].item())) for name in chosen.ids]
    label_actions.import_labels(made, "labels.csv", csv_of(rows))
    return made


def test_error_above_the_scale_scores_0_and_is_counted(regression: Run, capsys: pytest.CaptureFixture[str]) -> None:
    stated = accuracy.estimate(regression)
    near = sum(IDS.index(name) % 2 for name in ids_of(regression))
    assert stated.value == pytest.approx(near / 30 * (1 - 0.2**2))
    assert (stated.clipped, stated.measure) == (30 - near, "mean score, max(0, 1 - (error / 0.5)²)")
    said = told(capsys, "estimate", regression.uri)
    assert "accuracy" not in said
    assert (
        f"measure   mean score, max(0, 1 - (error / 0.5)²); {30 - near} labels beyond the error scale score 0" in said
    )
    assert "accuracy" not in told(capsys, "status", regression.uri)
    assert "accuracy" not in told(capsys, "compare", regression.uri, regression.uri)


def test_estimate_is_stated_again_with_another_score(regression: Run, capsys: pytest.CaptureFixture[str]) -> None:
    near = sum(IDS.index(name) % 2 for name in ids_of(regression))
    stated = json.loads(told(capsys, "estimate", regression.uri, "--score", "within=0.2", "--json"))
    assert (stated["value"], stated["measure"]) == (pytest.approx(near / 30), "share within ±0.2")
    stated = json.loads(told(capsys, "estimate", regression.uri, "--score", "error_scale=10", "--json"))
    assert stated["clipped"] == 0
    assert "--score: within: Input should be greater than 0" in told(
        capsys, "estimate", regression.uri, "--score", "within=-1", code=2
    )


# -- what an import and a withdrawal report ----------------------------------------------------------------


def test_a_withdrawal_names_the_file_the_labels_and_the_rounds(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    label_actions.import_labels(run, "l1.csv", csv_of(truth(ids_of(run)[:17])))
    verbs.next_round(run, 40, close=True)
    file = tmp_path / "l2.csv"
    file.write_bytes(csv_of(truth(run.read_selection(2).ids)))
    told(capsys, "labels", "import", run.uri, str(file))
    verbs.next_round(run, 50)
    found = told(capsys, "labels", "withdraw", run.uri, "l2.csv").splitlines()
    kept = read_log(run).actions[-1].file
    assert found == [
        f"withdrawn  40 labels of {file} (kept as {kept}), for round 2; kept in the log, ignored from now on",
        "round     asked  labelled  missing  can't tell  given up",
        "1            20        17        -           -         3",
        "2            40         -       40           -         -",
        "3            50         -       50           -         -",
        "later      round 3 used them to choose examples; the choice stays",
    ]
    assert "the file was withdrawn before, and counts again" in told(capsys, "labels", "import", run.uri, str(file))
    again = told(capsys, "labels", "import", run.uri, str(file))
    assert "nothing new" in again
    assert "withdrawn" not in again


def test_a_withdrawal_holds_though_other_labels_are_in_conflict(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    label_all(run)
    one, other = ids_of(run)[:2]
    for number, id in enumerate((one, other)):
        wrong = CLASSES[(TRUTH[IDS.index(id)] + 1) % 3]
        log_labels(run, f"{number}.csv", csv_of([(id, wrong)]))
    found = told(capsys, "labels", "withdraw", run.uri, one).splitlines()
    assert found[0].startswith(f"withdrawn  2 labels of {one!r}, for round 1")
    assert found[-1].startswith("rounds     the rounds cannot be counted yet: ")
    assert f"labels in conflict on 1 example(s): {other!r}" in found[-1]


# -- manifests -------------------------------------------------------------------------------------------


def test_ids_that_the_pool_lacks_are_told_from_those_that_were_not_selected(run: Run) -> None:
    there = next(id for id in IDS if id not in run.read_selection(1).ids)
    with pytest.raises(LabelError, match=rf"1 id\(s\) not selected for labelling: '{there}': give --only-selected"):
        label_actions.import_labels(run, "back.csv", f"id,label\n{there},cat\n".encode())
    both = r"2 id\(s\) not selected for labelling: .*: 1 of them not even in the pool, such as 'zzz'; give --only-sel"
    with pytest.raises(LabelError, match=both):
        label_actions.import_labels(run, "back.csv", f"id,label\n{there},cat\nzzz,cat\n".encode())


def test_a_file_of_all_labels_answers_the_selected_examples_alone(run: Run) -> None:
    ids = run.read_selection(1).ids
    data = "id,label,annotator\nother,cat,ann\n" + "".join(f"{id},cat,ann\n" for id in ids[:3]) + f"{ids[3]},,\n"
    refusal = r"1 id\(s\) not in the pool: 'other': .* give --only-selected .*; nothing of the file was taken"
    with pytest.raises(LabelError, match=refusal):
        label_actions.import_labels(run, "truth.csv", data.encode())
    assert not read_rounds(run)[0].labelled.any()
    done = label_actions.import_labels(run, "truth.csv", data.encode(), only_selected=True)
    assert (done.file, done.left_out, done.unknown, done.labels, done.annotators) == ("truth.csv", 0, 1, 3, ["ann"])
    assert read_log(run).actions[-1].source == "truth.csv"
    assert read_rounds(run)[0].labelled.sum() == 3
    assert label_actions.import_labels(run, "truth.csv", data.encode(), only_selected=True).again
    late = f"id,label,labelled_at\nother,cat,\n{ids[0]},cat,2999-01-01T00:00:00Z\n"
    with pytest.raises(LabelError, match=r"truth.csv line 3 was labelled at '2999-01-01T00:00:00Z', which"):
        label_actions.import_labels(run, "truth.csv", late.encode(), only_selected=True)
    other = f"id,label\n{ids[0]},dog\n".encode()
    with pytest.raises(LabelError, match=rf"^truth.csv: labels in conflict on 1 example\(s\): '{ids[0]}' "):
        label_actions.import_labels(run, "truth.csv", other, only_selected=True)
    with pytest.raises(
        LabelError, match=r"truth.csv has no label of a selected example, but 1 rows of others: take ids from"
    ):
        label_actions.import_labels(run, "truth.csv", b"id,label\nother,cat\n", only_selected=True)


def test_a_file_of_all_labels_with_rewritten_ids_is_refused(tmp_path: Path) -> None:
    ids = [f"{k:03}" for k in range(len(IDS))]
    run = write_run(tmp_path, "zeros", PREDICTION, ids, classes=CLASSES)
    chosen = verbs.select(run, "srs", 20, {}).ids
    written, short = [id for id in chosen if id[0] != "0"], [id for id in chosen if id[0] == "0"]
    other = next(id for id in ids if id[0] != "0" and id not in chosen)
    known = "".join(f"{id},cat\n" for id in [*written, other])
    data = f"id,label\n{known}" + "".join(f"{int(id)},cat\n" for id in short)
    with pytest.raises(LabelError, match=rf"{len(short)} id\(s\) not in the pool: .*as numbers.*; nothing of the file"):
        label_actions.import_labels(run, "truth.csv", data.encode(), only_selected=True)
    data = f"id,label\n{known}" + "".join(f"{id},cat\n" for id in [*short, "zzz"])
    done = label_actions.import_labels(run, "truth.csv", data.encode(), only_selected=True)
    assert (done.left_out, done.unknown, done.labels) == (1, 1, 20)


def test_exchanged_columns_are_named(run: Run) -> None:
    rows = "".join(f"cat,{id}\n" for id in run.read_selection(1).ids)
    with pytest.raises(LabelError, match=r"l.csv: the column label holds ids: exchange the columns id and label; not"):
        label_actions.import_labels(run, "l.csv", f"id,label\n{rows}".encode())


def test_a_manifest_that_nobody_filled_in_is_told_from_labels(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path(run.uri, "copy.csv").write_bytes(run.folder(1).read("manifest.csv"))
    said = told(capsys, "labels", "import", run.uri, str(Path(run.uri, "copy.csv")))
    num = len(run.read_selection(1).ids)
    assert f'copy.csv  no label taken: the column "label" of {num} rows is empty\n' in said


# -- numbers where classes have names ----------------------------------------------------------------------------------


def index_of(id: str) -> int:
    return int(TRUTH[IDS.index(id)])


def numbers_of(ids: Sequence[str], first: int = 0) -> bytes:
    """Labels by number, of classes that are counted from ``first``."""
    return ("id,label\n" + "".join(f"{id},{index_of(id) + first}\n" for id in ids)).encode()


CHOICE = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": ["1"]}}
FORMS: dict[str, Callable[[str], str]] = {
    "csv": lambda id: f"id,label\n{id},1\n",
    "semicolons": lambda id: f"id;label\n{id};1.0\n",
    "jsonl": lambda id: json.dumps({"id": id, "label": 1}),
    "array": lambda id: json.dumps([{"id": id, "label": 1}]),
    "label-studio": lambda id: json.dumps([{"data": {"opacc_id": id}, "annotations": [{"result": [CHOICE]}]}]),
    "cvat": lambda id: f'<annotations><image name="{id}"><tag label="1"/></image></annotations>',
    "ground-truth": lambda id: json.dumps(
        {"source-ref": "s3://b/a", "opacc-id": id, "x-metadata": {"class-name": "1"}}
    ),
}
"""A label 1 in the form of each tool."""


@pytest.mark.parametrize("form", FORMS)
def test_a_number_is_refused_in_every_form_and_read_in_every_form_if_asked_for(run: Run, form: str) -> None:
    first = ids_of(run)[0]
    data = FORMS[form](first).encode()
    with pytest.raises(LabelError, match=r"has the label '1(\.0)?', which is a number, and the classes have names"):
        label_actions.import_labels(run, "back", data)
    assert (read_log(run).actions, label_files(run, 1)) == ([], [])
    taken = label_actions.import_labels(run, "back", data, numbers_are_classes=True)
    assert taken.notes == ["1 label is a class number, counted from 0: 1 = 'dog' (1)"]
    assert read_rounds(run)[0].truth == ("dog",)


def test_classes_without_names_are_counted_and_a_missing_0_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, "nameless", PREDICTION)
    ids = verbs.select(run, "srs", 20, {}).ids
    (tmp_path / "back.csv").write_bytes(numbers_of([id for id in ids if index_of(id)]))
    assert main(["labels", "import", run.uri, str(tmp_path / "back.csv")]) == 0
    assert "labels is 0, the first class" in capsys.readouterr().out
    (tmp_path / "more.csv").write_bytes(numbers_of([id for id in ids if not index_of(id)]))
    assert main(["labels", "import", run.uri, str(tmp_path / "more.csv")]) == 0
    assert "numbers" not in capsys.readouterr().out


def test_a_spec_or_an_edited_one_may_set_it(run: Run) -> None:
    ids, first = ids_of(run), ids_of(run)[0]
    with pytest.raises(LabelError, match=f"example '{first}' has the label '1', which is a number"):
        label_actions.correct(run, first, "1", "ann")
    asked = run.spec.model_copy(update={"labels": LabelsSpec(numbers_are_classes=True)})
    assert asked.identity() == run.spec.identity()
    adopt_rules(run, asked)
    adopt_rules(run, asked)
    assert len(read_log(run).actions) == 1
    label_actions.import_labels(run, "numbers.csv", numbers_of(ids))
    label_actions.correct(run, first, "1", "ann")
    adopt_rules(run, run.spec)
    assert not read_log(run).rules.numbers_are_classes
    assert read_rounds(run)[0].truth == ("dog", *(CLASSES[index_of(id)] for id in ids[1:]))
    with pytest.raises(LabelError, match="which is a number"):
        label_actions.import_labels(run, "one.csv", numbers_of(ids[1:2]))


def test_the_page_and_the_notebook_also_refuse_numbers(run: Run) -> None:
    first = ids_of(run)[0]
    with pytest.raises(LabelError, match="'1', which is a number"):
        LabelQueue(run).save("ann", 0, "1")
    for given in ({first: 1}, {first: np.int64(1)}, [{"id": first, "label": "1"}]):
        with pytest.raises(LabelError, match=r"which is a number.*numbers_are_classes=True in Python"):
            Audit(run).add_labels(given)
    assert Audit(run).add_labels({first: 1}, numbers_are_classes=True).labels == 1
    assert read_rounds(run)[0].truth == ("dog",)


@pytest.mark.parametrize("classes", [["1", "2", "3"], ["cat", "dog", " 7"]])
def test_names_that_are_numbers_are_names(tmp_path: Path, classes: list[str]) -> None:
    run = write_run(tmp_path, "digits", PREDICTION, classes=classes)
    ids = verbs.select(run, "srs", 20, {}).ids
    rows = "".join(f"{id},{classes[index_of(id)].strip()}\n" for id in ids)
    data = f"id,label\n{rows}".encode()
    with pytest.raises(
        SpecError, match="--numbers-are-classes cannot be used: a class has a number as its name, so numbers are"
    ):
        label_actions.import_labels(run, "back.csv", data, numbers_are_classes=True)
    taken = label_actions.import_labels(run, "back.csv", data)
    assert (taken.labels, taken.notes) == (20, [])
    assert read_rounds(run)[0].truth == tuple(classes[index_of(id)] for id in ids)
    with pytest.raises(SpecError, match=r"labels\.numbers_are_classes: the name of class '.*' is a number"):
        parse_spec(run.spec.model_dump() | {"labels": {"numbers_are_classes": True}}, "spec")
