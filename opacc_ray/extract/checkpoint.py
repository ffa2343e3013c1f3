"""The keys of a checkpoint beside those of the module that it is for."""

from collections.abc import Mapping
from typing import Any


def without_prefix(state: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Keys without a prefix that all have and the module lacks, such as ``module.`` of DataParallel; and the prefix."""
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
    """How a state dict differs from a module's own: counts, and three of the keys."""
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
