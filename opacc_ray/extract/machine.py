"""The machine that computes features: its kind, and how a process uses its memory and cores.

The kind decides the last bits of a matrix product.

Each layer's output is new memory. If the system returns fresh pages for every batch, each first write is a page fault:
a quarter of a ResNet's time in pages of 4 KiB, a tenth of a small model's. So freed memory is kept, in huge pages.

Threads that read and write have a lower priority than the one that computes. Otherwise, with more threads than cores,
the model would wait for a tenth of its time.
"""

import ctypes
import logging
import os
import platform
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from opacc_ray.documents import Part

log = logging.getLogger(__name__)

Result = TypeVar("Result")

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""Variable by which torch puts large tensors in huge pages, on a CPU; read at its first tensor."""

KEPT_BYTES = 256 << 20  # freed memory that the C library may keep for the next batch
BACKGROUND_NICENESS = 10  # added niceness of background threads: on one core, the model has nine tenths of it

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGEST_KEPT = 32 << 20  # the largest value of glibc; larger tensors come from the system, and return to it


UNKNOWN = "not known"  # a version in files that do not state it


class Machine(Part):
    """A kind of machine: two of one kind, with equal software, compute the same features of a shard, bit for bit."""

    processor: str = Field(description="name of the GPU, or else of the CPU")
    capability: str = Field(description="instruction set that torch uses on it, such as AVX512 or sm_90")
    torch: str = Field(description="version of torch")
    opacc: str = Field(default=UNKNOWN, description="version of opacc, and the begin of a digest of its code")
    python: str = Field(default=UNKNOWN, description="minor version of Python")

    def __str__(self) -> str:
        return f"{self.processor} ({self.capability}, torch {self.torch}, Python {self.python}, opacc {self.opacc})"


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
