"""The contract of every method in the registry, and hand-worked cases of srs and css."""

import itertools

import numpy as np
import pytest
from numpy.typing import ArrayLike
from small_spec import small_spec

import opacc_ray as opacc
from opacc_ray.designs.design import LabelledBefore
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.parts.view import LocalParts, View
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS, find_method, parse_parameters
from opacc_ray.samplers.select import select
from opacc_ray.spec import parse_spec

N, M, C = 400, 12, 5

WITH_REPLACEMENT = {"sups", "two_ups"}
DETERMINISTIC = {"deepreduce"}
STOPS_EARLY = {"deepreduce": {"alpha": 0.3}}
REPORTS_PROGRESS = {"ces", "deepreduce"}
"""Methods that differ from the rule: a new one of their kind is added here."""


@pytest.fixture(scope="module")
def pool() -> Pool:
    return _pool(np.random.default_rng(0))


def _pool(rng: np.random.Generator, size: int = N) -> Pool:
    output = rng.normal(size=(size, C)).astype(np.float32)
    return Pool(
        ids=[f"scan/{i:04d}" for i in range(size)],
        hidden=np.maximum(rng.normal(size=(size, M)), 0).astype(np.float32),
        output=output,
        prediction=output.argmax(axis=1),
        confidence=rng.uniform(0.2, 1, size),
        dsa=rng.gamma(2, 1, size),
        lsa=rng.normal(50, 9, size),
        coverage=rng.random((size, 40)) < 0.2,
    )


def _cut(pool: Pool, bounds: list[int]) -> View:
    def part(low: int, high: int) -> Pool:
        names = ("hidden", "output", "prediction", "confidence", "dsa", "lsa", "coverage")
        return Pool(ids=pool.ids[low:high], **{name: getattr(pool, name)[low:high] for name in names})

    return View(LocalParts([part(low, high) for low, high in itertools.pairwise(bounds)]))


def _is_zero(numbers: ArrayLike) -> bool:
    """Return whether the mean of independent numbers is zero, by four standard errors."""
    return bool(abs(np.mean(numbers)) <= 4 * np.std(numbers) / np.size(numbers) ** 0.5)


