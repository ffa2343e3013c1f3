"""How often `discover` confirms a part, with 300 labels in four rounds of `neyman`: one that is worse, and none.

    python benchmarks/discovery.py [--audits 60] [--cases null-3,worse-20,…]

A pool has 4,000 examples and twelve columns of twelve random values, whose slices make about 8 % of it, and a
confidence that says nothing. In a *null* pool 2, 3 or 10 % fail, whatever is known of them. In a *worse* one 10 % fail,
and 20 or 40 percentage points more in one slice. Every audit has a pool of its own. Rounds serve the accuracy, or each
the suspects of those before it.

Printed are the audits that confirm a part, those that confirm the worse slice, the confirmed parts that are not MARGIN
worse than the rest, and the share of their intervals that miss the difference in the pool, the mean over audits, 0 for
one without a part: at most 5 % by construction.
"""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from audits import in_rounds, repeat
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.extensions.discovery import MARGIN, SUSPECTS

SIZE, COLUMNS, VALUES, LABELS = 4000, 12, 12, 300
RATES = {"null-2": 0.02, "null-3": 0.03, "null-10": 0.1, "worse-20": 0.1, "worse-40": 0.1}
MORE = {"worse-20": 0.2, "worse-40": 0.4}
"""Share of failures, and how many more there are in the worse slice."""
WORSE = "c0 = 0"


class Found(NamedTuple):
    """What one audit confirms."""

    parts: int
    worse: bool
    false: int
    missed: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=60)
    parser.add_argument("--cases", default=",".join(RATES))
    given = parser.parse_args()
    columns = ("pool", "rounds serve", "audits", "confirm a part", "the worse slice", "false parts", "miss")
    print(markdown.header(columns, texts=2))
    for case in given.cases.split(","):
        for serve in ("accuracy", SUSPECTS):
            found = list(repeat(partial(audit, case, serve), range(given.audits)))
            parts, worse, false, missed = np.array(found, dtype=float).T
            shares = (parts > 0).mean(), worse.mean(), (missed / np.maximum(parts, 1)).mean()
            texts = [f"{100 * own:.1f} %" for own in shares]
            counts = [str(len(found)), *texts[:2], f"{false.sum():.0f} of {parts.sum():.0f}", texts[2]]
            print(markdown.row([case, serve, *counts]), flush=True)


def audit(case: str, serve: str, seed: int) -> Found:
    """Draw and label four rounds from a fresh pool, and compare what is confirmed with the truth."""
    rng = np.random.default_rng([list(RATES).index(case), seed])
    slices = {f"c{k}": rng.integers(0, VALUES, SIZE) for k in range(COLUMNS)}
    failure = rng.random(SIZE) < RATES[case] + MORE.get(case, 0.0) * (slices["c0"] == 0)
    columns = {"ids": list(map(str, range(SIZE))), "confidence": rng.beta(9, 1, SIZE)}
    pool, rounds = opacc.Pool(**columns, slices=slices), list[opacc.Labelled]()
    known, asked = dict(slices), {}
    for k, size in enumerate(in_rounds(LABELS)):
        if k and serve == SUSPECTS:
            known[f"{SUSPECTS} {k}"] = opacc.discover(rounds, pool=pool).suspects
            pool, asked = opacc.Pool(**columns, slices=known), {"serve": [f"{SUSPECTS} {k}"]}
        drawn = opacc.select(pool, "neyman", size, seed, previous=rounds, **asked)
        rounds.append(opacc.Labelled(drawn, outcomes=1.0 - failure[drawn.index]))
    found = opacc.discover(rounds, pool=pool)
    parts = {own.name: member(own.name, slices, found) for own in found.confirmed}
    true = [float(failure[part].mean() - failure[~part].mean()) for part in parts.values()]
    missed = sum(not own.low <= d <= own.high for own, d in zip(found.confirmed, true, strict=True))
    return Found(len(parts), WORSE in parts, sum(d < MARGIN for d in true), missed)


def member(name: str, slices: Mapping[str, NDArray[np.int64]], found: opacc.Discovery) -> NDArray[np.bool_]:
    """Return which examples are in a part, (N,)."""
    if name in found.slices:
        return np.asarray(found.slices[name].codes == 0)
    column, value = name.split(" = ")
    return np.asarray(slices[column] == int(value))


if __name__ == "__main__":
    main()
