"""A job's specification: YAML in, validated objects out.

Every key is declared here once, with its default. A wrong key is refused with its full path, its value and the
nearest key that exists.
"""

import importlib
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from opacc_ray.documents import first_problem
from opacc_ray.errors import SpecError, shortened
from opacc_ray.neurons.coverage import Criterion
from opacc_ray.samplers.select import find_method, parse_parameters

Feature = Literal["hidden", "output", "prediction", "confidence", "dsa", "lsa", "coverage"]
Model = TypeVar("Model", bound=BaseModel)

ConflictRule = Literal["error", "majority", "latest"]
"""What happens where labels of one example differ."""

LINK_FIELDS = ("id", "uri", "run", "round")
"""What a manifest's link may name in braces."""

MAX_TEXT, MAX_NODES = 1 << 18, 50_000
"""Characters and values that a YAML file may hold."""

_KINDS = {list: "list", str: "text", bool: "boolean", int: "number", float: "number"}

SURPRISE = ("dsa", "lsa")
"""Features that compare an example with reference traces."""

PLACEMENT = (
    "actors",
    "gpus_per_actor",
    "accelerator_type",
    "node_labels",
    "attempts",
    "autoscaling",
    "readers",
    "start_timeout",
    "shard_timeout",
)
"""Keys of ``extract`` that say where and how patiently the work is done, and change no feature."""

_OF_CLASSES = {
    "confidence": "a regression has no confidence; choose a method that goes without, such as srs or ces",
    "dsa": "dsa compares classes, of which a regression has none; choose lsa",
}
"""Why a regression lacks some features."""


TABLES = ("parquet", "huggingface", "delta", "iceberg", "features")
"""Formats of which an example is a row, with columns and filters."""

VERSIONED = ("delta", "iceberg")
"""Formats that keep earlier versions."""

TABLE_FEATURES = ("hidden", "output", "prediction", "confidence", "dsa", "lsa")
"""What columns of a pool of features may be."""

_EXAMPLES_OF_TABLES = ("id", "uri", "image", "array")
_COLUMNS_OF = {
    "parquet": _EXAMPLES_OF_TABLES,
    "webdataset": ("image", "array"),
    "huggingface": _EXAMPLES_OF_TABLES,
    "delta": (*_EXAMPLES_OF_TABLES, *TABLE_FEATURES),
    "iceberg": (*_EXAMPLES_OF_TABLES, *TABLE_FEATURES),
    "features": ("id", "uri", *TABLE_FEATURES),
}
"""Which columns go with a format."""

WAYS = ("factory", "program", "function")
"""Keys of a model that name it; one of them is given."""

_OF_A_RUN_MODEL = (*WAYS, "arguments", "weights", "sha256", "hidden_layer")
"""Keys of a model that a pool of features has no use for."""

