"""Labels of unchanged examples count in the next audit of a pool that grew."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tables import parquet

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.status import newest_round, status
from opacc_ray.cli.command import terminal_text
from opacc_ray.cli.main import main
from opacc_ray.designs.inclusion_probability import Grown
from opacc_ray.errors import LabelError
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.extensions.outputs.outputs import remove_runs
from opacc_ray.labels import label_actions
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.report import answers
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

SIZE = 600


def example(i: int) -> tuple[float, bool]:
    """Confidence and correctness of an example, the same in all pools."""
    random = np.random.default_rng(i)
    confidence = float(random.uniform(0.5, 1))
    return confidence, bool(random.random() < confidence)


def rows(numbers: range) -> pa.Table:
    return pa.table(
        {
            "id": [f"row-{i}" for i in numbers],
            "prediction": [0 for _ in numbers],
            "confidence": [example(i)[0] for i in numbers],
        }
    )


@pytest.fixture
def pool(tmp_path: Path) -> Store:
    """Twelve files of 50 rows."""
    store = open_store(str(tmp_path / "pool"))
    store.write_many((f"{k:02d}.parquet", parquet(rows(range(50 * k, 50 * k + 50)))) for k in range(SIZE // 50))
    return store


def audit(pool: Store, **sections: Any) -> Run:
    columns = {"id": "id", "prediction": "prediction", "confidence": "confidence"}
    content = {
        "name": "weekly",
        "pool": {"uri": pool.uri, "format": "features", "columns": columns},
        "model": {"classes": ["right", "wrong"]},
        "sample": {"method": "neyman", "budget": 60},
        "output": f"{pool.uri}-audits",
    }
    return verbs.first_round(parse_spec(content | sections, "spec"))


def label(run: Run, ids: list[str] | None = None) -> None:
    number = run.rounds()[-1]
    chosen = run.read_chosen(number)
    left = [name for name, known in zip(chosen.ids, chosen.labelled, strict=True) if not known] if ids is None else ids
    said = (f"{name},{'right' if example(int(name[4:]))[1] else 'wrong'}" for name in left)
    label_actions.import_labels(run, "labels.csv", "\n".join(["id,label", *said]).encode())


def truth(run: Run) -> float:
    ids = [
        name
        for part in range(len(run.complete_features().features.files))
        for name in run.complete_features().features.ids(part)
    ]
    return float(np.mean([example(int(name[4:]))[1] for name in ids]))


def grow(pool: Store) -> None:
    """A file of 60 new rows, one that is changed and one that is gone."""
    pool.write("99.parquet", parquet(rows(range(1000, 1060))))
    pool.write("03.parquet", parquet(rows(range(2000, 2050))))
    pool.delete("07.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["neyman", "srs", "css"])
def test_labels_of_unchanged_examples_count_in_the_next_run(
    method: str, pool: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sample = {"method": method, "budget": 60}
    first = audit(pool, sample=sample)
    label(first)
    grow(pool)
    second = audit(pool, sample=sample)
    selection = second.read_selection(1)
    assert isinstance(selection.design, Grown)
    kept = [
        name
        for name in first.read_selection(1).ids
        if not 150 <= int(name[4:]) < 200 and not 350 <= int(name[4:]) < 400
    ]
    facts = selection.facts["carried"]
    assert facts == {"run": first.name, "labels": len(kept), "of": 60, "share": 500 / 610, "new": 110}
    assert selection.ids[: len(kept)] == tuple(kept)
    drawn = selection.ids[len(kept) :]
    assert len(drawn) == 11  # 60 · 110/610, rounded up
    assert all(int(name[4:]) >= 1000 for name in drawn)
    said = f"{len(kept)} labels of {first.name} still count, for 82.0 % of the pool"
    assert any(message.startswith(said) for message in caplog.messages)
    assert any("drawn from the 110 new or changed ones" in message for message in caplog.messages)
    manifest = second.folder(1).read("manifest.csv").decode().splitlines()
    assert len(manifest) == 1 + 11  # only the new ones wait for a label
    assert status(second).rounds[0].missing == 11
    with pytest.raises(LabelError, match="none of the new or changed examples has a label"):
        accuracy.estimate(second, partial=True)
    label(second)
    found = accuracy.estimate(second)
    assert found.notes == []
    sliced = accuracy.estimate(second, by=["prediction"]).notes
    assert [text[:41] for text in sliced] == ["Labels of an earlier run are carried, so "] * (method == "neyman")
    assert accuracy.estimate(first, by=["prediction"]).notes == []
    assert found.design_based
    assert found.n == len(kept) + 11
    assert found.low <= truth(second) <= found.high
    assert verify(second.uri).sound
    verbs.next_round(second, 20)
    label(second)
    more = accuracy.estimate(second)
    assert more.n == found.n + 20
    assert more.low <= truth(second) <= more.high
    assert verify(second.uri).sound


@pytest.mark.slow
def test_labels_are_carried_on_and_on(pool: Store) -> None:
    """For ten weeks: the labels of the first run that are left still count in the last."""
    run = audit(pool)
    label(run)
    for week in range(1, 5):
        pool.write(f"9{week}.parquet", parquet(rows(range(3000 + 30 * week, 3030 + 30 * week))))
        run = audit(pool)
        label(run)
        assert run.read_selection(1).facts["carried"]["labels"] == 60 + 10 * (week - 1)
    found = accuracy.estimate(run)
    assert found.n == 100
    assert found.low <= truth(run) <= found.high


def test_what_carried_labels_assume_is_stated_in_the_next_run(pool: Store) -> None:
    first = audit(pool, sample={"method": "srs", "budget": 60})
    ids = first.read_selection(1).ids
    label(first, list(ids[7:]))
    unsure = "".join(f"{name},?\n" for name in ids[:7])
    label_actions.import_labels(first, "unsure.csv", f"id,label\n{unsure}".encode())
    assumed = accuracy.estimate(first).reason
    assert assumed == "7 of 60 labels of round 1 are assumed to be missing at random"
    for week in (1, 2):
        pool.write(f"9{week}.parquet", parquet(rows(range(3000 + 30 * week, 3030 + 30 * week))))
        run = audit(pool, sample={"method": "srs", "budget": 60})
        label(run)
        found = accuracy.estimate(run)
        assumed = f"of the labels carried over from {first.name}, {assumed}"
        assert (found.reason, found.design_based) == (assumed, False), week
        first = run


def test_differences_of_annotators_that_are_not_carried_over_are_stated(pool: Store) -> None:
    first = audit(pool, sample={"method": "srs", "budget": 60}, labels={"conflict": "latest"})
    ids = first.read_selection(1).ids
    for annotator, changed in (("ann", 0), ("bob", 8)):
        said = (
            f"{name},{'right' if example(int(name[4:]))[1] != (k < changed) else 'wrong'}" for k, name in enumerate(ids)
        )
        label_actions.import_labels(
            first, f"{annotator}.csv", "\n".join(["id,label", *said]).encode(), annotator=annotator
        )
    assert accuracy.estimate(first).reason is None
    pool.write("91.parquet", parquet(rows(range(3000, 3030))))
    run = audit(pool, sample={"method": "srs", "budget": 60}, labels={"conflict": "latest"})
    label(run)
    said = (
        f"of the labels carried over from {first.name}, errors that differences of annotators show are not allowed for"
    )
    assert accuracy.estimate(run).reason == said


def test_interrupted_import_of_carried_labels_is_made_up_for(pool: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    label(audit(pool))
    grow(pool)
    with monkeypatch.context() as patch:
        patch.setattr(verbs, "import_carried", lambda run: None)
        second = audit(pool)
        assert status(second).rounds[0].labelled == 0
    audit(pool)
    counts = status(second).rounds[0]
    assert counts.labelled == second.read_selection(1).facts["carried"]["labels"]
    assert counts.missing == 11


def test_fresh_draws_and_unlabelled_runs_carry_nothing(pool: Store) -> None:
    label(audit(pool))
    grow(pool)
    fresh = audit(pool, sample={"method": "neyman", "budget": 60, "fresh": True})
    assert "carried" not in fresh.read_selection(1).facts
    assert len(fresh.read_selection(1)) == 60
    unlabelled = audit(pool)  # its new part waits for labels
    pool.write("98.parquet", parquet(rows(range(4000, 4010))))
    later = audit(pool)
    carried = later.read_selection(1).facts["carried"]["run"]
    assert carried not in (fresh.name, unlabelled.name)


def test_labels_of_a_run_with_another_budget_are_named(pool: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "opacc_ray")
    before = audit(pool)
    label(before)
    assert not caplog.messages
    later = audit(pool, sample={"method": "neyman", "budget": 80})
    assert later.uri != before.uri
    [said] = caplog.messages
    assert said.startswith(f"{before.name} has 60 labels of the same pool: `opacc next")
    assert f"`opacc labels import {later.uri} {before.uri}`" in said


def test_labels_of_a_run_that_waits_for_more_are_named(pool: Store, caplog: pytest.LogCaptureFixture) -> None:
    first = audit(pool)
    label(first)
    grow(pool)
    second = audit(pool)
    left = read_left(second)
    label(second, left[1:])
    pool.write("98.parquet", parquet(rows(range(4000, 4010))))
    third = audit(pool)
    assert third.read_selection(1).facts["carried"]["run"] == first.name
    said = (
        f"{len(left) - 1} labels of {second.name} are not used, because 1 is missing: import it "
        f"(? for can't tell), then `opacc runs remove {third.uri} --force` and run again"
    )
    assert caplog.messages.count(said) == 1
    told = " ".join(terminal_text(answers.drawn(newest_round(third))).split())
    assert f"already labelled, in {first.name}; not in the manifests" in told
    assert f"by neyman, {len(read_left(third))} of them to be labelled" in told
    label(second, left[:1])
    remove_runs(third.uri, force=True)
    assert audit(pool).read_selection(1).facts["carried"]["run"] == second.name


def test_a_correction_names_the_later_runs_that_carry_the_label(
    pool: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    first = audit(pool)
    label(first)
    later = []
    for week in (1, 2):
        pool.write(f"9{week}.parquet", parquet(rows(range(3000 + 30 * week, 3030 + 30 * week))))
        later.append(audit(pool))
        label(later[-1])
    own, new = first.read_selection(1).ids[0], later[1].read_selection(1).ids[-1]

    def told(verb: str, run: Run, *rest: str) -> list[str]:
        capsys.readouterr()
        assert main(["labels", verb, run.uri, *rest]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith(("note", "next"))]

    rest = [own, "wrong", "--annotator", "ann"]
    assert told("correct", first, *rest) == [
        "note      2 later runs carry the label as it was; correct it there as well",
        *(f"next: opacc labels correct {run.uri} {own} wrong --annotator ann" for run in later),
    ]
    assert told("correct", later[0], *rest)[1:] == [
        f"next: opacc labels correct {later[1].uri} {own} wrong --annotator ann"
    ]
    assert told("withdraw", later[1], own) == []
    assert told("correct", first, *rest) == []
    assert told("correct", later[1], new, "wrong", "--annotator", "ann") == []


def test_a_changed_file_ends_the_labels_of_all_its_rows(pool: Store, caplog: pytest.LogCaptureFixture) -> None:
    for key in [entry.key for entry in pool.list()]:
        pool.delete(key)
    pool.write("all.parquet", parquet(rows(range(200))))
    first = audit(pool)
    label(first)
    pool.write("all.parquet", parquet(rows(range(201))))
    assert "carried" not in audit(pool).read_selection(1).facts
    [said] = [text for text in caplog.messages if text.startswith(f"the 60 labels of {first.name} do not count here")]
    assert "add rows as a new file to a folder" in said


def read_left(run: Run) -> list[str]:
    chosen = run.read_chosen(1)
    return [name for name, known in zip(chosen.ids, chosen.labelled, strict=True) if not known]


def test_samples_without_probabilities_are_not_carried(pool: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sample = {"method": "sups", "budget": 60, "auxiliary": "confidence"}
    first = audit(pool, sample=sample)
    label(first)
    grow(pool)
    assert "carried" not in audit(pool, sample=sample).read_selection(1).facts
    said = f"the labels of {first.name} are not carried over: a sample by sups does not keep its probabilities"
    assert said in caplog.messages
