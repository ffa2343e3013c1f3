"""Estimates of survey samples agree with those that R's package survey prints; see data/README.md."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.designs import Design
from opacc_ray.designs.draw_probability import HansenHurwitz
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.simple_random import SimpleRandom, Stratified
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.sample import Rounds

Array = NDArray[np.float64]

POPULATION = 6194
STRATA = {"E": 4421, "H": 755, "M": 1018}
"""Schools of California by type."""


class Sample(NamedTuple):
    """200 schools and the design that chose them."""

    selection: opacc.Selection
    api00: Array  # (200,)
    enroll: Array  # (200,)


def read_sample(name: str) -> dict[str, NDArray[np.str_]]:
    """The columns of one sample as text, (200,) each."""
    header, *rows = [line.split(",") for line in (Path(__file__).parent / "data" / "api.csv").read_text().splitlines()]
    own = np.array([row for row in rows if row[0] == name])
    return dict(zip(header, own.T, strict=True))


def sample_of(columns: dict[str, NDArray[np.str_]], method: str, design: Design) -> Sample:
    """200 of 6,194 schools."""
    ids = tuple(str(row) for row in range(200))
    selection = opacc.Selection(method, {}, 0, POPULATION, np.arange(200), ids, design)
    return Sample(selection, columns["api00"].astype(float), columns["enroll"].astype(float))


def simple_random() -> Sample:
    return sample_of(read_sample("apisrs"), "srs", SimpleRandom(200, POPULATION, replacement=False))


def stratified() -> Sample:
    columns = read_sample("apistrat")
    stratum = np.array([list(STRATA).index(kind) for kind in columns["stype"]])
    return sample_of(columns, "css", Stratified(stratum, np.array(list(STRATA.values()))))


@pytest.mark.parametrize(
    ("sample", "variable", "mean", "error"),
    [
        (simple_random, "api00", 656.585, 9.2497),
        (stratified, "api00", 662.287, 9.4089),
        (stratified, "enroll", 595.28, 18.509),
    ],
)
def test_means_and_their_errors_are_those_of_r_survey(
    sample: Callable[[], Sample], variable: str, mean: float, error: float
) -> None:
    given = sample()
    x, design = getattr(given, variable), Rounds(given.selection)
    assert design.mean(x) == pytest.approx(mean, abs=half_a_digit(mean))
    assert design.variance(x) ** 0.5 == pytest.approx(error, abs=half_a_digit(error))


def test_a_total_and_its_error_are_those_of_r_survey() -> None:
    given = stratified()
    design = Rounds(given.selection)
    assert POPULATION * design.mean(given.enroll) == pytest.approx(3_687_178, abs=0.5)
    assert POPULATION * design.variance(given.enroll) ** 0.5 == pytest.approx(114_642, abs=0.5)


@pytest.mark.parametrize(("sample", "mean", "error"), [(simple_random, 656.585, 9.2497), (stratified, 662.287, 9.4089)])
def test_the_stated_estimate_of_scores_is_that_of_r_survey(
    sample: Callable[[], Sample], mean: float, error: float
) -> None:
    given = sample()
    estimate = estimate_outcomes(given.selection, given.api00 / 1000)  # the index ends at 1000
    assert 1000 * estimate.value == pytest.approx(mean, abs=half_a_digit(mean))
    assert 1000 * estimate.standard_error == pytest.approx(error, abs=half_a_digit(error))
    assert estimate.low < mean / 1000 < estimate.high
    assert estimate.design_based


ELECTION = {"bush": 64518472.38, "kerry": 51202102.10, "nader": 478530.52}
"""Votes in all, as `svytotal` has them."""


def votes_of(candidate: str) -> tuple[Array, Array]:
    """Votes in 40 counties and their inclusion probabilities."""
    header, *rows = [line.split(",") for line in (Path(__file__).parent / "data" / "election.csv").read_text().split()]
    table = np.array(rows, dtype=np.float64)
    return table[:, header.index(candidate)], table[:, header.index("p")]


@pytest.mark.parametrize(
    ("candidate", "error"), [("bush", 2671455.0562), ("kerry", 2679432.9203), ("nader", 105302.6889)]
)
def test_votes_drawn_with_replacement_are_those_of_r_survey(candidate: str, error: float) -> None:
    """T. Lumley's example of an election."""
    votes, p = votes_of(candidate)
    design = HansenHurwitz(draw_probability=p / 40, population=4600, least_probability=p.min() / 40)
    assert 4600 * design.mean(votes) == pytest.approx(ELECTION[candidate], abs=0.005)
    assert 4600 * design.variance(votes) ** 0.5 == pytest.approx(error, abs=5e-5)


@pytest.mark.parametrize(("candidate", "error"), [("bush", 2447628.89), ("kerry", 2450786.54), ("nader", 102420.24)])
def test_votes_drawn_in_proportion_are_those_of_r_survey(candidate: str, error: float) -> None:
    """Without joint probabilities the variance is an approximation: ours is Brewer's but for a centre with weights."""
    votes, p = votes_of(candidate)
    design = InclusionProbability(p, np.zeros(40), 0.0, 4600, 40, np.empty(0, dtype=np.int64))
    assert 4600 * design.mean(votes) == pytest.approx(ELECTION[candidate], abs=0.005)
    assert 0.99 * error < 4600 * design.variance(votes) ** 0.5 < error


def half_a_digit(printed: float) -> float:
    """Half of the last digit that R prints."""
    return 0.5 * 10.0 ** -len(repr(printed).partition(".")[2])
