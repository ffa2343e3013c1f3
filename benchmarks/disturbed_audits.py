"""`make chaos` as a document: audits that are disturbed at random moments, by seed.

    python benchmarks/disturbed_audits.py [RUNS] [SEED]

Ends with an error unless all end in the bytes of an undisturbed one.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("runs", type=int, nargs="?", default=100, metavar="RUNS")
    found.add_argument("seed", type=int, nargs="?", default=0, metavar="SEED")
    return found


def main() -> int:
    given = parser().parse_args()
    command = [sys.executable, "-m", "chaos", str(given.runs), str(given.seed)]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])}
    return subprocess.run(command, env=os.environ | paths).returncode


if __name__ == "__main__":
    sys.exit(main())
