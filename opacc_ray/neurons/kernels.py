"""Loops over sections and over rows of bits, compiled by Numba, that would need large temporaries in NumPy.

All results are integers, so they depend neither on the order of summation nor on threads. The first import compiles the
loops and caches them on disk; modules import this one where they need a loop. Bits are in 64-bit words: place p is bit
p % 64 of word p // 64.

Legend: n rows, m neurons, K sections, ℓ groups of q examples; R places, W = ceil(R / 64) words, B = ceil(R / 8) bytes.
"""

import numpy as np
from numba import boolean, float32, float64, int32, int64, uint8, uint64, void
from numpy.typing import NDArray

from opacc_ray.parts.loops import compiled, read

Words = NDArray[np.uint64]
Reals = NDArray[np.float64]
Whole = NDArray[np.int64]
Codes = NDArray[np.uint8]

_ONE = np.uint64(1)
_SHIFT_2, _SHIFT_4, _SHIFT_56 = np.uint64(2), np.uint64(4), np.uint64(56)
_PAIRS, _FOURS, _EIGHTS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
_ADD_BYTES = np.uint64(0x0101010101010101)


@compiled(void(read(float32, 2), read(float64, 1), read(float64, 1), int64, uint8[:, ::1]))
def encode(values: NDArray[np.float32], low: Reals, width: Reals, num: int, codes: Codes) -> None:
    """Encode values (n, m) in sections of equal width; low and width (m,) -> codes (n, m).

    np.divide is four times faster than /, which checks every value for zero.
    """
    for row in range(values.shape[0]):
        for i in range(values.shape[1]):
            part = np.int32(np.ceil(np.divide(np.float64(values[row, i]) - low[i], width[i]) * num))
            codes[row, i] = part - (part > 0)


@compiled(void(read(uint8, 2), int64[:, ::1]))
def tally(codes: Codes, counts: Whole) -> None:
    """Add codes (n, m) to the counts (m, K)."""
    for row in range(codes.shape[0]):
        for i in range(codes.shape[1]):
            counts[i, codes[row, i]] += 1


@compiled(int64[::1](read(uint8, 3), read(int64, 3)))
def score(codes: Codes, gains: Whole) -> Whole:
    """Score each group: codes (ℓ, q, m), gains (m, K, q) -> (ℓ,).

    A member adds gains[i, section, r] for neuron i, if r earlier members of its group are in the same section.
    """
    num_groups, q, m = codes.shape
    scores = np.zeros(num_groups, dtype=np.int64)
    repeats = np.empty(m, dtype=np.uint8)
    for group in range(num_groups):
        for member in range(q):
            repeats[:] = 0
            for earlier in range(member):
                for i in range(m):
                    repeats[i] += codes[group, earlier, i] == codes[group, member, i]
            for i in range(m):
                scores[group] += gains[i, codes[group, member, i], repeats[i]]
    return scores


@compiled(void(read(uint8, 2), read(uint8, 1), read(uint8, 1), int32[::1]))
def move_target(codes: Codes, before: Codes, target: Codes, agreement: NDArray[np.int32]) -> None:
    """Change ``agreement`` from the number of neurons with codes[:, row] = before to that with codes[:, row] = target.

    codes (m, n), before and target (m,), agreement (n,). Costs n steps for each neuron whose target differs.
    """
    for neuron in range(codes.shape[0]):
        old, new = before[neuron], target[neuron]
        if old != new:
            for row in range(codes.shape[1]):
                agreement[row] += np.int32(codes[neuron, row] == new) - np.int32(codes[neuron, row] == old)


@compiled(void(read(uint8, 2), int64[:, ::1]))
def count_places(packed: Codes, counts: Whole) -> None:
    """Add to ``counts`` (8, B) the number of rows with bit b of each byte set, b = 0 the highest; packed (n, B)."""
    num_rows, num_bytes = packed.shape
    short = np.zeros((8, num_bytes), dtype=np.uint8)  # sums of up to 255 rows: the loop over bytes is one instruction
    for start in range(0, num_rows, 255):
        short[:] = 0
        for row in range(start, min(start + 255, num_rows)):
            for bit in range(8):
                for byte in range(num_bytes):
                    short[bit, byte] += (packed[row, byte] >> np.uint8(7 - bit)) & np.uint8(1)
        counts += short


@compiled(void(read(uint8, 2), read(int64, 1), uint64[:, ::1]))
def reorder(packed: Codes, source: Whole, words: Words) -> None:
    """Copy place source[p] of each row of packed (n, B), as by numpy.packbits, to place p of words (n, W)."""
    byte, bit = source >> 3, (7 - (source & 7)).astype(np.uint8)
    for row in range(packed.shape[0]):
        for start in range(0, len(source), 64):
            word = np.uint64(0)
            for place in range(start, min(start + 64, len(source))):
                value = np.uint64((packed[row, byte[place]] >> bit[place]) & np.uint8(1))
                word |= value << np.uint64(place - start)
            words[row, start >> 6] = word


@compiled(uint64(uint64))
def _count(word: np.uint64) -> np.uint64:
    """Count the bits that are set in a word."""
    word = word - ((word >> _ONE) & _PAIRS)
    word = (word & _FOURS) + ((word >> _SHIFT_2) & _FOURS)
    word = (word + (word >> _SHIFT_4)) & _EIGHTS
    return (word * _ADD_BYTES) >> _SHIFT_56


@compiled(int64[::1](read(uint64, 2), read(int64, 1), read(uint64, 1)))
def count_within(words: Words, where: Whole, mask: Words) -> Whole:
    """Count the places of each row that are also set in ``mask`` (W,), 0 except in the words ``where``: (n,)."""
    counts = np.zeros(words.shape[0], dtype=np.int64)
    for row in range(words.shape[0]):
        for word in where:
            counts[row] += np.int64(_count(words[row, word] & mask[word]))
    return counts


@compiled(boolean(read(uint64, 1), read(uint64, 1), read(int64, 1), read(uint64, 1), read(int64, 1)))
def _precedes(first: Words, second: Words, where: Whole, mask: Words, group: Whole) -> bool:
    """Return whether ``first`` has more places of ``mask`` in the first group in which the two numbers differ."""
    lead, current = 0, np.int64(-1)
    for word in where:
        differing = (first[word] ^ second[word]) & mask[word]
        while differing:
            rest = differing & (differing - _ONE)
            bit = differing ^ rest  # the lowest
            place = (word << 6) + np.int64(_count(bit - _ONE))
            if group[place] != current:
                if lead != 0:
                    return lead > 0
                current = group[place]
            lead += 1 if first[word] & bit else -1
            differing = rest
    return lead > 0


@compiled(int64(read(uint64, 2), read(int64, 1), read(int64, 1), read(uint64, 1), read(int64, 1)))
def best_row(words: Words, rows: Whole, where: Whole, mask: Words, group: Whole) -> int:
    """Return the first of ``rows`` that no other precedes: most places of the first group, then of the next, and so on.

    mask (W,) sets the places that count and is 0 except in the words ``where``; group (R,) does not decrease.
    """
    best = rows[0]
    for row in rows[1:]:
        if _precedes(words[row], words[best], where, mask, group):
            best = row
    return best
