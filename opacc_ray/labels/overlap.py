"""Who labels what: the share of examples that two people label, and how examples are dealt to annotators."""

import hashlib
from collections.abc import Sequence


def doubled(ids: Sequence[str], share: float, run: str) -> frozenset[str]:
    """Return the ids that two people label: a simple random sample of that share of them.

    An id is in it by a digest of the run and the id alone, so that every command means the same examples, and a larger
    share holds those of a smaller one.
    """
    ranked = sorted(dict.fromkeys(ids), key=lambda id: hashlib.sha256(f"{run}\0{id}".encode()).digest())
    return frozenset(ranked[: round(share * len(ranked))])


def deal(ids: Sequence[str], annotators: Sequence[str], twice: frozenset[str]) -> dict[str, list[str]]:
    """Return the ids of each annotator, in their order: one person each, two different ones for those in ``twice``.

    Parameters
    ----------
    annotators : distinct names; two at least if ``twice`` holds any id.
    """
    dealt: dict[str, list[str]] = {name: [] for name in annotators}
    num = len(annotators)
    for i, id in enumerate(ids):
        dealt[annotators[i % num]].append(id)
        if id in twice:
            distance = 1 + (i // num) % (num - 1)  # so that everybody shares examples with everybody
            dealt[annotators[(i + distance) % num]].append(id)
    return dealt
