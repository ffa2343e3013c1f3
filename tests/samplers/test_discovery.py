"""Discovery of parts where a model is worse: what is proposed, what tests it, and how often it is wrong."""

import json

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators.against_rest import q_values
from opacc_ray.history import NO_HISTORY
from opacc_ray.parts.view import View, view_of
from opacc_ray.samplers.proposals import Candidate, Condition, Kind, Known, all_candidates, conditions_of, propose

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
) -> tuple[list[opacc.Selection], list[np.ndarray]]:
    rounds: list[tuple[opacc.Selection, np.ndarray]] = []
    for budget in budgets:
        drawn = opacc.select(pool, method, budget, seed=seed, previous=rounds)
        rounds.append((drawn, outcome[drawn.index]))
    return [drawn for drawn, _ in rounds], [own for _, own in rounds]


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

    def test_second_choice_is_the_largest_of_the_other_outputs(self, view: View, found: dict[str, Condition]) -> None:
        order = np.argsort(view.parts.pools[0].output, axis=1)  # type: ignore[attr-defined]
        assert np.array_equal(found["second choice owl"].holds(slice(None)), order[:, 1] == 2)

    @pytest.mark.parametrize("percent", [10, 25])
    def test_tails_have_their_share_of_the_pool(self, found: dict[str, Condition], percent: int) -> None:
        for text in (
            f"confidence below its {percent}th percentile",
            f"confidence above its {100 - percent}th percentile",
        ):
            assert found[text].size() == pytest.approx(4 * percent, abs=1)

    def test_tails_of_a_number_with_one_value_are_none(self) -> None:
        pool = opacc.Pool(confidence=np.ones(50))
        assert list(conditions_of(view_of(pool), None)) == []

    def test_a_tail_that_a_third_of_the_pool_shares_is_named_by_its_share(self) -> None:
        confidence = np.concatenate([np.zeros(30), np.linspace(0.5, 1, 70)])
        texts = [own.text for own in conditions_of(view_of(opacc.Pool(confidence=confidence)), None)]
        assert texts[0] == "confidence below its 30th percentile"

    def test_a_tail_of_examples_that_are_all_sure_is_found(self) -> None:
        confidence = np.concatenate([np.ones(30), np.linspace(0.5, 0.9, 70)])
        texts = [own.text for own in conditions_of(view_of(opacc.Pool(confidence=confidence)), None)]
        assert texts[-1] == "confidence above its 70th percentile"


class TestProposals:
    def proposed(self, worse: float, seed: int = 0) -> list[str]:
        pool, outcome = world(seed, worse=worse)
        places = np.random.default_rng(seed).permutation(SIZE)[:400]
        view = view_of(pool)
        known = Known(places, 1 - outcome[places])
        return [own.name for own in propose(view, known, list(conditions_of(view, ["0", "1", "2"])), 20, NO_HISTORY)]

    def test_crossing_with_many_failures_is_the_first(self) -> None:
        assert self.proposed(0.5)[0] == "camera = north, night = 1"

    def test_single_slices_are_not_proposed(self) -> None:
        names = self.proposed(0.5) + self.proposed(0.0)
        assert not [name for name in names if " = " in name and "," not in name]

    def test_proposals_do_not_repeat_each_other(self) -> None:
        pool, outcome = world(6, worse=0.1)
        view, places = view_of(pool), np.arange(300)
        known, given = Known(places, 1 - outcome[places]), list(conditions_of(view, ["0", "1", "2"]))
        members = [own.holds() for own in propose(view, known, given, 20, NO_HISTORY)]
        assert len(members) > 3
        for k, own in enumerate(members):
            assert all((own & other).sum() <= 0.55 * (own | other).sum() for other in members[:k])

    def test_too_few_labels_propose_nothing(self) -> None:
        pool, _ = world(0)
        view, places = view_of(pool), np.arange(4)
        given = list(conditions_of(view, ["0", "1", "2"]))
        assert propose(view, Known(places, np.ones(4)), given, 20, NO_HISTORY) == []


