"""A study measures what it says: SRS comes out as theory has it, and workers and interruptions change nothing."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from small_study import N, arrays, cell_of, results_of, spec_of

from opacc_ray.cli.main import main
from opacc_ray.errors import DataError
from opacc_ray.extensions.study import trials


def lasting(results: dict[str, Any]) -> str:
    """All that must not depend on when, where and how fast."""
    plain = json.loads(json.dumps(results))
    del plain["created"], plain["spec"]["output"], plain["spec"]["workers"]
    for cell in plain["cells"]:
        del cell["milliseconds"]
    return json.dumps(plain)


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_srs_comes_out_as_theory_has_it(cases: Path, tmp_path: Path) -> None:
    repetitions = 160
    spec = spec_of(cases / "full.npz", tmp_path, methods=["srs", "css"], budgets=[20, 60], repetitions=repetitions)
    results = results_of(spec)
    accuracy = results["cases"][0]["accuracy"]
    assert accuracy == arrays()["correct"].mean()
    least = binom.ppf(1e-4, repetitions, 0.95) / repetitions
    for budget in (20, 60):
        srs, css = (cell_of(results, "full", method, budget) for method in ("srs", "css"))
        for cell in (srs, css):  # both are unbiased
            assert abs(cell["bias"]) < 4 * cell["bias_standard_error"] < 1
            assert cell["coverage"] >= least
            assert cell["design_based"]
        low, high = srs["efficiency_interval"]
        assert abs(math.log(srs["efficiency"])) < 2 * math.log(high / low) / 2  # of twice 1.96 standard errors
        assert high / low < 1.8
        assert abs(srs["failures"] - budget * (1 - accuracy)) < 0.5
        assert css["failures"] > 1.3 * srs["failures"]  # it looks where confidence is low
        assert (srs["labels"], srs["draws"], srs["repetitions"]) == (budget, budget, repetitions)
    assert cell_of(results, "full", "srs", 60)["width"] < cell_of(results, "full", "srs", 20)["width"]


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_results_lie_in_the_folder(cases: Path, tmp_path: Path) -> None:
    methods = ["srs", "css", "ces:candidates=10", {"method": "gbs", "rounds": [1, 1], "label": "a|b <i>"}]
    results = results_of(spec_of(cases, tmp_path, methods=methods, budgets=[30, 40, 200]), command="opacc study x")
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert results["not_possible"] == [{"case": "table", "method": "ces:candidates=10", "reason": "needs hidden"}]
    assert len(results["cells"]) == 3 * 7
    text = (tmp_path / "table.md").read_text()
    assert "opacc study x" in text
    assert text.count("needs hidden") == 4  # at each budget, and among the details of the case
    assert "a\\|b &lt;i>" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1
    bound = results["cases"][0]["bound"]
    assert set(bound) == {"30", "40", "200"}
    assert all(0 < least < 1 for least in bound.values())
    assert text.count("\n| bound ") == 3
    srs = cell_of(results, "table", "srs", 30)
    assert f"| {srs['bias']:+.2f} ± {srs['bias_standard_error']:.2f} " in text
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"errors.svg", "failures.svg"}


class TestWork:
    @pytest.mark.usefixtures("ray_cluster")
    def test_workers_and_interruptions_change_nothing(
        self, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trials, "BLOCK_SIZE", 8)
        study = {"methods": ["srs", "ces:candidates=10", "neyman:rounds=2"], "seed": 3}
        alone = results_of(spec_of(cases, tmp_path / "1", workers=1, **study))
        together = results_of(spec_of(cases, tmp_path / "2", workers=2, **study))
        assert lasting(alone) == lasting(together)

        def interrupt(done: int, total: int) -> None:
            if done == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            results_of(spec_of(cases, tmp_path / "3", workers=2, **study), interrupt)
        assert not (tmp_path / "3" / "results.json").exists()
        told: list[tuple[int, int]] = []
        resumed = results_of(spec_of(cases, tmp_path / "3", **study), lambda done, total: told.append((done, total)))
        assert told[0] == (5, 15)  # what was done is kept: 3 blocks for each of 5 cells
        assert told[-1] == (15, 15)
        assert lasting(resumed) == lasting(alone)

    @pytest.mark.usefixtures("in_process")
    def test_only_what_is_new_is_run(self, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trials, "BLOCK_SIZE", 10)
        first = results_of(spec_of(cases / "full.npz", tmp_path))
        told: list[int] = []
        grown = {"repetitions": 30, "methods": ["srs", "css"]}
        more = results_of(spec_of(cases / "full.npz", tmp_path, **grown), lambda done, total: told.append(done))
        assert told == [2, 3, 4, 5, 6]
        assert cell_of(more, "full", "srs", 30)["repetitions"] == 30
        told.clear()
        again = results_of(spec_of(cases / "full.npz", tmp_path), lambda done, total: told.append(done))
        assert told == [2]
        assert lasting(again) == lasting(first)
        results_of(spec_of(cases / "full.npz", tmp_path, seed=1), lambda done, total: told.append(done))
        assert told == [2, 0, 1, 2]

    @pytest.mark.usefixtures("in_process")
    def test_from_the_terminal(self, cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        written = tmp_path / "study.yaml"
        written.write_text("methods: [srs]\nbudgets: [200]\nrepetitions: 5\noutput: nowhere\n")
        options = ["--method", "css:fractions=[0.5,0.5],allocation=[0.4,0.6]", "--method", "srs", "--budget", "20"]
        common = [str(cases / "table.csv"), *options, "--output", str(tmp_path / "out")]
        assert main(["study", str(written), *common]) == 0
        out, err = capsys.readouterr()
        assert out.startswith("# Study\n\n5 repetitions, seed 0")
        assert "| css:allocation=[0.4,0.6],fractions=[0.5,0.5] | 20 " in out
        assert out.endswith(f"results    {tmp_path / 'out'}\n")
        assert "study: 2 of 2 blocks" in err
        assert main(["study", *common, "--as", "icse2024", "--repetitions", "2"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("# Guerriero, Pietrantuono, Russo")
        assert "# Study" not in out  # of all measures, only the tables of the paper
        assert out.endswith(f"measures   {tmp_path / 'out' / 'table.md'}\nresults    {tmp_path / 'out'}\n")
        assert main(["study", *common, "--repetitions", "5", "--json"]) == 0
        results = json.loads(capsys.readouterr().out)
        assert [cell["budget"] for cell in results["cells"]] == [20, 20]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--method", "srs", "--budget", "300"], 2, "budget=300: case full holds 300 examples; give a smaller budget"),
        (["--method", "neyman:rounds=5", "--budget", "3"], 2, "budget=3 in rounds=5 .* gives batches of"),
        (
            ["--method", "lure", "--budget", "1"],
            2,
            "budget=1 of method 'lure': .* give at least 2, or remove the method",
        ),
        (["--method", "ssr", "--budget", "3"], 2, "no method 'ssr'; did you mean 'ssrs'"),
        (["--method", "deepest:auxiliary=dsa", "--budget", "3"], 5, "no method is possible on any case: .*needs dsa"),
        (["--method", "srs"], 2, "no budgets given; add --budget 100"),
        (["--budget", "10"], 2, "no methods given; add --method ces"),
        (["nowhere.npz", "--method", "srs", "--budget", "3"], 3, "cannot read .*nowhere.npz"),
        (["nowhere", "--method", "srs", "--budget", "3"], 3, "cannot list .*nowhere: there is no such folder"),
    ],
)
def test_bad_input_is_one_sentence(
    options: list[str], code: int, message: str, cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["study", str(cases / "full.npz"), *options, "--output", str(tmp_path / "out")]
    assert main(given) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert re.search(message, err)
    assert not (tmp_path / "out").exists()


def test_case_without_failures_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "perfect.npz", **(arrays() | {"correct": np.ones(N)}))
    with pytest.raises(DataError, match="case perfect: every outcome is 1"):
        results_of(spec_of(tmp_path / "perfect.npz", tmp_path / "out"))
