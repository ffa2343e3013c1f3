"""Surprise equals plain transcriptions and SciPy for any batches, blocks and data."""

import numpy as np
import pytest
from oracles.surprise import dsa as plain_dsa
from oracles.surprise import lsa as plain_lsa
from scipy.stats import gaussian_kde

from opacc_ray.errors import DataError
from opacc_ray.extract import reference as surprise
from opacc_ray.extract.reference import Reference


def relu(rng, rows, neurons):
    return np.maximum(rng.normal(size=(rows, neurons)), 0).astype(np.float32)


def close_together(rng, rows, neurons):
    """Far from the origin, and differing in the last bits that float32 holds there."""
    steps = rng.integers(0, 3, size=(rows, neurons))
    return (np.float32(1024) + steps * np.float32(2**-13)).astype(np.float32)


def two_places(rng, rows, neurons):
    """Two clusters far apart, so that all of a cluster is at the same distance for float32."""
    place = rng.integers(0, 2, size=(rows, 1)) * 2000 - 1000
    return (place + rng.normal(size=(rows, neurons)) * 1e-3).astype(np.float32)


def repeated(rng, rows, neurons):
    return rng.normal(size=(7, neurons)).astype(np.float32)[rng.integers(0, 7, size=rows)]


def on_a_grid(rng, rows, neurons):
    return rng.integers(-2, 3, size=(rows, neurons)).astype(np.float32)


def of_all_sizes(rng, rows, neurons):
    return (rng.normal(size=(rows, neurons)) * 10.0 ** rng.integers(-6, 7, size=(rows, 1))).astype(np.float32)


DATA = [relu, close_together, two_places, repeated, on_a_grid, of_all_sizes]


def example(seed, num_traces=300, num=60, neurons=6, num_classes=4, data=relu):
    """Traces, their classes, hidden, predicted."""
    rng = np.random.default_rng(seed)
    both = data(rng, num_traces + num, neurons)
    traces, hidden = both[:num_traces], both[num_traces:]
    return traces, rng.integers(0, num_classes, num_traces), hidden, rng.integers(0, num_classes, num)


# -- distance ------------------------------------------------------------------------------------------------


def test_dsa_worked_by_hand():
    reference = Reference([[0, 0], [4, 0], [0, 3], [10, 0]], [5, 5, 2, 7])
    # (1, 0) as 5: nearest of class 5 is (0, 0), 1 away; from there the nearest other is (0, 3), 3 away
    # (7, 0) as 5: nearest is (4, 0), 3 away; from there (0, 3) is 5 and (10, 0) is 6 away
    # (10, 0) as 7: it is a trace itself
    # (0, 0) as 2: nearest is (0, 3), 3 away; from there (0, 0) is 3 away
    values = reference.dsa([[1, 0], [7, 0], [10, 0], [0, 0]], [5, 5, 7, 2])
    np.testing.assert_array_equal(values, np.array([1 / 3, 3 / 5, 0, 1], dtype=np.float32))


@pytest.mark.parametrize("shape", [(300, 6, 4), (40, 1, 2), (200, 40, 25)], ids=str)
@pytest.mark.parametrize("data", DATA)
def test_dsa_is_the_transcription(data, shape, monkeypatch):
    monkeypatch.setattr(surprise, "_QUERIES", 16)
    monkeypatch.setattr(surprise, "_TRACES", 32)
    num_traces, neurons, num_classes = shape
    traces, classes, hidden, predicted = example(3, num_traces, 60, neurons, num_classes, data)
    values = Reference(traces, classes).dsa(hidden, predicted)
    np.testing.assert_allclose(values, plain_dsa(hidden, predicted, traces, classes), rtol=1e-7)


def test_dsa_measures_few_pairs_in_float64(monkeypatch):
    traces, classes, hidden, predicted = example(1, 3000, 500, 30)
    far = np.linspace(-1000, 1000, 30).astype(np.float32)  # neurons around other values, as before a ReLU
    measured = []
    decide = surprise.Neighbours._decide

    def counted(self, queries, query, trace):
        measured.append(len(query) / len(queries))
        return decide(self, queries, query, trace)

    monkeypatch.setattr(surprise.Neighbours, "_decide", counted)
    Reference(traces + far, classes).dsa(hidden + far, predicted)
    assert np.mean(measured) < 1.5


def test_dsa_needs_two_classes():
    with pytest.raises(DataError, match="class 3"):
        Reference(np.eye(4), [3] * 4).dsa(np.eye(4), [3] * 4)
    with pytest.raises(DataError, match="all 4 reference traces are predicted as class 0; give reference data with"):
        Reference(np.eye(4)).dsa(np.eye(4))


