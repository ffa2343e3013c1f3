"""The spec of the tests' users: see `small_model`."""

from typing import Any


def small_spec(scans: str, home: str, **sections: Any) -> dict[str, Any]:
    """The content of a spec for `scans`; keywords replace its sections.

    One actor extracts: each takes seconds to start, so tests ask for two where that makes a difference.
    """
    content: dict[str, Any] = {
        "name": "small",
        "seed": 3,
        "pool": {"uri": f"{scans}/pool/", "format": "images"},
        "model": {"factory": "small_model:network", "weights": f"{scans}/model.safetensors"},
        "extract": {"batch_size": 8, "shard_size": 10, "actors": 1},
        "sample": {"method": "ces", "budget": 40, "candidates": 20},
        "output": home,
    }
    return content | sections
