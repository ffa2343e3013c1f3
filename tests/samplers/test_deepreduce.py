"""DeepReduce: the paper's example, equality with the plain transcription, where it stops, and bad input."""

import itertools
from typing import Any

import numpy as np
import pytest
from covering import cover
from oracles import deepreduce as reference
from oracles import sections as reference_sections

import opacc_ray as opacc
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.neurons.sections import equal_count
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers.select import select

PAPER = np.array([[1, 2, 3, 9, 4, 7, 8, 1, 10]], dtype=np.float32).T


def _outputs(seed: int) -> np.ndarray:
    """Outputs of six kinds: smooth, ties, constant neurons, repeated rows, neighbouring numbers, edges of float32."""
    rng = np.random.default_rng(seed)
    size, width = rng.integers(20, 70), rng.integers(1, 6)
    values = rng.normal(size=(size, width))
    kind = seed % 6
    if kind == 1:
        values = rng.integers(0, 4, size=(size, width)).astype(float)
    elif kind == 2:
        values[:, 1:] = values[:, :1] > 9  # constant but for the first
    elif kind == 3:
        values = values[rng.integers(5, size=size)]
    elif kind == 4:
        values = np.float32(1) + np.spacing(np.float32(1)) * rng.integers(0, 9, size=(size, width))  # neighbours
    elif kind == 5:
        edges = [0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.1754944e-38]
        values = rng.choice(edges, size=(size, width))
    return values.astype(np.float32)


def _select(pool: Pool | View, **parameters: Any) -> list[int]:
    return select(pool, "deepreduce", **parameters).index.tolist()


class TestSections:
    def test_the_papers_example(self) -> None:
        sections = equal_count(view_of(Pool(output=PAPER)), "output", 2)
        assert sections.starts.tolist() == [[7.0]]
        assert np.bincount(sections.codes(PAPER)[:, 0]).tolist() == [5, 4]  # of 9

    @pytest.mark.parametrize("seed", range(6))
    def test_equal_the_plain_transcription(self, seed: int) -> None:
        values = _outputs(seed)
        cuts = [0, 1, 2, 9, len(values)]
        parts = [Pool(output=values[a:b]) for a, b in itertools.pairwise(cuts)]
        for num in (2, 3, 7, 20, 255):
            expected = reference.equal_count(values, num)
            for view in (view_of(Pool(output=values)), View(LocalParts(parts))):
                assert equal_count(view, "output", num).codes(values).tolist() == expected

    def test_fewer_values_than_sections_leave_some_empty(self) -> None:
        values = np.array([[0.0, 5.0], [0.0, 7.0]], dtype=np.float32)
        assert equal_count(view_of(Pool(output=values)), "output", 3).codes(values).tolist() == [[2, 1], [2, 2]]


def test_hand_worked_selection() -> None:
    # Sections 0 0 0 0 0 | 1 1 1 1 of the paper's example (rows 0 1 2 4 7 | 3 5 6 8). T is empty: section 0 is lacked
    # most (5 > 4), so row 0. Then section 1 is empty, so row 3. Then 5/1 > 4/1, so row 1, and KL is
    # 5/9 ln(5/9 / 2/3) + 4/9 ln(4/9 / 1/3) = 0.0266.
    chosen = opacc.select(Pool(output=PAPER), "deepreduce", 3, sections=2, coverage=False)
    assert chosen.index.tolist() == [0, 3, 1]
    assert chosen.facts["kl"] == pytest.approx(5 / 9 * np.log(5 / 6) + 4 / 9 * np.log(4 / 3), abs=1e-15)


def test_of_those_that_agree_most_the_one_with_the_least_kl() -> None:
    # Row 0 is in the larger section of both neurons. Then both want section 1, where no row is for both: rows 1, 2, 3
    # tie. Section 1 of the first neuron holds 2/6 of the pool, of the second 1/6, so 2 and 3 leave the lesser KL.
    values = np.array([[0, 0], [0, 1], [1, 0], [1, 0], [0, 0], [0, 0]], dtype=np.float32)
    assert _select(Pool(output=values), budget=3, sections=2, coverage=False) == [0, 2, 1]


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_plain_transcription(seed: int) -> None:
    values = _outputs(seed)
    rng = np.random.default_rng(seed)
    coverage = rng.random((len(values), 60)) < rng.beta(0.4, 3, 60)
    pool = Pool(output=values, coverage=coverage)
    limits = {"alpha": float(rng.choice([1e-12, 0.01, 0.1])), "budget": int(rng.integers(1, len(values) + 1))}
    for num in (2, 5, 20):
        codes = reference.equal_count(values, num)
        plain = reference.select(codes, num, **limits)
        assert _select(pool, sections=num, coverage=False, **limits) == plain
        covering = reference.select(codes, num, coverage=coverage, lookahead=1, **limits)
        assert _select(pool, sections=num, lookahead=1, **limits) == covering


@pytest.mark.parametrize("seed", range(6))
def test_equals_the_plain_transcription_on_sections_of_equal_width(seed: int) -> None:
    values = _outputs(6 * seed)  # smooth: at the edges of float32 the widths overflow
    codes = reference_sections.equal_width(values.astype(np.float64), 10)
    chosen = _select(
        Pool(hidden=values), budget=15, sections=10, coverage=False, layer="hidden", division="equal_width"
    )
    assert chosen == reference.select(codes, 10, budget=15)


