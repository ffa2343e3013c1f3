"""Location and format of the pool, and the reference: ``pool`` and ``reference``.

An item of ``pool.slices`` makes these slices:

    camera                  a slice for each value of a column
    {age: [18, 30, 50]}     numbers, in slices between the cuts: < 18, 18 to 30, 30 to 50, >= 50
    {weather: [rain, fog]}  tags, of which a row may have several: for each, the rows that have it and the others
    folder                  a slice for each folder of files; {folder: 2}: for the first two levels of folders
    [camera, region]        a crossing of slices in the list: a slice for each pair of values

A crossing is named camera*region, the slices by two levels of folders "folder 2", and those of a tag "weather rain".

``pool.sample_of`` states that the pool is a simple random sample: of 7542 examples, or of "more"; {video: 300} of 300
values of a column, with all their examples. The accuracy is then stated for all of these.
"""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from opacc_ray.documents import Section
from opacc_ray.errors import SpecError, meant, shown
from opacc_ray.estimation.adjustments import MORE, SampleOf
from opacc_ray.lake import formats
from opacc_ray.lake.examples import Columns, Plan, Rules
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.s3_store import Access
from opacc_ray.lake.store_uris import CATALOG, Store, open_store, open_table
from opacc_ray.metrics.metric import parse_metric
from opacc_ray.pool import CROSSING, FOLDER, OF_CLASSES, SliceRule
from opacc_ray.spec.spec_sections import ExtractSpec


def _listed(given: Any) -> Any:
    """Return ``given`` unchanged; raises ValueError unless it is a list of slices, each name once."""
    if given is None:
        return None
    if not isinstance(given, list) or not given:
        raise ValueError("give a list of slices, such as [camera, {age: [18, 30, 50]}, folder]")
    rules, crossings = rules_in(given), [item for item in given if isinstance(item, list)]
    known = [rule.name for rule in rules]
    for crossing in crossings:
        _check_crossing(crossing, known)
    names = [*known, *(CROSSING.join(sorted(crossing)) for crossing in crossings)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"the slices {twice!r} are given twice; remove one")
    return given


Slices = Annotated[list[str | dict[str, int | list[int | float] | list[str]] | list[str]], BeforeValidator(_listed)]
"""The value of ``pool.slices``."""


def _sampled(given: Any) -> Any:
    """Return ``given`` unchanged; raises ValueError unless it is a size, "more", or one of these for a column."""
    if given is None:
        return None
    try:
        [(cluster, total)] = given.items() if isinstance(given, dict) and len(given) == 1 else [(None, given)]
        SampleOf.parse(total, cluster)
    except SpecError as error:
        raise ValueError(f"{error}; or of clusters, as in {{video: {MORE}}}") from None
    if cluster is not None:
        _rule(cluster)
    return given


SampledFrom = Annotated[int | str | dict[str, int | str], BeforeValidator(_sampled)]
"""The value of ``pool.sample_of``."""


def rules_in(given: Sequence[Any]) -> list[SliceRule]:
    """Return the slices of a list that are not crossings; raises ValueError if one has another form."""
    return [rule for item in given if not isinstance(item, list) for rule in _rules(item)]


def names_in(given: Sequence[Any]) -> list[str]:
    """Return the names of all slices of a list, as :meth:`opacc_ray.parts.view.View.slicing` takes them."""
    named = ([CROSSING.join(item)] if isinstance(item, list) else [own.name for own in _rules(item)] for item in given)
    return [name for names in named for name in names]


def _rules(item: Any) -> list[SliceRule]:
    """Return the slices of an item that is no crossing: several for tags."""
    [value] = item.values() if isinstance(item, dict) and len(item) == 1 else [None]
    if not isinstance(value, list) or not value or not all(isinstance(tag, str) for tag in value):
        return [_rule(item)]
    [column] = item
    unfit = next((tag for tag in value if tag != tag.strip() or not tag or re.search(r"[|;,*]", tag)), None)
    if unfit is not None or len(set(value)) < len(value):
        why = "appears twice" if unfit is None else f"has {unfit!r}, which is no tag: a tag has no '|', ';', ',' or '*'"
        raise ValueError(f"{{{column}: {shown(value)}}} {why}")
    return [SliceRule(f"{_column(column)} {tag}", column, tag=tag) for tag in value]


def _rule(item: Any) -> SliceRule:
    if isinstance(item, str):
        return SliceRule(_column(item), item)
    if not isinstance(item, dict) or len(item) != 1:
        quotes = "; put it in quotes" if isinstance(item, int | float) else ""
        raise ValueError(f"{shown(item)} is no slice: give a column, {{COLUMN: [CUTS]}}, or a list of names{quotes}")
    [(column, value)] = item.items()
    if not isinstance(column, str):
        raise ValueError(f"{shown(column)} is no name of a column; put it in quotes")
    if column != FOLDER:
        return SliceRule(_column(column), column, _cuts(column, value))
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{{folder: {shown(value)}}}: give the number of levels, 1 or more")
    return SliceRule(f"{FOLDER} {value}", FOLDER, levels=value)


