"""Discovery of parts where a model is worse: what is tested, how, what is stated, and how often it is wrong."""

import json
from dataclasses import replace
from math import erfc, sqrt
from typing import NamedTuple

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import SpecError
from opacc_ray.estimation.intervals import level_of_each, normal_quantile
from opacc_ray.extensions import discovery
from opacc_ray.extensions.discovery import Candidate, Condition, Contrast, Kind, all_candidates, conditions_of, q_values
from opacc_ray.metrics.metric import tells
from opacc_ray.parts.view import View, view_of

SIZE = 2000
CAMERAS = np.array(["north", "south", "east", "west"])


def world(seed: int, error: float = 0.1, worse: float = 0.0) -> tuple[opacc.Pool, np.ndarray]:
    """A pool whose failures have nothing to do with what is known, but for camera north at night."""
    rng = np.random.default_rng(seed)
    camera, night = CAMERAS[rng.integers(0, 4, SIZE)], rng.integers(0, 2, SIZE)
    rate = error + worse * ((camera == "north") & (night == 1))
    pool = opacc.Pool(
        confidence=rng.random(SIZE),
        prediction=rng.integers(0, 3, SIZE),
        slices={"camera": camera, "night": night},
    )
    return pool, (rng.random(SIZE) >= rate).astype(float)


def audit(
    pool: opacc.Pool, outcome: np.ndarray, method: str, budgets: tuple[int, ...], seed: int = 0
) -> list[opacc.Labelled]:
    rounds: list[opacc.Labelled] = []
    for budget in budgets:
        drawn = opacc.select(pool, method, budget, seed=seed, previous=rounds)
        rounds.append(opacc.Labelled(drawn, outcomes=outcome[drawn.index]))
    return rounds


class Known(NamedTuple):
    """A share with a normal interval."""

    value: float
    error: float = 0.0
    size: float = 1000.0
    num: int = 50

    def interval(self, level: float) -> tuple[float, float]:
        half = normal_quantile(level) * self.error
        return max(self.value - half, 0.0), min(self.value + half, 1.0)


class TestContrast:
    def test_difference_of_normal_shares_has_a_normal_interval_and_the_p_value_of_its_tails(self) -> None:
        contrast = Contrast(Known(0.4, 0.03), Known(0.2, 0.04))
        assert contrast.interval(0.95) == pytest.approx((0.2 - 1.959964 * 0.05, 0.2 + 1.959964 * 0.05), abs=1e-6)
        for margin in (0.0, 0.05):
            assert contrast.p_value(margin) == pytest.approx(erfc((0.2 - margin) / 0.05 / sqrt(2)), rel=1e-3)

    @pytest.mark.parametrize("part", [Known(0.21, 0.001), Known(0.9, 0.01, num=0)])
    def test_p_value_is_one_where_labels_do_not_say_that_the_part_is_worse_by_so_much(self, part: Known) -> None:
        assert Contrast(part, Known(0.2, 0.001)).p_value(0.02) == 1


class TestConditions:
    @pytest.fixture(scope="class")
    @staticmethod
    def view() -> View:
        rng = np.random.default_rng(1)
        output = rng.normal(size=(400, 3))
        pool = opacc.Pool(
            output=output,
            prediction=[("cat", "dog", "owl")[k] for k in output.argmax(axis=1)],
            hidden=rng.normal(size=(400, 4)),
            confidence=rng.random(400),
            slices={"camera": rng.integers(0, 2, 400)},
        )
        return view_of(pool)

    @pytest.fixture(scope="class")
    @staticmethod
    def found(view: View) -> dict[str, Condition]:
        return {own.text: own for own in conditions_of(view, ["cat", "dog", "owl"])}

    def test_all_have_a_name_in_words(self, found: dict[str, Condition]) -> None:
        wanted = (
            "camera = 1",
            "predicted cat",
            "second choice owl",
            "confidence below its 10th percentile",
            "direction 3 of the hidden layer above its 90th percentile",
        )
        assert set(wanted) <= found.keys()

    @pytest.mark.parametrize("percent", [10, 25])
    def test_tails_have_their_share_of_the_pool(self, found: dict[str, Condition], percent: int) -> None:
        for text in (
            f"confidence below its {percent}th percentile",
            f"confidence above its {100 - percent}th percentile",
        ):
            assert found[text].size() == pytest.approx(4 * percent, abs=1)


