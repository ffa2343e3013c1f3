"""The torch model under audit: made safely, run in evaluation mode, with hooks that record some of its layers.

It comes from a factory of the user's, a library, a program or a checkpoint. A model of a library has a name such as
``timm:resnet18`` or ``hf:microsoft/resnet-18``, and ``model.arguments`` are passed to the library. Without
``model.weights`` its published weights are used, from the library's cache or the network; ``HF_HUB_OFFLINE=1`` and the
other variables of the cache apply. With ``model.weights`` the library only makes the architecture. Nothing that it
publishes is run as code.
"""

import hashlib
import importlib
import io
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from opacc_ray.errors import ClusterError, DataError, shortened
from opacc_ray.extract.machine import Arrays, cpu_name
from opacc_ray.extract.model_code import LIBRARY_OF, hub_of
from opacc_ray.extract.shards import Machine
from opacc_ray.extract.user_code import Activations, Running, split_answer, user_code
from opacc_ray.lake.parquet_io import unless_valid
from opacc_ray.lake.store_uris import read_uri
from opacc_ray.registry import require
from opacc_ray.spec import CoverageSpec, ModelSpec, load_function

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_NEURONS_LAST = (torch.nn.Linear, torch.nn.LayerNorm, torch.nn.Embedding)  # other layers have them after the batch
_NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
"""Messages of torch's CPU allocator, pinned memory, and cuBLAS and cuDNN when memory runs out."""

_SAVE = "save the model's state_dict(), best as safetensors"

_HIDDEN = ""  # key of the last hidden layer; no layer has an empty name


