"""Discovery of parts where a model is worse: what is tested, how, and how often it is wrong."""

import json

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import SpecError
from opacc_ray.extensions.discovery import Candidate, Condition, Kind, all_candidates, conditions_of, fisher
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
    def test_labels_test_the_part_by_fishers_exact_p_value(self) -> None:
        pool, outcome = world(0, worse=0.5)
        rounds = audit(pool, outcome, "srs", (100, 100))
        found = opacc.discover(rounds, pool=pool)
        assert found.labels == 200
        index = np.concatenate([one.selection.index for one in rounds])
        failure, checked = 1 - outcome[index], 0
        for part in (one for one in found.parts if one.name in found.slices and one.labels >= 5):
            inside = found.slices[part.name].codes == 0
            among = failure[inside[index]]
            assert (part.size, part.labels) == (inside.sum(), len(among))
            p = fisher(int(among.sum()), len(among), int(failure.sum()), 200)
            assert part.p_value == pytest.approx(p)
            checked += 1
        assert checked > 5

    @pytest.mark.parametrize("method", ["srs", "neyman"])
    @pytest.mark.parametrize("budgets", [(400,), (60, 140, 200)])
    def test_crossing_that_is_far_worse_is_confirmed(self, method: str, budgets: tuple[int, ...]) -> None:
        pool, outcome = world(2, worse=0.6)
        found = opacc.discover(audit(pool, outcome, method, budgets), pool=pool)
        (part,) = (own for own in found.parts if own.name == "camera = north, night = 1")
        assert part.confirmed
        assert part.low > 0.2
        assert part.low <= part.difference <= part.high

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
        assert lines[2].endswith("confirmed")

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
    rng = np.random.default_rng(5)
    camera = rng.integers(0, 20, SIZE)
    outcome = (rng.random(SIZE) >= 0.15 + 0.3 * (camera == 7)).astype(float)
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