class TestDiscover:
    @pytest.mark.parametrize("method", ["srs", "neyman"])
    @pytest.mark.parametrize("budgets", [(400,), (60, 140, 200)])
    def test_crossing_that_is_far_worse_is_confirmed(self, method: str, budgets: tuple[int, ...]) -> None:
        pool, outcome = world(2, worse=0.6)
        found = opacc.discover(audit(pool, outcome, method, budgets), pool=pool)
        (part,) = (own for own in found.parts if own.name == "camera = north, night = 1")
        assert part.confirmed
        assert discovery.MARGIN < part.low <= part.difference <= part.high
        family = [own for own in found.parts if "," in own.name or " = " not in own.name]
        num = sum(own.confirmed for own in family)
        assert part.accuracy.level == pytest.approx(1 - num * 0.05 / len(family) / 2)  # of two families
        assert {own.accuracy.level for own in found.parts if not own.confirmed} == {0.95}
        assert all(own.low > discovery.MARGIN for own in found.confirmed)

    def test_few_labels_or_failures_confirm_nothing(self) -> None:
        camera = np.repeat([0, 1, 2], [1800, 100, 100])
        outcome = np.where(camera == 0, 1.0, 0.0)
        outcome[camera == 2] = np.arange(100) >= 2
        pool = opacc.Pool(confidence=np.full(2000, 0.9), slices={"camera": camera})
        for num, confirmed in ((8, ["camera = 1"]), (7, [])):
            rows = np.concatenate([np.arange(190 - num), 1800 + np.arange(num), 1900 + np.arange(10)])
            drawn = opacc.select(pool, "srs", 200)
            chosen = replace(drawn, index=rows, ids=tuple(pool.ids[row] for row in rows.tolist()))
            found = opacc.discover(chosen, outcomes=outcome[rows], pool=pool)
            assert [part.name for part in found.confirmed if "camera" in part.name] == confirmed

    def test_with_all_labels_the_difference_is_known(self) -> None:
        pool, outcome = world(0)
        rounds = audit(pool, outcome, "srs", (500, 1500))
        for part in opacc.discover(rounds, pool=pool).parts:
            if part.name.count(" = ") == 1 and "," not in part.name:
                inside = member(pool, part.name)
                known = outcome[~inside].mean() - outcome[inside].mean()
                assert (part.low, part.difference, part.high) == pytest.approx((known, known, known))

    def test_slices_of_the_result_are_slices_of_a_pool(self) -> None:
        pool, outcome = world(0, worse=0.5)
        rounds = audit(pool, outcome, "srs", (200, 200))
        found = opacc.discover(rounds, pool=pool)
        again = opacc.Pool(confidence=pool.confidence, slices=pool.slices | found.slices)
        name = next(iter(found.slices))
        stated = opacc.estimate(rounds, pool=again, by=name)
        assert set(stated) == {name, "rest"}

    def test_result_is_json_and_a_table(self) -> None:
        pool, outcome = world(2, worse=0.6)
        found = opacc.discover(audit(pool, outcome, "srs", (200, 200)), pool=pool)
        assert json.loads(json.dumps(found.to_dict()))["parts"][0]["confirmed"] is True
        lines = str(found).splitlines()
        assert len(lines) == 2 + max(20, len(found.confirmed))
        assert lines[2].startswith(found.parts[0].name)
        assert lines[2].endswith(f"confirmed: at least {100 * found.parts[0].low:.0f}")

    def test_nothing_to_test(self) -> None:
        pool = opacc.Pool(prediction=np.zeros(50))
        drawn = opacc.select(pool, "srs", 20)
        found = opacc.discover(drawn, outcomes=np.ones(20), pool=pool)
        assert found.parts == found.confirmed == ()
        assert "0 of 0 parts confirmed" in str(found)

    def test_scores_of_a_regression(self) -> None:
        rng = np.random.default_rng(0)
        value, camera = rng.normal(size=600), rng.integers(0, 2, 600)
        pool = opacc.Pool(prediction=value, slices={"camera": camera})
        score = np.clip(0.9 - 0.5 * camera + 0.05 * rng.normal(size=600), 0, 1)
        drawn = opacc.select(pool, "neyman", 100)
        found = opacc.discover(drawn, outcomes=score[drawn.index], pool=pool)
        assert found.confirmed[0].name == "camera = 1"

    def test_a_share_of_false_ones_that_is_none_is_refused(self) -> None:
        pool, outcome = world(0)
        with pytest.raises(SpecError, match=r"fdr=0\.0"):
            opacc.discover(audit(pool, outcome, "srs", (10,)), pool=pool, fdr=0.0)


