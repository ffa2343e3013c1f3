"""Ids without holding them: digests in order, and the first that appears twice."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from opacc_ray.extract.shards import digest_of, find_repeated, hashes_of


def test_digest_is_of_ids_with_their_lengths() -> None:
    two = b"\x02" + b"\0" * 7
    assert digest_of(["ab", "ü"]) == hashlib.sha256(two + b"ab" + two + b"\xc3\xbc").hexdigest()
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])
    assert digest_of(["a", "b"]) != digest_of(["b", "a"])


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        ([["a", "b"], ["c"]], None),
        ([["a", "b"], [], ["c", "b"]], "b"),
        ([["a", "b", "a"], ["b"]], "a"),
        ([["a"], ["b"], ["c", "c"]], "c"),
        ([[]], None),
    ],
)
def test_first_id_that_appears_twice_is_found(shards: Sequence[Sequence[str]], expected: str | None) -> None:
    asked: list[int] = []
    hashes = [hashes_of(own) for own in shards]
    assert find_repeated(hashes, lambda place: asked.append(place) or shards[place]) == expected
    assert (asked == []) == (expected is None)


def test_equal_hashes_of_different_ids_are_no_repetition() -> None:
    shards = [["a", "b"], ["c", "d"]]
    same = [np.array([7, 1], dtype=np.uint64), np.array([2, 7], dtype=np.uint64)]
    assert find_repeated(same, shards.__getitem__) is None
    shards[1][1] = "a"
    assert find_repeated(same, shards.__getitem__) == "a"
