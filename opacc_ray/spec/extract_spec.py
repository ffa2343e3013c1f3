"""Features to compute, and how: ``extract``."""

import re
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from opacc_ray.documents import first_problem
from opacc_ray.errors import shortened
from opacc_ray.neurons.criteria import Criterion
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
"""Keys of ``extract`` for placement and timeouts, which do not change features."""


class CoverageSpec(Section):
    """The requirements of neuron coverage: see :mod:`opacc_ray.neurons.criteria`."""

    criterion: str = Field(default="nc:0.5", description="nc:β, kmnc:k, nbc, snac or tknc:k")
    layers: list[str] | None = Field(
        default=None, min_length=1, description="dotted names; default: every layer with weights"
    )
    channels: Literal["mean", "max"] = Field(
        default="mean", description="how a channel's positions are reduced to one number"
    )

    @field_validator("criterion")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return str(Criterion.parse(value))

    @property
    def rule(self) -> Criterion:
        return Criterion.parse(self.criterion)


class ActorRange(Section):
    """Least and largest number of model copies."""

    min: int = Field(default=1, ge=1, description="least number of actors with which the run starts")
    max: int | None = Field(default=None, ge=1, description="null: as many as fit on the cluster")

    @model_validator(mode="after")
    def _is_a_range(self) -> "ActorRange":
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max is {self.max} and min {self.min}; give a max of at least min")
        return self


class ExtractSpec(Section):
    """Features to compute, and how.

    batch_size, shard_size, shard_bytes, precision, threads, features and coverage determine the result.
    """

    batch_size: int = Field(default=256, ge=1, description="examples per call of the model")
    shard_size: int = Field(default=1024, ge=1, description="examples per shard, the unit of work and of resume")
    shard_bytes: int = Field(default=256 << 20, ge=1, description="most bytes of image files per shard")
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="number type of the model's computation; features are stored as float32"
    )
    threads_per_actor: int = Field(default=1, ge=1, description="CPU threads of the model per actor")
    channels_last: bool = Field(
        default=False,
        description="memory layout of images and weights: channels last is often faster for convolutions on CPUs, and "
        "with bfloat16 on GPUs",
    )
    readers: int | Literal["auto"] = Field(
        default="auto",
        description="threads per actor for decoding images; auto: 1 without a GPU, else its share of the node's CPUs, "
        "at most 16",
    )
    actors: int | Literal["auto"] | ActorRange = Field(
        default="auto",
        description="copies of the model: a number; {min: 2, max: 8}, if the cluster grows and shrinks; or auto: as "
        "many as fit, at least one",
    )
    gpus_per_actor: float | Literal["auto"] = Field(
        default="auto", description="GPUs per actor; 0.5: two actors share one; auto: 1 if the cluster has GPUs, else 0"
    )
    accelerator_type: str | None = Field(
        default=None, description="only nodes with this accelerator, by Ray's name, such as A100 or H100"
    )
    node_labels: dict[str, str] = Field(
        default={},
        description="only nodes with these labels, such as {region: eu}; also !eu, in(eu,us) and !in(eu,us)",
    )
    attempts: int = Field(default=3, ge=1, description="attempts per shard before the run fails")
    autoscaling: bool = Field(
        default=False, description="wait for actors, because the cluster may grow, instead of refusing the run"
    )
    start_timeout: float = Field(default=300, gt=0, description="most seconds for the start of an actor")
    shard_timeout: float | None = Field(
        default=1800,
        gt=0,
        description="most seconds for a shard before its actor counts as hung; null: no limit",
    )
    features: list[Feature] | None = Field(
        default=None, description="default: those of the forward pass, and those that the method needs"
    )
    coverage: CoverageSpec = Field(default=CoverageSpec(), description="for methods that need coverage: deepreduce")
    on_bad_item: Literal["error", "exclude"] = Field(
        default="error", description="treatment of an unreadable example: end the run, or exclude and count it"
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
        """Return the values as Ray's label selectors, without spaces."""
        packed = {key: "".join(wanted.split()) for key, wanted in value.items()}
        name = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
        for key, wanted in packed.items():
            if not re.fullmatch(rf"!?({name}|in\({name}(,{name})*\))", wanted):
                raise ValueError(
                    f"{key}: {shortened(value[key])} is not a label selector; write eu, !eu, in(eu,us) or !in(eu,us)"
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
