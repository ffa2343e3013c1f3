"""Labels that contradict the confidence: said when they do, and not when they do not."""

import numpy as np
import pytest
from drawn_rounds import draw_rounds

import opacc_ray as opacc
from opacc_ray.cli.command import terminal_text
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.sample import Rounds
from opacc_ray.report import answers
from opacc_ray.runs.run_documents import DrawnRound
from opacc_ray.samplers.plausibility import about_classes, without_lead
from opacc_ray.selection import Selection

SAID = "the labels contradict your confidence"


def make_pool(seed: int, size: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """A calibrated confidence, and outcomes: 8 % fail."""
    rng = np.random.default_rng(seed)
    doubt = np.where(rng.random(size) < 0.8, rng.beta(0.2, 8, size), rng.beta(1, 2, size))
    return 1 - doubt, (rng.random(size) >= doubt).astype(float)


@pytest.mark.parametrize("wrong", [lambda c: 1 - c, lambda c: np.random.default_rng(1).uniform(0.05, 0.3, len(c))])
def test_is_said_by_the_estimate_and_the_next_round(wrong) -> None:
    confidence, outcome = make_pool(1)
    pool = opacc.Pool(confidence=wrong(confidence))
    rounds, outcomes = draw_rounds(pool, outcome, (60, 20))
    assert "notice" not in rounds[0].facts
    assert rounds[1].facts["notice"].startswith(SAID)
    assert SAID in estimate_outcomes(rounds, outcomes).reason
    assert SAID in estimate_outcomes(rounds, outcomes, pool=pool).reason
    again = [Selection.from_json(item.to_json(), "file") for item in rounds]
    assert SAID in estimate_outcomes(again, outcomes).reason


def test_a_terminal_shows_it_beside_the_round() -> None:
    found = DrawnRound(run="file:///run", method="neyman", round=2, n=9, pool_size=90, notice=SAID, step=["label"])
    shown = terminal_text(answers.drawn(found))
    assert f"note      {SAID}" in shown.splitlines()


def of_two_classes(seed: int, size: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True classes of which 14 % are 1, predicted ones, and an overconfident confidence."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(size) < 0.14).astype(int)
    score = rng.normal(4.4 * truth - 2.5, 2.0)
    logit = np.log(0.14 / 0.86) + ((score + 2.5) ** 2 - (score - 1.9) ** 2) / 8
    confidence = 1 / (1 + np.exp(-1.5 * np.abs(logit)))
    return truth, (logit > 0).astype(int), np.minimum(confidence, 1 - 1e-6)


def leads(change, seed: int, budget: int) -> tuple[str, list[str]]:
    """What the estimate and the labels say once the predictions are changed."""
    truth, predicted, confidence = of_two_classes(seed)
    predicted = change(predicted, np.random.default_rng(seed))
    pool = opacc.Pool(prediction=predicted, confidence=confidence)
    chosen = opacc.select(pool, budget=budget, seed=seed)
    outcome = (predicted == truth)[chosen.index].astype(float)
    said = estimate_outcomes(chosen, outcome).reason or ""
    of_labels = predicted[chosen.index], truth[chosen.index], Rounds(chosen).weights
    prediction = chosen.design.prediction
    assert prediction is not None
    return said, about_classes(*of_labels, ["no", "yes"], prediction.labelled)


def test_exchanged_classes_are_no_doubt_of_the_confidence_and_40_labels_name_them() -> None:
    found = [leads(lambda predicted, _: 1 - predicted, seed, 40) for seed in range(40)]
    named = ["if 'no' and 'yes' change places" in " ".join(texts) for _, texts in found]
    assert sum(named) >= 28
    assert not any("check that confidence" in (without_lead(said, texts) or "") for said, texts in found)
    assert sum("check that confidence" in said for said, _ in found) <= 1
