"""Sections, histograms and divergences as the papers write them: plain loops over Python's floats."""

import math

import numpy as np

Table = list[list[int]]  # [row][neuron] or [neuron][section]


def equal_width(values: np.ndarray, num: int) -> Table:
    """Section of every value (N, m), from 0: each neuron's range in ``num`` equal parts, closed above only."""
    codes = [_codes([float(value) for value in column], num) for column in values.T]
    return [list(row) for row in zip(*codes, strict=True)]


def _codes(column: list[float], num: int) -> list[int]:
    low, high = min(column), max(column)
    return [0 if value == low else math.ceil((value - low) / (high - low) * num) - 1 for value in column]


def count(codes: Table, num: int) -> Table:
    """How many rows are in each section: [neuron][section]."""
    return [[column.count(section) for section in range(num)] for column in zip(*codes, strict=True)]


def relative_entropy(pool: Table, sample: Table) -> float:
    """KL(P_S || P_T), the mean over neurons; an empty section of T has the share 1e-15."""
    total = 0.0
    for in_pool, in_sample in zip(pool, sample, strict=True):
        for c, k in zip(in_pool, in_sample, strict=True):
            if c:
                P_S, P_T = c / sum(in_pool), max(k / sum(in_sample), 1e-15)
                total += P_S * math.log(P_S / P_T)
    return total / len(pool)
