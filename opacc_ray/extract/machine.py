"""The kind of machine that makes features: what decides the last bits of a matrix product."""

import platform
import re
from pathlib import Path

from pydantic import Field

from opacc_ray.documents import Part


class Machine(Part):
    """Two machines of one kind make the same features of the same shard, bit for bit."""

    processor: str = Field(description="name of the GPU, or else of the CPU")
    capability: str = Field(description="instruction set that torch uses on it, such as AVX512 or sm_90")
    torch: str = Field(description="version of torch")

    def __str__(self) -> str:
        return f"{self.processor} ({self.capability}, torch {self.torch})"


def cpu_name() -> str:
    """Return the CPU's model as the system names it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
