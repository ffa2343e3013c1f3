"""A run whose labels serve several models: what it draws, and how `opacc compare` states all of them."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from extracting_here import extracting_here
from local_s3 import LocalS3
from small_model import network, trained
from small_pictures import picture
from small_spec import small_spec
from written_run import CLASSES, CONFIDENCE, IDS, OTHER, PREDICTION, TRUTH, N, label, write_run

import opacc_ray as opacc
from opacc_ray.audit import accuracy, comparison, verbs
from opacc_ray.audit.checks import check
from opacc_ray.cli.command import terminal_text
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.model_comparison import compare_outcomes
from opacc_ray.labels import label_actions
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.report import answers
from opacc_ray.runs.run import Run
from opacc_ray.samplers import neyman
from opacc_ray.samplers.select import select
from opacc_ray.spec import parse_spec

THIRD = np.where(np.random.default_rng(5).random(N) < 0.8, TRUTH, (TRUTH + 1) % 3)
SAID = (PREDICTION, OTHER, THIRD)
OUTCOMES = np.array([(said == TRUTH).astype(float) for said in SAID])
POOLS = [
    opacc.Pool(ids=IDS, hidden=np.ones((N, 5)), confidence=CONFIDENCE.astype(np.float32), prediction=said)
    for said in SAID
]


@pytest.fixture
def others(tmp_path: Path) -> list[Run]:
    return [write_run(tmp_path, name, said, classes=CLASSES) for name, said in (("b", OTHER), ("c", THIRD))]


@pytest.fixture
def run(tmp_path: Path, others: list[Run]) -> Run:
    sample = {"method": "neyman", "budget": 40, "models": [other.uri for other in others]}
    return write_run(tmp_path, "a", PREDICTION, sections={"sample": sample}, classes=CLASSES)


def test_every_round_of_a_run_is_drawn_for_all_models_and_knows_how_each_did(run: Run, others: list[Run]) -> None:
    first = verbs.select(run, "neyman", 40, {})
    expected = opacc.select(POOLS, "neyman", 40)
    assert first.index.tolist() == expected.index.tolist()
    label(run, first.ids)
    second = verbs.next_round(run, 60)
    rows = OUTCOMES[:, first.index]
    assert second.index.tolist() == select(POOLS, "neyman", 60, previous=[(first, rows)]).index.tolist()
    label(run, second.ids)
    found = comparison.compare(run, *others)
    assert found.predicted
    assert found.same_listing
    plain = compare_outcomes([first, second], [rows, OUTCOMES[:, second.index]], pools=POOLS)
    assert [own.accuracy.value for own in found.models] == pytest.approx([own.value for own in plain.models])
    assert [own.best for own in found.models] == pytest.approx(plain.best)
    assert [(pair.first, pair.second) for pair in found.differences] == [
        (run.uri, others[0].uri),
        (run.uri, others[1].uri),
        (others[0].uri, others[1].uri),
    ]
    for pair, item in zip(found.differences, plain.differences, strict=True):
        assert (pair.difference.low, pair.difference.high) == pytest.approx((item.difference.low, item.difference.high))
    assert found.models[0].accuracy.value == accuracy.estimate(run).value
    lines = terminal_text(answers.comparison(found)).splitlines()
    assert [line[:10].strip() for line in lines[:8]] == [
        *("model 1", "model 2", "model 3", "1 - 2", "1 - 3", "2 - 3", "best", "together")
    ]
    assert lines[7].endswith("all differences hold with 95 % confidence")


def test_models_with_equal_predictions_are_reported_as_equal(run: Run, tmp_path: Path) -> None:
    same = [write_run(tmp_path, name, PREDICTION, classes=CLASSES) for name in ("same", "again")]
    label(run, verbs.select(run, "neyman", 40, {}).ids)
    found = comparison.compare(run, same[0])
    assert "best      none: all predictions are equal" in terminal_text(answers.comparison(found))
    unknown = found.model_copy(update={"differences": [found.differences[0].model_copy(update={"num_unlike": None})]})
    assert "none: the models are equal on all labels so far" in terminal_text(answers.comparison(unknown))
    several = comparison.compare(run, *same)
    assert "best      none: all predictions are equal" in terminal_text(answers.comparison(several))


def test_a_method_for_one_model_serves_it_alone_and_compares_all(run: Run, others: list[Run]) -> None:
    chosen = verbs.select(run, "css", 60, {})
    assert chosen.index.tolist() == opacc.select(POOLS[0], "css", 60).index.tolist()
    label(run, chosen.ids)
    found = comparison.compare(run, *others)
    assert not found.predicted
    assert sum(own.best for own in found.models) == pytest.approx(1)
    assert found.models[1].accuracy.value == pytest.approx(estimate_outcomes(chosen, OUTCOMES[1, chosen.index]).value)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["neyman", "srs"])
def test_another_metric_is_compared_as_from_python(
    method: str, run: Run, others: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = verbs.select(run, method, 80, {})
    label(run, chosen.ids)
    kept = {"ids": IDS, "hidden": np.ones((N, 5)), "confidence": CONFIDENCE.astype(np.float32), "classes": CLASSES}
    pools = [opacc.Pool(**kept, prediction=said) for said in SAID]
    labels = {name: CLASSES[TRUTH[IDS.index(name)]] for name in chosen.ids}
    for metric in ("macro_f1", f"recall@{CLASSES[1]}"):
        found = comparison.compare(run, *others, metric=metric)
        expected = opacc.compare(chosen, labels=labels, pools=pools, metric=metric)
        assert found.measure == metric
        assert [own.accuracy.value for own in found.models] == pytest.approx([own.value for own in expected.models])
        assert [own.best for own in found.models] == pytest.approx(list(expected.best))
        for pair, item in zip(found.differences, expected.differences, strict=True):
            ends = item.difference.low, item.difference.high
            assert (pair.difference.low, pair.difference.high) == pytest.approx(ends)
    stated = comparison.compare(run, others[0], metric="macro_f1")
    assert main(["compare", run.uri, others[0].uri, "--metric", "macro_f1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == stated.to_dict()
    told = terminal_text(answers.comparison(stated))
    assert re.search("^measure +macro_f1$", told, re.MULTILINE)
    first, second = (own.accuracy.value for own in stated.models)
    apart = abs(first - second - stated.differences[0].difference.value)
    assert ("it is not what subtracting them gives" in told) == (apart >= answers.ROUNDED)
    with pytest.raises(SpecError, match="brier is not compared between models; estimate it for each, or compare the"):
        comparison.compare(run, others[0], metric="brier")
    with pytest.raises(SpecError, match="brier is not compared between models; estimate it for each, or compare the"):
        opacc.compare(chosen, labels=labels, pools=pools, metric="brier")
    with pytest.raises(SpecError, match='metric f1@cow has the class "cow"'):
        comparison.compare(run, others[0], metric="f1@cow")


def test_a_pool_in_another_order_is_compared_by_ids_and_by_the_design_alone(tmp_path: Path, run: Run) -> None:
    order = np.random.default_rng(1).permutation(N)
    other = write_run(tmp_path, "d", OTHER[order], [IDS[i] for i in order], "b", classes=CLASSES)
    chosen = verbs.select(run, "neyman", 60, {})
    label(run, chosen.ids)
    found = comparison.compare(run, other)
    assert not found.predicted
    expected = compare_outcomes(chosen, OUTCOMES[:2, chosen.index])
    assert found.differences[0].difference.value == pytest.approx(expected.differences[0].difference.value)
    sample = {"method": "neyman", "budget": 40, "models": [other.uri]}
    with pytest.raises(DataError, match=r"in the first pool and .* in pool 2; give"):
        verbs.select(
            write_run(tmp_path, "e", PREDICTION, sections={"sample": sample}, classes=CLASSES), "neyman", 60, {}
        )


def test_models_that_labels_cannot_serve_are_refused_by_the_spec() -> None:
    content = {"name": "x", "pool": {"uri": "p", "format": "images"}, "model": {"factory": "user:net"}, "output": "o"}
    for sample, message in (
        ({"method": "css", "budget": 10, "models": ["r"]}, "models is not supported for method 'css'"),
        ({"budget": 10, "models": []}, "sample.models"),
    ):
        with pytest.raises(SpecError, match=message):
            parse_spec(content | {"sample": sample}, "spec.yaml")


SIX = IDS[:6]


@pytest.mark.parametrize(
    ("ids", "policy", "message"),
    [
        (SIX, "twice", r"sample.models names .*/other twice; give each run once"),
        (None, "error", r"there is no run at .*other"),
        (SIX[:5], "error", r"other holds 5 examples and .*/pool/? 6; give runs on the same pool in sample\.models"),
        (IDS[:7], "exclude", r"other holds 7 examples and .*/pool/? 6; give runs on"),
        (
            [*SIX[:4], SIX[5], SIX[4]],
            "error",
            r"example 4 is '004.png' in the first pool and '005.png' in pool 2; give",
        ),
        (SIX, "error", None),
        (SIX[:5], "exclude", None),  # the run may leave the sixth out, too
    ],
)
def test_a_run_on_another_pool_is_found_before_anything_is_extracted(
    ids: list[str] | None, policy: str, message: str | None, tmp_path: Path
) -> None:
    (tmp_path / "pool").mkdir()
    for name in SIX:
        (tmp_path / "pool" / name).write_bytes(picture(0))
    if ids is not None:
        write_run(tmp_path, "other", OTHER[: len(ids)], ids)
    sample = {"method": "neyman", "budget": 5, "models": [f"{tmp_path}/other"]}
    if policy == "twice":
        sample["models"], policy = [f"{tmp_path}/other", f"{tmp_path}/other/"], "error"
    content = small_spec(str(tmp_path), f"{tmp_path}/audits", sample=sample, extract={"on_bad_item": policy})
    content["model"] = {"factory": "small_model:network"}
    spec = parse_spec(content, "spec.yaml")
    made, failure = check(spec, "spec.yaml")
    found = {item.name: item for item in made.checks}
    if message is None:
        assert failure is None
        assert found["models"].found == "1 other model in addition to the spec's own"
        return
    assert [name for name, item in found.items() if not item.ok] == ["models"]
    assert re.search(message, found["models"].found)
    with pytest.raises(OpaccError, match=message):
        verbs.start(spec)
    assert not (tmp_path / "audits").exists()


def write_arrow(store: Store, key: str, table: pa.Table) -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    store.write(key, sink.getvalue())


def test_candidates_that_were_extracted_are_drawn_for_together_from_a_column_of_the_users_own(s3: LocalS3) -> None:
    """120 pictures in an Arrow file, of which a judge says where the trained model fails; the other is untrained."""
    from safetensors.torch import save

    store = open_store(s3.create_bucket("candidates"))
    fails = np.arange(120) % 8 == 1
    table = {"id": [f"{i:03d}" for i in range(120)], "png": [picture(i) for i in range(120)], "judge": 1.0 - fails}
    write_arrow(store, "pool/data.arrow", pa.table(table))
    uris = []
    for name, net in (("old", network()), ("new", trained())):
        store.write(f"{name}.safetensors", save(net.state_dict()))
        content = small_spec(store.uri, f"{store.uri}/audits", name=name, sample={"method": "neyman", "budget": 40})
        content["pool"] |= {"format": "huggingface", "columns": {"id": "id", "image": "png", "judges": "judge"}}
        content["model"] |= {"weights": f"{store.uri}/{name}.safetensors"}
        content["sample"] |= {"models": list(uris)} if uris else {}
        with extracting_here():
            uris.append(verbs.first_round(parse_spec(content, "spec.yaml")).uri)
    old, new = map(Run.open, uris)
    chosen = new.read_selection(1)
    with comparison.open_views(new, [old], (), neyman.Parameters()) as views:
        expected = opacc.select(views, "neyman", 40, 3, history=opacc.History(judges={"judge": 1.0 - fails}))
        unjudged = opacc.select(views, "neyman", 40, 3)
    assert chosen.index.tolist() == expected.index.tolist() != unjudged.index.tolist()
    rows = "".join(f"{i:03d},{2 if fails[i] else i % 4}\n" for i in chosen.index)
    label_actions.import_labels(new, "1.csv", ("id,label\n" + rows).encode())
    found = comparison.compare(new, old)
    assert found.predicted
    better = found.models[0].accuracy
    assert better.low <= 1 - fails.mean() <= better.high
    assert found.differences[0].difference.low > 0
