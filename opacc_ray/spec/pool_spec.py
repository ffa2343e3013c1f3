"""Location and format of the pool and of the reference: ``pool`` and ``reference``."""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from opacc_ray.lake.examples import Columns, Plan, Rules
from opacc_ray.lake.formats import FEATURE_COLUMNS, OPTIONAL_KEYS, FormatName, find_format, formats_with, place_of
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.slices import FOLDER, SliceRule
from opacc_ray.spec.model_spec import ExtractSpec
from opacc_ray.spec.slice_spec import Slices, names_in, rules_in
from opacc_ray.spec.validation import Section

_FIRST_OF_POOL = ("format", "alpha", "max_pixels", "max_bytes")
"""Keys of a pool that have always decided the identity of a run."""


class ColumnsSpec(Section):
    """The columns of a table, by their meaning."""

    id: str | None = Field(default=None, description="unique ids; default: the file's key and the row")
    uri: str | None = Field(
        default=None,
        description="location of each example, for annotators; without image and array: image files to read",
    )
    image: str | None = Field(default=None, description="bytes of image files; webdataset: their extension")
    array: str | list[str] | None = Field(
        default=None, description="lists of numbers, or several columns of one number each; webdataset: npy"
    )
    hidden: str | list[str] | None = Field(default=None, description="stored features: the last hidden layer")
    output: str | list[str] | None = Field(default=None, description="stored features: the last layer")
    prediction: str | None = Field(
        default=None, description="stored features: the predicted class or value; default: computed from output"
    )
    confidence: str | None = Field(
        default=None, description="stored features: any score in [0, 1] that is high where a failure is unlikely"
    )
    dsa: str | None = Field(default=None, description="stored features: distance-based surprise")
    lsa: str | None = Field(default=None, description="stored features: likelihood-based surprise")
    prior: str | None = Field(
        default=None,
        description="your own numbers, larger for examples more likely to fail, such as a judge's score: neyman starts "
        "from them, and stays unbiased if they are wrong",
    )

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each feature."""
        given = {name: _several(getattr(self, name)) for name in FEATURE_COLUMNS}
        return {name: columns for name, columns in given.items() if columns}


def _several(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _time(value: Any) -> Any:
    """Return a date or a time, as YAML parses text without quotes, as text."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, date) else value


