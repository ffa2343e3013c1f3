"""What a pack states is recomputed without opacc to 1e-12: accuracy, metrics, slices, classes; of every design."""

import importlib
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from consistent_edits import make_keys
from recomputed_pack import recomputed, verify_pack
from tables import parquet

from opacc_ray.audit import accuracy, goals, pack_verifier, verbs
from opacc_ray.audit.evidence import sign
from opacc_ray.audit.evidence_pack import pack
from opacc_ray.errors import DataError
from opacc_ray.labels.label_actions import correct, import_labels
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

CLASSES = ["cat", "dog", "owl"]
SIZE = 240


def audit(
    home: Path,
    method: str,
    budgets: Sequence[int],
    kind: str = "classes",
    metrics: Sequence[str] = ("f1@cat", "recall@dog", "mcc@owl", "macro_f1"),
    sample_of: Any = None,
    **sample: Any,
) -> Run:
    """A run over a table, all rounds labelled: with three or two classes, counts or numbers."""
    rng, num = np.random.default_rng(3), 2 if kind == "two classes" else 3
    truth, sure = rng.integers(0, 3, SIZE), rng.uniform(0.4, 1, SIZE)
    columns = {
        "id": [f"{i}" for i in range(SIZE)],
        "prediction": np.minimum(np.where(rng.random(SIZE) < sure, truth, (truth + 1) % 3), num - 1),
        "confidence": sure,
        "camera": np.array(["front", "rear", "side"])[rng.choice(3, SIZE, p=[0.5, 0.45, 0.05])],
        "hidden": list(rng.normal(size=(SIZE, 4)).astype(np.float32) + sure[:, None].astype(np.float32)),
        "output": list(rng.normal(size=(SIZE, 3)).astype(np.float32)),
        "gpt": [(None, "?", "right", "wrong")[k] for k in rng.integers(0, 4, SIZE)],
    }
    open_store(str(home / "pool")).write("0.parquet", parquet(pa.table(columns)))
    names: dict[str, Any] = {name: name for name in columns if name not in ("camera", "gpt")}
    if method == "neyman" and "classes" in kind:
        names["judges"] = ["gpt"]
    if "classes" not in kind:
        del names["output"], names["prediction" if kind == "counts" else "confidence"]
    content: dict[str, Any] = {
        "name": method,
        "pool": {
            "uri": str(home / "pool"),
            "format": "features",
            "columns": names,
            "slices": ["camera"],
            "sample_of": sample_of,
        },
        "sample": {"method": method, "budget": budgets[0], **sample},
        "output": str(home / "audits"),
    }
    head, answers = "id,label,annotator", [f"{CLASSES[c]},ann" for c in truth]
    if kind == "classes":
        content |= {"model": {"classes": CLASSES}, "metrics": list(metrics)}
    elif kind == "two classes":
        answers = [f"{CLASSES[min(c, 1)]},ann" for c in truth]
        content |= {"model": {"classes": CLASSES[:2]}, "metrics": list(metrics)}
    elif kind == "counts":
        hits, misses = rng.poisson(3, SIZE), rng.poisson(1, SIZE)
        head, answers = "id,tp,fn", [f"{a},{b}" for a, b in zip(hits, misses, strict=True)]
        metrics = ["tp / (tp + fn)", "1 - fn / (tp + fn)", "fn / tp"]
        content |= {"model": {"task": "counts", "counts": ["tp", "fn"]}, "metrics": metrics}
    else:
        answers = [f"{own + rng.normal() * 0.2},ann" for own in columns["prediction"]]
        content |= {"model": {"task": "regression", "error_scale": 1.0}}
    run = verbs.run(parse_spec(content, "spec"))
    for number, budget in enumerate(budgets):
        chosen = verbs.next_round(run, budget) if number else run.read_selection(1)
        rows = "".join(f"{own},{answers[int(own)]}\n" for own in dict.fromkeys(chosen.ids))
        import_labels(run, f"{number}.csv", f"{head}\n{rows}".encode())
    return run


