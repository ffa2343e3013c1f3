"""``PYTHONPATH=tests python -m chaos [RUNS] [SEED]``: so many disturbed audits; one line each, then what was met."""

import json
import signal
import sys
from collections import Counter

from chaos.campaign import Outcome, disturb, undisturbed
from chaos.site import open_site


def main(runs: int = 100, first: int = 0) -> int:
    done: list[Outcome] = []
    try:
        with open_site() as site:
            expected, seconds = undisturbed(site)
            print(f"undisturbed: {len(expected)} objects in {seconds:.1f} s", flush=True)
            for seed in range(first, first + runs):
                done.append(disturb(site, seed, expected, seconds))
                print(json.dumps(done[-1]._asdict()), flush=True)
    finally:
        sound = sum(not found.problem for found in done)
        print(f"{len(done)} runs, seeds {first} to {first + len(done) - 1}: {sound} ended in the undisturbed bytes")
        print("disturbances:", dict(Counter(event for found in done for event in found.events)))
        print("faults of storage:", dict(sum((found.faults for found in done), Counter())))
    return int(sound < runs)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started ends, too
    sys.exit(main(*map(int, sys.argv[1:])))