def _column(name: str) -> str:
    """Return the name of a column; raises ValueError if the name of its slices would mean something else."""
    if name != name.strip() or not name or CROSSING in name:
        raise ValueError(
            f"{name!r} cannot name slices, since it is empty, or has {CROSSING!r} or a space at an end; cross slices "
            "as a list, [camera, region], or rename the column"
        )
    if name in OF_CLASSES:
        raise ValueError(f"{name!r} needs no slices: `opacc estimate RUN --by {name}` has its classes; remove it")
    try:
        parse_metric(name)
    except SpecError:
        return name
    raise ValueError(f"{name!r} is the name of a metric, so it cannot name slices; rename the column")


def _cuts(column: str, value: Any) -> tuple[float, ...]:
    cuts = value if isinstance(value, list) else []
    if not cuts or not all(map(_is_finite, cuts)):
        raise ValueError(f"{{{column}: {shown(value)}}}: give a list of one or more numbers, such as [18, 30, 50]")
    if sorted(set(cuts)) != cuts:
        raise ValueError(f"{{{column}: {shown(value)}}}: the cuts do not rise; write {shown(sorted(set(cuts)))}")
    return tuple(map(float, cuts))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _check_crossing(names: list[Any], known: Sequence[str]) -> None:
    """Raise ValueError unless a crossing has two or more different ones of the ``known`` slices."""
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        guess = meant(unknown, known, f"known are {', '.join(known) or 'none'}")
        raise ValueError(f"the crossing {shown(names)} has {shown(unknown)}, which is no slice of the list; {guess}")
    if len(set(names)) < max(len(names), 2):
        raise ValueError(f"the crossing {shown(names)} needs two or more different slices of the list")


_DECIDES_NO_EXAMPLE: dict[str, Any] = dict.fromkeys(("slices", "sample_of", "access"), True)
"""Keys of a pool that change neither which examples are read nor how."""


def as_list(value: Any) -> Any:
    """Return a list of a text; other values stay."""
    return [value] if isinstance(value, str) else value


