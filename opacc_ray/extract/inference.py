"""Running the model of a spec, whichever way it is brought: loaded once, batch after batch."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.user_code import user_code
from opacc_ray.spec import SURPRISE, CoverageSpec, Spec

if TYPE_CHECKING:
    from opacc_ray.extract.activations import Activations
    from opacc_ray.extract.function import FunctionModel
    from opacc_ray.extract.model import Model

log = logging.getLogger(__name__)


def load_model(spec: Spec, device: str, coverage: CoverageSpec | None) -> "Model | FunctionModel":
    """Load what the spec names as its model; raises SpecError or DataError if it cannot be."""
    if spec.model.function is not None:
        from opacc_ray.extract.function import FunctionModel

        return FunctionModel(spec.model)
    from opacc_ray.extract.model import Model

    extract = spec.extract
    return Model(
        spec.model,
        device,
        extract.precision,
        extract.threads_per_actor,
        coverage,
        channels_last=extract.channels_last,
    )


def check_hidden(names: Sequence[str], activations: "Activations") -> None:
    """Raise DataError if a hidden layer is asked for, and the model gives its output alone."""
    if activations.hidden is None and {"hidden", *SURPRISE} & set(names):
        raise DataError(
            "the model returns its output alone, and the hidden layer is asked for: return both, hidden first, or "
            "leave hidden out: extract.features: [output, confidence], with a method that goes without"
        )


def run_model(model: "Model | FunctionModel", batch: NDArray[np.float32]) -> "Activations":
    """Run a batch (B, ...); raises DataError in one sentence if the user's model cannot."""
    remedy = "set transform to a function that makes the input it was trained on"
    with user_code(f"the model, given a batch of shape {batch.shape},", remedy):
        return model(batch)


def in_halves(run: Callable[[NDArray[np.float32]], "Activations"], batch: NDArray[np.float32]) -> "Activations":
    """Run a batch (B, ...), or its halves apart where memory runs out, down to single examples.

    Raises
    ------
    MemoryError
        There is too little for one example.
    """
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
    return type(first)(hidden, output, layers)
