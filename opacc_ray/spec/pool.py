"""Where examples are, and how they are read: ``pool`` and ``reference``."""

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from opacc_ray.pool import COLUMNS, LAYERS
from opacc_ray.spec.section import Section

TABLES = ("parquet", "huggingface", "delta", "iceberg", "lance", "features")
"""Formats of which an example is a row, with columns and filters."""

VERSIONED = ("delta", "iceberg", "lance")
"""Formats that keep earlier versions."""

TABLE_FEATURES = (*LAYERS, *COLUMNS)
"""What columns of a pool of features may be."""

_EXAMPLES_OF_TABLES = ("id", "uri", "image", "array")

_COLUMNS_OF = {
    "parquet": (*_EXAMPLES_OF_TABLES, "prior"),
    "webdataset": ("image", "array"),
    "huggingface": (*_EXAMPLES_OF_TABLES, "prior"),
    "delta": (*_EXAMPLES_OF_TABLES, "prior", *TABLE_FEATURES),
    "iceberg": (*_EXAMPLES_OF_TABLES, "prior", *TABLE_FEATURES),
    "lance": (*_EXAMPLES_OF_TABLES, "prior", *TABLE_FEATURES),
    "features": ("id", "uri", "prior", *TABLE_FEATURES),
}
"""Which columns go with a format."""

_FIRST_OF_POOL = ("format", "alpha", "max_pixels", "max_bytes")
"""Keys of a pool that have always decided the identity of a run."""


class ColumnsSpec(Section):
    """Which columns of a table are what."""

    id: str | None = Field(default=None, description="ids, which are unique; default: the file's key and the row")
    uri: str | None = Field(
        default=None,
        description="where each example lies, for annotators; alone, of parquet: image files, which are read",
    )
    image: str | None = Field(default=None, description="bytes of image files; of webdataset: their extension")
    array: str | list[str] | None = Field(
        default=None, description="lists of numbers, or several columns of one number each; of webdataset: npy"
    )
    hidden: str | list[str] | None = Field(default=None, description="a pool of features: the last hidden layer")
    output: str | list[str] | None = Field(default=None, description="a pool of features: the last layer")
    prediction: str | None = Field(default=None, description="a pool of features; default: by output")
    confidence: str | None = Field(
        default=None, description="a pool of features: any score in [0, 1] that is high where a failure is unlikely"
    )
    dsa: str | None = Field(default=None, description="a pool of features: distance-based surprise")
    lsa: str | None = Field(default=None, description="a pool of features: likelihood-based surprise")
    prior: str | None = Field(
        default=None,
        description="numbers of your own, larger for examples more likely to fail, such as a judge's score: neyman "
        "starts from them and trusts none",
    )

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """The columns of each feature."""
        given = {name: _several(getattr(self, name)) for name in TABLE_FEATURES}
        return {name: columns for name, columns in given.items() if columns}


