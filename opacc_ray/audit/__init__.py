"""What is done with a run, on the driver: its plan, its steps, its results."""

from importlib import import_module
from typing import Any

__all__ = ["Audit"]


def __getattr__(name: str) -> Any:
    if name != "Audit":
        raise AttributeError(f"module 'opacc_ray.audit' has no attribute {name!r}")
    return import_module("opacc_ray.notebook").Audit  # it also makes reports, which are above this room