# -- likelihood ----------------------------------------------------------------------------------------------


def test_lsa_is_scipys():
    traces, classes, hidden, predicted = example(5, 2000, 100, 8)
    traces[:, 3:5] *= 0.003, 0.008  # variances of 3e-6, which is dead, and 2e-5
    traces[classes == 2, 6] = 0.25  # dead in one class
    values = Reference(traces, classes).lsa(hidden, predicted)
    for c in range(4):
        density = gaussian_kde(np.delete(traces[classes == c], [3, 6], axis=1).T.astype(np.float64))
        expected = -density.logpdf(np.delete(hidden[predicted == c], [3, 6], axis=1).T)
        np.testing.assert_allclose(values[predicted == c], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sizes", [[60, 50, 40], [60, 8, 9], [60, 50, 4], [60, 2, 1], [4, 4, 4, 4], [30]], ids=str)
def test_lsa_is_the_transcription_also_for_small_classes(sizes):
    rng = np.random.default_rng(2)
    classes = np.repeat(np.arange(len(sizes)), sizes)
    traces = relu(rng, len(classes), 5)
    traces[:, 1] = 7
    hidden, predicted = relu(rng, 30, 5), rng.integers(0, len(sizes), 30)
    values = Reference(traces, classes).lsa(hidden, predicted)
    np.testing.assert_allclose(values, plain_lsa(hidden, predicted, traces, classes), rtol=1e-6)


@pytest.mark.parametrize("fault", ["few", "dependent", "equal", "dead"])
def test_lsa_refuses_what_has_no_covariance(fault):
    traces = relu(np.random.default_rng(0), 50, 6)
    if fault == "few":
        traces = traces[:6]
    elif fault == "dependent":
        traces[:, 5] = traces[:, :5].sum(axis=1)
    elif fault == "equal":
        traces = np.round(4 * traces)
        traces[:, 5] = traces[:, 4]
    else:
        traces[:] = 1
    reference = Reference(traces, np.arange(len(traces)) % 2)
    with pytest.raises(DataError, match="singular"):
        reference.lsa(traces, np.zeros(len(traces), dtype=int))


@pytest.mark.parametrize(("share", "counts"), [(0.9, False), (1.1, True)])
def test_what_varies_enough_to_count_and_to_be_inverted_and_what_is_too_large(share, counts):
    wave = np.array([1, -1] * 20, dtype=np.float32)
    parts = [np.stack([wave, np.roll(wave, 1) * np.float32(np.sqrt(share * 1e-5))], axis=1)] * 2
    assert surprise._Spread(parts).neurons.tolist() == [0, 1][: 1 + counts]
    alike = np.sqrt(1 - share * 1e-12)
    covariance = np.array([[1, alike], [alike, 1]])
    assert (surprise._Whitening.of(np.arange(2), covariance) is not None) == counts
    values = Reference(np.eye(4), [0, 1, 0, 1]).dsa([[share * 1e15, 0, 0, 0]], [0])
    assert np.isnan(values[0]) == counts


# -- both ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", ["dsa", "lsa"])
def test_examples_that_cannot_be_measured_stand_alone(measure):
    traces, classes, hidden, predicted = example(8, num_classes=3)
    value = getattr(Reference(traces, classes * 2), measure)
    good = value(hidden, predicted * 2)
    hidden, predicted = hidden.copy(), predicted * 2
    hidden[5, 0], hidden[6, 0], hidden[7] = np.nan, np.inf, 1e20
    predicted[[0, 1, 2, 5]] = [-1, 1, 99, 99]
    values = value(hidden, predicted)
    assert np.isposinf(values[:3]).all()
    assert np.isnan(values[5:8]).all()
    rest = [3, 4, *range(8, 60)]
    np.testing.assert_array_equal(values[rest], good[rest])


@pytest.mark.parametrize(
    ("traces", "classes", "message"),
    [
        (np.empty((0, 3)), [], "shape"),
        (np.ones(3), [0, 0, 0], "shape"),
        ([[1, 2], [np.nan, 1]], [0, 1], "trace 1"),
        (np.eye(3), [0, 1], "3 whole numbers"),
        (np.eye(3), [0.5, 1, 2], "float64"),
    ],
)
def test_refuses_traces_that_do_not_fit(traces, classes, message):
    with pytest.raises(DataError, match=message):
        Reference(traces, classes)


def test_refuses_examples_of_another_layer():
    with pytest.raises(DataError, match="one layer"):
        Reference(np.eye(3), [0, 1, 1]).dsa(np.eye(4), [0, 1, 1, 1])
