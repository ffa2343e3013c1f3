"""Labels that come back to an audit: in pieces, in rounds, in any order, and what is then stated."""

import io
from pathlib import Path

import numpy as np
import pytest
from extracting_here import extracting_here
from logged import read_labels
from picture_audits import answer, labels_for, run_spec
from small_model import network
from small_pictures import picture

from opacc_ray.audit import accuracy, comparison, label_budget, verbs
from opacc_ray.audit.status import status
from opacc_ray.errors import LabelError
from opacc_ray.labels import label_actions, label_log
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs import feature_store
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


def test_labels_in_pieces_twice_and_out_of_order_end_in_the_same_estimate(run: Run) -> None:
    header, *rows = labels_for(run).splitlines()
    pieces = [b"\n".join([header, *rows[25:]]), b"\n".join([header, *rows[:30][::-1]])]
    assert label_actions.import_labels(run, "b.csv", pieces[0]).to_dict()["missing"] == 25
    with pytest.raises(LabelError, match="25 of 40 labels are missing"):
        accuracy.estimate(run)
    partial = accuracy.estimate(run, partial=True).to_dict()
    assert (partial["n"], partial["missing"], partial["design_based"]) == (15, 25, False)
    for name, piece in (("a.csv", pieces[1]), ("again.csv", pieces[0])):
        label_actions.import_labels(run, name, piece)
    in_pieces = accuracy.estimate(run).model_dump(exclude={"label_files"})
    forget_labels(run)
    label_actions.import_labels(run, "all.csv", labels_for(run))
    assert accuracy.estimate(run).model_dump(exclude={"label_files"}) == in_pieces


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


def test_next_round_waits_for_labels_or_closes(run: Run) -> None:
    header, *rows = answer(run, 1).splitlines()
    label_actions.import_labels(run, "some.csv", b"\n".join([header, *rows[:30]]))
    with pytest.raises(LabelError, match=r"round 1 of .* needs 10 labels.*--close"):
        verbs.next_round(run, 10)
    verbs.next_round(run, 10, close=True)
    assert status(run).to_dict()["rounds"][0]["given_up"] == 10
    before = accuracy.estimate(run).to_dict()
    assert (before["n"], before["missing"], before["given_up"]) == (30, 10, 10), "round 2 has no label yet"
    label_actions.import_labels(run, "two.csv", answer(run, 2))
    result = accuracy.estimate(run).to_dict()
    assert (result["n"], result["given_up"]) == (40, 10)
    assert "missing at random" in result["reason"]


def test_closed_round_of_a_sequential_method_keeps_its_design(run: Run) -> None:
    verbs.select(run, "srs", 20, {})
    header, *rows = answer(run, 1).splitlines()
    label_actions.import_labels(run, "first.csv", b"\n".join([header, *rows[:12]]))
    result = accuracy.estimate(run, partial=True).to_dict()
    assert (result["n"], result["design_based"], result["reason"]) == (12, True, None)


def test_example_drawn_twice_is_labelled_once(run: Run) -> None:
    chosen = verbs.select(run, "sups", 80, {"auxiliary": "confidence"})
    assert len(set(chosen.ids)) < 80
    manifest = run.store.read("rounds/1/manifest.jsonl").splitlines()
    assert len(manifest) == len(set(chosen.ids))
    label_actions.import_labels(run, "all.csv", answer(run, 1))
    assert accuracy.estimate(run).to_dict()["n"] == 80


def test_estimate_says_more_than_one_number(run: Run) -> None:
    label_actions.import_labels(run, "one.csv", answer(run, 1))
    result = accuracy.estimate(run).to_dict()
    assert result["srs"]["n"] == 40
    assert result["sequence"]["low"] <= result["low"]
    assert result["high"] <= result["sequence"]["high"]
    assert set(result["by_predicted_class"]) <= {"0", "1", "2", "3"}
    pool = result["pool_by_predicted_class"]
    with feature_store.open_view(run, ["prediction"]) as view:
        assert pool == {str(c): int((view.column("prediction") == int(c)).sum()) for c in pool}
    share = np.array(result["confusion"]["share"])
    assert share.sum() == pytest.approx(1)
    most = max(pool, key=lambda c: pool[c])
    column = share[:, result["confusion"]["classes"].index(most)]
    assert column.sum() == pytest.approx(pool[most] / 120)


def test_another_model_on_the_same_pictures_in_another_order(run: Run, spec, bucket: str, tmp_path: Path) -> None:
    """The other run reads the pictures from one array file, last picture first, and has not been labelled."""
    import torch
    from PIL import Image
    from safetensors.torch import save

    net = network()
    torch.manual_seed(1)
    torch.nn.init.normal_(net.last.weight)
    open_store(bucket).write("other.safetensors", save(net.state_dict()))
    rows = np.stack([np.asarray(Image.open(io.BytesIO(picture(i)))) for i in range(119, -1, -1)])
    np.savez(tmp_path / "pool.npz", x=rows, ids=[f"{i:03d}.png" for i in range(119, -1, -1)])
    model = {"factory": "small_model:network", "weights": f"{bucket}/other.safetensors"}
    with extracting_here():
        other = run_spec(spec(name="other", model=model, pool={"uri": str(tmp_path), "format": "npy"}))
    with pytest.raises(LabelError, match=r"has a label yet: fill in a copy of .*manifest"):
        comparison.compare(run, other)
    label_actions.import_labels(run, "labels.csv", labels_for(run))
    result = comparison.compare(run, other).to_dict()
    said = net(torch.tensor(rows[:, None] / np.float32(255))).argmax(dim=1).numpy()[::-1]
    label = dict(line.decode().split(",") for line in labels_for(run).splitlines()[1:])
    right = [said[int(name[:3])] == int(text) for name, text in label.items()]
    assert 0 < np.mean(right) < 0.9
    assert result["first"]["value"] == pytest.approx(0.9)
    assert result["second"]["value"] == pytest.approx(np.mean(right))
    assert result["difference"]["value"] == pytest.approx(0.9 - np.mean(right))
    assert not result["same_listing"]


def test_labels_to_go_until_precise_enough(run: Run) -> None:
    with pytest.raises(LabelError, match="has a label yet"):
        label_budget.look_for_goal(run, 0.1)
    label_actions.import_labels(run, "one.csv", answer(run, 1))
    assert label_budget.look_for_goal(run, 0.9).reached
    few, many = (label_budget.look_for_goal(run, width).labels_to_go for width in (0.05, 0.01))
    assert 0 < few < many <= 80


def test_replicates_give_an_interval_of_their_own(run: Run) -> None:
    verbs.select(run, "ces", 40, {"initial": 2, "candidates": 20}, replicates=4)
    label_actions.import_labels(run, "one.csv", answer(run, 1))
    result = accuracy.estimate(run).to_dict()
    assert result["interval"] == "4 replicates"
    assert result["design_based"]