_FIRST_OF_POOL = ("format", "alpha", "max_pixels", "max_bytes")
"""Keys of a pool that have always decided the identity of a run."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ColumnsSpec(_Section):
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

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """By feature: its columns."""
        given = {name: _several(getattr(self, name)) for name in TABLE_FEATURES}
        return {name: columns for name, columns in given.items() if columns}


class PoolSpec(_Section):
    """Where examples are: the operational ones, or those of the reference."""

    uri: str = Field(description="s3://bucket/prefix, or a folder that all workers see")
    format: Literal["images", "npy", "parquet", "webdataset", "huggingface", "delta", "iceberg", "features"] = Field(
        description="what lies there: see lakes.md; features: what a model said of examples, in Parquet files"
    )
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
    version: int | None = Field(
        default=None, ge=0, description="delta: a version; iceberg: the id of a snapshot; default: the newest"
    )
    timestamp: str | None = Field(
        default=None, description="delta, iceberg: the newest version at that time, such as 2026-01-31T12:00:00Z"
    )
    catalog: str | None = Field(
        default=None, description="iceberg: name of a catalog in pyiceberg's own configuration; default: by uri"
    )
    table: str | None = Field(default=None, description="iceberg: name of the table in the catalog")

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
        return {"uri": self.uri, "follow_links": self.follow_links} | self.reading()

    def reading(self) -> dict[str, Any]:
        """All that decides what is read, its place and links aside; keys of later versions where they are used."""
        content = self.model_dump(exclude={"uri", "follow_links"})
        return {
            key: value for key, value in content.items() if key in _FIRST_OF_POOL or value != _default(PoolSpec, key)
        }


class ModelSpec(_Section):
    """The model under audit."""

    factory: str | None = Field(
        default=None, description="module:function that returns the torch module, weights aside"
    )
    program: str | None = Field(
        default=None, description="instead: URI of a TorchScript file, or a .pt2 of torch.export; needs trust"
    )
    function: str | None = Field(
        default=None, description="instead: module:function that maps a batch to arrays, in any framework"
    )
    trust: bool = Field(default=False, description="the program may run: its file is code, whatever it is called")
    arguments: dict[str, Any] = Field(default={}, description="keyword arguments of the factory or the function")
    weights: str | None = Field(default=None, description="URI of a safetensors file or a state dict")
    sha256: str | None = Field(default=None, description="expected digest of the weights")
    hidden_layer: str | None = Field(
        default=None,
        description="dotted name of the layer whose output is recorded; default: input of the last Linear",
    )
    task: Literal["classification", "regression"] = Field(
        default="classification", description="a class per example, or one number per example"
    )
    output: Literal["logits", "probabilities", "logit", "probability"] = Field(
        default="logits", description="what the last layer gives; logit and probability: one value, of a binary model"
    )
    threshold: float = Field(
        default=0.5, gt=0, lt=1, description="a binary model: predicts class 1 from this probability on"
    )
    classes: list[str] | None = Field(default=None, description="names that annotators use, in the model's order")
    error_scale: float = Field(
        default=1.0, gt=0, description="regression: score = max(0, 1 - (error / scale)²), unless score says otherwise"
    )

    def name_of(self, prediction: Any) -> str:
        """What annotators call a prediction."""
        return self.classes[prediction] if self.classes else str(prediction)

    @field_validator("factory")
    @classmethod
    def _names_a_function(cls, value: str | None) -> str | None:
        return value if value is None or re.fullmatch(r"(timm|hf):\S+", value) else _function_name(value)

    @field_validator("function")
    @classmethod
    def _names_a_function_too(cls, value: str | None) -> str | None:
        return None if value is None else _function_name(value)

    @model_validator(mode="after")
    def _is_one_model(self) -> "ModelSpec":
        ways = [key for key in WAYS if getattr(self, key) is not None]
        if len(ways) > 1:
            raise ValueError(f"{ways[0]} and {ways[1]} name a model each; give one")
        if self.program is not None and not self.trust:
            raise ValueError("a program is code that runs as you; set trust: true if you know where it comes from")
        unused = next((key for key in ("weights", "hidden_layer") if getattr(self, key)), None)
        if unused and ways and ways[0] != "factory":
            raise ValueError(f"{unused} goes with a factory; a {ways[0]} brings its own, so leave {unused} out")
        if self.arguments and ways == ["program"]:
            raise ValueError("arguments go with a factory or a function; leave them out")
        return self

    @field_validator("classes")
    @classmethod
    def _are_distinct(cls, value: list[str] | None) -> list[str] | None:
        twice = [name for name, count in Counter(value or []).items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} appears twice; give each class a name of its own")
        return value

    @field_validator("sha256")
    @classmethod
    def _is_a_digest(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", value):
            raise ValueError("give the 64 hexadecimal digits that sha256sum prints")
        return value.lower() if value else value


class CoverageSpec(_Section):
    """The requirements of neuron coverage: see :mod:`opacc_ray.neurons.coverage`."""

    criterion: str = Field(default="nc:0.5", description="nc:β, kmnc:k, nbc, snac or tknc:k")
    layers: list[str] | None = Field(
        default=None, min_length=1, description="dotted names; default: every layer with weights that the model runs"
    )
    channels: Literal["mean", "max"] = Field(default="mean", description="what a channel's positions are reduced to")

    @field_validator("criterion")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return str(Criterion.parse(value))

    @property
    def rule(self) -> Criterion:
        return Criterion.parse(self.criterion)


class ActorRange(_Section):
    """Between how many and how many copies of the model are at work."""

    min: int = Field(default=1, ge=1, description="fewer than that, and the run does not start")
    max: int | None = Field(default=None, ge=1, description="null: as many as the cluster has room for")

    @model_validator(mode="after")
    def _is_a_range(self) -> "ActorRange":
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max is {self.max} and min {self.min}; give a max of at least min")
        return self


class ExtractSpec(_Section):
    """What is computed, by batch_size, shard_size, shard_bytes, precision, threads, features and coverage.

    The rest says how.
    """

    batch_size: int = Field(default=256, ge=1, description="examples that the model is given at a time")
    shard_size: int = Field(default=1024, ge=1, description="examples per shard, the unit of work and of resume")
    shard_bytes: int = Field(
        default=256 << 20, ge=1, description="bytes of image files per shard; fewer examples where they are large"
    )
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="in which the model computes; features are kept as float32"
    )
    threads_per_actor: int = Field(default=1, ge=1, description="CPU threads of the model in one actor")
    channels_last: bool = Field(
        default=False, description="images and weights with channels last in memory: often faster with bfloat16 on GPUs"
    )
    readers: int | Literal["auto"] = Field(
        default="auto",
        description="threads of an actor that decode images; auto: 1 without a GPU, else its share of the node's CPUs, "
        "at most 16",
    )
    actors: int | Literal["auto"] | ActorRange = Field(
        default="auto",
        description="copies of the model at work: a number; {min: 2, max: 8}, as the cluster grows and shrinks; or "
        "auto: as many as it has room for, at least one",
    )
    gpus_per_actor: float | Literal["auto"] = Field(
        default="auto", description="0.5: two actors share a GPU; auto: one if the cluster has GPUs, else none"
    )
    accelerator_type: str | None = Field(
        default=None, description="only on nodes with this accelerator, by Ray's name for it, such as A100 or H100"
    )
    node_labels: dict[str, str] = Field(
        default={},
        description="only on nodes with these labels, such as {region: eu}; also !eu, in(eu,us) and !in(eu,us)",
    )
    attempts: int = Field(default=3, ge=1, description="tries per shard before the run fails with its name")
    autoscaling: bool = Field(default=False, description="the cluster may grow: wait for actors instead of refusing")
    start_timeout: float = Field(default=300, gt=0, description="seconds an actor may take to start")
    shard_timeout: float | None = Field(
        default=1800,
        gt=0,
        description="seconds an actor may go without finishing a shard before it counts as hung; null: for ever",
    )
    features: list[Feature] | None = Field(
        default=None, description="default: those of the forward pass, and what the method needs beside them"
    )
    coverage: CoverageSpec = Field(default=CoverageSpec(), description="for methods that need coverage: deepreduce")
    on_bad_item: Literal["error", "exclude"] = Field(
        default="error", description="an example that cannot be read ends the run, or is counted and left out"
    )

    @field_validator("actors", mode="before")
    @classmethod
    def _is_a_number_or_a_range(cls, value: Any) -> Any:
        if isinstance(value, dict):
            try:
                return ActorRange.model_validate(value)
            except ValidationError as error:
                raise ValueError(first_problem(ActorRange, error)) from None
        if value != "auto" and type(value) not in (int, ActorRange):
            raise ValueError("give a whole number, {min: 2, max: 8}, or auto")
        if isinstance(value, int) and value < 1:
            raise ValueError("give at least 1, or auto")
        return value

    @field_validator("node_labels")
    @classmethod
    def _are_selectors(cls, value: dict[str, str]) -> dict[str, str]:
        """Each value as Ray's label selectors have it, without spaces."""
        packed = {key: "".join(wanted.split()) for key, wanted in value.items()}
        name = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
        for key, wanted in packed.items():
            if not re.fullmatch(rf"!?({name}|in\({name}(,{name})*\))", wanted):
                raise ValueError(
                    f"{key}: {shortened(value[key])} selects no label; write eu, !eu, in(eu,us) or !in(eu,us)"
                )
        return packed

    @field_validator("readers")
    @classmethod
    def _is_a_reader(cls, value: Any) -> Any:
        if value != "auto" and value < 1:
            raise ValueError("give at least 1, or auto")
        return value

    @field_validator("gpus_per_actor")
    @classmethod
    def _at_least_none(cls, value: Any) -> Any:
        if value != "auto" and value < 0:
            raise ValueError("give 0 or more, or auto")
        return value