class ColumnsSpec(Section):
    """The columns of a table, by their meaning."""

    # unique ids, or several columns that make one; default: the file's key and the row
    id: str | list[str] | None = None
    uri: str | None = None  # location of each example, for annotators; without image and array: image files to read
    image: str | None = None  # bytes of image files; webdataset: their extension
    array: str | list[str] | None = None  # lists of numbers, or several columns of one number each; webdataset: npy
    hidden: str | list[str] | None = None  # stored features: the last hidden layer
    output: str | list[str] | None = None  # stored features: the last layer
    prediction: str | None = None  # stored features: the predicted class or value; default: computed from output
    # task grade: the model's answer, which annotators see; two columns if they choose between two
    answer: Annotated[list[str], BeforeValidator(as_list)] | None = None
    confidence: str | None = None  # stored features: any score in [0, 1] that is high where a failure is unlikely
    dsa: str | None = None  # stored features: distance-based surprise
    lsa: str | None = None  # stored features: likelihood-based surprise
    # columns that may predict failures, such as what a language model, a rule or another model says of the answer: a
    # score in [0, 1], high where it is right; right or wrong; or the name of the class that it would answer; empty
    # where it did not judge. neyman learns from the labels what each is worth
    judges: Annotated[list[str], BeforeValidator(as_list)] | None = Field(default=None, min_length=1)

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each feature."""
        given = {name: _several(getattr(self, name)) for name in formats.FEATURE_COLUMNS}
        return {name: columns for name, columns in given.items() if columns}


def _several(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _version(value: Any) -> Any:
    """Return the number of a version as one, also if it is quoted."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def time_text(value: Any) -> Any:
    """Return a date or a time, as YAML parses text without quotes, as text."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, date) else value


class PoolSpec(Section):
    """Location and format of examples: those of the pool, or of the reference.

    Each format has some of the keys ``TABLE_KEYS``.
    """

    # s3://, gs:// or abfss:// and a prefix, or a folder that all workers can read; not needed with catalog and table
    uri: str
    # format of the files: see lakes.md; features: stored predictions, in Parquet, CSV or JSON lines
    format: formats.FormatName
    # images with transparency: refuse them, drop it, put a colour behind it, or keep it
    alpha: Literal["refuse", "drop", "white", "black", "keep"] = "refuse"
    # images with an EXIF orientation, such as photos of a phone held upright: turn them, or leave them as they are
    # stored; do what the model's service does. People see what the model sees
    orientation: Literal["apply", "ignore"] = "ignore"
    follow_links: bool = False  # local folders: follow symbolic links
    columns: ColumnsSpec = ColumnsSpec()  # tables: the columns by their meaning
    filter: str | None = None  # tables: a condition for rows, such as split = 'test' and score >= 0.5
    # parts of the pool to state numbers for: columns, numbers with cuts, tags, folder or {folder: LEVELS}, and
    # crossings of these, such as [camera, {age: [18, 30, 50]}, {weather: [rain, fog]}, folder, [camera, folder]]
    slices: Slices | None = None
    # state the accuracy for a population of which the pool is a simple random sample: its number of examples; {video:
    # 300}, of whose values, with all their examples, the pool is a sample; more in place of a number for a population
    # of any size. Without it, the accuracy is stated for the pool
    sample_of: SampledFrom | None = None
    # buckets of others: anonymous reads without credentials (S3, Google); with requester-pays, this account pays (S3)
    access: Access | None = None

    split: str | None = None  # split of a dataset, such as test or train+test; required if there are several
    # number of the version, id of the snapshot, or name of a branch or tag; default: the newest
    version: Annotated[Annotated[int, Field(ge=0)] | str | None, BeforeValidator(_version)] = None
    # the newest version at that time, such as 2026-01-31T12:00:00Z
    timestamp: Annotated[str, BeforeValidator(time_text)] | None = None
    # tables in a catalog: its name in pyiceberg's configuration, or unity for Delta; default: by uri
    catalog: str | None = None
    table: str | None = None  # tables in a catalog: name of the table

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
        traits = formats.find_format(self.format).TRAITS
        given = [name for name in ColumnsSpec.model_fields if getattr(self.columns, name) is not None]
        unknown = next((name for name in given if name not in traits.columns), None)
        if unknown is not None:
            known = ", ".join(traits.columns) or "none"
            remedy = "set format: features, which reads predictions" if unknown == "prediction" else "remove it"
            raise ValueError(
                f"columns.{unknown} is not supported for format {self.format}, which has the columns {known}; {remedy}"
            )
        for key in formats.TABLE_KEYS:
            if getattr(self, key) is not None and key not in traits.keys:
                others = ", ".join(name for name in formats.FORMATS if key in formats.find_format(name).TRAITS.keys)
                raise ValueError(f"{key} is only supported for {others}, and format is {self.format}; remove it")
        if self.filter is not None and not formats.has_rows(self.format):
            supported = ", ".join(filter(formats.has_rows, formats.FORMATS))
            raise ValueError(f"filter is only supported for {supported}, and format is {self.format}; remove it")
        if self.slice_columns and not formats.has_rows(self.format):
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
        if self.catalog is not None and self.access is not None:
            raise ValueError("access and catalog cannot be combined: the catalog gives access; remove access")
        if self.columns.image is not None and self.columns.array is not None:
            raise ValueError("columns has image and array; keep the one that is the model's input")
        return self

    def identity(self) -> dict[str, Any]:
        """Return everything that determines which examples are read, and how."""
        return self._dump(_DECIDES_NO_EXAMPLE)

    def reading(self) -> dict[str, Any]:
        """Return everything but the place that determines the model's inputs."""
        place = dict.fromkeys(("uri", "follow_links", "labels"), True)
        return self._dump({**_DECIDES_NO_EXAMPLE, **place, "columns": {"judges"}})

    def _dump(self, left_out: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of keys; those of some formats only if they are given."""
        absent = {key: True for key in formats.TABLE_KEYS if getattr(self, key) is None}
        return self.model_dump(exclude={**left_out, **absent})


class ReferenceSpec(PoolSpec):
    """Location and format of the reference, and its labels."""

    # URI of a file of labels of its examples, in any format of `opacc labels import`: neyman learns from them where the
    # model fails, and stays unbiased if they are wrong
    labels: str | None = None

    @model_validator(mode="after")
    def _has_no_slices(self) -> "ReferenceSpec":
        for key in ("slices", "sample_of"):
            if getattr(self, key) is not None:
                raise ValueError(f"{key} is only supported for the pool; remove it")
        return self


def _table_of(source: PoolSpec) -> tuple[str, str] | None:
    """Return the catalog and the name of a pool's table, if it is in a catalog."""
    return (source.catalog, source.table) if source.catalog and source.table else None


def open_pool(source: PoolSpec) -> Store:
    """Return the store of a pool, or that of the folder whose file the pool's URI names."""
    if table := _table_of(source):
        return open_table(source.format, *table, None if source.uri.startswith(CATALOG) else source.uri)
    place = formats.place_of(source.format, source.uri, source.access).folder
    return open_store(place, follow_links=source.follow_links, access=source.access)


def rules_of(source: PoolSpec) -> Rules:
    """Return the rules by which a pool is read."""
    columns, arrays = source.columns, _several(source.columns.array)
    ids = columns.id if isinstance(columns.id, str | None) else tuple(columns.id)
    named = Columns(ids, columns.uri, columns.image, arrays, tuple(columns.features.items()))
    place = formats.place_of(source.format, source.uri, source.access)
    return Rules(
        source.alpha,
        columns=named,
        filter=source.filter,
        version=source.version,
        timestamp=source.timestamp,
        file=place.file,
        only=place.only,
        catalog=_table_of(source),
        split=source.split,
        slices=(*source.slice_columns, *(columns.answer or ()), *_several(columns.judges)),
        orientation=source.orientation,
    )


def plan_pool(source: PoolSpec, extract: ExtractSpec, what: str = "pool") -> Plan:
    """List a pool and cut it into shards; see :func:`opacc_ray.lake.pools.plan_shards` for its errors."""
    return plan_shards(open_pool(source), source.format, extract.shard_size, what=what, rules=rules_of(source))
