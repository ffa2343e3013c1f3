"""A model that is a function of a batch, in any framework: arrays go in, arrays come out.

``model.function`` names it. It is given the inputs of a batch, (B, ...) float32, and ``model.arguments``; it returns a
mapping with ``output`` (B, C) and, where a method asks for it, ``hidden`` (B, m); or both as a pair, hidden first; or
the output alone. What it keeps between batches, such as a session or a client, it keeps itself: each actor calls it in
one process, one batch at a time. Torch is not imported.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.activations import Activations
from opacc_ray.extract.machine import Machine, cpu_name
from opacc_ray.extract.neighbours import HOST, Arrays
from opacc_ray.extract.user_code import user_code
from opacc_ray.spec import ModelSpec, load_function


class FunctionModel:
    """Calls the user's function; raises SpecError if it cannot be imported."""

    def __init__(self, spec: ModelSpec) -> None:
        assert spec.function is not None
        self._name = spec.function
        self._arguments = spec.arguments
        self._function = load_function(spec.function, "model.function")

    def __call__(self, batch: NDArray[np.float32]) -> Activations:
        """Run one batch (B, ...)."""
        name = f"model.function {self._name!r}"
        with user_code(f"{name}, given a batch of shape {batch.shape},"):
            returned = self._function(batch, **self._arguments)
        hidden, output = _parts(returned, name)
        return Activations(
            None if hidden is None else _rows(hidden, len(batch), f"hidden of {name}"),
            _rows(output, len(batch), f"output of {name}"),
            (),
        )

    @property
    def arrays(self) -> Arrays:
        """Where neighbours are searched."""
        return HOST

    @property
    def machine(self) -> Machine:
        """What computes here."""
        return Machine(processor=cpu_name(), capability="not known", torch="not used")


def _parts(returned: Any, name: str) -> tuple[Any, Any]:
    """Hidden layer, or None, and output in what a function returns."""
    if isinstance(returned, Mapping):
        if "output" not in returned:
            raise DataError(f"{name} returned a mapping with {', '.join(map(str, returned))}; give it an 'output'")
        return returned.get("hidden"), returned["output"]
    if isinstance(returned, tuple | list) and len(returned) == 2:
        return returned[0], returned[1]
    return None, returned


def _rows(value: Any, length: int, what: str) -> NDArray[np.float32]:
    """An array of numbers as (B, width)."""
    try:
        found = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{what} is a {type(value).__name__}, not an array of numbers") from None
    if found.ndim == 0 or len(found) != length:
        raise DataError(
            f"{what} has shape {found.shape} for a batch of {length}: return one row per example, in its order"
        )
    return np.ascontiguousarray(found.reshape(length, -1))