class Device:
    """The device on which an actor computes, "cpu" or "cuda".

    The number of CPU threads is fixed, so that results do not depend on the machine's load. Raises ClusterError if
    torch cannot use a GPU that Ray has assigned.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False  # it would choose algorithms by the machine's load
        torch.backends.cudnn.deterministic = True
        if name == "cuda" and not has_gpu():
            why = "is built without CUDA" if torch.version.cuda is None else "finds no driver for it"
            raise ClusterError(
                f"{platform.node()} has a GPU for this worker, and its torch {torch.__version__} {why}; "
                "install one that can use it, or set extract.gpus_per_actor: 0"
            )
        self.device = torch.device(name)
        self._copying = torch.cuda.Stream() if name == "cuda" else None

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

    Raises DataError for a wrong digest, weights that do not fit the module, or a layer that does not exist.
    """

    def __init__(
        self,
        spec: ModelSpec,
        device: str,
        precision: str = "float32",
        threads: int = 1,
        coverage: CoverageSpec | None = None,
    ) -> None:
        super().__init__(device, threads)
        self.note: str | None = None  # how the keys of the weights were changed, if they were
        self._is_program = spec.program is not None
        module = load_program(spec) if self._is_program else build(spec).eval()
        if spec.weights is not None:
            self.note = load_weights(module, spec)
        self.module = module
        self.compute_in(precision)
        self._seen: dict[str, torch.Tensor] = {}  # layer -> (B, neurons), of those called in this batch
        if not self._is_program:
            self._watch_hidden(spec.hidden_layer)
        self._covered: list[str] = []
        self._may_be_idle = True  # layers that the spec does not name need not be called
        if coverage is not None:
            self._watch_covered(coverage)

    def compute_in(self, precision: str) -> None:
        """Convert the module on its device, and compute in that precision from now on."""
        self.dtype = _DTYPES[precision]
        self.module = self.module.to(self.device, self.dtype)
        self._format = torch.contiguous_format
        if precision != "float32":  # in which convolutions are faster with channels last
            self._format = torch.channels_last
            for own in self.module.parameters():
                own.data = own.data.contiguous(memory_format=self._format) if own.ndim == 4 else own.data

    def __call__(self, batch: NDArray[np.float32]) -> Activations:
        """Run one batch (B, ...)."""
        found, _ = self.start(batch)()
        return found

    def start(self, batch: NDArray[np.float32]) -> Running:
        """Begin to run one batch (B, ...), whose memory is free after.

        A GPU computes it after the batches that have begun, while this process goes on.
        """
        self._seen.clear()
        with torch.inference_mode(), _memory_errors():
            given, begun = self._to_device(batch), self._mark()
            found = self._found(self.module(given), len(batch))
            moved = [value.to("cpu", non_blocking=True) for value in found if value is not None]
            ended = self._mark()

        def finish() -> tuple[Activations, float]:
            seconds = _between(begun, ended)
            arrays = [_to_numpy(value) for value in moved]
            hidden = None if found[0] is None else arrays.pop(0)
            return Activations(hidden, arrays[0], tuple(arrays[1:])), seconds

        return finish

    def _found(self, returned: Any, num: int) -> list[torch.Tensor | None]:
        """Return the hidden layer, or None, the output and the covered layers of a batch of ``num``, on the device."""
        hidden, returned = split_answer(returned) if self._is_program else (None, returned)
        output = _tensor_of(returned)
        if output.ndim == 0 or len(output) != num:
            raise DataError(
                f"the model's output has shape {tuple(output.shape)} for a batch of {num}: "
                "return one row per example, in the order of the batch"
            )
        if self._is_program:
            return [None if hidden is None else _neurons(hidden), _neurons(output)]
        idle = [name for name in self._covered if name not in self._seen]
        if _HIDDEN not in self._seen:
            raise self._not_called("model.hidden_layer: the layer to record")
        if idle and not (self._may_be_idle and len(idle) < len(self._covered)):
            raise self._not_called(f"extract.coverage.layers: the layer {idle[0]!r}")
        layers = [self._seen[name] for name in self._covered if name in self._seen]
        return [self._seen[_HIDDEN], _neurons(output), *layers]

    def _to_device(self, batch: NDArray[np.float32]) -> torch.Tensor:
        """Copy the batch to the device: to a GPU from pinned memory, while the batch before is computed there.

        Torch keeps the pinned memory until the copy is done, and that of the GPU until the model has used it.
        """
        given = torch.from_numpy(batch)
        if self._copying is not None:
            with torch.cuda.stream(self._copying):
                given = given.pin_memory().to(self.device, non_blocking=True)
            computing = torch.cuda.current_stream()
            computing.wait_stream(self._copying)
            given.record_stream(computing)
        moved = given.to(self.dtype)  # on the device: the CPU would round it in the same step as it copies
        return moved.contiguous(memory_format=self._format) if moved.ndim == 4 else moved

    def _mark(self) -> "torch.cuda.Event | float":
        """Return the time on the device: of a GPU, when it has done what began before."""
        if self._copying is None:
            return time.monotonic()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _watch_hidden(self, name: str | None) -> None:
        if name is not None:
            self._watch(self._layer(name, "model.hidden_layer"), _HIDDEN)
            return
        linear = [part for part in self.module.modules() if isinstance(part, torch.nn.Linear)]
        if not linear:
            raise DataError(
                "model.hidden_layer: the model has no Linear layer whose input could be recorded; "
                f"name one of its layers: {self._layers}"
            )
        for part in linear:  # the one that is called last is the last layer
            part.register_forward_pre_hook(lambda _, inputs: self._record(_HIDDEN, inputs[0], True))

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
            self._watch(part, name)
        self._covered = list(layers)

    def _watch(self, layer: torch.nn.Module, name: str) -> None:
        last = isinstance(layer, _NEURONS_LAST)
        layer.register_forward_hook(lambda _, __, output: self._record(name, output, last))

    def _record(self, name: str, value: Any, last: bool) -> None:
        if not isinstance(value, torch.Tensor):
            key = "model.hidden_layer: the layer" if name == _HIDDEN else f"extract.coverage.layers: the layer {name!r}"
            raise DataError(f"{key} returns a {type(value).__name__}, not a tensor; name one of its parts or remove it")
        self._seen[name] = _neurons(value, last)

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


def _neurons(value: torch.Tensor, last: bool = False) -> torch.Tensor:
    """Return a copy as (B, neurons): the mean over positions of each channel, and a scalar as one column.

    ``last``: the neurons are the last dimension, not the one after the batch.
    """
    value = value.float()
    if value.ndim == 1:
        value = value[:, None]
    if value.ndim > 2:
        return (value.movedim(-1, 1) if last else value).flatten(2).mean(2)
    return value.clone()  # the next layer may change it in place


def _between(begun: "torch.cuda.Event | float", ended: "torch.cuda.Event | float") -> float:
    """Return the seconds between two times on a device; of a GPU, wait for the second one."""
    if isinstance(begun, float) or isinstance(ended, float):
        return float(ended) - float(begun)
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1000


def _to_numpy(value: torch.Tensor) -> NDArray[Any]:
    return np.ascontiguousarray(value.cpu().numpy())


# -- where the model comes from ----------------------------------------------------------------------------------


def build(spec: ModelSpec) -> torch.nn.Module:
    """Return the module that the factory returns."""
    assert spec.factory is not None  # the spec has one
    name = f"model.factory {spec.factory!r}"
    if hub := hub_of(spec.factory):
        module: torch.nn.Module = create(*hub, spec.arguments, pretrained=spec.weights is None)
        return module
    factory = load_function(spec.factory, "model.factory")
    with user_code(name, "its arguments are those of model.arguments"):
        module = factory(**spec.arguments)
    if not isinstance(module, torch.nn.Module):
        raise DataError(f"{name} returned a {type(module).__name__}, not a torch.nn.Module; return the model itself")
    return module


