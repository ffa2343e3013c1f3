"""What is computed of each example, and how: ``extract``."""

import re
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from opacc_ray.documents import first_problem
from opacc_ray.errors import shortened
from opacc_ray.neurons.coverage import Criterion
from opacc_ray.spec.validation import Section

Feature = Literal["hidden", "output", "prediction", "confidence", "dsa", "lsa", "coverage"]

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


class CoverageSpec(Section):
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


class ActorRange(Section):
    """Between how many and how many copies of the model are at work."""

    min: int = Field(default=1, ge=1, description="fewer than that, and the run does not start")
    max: int | None = Field(default=None, ge=1, description="null: as many as the cluster has room for")

    @model_validator(mode="after")
    def _is_a_range(self) -> "ActorRange":
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max is {self.max} and min {self.min}; give a max of at least min")
        return self


class ExtractSpec(Section):
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
        default=False,
        description="images and weights with channels last in memory: often faster for convolutions over colour "
        "images, on CPUs and with bfloat16 on GPUs",
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
