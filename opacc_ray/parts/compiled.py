"""Compile loops with Numba, for the modules of kernels.

A kernel is compiled when its module is first imported, for one signature, so that no later call waits; it releases the
GIL. The machine code is cached next to the module, or in NUMBA_CACHE_DIR, for later processes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit, types

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(signature: Any) -> Callable[[Kernel], Kernel]:
    """Decorate a kernel: compile it for ``signature``."""

    def decorate(function: Kernel) -> Kernel:
        try:
            return njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:  # no folder to keep the code in, as in a read-only container without a home
            return njit(signature, nogil=True)(function)

    return decorate


def read(dtype: Any, ndim: int) -> Any:
    """Return the type of an argument that is only read: a C-contiguous array, which may be read-only."""
    return types.Array(dtype, ndim, "C", readonly=True)
