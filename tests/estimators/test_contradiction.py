"""Labels that contradict the confidence: said when they do, and not when they do not."""

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.cli import texts
from opacc_ray.cli.terminal import terminal_text
from opacc_ray.runs.run_documents import DrawnRound
from opacc_ray.selection import Selection

SAID = "the labels contradict your confidence"


def make_pool(seed: int, size: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """A calibrated confidence, and outcomes: 8 % fail."""
    rng = np.random.default_rng(seed)
    doubt = np.where(rng.random(size) < 0.8, rng.beta(0.2, 8, size), rng.beta(1, 2, size))
    return 1 - doubt, (rng.random(size) >= doubt).astype(float)


def audit(pool: opacc.Pool, outcome: np.ndarray, sizes: tuple[int, ...], seed: int) -> tuple[list, list]:
    rounds: list[Selection] = []
    for size in sizes:
        previous = [(drawn, outcome[drawn.index]) for drawn in rounds]
        rounds.append(opacc.select(pool, budget=size, seed=seed, previous=previous))
    return rounds, [outcome[drawn.index] for drawn in rounds]


@pytest.mark.parametrize("wrong", [lambda c: 1 - c, lambda c: np.random.default_rng(1).uniform(0.05, 0.3, len(c))])
def test_is_said_by_the_estimate_and_the_next_round(wrong) -> None:
    confidence, outcome = make_pool(1)
    pool = opacc.Pool(confidence=wrong(confidence))
    rounds, outcomes = audit(pool, outcome, (60, 20), 1)
    assert "notice" not in rounds[0].facts
    assert rounds[1].facts["notice"].startswith(SAID)
    assert SAID in opacc.estimate(rounds, outcomes).reason
    assert SAID in opacc.estimate(rounds, outcomes, pool=pool).reason
    again = [Selection.from_json(item.to_json(), "file") for item in rounds]
    assert SAID in opacc.estimate(again, outcomes).reason


def test_is_not_said_of_a_right_confidence_nor_where_there_is_none() -> None:
    for seed in range(12):
        confidence, outcome = make_pool(seed)
        for pool in (opacc.Pool(confidence=confidence), opacc.Pool(dsa=confidence)):
            rounds, outcomes = audit(pool, outcome, (10, 20), seed)
            assert SAID not in (opacc.estimate(rounds, outcomes).reason or "")
            assert "notice" not in rounds[1].facts


def test_a_terminal_shows_it_beside_the_round() -> None:
    found = DrawnRound(run="file:///run", method="neyman", round=2, n=9, pool_size=90, notice=SAID)
    shown = terminal_text(texts.drawn(found, ["label"]))
    assert f"note      {SAID}" in shown.splitlines()
