"""Which population an accuracy is of: runs of one population are one series over time, all others are kept apart.

A population is the examples that are meant and what is asked of each: the place and format of the pool, its filter,
split and table, and the task with its classes. Neither the version of the data nor the model belongs to it: these are
what changes over time. A spec may name its population, which then stands for the keys of the pool.
"""

import hashlib
import json
from typing import Any

from pydantic import Field

from opacc_ray.documents import Part
from opacc_ray.errors import shortened
from opacc_ray.spec import Spec
from opacc_ray.spec.model_spec import plain_name

POOL_KEYS = ("pool", "format", "filter", "split", "catalog", "table")
"""What a population's own name stands for."""

_SHOWN = 120
"""Characters of a filter or of a list of classes that are shown."""


class Population(Part):
    """What an accuracy is of; keys of the pool are null where the spec names the population."""

    name: str | None = Field(description="name that the spec gives it; null: none")
    pool: str | None = Field(description="URI of the pool")
    format: str | None = Field(description="format of the pool")
    filter: str | None = Field(description="rows that count; null: all")
    split: str | None = Field(description="split of the dataset; null: its only one")
    catalog: str | None = Field(description="catalog of the table; null: it is found by its URI")
    table: str | None = Field(description="name of the table in the catalog")
    task: str = Field(description="classification or regression")
    classes: list[str] | None = Field(description="names of the classes, sorted; null: they have none")

    @classmethod
    def of(cls, spec: Spec) -> "Population":
        """That of a spec whose paths are absolute, such as the one in the header of a run."""
        keys = {key: getattr(spec.pool, key) for key in POOL_KEYS if key != "pool"}
        classes = spec.model.classes and sorted(map(plain_name, spec.model.classes))
        return cls.named(name=spec.population, pool=spec.pool.uri, task=spec.model.task, classes=classes, **keys)

    @classmethod
    def named(cls, *, name: str | None, pool: str, **keys: Any) -> "Population":
        """That of all these keys, of which a name stands for those of the pool."""
        place, folder, file = pool.rstrip("/").rpartition("/metadata/")
        is_metadata = keys["format"] == "iceberg" and folder and file.endswith(".metadata.json")
        pool = place if is_metadata else pool.rstrip("/")  # such a file is one version of its table
        return cls(**{"name": name, "pool": pool} | keys | (dict.fromkeys(POOL_KEYS) if name is not None else {}))

    @property
    def digest(self) -> str:
        """The same for runs of one population alone: 16 hexadecimal digits."""
        content = self.model_dump(exclude_none=True)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        said = [f"{key} {text}" for key, text in self._texts().items() if text is not None]
        return ", ".join(said)

    def differs(self, other: "Population") -> str:
        """What it has other than another population: ``filter "score > 0.5", not none``."""
        own, theirs = self._texts(), other._texts()
        return "; ".join(
            f"{key} {own[key] or 'none'}, not {theirs[key] or 'none'}" for key in own if own[key] != theirs[key]
        )

    def _texts(self) -> dict[str, str | None]:
        found = self.model_dump()
        found["classes"] = None if self.classes is None else ", ".join(self.classes)
        for key in ("name", "filter"):
            found[key] = found[key] and f'"{found[key]}"'
        return {key: text if key == "pool" else text and shortened(text, _SHOWN) for key, text in found.items()}
