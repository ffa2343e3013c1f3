"""Define a selection: the chosen examples and the design that chose them, in one JSON file.

Labels arrive days later, in another process and perhaps another version. A selection is saved without loss and holds
everything that its estimate needs. A file that contradicts itself is refused.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import DESIGNS, Design
from opacc_ray.errors import DataError, LabelError, SpecError, counted, meant, shortened
from opacc_ray.registry import require

Outcome = NDArray[np.float64]
"""Outcomes of the chosen examples, (n,): 1 for correct, 0 for a misprediction, or a score in [0, 1]."""

FORMAT = "opacc-selection/2"

_KINDS: dict[str, type] = {
    "method": str,
    "parameters": dict,
    "seed": int,
    "pool_size": int,
    "index": list,
    "ids": list,
    "round": int,
    "design": dict,
    "facts": dict,
}
"""JSON type of each entry of a file."""

Content = dict[str, tuple[str, str]]
"""Feature -> digests of its values and of their order (`samplers/select.py`)."""


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """The n chosen examples, of a pool of N, in the order of their choice."""

    method: str
    parameters: dict[str, Any]
    seed: int
    pool_size: int
    index: NDArray[np.int64]  # (n,)
    ids: tuple[str, ...]  # n
    design: Design
    round: int = 1
    facts: dict[str, Any] = field(default_factory=dict)  # what the draw reports to people; JSON types
    contents: tuple[Content, ...] = ()  # of the pool of each model, if it had no ids

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        whose = f"{len(self)} of {counted(self.pool_size, 'example')} by {self.method}"
        return f"Selection({whose}, round {self.round}, seed {self.seed})"

    def restrict(self, keep: NDArray[np.bool_]) -> "Selection":
        """Return the chosen examples for which ``keep`` (n,) is true."""
        return replace(
            self,
            index=self.index[keep],
            ids=tuple(name for name, kept in zip(self.ids, keep, strict=True) if kept),
            design=self.design.restrict(keep),
        )

    def forget(self, index: NDArray[np.int64]) -> "Selection":
        """Return the selection if some examples of the pool have lost the labels that they had before the draw.

        Its probabilities stay as drawn. The estimate counts these examples with those that the selection represents.
        """
        return replace(self, design=self.design.forget(index))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types; ``from_dict`` restores the selection without loss."""
        content = {name: getattr(self, name) for name in _KINDS}
        own = {"index": self.index.tolist(), "ids": list(self.ids), "design": self.design.to_json()}
        if self.contents:
            own["contents"] = [{name: list(pair) for name, pair in item.items()} for item in self.contents]
        return content | own | {"format": FORMAT}

    @classmethod
    def from_dict(cls, content: dict[str, Any], source: str = "selection") -> "Selection":
        """Restore what ``to_dict`` returned; raise DataError for another format or contradicting entries."""
        known = content.get("format") if isinstance(content, dict) else None
        if known != FORMAT:
            raise DataError(f"{source} has format {known!r}; this version reads {FORMAT!r}")
        for name, kind in _KINDS.items():
            if not isinstance(content.get(name), kind) or isinstance(content[name], bool):
                raise DataError(f"{source}: {name} is {content.get(name)!r:.60}, and must be of type {kind.__name__}")
        for item in content["index"]:
            if not isinstance(item, int) or isinstance(item, bool):
                raise DataError(f"{source}: index {item!r} is not a whole number")
        own = {
            "index": np.array(content["index"], dtype=np.int64),
            "ids": tuple(content["ids"]),
            "design": read_design(content["design"], source),
            "contents": _contents(content.get("contents", []), source),
        }
        selection = cls(**{name: content[name] for name in _KINDS} | own)
        selection._check(source)
        return selection

    def to_pandas(self) -> Any:
        """Return a table with a row per draw, in the order of choice: id, index, round, columns of the design.

        Raises
        ------
        SpecError
            pandas is not installed.
        """
        require("a table", "pandas")
        import pandas as pd

        columns = {"id": list(self.ids), "index": self.index, "round": self.round} | self.design.columns()
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self) + 1, name="order"))

    def to_json(self) -> bytes:
        """Return the bytes of a JSON file, from which ``from_json`` restores the selection."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False).encode() + b"\n"

    def save(self, path: str | Path) -> None:
        """Write one file, of JSON; raise SpecError for a name that ends as another form does."""
        if Path(path).suffix not in ("", ".json"):
            raise SpecError(f"{path}: a selection is saved as JSON; give a name such as {Path(path).stem}.json")
        Path(path).write_bytes(self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> "Selection":
        """Read what :meth:`save` wrote; raise DataError if the file is something else."""
        return cls.from_json(Path(path).read_bytes(), str(path))

    @classmethod
    def from_json(cls, data: bytes, source: str) -> "Selection":
        """Restore what ``to_json`` returned; raise DataError, with ``source`` as its name, for anything else."""
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{source} is not the JSON of a selection: {shortened(str(error))}") from None
        return cls.from_dict(content, source)

    def _check(self, source: str) -> None:
        """Raise DataError, naming ``source``, if entries do not fit each other."""
        n = len(self.index)
        for name, num in (("ids", len(self.ids)), ("its design", len(self.design))):
            if num != n:
                raise DataError(f"{source}: index lists {n} examples and {name} {num}")
        outside = self.index[(self.index < 0) | (self.index >= self.pool_size)]
        if len(outside):
            raise DataError(f"{source}: index {outside[0]} is outside of its pool of {self.pool_size} examples")
        strange = [name for name in self.ids if not isinstance(name, str)]
        if strange:
            raise DataError(f"{source}: id {strange[0]!r} is not text")
        values, counts = np.unique(self.index, return_counts=True)
        if len(values) < n and self.design.is_distinct:
            raise DataError(
                f"{source}: index {values[counts > 1][0]} occurs twice, and its design draws no example twice"
            )
        if len(set(self.ids)) != len(values):
            raise DataError(f"{source}: index names {len(values)} examples and ids {len(set(self.ids))}")


def read_design(content: dict[str, Any], source: str) -> Design:
    """Restore any design from what its ``to_json`` returned.

    Raises
    ------
    DataError
        There is no such design, or a field is missing or not valid: the message names ``source``, field and value.
    """
    name = content.get("type") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in DESIGNS:
        hint = meant(name, DESIGNS, f"this version knows {', '.join(DESIGNS)}")
        raise DataError(f"{source} has a design of type {name!r}; {hint}")
    return DESIGNS[name].from_json(content, source)


def _contents(given: Any, source: str) -> tuple[Content, ...]:
    try:
        pairs = [{str(name): tuple(map(str, pair)) for name, pair in item.items()} for item in given]
    except (TypeError, AttributeError):
        pairs = [{"": ()}]
    if any(len(pair) != 2 for item in pairs for pair in item.values()):
        raise DataError(f"{source}: contents is {given!r:.60}, and must list two digests for each feature of a pool")
    return tuple(pairs)  # type: ignore[arg-type]


# -- outcomes ---------------------------------------------------------------------------------------------------


def checked_outcome(selection: Selection, outcome: Sequence[float] | Outcome) -> Outcome:
    """Return the outcomes as (n,) float64; raise LabelError unless they fit the selection, in its order."""
    try:
        values = np.asarray(outcome, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor that has a gradient
        raise LabelError(
            f"the outcomes are not all numbers ({error}): give 1 for correct, 0 for a misprediction, or a score"
        ) from None
    if values.shape != selection.index.shape:
        raise LabelError(
            f"outcome has shape {values.shape} and the selection {len(selection.index)} examples: "
            "give one outcome per example, in the order of selection.index"
        )
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(bad):
        raise LabelError(
            f"outcome {values[bad[0]]} of example {selection.ids[bad[0]]!r} is not in [0, 1]: "
            "give 1 for correct, 0 for a misprediction, or a score between them"
        )
    return values


def is_binary(outcome: Outcome) -> bool:
    """Return whether every outcome is 0 or 1."""
    return bool(np.isin(outcome, (0.0, 1.0)).all())
