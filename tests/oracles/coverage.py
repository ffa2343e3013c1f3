"""Neuron coverage, one requirement of one neuron of one example at a time."""

import math

import numpy as np


def met(criterion, layers, low=None, high=None):
    """The criterion's requirements that each example meets, (B, R) bool: by layer, neuron, then requirement."""
    name, _, number = criterion.partition(":")
    rows = []
    for example in range(len(layers[0])):
        row = []
        for at, layer in enumerate(layers):
            outputs = [float(value) for value in layer[example]]
            for neuron, value in enumerate(outputs):
                ends = (float(low[at][neuron]), float(high[at][neuron])) if low is not None else None
                row += RULES[name](at_end(value, *ends) if name in OF_RANGES else value, outputs, ends, number)
        rows.append(row)
    return np.array(rows, dtype=bool)


def at_end(value, low, high):
    """A value beyond an end of a range by the rounding of float32 alone is this end."""
    rounding = 64 * 2**-23 * max(abs(low), abs(high))
    if low - rounding <= value < low:
        return low
    return high if high < value <= high + rounding else value


def nc(value, outputs, ends, threshold):
    if max(outputs) == min(outputs):
        return [False]
    return [(value - min(outputs)) / (max(outputs) - min(outputs)) > float(threshold)]


def nc_raw(value, outputs, ends, threshold):
    return [value > float(threshold)]


def kmnc(value, outputs, ends, num):
    low, high = ends
    sections = [False] * int(num)
    if low <= value <= high:
        number = math.ceil((value - low) / (high - low) * int(num)) if high > low else 1
        sections[max(number, 1) - 1] = True
    return sections


def nbc(value, outputs, ends, _):
    return [value < ends[0], value > ends[1]]


def snac(value, outputs, ends, _):
    return [value > ends[1]]


def tknc(value, outputs, ends, num):
    highest = sorted(outputs, reverse=True)
    return [value >= highest[min(int(num), len(highest)) - 1]]


RULES = {"nc-raw": nc_raw, "nc": nc, "kmnc": kmnc, "nbc": nbc, "snac": snac, "tknc": tknc}
OF_RANGES = "kmnc", "nbc", "snac"
