"""The torch model under audit: run in evaluation mode, with hooks that record some of its layers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.inputs import Activations
from opacc_ray.extract.machine import Machine, cpu_name
from opacc_ray.extract.neighbours import Arrays
from opacc_ray.extract.weights import build, load_program, load_weights
from opacc_ray.spec import CoverageSpec, ModelSpec

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_NEURONS_LAST = (torch.nn.Linear, torch.nn.LayerNorm, torch.nn.Embedding)  # other layers have them after the batch
_NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
"""Messages of torch's CPU allocator, pinned memory, and cuBLAS and cuDNN when memory runs out."""

_HIDDEN = ""  # key of the last hidden layer; no layer has an empty name


class Device:
    """The device on which an actor computes, "cpu" or "cuda".

    The number of CPU threads is fixed, so that results do not depend on the machine's load.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False  # it would choose algorithms by the machine's load
        torch.backends.cudnn.deterministic = True
        self.device = torch.device(name)

    @property
    def arrays(self) -> Arrays:
        """Torch on this device, for the search of neighbours."""
        return Arrays(torch, lambda values: torch.from_numpy(values).to(self.device), _to_numpy, _memory_errors)

    @property
    def machine(self) -> Machine:
        """Kind of the machine that computes."""
        if self.device.type == "cuda":
            major, minor = torch.cuda.get_device_capability(self.device)
            name, capability = torch.cuda.get_device_name(self.device), f"sm_{major}{minor}"
        else:
            name, capability = cpu_name(), torch.backends.cpu.get_cpu_capability()
        return Machine(processor=name, capability=capability, torch=torch.__version__)


class Model(Device):
    """A torch module in evaluation mode, with hooks on its last hidden layer and on the covered layers.

    Parameters
    ----------
    spec : factory, weights, digest and layer
    device : "cpu" or "cuda"
    precision : float32, bfloat16 or float16; activations are returned as float32 in any case
    threads : as for :class:`Device`
    coverage : layers to record in addition to the last hidden one; None for none
    channels_last : keep images and weights with channels last in memory

    Raises DataError for a wrong digest, weights that do not fit the module, or a layer that does not exist.
    """

    def __init__(
        self,
        spec: ModelSpec,
        device: str,
        precision: str = "float32",
        threads: int = 1,
        coverage: CoverageSpec | None = None,
        *,
        channels_last: bool = False,
    ) -> None:
        super().__init__(device, threads)
        self.dtype = _DTYPES[precision]
        self.note: str | None = None  # how the keys of the weights were changed, if they were
        self._is_program = spec.program is not None
        module = load_program(spec) if self._is_program else build(spec).eval()
        if spec.weights is not None:
            self.note = load_weights(module, spec)
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self.module = module.to(self.device, self.dtype)
        if channels_last:
            self.module = self.module.to(memory_format=self._format)
        self._seen: dict[str, torch.Tensor] = {}  # layer -> (B, neurons), of those called in this batch
        if not self._is_program:
            self._watch_hidden(spec.hidden_layer)
        self._covered: list[str] = []
        self._may_be_idle = True  # layers that the spec does not name need not be called
        if coverage is not None:
            self._watch_covered(coverage)

    def __call__(self, batch: NDArray[np.float32]) -> Activations:
        """Run one batch (B, ...)."""
        self._seen.clear()
        with torch.inference_mode(), _memory_errors():
            returned = self.module(self._to_device(batch))
        hidden, returned = _split(returned) if self._is_program else (None, returned)
        output = _tensor_of(returned)
        if output.ndim == 0 or len(output) != len(batch):
            raise DataError(
                f"the model's output has shape {tuple(output.shape)} for a batch of {len(batch)}: "
                "return one row per example, in the order of the batch"
            )
        if self._is_program:
            return Activations(None if hidden is None else _to_numpy(_neurons(hidden)), _to_numpy(_neurons(output)), ())
        idle = [name for name in self._covered if name not in self._seen]
        if _HIDDEN not in self._seen:
            raise self._not_called("model.hidden_layer: the layer to record")
        if idle and not (self._may_be_idle and len(idle) < len(self._covered)):
            raise self._not_called(f"extract.coverage.layers: the layer {idle[0]!r}")
        layers = (_to_numpy(self._seen[name]) for name in self._covered if name in self._seen)
        return Activations(_to_numpy(self._seen[_HIDDEN]), _to_numpy(_neurons(output)), tuple(layers))

    def _to_device(self, batch: NDArray[np.float32]) -> torch.Tensor:
        """Copy the batch to the device: for a GPU from pinned memory, without a thread of this process."""
        given = torch.from_numpy(batch)
        if self.device.type == "cuda":
            given = given.pin_memory()
        moved = given.to(self.device, non_blocking=True).to(self.dtype)  # in one step, it would be rounded on the CPU
        return moved.contiguous(memory_format=self._format) if moved.ndim == 4 else moved

    def _watch_hidden(self, name: str | None) -> None:
        if name is not None:
            self._watch(self._layer(name, "model.hidden_layer"), _HIDDEN, "mean")
            return
        linear = [part for part in self.module.modules() if isinstance(part, torch.nn.Linear)]
        if not linear:
            raise DataError(
                "model.hidden_layer: the model has no Linear layer whose input could be recorded; "
                f"name one of its layers: {self._layers}"
            )
        for part in linear:  # the one that is called last is the last layer
            part.register_forward_pre_hook(lambda _, inputs: self._record(_HIDDEN, inputs[0], True, "mean"))

    def _watch_covered(self, coverage: CoverageSpec) -> None:
        """Watch the layers of the spec, or else those with weights, in the order of the spec or of the model."""
        if coverage.layers is None:
            layers = {
                name: part
                for name, part in self.module.named_modules()
                if name and not list(part.children()) and list(part.parameters())
            }
        else:
            layers = {name: self._layer(name, "extract.coverage.layers") for name in coverage.layers}
            self._may_be_idle = False
        if not layers:
            raise DataError(
                f"extract.coverage.layers: the model has no layer with weights; name some of its layers: {self._layers}"
            )
        for name, part in layers.items():
            self._watch(part, name, coverage.channels)
        self._covered = list(layers)

    def _watch(self, layer: torch.nn.Module, name: str, channels: str) -> None:
        last = isinstance(layer, _NEURONS_LAST)
        layer.register_forward_hook(lambda _, __, output: self._record(name, output, last, channels))

    def _record(self, name: str, value: Any, last: bool, channels: str) -> None:
        if not isinstance(value, torch.Tensor):
            key = "model.hidden_layer: the layer" if name == _HIDDEN else f"extract.coverage.layers: the layer {name!r}"
            raise DataError(f"{key} returns a {type(value).__name__}, not a tensor; name one of its parts or remove it")
        self._seen[name] = _neurons(value, last, channels)

    def _layer(self, name: str, key: str) -> torch.nn.Module:
        layers = dict(self.module.named_modules())
        if name not in layers or not name:
            raise DataError(f"{key}: the model has no layer {name!r}; it has {self._layers}")
        return layers[name]

    def _not_called(self, layer: str) -> DataError:
        return DataError(f"{layer} was not called; name layers the model runs: {self._layers}")

    @property
    def _layers(self) -> str:
        return ", ".join(name for name, _ in self.module.named_modules() if name)


def has_gpu() -> bool:
    """Return whether torch can use a GPU."""
    return bool(torch.cuda.is_available())


def _split(returned: Any) -> tuple[torch.Tensor | None, Any]:
    """Return the hidden layer of a program, under that name or as the first of two tensors, and the rest."""
    if isinstance(returned, Mapping):
        return returned.get("hidden"), {key: value for key, value in returned.items() if key != "hidden"}
    if isinstance(returned, tuple | list) and len(returned) == 2:
        return returned[0], returned[1]
    return None, returned


def _tensor_of(returned: Any) -> torch.Tensor:
    """Return the outputs of a model: the tensor itself, its ``logits``, or the first tensor of several."""
    if isinstance(returned, torch.Tensor):
        return returned
    named = dict(returned) if isinstance(returned, Mapping) else {}
    for found in (getattr(returned, "logits", None), *(named.get(key) for key in ("logits", "output", "out"))):
        if isinstance(found, torch.Tensor):
            return found
    several = list(named.values()) if named else list(returned) if isinstance(returned, tuple | list) else []
    first = next((item for item in several if isinstance(item, torch.Tensor)), None)
    if first is None:
        raise DataError(
            f"the model returned a {type(returned).__name__} without a tensor of outputs; "
            "return a tensor, or a mapping or object with logits"
        )
    return first


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Raise MemoryError when torch runs out of memory, on a GPU or a CPU."""
    try:
        yield
    except RuntimeError as error:  # torch's own OutOfMemoryError is one
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()  # for the halves of the batch
        if isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _NO_MEMORY):
            raise MemoryError(str(error).partition("\n")[0]) from None
        raise


def _neurons(value: torch.Tensor, last: bool = False, channels: str = "mean") -> torch.Tensor:
    """Return a copy as (B, neurons): positions are reduced to one value per channel, and a scalar is one column.

    ``last``: the neurons are the last dimension, not the one after the batch.
    """
    value = value.float()
    if value.ndim == 1:
        value = value[:, None]
    if value.ndim > 2:
        positions = (value.movedim(-1, 1) if last else value).flatten(2)
        return positions.mean(2) if channels == "mean" else positions.amax(2)
    return value.clone()  # the next layer may change it in place


def _to_numpy(value: torch.Tensor) -> NDArray[Any]:
    return np.ascontiguousarray(value.cpu().numpy())
