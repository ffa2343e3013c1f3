"""Ids as bad as a pool may have them: for files that must bring every id back as it was."""

import random

PIECES = [
    *"aé7 ',\"=+-@\t\r\n;\\＝{[#",
    "\r\n",
    "''",
    "\u2028",
    "\x85",
    "\x1f",
    "\x00",
    "\ufeff",
    "日本",
    "🙂",
]
AWKWARD = [
    "=1+1",
    "'=1",
    "''=1",
    "'",
    "''",
    "'a",
    " a",
    "a ",
    " ",
    "-1",
    "\t",
    "a\nb",
    'say "hi", a',
    "007",
    "?",
]


def random_ids(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    made = {"".join(rng.choices(PIECES, k=rng.randint(1, 6))) for _ in range(count)}
    return sorted(made | set(AWKWARD))
