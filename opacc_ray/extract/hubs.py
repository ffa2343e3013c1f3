"""Models by their names in a library: ``timm:resnet18``, ``hf:microsoft/resnet-18``.

``model.arguments`` go to the library. Without ``model.weights`` the published ones are taken, from the library's cache
or the network; ``HF_HUB_OFFLINE=1`` and the other variables of the cache are honoured. With ``model.weights`` only the
architecture is made here. Nothing that the library publishes is run as code.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from opacc_ray.errors import DataError, SpecError, shortened

_EXTRAS = {"timm": "timm", "hf": "transformers"}
"""Package of each kind of name; the extra of ours has the name of the kind."""


def hub_of(factory: str) -> tuple[str, str] | None:
    """The kind and the name of a model, or None if ``module:function`` is meant."""
    kind, _, name = factory.partition(":")
    return (kind, name) if kind in _EXTRAS else None


def library_of(factory: str) -> str | None:
    """The package that makes a model, or None if ``module:function`` is meant."""
    hub = hub_of(factory)
    return _EXTRAS[hub[0]] if hub else None


def create(kind: str, name: str, arguments: Mapping[str, Any], *, pretrained: bool) -> Any:
    """Return a model.

    Raises
    ------
    SpecError
        The library is not installed.
    DataError
        It has no such model, or cannot fetch it.
    """
    try:
        library = importlib.import_module(_EXTRAS[kind])
    except (ImportError, RuntimeError) as error:
        raise SpecError(
            f"model.factory '{kind}:{name}' needs {_EXTRAS[kind]}, which cannot be imported "
            f"({shortened(str(error), 100)}); pip install 'opacc_ray[{kind}]'"
        ) from None
    try:
        return _CREATE[kind](library, name, arguments, pretrained)
    except Exception as error:  # both raise many kinds, of unknown names and of networks
        raise DataError(
            f"model.factory '{kind}:{name}' cannot be made ({shortened(str(error), 250)}); check its name and "
            "model.arguments, and, offline, that its files are in the library's cache"
        ) from None


def _timm(library: Any, name: str, arguments: Mapping[str, Any], pretrained: bool) -> Any:
    return library.create_model(name, pretrained=pretrained, **arguments)


def _hugging_face(library: Any, name: str, arguments: Mapping[str, Any], pretrained: bool) -> Any:
    auto = library.AutoModelForImageClassification
    if pretrained:
        return auto.from_pretrained(name, trust_remote_code=False, use_safetensors=True, **arguments)
    return auto.from_config(library.AutoConfig.from_pretrained(name, trust_remote_code=False, **arguments))


_CREATE: dict[str, Callable[[Any, str, Mapping[str, Any], bool], Any]] = {"timm": _timm, "hf": _hugging_face}
