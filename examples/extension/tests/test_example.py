"""An audit by the parts of this package, each by its name."""

import json
from pathlib import Path

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.cli.main import main

CLASSES = ("cat", "dog")
RNG = np.random.default_rng(7)
TRUTH = RNG.integers(2, size=400)
PREDICTION = np.where(RNG.random(400) < 0.85, TRUTH, 1 - TRUTH)

SPEC = """
name: example
pool: {{uri: {folder}/pool, format: arff, columns: {{id: id, prediction: prediction}}}}
model: {{classes: [cat, dog]}}
sample: {{method: class_strata, budget: 60}}
output: {folder}/audits
"""


def write_arff(path: Path, header: str, rows: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["@relation test", *header.split("; "), "@data", *rows, ""]))


def test_an_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for start in (0, 200):
        rows = [f"e{i},{CLASSES[PREDICTION[i]]}" for i in range(start, start + 200)]
        write_arff(tmp_path / "pool" / f"{start}.arff", "@attribute id string; @attribute prediction {cat, dog}", rows)
    (tmp_path / "spec.yaml").write_text(SPEC.format(folder=tmp_path))
    assert main(["run", str(tmp_path / "spec.yaml")]) in (0, 7)  # 7: it waits for labels
    [uri] = (str(path) for path in (tmp_path / "audits").glob("example-*"))
    ids = [item.id for item in opacc.Audit.open(uri).labels_needed()]
    predicted = PREDICTION[[int(id[1:]) for id in ids]]
    assert abs(np.mean(predicted) - np.mean(PREDICTION)) < 1 / len(ids)  # in proportion to the classes of the pool

    answers = [f"{id},{CLASSES[TRUTH[int(id[1:])]]}" for id in ids]
    write_arff(tmp_path / "labels.arff", "@attribute id string; @attribute label string", answers)
    assert main(["labels", "import", uri, str(tmp_path / "labels.arff")]) == 0
    capsys.readouterr()
    assert main(["estimate", uri, "--json"]) == 0
    estimate = json.loads(capsys.readouterr().out)
    assert estimate["n"] == 60
    assert estimate["low"] < np.mean(PREDICTION == TRUTH) < estimate["high"]

    assert main(["kish", uri, "--json"]) == 0
    [own] = json.loads(capsys.readouterr().out)["rounds"]
    assert own["labels"] == 60
    assert own["effective"] == pytest.approx(60, abs=0.5)  # proportional allocation has nearly equal weights
    report = opacc.Audit.open(uri).report()
    assert "Effective labels" in Path(report.files[0]).read_text()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    from opacc_example.arff import parse

    for content in (b"@data", b"@relation r\n1,2", b"@relation r\n@attribute id string\n@data\n1,2\n"):
        with pytest.raises(opacc.OpaccError, match=r"pool\.arff is not valid ARFF"):
            parse(content, "pool.arff")
