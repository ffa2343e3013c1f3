"""Test the contract of every design, and the errors for damaged ones."""

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from oracles import deepest as reference
from unclipped import estimate_sample

from opacc_ray.designs import DESIGNS, Design
from opacc_ray.designs.design import LabelledBefore
from opacc_ray.designs.draw_probability import HansenHurwitz, RaoHartleyCochran, StepByStep
from opacc_ray.designs.inclusion_probability import Grown, InclusionProbability
from opacc_ray.designs.simple_random import Purposive, SimpleRandom, Stratified, collapse
from opacc_ray.errors import DataError, LabelError
from opacc_ray.selection import read_design

N, n = 60, 12
RNG = np.random.default_rng(0)
PROBABILITY = RNG.uniform(0.005, 0.05, n)
STRATA = Stratified(np.repeat([0, 1, 2], 4), np.array([30, 20, 10]))

EXAMPLES: list[Design] = [
    SimpleRandom(n, N, replacement=False),
    SimpleRandom(n, N, replacement=True),
    STRATA,
    Stratified(np.repeat([0, 1, 2], [7, 4, 1]), np.array([30, 20, 10])),
    HansenHurwitz(PROBABILITY, N, 0.004),
    RaoHartleyCochran(PROBABILITY, PROBABILITY * 5, np.full(n, 5), 0.004),
    StepByStep(PROBABILITY, np.arange(n), N, 0.004),
    InclusionProbability(RNG.uniform(0.1, 1, n), RNG.random(n), 9.5, N - 2, n, np.array([3, 8])),
    Purposive(n, N, "chosen by optimisation"),
    Purposive(n, N, "chosen by optimisation", np.repeat([1, 2], 6)),
]
"""At least one of each; a new design adds its own, or is the next one."""

GROWN = Grown(
    *(RNG.uniform(0.1, 1, n), RNG.random(n), 9.5, N - 2, n, np.empty(0, dtype=np.int64)),
    *(np.repeat([0, 1], 6), np.full(n, 0.1), np.array([6, 6])),
)


def test_there_is_an_example_of_every_design() -> None:
    assert {type(design) for design in [*EXAMPLES, GROWN]} == set(DESIGNS.values())
    assert all(DESIGNS[design.name] is type(design) for design in [*EXAMPLES, GROWN])


@pytest.mark.parametrize("design", [*EXAMPLES, GROWN], ids=lambda design: design.name)
class TestEveryDesign:
    def test_mean_is_linear_with_its_weights(self, design: Design) -> None:
        x = np.random.default_rng(1).normal(size=(n, 3))
        assert len(design) == n
        assert design.weights.shape == (n,)
        assert (design.weights > 0).all()
        assert design.mean(x) == pytest.approx(design.weights @ x, rel=1e-12)
        assert design.mean(x[:, 0]) == pytest.approx(design.weights @ x[:, 0], rel=1e-12)

    def test_variance_is_a_quadratic_form(self, design: Design) -> None:
        x, y = np.random.default_rng(2).normal(size=(2, n, 3))
        assert (np.asarray(design.variance(x)) >= 0).all()
        assert design.variance(x) == pytest.approx([design.variance(column) for column in x.T], rel=1e-9)
        assert design.variance(-3 * x) == pytest.approx(9 * np.asarray(design.variance(x)), rel=1e-9)
        both = np.asarray(design.variance(x + y)) + design.variance(x - y)
        assert both == pytest.approx(2 * (np.asarray(design.variance(x)) + design.variance(y)), rel=1e-9)

    def test_weights_are_bounded(self, design: Design) -> None:
        assert 0 < design.largest_weight < 1
        assert 0 < design.weight_bound < math.inf

    def test_gives_an_interval(self, design: Design) -> None:
        for outcome in (np.ones(n), np.zeros(n), np.arange(n) % 3 / 2, np.arange(n) % 2.0):
            found = estimate_sample(design, outcome, 0.95)
            assert 0 <= found.low < found.high <= 1
            assert found.n == n
            assert found.design_based == (not isinstance(design, Purposive))

    def test_restores_from_json(self, design: Design) -> None:
        again = read_design(json.loads(json.dumps(design.to_json(), allow_nan=False)), "file")
        assert type(again) is type(design)
        assert again.to_json() == design.to_json()
        assert np.array_equal(again.weights, design.weights)
        for name, values in design.columns().items():
            assert again.columns()[name].dtype == values.dtype

    def test_restricts_to_some_labels(self, design: Design) -> None:
        assert design.restrict(np.ones(n, dtype=bool)).to_json() == design.to_json()
        keep = np.arange(n) % 4 != 1
        part = design.restrict(keep)
        assert len(part) == keep.sum()
        for name, values in design.columns().items():
            assert np.array_equal(part.columns()[name], values[keep])
        x = np.random.default_rng(3).random(9)
        assert part.mean(x) == pytest.approx(part.weights @ x)
        assert read_design(part.to_json(), "file").to_json() == part.to_json()

    def test_weights_of_the_first_labels_of_a_sequential_design_sum_to_1(self, design: Design) -> None:
        by_risk = isinstance(design, HansenHurwitz | RaoHartleyCochran | StepByStep)  # a few examples weigh far more
        if design.is_sequential and not by_risk and design.prediction is None:
            assert design.restrict(np.arange(n) < 8).weights.sum() == pytest.approx(1)

    def test_error_names_a_missing_field(self, design: Design) -> None:
        content = design.to_json()
        required = [item.name for item in fields(design) if item.name in content and item.name != "phase"]
        for name in required:
            rest = {key: item for key, item in content.items() if key != name}
            with pytest.raises(DataError, match=rf"selection\.json: .*{name}"):
                read_design(rest, "selection.json")


