"""Sources of a torch model: a factory of the user's, a library, a program or a checkpoint, all read safely.

A model of a library has a name such as ``timm:resnet18`` or ``hf:microsoft/resnet-18``, and ``model.arguments`` are
passed to the library. Without ``model.weights`` its published weights are used, from the library's cache or the
network; ``HF_HUB_OFFLINE=1`` and the other variables of the cache apply. With ``model.weights`` the library only makes
the architecture. Nothing that it publishes is run as code.
"""

import hashlib
import importlib
import io
import os
from collections.abc import Mapping
from typing import Any

import torch

from opacc_ray.errors import DataError, SpecError, shortened
from opacc_ray.extract.content_digest import LIBRARY_OF, hub_of
from opacc_ray.extract.inputs import user_code
from opacc_ray.lake.parquet_io import unless_valid
from opacc_ray.lake.store_uris import read_uri
from opacc_ray.spec import ModelSpec, load_function

_SAVE = "save the model's state_dict(), best as safetensors"


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
        why = misfit(state, own) or shortened(str(error))
        raise DataError(
            f"model.weights: {spec.weights} does not fit the module of {spec.factory}: {why}; give weights of this "
            "model, or correct model.factory and model.arguments"
        ) from None
    return f"the weights were read without the prefix {prefix!r} that all of their keys have" if prefix else None


def _state_dict(uri: str, data: bytes) -> dict[str, Any]:
    """Return a state dict from safetensors, or from a torch file without running its code."""
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


def misfit(state: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Describe how a state dict differs from a module's own: counts, and three of the keys."""
    missing, unknown = ([key for key in a if key not in b] for a, b in ((own, state), (state, own)))
    other = [key for key in own if key in state and own[key].shape != state[key].shape]
    first = [f"{key} {tuple(state[key].shape)} instead of {tuple(own[key].shape)}" for key in other]
    kinds = ((missing, "missing", missing), (unknown, "unknown to it", unknown), (other, "of another shape", first))
    there = [(keys, word, texts) for keys, word, texts in kinds if keys]
    named = {1: (3,), 2: (2, 1)}.get(len(there), (1, 1, 1))
    return ", ".join(
        f"{len(keys)} of {len(state if keys is unknown else own)} keys {'is' if len(keys) == 1 else 'are'} {word} "
        f"({', '.join(texts[:num])}{', …' if len(keys) > num else ''})"
        for (keys, word, texts), num in zip(there, named, strict=False)
    )


def create(kind: str, name: str, arguments: Mapping[str, Any], *, pretrained: bool) -> Any:
    """Return a model of a library.

    Raises SpecError if the library is not installed, DataError if it has no such model or cannot download it.
    """
    try:
        library = importlib.import_module(LIBRARY_OF[kind])
    except (ImportError, RuntimeError) as error:
        raise SpecError(
            f"model.factory '{kind}:{name}' needs {LIBRARY_OF[kind]}, which cannot be imported "
            f"({shortened(str(error), 100)}); pip install 'opacc_ray[{kind}]'"
        ) from None
    try:
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
