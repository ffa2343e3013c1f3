"""Location and format of the pool, and the reference: ``pool`` and ``reference``."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from opacc_ray.documents import Section
from opacc_ray.estimators.population import SampleOf
from opacc_ray.lake.catalogs import UNITY
from opacc_ray.lake.examples import Columns, Plan, Rules
from opacc_ray.lake.formats import (
    FEATURE_COLUMNS,
    OPTIONAL_KEYS,
    FormatName,
    find_format,
    formats_with,
    has_rows,
    place_of,
)
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.s3_client import Access
from opacc_ray.lake.store_uris import CATALOG, Store, open_store, open_table
from opacc_ray.slices import CROSSING, FOLDER, SliceRule
from opacc_ray.spec.slice_spec import SampledFrom, Slices, names_in, rules_in
from opacc_ray.spec.steps import ExtractSpec

_FIRST_OF_POOL = ("format", "alpha", "max_pixels", "max_bytes")
"""Keys of a pool that have always decided the identity of a run."""

GIVEN = ("prior", "judges")
"""Keys of columns that no feature is made of: draws start from them."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class ColumnsSpec(Section):
    """The columns of a table, by their meaning."""

    id: str | list[str] | None = Field(
        default=None, description="unique ids, or several columns that make one; default: the file's key and the row"
    )
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
    answer: Annotated[list[str], BeforeValidator(_as_list)] | None = Field(
        default=None,
        description="task grade: the model's answer, which annotators see; two columns if they choose between two",
    )
    confidence: str | None = Field(
        default=None, description="stored features: any score in [0, 1] that is high where a failure is unlikely"
    )
    dsa: str | None = Field(default=None, description="stored features: distance-based surprise")
    lsa: str | None = Field(default=None, description="stored features: likelihood-based surprise")
    prior: str | None = Field(
        default=None,
        description="your own numbers, larger for examples more likely to fail, such as an alarm: neyman starts "
        "from them, and stays unbiased if they are wrong",
    )
    judges: Annotated[list[str], BeforeValidator(_as_list)] | None = Field(
        default=None,
        min_length=1,
        description="columns in which a judge, such as a language model or a rule, says whether the answer is right: a "
        "score in [0, 1], right or wrong, or the name of the class that it would answer; empty where it did not judge. "
        "neyman learns from the labels what each is worth",
    )

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each feature."""
        given = {name: _several(getattr(self, name)) for name in FEATURE_COLUMNS}
        return {name: columns for name, columns in given.items() if columns}


def _several(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def time_text(value: Any) -> Any:
    """Return a date or a time, as YAML parses text without quotes, as text."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, date) else value


