"""A selection: the chosen examples together with the design that chose them.

Labels come back days later, in another process and maybe another version: a selection saves to one JSON or Parquet
file without loss, and carries all that its estimator needs.
"""

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError

FORMAT = "opacc-selection/1"


@dataclass(frozen=True, eq=False)
class Selection:
    """n examples of a pool of N, in the order of their choice."""

    method: str
    parameters: dict[str, Any]
    seed: int
    pool_size: int
    index: NDArray[np.int64]  # (n,)
    ids: tuple[str, ...]  # n
    round: int = 1
    design: dict[str, NDArray[Any]] = field(default_factory=dict)  # per example: (n,) each
    facts: dict[str, Any] = field(default_factory=dict)  # per draw; JSON types

    def __len__(self) -> int:
        return len(self.index)

    def restrict(self, keep: NDArray[np.bool_]) -> "Selection":
        """The chosen examples for which ``keep`` (n,) is true."""
        return replace(
            self,
            index=self.index[keep],
            ids=tuple(name for name, kept in zip(self.ids, keep, strict=True) if kept),
            design={name: values[keep] for name, values in self.design.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON types; ``from_dict`` gives the selection back without loss."""
        design = {name: _encode(values) for name, values in self.design.items()}
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        return plain | {
            "format": FORMAT,
            "index": self.index.tolist(),
            "ids": list(self.ids),
            "design": design,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any], source: str = "selection") -> "Selection":
        """Raises DataError if this is no selection of a known format."""
        if content.get("format") != FORMAT:
            raise DataError(f"{source} has format {content.get('format')!r}; this version reads {FORMAT!r}")
        known = {item.name: content[item.name] for item in fields(cls)}
        known["index"] = np.array(known["index"], dtype=np.int64)
        known["ids"] = tuple(known["ids"])
        known["design"] = {name: _decode(item) for name, item in known["design"].items()}
        return cls(**known)

    def to_json(self) -> bytes:
        return json.dumps(self.to_dict(), indent=1, allow_nan=False).encode() + b"\n"

    def save(self, path: str | Path) -> None:
        """Write one file: Parquet if the name ends in ``.parquet``, JSON otherwise."""
        target = Path(path)
        if target.suffix == ".parquet":
            self._save_parquet(target)
        else:
            target.write_bytes(self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> "Selection":
        """Read what :meth:`save` wrote; raises DataError if the file is something else."""
        source = Path(path)
        if source.suffix == ".parquet":
            return cls.from_dict(_read_parquet(source), str(source))
        return cls.from_json(source.read_bytes(), str(source))

    @classmethod
    def from_json(cls, data: bytes, source: str) -> "Selection":
        try:
            content = json.loads(data)
        except ValueError as error:
            raise DataError(f"{source} is not the JSON of a selection: {error}") from None
        return cls.from_dict(content, source)

    def _save_parquet(self, target: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        header = {key: value for key, value in self.to_dict().items() if key not in ("index", "ids", "design")}
        columns = {"index": self.index, "id": list(self.ids)}
        columns |= {f"design_{name}": values for name, values in self.design.items()}
        table = pa.table(columns).replace_schema_metadata({"opacc": json.dumps(header)})
        pq.write_table(table, target)


def _read_parquet(source: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    # Threads that still read when the interpreter ends would end it by a signal.
    table = pq.ParquetFile(source, pre_buffer=False).read(use_threads=False)
    header = json.loads((table.schema.metadata or {}).get(b"opacc", b"{}"))
    design = {
        name.removeprefix("design_"): _encode(table[name].to_numpy())
        for name in table.column_names
        if name.startswith("design_")
    }
    if not header:
        return {}
    return header | {"index": table["index"].to_pylist(), "ids": table["id"].to_pylist(), "design": design}


def _encode(values: NDArray[Any]) -> dict[str, Any]:
    return {"dtype": str(values.dtype), "values": values.tolist()}


def _decode(item: dict[str, Any]) -> NDArray[Any]:
    return np.array(item["values"], dtype=item["dtype"])
