"""Signals: their ranks, and that they do not depend on how the pool is cut."""

import itertools

import numpy as np
import pytest
from scipy.stats import rankdata

from opacc_ray.parts import view as views
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers.neyman import signals
from opacc_ray.samplers.neyman.signals import pool_signals, signals_of_others, spread_ranks

N = 900

VALUES = {
    "different": np.random.default_rng(1).normal(size=N),
    "ties": np.random.default_rng(1).integers(0, 9, N) / 4,
    "equal": np.full(N, 0.5),
}


@pytest.mark.parametrize("kind", VALUES)
def test_ranks_count_how_many_are_lower_or_equal(kind: str) -> None:
    values = VALUES[kind]
    middle = ((values[:, None] > values).sum(axis=1) + (values[:, None] >= values).sum(axis=1)) / 2
    assert spread_ranks(values) == pytest.approx((2 * middle / N - 1) * np.sqrt(3))


def features() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {
        "confidence": np.round(1 - rng.beta(0.2, 3, N), 3),
        "dsa": rng.gamma(2, 1, N).astype(np.float32),
        "prediction": rng.normal(size=N),
        "hidden": rng.normal(size=(N, 7)).astype(np.float32),
    }


@pytest.mark.parametrize("cuts", [[1, 400, 401], [300, 600]])
@pytest.mark.parametrize("coded_from", [1, N + 1])
def test_signals_do_not_depend_on_how_the_pool_is_cut(
    cuts: list[int], coded_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "CODED_FROM", coded_from)
    whole = features()
    edges = list(itertools.pairwise([0, *cuts, N]))
    parts = [Pool(**{name: values[start:stop] for name, values in whole.items()}) for start, stop in edges]
    one, cut = pool_signals(view_of(Pool(**whole)), 3), pool_signals(View(LocalParts(parts)), 3)
    kinds = "confidence", "rank", "heap", "surprise", "prediction", "prediction", *["direction"] * 3
    assert one.kinds == cut.kinds == kinds
    assert all(np.array_equal(*both) for both in zip(one.values, cut.values, strict=True))


def test_signals_of_a_large_pool_are_steps_of_their_range(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = pool_signals(view_of(Pool(**features())), 3)
    monkeypatch.setattr(views, "CODED_FROM", N)
    coded = pool_signals(view_of(Pool(**features())), 3)
    for own, other in zip(exact.values, coded.values, strict=True):
        assert np.array(other) == pytest.approx(np.array(own), abs=np.ptp(own) / 65535 / 2 * (1 + 1e-9))
    direction = coded.values[-1]
    assert isinstance(direction, views.Compact)
    assert [own.dtype for own in direction.held] == [np.uint16]


@pytest.mark.parametrize("spread", [0.0, 1e-300, 1.0, 1e300])
def test_ranks_are_exact_where_values_are_closer_than_their_keys(spread: float) -> None:
    """Numbers that differ in their last bits, shuffled, with ties, and others that are far away on both sides."""
    rng = np.random.default_rng(0)
    close = 1 + rng.integers(0, 300, 2000) * np.finfo(float).eps
    values = rng.permutation(np.concatenate([close, -close, [0.0, -0.0, spread, -spread, 5e-324]]))
    expected = (2 * rankdata(values) - 1 - len(values)) / len(values) * 3**0.5
    assert spread_ranks(values) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("names", [[-3, 0, 7], [-3.0, 0.0, 7.0], [0, 1 << 40, 1 << 41], [False, True]])
def test_predicted_classes_are_places_among_their_numbers(names: list[float]) -> None:
    places = np.random.default_rng(0).permutation(np.arange(N) % len(names))
    own = pool_signals(view_of(Pool(prediction=np.array(names)[places])), 0)
    assert own.names is not None
    assert own.names.tolist() == names
    assert own.classes is not None
    assert own.classes.tolist() == places.tolist()


def test_whole_numbers_of_any_size_are_kept_exactly() -> None:
    whole, rng = signals._Whole(10), np.random.default_rng(0)
    small, large = rng.integers(-(2**46), 2**46, 4), rng.integers(-(2**53), 2**53, 6)
    whole.put(slice(0, 4), small)
    whole.put(slice(4, 10), large)
    assert whole.read().tolist() == [*small.tolist(), *large.tolist()]


def test_a_signal_that_others_lack_is_the_mean_of_the_pool() -> None:
    view = view_of(Pool(**features()))
    own = pool_signals(view, 3)
    others = signals_of_others(view, own, 3, Pool(confidence=features()["confidence"][:5]))
    assert np.array(others.values[:3]) == pytest.approx(np.array([values[:5] for values in own.values[:3]]))
    assert np.array(others.values[3:]) == pytest.approx(np.array([[pool.mean()] * 5 for pool in own.values[3:]]))


def test_a_heap_of_certain_confidences_has_log_odds_that_labels_can_bend() -> None:
    """Nine of ten examples have a confidence of 1; the next one is .8, whose log odds are 1.39."""
    confidence = np.where(np.arange(N) % 10, 1.0, np.linspace(0.5, 0.8, N))
    confidence[890] = 0.8
    pool = view_of(Pool(confidence=confidence))
    own = pool_signals(pool, 0)
    assert own.kinds == ("confidence", "rank", "heap")
    logit, _, heap = (np.asarray(values[np.arange(N)]) for values in own.values)
    assert logit[1] == pytest.approx(np.log(0.2 / 0.8) - 2)
    assert logit[890] == pytest.approx(np.log(0.2 / 0.8))
    assert heap[[1, 890]] == pytest.approx([0.1, -0.9])
    others = signals_of_others(pool, own, 0, Pool(confidence=[1.0, 0.7]))
    assert np.array(others.values[::2]) == pytest.approx(np.array([[logit[1], np.log(3 / 7)], [0.1, -0.9]]))
    for others in (np.full(N, 1.0), np.where(confidence == 1, 0.99, confidence)):  # no heap beside others; not certain
        assert "heap" not in pool_signals(view_of(Pool(confidence=others)), 0).kinds