def load_program(spec: ModelSpec) -> torch.nn.Module:
    """Return the program of a file, which is run as code: the spec trusts it."""
    assert spec.program is not None
    data = _read(spec.program, spec.sha256)
    fault = f"model.program: {spec.program} is neither TorchScript nor, as its name would end, an exported .pt2"
    with unless_valid(fault, "; save it with torch.export.save"):
        if spec.program.endswith(".pt2"):
            return torch.export.load(io.BytesIO(data)).module()
        loaded: torch.nn.Module = torch.jit.load(io.BytesIO(data), map_location="cpu").eval()
        return loaded


def _read(uri: str, expected: str | None) -> bytes:
    """Return the bytes of weights or a program; raises DataError if their digest is not the expected one."""
    data = read_uri(uri)
    digest = hashlib.sha256(data).hexdigest()
    if expected not in (None, digest):
        raise DataError(
            f"model.sha256: {uri} has digest {digest}, and the spec expects {expected}; restore it, or correct the spec"
        )
    return data


def random_parameters(spec: ModelSpec) -> list[str]:
    """Return the parameters that differ when the model is built twice, by its factory without weights."""
    first, second = _fingerprints(build(spec)), _fingerprints(build(spec))
    return [name for name, digest in first.items() if second.get(name) != digest]


def _fingerprints(module: torch.nn.Module) -> dict[str, bytes]:
    """Return a digest of each parameter; random bytes for one that is initialised at the first call."""
    return {
        name: os.urandom(32)
        if isinstance(value, torch.nn.parameter.UninitializedParameter)
        else hashlib.sha256(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()).digest()
        for name, value in module.named_parameters()
    }


def load_weights(module: torch.nn.Module, spec: ModelSpec) -> str | None:
    """Load the weights; return a note if their keys were changed."""
    assert spec.weights is not None
    own = module.state_dict()
    state, prefix = without_prefix(_state_dict(spec.weights, _read(spec.weights, spec.sha256)), own)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(
            f"model.weights: {spec.weights} does not fit the module of {spec.factory}: "
            f"{shortened(str(error), 250)}; give "
            "weights of this model, or correct model.factory and model.arguments"
        ) from None
    return f"the weights were read without the prefix {prefix!r} that all of their keys have" if prefix else None


def _state_dict(uri: str, data: bytes) -> dict[str, Any]:
    """Return a state dict from safetensors, or from a torch file without running its code."""
    if uri.endswith(".safetensors"):
        require("model.weights", "safetensors")
    fault = f"model.weights: {uri} is neither safetensors nor a plain state dict of tensors"
    with unless_valid(fault, f"; {_SAVE}", lambda error: type(error).__name__):  # torch advises to trust the file
        if uri.endswith(".safetensors"):
            from safetensors.torch import load

            return dict(load(data))
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    state = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise DataError(
            f"model.weights: {uri} holds a {type(state).__name__} that is no state dict of tensors; {_SAVE}"
        )
    return state


def without_prefix(state: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Remove a common prefix that the module's keys lack, such as ``module.`` of DataParallel; return it as well."""
    words = next(iter(state), "").split(".")
    for length in range(1, len(words)):
        prefix = ".".join(words[:length]) + "."
        shorter = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        if len(shorter) < len(state) or own.keys() & state.keys():
            break
        if own.keys() & shorter.keys():
            return shorter, prefix
    return dict(state), ""


def create(kind: str, name: str, arguments: Mapping[str, Any], *, pretrained: bool) -> Any:
    """Return a model of a library.

    Raises SpecError if the library is not installed, DataError if it has no such model or cannot download it.
    """
    require(f"model.factory '{kind}:{name}'", LIBRARY_OF[kind])
    try:
        library = importlib.import_module(LIBRARY_OF[kind])
        if kind == "timm":
            return library.create_model(name, pretrained=pretrained, **arguments)
        auto = library.AutoModelForImageClassification
        if pretrained:
            return auto.from_pretrained(name, trust_remote_code=False, use_safetensors=True, **arguments)
        return auto.from_config(library.AutoConfig.from_pretrained(name, trust_remote_code=False, **arguments))
    except Exception as error:  # both raise many kinds, of unknown names and of networks
        raise DataError(
            f"model.factory '{kind}:{name}' cannot be made ({shortened(str(error), 250)}); check its name and "
            "model.arguments, and, offline, that its files are in the library's cache"
        ) from None
