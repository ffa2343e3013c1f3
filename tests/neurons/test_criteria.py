"""Neuron coverage: equal to a plain transcription, whatever the layers, the ranges and the batch."""

import io
import itertools

import numpy as np
import pytest
from oracles.coverage import met

from opacc_ray.errors import DataError, SpecError
from opacc_ray.neurons.requirements import Criterion, Ranges

CRITERIA = [
    "nc:0.25",
    "nc:0.5",
    "nc:0.75",
    "nc:0.0",
    "nc-raw:0.5",
    "kmnc:1",
    "kmnc:3",
    "kmnc:10",
    "nbc",
    "snac",
    "tknc:1",
    "tknc:3",
]
WIDTHS = [(5,), (8,), (1, 6), (3, 1, 13)]


def normal(rng, rows, width):
    return rng.normal(size=(rows, width)).astype(np.float32)


def relu(rng, rows, width):
    return np.maximum(normal(rng, rows, width), 0)


def on_a_grid(rng, rows, width):
    """Ties, values at the ends of ranges and sections, layers and neurons that are constant."""
    values = rng.integers(-2, 3, size=(rows, width)).astype(np.float32) / 2
    values[::5] = values[::5, :1]
    values[:, 0] = 0.5
    return values


def of_all_sizes(rng, rows, width):
    return normal(rng, rows, width) * np.float32(10) ** rng.integers(-30, 30, size=(rows, width)).astype(np.float32)


DATA = [normal, relu, on_a_grid, of_all_sizes]


def example(data=normal, widths=(3, 1, 13), seed=0):
    """Layers of 40 examples, and ranges over 25 others."""
    rng = np.random.default_rng(seed)
    both = [data(rng, 65, width) for width in widths]
    return [values[25:] for values in both], Ranges.of([values[:25] for values in both])


def unpack(packed, num):
    return np.unpackbits(packed, axis=1, count=num).astype(bool)


@pytest.mark.parametrize("text", CRITERIA)
def test_bits_are_the_transcription(text):
    criterion = Criterion.parse(text)
    for data, widths in itertools.product(DATA, WIDTHS):
        layers, ranges = example(data, widths)
        expected = met(text, layers, ranges.low, ranges.high)
        with np.errstate(invalid="raise", divide="raise"):
            packed = criterion.bits(layers, ranges)
        assert packed.dtype == np.uint8
        np.testing.assert_array_equal(packed, np.packbits(expected, axis=1), f"{data} {widths}")
        assert criterion.requirements(widths) == expected.shape[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nc:0.5", [0, 0, 1, 1]),  # scaled: 0, 0.5, 1, 0.75
        ("nc:0.25", [0, 1, 1, 1]),
        ("nc-raw:0.5", [0, 0, 1, 1]),
        ("kmnc:2", [1, 0, 1, 0, 0, 0, 0, 0]),  # -2 is low; 0 ends section 1; 2 and 1 are out of range
        ("nbc", [0, 0, 0, 0, 0, 1, 0, 1]),
        ("snac", [0, 0, 1, 1]),
        ("tknc:2", [0, 0, 1, 1]),
    ],
)
def test_bits_worked_by_hand(text, expected):
    ranges = Ranges.of([np.array([[-2, -2, 0, 0.5], [4, 2, 1, 0.5]], dtype=np.float32)])
    layer = np.array([[-2, 0, 2, 1]], dtype=np.float32)
    packed = Criterion.parse(text).bits([layer], ranges)
    assert unpack(packed, len(expected)).astype(int).tolist() == [expected]


def test_a_constant_neuron_has_one_section():
    ranges = Ranges.of([np.full((3, 1), 7, dtype=np.float32)])
    packed = Criterion.parse("kmnc:3").bits([np.array([[7], [7.5], [6]], dtype=np.float32)], ranges)
    assert unpack(packed, 3).astype(int).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_a_relu_that_is_off_is_not_out_of_range():
    ranges = Ranges.of([np.array([[0, 0], [3, 0]], dtype=np.float32)])
    assert not Criterion.parse("nbc").bits([np.zeros((1, 2), dtype=np.float32)], ranges).any()


@pytest.mark.parametrize("text", [*CRITERIA, "kmnc:1000000", "nc:1e-05"])
def test_writes_as_it_is_read(text):
    assert str(Criterion.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "nc", "nc:", "nc:1", "nc:-0.1", "nc:nan", "nc:x", "kmnc", "kmnc:0", "kmnc:2.5", "nbc:3", "tknc:0", "NC"],
)
def test_refuses_what_is_no_criterion(text):
    with pytest.raises(SpecError, match=f"criterion '{text}'"):
        Criterion.parse(text)


@pytest.mark.parametrize("text", CRITERIA)
def test_says_when_ranges_are_needed(text):
    layers, _ = example()
    criterion = Criterion.parse(text)
    assert criterion.needs_ranges == (criterion.name in ("kmnc", "nbc", "snac"))
    if criterion.needs_ranges:
        with pytest.raises(DataError, match=f"{text} .* reference"):
            criterion.bits(layers)
    else:
        assert criterion.bits(layers).any()


def test_refuses_ranges_of_other_layers():
    layers, ranges = example()
    with pytest.raises(DataError, match=r"\[3, 1\] neurons, and the reference ranges have \[3, 1, 13\]"):
        Criterion.parse("nbc").bits(layers[:2], ranges)


# -- ranges --------------------------------------------------------------------------------------------------


def test_ranges_merge_to_those_of_all():
    layers, _ = example()
    parts = [Ranges.of([values[rows] for values in layers]) for rows in np.split(np.arange(40), [1, 17])]
    merged, whole = Ranges.merge(parts[::-1]), Ranges.of(layers)
    assert merged.encode() == whole.encode()
    for values, low, high in zip(layers, *merged, strict=True):
        np.testing.assert_array_equal(low, values.min(axis=0))
        np.testing.assert_array_equal(high, values.max(axis=0))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_ranges_refuse_what_is_not_finite(value):
    layers, _ = example()
    layers[1][3] = value
    with pytest.raises(DataError, match="layer 1"):
        Ranges.of(layers)


@pytest.mark.parametrize("fault", ["cut", "empty", "pickle", "format"])
def test_refuses_bytes_that_are_no_ranges(fault):
    ranges = Ranges.of([np.eye(2, dtype=np.float32)])
    data = {
        "cut": ranges.encode()[:-40],
        "empty": b"",
        "pickle": _npz(format=np.array("opacc-ranges/1"), num_layers=np.array(1), low_0=np.array({}), high_0=np.eye(1)),
        "format": _npz(format=np.array("opacc-ranges/9"), num_layers=np.array(0)),
    }[fault]
    with pytest.raises(DataError, match=r"^s3://b/ranges is not .*; run the spec again to recreate it$"):
        Ranges.decode(data, "s3://b/ranges")


def _npz(**arrays):
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return sink.getvalue()
