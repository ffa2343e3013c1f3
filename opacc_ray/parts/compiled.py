"""Compile loops with Numba, for the modules of kernels.

A kernel is compiled when its module is first imported, for one signature, so that no later call waits; it releases the
GIL. The machine code is cached next to the module, or in NUMBA_CACHE_DIR, for later processes.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit, types

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


_SILENT_SECONDS = 1.0
"""Total time of compiling after which a person at a terminal or notebook is told."""

_seconds = 0.0


def compiled(signature: Any) -> Callable[[Kernel], Kernel]:
    """Decorate a kernel: compile it for ``signature``."""

    def decorate(function: Kernel) -> Kernel:
        start = time.perf_counter()
        try:
            return njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:  # no folder to keep the code in, as in a read-only container without a home
            return njit(signature, nogil=True)(function)
        finally:
            _report(time.perf_counter() - start)

    return decorate


def _report(seconds: float) -> None:
    """Print one line as soon as compiling takes long, if a person is there to read it."""
    global _seconds
    before, _seconds = _seconds, _seconds + seconds
    if before < _SILENT_SECONDS <= _seconds and (sys.stderr.isatty() or "IPython" in sys.modules):
        print("opacc: compiling for this machine, about ten seconds, once per installation", file=sys.stderr)


def read(dtype: Any, ndim: int) -> Any:
    """Return the type of an argument that is only read: a C-contiguous array, which may be read-only."""
    return types.Array(dtype, ndim, "C", readonly=True)