class TestStops:
    def test_at_alpha_without_a_budget(self) -> None:
        pool = _smooth_pool()
        chosen = opacc.select(pool, "deepreduce", alpha=0.02, coverage=False)
        shorter = opacc.select(pool, "deepreduce", len(chosen) - 1, alpha=0.02, coverage=False)
        assert chosen.facts["kl"] < 0.02 <= shorter.facts["kl"]
        assert shorter.index.tolist() == chosen.index[:-1].tolist()

    def test_at_alpha_if_that_comes_first(self) -> None:
        assert len(_select(_smooth_pool(), budget=300, alpha=0.02)) < 200

    def test_covers_everything_even_if_alpha_is_reached(self) -> None:
        pool = _smooth_pool()
        chosen = _select(pool, alpha=40.0)
        assert chosen == cover(pool.coverage).tolist()

    def test_a_budget_below_phase_1_buys_its_first_examples_and_says_so(self) -> None:
        pool = _smooth_pool()
        whole = cover(pool.coverage)
        chosen = opacc.select(pool, "deepreduce", 4)
        unmet = pool.coverage.any(axis=0).sum() - pool.coverage[whole[:4]].any(axis=0).sum()
        assert chosen.index.tolist() == whole[:4].tolist()
        assert chosen.facts["requirements_unmet"] == unmet > 0
        assert "does not represent the pool" in estimate_outcomes(chosen, np.ones(4)).reason

    def test_an_alpha_that_takes_the_whole_pool_is_refused(self) -> None:
        with pytest.raises(opacc.OpaccError, match=r"alpha=1e-12 is only reached with all 300 examples"):
            _select(_smooth_pool(), alpha=1e-12, coverage=False)

    def test_a_round_with_nothing_left_to_do_is_refused(self) -> None:
        pool = _smooth_pool()
        first = opacc.select(pool, "deepreduce", alpha=0.02)
        with pytest.raises(opacc.OpaccError, match=r"within KL 0\.0.* below alpha=0.02.*lower alpha"):
            _select(pool, alpha=0.02, previous=[(first, np.ones(len(first)))])


def _smooth_pool() -> Pool:
    rng = np.random.default_rng(5)
    coverage = rng.random((300, 50)) < rng.beta(0.4, 3, 50)
    return Pool(output=rng.normal(size=(300, 4)), hidden=rng.normal(size=(300, 8)), coverage=coverage)


def test_rounds_continue_where_the_labels_end() -> None:
    pool = _smooth_pool()
    whole = _select(pool, budget=60, alpha=1e-12)
    first = opacc.select(pool, "deepreduce", 25)
    second = _select(pool, budget=35, alpha=1e-12, previous=[(first, np.ones(25))])
    assert first.index.tolist() + second == whole


@pytest.mark.parametrize(
    "variant", [{"coverage": False}, {"layer": "hidden"}, {"division": "equal_width"}, {"heuristic": "random"}]
)
def test_variants_choose_differently_and_reach_alpha(variant: dict[str, Any]) -> None:
    pool = _smooth_pool()
    chosen = opacc.select(pool, "deepreduce", alpha=0.05, seed=1, **variant)
    assert chosen.facts["kl"] < 0.05
    assert chosen.index.tolist() != _select(pool, alpha=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_parts_and_forgetful_actors_do_not_change_the_selection(seed: int) -> None:
    class Forgetful(LocalParts):
        def call(self, calls):  # every third call finds new actors
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls % 3 == 0:
                self.pools = [Pool(ids=p.ids, output=p.output, coverage=p.coverage) for p in self.pools]
            return super().call(calls)

    values = _outputs(6 * seed)
    coverage = np.random.default_rng(seed).random((len(values), 30)) < 0.1
    pool = Pool(ids=[f"i{row}" for row in range(len(values))], output=values, coverage=coverage)
    parts = [
        Pool(ids=pool.ids[a:b], output=values[a:b], coverage=coverage[a:b])
        for a, b in itertools.pairwise([0, 1, 8, 17, len(values)])
    ]
    whole = opacc.select(pool, "deepreduce", 15).to_dict()
    for view in (View(LocalParts(parts)), View(Forgetful(parts))):
        assert opacc.select(view, "deepreduce", 15).to_dict() == whole


class TestBadInput:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"sections": 1}, r"sections=1: give 2 to 255"),
            ({"sections": 256}, r"sections=256"),
            ({"alpha": 0}, r"alpha=0: .* above 0"),
            ({"alpha": -0.1}, r"alpha=-0.1"),
            ({"alpha": float("nan")}, r"alpha=nan"),
            ({"lookahead": -1}, r"lookahead=-1"),
            ({"lookahead": 1.5}, r"lookahead=1.5"),
            ({"layer": "dsa"}, r"layer='dsa': choose one of hidden, output"),
            ({"division": "quantiles"}, r"division='quantiles': choose one of equal_count, equal_width"),
            ({"heuristic": "best"}, r"heuristic='best': choose one of kl, random"),
        ],
    )
    def test_a_parameter(self, parameters: dict[str, Any], message: str) -> None:
        with pytest.raises(opacc.OpaccError, match=message):
            _select(_smooth_pool(), budget=10, **parameters)

    def test_no_coverage_names_the_three_ways_out(self) -> None:
        with pytest.raises(
            opacc.OpaccError, match=r"needs coverage .*Pool\(coverage=.*extract\.features.*coverage=False"
        ):
            _select(Pool(output=PAPER), budget=3)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_a_value_that_is_not_finite(self, bad: float) -> None:
        values = np.random.default_rng(0).normal(size=(9, 3))
        values[4, 1] = bad
        with pytest.raises(opacc.OpaccError, match=r"output of example '4' holds NaN or infinity"):
            _select(Pool(output=values), budget=3, coverage=False)

    def test_outputs_that_are_all_constant(self) -> None:
        with pytest.raises(opacc.OpaccError, match=r"every neuron of output is constant"):
            _select(Pool(output=np.ones((9, 3))), budget=3, coverage=False)