TWO_ROUNDS = ("srs", "css", "deepest", "neyman", "sups", "rhcs", "ssrs", "gbs", "two_ups")
CASES = [
    *((method, (30, 40), {}) for method in TWO_ROUNDS),
    *((method, (40,), {}) for method in ("srs", "css", "ces", "neyman", "sups", "rhcs", "deepest")),
    ("ces", (60,), {"replicates": 4, "initial": 5}),
    ("srs", (200, 40), {}),
]
OF_CONFIDENCE = ("brier", "overconfidence", "calibration_error", "auc@dog", "average_precision@cat", "f1@dog")


@pytest.mark.parametrize(("method", "budgets", "sample"), CASES, ids=str)
def test_all_numbers_of_a_method_are_recomputed(
    method: str, budgets: Sequence[int], sample: dict[str, Any], tmp_path: Path
) -> None:
    run = audit(tmp_path, method, budgets, **sample)
    accuracy.estimate(run, assist=method not in ("neyman", "gbs"))
    recomputed(run, tmp_path)


@pytest.mark.parametrize(
    ("kind", "method"), [*(("counts", own) for own in ("srs", "css", "neyman", "two_ups")), ("numbers", "srs")]
)
def test_counts_and_scores_are_recomputed(kind: str, method: str, tmp_path: Path) -> None:
    run = audit(tmp_path, method, (30, 40), kind)
    accuracy.estimate(run)
    recomputed(run, tmp_path)


@pytest.mark.parametrize("method", ["srs", "css", "neyman"])
def test_confidence_costs_and_populations_are_recomputed(method: str, tmp_path: Path) -> None:
    for name, own in {"more": "more", "400": 400, "cameras": {"camera": 9}}.items():
        run = audit(tmp_path / name, method, (30, 40), "two classes", (*OF_CONFIDENCE, "macro_recall"), own)
        costs = {"cat": 3.0} if name == "more" else {"cat": 3.0, "dog": 3.0}
        found = accuracy.estimate(run, costs=costs, by=["camera", "prediction", "truth"])
        assert found.allows_for == ["sampling of the pool"]
        recomputed(run, tmp_path)


@pytest.mark.parametrize(("kind", "method"), [("classes", "neyman"), ("two classes", "srs"), ("counts", "css")])
def test_stopping_and_label_noise_are_recomputed(kind: str, method: str, tmp_path: Path) -> None:
    metrics = ("f1@cat", "macro_f1", *OF_CONFIDENCE) if kind == "two classes" else ("f1@cat", "macro_f1")
    run = audit(tmp_path, method, (120,), kind, metrics)
    head, rows = "id,label,annotator", [f"{own},{CLASSES[own % 2]},bo" for own in range(SIZE)]
    if kind == "counts":
        head, rows = "id,tp,fn,annotator", [f"{own},{own % 4},{own % 3},bo" for own in range(SIZE)]
    other = [rows[int(own)] for own in run.read_selection(1).ids[:60]]
    import_labels(run, "bo.csv", "\n".join([head, *other, ""]).encode(), conflict="latest")
    assert goals.next_until(run, 0.5).reached
    noise = ["label noise"] * (kind != "counts")
    assert accuracy.estimate(run).allows_for == ["stopping", *noise]
    recomputed(run, tmp_path)


@pytest.mark.parametrize("method", ["neyman", "deepest", "css"])
def test_an_estimate_without_labels_that_are_gone_is_recomputed(method: str, tmp_path: Path) -> None:
    run = audit(tmp_path, method, (30, 40))
    for id in run.read_selection(1).ids[3:6]:
        correct(run, id, "?", "ann")
    assert accuracy.estimate(run, partial=True).unsure == 3
    recomputed(run, tmp_path)


def opened(file: Path) -> tuple[dict[str, bytes], dict[str, Any], dict[str, Any]]:
    """The files of a pack, what its estimate was computed from, and the estimate."""
    with zipfile.ZipFile(file) as archive:
        files = {item: archive.read(item) for item in archive.namelist()}
    own = json.loads(files["numbers/main.json"])
    return files, own, json.loads(files[own["estimate"]])


