"""How a process that computes shares its machine: it seldom asks for memory, and its model goes first.

Each layer's output is new memory. Where the system gives it anew for every batch, each of its pages costs a fault when
it is first written: a quarter of a ResNet's time in pages of 4 KiB, a tenth of a small model's where the C library
gives back what a thread has freed.

Threads that read and write wake up often, and the system lets who wakes up interrupt others. As batch jobs they wait
for a core that is free, or for their turn. Without that a model that computes is interrupted a twentieth of its time,
though a second core is free half of it.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""Variable by which torch takes large tensors in huge pages, on a CPU; read at its first tensor."""

KEPT_BYTES = 256 << 20
"""Freed memory that the C library may keep for the next batch."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGEST_KEPT = 32 << 20  # the most that glibc takes; larger tensors come from the system, and go back to it


def tune_allocation() -> None:
    """Take large tensors in huge pages, unless the environment says no; with glibc, keep what is freed."""
    os.environ.setdefault(HUGE_PAGES, "1")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def wait_for_turns(*, batch: bool = True) -> None:
    """Let this thread interrupt no other one from now on, or again, on Linux."""
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):  # where it is not allowed
            os.sched_setscheduler(0, os.SCHED_BATCH if batch else os.SCHED_OTHER, os.sched_param(0))


@contextmanager
def waiting_for_turns() -> Iterator[None]:
    """Let this thread interrupt no other one meanwhile."""
    wait_for_turns()
    try:
        yield
    finally:
        wait_for_turns(batch=False)