def _version(value: Any) -> Any:
    """Return the number of a version as one, also if it is quoted."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class PoolSpec(Section):
    """Location and format of examples: those of the pool, or of the reference."""

    uri: str = Field(
        description="s3://, gs:// or abfss:// and a prefix, or a folder that all workers can read; not needed with "
        "catalog and table"
    )
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
        description="parts of the pool to state numbers for: columns, numbers with cuts, tags, folder or {folder: "
        "LEVELS}, and crossings of these, such as [camera, {age: [18, 30, 50]}, {weather: [rain, fog]}, folder, "
        "[camera, folder]]",
    )
    sample_of: SampledFrom | None = Field(
        default=None,
        description="state the accuracy for a population of which the pool is a simple random sample: its number of "
        "examples; {video: 300}, of whose values, with all their examples, the pool is a sample; more in place of a "
        "number for a population of any size. Without it, the accuracy is stated for the pool",
    )
    split: str | None = Field(
        default=None, description="split of a dataset, such as test or train+test; required if there are several"
    )
    version: Annotated[Annotated[int, Field(ge=0)] | str | None, BeforeValidator(_version)] = Field(
        default=None,
        description="tables with versions: number of the version, id of the snapshot, or name of a branch or tag; "
        "default: the newest",
    )
    timestamp: Annotated[str, BeforeValidator(time_text)] | None = Field(
        default=None, description="tables with versions: the newest version at that time, such as 2026-01-31T12:00:00Z"
    )
    catalog: str | None = Field(
        default=None,
        description="tables in a catalog: its name in pyiceberg's configuration, or unity for Delta; default: by uri",
    )
    table: str | None = Field(default=None, description="tables in a catalog: name of the table")
    access: Access | None = Field(
        default=None,
        description="buckets of others: anonymous reads without credentials (S3, Google); with requester-pays, this "
        "account pays (S3)",
    )

    @property
    def holds_features(self) -> bool:
        """Whether the columns hold what a model computed, so that no model is run."""
        return self.format == "features" or bool(self.columns.features or self.columns.answer)

    @property
    def slice_rules(self) -> tuple[SliceRule, ...]:
        """Return the slices that are not crossings, and the clusters that were drawn."""
        rules, asked = rules_in(self.slices) if self.slices else [], self.population
        if asked is None or asked.cluster is None or any(rule.name == asked.cluster for rule in rules):
            return tuple(rules)
        [cluster] = rules_in([asked.cluster])
        return (*rules, cluster._replace(is_cluster=True))

    @property
    def population(self) -> SampleOf | None:
        """Return what the pool is a sample of; None if numbers are about the pool alone."""
        given = self.sample_of
        if given is None:
            return None
        [(cluster, total)] = given.items() if isinstance(given, dict) else [(None, given)]
        return SampleOf.parse(total, cluster)

    @property
    def slice_names(self) -> list[str]:
        """Return the names of all slices, as ``View.slicing`` takes them: camera, folder 2, camera*region."""
        return names_in(self.slices) if self.slices else []

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Return the columns of the pool's own table that slices are made of, each once."""
        return tuple(dict.fromkeys(rule.column for rule in self.slice_rules if rule.column != FOLDER))

    def slices_of(self, served: str | Sequence[str]) -> dict[str, Any]:
        """Return the slices that a draw serves, alone or crossed, which decide it; empty without any."""
        text = served if isinstance(served, str) else CROSSING.join(served)
        names = [name.strip() for name in text.split(CROSSING)]
        rules = [rule.content for rule in self.slice_rules if rule.name in names]
        return {"slices": rules} if rules else {}

    @model_validator(mode="before")
    @classmethod
    def _is_placed_by_its_catalog(cls, content: Any) -> Any:
        if isinstance(content, dict) and content.get("catalog") and content.get("table"):
            return {"uri": f"{CATALOG}{content['catalog']}/{content['table']}"} | content
        return content

    def check_columns(self, needed: Sequence[str]) -> None:
        """Raise ValueError if the pool has none of the needed columns."""
        if all(getattr(self.columns, name) is None for name in needed):
            raise ValueError(f"columns names no {' and no '.join(needed)}; add {' or '.join(needed)}: a column's name")

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
        if isinstance(self.version, str) and not traits.has_names:
            raise ValueError(f"version {self.version!r} is a name, and format {self.format} has numbers only; give one")
        if self.slice_columns and not has_rows(self.format):
            raise ValueError(
                f"slices or sample_of names the column {self.slice_columns[0]!r}, and format {self.format} has no "
                "columns; give folder or {folder: LEVELS}, or remove it"
            )
        if traits.needs and not self.holds_features:
            self.check_columns(traits.needs)
        return self

    @model_validator(mode="after")
    def _has_no_contradiction(self) -> "PoolSpec":
        if self.version is not None and self.timestamp is not None:
            raise ValueError("version and timestamp both choose a version; remove one")
        if (self.catalog is None) != (self.table is None):
            raise ValueError("catalog and table are only used together; give both or neither")
        if self.format == "delta" and self.catalog not in (None, UNITY):
            raise ValueError(f"catalog {self.catalog!r} is unknown for format delta; give {UNITY}")
        if self.catalog is not None and self.access is not None:
            raise ValueError("access and catalog cannot be combined: the catalog gives access; remove access")
        if self.columns.image is not None and self.columns.array is not None:
            raise ValueError("columns has image and array; keep the one that is the model's input")
        return self

    def identity(self) -> dict[str, Any]:
        """Return everything that determines which examples are read, and how."""
        given = {key: value for key in GIVEN if (value := getattr(self.columns, key)) is not None}
        return {"uri": self.uri, "follow_links": self.follow_links} | self.reading() | given

    def reading(self) -> dict[str, Any]:
        """Return everything but the place that determines the model's inputs; newer keys only where they are used."""
        content = self.model_dump(
            include=PoolSpec.model_fields.keys() - {"uri", "follow_links", "slices", "sample_of", "access"}
        )
        for key in GIVEN:
            del content["columns"][key]
        if content["columns"]["answer"] is None:
            del content["columns"]["answer"]
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
        for key in ("slices", "sample_of"):
            if getattr(self, key) is not None:
                raise ValueError(f"{key} is only supported for the pool; remove it")
        return self

    def identity(self) -> dict[str, Any]:
        """Return everything that determines what is read and learned."""
        return super().identity() | ({} if self.labels is None else {"labels": self.labels})


def _default(key: str) -> Any:
    """Return the default of a key of a pool, in its dumped form."""
    value = PoolSpec.model_fields[key].get_default(call_default_factory=True)
    return value.model_dump(exclude={*GIVEN, "answer"}) if isinstance(value, BaseModel) else value


def open_pool(source: PoolSpec) -> Store:
    """Return the store of a pool, or that of the folder whose file the pool's URI names."""
    if source.catalog is not None and source.table is not None:
        uri = None if source.uri.startswith(CATALOG) else source.uri
        return open_table(source.format, source.catalog, source.table, uri)
    place = place_of(source.format, source.uri, source.access).folder
    return open_store(place, follow_links=source.follow_links, access=source.access)


def rules_of(source: PoolSpec) -> Rules:
    """Return the rules by which a pool is read."""
    columns, arrays = source.columns, _several(source.columns.array)
    ids = columns.id if isinstance(columns.id, str | None) else tuple(columns.id)
    named = Columns(ids, columns.uri, columns.image, arrays, tuple(columns.features.items()))
    place = place_of(source.format, source.uri, source.access)
    return Rules(
        source.alpha,
        source.max_pixels,
        source.max_bytes,
        named,
        source.filter,
        source.version,
        source.timestamp,
        place.file,
        place.only,
        None if source.catalog is None or source.table is None else (source.catalog, source.table),
        split=source.split,
        slices=(*source.slice_columns, *(columns.answer or ()), *_several(columns.prior), *_several(columns.judges)),
    )


def plan_pool(source: PoolSpec, extract: ExtractSpec, what: str = "pool") -> Plan:
    """List a pool and cut it into shards; see :func:`opacc_ray.lake.pools.plan_shards` for its errors."""
    return plan_shards(
        open_pool(source), source.format, extract.shard_size, extract.shard_bytes, what, rules_of(source)
    )
