"""The model of `small_model` as functions of NumPy arrays, as another framework may offer it."""

from typing import Any

import numpy as np


def _weights() -> dict[str, np.ndarray]:
    from small_model import network

    return {name: value.numpy() for name, value in network().state_dict().items()}


def both(batch: np.ndarray, scale: float = 1.0) -> dict[str, np.ndarray]:
    w = _weights()
    hidden = np.maximum(batch.reshape(len(batch), -1) @ w["first.weight"].T + w["first.bias"], 0)
    return {"hidden": hidden, "output": scale * (hidden @ w["last.weight"].T + w["last.bias"])}


def pair(batch: np.ndarray) -> tuple[list[list[float]], list[list[float]]]:
    found = both(batch)
    return found["hidden"].tolist(), found["output"].tolist()


def output_alone(batch: np.ndarray) -> np.ndarray:
    return both(batch)["output"]


def constant(batch: np.ndarray) -> dict[str, np.ndarray]:
    """Needs no torch at all."""
    return {"output": np.tile([0.0, 2.0], (len(batch), 1)), "hidden": batch.reshape(len(batch), -1)[:, :3]}


def faulty(batch: np.ndarray, how: str) -> Any:
    if how == "raise":
        raise KeyError("no session")
    wrong = {"rows": np.zeros((1, 2)), "text": "cat", "nothing": None, "mapping": {"logits": np.zeros((len(batch), 2))}}
    return wrong[how]