class PoolSpec(Section):
    """Location and format of examples: those of the pool, or of the reference."""

    uri: str = Field(description="s3://bucket/prefix, or a folder that all workers can read")
    format: FormatName = Field(
        description="format of the files: see lakes.md; features: stored predictions, in Parquet files or one CSV file"
    )
    alpha: Literal["refuse", "drop", "white", "black", "keep"] = Field(
        default="refuse",
        description="images with transparency: refuse them, drop it, put a colour behind it, or keep it",
    )
    max_pixels: int = Field(default=1 << 26, ge=1, description="images of more pixels are bad items")
    max_bytes: int = Field(default=8 << 30, ge=1, description="files of more bytes, stored or unpacked, are bad items")
    follow_links: bool = Field(default=False, description="local folders: follow symbolic links")
    columns: ColumnsSpec = Field(default=ColumnsSpec(), description="tables: the columns by their meaning")
    filter: str | None = Field(
        default=None, description="tables: a condition for rows, such as split = 'test' and score >= 0.5"
    )
    slices: Slices | None = Field(
        default=None,
        description="parts of the pool to state numbers for: columns, numbers with cuts, folder or {folder: LEVELS}, "
        "and crossings of these, such as [camera, {age: [18, 30, 50]}, folder, [camera, folder]]",
    )
    split: str | None = Field(
        default=None, description="split of a dataset, such as test or train+test; required if there are several"
    )
    version: int | None = Field(
        default=None,
        ge=0,
        description="tables with versions: number of the version, or id of the snapshot; default: the newest",
    )
    timestamp: Annotated[str, BeforeValidator(_time)] | None = Field(
        default=None, description="tables with versions: the newest version at that time, such as 2026-01-31T12:00:00Z"
    )
    catalog: str | None = Field(
        default=None, description="tables in a catalog: its name in pyiceberg's configuration; default: by uri"
    )
    table: str | None = Field(default=None, description="tables in a catalog: name of the table")

    @property
    def holds_features(self) -> bool:
        """Whether the columns hold what a model computed, so that no model is run."""
        return bool(self.columns.features)

    @property
    def slice_rules(self) -> tuple[SliceRule, ...]:
        """Return the slices that are not crossings."""
        return tuple(rules_in(self.slices or ()))

    @property
    def slice_names(self) -> list[str]:
        """Return the names of all slices, as ``View.slicing`` takes them: camera, folder 2, camera*region."""
        return names_in(self.slices or ())

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Return the columns of the pool's own table that slices are made of, each once."""
        return tuple(dict.fromkeys(rule.column for rule in self.slice_rules if rule.column != FOLDER))

    @model_validator(mode="after")
    def _fits_its_format(self) -> "PoolSpec":
        traits = find_format(self.format).TRAITS
        given = [name for name in ColumnsSpec.model_fields if getattr(self.columns, name) is not None]
        unknown = next((name for name in given if name not in traits.columns), None)
        if unknown is not None:
            known = ", ".join(traits.columns) or "none"
            raise ValueError(
                f"columns.{unknown} is not supported for format {self.format}, which has the columns {known}; remove it"
            )
        for key in OPTIONAL_KEYS:
            if getattr(self, key) is not None and key not in traits.keys:
                supported = ", ".join(formats_with(key))
                raise ValueError(f"{key} is only supported for {supported}, and format is {self.format}; remove it")
        if self.slice_columns and not hasattr(find_format(self.format), "batches"):
            raise ValueError(
                f"slices names the column {self.slice_columns[0]!r}, and format {self.format} has no columns; give "
                "folder or {folder: LEVELS}, or remove it"
            )
        needed = ("output", "prediction") if self.holds_features else traits.needs
        if needed and not set(needed) & set(given):
            raise ValueError(f"columns names no {' and no '.join(needed)}; add {' or '.join(needed)}: a column's name")
        return self

    @model_validator(mode="after")
    def _has_no_contradiction(self) -> "PoolSpec":
        if self.version is not None and self.timestamp is not None:
            raise ValueError("version and timestamp both choose a version; remove one")
        if (self.catalog is None) != (self.table is None):
            raise ValueError("catalog and table are only used together; give both or neither")
        if self.columns.image is not None and self.columns.array is not None:
            raise ValueError("columns has image and array; keep the one that is the model's input")
        return self

    def identity(self) -> dict[str, Any]:
        """Return everything that determines which examples are read, and how."""
        prior = {} if self.columns.prior is None else {"prior": self.columns.prior}
        slices = {} if self.slices is None else {"slices": self.slices}
        return {"uri": self.uri, "follow_links": self.follow_links} | self.reading() | prior | slices

    def reading(self) -> dict[str, Any]:
        """Return everything but the place that determines the model's inputs; newer keys only where they are used."""
        content = self.model_dump(include=PoolSpec.model_fields.keys() - {"uri", "follow_links", "slices"})
        del content["columns"]["prior"]
        return {key: value for key, value in content.items() if key in _FIRST_OF_POOL or value != _default(key)}


class ReferenceSpec(PoolSpec):
    """Location and format of the reference, and its labels."""

    labels: str | None = Field(
        default=None,
        description="URI of a file of labels of its examples, in any format of `opacc labels import`: neyman learns "
        "from them where the model fails, and stays unbiased if they are wrong",
    )

    @model_validator(mode="after")
    def _has_no_slices(self) -> "ReferenceSpec":
        if self.slices is not None:
            raise ValueError("slices are only supported for the pool; remove them")
        return self

    def identity(self) -> dict[str, Any]:
        """Return everything that determines what is read and learned."""
        return super().identity() | ({} if self.labels is None else {"labels": self.labels})


def _default(key: str) -> Any:
    """Return the default of a key of a pool, in its dumped form."""
    value = PoolSpec.model_fields[key].get_default(call_default_factory=True)
    return value.model_dump(exclude={"prior"}) if isinstance(value, BaseModel) else value


def open_pool(source: PoolSpec) -> Store:
    """Return the store of a pool, or that of the folder whose file the pool's URI names."""
    return open_store(place_of(source.format, source.uri)[0], follow_links=source.follow_links)


def rules_of(source: PoolSpec) -> Rules:
    """Return the rules by which a pool is read."""
    columns, arrays = source.columns, _several(source.columns.array)
    named = Columns(columns.id, columns.uri, columns.image, arrays, tuple(columns.features.items()))
    return Rules(
        source.alpha,
        source.max_pixels,
        source.max_bytes,
        named,
        source.filter,
        source.version,
        source.timestamp,
        place_of(source.format, source.uri)[1],
        None if source.catalog is None or source.table is None else (source.catalog, source.table),
        split=source.split,
        slices=source.slice_columns,
    )


def plan_pool(source: PoolSpec, extract: ExtractSpec, what: str = "pool") -> Plan:
    """List a pool and cut it into shards; see :func:`opacc_ray.lake.pools.plan_shards` for its errors."""
    return plan_shards(
        open_pool(source), source.format, extract.shard_size, extract.shard_bytes, what, rules_of(source)
    )
