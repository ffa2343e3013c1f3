"""Models as functions of NumPy arrays, as another framework may offer them: that of `small_model`, and others.

The others do without torch, which takes half of the CPU time of an actor's start: for what befalls any actor.
"""

import atexit
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from small_pictures import pixels, to_input

_FIRST, _LAST = (np.random.default_rng(3).normal(0, 0.3, shape).astype(np.float32) for shape in ((64, 6), (6, 4)))
_QUARTERS = np.kron(np.eye(4, dtype=np.float32).reshape(4, 2, 2), np.ones((1, 4, 4), np.float32)).reshape(4, 64).T / 16


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


def answered(batch: np.ndarray, rows: list[list[float]]) -> list[list[float]]:
    """The rows that are given, whatever the batch."""
    return rows


def output_alone(batch: np.ndarray) -> np.ndarray:
    return both(batch)["output"]


def constant(batch: np.ndarray) -> dict[str, np.ndarray]:
    """Needs no torch at all."""
    return {"output": np.tile([0.0, 2.0], (len(batch), 1)), "hidden": batch.reshape(len(batch), -1)[:, :3]}


def faulty(batch: np.ndarray, how: str) -> Any:
    if how == "raise":
        raise KeyError("no session")
    if how == "exit":
        raise SystemExit(0)
    wrong = {"rows": np.zeros((1, 2)), "text": "cat", "nothing": None, "mapping": {"logits": np.zeros((len(batch), 2))}}
    return wrong[how]


def chatty(batch: np.ndarray) -> dict[str, np.ndarray]:
    print("\x1b[31mmodel\x1b]0;title\x07")
    atexit.register(print, "and at the end")
    return trained(batch)


def random(batch: np.ndarray) -> dict[str, np.ndarray]:
    """(B, 1, 8, 8) -> (B, 4); the hidden layer has 6 neurons."""
    hidden = np.maximum(batch.reshape(len(batch), -1) @ _FIRST, 0)
    return {"hidden": hidden, "output": hidden @ _LAST}


def trained(batch: np.ndarray) -> dict[str, np.ndarray]:
    """Predicts the brightest quarter: class i % 4 for picture i."""
    hidden = batch.reshape(len(batch), -1) @ _QUARTERS
    return {"hidden": hidden, "output": 8 * hidden}


def noted(batch: np.ndarray, folder: str, seconds: float = 5) -> dict[str, np.ndarray]:  # until all actors have started
    """Every process that runs it leaves a file of its number, and takes its time."""
    Path(folder, str(os.getpid())).touch()
    time.sleep(seconds)
    return random(batch)


_seen = 0  # batches of this process


def held(batch: np.ndarray, folder: str, free: int = 0) -> dict[str, np.ndarray]:
    """Every process that runs it leaves a file of its number, and waits after ``free`` batches for one named "on"."""
    global _seen
    _seen += 1
    Path(folder, str(os.getpid())).touch()
    while _seen > free and not Path(folder, "on").exists():
        time.sleep(0.05)
    return random(batch)


def dying(batch: np.ndarray) -> dict[str, np.ndarray]:
    """Its process dies at the picture 055, always."""
    if _holds(batch, 55):
        os._exit(1)
    return random(batch)


def spoiled(batch: np.ndarray, how: str, folder: str, times: int) -> dict[str, np.ndarray]:
    """At the picture 055 it hangs, or finds no memory: the first ``times`` times over all processes."""
    if _holds(batch, 55) and len(os.listdir(folder)) < times:
        Path(folder, str(time.time_ns())).touch()
        if how == "hang":
            time.sleep(1000)
        raise MemoryError("no memory for 055")
    return random(batch)


def broken(batch: np.ndarray) -> dict[str, np.ndarray]:
    """It answers picture 033 with NaN."""
    found = random(batch)
    found["output"][[np.array_equal(item, to_input(pixels(33))) for item in batch]] = np.nan
    return found


def _holds(batch: np.ndarray, number: int) -> bool:
    return any(np.array_equal(item, to_input(pixels(number))) for item in batch)


def first_two(batch: np.ndarray) -> dict[str, np.ndarray]:
    """Examples of any shape: their first two values are the scores of two classes."""
    hidden = batch.reshape(len(batch), -1)
    return {"hidden": hidden, "output": hidden[:, :2]}


def moved(batch: np.ndarray, by: float, all: bool = False) -> dict[str, np.ndarray]:
    """The same as `first_two`, and the first score is larger by a number: of examples whose score is 7, or of all."""
    found = first_two(batch)
    found["output"] = found["output"] + np.outer((found["output"][:, 0] == 7) | all, [by, 0])
    return found
