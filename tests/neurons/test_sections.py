"""Sections of equal width: exact on any float32, whatever the layout, the parts and the threads."""

import itertools

import numpy as np
import pytest
from oracles import sections as reference

import opacc_ray as opacc
from opacc_ray.neurons import sections
from opacc_ray.neurons.sections import equal_width, part_codes, relative_entropy
from opacc_ray.parts import loops
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.pool import Pool

LARGEST = np.finfo(np.float32).max
TINY = np.float32(1e-45)  # the least subnormal


def _columns(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Neurons that are hard to cut; 240 values each."""
    normal = rng.normal(size=240)
    ladder = np.concatenate([np.arange(48), np.nextafter(np.arange(48, dtype=np.float32), np.float32(99))])
    return {
        "normal": normal,
        "half zeros": np.maximum(normal, 0),
        "constant": np.full(240, 0.1),
        "constant but for one unit": np.append(np.full(239, 0.1, np.float32), np.nextafter(np.float32(0.1), 1)),
        "ties": rng.integers(0, 4, 240),
        "section borders": np.append(rng.integers(0, 61, 238), [0, 60]) / 60,
        "next to section borders": np.resize(ladder, 240),
        "whole float32 range": np.append(rng.uniform(-1, 1, 238), [-1, 1]) * LARGEST,
        "outlier": np.append(normal[1:], LARGEST),
        "subnormal": rng.integers(0, 50, 240) * TINY,
        "subnormal among large": np.where(normal > 0, TINY, -1e30),
        "signed zeros": np.where(normal > 0, 0.0, -0.0),
        "far from zero": 1e7 + rng.integers(0, 9, 240),
    }


@pytest.fixture(scope="module")
def hidden() -> np.ndarray:
    return np.stack(list(_columns(np.random.default_rng(0)).values()), axis=1).astype(np.float32)


def _codes(pool: Pool | View, num: int) -> np.ndarray:
    view = view_of(pool)
    return view.take(part_codes, np.arange(view.size), equal_width(view, ["hidden"], num).sections)


@pytest.mark.parametrize("num", [2, 3, 7, 20, 60, 255])
def test_equal_a_plain_transcription(num: int, hidden: np.ndarray) -> None:
    histogram = equal_width(view_of(Pool(hidden=hidden)), ["hidden"], num)
    codes = reference.equal_width(hidden, num)
    assert _codes(Pool(hidden=hidden), num).tolist() == codes
    assert histogram.counts.tolist() == reference.count(codes, num)


def test_a_hand_worked_neuron() -> None:
    hidden = np.array([[0], [10], [5], [5.1], [2.5], [2.6], [7.5]], dtype=np.float32)
    assert _codes(Pool(hidden=hidden), 4).ravel().tolist() == [0, 3, 1, 2, 0, 1, 2]
    assert equal_width(view_of(Pool(hidden=hidden)), ["hidden"], 4).counts.tolist() == [[2, 2, 2, 1]]


@pytest.mark.parametrize("number", ["1", "2", "7"])
def test_parts_and_threads_do_not_matter(number: str, hidden: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = equal_width(view_of(Pool(hidden=hidden)), ["hidden"], 20)
    monkeypatch.setenv("OMP_NUM_THREADS", number)
    monkeypatch.setattr(loops, "_VALUES_PER_THREAD", 1)
    monkeypatch.setattr(sections, "_BLOCK_VALUES", 40)
    for bounds in ([0, 240], [0, 1, 3, 200, 240]):
        view = View(LocalParts([Pool(hidden=hidden[low:high]) for low, high in itertools.pairwise(bounds)]))
        cut = equal_width(view, ["hidden"], 20)
        assert np.array_equal(cut.counts, whole.counts)
        assert np.array_equal(cut.sections[0].low, whole.sections[0].low)
        assert np.array_equal(cut.sections[0].high, whole.sections[0].high)
        assert _codes(view, 20).tolist() == reference.equal_width(hidden, 20)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 7, 239])
def test_names_the_example_that_is_not_finite(bad, row: int, hidden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "_BLOCK_VALUES", 40)
    spoilt = hidden.copy()
    spoilt[row, 4] = bad
    ids = [f"scan/{i}" for i in range(240)]
    parts = [Pool(ids[low:high], spoilt[low:high]) for low, high in ((0, 7), (7, 230), (230, 240))]
    with pytest.raises(opacc.OpaccError, match=rf"hidden of example 'scan/{row}' holds NaN or infinity"):
        equal_width(View(LocalParts(parts)), ["hidden"], 20)


def test_refuses_a_pool_without_variation() -> None:
    pool = Pool(hidden=np.ones((50, 3)), output=np.zeros((50, 2)))
    for layers in (["hidden"], ["hidden", "output"]):
        with pytest.raises(opacc.OpaccError, match=f"every neuron of {' and '.join(layers)} is constant"):
            equal_width(view_of(pool), layers, 20)
    varied = Pool(hidden=np.ones((50, 3)), output=np.arange(50)[:, None])
    assert equal_width(view_of(varied), ["hidden", "output"], 2).counts[-1].tolist() == [25, 25]


def test_relative_entropy() -> None:
    pool = np.array([[5, 4, 0], [3, 3, 3]])
    assert relative_entropy(pool / 9, pool) == 0
    assert relative_entropy(pool / 9, 2 * pool) == 0
    sample = np.array([[1, 1, 0], [2, 0, 0]])
    by_hand = (5 / 9 * np.log(10 / 9) + 4 / 9 * np.log(8 / 9) + np.log(1 / 3) / 3 - 2 / 3 * np.log(3e-15)) / 2
    assert relative_entropy(pool / 9, sample) == pytest.approx(by_hand, rel=1e-12)
    rng = np.random.default_rng(2)
    pool = rng.multinomial(500, rng.dirichlet(np.ones(20)), size=30)
    sample = rng.multivariate_hypergeometric(pool[0], 60, size=30)
    expected = reference.relative_entropy(pool.tolist(), sample.tolist())
    assert relative_entropy(pool / 500, sample) == pytest.approx(expected, rel=1e-12)
