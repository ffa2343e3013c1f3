"""Other numbers than the accuracy: their truth and yardstick by hand, what a study makes of them, and its peers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import cell_of, results_of, spec_of

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.study import study_spec, trials
from opacc_ray.extensions.study.cases import Case, Source, read_case
from opacc_ray.extensions.study.f_measures import Positives, best_draw, estimate_f, guess
from opacc_ray.extensions.study.peers import F_MEASURES, PEERS
from opacc_ray.extensions.study.trials import ALL, Target, question, truths_of
from opacc_ray.metrics.metric import Metric

PREDICTED = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
TRUTH = np.array([1, 1, 1, 0, 1, 0, 0, 0, 0, 0])
REGION = np.array(list("aaaaabbbbb"))


def written(folder: Path, **columns: Any) -> Case:
    np.savez(folder / "case.npz", **columns)
    return read_case(Source("case", str(folder / "case.npz"), slices=("region",) if "region" in columns else ()))


def ten(folder: Path, **columns: Any) -> Case:
    """Three true positives, a false one, a missed one and five true negatives."""
    given = {"prediction": PREDICTED, "label": TRUTH, "confidence": np.full(10, 0.8), "region": REGION}
    return written(folder, **(given | columns))


def pool(size: int = 4000, seed: int = 0) -> dict[str, Any]:
    """A tenth positives, with probabilities as they are."""
    rng = np.random.default_rng(seed)
    probability = rng.beta(0.15, 1.2, size)
    label = (rng.random(size) < probability).astype(int)
    region = rng.choice(["north", "south", "west"], size, p=[0.6, 0.3, 0.1])
    return {"prediction": (probability > 0.5) * 1, "label": label, "probability": probability, "region": region}


class TestTruth:
    @pytest.mark.parametrize(
        ("metric", "value"),
        [("precision@1", 3 / 4), ("recall@1", 3 / 4), ("f1@1", 3 / 4), ("recall@0", 5 / 6), ("f1", 3 / 4)],
    )
    def test_metrics_by_hand(self, metric: str, value: float, tmp_path: Path) -> None:
        assert truths_of(ten(tmp_path), Target(metric))[ALL].value == pytest.approx(value)

    def test_names_of_classes(self, tmp_path: Path) -> None:
        names = np.array(["no", "yes"])
        case = ten(tmp_path, prediction=names[PREDICTED], label=names[TRUTH])
        assert case.classes == ("no", "yes")
        assert truths_of(case, Target("recall@no"))[ALL].value == pytest.approx(5 / 6)
        with pytest.raises(DataError, match=r"case case: metric recall@maybe .* give one of no, yes"):
            truths_of(case, Target("recall@maybe"))

    def test_outcomes_alone_have_no_classes(self, tmp_path: Path) -> None:
        case = written(tmp_path, confidence=np.full(4, 0.5), correct=[1, 0, 1, 1])
        with pytest.raises(DataError, match="f1@1 needs true classes; give label next to prediction"):
            truths_of(case, Target("f1@1"))

    @pytest.mark.parametrize("name", ["label", "LABEL"])
    def test_slices_by_what_is_to_be_found_are_refused(self, name: str, tmp_path: Path) -> None:
        np.savez(tmp_path / "case.npz", prediction=PREDICTED, **{name: TRUTH})
        with pytest.raises(DataError, match=f"slices by '{name}': it is known only for labelled examples"):
            read_case(Source("case", str(tmp_path / "case.npz"), slices=(name,)))


def test_a_method_that_can_serve_a_number_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import make_dataclass

    able = make_dataclass("Parameters", [("serve", tuple, ())])
    monkeypatch.setattr(trials, "parse_parameters", lambda method, given: able())
    case = ten(tmp_path)
    assert trials.serving("neyman", {}, case, Target()) == {}
    assert trials.serving("neyman", {}, case, Target("f1")) == {"serve": ["f1@1"]}
    assert trials.serving("neyman", {}, case, Target("macro_f1")) == {"serve": ["macro_f1"]}
    assert trials.serving("neyman", {}, case, Target("accuracy", "region")) == {"serve": ["region"]}
    assert trials.serving("neyman", {"serve": ["accuracy"]}, case, Target("f1")) == {"serve": ["accuracy"]}


@pytest.mark.usefixtures("in_process")
class TestStudy:
    def test_f1_of_our_methods_and_of_others(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "rare.npz", **pool(1500))
        methods = ["srs", "neyman:rounds=2", "sawade", "ppi++"]
        given: dict[str, Any] = {"methods": methods, "budgets": [150], "metric": "f1@1", "repetitions": 4}
        results = results_of(spec_of(tmp_path / "rare.npz", tmp_path / "out", **given))
        [case] = results["cases"]
        assert case["number"] == "f1@1"
        assert results["not_possible"] == [
            {"case": "rare", "method": "ppi++", "reason": "is for the accuracy of the pool"}
        ]
        for method in methods[:3]:
            cell = cell_of(results, "rare", method, 150)
            assert cell["labels"] == 150
            assert abs(cell["mean"] - case["truth"][""]) < 0.2
            assert 0 < cell["width"] < 1
        text = (tmp_path / "out" / "table.md").read_text()
        assert f"1,500 examples, f1@1 {case['truth']['']:.4f}; outcome = prediction == label." in text
        assert "| ratio " in text

    def test_slices_are_averaged_and_the_worst_is_named(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "rare.npz", **pool(600))
        given: dict[str, Any] = {"methods": ["srs", "sawade"], "budgets": [60], "by": "region", "repetitions": 6}
        results = results_of(spec_of(tmp_path / "rare.npz", tmp_path / "out", **given))
        [case], [cell] = results["cases"], results["cells"]
        assert list(case["truth"]) == ["north", "south", "west"]
        assert cell["worst_slice"] in case["truth"]
        assert cell["repetitions"] == 6
        assert abs(cell["mean"] - np.mean(list(case["truth"].values()))) < 0.15
        assert "in 3 slices" in (tmp_path / "out" / "table.md").read_text()

    def test_metric_whose_truth_is_not_known_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(study_spec, "parse_metric", Metric)
        with pytest.raises(SpecError, match="metric: a study knows no true auc"):
            spec_of("x", tmp_path, metric="auc")
        assert spec_of("x", tmp_path, metric="f0.5").metric == "f0.5"


class TestPeersForF:
    def positives(self, size: int = 3000, alpha: float = 0.5) -> Positives:
        given = pool(size)
        return Positives(given["prediction"].astype(float), given["probability"], given["label"].astype(float), alpha)

    @pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
    def test_every_draw_has_the_least_variance_of_its_kind(self, alpha: float) -> None:
        """q* is better than each of many others in E[(t - F d)²]/q, the asymptotic variance."""
        rng, predicted, p = np.random.default_rng(0), np.array([1.0, 1, 0, 0]), np.array([0.9, 0.4, 0.3, 0.05])
        f = guess(predicted, p, alpha)

        def variance(q: np.ndarray) -> float:
            positive = (predicted - f * (alpha * predicted + 1 - alpha)) ** 2
            negative = (f * alpha * predicted) ** 2
            needed = p * positive + (1 - p) * negative
            return float((needed / q)[needed > 0].sum())

        best = np.maximum(best_draw(predicted, p, alpha, f), 1e-12)
        least = variance(best / best.sum())
        others = rng.dirichlet(np.ones(4), size=200)
        assert all(variance(q) >= least * (1 - 1e-6) for q in others)

    def test_weighted_estimate_of_all_examples_is_the_truth(self) -> None:
        own = self.positives()
        found = estimate_f(own, np.arange(3000), np.ones(3000), 0.95)
        hit = float(own.predicted @ own.truth)
        assert found.value == pytest.approx(2 * hit / (own.predicted.sum() + own.truth.sum()))

    @pytest.mark.parametrize("metric", ["f1@1", "recall@1", "precision@1"])
    @pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.kind == F_MEASURES])
    def test_peers_come_near_the_truth(self, name: str, metric: str, tmp_path: Path) -> None:
        case = written(tmp_path, **pool(3000))
        truth, asked = truths_of(case, Target(metric))[ALL], question(case, Target(metric))
        found = [PEERS[name].estimate(asked, 100, np.random.default_rng(seed), 0.95) for seed in range(4)]
        error = np.array([one.value for one in found]) - truth.value
        assert np.sqrt(np.mean(error**2)) < 1.3 * truth.deviation(100)
        assert all(len(np.unique(one.chosen)) == len(one.chosen) <= 100 for one in found)
        assert np.mean([one.low <= truth.value <= one.high for one in found]) >= 0.25