class SampleSpec(BaseModel):
    """The method, its budget, and the method's own parameters beside them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    method: str = Field(default="neyman", description="see methods.md, or `opacc methods`")
    budget: int | None = Field(
        default=None, description="labels that can be paid for; only deepreduce, and ces with stop_at_kl, need none"
    )
    replicates: int | None = Field(default=None, ge=2, description="choose from that many parts of the pool apart")

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _fits_the_method(self) -> "SampleSpec":
        parse_parameters(self.method, self.parameters)
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget={self.budget}: give a whole number of labels, at least 1")
        return self


class ManifestSpec(_Section):
    """What annotators are given."""

    formats: list[Literal["jsonl", "csv"]] = Field(default=["jsonl", "csv"], description="files that are written")
    show_prediction: bool = Field(default=False, description="an annotator who sees the answer tends to agree with it")

    link: str | None = Field(
        default=None,
        description="what annotators open, with {id}, {uri}, {run} and {round}; default: the URI, but no local path",
    )

    @field_validator("link")
    @classmethod
    def _names_known_fields(cls, value: str | None) -> str | None:
        unknown = [name for name in re.findall(r"\{([^{}]*)\}", value or "") if name not in LINK_FIELDS]
        if unknown:
            raise ValueError(f"{{{unknown[0]}}} is unknown; use {', '.join(f'{{{name}}}' for name in LINK_FIELDS)}")
        return value


class LabelsSpec(_Section):
    """How labels that came back are read; `opacc labels rule` changes it for a run that is there."""

    conflict: ConflictRule = Field(
        default="error",
        description="where labels of one example differ: refuse them, take the most frequent, or take the latest",
    )
    overlap: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of the examples that two people label, by which the noise of labels is measured",
    )


class ScoreSpec(_Section):
    """What a regression's prediction is worth, in [0, 1]; of the outcome only, so that no feature depends on it."""

    error_scale: float | None = Field(
        default=None, gt=0, description="score = max(0, 1 - (error / error_scale)²); default: model.error_scale"
    )
    within: float | None = Field(default=None, gt=0, description="score = 1 where the error is at most this, else 0")

    @model_validator(mode="after")
    def _is_one(self) -> "ScoreSpec":
        if self.error_scale is not None and self.within is not None:
            raise ValueError("give error_scale or within, not both")
        return self


