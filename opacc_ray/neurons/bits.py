"""Rows of bits in 64-bit words, for :mod:`opacc_ray.neurons.set_cover`: place p is bit p % 64 of word p // 64.

Numba compiles the loops when this module is first imported.

Legend: n rows, R places, W = ceil(R / 64) words, B = ceil(R / 8) bytes.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from opacc_ray.parts.compiled import compiled, read

Words = NDArray[np.uint64]

_ONE = np.uint64(1)
_SHIFT_2, _SHIFT_4, _SHIFT_56 = np.uint64(2), np.uint64(4), np.uint64(56)
_PAIRS, _FOURS, _EIGHTS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
_ADD_BYTES = np.uint64(0x0101010101010101)


def span(start: int, stop: int, num: int) -> Words:
    """Return a row of ``num`` places with those from ``start`` to before ``stop`` set: (W,)."""
    bits = np.zeros(-(-num // 64) * 64, dtype=np.uint8)
    bits[start:stop] = 1
    return np.packbits(bits, bitorder="little").view(np.dtype(np.uint64).newbyteorder("<")).astype(np.uint64)


def first_set(words: Words) -> int:
    """Return the first place that is set; at least one must be."""
    word = int(np.argmax(words != 0))
    bits = int(words[word])
    return 64 * word + (bits & -bits).bit_length() - 1


@compiled(types.void(read(types.uint8, 2), types.int64[:, ::1]))
def count_places(packed: NDArray[np.uint8], counts: NDArray[np.int64]) -> None:
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


@compiled(types.void(read(types.uint8, 2), read(types.int64, 1), types.uint64[:, ::1]))
def reorder(packed: NDArray[np.uint8], source: NDArray[np.int64], words: Words) -> None:
    """Copy place source[p] of each row of packed (n, B), as by numpy.packbits, to place p of words (n, W)."""
    byte, bit = source >> 3, (7 - (source & 7)).astype(np.uint8)
    for row in range(packed.shape[0]):
        for start in range(0, len(source), 64):
            word = np.uint64(0)
            for place in range(start, min(start + 64, len(source))):
                value = np.uint64((packed[row, byte[place]] >> bit[place]) & np.uint8(1))
                word |= value << np.uint64(place - start)
            words[row, start >> 6] = word


@compiled(types.uint64(types.uint64))
def _count(word: np.uint64) -> np.uint64:
    """Count the bits that are set in a word."""
    word = word - ((word >> _ONE) & _PAIRS)
    word = (word & _FOURS) + ((word >> _SHIFT_2) & _FOURS)
    word = (word + (word >> _SHIFT_4)) & _EIGHTS
    return (word * _ADD_BYTES) >> _SHIFT_56


@compiled(types.int64[::1](read(types.uint64, 2), read(types.int64, 1), read(types.uint64, 1)))
def count_within(words: Words, where: NDArray[np.int64], mask: Words) -> NDArray[np.int64]:
    """Count the places of each row that are also set in ``mask`` (W,), 0 except in the words ``where``: (n,)."""
    counts = np.zeros(words.shape[0], dtype=np.int64)
    for row in range(words.shape[0]):
        for word in where:
            counts[row] += np.int64(_count(words[row, word] & mask[word]))
    return counts


@compiled(
    types.boolean(
        read(types.uint64, 1), read(types.uint64, 1), read(types.int64, 1), read(types.uint64, 1), read(types.int64, 1)
    )
)
def _precedes(first: Words, second: Words, where: NDArray[np.int64], mask: Words, group: NDArray[np.int64]) -> bool:
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


@compiled(
    types.int64(
        read(types.uint64, 2), read(types.int64, 1), read(types.int64, 1), read(types.uint64, 1), read(types.int64, 1)
    )
)
def best_row(
    words: Words, rows: NDArray[np.int64], where: NDArray[np.int64], mask: Words, group: NDArray[np.int64]
) -> int:
    """Return the first of ``rows`` that no other precedes: most places of the first group, then of the next, and so on.

    mask (W,) sets the places that count and is 0 except in the words ``where``; group (R,) does not decrease.
    """
    best = rows[0]
    for row in rows[1:]:
        if _precedes(words[row], words[best], where, mask, group):
            best = row
    return best
