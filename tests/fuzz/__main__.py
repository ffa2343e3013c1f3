"""``PYTHONPATH=tests python -m fuzz [MUTANTS] [SEED]``: print what became of so many mutants of each kind."""

import json
import subprocess
import sys

from fuzz.targets import TARGETS


def main(count: int = 250, seed: int = 0) -> int:
    faults = 0
    for kind in TARGETS:
        asked = [sys.executable, "-m", "fuzz.campaign", str(seed), kind, str(count)]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode:
            print(f"{kind}: the process ended with {done.returncode}: {done.stderr[-500:]}")
            faults += 1
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        codes = ", ".join(f"exit {code}: {number}" for code, number in found["codes"].items())
        print(f"{kind:12} {found['mutants']} mutants; {codes}; {len(found['faults'])} faults")
        print(*(f"  {fault}" for fault in found["faults"]), sep="\n", end="\n" if found["faults"] else "")
        faults += len(found["faults"])
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
