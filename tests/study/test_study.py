"""A study measures what it says: SRS comes out as theory has it, and workers and interruptions change nothing."""

import json
import math
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binom

import opacc_ray as opacc
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.lake.storage import open_store
from opacc_ray.spec import read_yaml, validated
from opacc_ray.study import experiment, plots, trials
from opacc_ray.study.cases import Case, Source, find_cases, read_case
from opacc_ray.study.experiment import run_study
from opacc_ray.study.measures import measure, truth_of
from opacc_ray.study.spec import CaseSpec, MethodSpec, StudySpec, parse_method
from opacc_ray.study.table import _facts
from opacc_ray.study.trials import Block, Cell, Trial, decode, encode, run_block

N = 300


def arrays() -> dict[str, np.ndarray]:
    """A classifier of 0.8 or so, right more often where it is confident."""
    rng = np.random.default_rng(7)
    confidence = rng.uniform(0.3, 1, N)
    correct = rng.random(N) < 0.35 + 0.62 * confidence
    hidden = np.column_stack([confidence + rng.normal(0, 0.1, N), rng.normal(size=(N, 3))]).astype(np.float32)
    return {"hidden": hidden, "Pred": rng.integers(0, 10, N), "confidence": confidence, "correct": correct}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a case that has all features, and one with a table of numbers only."""
    folder = tmp_path_factory.mktemp("cases")
    full = arrays()
    np.savez(folder / "full.npz", **full)
    words = np.where(full["correct"], "Pass", "Fail")
    rows = [f"{i},{word},{c!r}\r\n" for i, (word, c) in enumerate(zip(words, full["confidence"].tolist(), strict=True))]
    text = "ID,Outcome(Pass/Fail),CONFIDENCE\r\n" + "".join(rows)
    (folder / "table.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    return folder


def spec_of(folder: Path | str, output: Path | str, **content: Any) -> StudySpec:
    given = {"cases": [str(folder)], "methods": ["srs"], "budgets": [30], "repetitions": 20, "output": str(output)}
    return validated(StudySpec, given | content, "test")


def results_of(*arguments: Any, **options: Any) -> dict[str, Any]:
    """What results.json holds of a study."""
    return run_study(*arguments, **options).to_dict()


def cell_of(results: dict[str, Any], case: str, method: str, budget: int) -> dict[str, Any]:
    wanted = (case, method, budget)
    return next(cell for cell in results["cells"] if (cell["case"], cell["method"], cell["budget"]) == wanted)


def lasting(results: dict[str, Any]) -> str:
    """All that must not depend on when, where and how fast."""
    plain = json.loads(json.dumps(results))
    del plain["created"], plain["spec"]["output"], plain["spec"]["workers"]
    for cell in plain["cells"]:
        del cell["milliseconds"]
    return json.dumps(plain)


@pytest.mark.usefixtures("ray_cluster")
class TestOnRay:
    def test_srs_comes_out_as_theory_has_it(self, cases: Path, tmp_path: Path) -> None:
        repetitions = 250
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

    def test_results_lie_in_the_folder(self, cases: Path, tmp_path: Path) -> None:
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
        for case in ("full", "table"):
            picture = (tmp_path / "figures" / f"{case}.png").read_bytes()
            assert picture.startswith(b"\x89PNG")
            assert min(struct.unpack(">II", picture[16:24])) > 400
            drawn = "".join(ElementTree.parse(tmp_path / "figures" / f"{case}.svg").getroot().itertext())
            assert all(
                word in drawn for word in ("srs", "SRS in theory", "bound", "labels", "Failing examples found", case)
            )
            assert ("ces" in drawn) == (case == "full")

    def test_cases_and_results_in_object_storage(self, cases: Path, bucket: str) -> None:
        store = open_store(bucket)
        store.write("lake/full.npz", (cases / "full.npz").read_bytes())
        store.write("lake/notes.txt", b"not a case")
        results = results_of(spec_of(f"{bucket}/lake", f"{bucket}/out"))
        assert json.loads(store.read("out/results.json")) == results
        assert len(store.list("out/blocks/")) == 1

    def test_error_names_case_method_budget_and_seed(self, tmp_path: Path) -> None:
        broken = arrays() | {"output": np.zeros((N, 2))}
        broken["output"][17, 1] = math.nan
        np.savez(tmp_path / "broken.npz", **broken)
        place = r"case broken, method ces:layer=output, budget 30, repetition 0 \(seed \d+\): .*NaN"
        with pytest.raises(DataError, match=place):
            results_of(spec_of(tmp_path / "broken.npz", tmp_path / "out", methods=["ces:layer=output"]))

    def test_confidence_assists(self, cases: Path, tmp_path: Path) -> None:
        np.savez(tmp_path / "blind.npz", correct=arrays()["correct"], hidden=arrays()["hidden"])
        methods = ["srs", {"method": "srs", "assist": True}]
        spec = spec_of(cases / "full.npz", tmp_path / "out", methods=methods, repetitions=200)
        plain, assisted = results_of(spec)["cells"]
        assert assisted["method"] == "srs:assist=true"
        assert assisted["efficiency"] < 0.95 * plain["efficiency"]
        blind = results_of(spec_of(tmp_path / "blind.npz", tmp_path / "out", methods=methods))
        assert blind["not_possible"] == [{"case": "blind", "method": "srs:assist=true", "reason": "needs confidence"}]

    def test_nothing_gains_from_a_shuffled_feature(self, cases: Path, tmp_path: Path) -> None:
        """And results say that it is shuffled; the block of another order is another block."""
        common = {"methods": ["css"], "repetitions": 100}
        plain = results_of(spec_of(cases / "full.npz", tmp_path, **common))
        control = results_of(spec_of(cases / "full.npz", tmp_path, **common, shuffle=["confidence"]))
        found, in_vain = (cell_of(results, "full", "css", 30)["failures"] for results in (plain, control))
        assert found > 1.3 * in_vain
        assert in_vain == pytest.approx(30 * (1 - plain["cases"][0]["accuracy"]), abs=1)
        assert control["cases"][0]["shuffled"] == ["confidence"]
        assert "; confidence in random order." in (tmp_path / "table.md").read_text()

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
        assert main(["study", *common, "--repetitions", "5", "--json"]) == 0
        results = json.loads(capsys.readouterr().out)
        assert [cell["budget"] for cell in results["cells"]] == [20, 20]


def source(path: Path, **options: Any) -> Source:
    return find_cases([CaseSpec(path=str(path), **options)], {}, None)[0]


def block(path: Path, method: str, budget: int = 30, stop: int = 3) -> Block:
    case = read_case(source(path)).source
    return Block(Cell(case, MethodSpec(**parse_method(method)), budget, 5, 0.95, stop), 0, stop)


class TestRepetitions:
    def test_one_can_be_repeated_alone(self, cases: Path) -> None:
        work = block(cases / "full.npz", "css")
        found = run_block(work)
        full = arrays()
        pool = opacc.Pool(confidence=full["confidence"])
        for repetition, trial in enumerate(found):
            chosen = opacc.select(pool, "css", 30, seed=work.cell.seed_of(repetition))
            estimate = opacc.estimate(chosen, full["correct"][chosen.index])
            assert (trial.value, trial.low, trial.high) == (estimate.value, estimate.low, estimate.high)
            assert trial.failures == (~full["correct"])[chosen.index].sum()
        assert len({trial.value for trial in found}) > 1

    def test_seeds_differ_between_cells_and_repetitions(self, cases: Path) -> None:
        cells = [block(cases / "full.npz", method, budget).cell for method in ("srs", "css") for budget in (20, 30)]
        cells.append(cells[0]._replace(seed=6))
        seeds = {cell.seed_of(repetition) for cell in cells for repetition in range(50)}
        assert len(seeds) == 250
        assert all(0 <= seed < 2**63 for seed in seeds)
        assert len({cell.key for cell in cells}) == 5

    def test_content_and_reading_of_a_case_are_part_of_the_key(self, cases: Path) -> None:
        cell = block(cases / "full.npz", "srs").cell
        changes = ({"columns": (("outcome", "x"),)}, {"error_scale": 2.0}, {"digest": "other"})
        others = [replace(cell.source, **change) for change in changes]
        assert len({cell.key, *(cell._replace(source=other).key for other in others)}) == 4

    def test_rounds_learn_from_outcomes(self, cases: Path) -> None:
        trial = run_block(block(cases / "full.npz", "neyman:rounds=3", 60, 1))[0]
        once = run_block(block(cases / "full.npz", "neyman", 60, 1))[0]
        assert (trial.draws, trial.labels) == (60, 60)
        assert trial.design_based
        assert trial.value != once.value

    def test_a_changed_case_is_noticed(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "case.npz", **arrays())
        known = read_case(source(tmp_path / "case.npz")).source
        np.savez(tmp_path / "case.npz", **(arrays() | {"correct": np.ones(N)}))
        with pytest.raises(DataError, match="has changed since the study began"):
            read_case(known)

    def test_encoding_loses_nothing(self, cases: Path) -> None:
        found = run_block(block(cases / "full.npz", "srs"))
        assert decode(encode(found)) == found


def test_measures_worked_by_hand() -> None:
    truth = truth_of(np.array([1.0] * 6 + [0.0] * 4))  # θ = 0.6, S² = 10/9 · 0.24
    assert truth.variance == pytest.approx(0.8 / 3)
    deviation = math.sqrt(0.8 / 3 * (1 / 2 - 1 / 10))
    plain = Trial(0.5, 0.1, 0.6, 2, 2, 1.0, 0.001, "some", True)  # holds θ at its end
    far = plain._replace(value=1.0, low=0.7, high=1.0, failures=0.0, seconds=0.003)
    found = measure([plain, plain, far, far], truth)
    assert found["mean"] == 0.75
    assert found["bias"] == pytest.approx(0.15 / deviation)
    assert found["bias_standard_error"] == pytest.approx(0.5 / math.sqrt(3) / deviation / 2)
    assert found["mse"] == pytest.approx((0.01 + 0.16) / 2)
    assert found["efficiency"] == pytest.approx(0.085 / deviation**2)
    half = 1.959964 * (0.15 / math.sqrt(3)) / 0.085 / 2
    assert found["efficiency_interval"] == pytest.approx([found["efficiency"] * math.exp(x) for x in (-half, half)])
    assert (found["coverage"], found["failures"]) == (0.5, 0.5)
    assert found["width"] == pytest.approx(0.4)
    assert found["milliseconds"] == 2.0
    alone = measure([plain, plain], truth)  # as of a method without chance
    assert alone["efficiency_interval"] is alone["bias_standard_error"] is alone["coverage_interval"] is None
    assert measure([plain], truth_of(np.array([0.2, 0.9, 0.7])))["failures"] is None  # scores do not fail


class TestCases:
    def test_one_case_in_three_formats(self, cases: Path, tmp_path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        full = arrays()
        columns = {name.upper(): list(values) if values.ndim == 2 else values for name, values in full.items()}
        pq.write_table(pa.table(columns), tmp_path / "full.parquet")
        from_npz, from_parquet = (read_case(source(path)) for path in (cases / "full.npz", tmp_path / "full.parquet"))
        from_csv = read_case(source(cases / "table.csv"))
        pools = [case.view.parts.pools[0] for case in (from_npz, from_parquet, from_csv)]  # type: ignore[attr-defined]
        assert np.array_equal(pools[0].hidden, pools[1].hidden)
        assert np.array_equal(pools[0].prediction, full["Pred"])
        assert pools[2].fields == {"confidence"}
        for case, pool in zip((from_npz, from_parquet, from_csv), pools, strict=True):
            assert np.array_equal(case.outcome, full["correct"])
            assert np.array_equal(pool.confidence, full["confidence"])

    @pytest.mark.parametrize(
        ("columns", "options", "outcome"),
        [
            ({"squared_error": [0.0, 1.0, 4.0]}, {}, [1, 0.75, 0]),  # by the largest error
            ({"squared_error": [0.0, 1.0, 4.0]}, {"error_scale": 4.0}, [1, 15 / 16, 0.75]),
            ({"squared_error": [0.0, 1.0, 4.0]}, {"error_scale": 1.0}, [1, 0, 0]),
            ({"pred": [1.0, 2.0, 5.0], "target": [1.0, 3.0, 3.0]}, {}, [1, 0.75, 0]),
            ({"pred": [1, 2, 5], "label": [1, 3, 5]}, {}, [1, 0, 1]),
            ({"pred": ["a", "b", "c"], "label": ["a", "c", "c"]}, {}, [1, 0, 1]),
            ({"outcome": [0.5, 0, 1], "squared_error": [9, 9, 9]}, {}, [0.5, 0, 1]),
            ({"ok": [1, 1, 0], "outcome": [7, 7, 7]}, {"columns": {"outcome": "ok"}}, [1, 1, 0]),
            ({"correct": [" TRUE", "false", "Pass "]}, {}, [1, 0, 1]),
        ],
    )
    def test_outcome(self, columns: dict[str, Any], options: dict[str, Any], outcome: list[float], tmp_path) -> None:
        np.savez(tmp_path / "case.npz", confidence=[0.1, 0.2, 0.3], **columns)
        assert self.read(tmp_path, **options).outcome.tolist() == outcome

    def test_scale_of_a_score_is_told(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "case.npz", pred=[0.5, 0.25, 1.0], squared_error=[0.0, 1.0, 4.0])
        case = self.read(tmp_path)
        assert case.outcome_rule == "1 - (error / 2)², not below 0, the largest error"
        assert case.view.fields == {"prediction", "output"}  # a regression's output is its prediction

    @pytest.mark.parametrize(
        ("columns", "options", "message"),
        [
            ({"x": [1, 2, 3]}, {}, r"case.npz\): it has no outcome; give outcome, correct .*there are confidence, x"),
            ({"outcome": [0, 1, 2]}, {}, r"outcome 2.0 of row 3 is not in \[0, 1\]"),
            ({"outcome": ["pass", "maybe", "fail"]}, {}, "outcome 'maybe' of row 2 is none of pass, true"),
            ({"outcome": [0, 1]}, {}, "2 outcomes and 3 examples"),
            ({"okay": [0, 1, 1]}, {"columns": {"outcome": "ok"}}, "no column 'ok'.*did you mean 'okay'"),
            ({"ok": [0, 1, 1]}, {"columns": {"outcom": "ok"}}, "no field 'outcom'; did you mean 'outcome'"),
            ({"correct": np.array([1, None, 0])}, {}, "correct cannot be read: Object arrays"),
        ],
    )
    def test_refusal(self, columns: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path) -> None:
        np.savez(tmp_path / "case.npz", confidence=[0.1, 0.2, 0.3], **columns)
        with pytest.raises(DataError, match=message):
            self.read(tmp_path, **options)

    @pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
    def test_garbage_is_named(self, suffix: str, tmp_path: Path) -> None:
        (tmp_path / f"case.{suffix}").write_bytes(b"")
        with pytest.raises(DataError, match=rf"case case \(.*case.{suffix}\): it is no "):
            read_case(source(tmp_path / f"case.{suffix}"))

    def test_names_must_differ(self, cases: Path, tmp_path: Path) -> None:
        np.savez(tmp_path / "table.npz", **arrays())
        with pytest.raises(DataError, match="two cases are called 'table'"):
            find_cases([CaseSpec(path=str(cases)), CaseSpec(path=str(tmp_path))], {}, None)
        named = find_cases([CaseSpec(path=str(cases)), CaseSpec(path=str(tmp_path), name="other")], {}, None)
        assert [case.name for case in named] == ["full", "table", "other"]

    @staticmethod
    def read(folder: Path, **options: Any) -> Case:
        return read_case(source(folder / "case.npz", **options))


class TestSpec:
    def test_method_in_one_line(self) -> None:
        assert parse_method("srs") == {"method": "srs"}
        assert parse_method("neyman:rounds=4, floor=0.2") == {"method": "neyman", "rounds": 4, "floor": 0.2}
        told = parse_method("css:fractions=[0.5,0.5],allocation=[0.2,0.8]")
        assert told == {"method": "css", "fractions": [0.5, 0.5], "allocation": [0.2, 0.8]}
        assert parse_method("deepreduce:alpha=1e-4,coverage=false")["alpha"] == 1e-4

    @pytest.mark.parametrize(
        ("rounds", "budget", "sizes"),
        [
            (1, 50, [50]),
            (4, 100, [10, 20, 30, 40]),
            (4, 50, [5, 10, 15, 20]),
            ([1, 1], 25, [12, 13]),
            (3, 6, [1, 2, 3]),
        ],
    )
    def test_rounds_share_the_budget(self, rounds: Any, budget: int, sizes: list[int]) -> None:
        assert MethodSpec(method="neyman", rounds=rounds).batches(budget) == sizes

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"methods": ["cse"]}, "methods.0: there is no method 'cse'; did you mean 'css'"),
            ({"methods": ["ces:section=9"]}, "no parameter 'section'; did you mean 'sections'"),
            ({"methods": ["ces:9"]}, "'ces:9': write METHOD:NAME=VALUE"),
            ({"methods": ["neyman:rounds=0"]}, "rounds: give a number of rounds"),
            ({"methods": ["srs", "srs"]}, "'srs' is there twice"),
            ({"methods": ["srs", "neyman:assist=true"]}, "methods.1: assist=true of .*predicts every outcome itself"),
            ({"budgets": [0]}, "budgets: give numbers of labels"),
            ({"repetition": 5}, "unknown key 'repetition' .*did you mean 'repetitions'"),
            ({"cases": [{"path": "x", "colums": {}}]}, "unknown key 'cases.0.colums' .*did you mean 'columns'"),
            ({"cases": [{"path": "x", "name": "../x"}]}, "cases.0.name: use no '/'"),
            ({"level": 95}, "level: .*less than 1"),
        ],
    )
    def test_refusal(self, content: dict[str, Any], message: str) -> None:
        given = {"cases": ["x"], "methods": ["srs"], "budgets": [10]} | content
        with pytest.raises(SpecError, match=f"^test: .*{message}"):
            validated(StudySpec, given, "test")

    def test_committed_spec_is_valid(self) -> None:
        path = Path(__file__).parents[2] / "jobs" / "study-comparison.yaml"
        spec = validated(StudySpec, read_yaml(path) | {"cases": ["cases/"]}, path.name)
        assert {method.method for method in spec.methods} == set(opacc.samplers.METHODS)  # none is forgotten


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--method", "srs", "--budget", "300"], 2, "budget=300: case full holds 300 examples; give less"),
        (["--method", "neyman:rounds=5", "--budget", "3"], 2, "budget=3 in rounds=5 .* gives batches of"),
        (["--method", "ssr", "--budget", "3"], 2, "no method 'ssr'; did you mean 'ssrs'"),
        (
            ["--method", "neyman:assist=true,rounds=2", "--budget", "30"],
            2,
            "predicts every outcome .* leave assist out",
        ),
        (["--method", "deepest:auxiliary=dsa", "--budget", "3"], 5, "no method is possible on any case: .*needs dsa"),
        (["--method", "srs"], 2, "no budgets given; add --budget 100"),
        (["--budget", "10"], 2, "no methods given; add --method ces"),
        (["nowhere.npz", "--method", "srs", "--budget", "3"], 3, "cannot read .*nowhere.npz"),
        (["nowhere", "--method", "srs", "--budget", "3"], 5, "no case at .*nowhere"),
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


def run_here(missing: Any, workers: int | None) -> Any:
    return ((block, run_block(block)) for block in missing)


class TestFigures:
    """As matplotlib has them, before they are encoded."""

    @pytest.fixture
    def figure(self, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Figure]:
        monkeypatch.setattr(experiment, "_run", run_here)
        figures: list[Figure] = []
        monkeypatch.setattr(plots, "_encode", lambda figure, suffix: (figures.append(figure), b"")[1])

        def draw(**content: Any) -> Figure:
            self.results = results_of(spec_of(cases / "full.npz", tmp_path, **({"methods": ["srs", "css"]} | content)))
            figures[-1].draw_without_rendering()
            return figures[-1]

        return draw

    @pytest.mark.parametrize("budgets", [[30], [20, 40, 60], [5, 9, 200]])
    def test_theory_and_bound_are_drawn_and_right_at_the_budgets(
        self, figure: Callable[..., Figure], budgets: list[int]
    ) -> None:
        errors, found = figure(budgets=budgets).axes
        case = self.results["cases"][0]
        theory = [100 * math.sqrt(case["variance"] * (1 / n - 1 / N)) for n in budgets]
        bound = [value * math.sqrt(case["bound"][str(n)]) for value, n in zip(theory, budgets, strict=True)]
        assert self.drawn(errors, "SRS in theory", budgets) == pytest.approx(theory, rel=1e-9)
        assert self.drawn(errors, "bound", budgets) == pytest.approx(bound, rel=1e-9)
        expected = [n * (1 - case["accuracy"]) for n in budgets]
        assert self.drawn(found, found.lines[0].get_label(), budgets) == pytest.approx(expected)

    @staticmethod
    def drawn(axes: Axes, label: object, budgets: list[int]) -> list[float]:
        """Height at each budget of a line that spans a fifth of the panel, at least."""
        line = next(line for line in axes.lines if line.get_label() == label)
        x, y = line.get_data()
        pixels = line.get_transform().transform(np.column_stack([x, y]))
        assert np.ptp(pixels[:, 0]) > 0.2 * axes.bbox.width
        if len(budgets) == 1:
            assert pixels[:, 0].min() < axes.transData.transform((budgets[0], 0))[0] < pixels[:, 0].max()
            return [y[0]] if len(set(y)) == 1 else []
        return [float(y[list(x).index(n)]) for n in budgets]

    @pytest.mark.parametrize("methods", [["srs"], ["srs", "css"]])
    @pytest.mark.parametrize("budgets", [[30], [50, 51], [20, 40, 60], [3, 9, 200]])
    def test_no_marker_is_cut_off(self, figure: Callable[..., Figure], methods: list[str], budgets: list[int]) -> None:
        drawn = figure(methods=methods, budgets=budgets)
        for axes in drawn.axes:
            for line in axes.lines:
                radius = line.get_markersize() / 2 * drawn.dpi / 72 if line.get_marker() != "None" else 0
                x, y = line.get_transform().transform(np.column_stack(line.get_data())).T
                assert axes.bbox.x0 <= x.min() - radius
                assert x.max() + radius <= axes.bbox.x1
                assert y.max() + 1.5 * radius <= axes.bbox.y1
                assert y.min() - radius >= axes.bbox.y0 or not line.get_clip_on()

    def test_a_control_says_so_in_its_title(self, figure: Callable[..., Figure]) -> None:
        assert "random order" not in figure().get_suptitle()
        control = figure(shuffle=["confidence"])
        assert control.get_suptitle().endswith("; confidence in random order)")
        box = control._suptitle.get_window_extent()  # type: ignore[attr-defined]
        assert box.x1 < control.bbox.x1

    def test_a_case_without_a_possible_method_has_one_too(
        self, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(experiment, "_run", run_here)
        results_of(spec_of(cases, tmp_path, methods=["ces:candidates=10"], repetitions=2))
        assert (tmp_path / "figures" / "table.png").read_bytes().startswith(b"\x89PNG")


def test_figures_are_left_out_without_matplotlib(
    cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opacc_ray.study.plots", None)
    monkeypatch.setattr(experiment, "_run", run_here)
    results_of(spec_of(cases / "full.npz", tmp_path, repetitions=2))
    assert (tmp_path / "table.md").exists()
    assert not (tmp_path / "figures").exists()
    assert "pip install 'opacc_ray[report]'" in caplog.text


def test_unforeseen_error_keeps_its_place(cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(trials, "select", fail)
    with pytest.raises(
        OpaccError, match=r"case full, method srs, budget 30, repetition 0 .*ZeroDivisionError: by zero"
    ):
        run_block(block(cases / "full.npz", "srs"))


def test_what_confidence_says_without_labels_is_stated_beside_the_truth(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name in ("pool", "test"):
        confidence = 1 - rng.beta(0.5, 3, 500)
        np.savez(tmp_path / f"{name}.npz", confidence=confidence, correct=rng.random(500) < confidence)
    sources = [
        find_cases([CaseSpec(path=str(tmp_path / "pool.npz"), reference=reference)], {}, None)[0]
        for reference in (None, str(tmp_path / "test.npz"))
    ]
    plain, beside = (experiment._guesses(read_case(source)) for source in sources)
    assert list(plain) == ["average confidence"]
    assert list(beside) == ["average confidence", "difference of confidences", "average thresholded confidence"]
    assert beside["average confidence"] == plain["average confidence"]
    case = {"without_labels": plain, "accuracy": 0.8, "variance": 0.16, "size": 500, "outcome": "as given"}
    line = _facts(case | {"binary": True, "shuffled": []})
    assert f"average confidence {plain['average confidence']:.4f}" in line
    assert "50 labels of a simple random sample: ± 0.1052" in line