@pytest.mark.parametrize(
    ("num", "group"),
    [([2, 3, 2], [0, 1, 2]), ([1, 1, 2, 1], [0, 0, 1, 1]), ([1, 4, 1], [0, 0, 0]), ([5, 1], [0, 0]), ([1], [0])],
)
def test_strata_with_one_label_join_the_next_and_the_last_the_one_before(num: list[int], group: list[int]) -> None:
    assert collapse(np.array(num)).tolist() == group


def _chains(kind: str) -> Iterator[tuple[float, tuple[int, ...], Design]]:
    """Every sample of 3 of 5 examples, in order of draw, with its probability and its design."""
    p = np.array([0.1, 0.1, 0.2, 0.35, 0.25])
    if kind == "step by step":
        confidence = np.array([0.95, 0.4, 0.99, 0.65, 0.8])
        for sample, q in reference.sequences(
            reference.weights(1 - confidence, confidence < 0.7, "paper"), 3, 0.8, list(range(5))
        ):
            yield math.prod(q), sample, StepByStep(np.array(q), np.arange(3), 5, 0.01)
    elif kind == "without replacement":
        for sample in itertools.permutations(range(5), 3):
            yield 1 / 60, sample, SimpleRandom(3, 5, replacement=False)
    else:
        for sample in itertools.product(range(5), repeat=3):
            equal = kind == "with replacement"
            own = p[list(sample)]
            design = SimpleRandom(3, 5, replacement=True) if equal else HansenHurwitz(own, 5, 0.1)
            yield (1 / 125 if equal else float(own.prod())), sample, design


@pytest.mark.parametrize("kind", ["without replacement", "with replacement", "Hansen-Hurwitz", "step by step"])
def test_streams_are_unbiased_given_every_draw_before(kind: str) -> None:
    failure = np.array([1, 0, 0.25, 1, 0.5])
    chance_of: dict[tuple[int, ...], float] = {}
    value_of: dict[tuple[int, ...], float] = {}
    drawn_of: dict[tuple[int, ...], float] = {}
    for chance, sample, design in _chains(kind):
        stream = design.stream(failure[list(sample)], LabelledBefore(0, 0.0, 5))
        assert stream is not None
        assert (stream.value <= stream.bound * (1 + 1e-12)).all()
        for k in range(3):
            before = sample[:k]
            chance_of[before] = chance_of.get(before, 0) + chance
            value_of[before] = value_of.get(before, 0) + chance * stream.value[k]
            drawn_of[before] = stream.drawn[k]
    assert chance_of[()] == pytest.approx(1)
    for before, chance in chance_of.items():
        assert value_of[before] / chance == pytest.approx(failure.sum() - drawn_of[before], abs=1e-12)


def test_error_names_a_stratum_without_label() -> None:
    with pytest.raises(LabelError, match="stratum 1 has no label"):
        _ = STRATA.restrict(STRATA.stratum != 1).weights


