"""``PYTHONPATH=tests python -m chaos [RUNS] [SEED]``: so many disturbed audits; one line each, then what was met."""

import json
import signal
import sys
from collections import Counter

from chaos.campaign import disturb, undisturbed
from chaos.site import open_site


def main(runs: int = 100, first: int = 0) -> int:
    events: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    wrong = 0
    with open_site() as site:
        expected, seconds = undisturbed(site)
        print(f"undisturbed: {len(expected)} objects in {seconds:.1f} s", flush=True)
        for seed in range(first, first + runs):
            found = disturb(site, seed, expected, seconds)
            print(json.dumps(found._asdict()), flush=True)
            events.update(found.events)
            faults.update(found.faults)
            wrong += bool(found.problem)
    print(f"{runs} runs, seeds {first} to {first + runs - 1}: {runs - wrong} ended in the undisturbed bytes")
    print("disturbances:", dict(events))
    print("faults of storage:", dict(faults))
    return int(wrong > 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started ends, too
    sys.exit(main(*map(int, sys.argv[1:])))
