"""A torch model cut at a layer: its whole maps there, and the rest of the network for any maps.

The layer is replaced, not removed: the model runs on an input of the pool, and a hook exchanges what the layer returns
(or, for the last Linear layer, what it gets) for the given maps. So the code between the layers stays the model's own.
Whatever goes around the layer would come from that input and not from the maps: :func:`check_cut` finds it.

Activations are computed in float32, whatever the precision of the run.

Legend: B examples, m numbers of a map over all positions and channels, C outputs.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract.extraction import load_transform, run_model, transformed
from opacc_ray.extract.torch_model import Model
from opacc_ray.lake.examples import Shard
from opacc_ray.lake.pools import read_in_order
from opacc_ray.spec import PoolSpec, Spec, open_pool, rules_of, see_modules

SAME = 1e-3
"""Largest difference of outputs of the model and of the cut one, as a share of the outputs' standard deviation."""

Floats = NDArray[np.float32]


class Wanted(NamedTuple):
    """Some examples of a shard of a pool."""

    source: PoolSpec
    shard: Shard
    ids: tuple[str, ...]


class Recorded(NamedTuple):
    """What the model sees and returns for B examples."""

    arrays: list[NDArray[Any]]  # as decoded
    maps: Floats  # (B, m)
    output: Floats  # (B, C) as the model returns it
    shape: tuple[int, ...]  # of a map
    inputs: Floats  # (1, ...) the first transformed example


class CutModel:
    """A torch model with hooks at one layer.

    Parameters
    ----------
    spec : of the model and of extraction
    layer : dotted name of a layer whose output is replaced; None: ``model.hidden_layer``, or else what the last Linear
        layer gets
    device : "cpu" or "cuda"

    Raises SpecError if there is no such layer.
    """

    def __init__(self, spec: Spec, layer: str | None, device: str = "cpu") -> None:
        self._model = Model(spec.model, device, "float32", spec.extract.threads_per_actor)
        self._seen: torch.Tensor | None = None
        self._given: Floats | None = None
        self._last: torch.nn.Module | None = None
        layers = dict(self._model.module.named_modules())
        self.layer = layer or spec.model.hidden_layer
        if self.layer is None:
            for part in layers.values():
                if isinstance(part, torch.nn.Linear):
                    part.register_forward_pre_hook(self._before_linear)
        elif self.layer in layers:
            layers[self.layer].register_forward_hook(lambda _, __, output: self._at(output))
        else:
            known = ", ".join(name for name in layers if name)
            raise SpecError(f"--layer {self.layer}: the model has no such layer; it has {known}")

    def run(self, inputs: Floats, maps: Floats | None = None) -> Floats:
        """Return the outputs (B, C) for inputs (B, ...), the layer replaced by maps (B, m) if these are given."""
        self._seen, self._given = None, maps
        if self.layer is None:
            self._last = self._last or self._find_last(inputs)
        return run_model(self._model, inputs).output

    def maps(self) -> tuple[Floats, tuple[int, ...]]:
        """Return the maps (B, m) of the last inputs, and the shape of one."""
        if self._seen is None:
            raise DataError(f"the model does not call the layer {self.layer!r}; name one that it calls")
        found = self._seen.cpu().numpy()
        return np.ascontiguousarray(found.reshape(len(found), -1)), found.shape[1:]

    def _find_last(self, inputs: Floats) -> torch.nn.Module:
        """Return the Linear layer that is called last."""
        called: list[torch.nn.Module] = []
        parts = [part for part in self._model.module.modules() if isinstance(part, torch.nn.Linear)]
        hooks = [part.register_forward_pre_hook(lambda own, _: called.append(own)) for part in parts]
        run_model(self._model, inputs)
        for hook in hooks:
            hook.remove()
        return called[-1]  # Model refuses one without any

    def _before_linear(self, own: torch.nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return (self._at(given[0]), *given[1:]) if own is self._last else None

    def _at(self, value: Any) -> torch.Tensor:
        """Keep a copy of the layer's value, or return the given one instead."""
        if not isinstance(value, torch.Tensor):
            raise DataError(
                f"the layer {self.layer!r} returns a {type(value).__name__}, not a tensor; name one of its parts"
            )
        if self._given is None:
            self._seen = value.detach().float().clone()  # the next layer may change it in place
            return value
        return torch.from_numpy(self._given).to(value, copy=True).reshape(value.shape)


class CutNetwork:
    """A cut model with the transform of its inputs: what an actor holds.

    Parameters
    ----------
    spec, layer, device : as for :class:`CutModel`
    modules : folder with the user's modules
    """

    def __init__(self, spec: Spec, layer: str | None, modules: str, device: str = "cpu") -> None:
        see_modules(modules)
        self._spec = spec
        self._transform = load_transform(spec)
        self._model = CutModel(spec, layer, device)

    def record(self, wanted: Wanted) -> Recorded:
        """Run some examples, in the order of their ids; raises DataError if one cannot be read now."""
        source = wanted.source
        examples = read_in_order(open_pool(source), source.format, wanted.shard, wanted.ids, rules_of(source))
        outputs, maps, first = [], [], None
        shape: tuple[int, ...] = ()
        for own in self._batches(examples):
            inputs = np.stack([transformed(self._transform, item) for item in own])
            outputs.append(self._model.run(inputs))
            own_maps, shape = self._model.maps()
            maps.append(own_maps)
            first = inputs[:1] if first is None else first
        assert first is not None
        return Recorded([item.array for item in examples], np.concatenate(maps), np.concatenate(outputs), shape, first)

    def rest(self, given: tuple[Floats, Floats]) -> Floats:
        """Return the outputs (B, C) of the rest of the network for maps (B, m), run on copies of one input (1, ...)."""
        maps, beside = given
        outputs = [self._model.run(np.repeat(beside, len(own), axis=0), own) for own in self._batches(maps)]
        return np.concatenate(outputs)

    def _batches(self, rows: Any) -> list[Any]:
        size = self._spec.extract.batch_size
        return [rows[start : start + size] for start in range(0, len(rows), size)]


def check_cut(output: Floats, rest: Floats, layer: str | None) -> None:
    """Raise DataError if the layer does not determine the outputs.

    ``output`` (B, C) are those of the model, and ``rest`` those of its rest for the maps of the same examples, run on
    the input of another one.
    """
    apart = np.abs(rest.astype(np.float64) - output).max()
    if not apart <= SAME * float(output.std()):
        where = f"its layer {layer!r}" if layer else "what its last Linear layer gets"
        raise DataError(
            f"the outputs of the model depend on more than {where}, such as a connection around it or chance; name "
            "with --layer one that all of the network goes through"
        )