@pytest.mark.parametrize(
    ("design", "field", "value", "message"),
    [
        (EXAMPLES[4], "draw_probability", 0.0, r"draw_probability of its design is 0\.0 at place 2, .* \(0, 1\]"),
        (EXAMPLES[4], "draw_probability", 1.5, r"is 1\.5 at place 2"),
        (EXAMPLES[4], "draw_probability", math.nan, "is nan at place 2"),
        (EXAMPLES[4], "draw_probability", "0.1", "must be a list of numbers"),
        (EXAMPLES[2], "stratum", -1, "stratum of its design is -1 at place 2, .* at least 0"),
        (EXAMPLES[2], "stratum", 3, "stratum 3 of its design is none of the 3 in sizes"),
        (EXAMPLES[2], "stratum", 1 << 62, f"stratum {1 << 62} of its design is none of the 3 in sizes"),
        (EXAMPLES[2], "stratum", 0.5, "stratum of its design is .* must be a list of whole numbers"),
        (EXAMPLES[5], "group_size", 0, "group_size of its design is 0 at place 2, .* at least 1"),
        (EXAMPLES[6], "num_before", -2, "num_before of its design is -2 at place 2"),
        (EXAMPLES[7], "inclusion_probability", 1.01, r"inclusion_probability of its design is 1\.01"),
        (EXAMPLES[7], "predicted_failure", -0.1, r"predicted_failure of its design is -0\.1 .* \[0, 1\]"),
    ],
)
def test_error_names_an_invalid_number(design: Design, field: str, value: object, message: str) -> None:
    content = design.to_json()
    content[field] = [*content[field][:2], value, *content[field][3:]]
    with pytest.raises(DataError, match=f"^selection.json: .*{message}"):
        read_design(content, "selection.json")


@pytest.mark.parametrize(
    ("design", "change", "message"),
    [
        (EXAMPLES[0], {"num": 61}, "num=61 of its design is more than its population=60"),
        (EXAMPLES[0], {"population": "60"}, "population of its design is '60', and must be one whole number"),
        (EXAMPLES[0], {"population": [60]}, r"population of its design is \[60\], and must be one whole number"),
        (EXAMPLES[0], {"replacement": 1}, "replacement of its design is 1, and must be of type bool"),
        (EXAMPLES[2], {"sizes": [30, 20, 3]}, "4 examples of stratum 2 were drawn, and sizes of its design has 3"),
        (EXAMPLES[4], {"least_probability": 0}, r"least_probability of its design is 0, .* \(0, 1\]"),
        (EXAMPLES[5], {"group_size": [5] * 11}, "differ in length: draw_probability 12, .*group_size 11"),
        (EXAMPLES[5], {"group_size": [[5], [5, 5]]}, "group_size of its design is"),
        (EXAMPLES[7], {"num_drawn": 11}, "num_drawn=11 of its design is not between its 12 examples"),
        (EXAMPLES[8], {"why": 3}, "why of its design is 3, and must be of type str"),
        (EXAMPLES[9], {"phase": [1]}, "for 12 examples differ in length: phase 1"),
        (EXAMPLES[0], {"type": "simple"}, "has a design of type 'simple'; did you mean 'simple random'"),
    ],
)
def test_error_names_fields_that_contradict_each_other(design: Design, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"^selection.json:? .*{message}"):
        read_design(design.to_json() | change, "selection.json")


def test_a_purposive_sample_has_the_failure_variance_of_its_stand_in() -> None:
    failure = np.arange(n) % 3 / 2
    expected = SimpleRandom(n, N, replacement=False).failure_variance(failure)
    assert Purposive(n, N, "why").failure_variance(failure) == pytest.approx(expected, rel=1e-12)
    assert expected > 0


def test_a_whole_pool_may_be_drawn_with_certainty_and_no_more() -> None:
    whole = InclusionProbability(np.ones(n), np.zeros(n), 0.0, n, n, np.empty(0, dtype=np.int64))
    assert read_design(whole.to_json(), "file").to_json() == whole.to_json()
    more = InclusionProbability(np.ones(n), np.zeros(n), 0.0, n, n + 1, np.empty(0, dtype=np.int64))
    with pytest.raises(DataError, match=rf"^file: num_drawn={n + 1} of its design .* its population={n}$"):
        read_design(more.to_json(), "file")
