"""The demo, without a Ray of its own."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from extracting_here import extracting_here
from packed import verified_pack

from opacc_ray.extensions.demo.audit import run_demo
from opacc_ray.labels import label_actions
from opacc_ray.report.facts import Fact
from opacc_ray.runs.run import Run


@pytest.mark.slow
def test_demo_covers_the_truth(tmp_path: Path, told: Callable[..., tuple[int, str, str]]) -> None:
    with extracting_here():
        code, out, err = told("demo", "--json", "--folder", str(tmp_path))
    assert code == 0, err
    result = json.loads(out)
    stated = result["estimate"]
    assert stated["low"] < result["true_accuracy"] < stated["high"]
    assert stated["n"] == 100
    assert 0.8 < result["true_accuracy"] < 0.95
    rounds = [(item["method"], item["budget"], item["labelled"]) for item in result["estimate"]["rounds"]]
    assert rounds == [("neyman", 40, 40), ("neyman", 60, 60)]
    assert (tmp_path / "audits").is_dir()
    assert len(list(tmp_path.glob("labels-*.csv"))) == 2
    assert "extract: 4 of 4 shards" in err
    assert "data:image/" in Path(result["report"]).read_text()
    assert "Meets 85" in Path(result["report"]).read_text()


@pytest.mark.slow
def test_the_user_labels_ten_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "opacc-demo").mkdir()  # of an earlier demo

    def person(run: Run) -> None:
        chosen = [str(id) for id in run.read_selection(3).ids]
        assert len(chosen) == 10
        rows = "".join(f"{id},7\n" for id in chosen[:8])
        label_actions.import_labels(run, "person.csv", f"id,label\n{rows}".encode())

    with extracting_here():
        result, lines = run_demo(ask=person)
    assert Path(result.folder) == tmp_path / "opacc-demo-2"
    assert [(item.labelled, item.given_up) for item in result.estimate.rounds] == [(40, 0), (60, 0), (8, 2)]
    verified_pack(Run.open(result.run), tmp_path)
    assert result.agreed is not None
    assert lines[0] == Fact("you labelled", f"8 scans, {result.agreed} of them right")
    assert not any("opacc next" in line for line in lines if isinstance(line, str))
