"""``PYTHONPATH=tests python -m chaos [RUNS] [SEED]``: so many disturbed audits, a line each on stderr.

What was met is printed as Markdown at the end, however that comes. ``python -m chaos folder|s3|ray KILLS [SEED]`` kills
commands: see `chaos.journeys`.
"""

import json
import signal
import sys
import time
from collections import Counter

from chaos import journeys
from chaos.campaign import Outcome, disturb, undisturbed
from chaos.site import open_site


def main(runs: str = "100", *rest: str) -> int:
    if not runs.isdigit():
        return journeys.campaign(runs, *map(int, rest))
    return campaign(int(runs), *map(int, rest))


def campaign(runs: int, first: int = 0) -> int:
    done: list[Outcome] = []
    begun = time.monotonic()
    try:
        with open_site() as site:
            expected, seconds = undisturbed(site)
            print(f"undisturbed: {len(expected)} objects in {seconds:.1f} s", file=sys.stderr, flush=True)
            for seed in range(first, first + runs):
                done.append(disturb(site, seed, expected, seconds))
                print(json.dumps(done[-1]._asdict()), file=sys.stderr, flush=True)
    finally:
        sound = sum(not found.problem for found in done)
        last = first + len(done) - 1
        print(f"{len(done)} runs, seeds {first} to {last}: {sound} ended in the undisturbed bytes.")
        print(f"They were started {sum(found.starts for found in done)} times, in {_minutes(begun)} minutes.\n")
        print(*_table("disturbance", Counter(event for found in done for event in found.events)), sep="\n")
        print()
        print(*_table("fault of storage", sum((found.faults for found in done), Counter())), sep="\n")
    return int(sound < runs)


def _minutes(begun: float) -> str:
    return f"{(time.monotonic() - begun) / 60:.0f}"


def _table(title: str, counts: Counter[str]) -> list[str]:
    """Lines of a Markdown table, the most frequent first."""
    rows = [f"| {name} | {count} |" for name, count in counts.most_common()]
    return [f"| {title} | times |", "|---|---:|", *rows]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started ends, too
    sys.exit(main(*sys.argv[1:]))
