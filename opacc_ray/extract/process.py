"""How a process that computes shares its machine: it seldom asks for memory, and its model goes first.

Each layer's output is new memory. Where the system gives it anew for every batch, each of its pages costs a fault when
it is first written: a quarter of a ResNet's time in pages of 4 KiB, a tenth of a small model's where the C library
gives back what a thread has freed.

What reads and writes runs on threads that stand behind the one that computes: where they and other processes are more
than there are cores, the system would have the model wait for its turn like all others, a tenth of its time.
"""

import ctypes
import os
import sys
import threading
from contextlib import suppress

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""Variable by which torch takes large tensors in huge pages, on a CPU; read at its first tensor."""

KEPT_BYTES = 256 << 20
"""Freed memory that the C library may keep for the next batch."""

BEHIND = 10
"""Niceness by which threads give way: with both at work on one core, the model has nine tenths of it."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGEST_KEPT = 32 << 20  # the most that glibc takes; larger tensors come from the system, and go back to it


def tune_allocation() -> None:
    """Take large tensors in huge pages, unless the environment says no; with glibc, keep what is freed."""
    os.environ.setdefault(HUGE_PAGES, "1")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def stand_behind() -> None:
    """Let this thread, and those that it starts, give way to the others of the process, on Linux."""
    if sys.platform == "linux":  # elsewhere this would be said of the whole process
        thread = threading.get_native_id()
        with suppress(OSError):  # where a sandbox forbids it, the work is done as well, if later
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + BEHIND)