class TestDiscover:
    @pytest.mark.parametrize("method", ["srs", "neyman"])
    def test_labels_that_propose_do_not_test(self, method: str) -> None:
        pool, outcome = world(0, worse=0.5)
        rounds, given = audit(pool, outcome, method, (60, 60, 60))
        found = opacc.discover(rounds, given, pool=pool, proposing=2)
        assert (found.proposing, found.testing) == (120, 60)
        for part in found.parts:
            own = np.concatenate([drawn.index for drawn in (rounds[2:] if part.proposed else rounds)])
            inside = member(pool, part.name) if not part.proposed else found.slices[part.name].codes == 0
            assert part.labels == inside[own].sum()
            assert part.size == inside.sum()

    def test_labels_of_the_proposing_rounds_do_not_change_the_test_of_a_proposal(self) -> None:
        """The p-value is Fisher's of the later labels alone."""
        from opacc_ray.estimators.against_rest import fisher

        pool, outcome = world(0, worse=0.5)
        rounds, given = audit(pool, outcome, "srs", (100, 100))
        found = opacc.discover(rounds, given, pool=pool, proposing=1)
        part = next(own for own in found.parts if own.proposed and own.labels >= 5)
        inside, failure = (found.slices[part.name].codes == 0)[rounds[1].index], 1 - given[1]
        assert part.p_value == pytest.approx(fisher(int(failure[inside].sum()), inside.sum(), int(failure.sum()), 100))

    @pytest.mark.parametrize("method", ["srs", "neyman"])
    @pytest.mark.parametrize("budgets", [(400,), (60, 140, 200)])
    def test_crossing_that_is_far_worse_is_confirmed(self, method: str, budgets: tuple[int, ...]) -> None:
        pool, outcome = world(2, worse=0.6)
        found = opacc.discover(*audit(pool, outcome, method, budgets), pool=pool)
        (part,) = (own for own in found.parts if own.name == "camera = north, night = 1")
        assert part.confirmed
        assert part.low > 0.2
        assert part.low <= part.difference <= part.high

    def test_with_all_labels_the_difference_is_known(self) -> None:
        pool, outcome = world(0)
        rounds, given = audit(pool, outcome, "srs", (500, 1500))
        for part in opacc.discover(rounds, given, pool=pool).parts:
            if part.name.count(" = ") == 1 and "," not in part.name:
                inside = member(pool, part.name)
                known = outcome[~inside].mean() - outcome[inside].mean()
                assert (part.low, part.difference, part.high) == pytest.approx((known, known, known))

    def test_split_of_a_single_round_follows_the_seed(self) -> None:
        pool, outcome = world(0)
        rounds, given = audit(pool, outcome, "neyman", (200,))
        both = [opacc.discover(rounds, given, pool=pool, proposing=1, seed=seed).to_dict() for seed in (1, 1, 2)]
        assert both[0] == both[1] != both[2]
        assert (both[0]["proposing"], both[0]["testing"]) == (100, 100)

    def test_slices_of_the_proposals_are_slices_of_a_pool(self) -> None:
        pool, outcome = world(0, worse=0.5)
        rounds, given = audit(pool, outcome, "srs", (200, 200))
        found = opacc.discover(rounds, given, pool=pool)
        again = opacc.Pool(confidence=pool.confidence, slices=pool.slices | found.slices)
        name = next(iter(found.slices))
        stated = opacc.estimate(rounds, given, pool=again, by=name)
        assert set(stated) == {name, "rest"}

    def test_labels_are_accepted_as_in_estimate(self) -> None:
        pool, outcome = world(0)
        drawn = opacc.select(pool, "srs", 200)
        wrong = (pool.prediction + 1) % 3
        truth = np.where(outcome == 1, pool.prediction, wrong)
        labels = {name: str(truth[int(name)]) for name in drawn.ids}
        by_labels = opacc.discover(drawn, labels, pool=pool)
        assert by_labels.to_dict() == opacc.discover(drawn, outcome[drawn.index], pool=pool).to_dict()

    def test_result_is_json_and_a_table(self) -> None:
        pool, outcome = world(2, worse=0.6)
        found = opacc.discover(*audit(pool, outcome, "srs", (200, 200)), pool=pool)
        assert json.loads(json.dumps(found.to_dict()))["parts"][0]["confirmed"] is True
        lines = str(found).splitlines()
        assert len(lines) == 2 + max(20, len(found.confirmed))
        assert lines[2].startswith(found.parts[0].name)
        assert lines[2].endswith("confirmed")

    def test_nothing_to_test(self) -> None:
        pool = opacc.Pool(prediction=np.zeros(50))
        drawn = opacc.select(pool, "srs", 20)
        found = opacc.discover(drawn, np.ones(20), pool=pool)
        assert found.parts == found.confirmed == ()
        assert "0 of 0 parts confirmed" in str(found)

    def test_scores_of_a_regression(self) -> None:
        rng = np.random.default_rng(0)
        value, camera = rng.normal(size=600), rng.integers(0, 2, 600)
        pool = opacc.Pool(prediction=value, slices={"camera": camera})
        score = np.clip(0.9 - 0.5 * camera + 0.05 * rng.normal(size=600), 0, 1)
        drawn = opacc.select(pool, "neyman", 100)
        found = opacc.discover(drawn, score[drawn.index], pool=pool)
        assert found.confirmed[0].name == "camera = 1"

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ({"proposing": 2}, "proposing=2: give 0 to 1 of the rounds"),
            ({"proposing": -1}, "proposing=-1"),
            ({"fdr": 0.0}, "fdr=0.0"),
            ({"most": 0}, "most=0"),
        ],
    )
    def test_numbers_that_are_not_valid_are_refused(self, more: dict, message: str) -> None:
        pool, outcome = world(0)
        rounds, given = audit(pool, outcome, "srs", (10, 10))
        with pytest.raises(SpecError, match=message):
            opacc.discover(rounds, given, pool=pool, **more)

    def test_a_single_label_is_refused(self) -> None:
        pool, _ = world(0)
        with pytest.raises(LabelError, match="1 label cannot both propose and confirm"):
            opacc.discover(opacc.select(pool, "srs", 1), [1], pool=pool, proposing=1)


