"""Draws that serve a metric, a class or slices: probabilities follow its standard deviation, at a bounded price."""

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import SpecError
from opacc_ray.parts.view import view_of
from opacc_ray.samplers.base import NO_PREVIOUS, Previous, Task
from opacc_ray.samplers.neyman import Parameters, plan
from opacc_ray.samplers.neyman.sampling import foresee, sure_share

N = 4000
PREDICTED = np.repeat([1, 0], [400, N - 400])
SHARE = np.where(PREDICTED == 1, 0.8, 0.95)  # confidence, the same for all of a class


def pool(size: int = N, **more: object) -> opacc.Pool:
    return opacc.Pool(prediction=PREDICTED[:size], confidence=SHARE[:size], **more)


def mean_probability(serve: str, parts: np.ndarray, own: opacc.Pool | None = None) -> list[float]:
    found = plan(view_of(own or pool()), Task(200, Parameters(serve=(serve,)), NO_PREVIOUS))
    return [float(found.probability[parts == part].mean()) for part in np.unique(parts)]


@pytest.mark.parametrize(("serve", "more"), [("precision@1", 1), ("prevalence@1", 0), ("accuracy", None)])
def test_labels_go_where_the_number_is_decided(serve: str, more: int | None) -> None:
    by_accuracy, found = mean_probability("accuracy", PREDICTED), mean_probability(serve, PREDICTED)
    if more is None:
        assert found == by_accuracy
    else:
        assert found[more] > by_accuracy[more] * 0.999
        assert serve != "precision@1" or found[0] < 0.2 * by_accuracy[0]


@pytest.mark.parametrize("serve", ["prediction", "camera"])
def test_every_slice_has_as_many_labels(serve: str) -> None:
    camera = np.arange(N) % 4 == 0
    parts = PREDICTED if serve == "prediction" else camera
    own = pool(slices={"camera": camera})
    found = np.array(mean_probability(serve, parts, own)) * np.bincount(parts)
    uniform = np.bincount(parts) * 200 / N * 0.1
    assert found - uniform == pytest.approx([90, 90], abs=1)


@pytest.mark.parametrize("wrong", [0, 2, 4])
def test_a_slice_has_more_labels_where_its_accuracy_is_less_known(wrong: int) -> None:
    """As the page has it: by what labels and predictions together say, and one label of which nothing is known."""
    camera, seen, sure = np.arange(N) % 4, np.arange(16), np.random.default_rng(2).uniform(0.9, 1, N)
    right = (camera[seen] > 0) | (seen >= 4 * wrong)  # of the four labels of camera 0 so many are wrong
    own = view_of(opacc.Pool(prediction=PREDICTED, confidence=sure, slices={"camera": camera.astype(str)}))
    task = Task(24, Parameters(serve=("camera",), floor=1e-9), Previous(seen, right.astype(float)))
    [forecast], found, free, error = foresee(own, task), plan(own, task).probability, camera[16:], []
    for c in range(4):
        mine = seen[camera[seen] == c]
        p, failed = forecast.failure[mine], 1 - right[mine]
        z = ((failed - p) / np.sqrt(1 - forecast.leverage[mine])).sum() / np.sqrt((p * (1 - p)).sum())
        agreed = max(1 - z**2 / 4, 0)
        mixed = agreed * forecast.failure[16:][free == c] + (1 - agreed) * (failed.sum() + 0.5) / 5
        deviation = np.sqrt(mixed * (1 - mixed))
        error.append(np.sqrt(4 * deviation.mean() ** 2 + 0.25) / 5)
        assert found[free == c] / found[free == c].sum() == pytest.approx(deviation / deviation.sum(), rel=1e-6)
    assert np.bincount(free, weights=found) == pytest.approx(24 * np.array(error) / sum(error), rel=1e-6)
    assert (np.bincount(free, weights=found)[0] > 6.5) == (wrong == 2)  # 4 of 4 are known to be wrong


def test_a_worthless_prediction_costs_no_more_than_its_price() -> None:
    """Of the number that is served: the variance is that of a simple random sample times 1.2 at most."""
    rng = np.random.default_rng(3)
    own = opacc.Pool(prediction=PREDICTED, confidence=rng.uniform(0.3, 1, N))
    for serve in ("f1@1", "recall@1", "macro_f1", "prediction", "accuracy"):
        found = plan(view_of(own), Task(200, Parameters(serve=(serve,)), NO_PREVIOUS))
        worst = [np.mean(200 / N / found.probability[c == PREDICTED]) for c in (0, 1)]
        assert min(worst) <= 1.2 + 1e-3, serve


@pytest.mark.parametrize("serve", ["brier", "overconfidence", "auc@1"])
def test_numbers_that_judge_the_confidence_are_served(serve: str) -> None:
    rng = np.random.default_rng(5)
    sure = rng.uniform(0.5, 1, N)
    own = view_of(opacc.Pool(prediction=PREDICTED, confidence=sure))
    found, by_accuracy = (
        plan(own, Task(200, Parameters(serve=(name,)), NO_PREVIOUS)).probability for name in (serve, "accuracy")
    )
    assert found.sum() == pytest.approx(200)
    if serve == "overconfidence":
        assert found == pytest.approx(by_accuracy)
    elif serve == "brier":  # a failure near 0.5 moves it little
        assert found[sure < 0.52].mean() < by_accuracy[sure < 0.52].mean()


def rare_pool() -> opacc.Pool:
    """Five of N predicted as the class, 300 that may be of it, each with a probability of its own."""
    doubt = np.concatenate([np.full(5, 0.02), np.linspace(0.3, 0.001, 300), np.linspace(1e-5, 1e-6, N - 305)])
    return opacc.Pool(prediction=np.arange(N) < 5, confidence=1 - doubt)


@pytest.mark.parametrize(("price", "sure"), [(0.0, 0.0), (0.07, 0.065), (0.25, 0.2), (9.0, 0.3)])
def test_likely_examples_of_a_rare_class_are_drawn_for_certain_as_far_as_the_price_allows(
    price: float, sure: float
) -> None:
    assert sure_share(price) == pytest.approx(sure, abs=1e-3)
    found = plan(view_of(rare_pool()), Task(200, Parameters(serve=("f1@1",), price=price), NO_PREVIOUS))
    likely = 5 + np.arange(int(sure_share(price) * 200) - 5)  # those predicted as the class count too
    assert found.probability.sum() == pytest.approx(200)
    if sure:
        assert (found.probability[[*range(5), *likely]] == 1).all()
    assert found.probability.min() > 0


def test_served_numbers_are_named_by_class_and_kept_with_the_selection(tmp_path: object) -> None:
    own = opacc.Pool(prediction=np.array(["cat", "dog"])[PREDICTED], confidence=SHARE)
    chosen = opacc.select(own, budget=50, serve=["accuracy", "recall@dog"])
    assert list(chosen.parameters["serve"]) == ["accuracy", "recall@1"]
    assert list(opacc.select(own, budget=50, serve="f1").parameters["serve"]) == ["f1@1"]


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        ("recall@cow", 'metric recall@cow has the class "cow"; give one of cat, dog'),
        ("rocall@dog", "metric 'rocall@dog': choose one of accuracy"),
        ("lens", "the pool has no slices 'lens'"),
    ],
)
def test_a_number_that_there_is_not(serve: str, words: str) -> None:
    own = opacc.Pool(prediction=np.array(["cat", "dog"])[PREDICTED], confidence=SHARE)
    with pytest.raises(SpecError, match=words):
        opacc.select(own, budget=50, serve=[serve])