def edited(document: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each number and yes or no of a document: its path, and the dict or list that has it with the key."""
    for key in list(document) if isinstance(document, dict) else range(len(document)):
        if isinstance(document[key], dict | list):
            yield from edited(document[key], f"{path}{key}/")
        elif isinstance(document[key], int | float):
            yield f"{path}{key}", document, key


def test_each_stated_number_is_named_if_it_is_off_by_a_millionth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = audit(tmp_path, "neyman", (120,), "two classes", ("macro_f1", *OF_CONFIDENCE), 400)
    other = "".join(f"{own},{CLASSES[int(own) % 2]},bo\n" for own in run.read_selection(1).ids)
    import_labels(run, "bo.csv", f"id,label,annotator\n{other}".encode(), conflict="latest")
    accuracy.estimate(run, costs={"cat": 3.0}, by=["camera", "prediction", "truth"])
    recomputed(run, tmp_path)
    _, own, document = opened(tmp_path / "evidence.zip")
    monkeypatch.syspath_prepend(str(Path(pack_verifier.__file__).parent))
    compare, document_of = pack_verifier.compare, importlib.import_module("pack_statement").document_of
    found, facts, num = document_of(own, document), set(pack_verifier.FACTS), 0
    for path, place, key in edited(document):
        if facts & set(path.split("/")) or key == "design_based":
            continue
        before, rest, num = place[key], list[str](), num + 1
        place[key] = not before if isinstance(before, bool) else before + 1e-6
        off = [name for name, _, _, gap in compare(document, found, "", 0.95, rest) if gap > 1e-9]
        assert (off, rest) == ([path], [])
        place[key] = before
    assert num > 150
    assert list(document["judges"]) == ["gpt"]


def test_the_second_interval_of_a_rare_class_is_recomputed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    score = np.where(rng.random(8000) < 0.02, 0.9, 0.0001)
    columns = {
        "id": [f"{i}" for i in range(8000)],
        "prediction": score > 0.5,
        "confidence": np.maximum(score, 1 - score),
    }
    open_store(str(tmp_path / "pool")).write("0.parquet", parquet(pa.table(columns)))
    content = {
        "name": "pairs",
        "pool": {"uri": str(tmp_path / "pool"), "format": "features", "columns": {name: name for name in columns}},
        "model": {"classes": ["no", "yes"]},
        "metrics": ["recall@yes"],
        "sample": {"method": "neyman", "budget": 200},
        "output": str(tmp_path / "audits"),
    }
    run = verbs.run(parse_spec(content, "spec"))
    rows = "".join(f"{own},{'yes' if rng.random() < score[int(own)] else 'no'}\n" for own in run.read_selection(1).ids)
    import_labels(run, "a.csv", f"id,label\n{rows}".encode())
    assert accuracy.estimate(run).metrics["recall@yes"].if_predicted is not None
    recomputed(run, tmp_path)


def test_what_differs_is_named(tmp_path: Path) -> None:
    run = audit(tmp_path, "css", (40,))
    accuracy.estimate(run)
    recomputed(run, tmp_path)
    files, numbers, _ = opened(tmp_path / "evidence.zip")

    def verified(**changed: Any) -> tuple[int, str]:
        own = {name.replace("__", "/"): json.dumps(content).encode() for name, content in changed.items()}
        with zipfile.ZipFile(tmp_path / "edited.zip", "w") as archive:
            for item, data in {**files, "numbers/main.json": own["numbers"]}.items():
                archive.writestr(item, data)
        return verify_pack(tmp_path / "edited.zip")

    item = numbers["rounds"][0]
    item["outcome"][0] = 1 - item["outcome"][0]
    code, text = verified(numbers=numbers)
    assert (code, "by_design/value is 0." in text, "outcome of" in text) == (1, True, True)
    item["outcome"][0] = 1 - item["outcome"][0]
    item["design"]["sizes"][0] += 1
    code, text = verified(numbers=numbers)
    assert code == 1
    assert "round 1 is not as the log has it: examples, or their probabilities\n" in text
    item["design"]["sizes"][0] -= 1
    assert verified(numbers=numbers)[0] == 0
    accuracy.estimate(run, level=0.9)
    pack(run, str(tmp_path / "evidence.zip"))
    files = opened(tmp_path / "evidence.zip")[0]
    assert verify_pack(tmp_path / "evidence.zip")[1].count("not recomputed: 1 earlier estimates of the log\n") == 1
    code, text = verified(numbers=numbers)
    assert (code, "numbers/main.json is not about the newest estimate of its track" in text) == (1, True)


def test_what_nothing_covers_is_named(tmp_path: Path) -> None:
    run, file = audit(tmp_path, "css", (40,)), tmp_path / "evidence.zip"
    with pytest.raises(DataError, match="has no estimate, so a pack would state no number; run `opacc estimate` first"):
        pack(run, str(file))
    accuracy.estimate(run)
    private, public = make_keys(tmp_path, "ann")
    _, other = make_keys(tmp_path, "mallory")
    sign(run, "ann", "auditor", private)
    pack(run, str(file))
    files = opened(file)[0]
    [signature] = [name for name in files if name.startswith("signatures/")]
    of_numbers = [name for name in files if name.startswith("numbers/")]

    def verified(*keys: str, without: Sequence[str] = (), **more: bytes) -> tuple[int, list[str]]:
        with zipfile.ZipFile(tmp_path / "edited.zip", "w") as archive:
            for item, data in (files | {f"{name}.json": data for name, data in more.items()}).items():
                if item not in without:
                    archive.writestr(item, data)
        code, text = verify_pack(tmp_path / "edited.zip", *keys)
        return code, text.splitlines()

    start, end = "covered by neither the log nor a signature that was checked: ", "everything else agrees"
    code, lines = verified()
    small = "SHEET.md, listing.parquet, sanity.json"
    assert (code, lines[-2:]) == (0, [f"{start}{small}, spec.json", end])
    assert "1 of the signatures not checked: no key is given" in lines
    code, lines = verified(public)
    assert (code, lines[-2:]) == (0, [f"{start}SHEET.md", end])
    assert not any("not checked" in line for line in lines)
    assert verified(public, extra=b"{}")[1][-2] == f"{start}SHEET.md, extra.json"
    code, lines = verified(public, spec=files["spec.json"] + b" ")
    assert (code, lines[-1]) == (1, f"spec.json is not the one of {signature}")
    code, lines = verified(other)
    assert (code, lines[-1]) == (1, "no signature by this key")
    assert "1 of the signatures not checked: they are by other keys" in lines
    code, lines = verified(public, without=of_numbers)
    assert (code, lines[-1]) == (1, "numbers/main.json is missing: the log has an estimate")
    log = sorted(name for name in files if name.startswith("log/"))
    first = next(k for k, name in enumerate(log) if "opacc-stated/1" in files[name].decode())
    code, lines = verified(without=[*of_numbers, *log[first:]])
    assert (code, "no number is stated: the log has no estimate" in lines) == (0, True)


def test_a_pack_or_a_key_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    run, file = audit(tmp_path, "srs", (40,)), tmp_path / "evidence.zip"
    accuracy.estimate(run)
    pack(run, str(file))
    private, _ = make_keys(tmp_path, "ann")
    (tmp_path / "flipped.zip").write_bytes(bytes(b ^ 255 * (k == 3000) for k, b in enumerate(file.read_bytes())))
    for name in ("nothing.zip", "flipped.zip"):
        code, text = verify_pack(tmp_path / name)
        assert (code, text.count("\n")) == (2, 1)
        assert text.startswith(f"{tmp_path}/{name} is no pack that can be read (")
    for key, why in (("nothing.pem", "cannot be read: "), (private, "is no public key: give what `openssl pkey")):
        code, text = verify_pack(file, str(tmp_path / key))
        assert (code, why in text.splitlines()[-1]) == (2, True)
