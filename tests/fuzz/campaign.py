"""Many mutants of each kind, in one process with limited memory: what became of each.

``python -m fuzz.campaign SEED COUNT [KIND …]`` prints a line of JSON for each kind, by default for all of them.
"""

import contextlib
import json
import random
import resource
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from fuzz.targets import SECONDS, TARGETS, TookTooLong, within
from opacc_ray.extract import user_code

MEMORY = 1 << 30


def limit_memory() -> None:
    """Let this process take a gigabyte beyond what it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def try_mutants(kind: str, count: int, seed: int) -> dict[str, Any]:
    """Give so many mutants to a target; returns how many were accepted and refused, and each one that went wrong."""
    codes: Counter[int] = Counter()
    faults: list[str] = []
    home = Path(tempfile.mkdtemp(prefix="opacc-fuzz-"))
    for number in range(count):
        name, folder = f"{kind} {seed}:{number}", home / str(number)
        folder.mkdir()
        try:
            with within(SECONDS):
                found = TARGETS[kind](random.Random(f"{seed}:{number}"), folder)
        except TookTooLong:
            faults.append(f"{name}: took more than {SECONDS} s")
        except Exception as error:
            faults.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        else:
            codes[found.code] += 1
            if found.code == 1 or "Traceback" in found.message or len(found.message) > 2500:
                faults.append(f"{name}: exit code {found.code}: {found.message[:300]}")
            half = [item.name for item in (folder / "runs").rglob("*") if item.is_file()]
            if half:
                faults.append(f"{name}: left {half[0]} behind")
        shutil.rmtree(folder)
    shutil.rmtree(home)
    return {"kind": kind, "mutants": count, "codes": dict(sorted(codes.items())), "faults": faults}


if __name__ == "__main__":
    import opacc_ray.audit.accuracy
    import opacc_ray.extract.torch_model
    import opacc_ray.extract.trial  # noqa: F401  all that commands import, before memory is limited

    user_code.isolated = contextlib.nullcontext  # type: ignore[assignment]  # a process for each would import torch
    limit_memory()
    faults = 0
    for kind in sys.argv[3:] or TARGETS:
        found = try_mutants(kind, int(sys.argv[2]), int(sys.argv[1]))
        print(json.dumps(found), flush=True)
        faults += len(found["faults"])
    sys.exit(faults > 0)