class PoolSpec(Section):
    """Where examples are: the operational ones, or those of the reference."""

    uri: str = Field(description="s3://bucket/prefix, or a folder that all workers see")
    format: Literal[
        "images", "npy", "parquet", "webdataset", "huggingface", "delta", "iceberg", "lance", "features"
    ] = Field(description="what lies there: see lakes.md; features: what a model said of examples, in Parquet files")
    alpha: Literal["refuse", "drop", "white", "black", "keep"] = Field(
        default="refuse", description="images with transparency: refuse, drop it, show what lies behind, or keep it"
    )
    max_pixels: int = Field(default=1 << 26, ge=1, description="images of more pixels are bad items")
    max_bytes: int = Field(default=8 << 30, ge=1, description="files of more bytes, stored or unpacked, are bad items")
    follow_links: bool = Field(default=False, description="local folders: read what symbolic links lead to, too")
    columns: ColumnsSpec = Field(default=ColumnsSpec(), description="tables: which columns are what")
    filter: str | None = Field(
        default=None, description="tables: rows that count, such as split = 'test' and score >= 0.5"
    )
    split: str | None = Field(
        default=None, description="huggingface: the split that is meant, such as test, or train+test; needed if several"
    )
    version: int | None = Field(
        default=None, ge=0, description="delta, lance: a version; iceberg: the id of a snapshot; default: the newest"
    )
    timestamp: str | None = Field(
        default=None, description="delta, iceberg, lance: the newest version at that time, such as 2026-01-31T12:00:00Z"
    )
    catalog: str | None = Field(
        default=None, description="iceberg: name of a catalog in pyiceberg's own configuration; default: by uri"
    )
    table: str | None = Field(default=None, description="iceberg: name of the table in the catalog")

    @field_validator("timestamp", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        """YAML makes a date or a time of what is not in quotes."""
        return value.isoformat().replace("+00:00", "Z") if isinstance(value, date) else value

    @property
    def holds_features(self) -> bool:
        """Whether a model has been run already, and its layers are columns."""
        return self.format == "features" or bool(self.columns.features)

    @model_validator(mode="after")
    def _fits_its_format(self) -> "PoolSpec":
        given = [name for name in ColumnsSpec.model_fields if getattr(self.columns, name) is not None]
        fitting = _COLUMNS_OF.get(self.format, ())
        unfit = next((name for name in given if name not in fitting), None)
        if unfit is not None:
            of = ", ".join(fitting) or "none"
            raise ValueError(f"columns.{unfit} does not go with format {self.format}, which takes {of}; leave it out")
        if self.filter is not None and self.format not in TABLES:
            raise ValueError(f"filter is of tables, and the format is {self.format}; leave it out")
        if self.split is not None and self.format != "huggingface":
            raise ValueError(f"split is only supported for huggingface, and the format is {self.format}; remove it")
        versions = [name for name in ("version", "timestamp") if getattr(self, name) is not None]
        if versions and self.format not in VERSIONED:
            raise ValueError(
                f"{versions[0]} is of {' and '.join(VERSIONED)}, and the format is {self.format}; leave it out"
            )
        if len(versions) > 1:
            raise ValueError("version and timestamp say the same; give one")
        if (self.catalog or self.table) and not (self.format == "iceberg" and self.catalog and self.table):
            raise ValueError("catalog and table go together, with format iceberg; give both or none")
        if self.format in TABLES and not self.holds_features and not {"image", "array", "uri"} & set(given):
            raise ValueError("columns does not say what an example is; add image, array or uri: a column's name")
        if self.columns.image is not None and self.columns.array is not None:
            raise ValueError("columns has image and array; give the one that the model is given")
        if self.holds_features and not {"output", "prediction"} & set(given):
            raise ValueError("columns names no output and no prediction; add output or prediction: a column's name")
        return self

    def identity(self) -> dict[str, Any]:
        """All that decides what is read."""
        prior = {} if self.columns.prior is None else {"prior": self.columns.prior}
        return {"uri": self.uri, "follow_links": self.follow_links} | self.reading() | prior

    def reading(self) -> dict[str, Any]:
        """All that decides what the model is given, the place and links aside; keys of later versions where used."""
        content = self.model_dump(include=PoolSpec.model_fields.keys() - {"uri", "follow_links"})
        del content["columns"]["prior"]
        return {
            key: value for key, value in content.items() if key in _FIRST_OF_POOL or value != _default(PoolSpec, key)
        }


class ReferenceSpec(PoolSpec):
    """Where the examples of the reference are, and what is known of them."""

    labels: str | None = Field(
        default=None,
        description="URI of a file of labels of its examples, in any form that `opacc labels import` takes: neyman "
        "learns from them where the model fails, and trusts none",
    )

    def identity(self) -> dict[str, Any]:
        """All that decides what is read, and what is learned of it."""
        return super().identity() | ({} if self.labels is None else {"labels": self.labels})


def _several(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _default(kind: type[BaseModel], key: str) -> Any:
    """The default of a key, as it is dumped."""
    value = kind.model_fields[key].get_default(call_default_factory=True)
    return value.model_dump(exclude={"prior"}) if isinstance(value, BaseModel) else value