class Spec(_Section):
    """One audit."""

    name: str = Field(description="of the audit; the prefix of its run begins with it")
    seed: int = Field(default=0, ge=0, lt=2**63, description="of every random draw: the same seed, the same selection")
    pool: PoolSpec = Field(description="the examples whose accuracy is asked for")
    model: ModelSpec = Field(default=ModelSpec(), description="the model under audit")
    transform: str | None = Field(default=None, description="module:function: decoded example -> model input")
    reference: PoolSpec | None = Field(
        default=None,
        description="training data, which dsa, lsa and some coverage compare with; keys left out: the pool's",
    )
    extract: ExtractSpec = Field(default=ExtractSpec(), description="what is computed of each example, and how")
    sample: SampleSpec = Field(default=SampleSpec(), description="what is chosen, and the method's own parameters")
    manifest: ManifestSpec = Field(default=ManifestSpec(), description="what annotators are given")
    labels: LabelsSpec = Field(default=LabelsSpec(), description="how labels that came back are read")
    score: ScoreSpec = Field(default=ScoreSpec(), description="a regression: how an error becomes a score")
    output: str = Field(description="where runs go: s3://bucket/prefix, or a folder that all workers see")

    @field_validator("name")
    @classmethod
    def _fits_a_path(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
            raise ValueError("use letters, digits, '.', '_' and '-': it becomes part of the run's prefix")
        return value

    @field_validator("transform")
    @classmethod
    def _names_a_function(cls, value: str | None) -> str | None:
        return None if value is None else _function_name(value)

    @model_validator(mode="after")
    def _has_a_model(self) -> "Spec":
        if self.pool.holds_features:
            unused = next((key for key in _OF_A_RUN_MODEL if getattr(self.model, key)), None)
            if unused or self.transform:
                key = f"model.{unused}" if unused else "transform"
                raise SpecError(f"{key} is of a model that is run, and the pool holds its features; leave {key} out")
        elif not any(getattr(self.model, key) for key in WAYS):
            raise SpecError(
                "key 'model.factory' is missing; add it, or audit stored outputs with pool.format: features"
            )
        return self

    @model_validator(mode="after")
    def _knows_the_layers(self) -> "Spec":
        if self.model.factory is None and not self.pool.holds_features and "coverage" in self.features():
            way = next(key for key in WAYS if getattr(self.model, key))
            raise SpecError(f"coverage needs the layers of a module, which a {way} does not show; give model.factory")
        return self

    @model_validator(mode="after")
    def _scores_values_only(self) -> "Spec":
        if self.model.task != "regression" and self.score != ScoreSpec():
            raise SpecError("score is of regressions, and model.task is classification; leave score out")
        return self

    @model_validator(mode="before")
    @classmethod
    def _reference_is_read_as_the_pool(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        pool, reference = content.get("pool"), content.get("reference")
        if isinstance(pool, dict) and "format" in pool and isinstance(reference, dict):
            shared = {key: value for key, value in pool.items() if key != "uri"}
            return content | {"reference": shared | reference}
        return content

    @model_validator(mode="after")
    def _can_extract_its_features(self) -> "Spec":
        needed = self._needed()
        for name in dict.fromkeys([*needed, *self.features()]):
            who = f"sample.method {self.sample.method!r} needs" if name in needed else "extract.features names"
            if name in _OF_CLASSES and self.model.task == "regression":
                raise SpecError(f"{who} {name}, and {_OF_CLASSES[name]}")
            if self.pool.holds_features and name not in (*self.stored(), *SURPRISE):
                where = f"name its column in pool.columns.{name}" if name in TABLE_FEATURES else "run the model for it"
                raise SpecError(f"{who} {name}, which the pool of features lacks: {where}")
            if name not in self.features():
                raise SpecError(f"{who} {name}, which is not extracted: add {name} to extract.features")
            if self._compares_with(name) and self.reference is None:
                raise SpecError(f"{who} {name}, which compares with training data: add reference: {{uri: ...}}")
        return self

    def features(self) -> tuple[str, ...]:
        """Features to extract: those the spec names, else those of the forward pass and what the method needs.

        And always the prediction.
        """
        every: Sequence[str] | None = self.extract.features
        if every is None and self.pool.holds_features:
            every = [*self.stored(), *(name for name in self._needed() if name in SURPRISE)]
        if every is None:
            with_output = (
                ["hidden", "output"] if self.model.task == "regression" else ["hidden", "output", "confidence"]
            )
            every = [*with_output, *self._needed()]
        return tuple(dict.fromkeys([*every, "prediction"]))

    def stored(self) -> tuple[str, ...]:
        """Features that the columns of the pool are, or that follow from them."""
        named = list(self.pool.columns.features)
        follows = ["prediction"] if self.model.task == "regression" else ["prediction", "confidence"]
        return tuple(dict.fromkeys([*named, *(follows if "output" in named else [])]))

    def compares_with(self) -> set[str]:
        """What of the reference the features compare with: traces, ranges, both or nothing."""
        return set().union(*(self._compares_with(name) for name in self.features()))

    def _compares_with(self, feature: str) -> set[str]:
        if self.pool.holds_features and feature in self.pool.columns.features:
            return set()
        if feature == "coverage" and self.extract.coverage.rule.needs_ranges:
            return {"ranges"}
        return {"traces"} if feature in SURPRISE else set()

    def remedy(self, feature: str) -> str:
        """What to do if a run without a feature should have it."""
        if feature in _OF_CLASSES and self.model.task == "regression":
            return _OF_CLASSES[feature]
        there = [name for name in self.features() if name != "prediction"]
        keys = f"extract.features: [{', '.join([*there, feature])}]"
        if self._compares_with(feature) and self.reference is None:
            keys += " and reference: {uri: ...}, which is training data,"
        return f"add {keys} to the spec and run that"

    def _needed(self) -> tuple[str, ...]:
        """Features that the method needs."""
        return find_method(self.sample.method).needs(parse_parameters(self.sample.method, self.sample.parameters))

    def identity(self) -> dict[str, Any]:
        """All that decides features and selections.

        Where and how fast they are computed is left out, what no feature uses, and how labels are read and scored.
        """
        content = self.model_dump(exclude={"output", "labels", "score"})
        content["pool"] = self.pool.identity()
        content["reference"] = self.reference and self.reference.identity()
        del content["model"]["error_scale"]
        for key in ("program", "function", "trust"):
            if not content["model"][key]:
                del content["model"][key]
        if not self.compares_with():
            del content["reference"]
        if "coverage" not in self.features():
            del content["extract"]["coverage"]
        for key in PLACEMENT:
            del content["extract"][key]
        if not self.extract.channels_last:  # a key of a later version than the digests of older runs
            del content["extract"]["channels_last"]
        return content


def load_spec(path: str | Path) -> Spec:
    """Read a spec from a YAML file; raises SpecError naming key, value and fix."""
    return parse_spec(read_yaml(path), str(path))


def parse_spec(content: Any, source: str) -> Spec:
    """Validate the content of a spec; ``source`` names it in errors."""
    return validated(Spec, content, source)


def read_yaml(path: str | Path, what: str = "spec") -> Any:
    """The content of a YAML file; raises SpecError if it is missing or no YAML. ``what`` names it in errors."""
    place = f"the {what} {shortened(str(path))}"
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_TEXT + 1)
    except FileNotFoundError:
        raise SpecError(f"there is no {what} at {shortened(str(path))}; give the path of a YAML file") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{place} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"{place} cannot be read: {reason}; give the path of a YAML file") from None
    return parse_yaml(text, place)