@pytest.mark.parametrize("method", METHODS)
class TestEveryMethod:
    def test_chooses_as_many_examples_of_the_pool_as_the_budget_says(self, method: str, pool: Pool) -> None:
        chosen = opacc.select(pool, method, 60, seed=1)
        distinct = len(set(chosen.index.tolist()))
        assert chosen.index.dtype == np.int64
        assert 0 <= chosen.index.min() <= chosen.index.max() < N
        assert len(chosen) == 60
        assert distinct == len(chosen) or not chosen.design.is_distinct
        assert chosen.design.is_distinct == (method not in WITH_REPLACEMENT)
        assert list(chosen.ids) == [pool.ids[i] for i in chosen.index]
        assert all(len(values) == len(chosen) for values in chosen.design.columns().values())

    def test_says_whether_its_design_predicts_failures(self, method: str, pool: Pool) -> None:
        predicted = opacc.select(pool, method, 60, seed=1).design.prediction
        assert parse_parameters(method, {}).predicts_failures == (predicted is not None)

    def test_spends_its_budget_or_says_why_not(self, method: str, pool: Pool) -> None:
        """Those that stop by themselves choose fewer: deepreduce once the sample is as close to the pool as alpha."""
        chosen = opacc.select(pool, method, 200, seed=1, **STOPS_EARLY.get(method, {}))
        assert (len(chosen) < 200) == (method in STOPS_EARLY)
        if method == "deepreduce":
            assert chosen.facts["kl"] < chosen.parameters["alpha"]
            assert chosen.facts["requirements_unmet"] == 0

    def test_says_all_that_it_reads(self, method: str, pool: Pool) -> None:
        """A job loads what ``needs`` and ``optional_features`` name, no more: the selection must be the same."""
        parameters = parse_parameters(method, {})
        named = {*METHODS[method].needs(parameters), *parameters.optional_features}
        loaded = Pool(ids=pool.ids, **{name: getattr(pool, name) for name in named})
        assert opacc.select(loaded, method, 50, seed=5).to_dict() == opacc.select(pool, method, 50, seed=5).to_dict()

    def test_other_seed_other_selection_unless_deterministic(self, method: str, pool: Pool) -> None:
        first, other = (opacc.select(pool, method, 50, seed=seed) for seed in (5, 6))
        assert np.array_equal(first.index, other.index) == (method in DETERMINISTIC)

    def test_parts_do_not_change_the_selection(self, method: str, pool: Pool) -> None:
        whole = opacc.select(pool, method, 50, seed=2)
        for bounds in ([0, 1, 200, N], [0, 150, 151, 390, N]):
            assert opacc.select(_cut(pool, bounds), method, 50, seed=2).to_dict() == whole.to_dict()

    def test_saves_and_loads_without_loss(self, method: str, pool: Pool, tmp_path) -> None:
        chosen = opacc.select(pool, method, 40, seed=3)
        chosen.save(tmp_path / "selection.json")
        loaded = opacc.Selection.load(tmp_path / "selection.json")
        assert loaded.to_dict() == chosen.to_dict()
        again = loaded.design.columns()
        assert all(again[name].dtype == values.dtype for name, values in chosen.design.columns().items())
        outcome = np.random.default_rng(1).random(len(chosen)) < 0.8
        assert estimate_outcomes(loaded, outcome) == estimate_outcomes(chosen, outcome)

    def test_does_not_choose_what_is_labelled(self, method: str, pool: Pool) -> None:
        first = opacc.select(pool, method, 60, seed=1)
        second = select(pool, method, 60, seed=1, previous=[(first, np.ones(len(first)))])
        assert second.round == 2
        assert not set(first.index) & set(second.index)

    def test_estimate_is_a_sound_interval(self, method: str, pool: Pool) -> None:
        chosen = opacc.select(pool, method, 60, seed=1)
        for outcome in (np.ones(len(chosen)), np.zeros(len(chosen)), np.arange(len(chosen)) % 2):
            estimate = estimate_outcomes(chosen, outcome)
            assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
            assert estimate.low < estimate.high  # 60 of 400 labels leave doubt, also when all agree
            for end in (estimate.low * N, estimate.high * N):  # of 400 examples a whole number is right
                assert end == pytest.approx(round(end), abs=1e-9)
            assert estimate.n == len(chosen)
            assert estimate.design_based or estimate.reason

    def test_labels_estimate_the_truth_and_their_first_half_too_unless_the_docstring_says_why(
        self, method: str, pool: Pool
    ) -> None:
        """Outcomes depend on the confidence, by which most methods order or weigh examples."""
        right = 1.0 * (np.random.default_rng(3).random(N) < pool.confidence)
        whole, apart = [], []
        for seed in range(25):
            chosen = opacc.select(pool, method, 60, seed=seed)
            is_first = np.arange(60) < 30
            whole.append(estimate_outcomes(chosen, right[chosen.index]).value)
            half = estimate_outcomes(chosen.restrict(is_first), right[chosen.index[is_first]])
            apart.append(half.value - whole[-1])
        is_proven = chosen.design.reason is None
        assert _is_zero(np.array(whole) - right.mean()) or not is_proven, "its design is not how it draws"
        assert _is_zero(apart) or "in the order of" in METHODS[method].__doc__

    def test_draws_depend_on_those_before_as_the_stream_of_the_design_states(self, method: str, pool: Pool) -> None:
        """Intervals that are valid at any time rest on it; a sample spread along the confidence is no simple one."""
        failure = 1.0 * (pool.confidence < np.median(pool.confidence))
        product = []
        for seed in range(25):
            chosen = opacc.select(pool, method, 60, seed=seed)
            drawn = failure[chosen.index]
            stream = chosen.design.stream(drawn, LabelledBefore(0, 0.0, N))
            if stream is None:
                return
            before = np.cumsum(drawn) - drawn - np.arange(60) * failure.mean()
            product.append(((stream.value + stream.drawn - failure.sum()) * before).sum())
        assert _is_zero(product), "its draws are not as its design states: use one without a stream"

    def test_estimates_scores_of_a_regression_if_it_supports_them(self, method: str, pool: Pool) -> None:
        if not parse_parameters(method, {}).supports_regression:
            pytest.skip("the method does not support regression")
        score = 1 - np.random.default_rng(4).random(N) ** 4
        first = opacc.select(pool, method, 40, seed=1)
        second = select(pool, method, 40, seed=2, previous=[(first, score[first.index])])
        for estimate in (
            estimate_outcomes(first, score[first.index]),
            estimate_outcomes([first, second], [score[first.index], score[second.index]]),
        ):
            assert 0 <= estimate.low < estimate.value < estimate.high <= 1

    def test_order_does_not_tell_how_sure_the_model_is_unless_the_docstring_says_why(
        self, method: str, pool: Pool
    ) -> None:
        apart = []
        for seed in range(40):
            confidence = pool.confidence[opacc.select(pool, method, 60, seed=seed).index]
            apart.append(confidence[:30].mean() - confidence[30:].mean())
        assert _is_zero(apart) or "in the order of" in METHODS[method].__doc__

    def test_names_the_feature_that_is_missing(self, method: str) -> None:
        needs = METHODS[method].needs(parse_parameters(method, {}))
        if needs:
            with pytest.raises(opacc.OpaccError, match=f"'{method}' needs .*{needs[0]}"):
                opacc.select(Pool(ids=[str(i) for i in range(100)]), method, 50)

    def test_refuses_a_budget_above_the_pool(self, method: str, pool: Pool) -> None:
        with pytest.raises(opacc.OpaccError, match=r"budget=401 .* 400 examples.* at most 400"):
            opacc.select(pool, method, 401)

    def test_unknown_parameter_names_the_nearest(self, method: str, pool: Pool) -> None:
        known = list(parse_parameters(method, {}).__dataclass_fields__)
        wrong = known[0] + "s" if known else "anything"
        with pytest.raises(opacc.OpaccError, match=f"no parameter '{wrong}'" + (f".*'{known[0]}'" if known else "")):
            opacc.select(pool, method, 50, **{wrong: 1})


