"""The model under audit: loaded safely, run in evaluation mode, its last hidden layer recorded.

The only module of the package that imports torch (the demo, which plays a user, aside).
"""

import hashlib
import io
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.spec import ModelSpec, load_function
from opacc_ray.storage import read_uri

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Activations(NamedTuple):
    """What the model made of a batch."""

    hidden: NDArray[np.float32]  # (B, m)
    output: NDArray[np.float32]  # (B, C)


class Model:
    """A torch module in evaluation mode with a hook on its last hidden layer.

    Parameters
    ----------
    spec : factory, weights, digest and layer
    device : "cpu" or "cuda"
    precision : float32, bfloat16 or float16; activations are returned as float32 in any case
    threads : CPU threads, fixed so that results do not depend on the machine's load

    Raises
    ------
    DataError
        Wrong digest, weights that do not fit the module, or a layer that does not exist.
    """

    def __init__(self, spec: ModelSpec, device: str, precision: str = "float32", threads: int = 1) -> None:
        _settle(threads)
        self.device = torch.device(device)
        self.dtype = _DTYPES[precision]
        self.digest: str | None = None
        module = load_function(spec.factory, "model.factory")(**spec.arguments)
        if spec.weights is not None:
            self.digest = _load_weights(module, spec)
        self.module = module.eval().to(self.device, self.dtype)
        self._hidden: torch.Tensor | None = None
        self._watch(spec.hidden_layer)

    def __call__(self, batch: NDArray[np.float32]) -> Activations:
        """Run one batch (B, ...)."""
        self._hidden = None
        with torch.inference_mode():
            output = self.module(torch.from_numpy(batch).to(self.device, self.dtype))
        if self._hidden is None:
            raise DataError(
                "model.hidden_layer: the layer to record was not called; name a layer the model runs: "
                + ", ".join(_layers(self.module))
            )
        return Activations(_rows(self._hidden), _rows(output))

    def _watch(self, layer: str | None) -> None:
        if layer is None:
            linear = [part for part in self.module.modules() if isinstance(part, torch.nn.Linear)]
            if not linear:
                raise DataError(
                    "model.hidden_layer: the model has no Linear layer whose input could be recorded; "
                    f"name one of its layers: {', '.join(_layers(self.module))}"
                )
            for part in linear:  # the one that is called last is the last layer
                part.register_forward_pre_hook(lambda _, inputs: self._record(inputs[0]))
            return
        parts = dict(self.module.named_modules())
        if layer not in parts or not layer:
            raise DataError(
                f"model.hidden_layer: the model has no layer {layer!r}; it has {', '.join(_layers(self.module))}"
            )
        parts[layer].register_forward_hook(lambda _, __, output: self._record(output))

    def _record(self, value: torch.Tensor) -> None:
        self._hidden = value


def _layers(module: torch.nn.Module) -> list[str]:
    return [name for name, _ in module.named_modules() if name]


def _rows(value: torch.Tensor) -> NDArray[np.float32]:
    """(B, neurons): channels of a convolution are averaged over positions, a scalar becomes one column."""
    value = value.float()
    if value.ndim == 1:
        value = value[:, None]
    if value.ndim > 2:
        value = value.flatten(2).mean(2)
    rows: NDArray[np.float32] = value.cpu().numpy()
    return np.ascontiguousarray(rows)


def _settle(threads: int) -> None:
    """Same numbers whatever the machine is doing: fixed threads, no TF32, no autotuning."""
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def _load_weights(module: torch.nn.Module, spec: ModelSpec) -> str:
    assert spec.weights is not None
    data = read_uri(spec.weights)
    digest = hashlib.sha256(data).hexdigest()
    if spec.sha256 is not None and digest != spec.sha256:
        raise DataError(
            f"model.sha256: {spec.weights} has digest {digest}, and the spec expects {spec.sha256}; "
            "audit the weights you meant, or mend the spec"
        )
    try:
        module.load_state_dict(_state_dict(spec.weights, data))
    except RuntimeError as error:
        raise DataError(
            f"model.weights: {spec.weights} does not fit the module of {spec.factory}: {' '.join(str(error).split())}"
        ) from None
    return digest


def _state_dict(uri: str, data: bytes) -> dict[str, Any]:
    """A state dict from safetensors, or from a torch file without running anything in it."""
    try:
        if uri.endswith(".safetensors"):
            from safetensors.torch import load

            return dict(load(data))
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # each format raises kinds of its own
        raise DataError(
            f"model.weights: {uri} is neither safetensors nor a plain state dict ({' '.join(str(error).split())[:200]})"
        ) from None
    return dict(content.get("state_dict", content))