class TestTogether:
    def test_intervals_that_hold_together_are_wider(self) -> None:
        pool, outcome = world(0)
        rounds, given = audit(pool, outcome, "neyman", (100, 100))
        each = opacc.estimate(rounds, given, pool=pool, by="camera")
        both = opacc.estimate(rounds, given, pool=pool, by="camera", together=True)
        for name in CAMERAS:
            assert both[name].value == each[name].value
            assert both[name].low < each[name].low < each[name].high < both[name].high
            assert both[name].level == pytest.approx(1 - 0.05 / 4)

    def test_together_needs_parts(self) -> None:
        pool, outcome = world(0)
        drawn = opacc.select(pool, "srs", 20)
        with pytest.raises(SpecError, match="together"):
            opacc.estimate(drawn, outcome[drawn.index], pool=pool, together=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["srs", "neyman"])
def test_any_false_confirmation_is_rare_where_no_part_is_worse(method: str) -> None:
    """60 pools. With a probability of 5 %, 9 or more false ones would occur in fewer than 1 of 100 such tests."""
    false = 0
    for seed in range(60):
        pool, outcome = world(seed)
        rounds, given = audit(pool, outcome, method, (40, 60, 100), seed)
        found = opacc.discover(rounds, given, pool=pool)
        false += bool(found.confirmed)
    assert false <= 8


def member(pool: opacc.Pool, name: str) -> np.ndarray:
    attribute, value = name.split(" = ")
    slicing = pool.slices[attribute]
    return slicing.codes == slicing.names.index(value)