def test_a_spec_refuses_a_regression_if_the_method_does_not_support_it(monkeypatch: pytest.MonkeyPatch) -> None:
    content = small_spec("s3://bucket", "s3://bucket/runs", sample={"method": "srs", "budget": 40})
    content["model"] = {"factory": "a:b", "task": "regression"}
    assert parse_spec(content, "spec").sample.method == "srs"
    monkeypatch.setattr(METHODS["srs"].Parameters, "supports_regression", False)
    with pytest.raises(opacc.OpaccError, match="'srs' does not support regression; choose another method"):
        parse_spec(content, "spec")


@pytest.mark.parametrize("method", METHODS)
def test_progress_counts_the_chosen_examples_up_to_the_budget(method: str, pool: Pool) -> None:
    parameters = {"initial": 5} if method == "ces" else {}
    seen: list[tuple[int, int | None]] = []
    opacc.select(pool, method, 60, seed=1, progress=lambda *step: seen.append(step), **parameters)
    assert bool(seen) == (method in REPORTS_PROGRESS), "a method that calls task.progress is in REPORTS_PROGRESS"
    if seen:
        done = [done for done, _ in seen]
        assert done == sorted(set(done))
        assert seen[-1] == (60, 60)
        assert {total for _, total in seen} == {60}
    else:
        assert seen == []


def test_neyman_is_the_default(pool: Pool) -> None:
    assert opacc.select(pool, budget=20, seed=3).to_dict() == opacc.select(pool, "neyman", 20, seed=3).to_dict()


def test_unknown_method_names_the_nearest(pool: Pool) -> None:
    with pytest.raises(opacc.OpaccError, match="no method 'srss'; did you mean 'srs'"):
        opacc.select(pool, "srss", 10)


def test_refuses_to_choose_where_all_is_labelled() -> None:
    pool = Pool(confidence=np.linspace(0.1, 0.9, 12))
    whole = opacc.select(pool, "srs", 12, seed=0)
    for method, budget in (("srs", 1), ("deepreduce", None)):
        with pytest.raises(
            LabelError, match="all 12 examples of the pool are labelled, so there is none left to choose"
        ):
            select(pool, method, budget, seed=0, previous=[(whole, np.ones(12))])


@pytest.mark.parametrize("budget", [0, -3, 2.5, True, None, "7"])
def test_refuses_a_budget_that_is_no_number_of_labels(budget, pool: Pool) -> None:
    with pytest.raises(opacc.OpaccError, match="budget"):
        opacc.select(pool, "srs", budget)


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [("ces", "sections", "20"), ("ces", "sections", 2.5), ("ces", "smoothing", True), ("css", "fractions", 0.5)],
)
def test_refuses_a_parameter_of_another_type(method: str, name: str, value: object, pool: Pool) -> None:
    with pytest.raises(opacc.OpaccError, match=f"{name}={value!r}"):
        opacc.select(pool, method, 50, **{name: value})


def test_css_orders_by_confidence_and_shares_the_budget(pool: Pool) -> None:
    chosen = opacc.select(pool, "css", 100, seed=4)
    assert np.bincount(chosen.design.stratum).tolist() == [20, 40, 40]
    assert chosen.design.sizes.tolist() == [320, 40, 40]
    confidence = pool.confidence[chosen.index]
    top, middle, low = (confidence[chosen.design.stratum == j] for j in range(3))
    assert top.min() > middle.max()
    assert middle.min() > low.max()


@pytest.mark.parametrize("method", METHODS)
def test_presets_set_parameters_that_can_be_replaced(method: str) -> None:
    presets = find_method(method).Parameters.presets
    for name, own in presets.items():
        assert parse_parameters(method, {"preset": name}) == parse_parameters(method, own)
    with pytest.raises(SpecError, match=f"method '{method}' has no preset 'no'; (choose one of|it has none)"):
        parse_parameters(method, {"preset": "no"})