def parse_yaml(text: str, place: str) -> Any:
    """The content of YAML that others wrote; aliases are followed, and what they stand for is counted before.

    Raises
    ------
    SpecError
        It is no YAML, or larger or deeper than any spec; ``place`` names it.
    """
    if len(text) > MAX_TEXT:
        raise SpecError(f"{place} is longer than {MAX_TEXT} characters, which no spec is; check the path")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _is_larger(node, MAX_NODES):
            raise SpecError(f"{place} holds more than {MAX_NODES} values, aliases counted; write less")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise SpecError(f"{place} is not YAML: {shortened(str(error))}") from None
    except RecursionError:
        raise SpecError(f"{place} is nested too deeply to be read") from None
    except SpecError:
        raise
    except (ValueError, OverflowError, TypeError, AttributeError) as error:  # a number or date that cannot be
        raise SpecError(f"{place} holds a value that cannot be read: {shortened(str(error))}") from None


def _is_larger(node: yaml.Node, limit: int) -> bool:
    """Whether a document holds more than ``limit`` values, each alias counted as all that it stands for."""
    pending, found = [node], 0
    while pending and found <= limit:
        item = pending.pop()
        found += 1
        if isinstance(item, yaml.MappingNode):
            pending += [part for pair in item.value for part in pair]
        elif isinstance(item, yaml.SequenceNode):
            pending += item.value
    return found > limit


