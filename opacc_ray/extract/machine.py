"""The machine that computes features: its memory, its cores, its arrays, and the software of its processes.

Each layer's output is new memory. If the system returns fresh pages for every batch, each first write is a page fault:
a quarter of a ResNet's time in pages of 4 KiB, a tenth of a small model's. So freed memory is kept, in huge pages.

The thread that writes has a lower priority than the one that computes, since nothing waits for it. Those that read have
not: where other processes load the machine, they would get the last share of the cores, and hold the interpreter while
they wait for one. There, a transform in Python took 1.2 to 1.8 times as long.

Software must be one in all processes that compute for a run. opacc must agree in its version and in every byte of its
Python files, wherever they are installed. Python must agree in its minor version: patch releases mend faults and keep
the meaning of code, and Ray itself refuses more than we do. The libraries of the model and the user's files are
compared when the model is loaded (:func:`opacc_ray.extract.model_code.check_unchanged`). These functions travel to
nodes by value, since their opacc may have other modules, so they use the standard library alone.
"""

import ctypes
import hashlib
import logging
import os
import platform
import re
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)

Result = TypeVar("Result")

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""Variable by which torch puts large tensors in huge pages, on a CPU; read at its first tensor."""

KEPT_BYTES = 256 << 20  # freed memory that the C library may keep for the next batch
BACKGROUND_NICENESS = 10  # added niceness of background threads: on one core, the model has nine tenths of it

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGEST_KEPT = 32 << 20  # the largest value of glibc; larger tensors come from the system, and return to it


def cpu_name() -> str:
    """Return the CPU's model as the system names it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def resident_bytes() -> int:
    """Return the bytes of memory of this process; 0 if the system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def tune_allocation() -> None:
    """Put large tensors in huge pages, unless the environment forbids it; with glibc, keep freed memory."""
    os.environ.setdefault(HUGE_PAGES, "1")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def in_halves(run: Callable[[slice], Result], rows: slice, remark: str) -> list[Result]:
    """Return the results for rows that are computed together, or recursively their halves if memory runs out.

    ``remark`` is logged with the error and the number of rows. Raises MemoryError for a single row.
    """
    num = rows.stop - rows.start
    try:
        return [run(rows)]
    except MemoryError as error:
        if num <= 1:
            raise
        log.warning(remark, error, num)
    middle = rows.start + num // 2
    return [*in_halves(run, slice(rows.start, middle), remark), *in_halves(run, slice(middle, rows.stop), remark)]


def yield_to_others() -> None:
    """Lower the priority of this thread, and of those that it starts, on Linux."""
    if sys.platform == "linux":  # elsewhere this would affect the whole process
        thread = threading.get_native_id()
        with suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + BACKGROUND_NICENESS)


class Arrays(NamedTuple):
    """The library that searches neighbours: NumPy, or one with the same functions and true float32, on a GPU."""

    library: Any
    put: Callable[[NDArray[Any]], Any]  # to the library's arrays
    get: Callable[[Any], NDArray[Any]]  # and back
    memory_errors: Callable[[], AbstractContextManager[None]] = nullcontext  # raises MemoryError when memory runs out


HOST = Arrays(np, np.asarray, np.asarray)


def software() -> dict[str, str]:
    """Return the opacc and the Python of this process, by their names; without opacc if it is not installed."""
    found = find_spec("opacc_ray")
    if found is None or found.origin is None:
        return {}
    root, digest = Path(found.origin).parent, hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root).as_posix()}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return {
        "opacc": f"{import_module('opacc_ray').__version__} (code {digest.hexdigest()[:12]})",
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def difference(here: dict[str, str], there: dict[str, str]) -> str | None:
    """Return in words which software of another process is not that of the driver ``here``; None if all agrees."""
    for name, version in here.items():
        if name in there and there[name] != version:
            return f"has {name} {there[name]}, and the driver has {name} {version}"
    return None


def look(paths: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the keys of the paths that this node lacks, and its software."""
    return [key for key, path in paths.items() if not os.path.exists(path)], software()