def test_kinds_of_conditions() -> None:
    pool, _ = world(0)
    kinds = {own.attribute: own.kind for own in conditions_of(view_of(pool), ["0", "1", "2"])}
    assert kinds == {"camera": Kind.SLICE, "night": Kind.SLICE, "prediction": Kind.CLASS, "confidence": Kind.TAIL}


class TestAllCandidates:
    @pytest.fixture(scope="class")
    @staticmethod
    def found() -> list[Candidate]:
        pool, _ = world(0)
        view = view_of(pool)
        return all_candidates(view, list(conditions_of(view, ["0", "1", "2"])), 100, [])

    def test_are_of_at_least_the_size_asked_for(self, found: list[Candidate]) -> None:
        sizes = [own.holds().sum() for own in found]
        assert min(sizes) >= 100
        assert max(sizes) < SIZE

    def test_are_crossings_classes_and_tails_but_no_single_slices(self, found: list[Candidate]) -> None:
        names = {own.name for own in found}
        assert {"predicted 0", "camera = north, night = 1", "night = 1, predicted 2"} <= names
        assert "confidence below its 10th percentile" in names
        assert "camera = north" not in names
        assert not any("confidence" in name and "," in name for name in names)

    def test_what_repeats_another_is_left_out(self) -> None:
        camera = np.repeat([0, 1], 200)
        pool = opacc.Pool(prediction=camera, confidence=np.tile([0.5, 1.0], 200), slices={"camera": camera})
        view = view_of(pool)
        given = list(conditions_of(view, ["0", "1"]))
        slices = [Candidate((own,)) for own in given if own.kind is Kind.SLICE]
        names = [own.name for own in all_candidates(view, given, 20, slices)]
        assert not [name for name in names if name.startswith(("camera", "predicted"))]


def test_the_family_of_slices_has_half_of_the_bound() -> None:
    """Its q-values are twice those of Benjamini and Hochberg."""
    pool, outcome = world(2, worse=0.2)
    drawn = opacc.select(pool, "srs", 400)
    found = opacc.discover(drawn, outcome[drawn.index], pool=pool)
    own = [part for part in found.parts if "," not in part.name and " = " in part.name]
    assert len(own) == 6
    q = q_values([part.p_value for part in own])
    assert [part.q_value for part in own] == pytest.approx([min(2 * value, 1.0) for value in q])


def test_a_later_round_looks_at_the_suspects_and_does_not_test_them_twice() -> None:
    rng = np.random.default_rng(5)
    camera = rng.integers(0, 20, SIZE)
    outcome = (rng.random(SIZE) >= 0.15 + 0.3 * (camera == 7)).astype(float)
    columns = {"ids": [str(k) for k in range(SIZE)], "confidence": np.full(SIZE, 0.85)}
    pool = opacc.Pool(**columns, slices={"camera": camera})
    first = opacc.select(pool, "neyman", 100, seed=1, serve=["camera"])
    found = opacc.discover(first, outcome[first.index], pool=pool)
    ranked = [own.name for own in sorted(found.parts, key=lambda own: (own.p_value, -own.difference))]
    assert found.suspects.names == (*[name for name in ranked if "camera" in name][:8], "rest")
    for place, name in enumerate(found.suspects.names[:-1]):
        assert np.array_equal(found.suspects.codes == place, camera == int(name.removeprefix("camera = ")))
    again = opacc.Pool(**columns, slices={"camera": camera, "suspects": found.suspects})
    second = opacc.select(again, "neyman", 120, seed=2, previous=[(first, outcome[first.index])], serve=["suspects"])
    inside = [int((found.suspects.codes[second.index] == place).sum()) for place in range(8)]
    assert sum(inside) >= 90  # a simple random sample would have 48
    both = opacc.discover([first, second], [outcome[own.index] for own in (first, second)], pool=again)
    assert not any("suspects" in own.name for own in both.parts)
    assert [own.name for own in both.confirmed] == ["camera = 7"]
    assert len(both.suspects.names) == 5  # four, and the rest
    assert "camera = 7" not in both.suspects.names