class TestTogether:
    def test_intervals_that_hold_together_are_wider(self) -> None:
        pool, outcome = world(0)
        rounds = audit(pool, outcome, "neyman", (100, 100))
        each = opacc.estimate(rounds, pool=pool, by="camera")
        both = opacc.estimate(rounds, pool=pool, by="camera", together=True)
        for name in CAMERAS:
            assert both[name].value == each[name].value
            assert both[name].low < each[name].low < each[name].high < both[name].high
            assert both[name].level == pytest.approx(1 - 0.05 / 4)

    def test_together_needs_parts(self) -> None:
        pool, outcome = world(0)
        drawn = opacc.select(pool, "srs", 20)
        with pytest.raises(SpecError, match="together"):
            opacc.estimate(drawn, outcomes=outcome[drawn.index], pool=pool, together=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["srs", "neyman"])
def test_any_false_confirmation_is_rare_where_no_part_is_worse(method: str) -> None:
    """60 pools. With a probability of 5 %, 9 or more false ones would occur in fewer than 1 of 100 such tests."""
    false = 0
    for seed in range(60):
        pool, outcome = world(seed)
        rounds = audit(pool, outcome, method, (40, 60, 100), seed)
        found = opacc.discover(rounds, pool=pool)
        false += bool(found.confirmed)
    assert false <= 8


def member(pool: opacc.Pool, name: str) -> np.ndarray:
    attribute, value = name.split(" = ")
    slicing = pool.slices[attribute]
    return slicing.codes == slicing.names.index(value)


class TestAllCandidates:
    def test_what_repeats_another_is_left_out(self) -> None:
        camera = np.repeat([0, 1], 200)
        pool = opacc.Pool(prediction=camera, confidence=np.tile([0.5, 1.0], 200), slices={"camera": camera})
        view = view_of(pool)
        given = list(conditions_of(view, ["0", "1"]))
        slices = [Candidate((own,)) for own in given if own.kind is Kind.SLICE]
        names = [own.name for own in all_candidates(view, given, 20, slices)]
        assert not [name for name in names if name.startswith(("camera", "predicted"))]


def test_a_later_round_looks_at_the_suspects_and_does_not_test_them_twice() -> None:
    rng = np.random.default_rng(6)
    camera = rng.integers(0, 20, SIZE)
    outcome = (rng.random(SIZE) >= 0.15 + 0.5 * (camera == 7)).astype(float)
    columns = {"ids": [str(k) for k in range(SIZE)], "confidence": np.full(SIZE, 0.85)}
    pool = opacc.Pool(**columns, slices={"camera": camera})
    first = opacc.select(pool, "neyman", 100, seed=1, serve=["camera"])
    rounds = [opacc.Labelled(first, outcomes=outcome[first.index])]
    found = opacc.discover(rounds, pool=pool)
    ranked = [own.name for own in sorted(found.parts, key=lambda own: (own.p_value, -own.difference))]
    assert found.suspects.names == (*[name for name in ranked if "camera" in name][:8], "rest")
    for place, name in enumerate(found.suspects.names[:-1]):
        assert np.array_equal(found.suspects.codes == place, camera == int(name.removeprefix("camera = ")))
    again = opacc.Pool(**columns, slices={"camera": camera, "suspects": found.suspects})
    second = opacc.select(again, "neyman", 120, seed=2, previous=rounds, serve=["suspects"])
    inside = [int((found.suspects.codes[second.index] == place).sum()) for place in range(8)]
    assert sum(inside) >= 90  # a simple random sample would have 48
    both = opacc.discover([*rounds, opacc.Labelled(second, outcomes=outcome[second.index])], pool=again)
    assert not any("suspects" in own.name for own in both.parts)
    assert [own.name for own in both.confirmed] == ["camera = 7"]
    assert len(both.suspects.names) == 5  # four, and the rest
    assert "camera = 7" not in both.suspects.names


class TestSeveral:
    def test_q_values_of_benjamini_and_hochberg(self) -> None:
        """q_(k) is the least of m·p_(j)/j over j >= k."""
        assert q_values([0.02, 0.001, 0.5, 0.021]) == pytest.approx([0.028, 0.004, 0.5, 0.028])

    def test_level_of_each(self) -> None:
        assert level_of_each(0.95, 20) == pytest.approx(0.9975)
        assert level_of_each(0.95, 0) == 0.95


@pytest.mark.parametrize(
    ("low", "high", "n", "enough"),
    [(0.6, 0.8, 30, True), (0.6, 0.8, 4, False), (0.3, 0.81, 30, False), (0.7, 0.7, 3, True)],
)
def test_too_few_labels_to_tell(low: float, high: float, n: int, enough: bool) -> None:
    """Fewer than 5, or wider than ± 0.25; what is known exactly needs no more."""
    assert tells(low, high, n) == enough
