"""Running the model of a spec, batch after batch: a torch module, or a function of the user's in any framework.

``model.function`` names such a function. It gets the inputs of a batch, (B, ...) float32, and ``model.arguments``. It
returns a mapping with ``output`` (B, C) and, where a method needs it, ``hidden`` (B, m); or a pair of both, hidden
first; or the output alone. State between batches, such as a session or a client, is its own. Each actor calls it in one
process, one batch at a time. Torch is not imported for it.

What the user's code raises becomes one sentence with its file and line. The traceback travels with the error, across
processes as well, as its ``details``; the command line writes it to a file.
"""

import logging
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.extract.machine import Machine, cpu_name
from opacc_ray.extract.neighbours import HOST, Arrays
from opacc_ray.extract.outputs import read_output
from opacc_ray.extract.shards import Columns
from opacc_ray.spec import SURPRISE, CoverageSpec, ModelSpec, Spec, load_function

if TYPE_CHECKING:
    from opacc_ray.extract.model import Model

log = logging.getLogger(__name__)


class Activations(NamedTuple):
    """Activations of a model for a batch of B examples."""

    hidden: NDArray[np.float32] | None  # (B, m); None if the model returns its output alone
    output: NDArray[np.float32]  # (B, C)
    layers: tuple[NDArray[np.float32], ...]  # (B, neurons) each; empty unless coverage is extracted


def load_model(spec: Spec, device: str, coverage: CoverageSpec | None) -> "Model | FunctionModel":
    """Load the spec's model; raises SpecError or DataError if it cannot be loaded."""
    if spec.model.function is not None:
        return FunctionModel(spec.model)
    from opacc_ray.extract.model import Model

    own = spec.extract
    return Model(spec.model, device, own.precision, own.threads_per_actor, coverage, channels_last=own.channels_last)


def check_hidden(names: Sequence[str], activations: Activations) -> None:
    """Raise DataError if the hidden layer is among the features, and the model returns its output alone."""
    if activations.hidden is None and {"hidden", *SURPRISE} & set(names):
        raise DataError(
            "the hidden layer is required, and the model returns its output alone; return both, hidden first, or "
            "leave hidden out: extract.features: [output, confidence], with a method that does not use it"
        )


def run_model(model: "Model | FunctionModel", batch: NDArray[np.float32]) -> Activations:
    """Run a batch (B, ...); raises DataError if the user's model fails."""
    remedy = "set transform to a function that makes the input it was trained on"
    with user_code(f"the model, given a batch of shape {batch.shape},", remedy):
        return model(batch)


def columns_of(spec: Spec, activations: Activations) -> Columns:
    """Return the columns of a batch: hidden, if it is returned, output, prediction and, for classes, confidence."""
    hidden = {} if activations.hidden is None else {"hidden": activations.hidden}
    return hidden | read_output(activations.output, spec.model, spec.extract.precision)


def in_halves(run: Callable[[NDArray[np.float32]], Activations], batch: NDArray[np.float32]) -> Activations:
    """Run a batch (B, ...), or recursively its halves; raises MemoryError if memory runs out for a single example."""
    try:
        return run(batch)
    except MemoryError as error:
        if len(batch) == 1:
            raise
        log.warning("%s; the batch of %d runs in halves: lower extract.batch_size", error, len(batch))
    middle = len(batch) // 2
    first, second = in_halves(run, batch[:middle]), in_halves(run, batch[middle:])
    hidden = None if first.hidden is None or second.hidden is None else np.concatenate([first.hidden, second.hidden])
    output = np.concatenate([first.output, second.output])
    layers = tuple(np.concatenate(pair) for pair in zip(first.layers, second.layers, strict=True))
    return Activations(hidden, output, layers)


class FunctionModel:
    """The user's function as a model; raises SpecError if it cannot be imported."""

    arrays: Arrays = HOST  # the place to search neighbours

    def __init__(self, spec: ModelSpec) -> None:
        assert spec.function is not None
        self._name = f"model.function {spec.function!r}"
        self._arguments = spec.arguments
        self._function = load_function(spec.function, "model.function")

    def __call__(self, batch: NDArray[np.float32]) -> Activations:
        """Run one batch (B, ...)."""
        with user_code(f"{self._name}, given a batch of shape {batch.shape},"):
            returned = self._function(batch, **self._arguments)
        hidden: Any = None
        output = returned
        if isinstance(returned, Mapping):
            if "output" not in returned:
                found = ", ".join(map(str, returned))
                raise DataError(f"{self._name} returned a mapping with {found}; give it an 'output'")
            hidden, output = returned.get("hidden"), returned["output"]
        elif isinstance(returned, tuple | list) and len(returned) == 2:
            hidden, output = returned
        layer = None if hidden is None else _rows(hidden, len(batch), f"hidden of {self._name}")
        return Activations(layer, _rows(output, len(batch), f"output of {self._name}"), ())

    @property
    def machine(self) -> Machine:
        """Kind of the machine that computes."""
        return Machine(processor=cpu_name(), capability="not known", torch="not used")


def _rows(value: Any, length: int, what: str) -> NDArray[np.float32]:
    """Convert an array of numbers to (B, width)."""
    try:
        found = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{what} is a {type(value).__name__}, not an array of numbers") from None
    if found.ndim == 0 or len(found) != length:
        raise DataError(
            f"{what} has shape {found.shape} for a batch of {length}: return one row per example, in its order"
        )
    return np.ascontiguousarray(found.reshape(length, -1))


@contextmanager
def user_code(what: str, remedy: str = "") -> Iterator[None]:
    """Convert errors of the user's code in the block to DataError; errors of this package and MemoryError pass.

    ``what`` names the function and its key in the spec, such as ``model.factory 'mypkg:net'``.
    """
    try:
        yield
    except (OpaccError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # the latter would end the process with the exit code of success
        reason = shortened(str(error))
        text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(Path(frame.filename))]
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        failure = DataError(f"{what} raised {text}{place}" + (f"; {remedy}" if remedy else ""))
        failure.details = "".join(traceback.format_exception(error))
        raise failure from None


def _is_users(file: Path) -> bool:
    """Return whether a file is neither installed nor of this package."""
    others = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), Path(__file__).parents[1])
    return file.exists() and not any(file.resolve().is_relative_to(Path(place).resolve()) for place in others)