def validated(kind: type[Model], content: Any, source: str) -> Model:
    """``content`` as an object of ``kind``; raises SpecError with one sentence, in which ``source`` names the place."""
    if content is None:
        raise SpecError(f"{source} is empty; `opacc spec --template` prints one to start from")
    if not isinstance(content, dict):
        raise SpecError(
            f"{source} holds a {_KINDS.get(type(content), 'value')}, not keys and values such as name: digits"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise SpecError(f"{source}: {first_problem(kind, error)}") from None


def see_modules(folder: str) -> None:
    """Let modules be imported from a folder of the user's, after all that is installed: it never hides a package."""
    if folder not in sys.path:
        sys.path.append(folder)


def load_function(name: str, key: str) -> Any:
    """The callable that ``module:function`` under the spec's ``key`` names, also of a module in the current folder."""
    see_modules(os.getcwd())
    module, _, function = name.partition(":")
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        reason, remedy = shortened(str(error)), _import_remedy(module, error)
        raise SpecError(f"{key}: {name!r} cannot be imported ({reason}); {remedy}") from None
    except Exception as error:
        failure = SpecError(f"{key}: importing {module!r} raised {type(error).__name__}: {shortened(str(error))}")
        failure.details = traceback.format_exc()
        raise failure from None
    found = getattr(imported, function, None)
    if found is None:
        raise SpecError(f"{key}: module {module!r} has no {function!r}")
    if not callable(found):
        raise SpecError(f"{key}: {name!r} is a {type(found).__name__}, not a function")
    return found


def _import_remedy(module: str, error: ImportError) -> str:
    if error.name is None or f"{module}.".startswith(f"{error.name}."):
        return "run where the module is on the path"
    return f"{module} imports it, so install it here and on the workers"


def _several(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _default(kind: type[BaseModel], key: str) -> Any:
    """The default of a key, as it is dumped."""
    value = kind.model_fields[key].get_default(call_default_factory=True)
    return value.model_dump() if isinstance(value, BaseModel) else value


def _function_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("write module:function, such as mypkg.models:lenet5")
    return value
