"""One audit: all sections together, and what must fit between them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from opacc_ray.errors import SpecError
from opacc_ray.samplers.select import find_method, parse_parameters
from opacc_ray.spec.extract import PLACEMENT, ExtractSpec
from opacc_ray.spec.model import WAYS, ModelSpec
from opacc_ray.spec.pool import TABLE_FEATURES, PoolSpec, ReferenceSpec
from opacc_ray.spec.reading import read_yaml, validated
from opacc_ray.spec.section import FunctionName, Section

ConflictRule = Literal["error", "majority", "latest"]
"""What happens where labels of one example differ."""

LINK_FIELDS = ("id", "uri", "run", "round")
"""What a manifest's link may name in braces."""

SURPRISE = ("dsa", "lsa")
"""Features that compare an example with reference traces."""

_OF_CLASSES = {
    "confidence": "a regression has no confidence; choose a method that goes without, such as srs or ces",
    "dsa": "dsa compares classes, of which a regression has none; choose lsa",
}
"""Why a regression lacks some features."""

_OF_A_RUN_MODEL = (*WAYS, "arguments", "weights", "sha256", "hidden_layer")
"""Keys of a model that a pool of features has no use for."""


class SampleSpec(BaseModel):
    """The method, its budget, and the method's own parameters beside them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    method: str = Field(default="neyman", description="see methods.md, or `opacc methods`")
    budget: int | None = Field(
        default=None, description="labels that can be paid for; only deepreduce, and ces with stop_at_kl, need none"
    )
    replicates: int | None = Field(default=None, ge=2, description="choose from that many parts of the pool apart")
    models: list[str] | None = Field(
        default=None,
        min_length=1,
        description="URIs of runs of other models on the same pool, which the same labels are to serve; neyman",
    )

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _fits_the_method(self) -> "SampleSpec":
        parameters = parse_parameters(self.method, self.parameters)
        if self.models and not parameters.serves_several:
            raise ValueError(f"models: method {self.method!r} chooses for one model; leave models out, or take neyman")
        if self.models and self.replicates is not None:
            raise ValueError("replicates are of one model's pool; leave models or replicates out")
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget={self.budget}: give a whole number of labels, at least 1")
        return self


class ManifestSpec(Section):
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


class LabelsSpec(Section):
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
    numbers_are_classes: bool = Field(
        default=False,
        description="where classes have names: read a number as the index of a class, counted from 0; else it is "
        "refused",
    )


class ScoreSpec(Section):
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


class Spec(Section):
    """One audit."""

    name: str = Field(description="of the audit; the prefix of its run begins with it")
    seed: int = Field(default=0, ge=0, lt=2**63, description="of every random draw: the same seed, the same selection")
    pool: PoolSpec = Field(description="the examples whose accuracy is asked for")
    population: str | None = Field(
        default=None,
        min_length=1,
        description="name of what the pool is drawn from: runs that share it are one series over time, even if place, "
        "filter, split or table of their pools differ; default: these keys decide",
    )
    model: ModelSpec = Field(default=ModelSpec(), description="the model under audit")
    transform: FunctionName | None = Field(default=None, description="module:function: decoded example -> model input")
    reference: ReferenceSpec | None = Field(
        default=None,
        description="training data, which dsa, lsa and some coverage compare with; keys left out: the pool's",
    )
    history: Literal["auto"] | list[str] | None = Field(
        default=None,
        description="earlier audits whose labels neyman starts from: URIs of runs; or auto: those of the same weights "
        "and source files under the output",
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

    @field_validator("history", mode="before")
    @classmethod
    def _is_a_list_of_runs(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "auto":
            raise ValueError("give a list of runs, such as [RUN], or auto")
        return value

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
    def _learns_from_its_history(self) -> "Spec":
        key = "history" if self.history else "pool.columns.prior"
        if not self.history and self.pool.columns.prior is None:
            return self
        if not parse_parameters(self.sample.method, self.sample.parameters).learns_from_history:
            raise SpecError(
                f"{key} is of neyman; sample.method {self.sample.method!r} learns from none: leave {key} out"
            )
        if self.sample.replicates is not None:
            raise SpecError(f"{key} is of the whole pool, and replicates are of parts of it; leave one of them out")
        return self

    @model_validator(mode="after")
    def _scores_values_only(self) -> "Spec":
        if self.model.task != "regression" and self.score != ScoreSpec():
            raise SpecError("score is of regressions, and model.task is classification; leave score out")
        return self

    @model_validator(mode="after")
    def _numbers_can_be_classes(self) -> "Spec":
        digits = next((name for name in self.model.classes or () if name.strip().isdecimal()), None)
        if self.labels.numbers_are_classes and (digits or self.model.task == "regression"):
            why = f"the class {digits!r} has a number for its name" if digits else "labels of a regression are values"
            raise SpecError(f"labels.numbers_are_classes: {why}; leave it out")
        return self

    @model_validator(mode="before")
    @classmethod
    def _reference_is_read_as_the_pool(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        pool, reference = content.get("pool"), content.get("reference")
        if isinstance(pool, dict) and "format" in pool and isinstance(reference, dict):
            shared = {key: value for key, value in pool.items() if key not in ("uri", "split")}
            return content | {"reference": shared | reference}
        return content

    @model_validator(mode="after")
    def _can_extract_its_features(self) -> "Spec":
        parameters = parse_parameters(self.sample.method, self.sample.parameters)
        if self.model.task == "regression" and not parameters.supports_regression:
            raise SpecError(f"sample.method {self.sample.method!r} does not support regression; choose another method")
        needed = self._needed()
        for name in dict.fromkeys([*needed, *self.features()]):
            who = f"sample.method {self.sample.method!r} needs" if name in needed else "extract.features names"
            if name in _OF_CLASSES and self.model.task == "regression":
                raise SpecError(f"{who} {name}, and {_OF_CLASSES[name]}")
            if self.pool.holds_features and name not in (*self.stored(), *SURPRISE):
                instead = parse_parameters(self.sample.method, self.sample.parameters).instead
                way = f", or {instead[name]}" if name in needed and name in instead else ""
                raise SpecError(f"{who} {name}, which the pool of features lacks: {_way_to_store(name)}{way}")
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

    @property
    def reads_reference(self) -> bool:
        """Whether a feature compares with the reference, or its labels are learned from."""
        return self.reference is not None and bool(self.compares_with() or self.reference.labels)

    @property
    def has_history(self) -> bool:
        """Whether anything is to be known before the first label."""
        labelled = self.reference is not None and self.reference.labels is not None
        return bool(self.history) or labelled or self.pool.columns.prior is not None

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
        if self.pool.holds_features and feature not in SURPRISE:
            return f"{_way_to_store(feature)} of a spec and run that"
        there = [name for name in self.features() if name != "prediction"]
        keys = f"extract.features: [{', '.join(dict.fromkeys([*there, feature]))}]"
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
        content = self.model_dump(exclude={"output", "labels", "score", "population"})
        content["pool"] = self.pool.identity()
        content["reference"] = self.reference and self.reference.identity()
        del content["model"]["error_scale"]
        for key in ("program", "function", "trust"):
            if not content["model"][key]:
                del content["model"][key]
        if not self.sample.models:
            del content["sample"]["models"]
        if not self.history:
            del content["history"]
        if not self.reads_reference:
            del content["reference"]
        if "coverage" not in self.features():
            del content["extract"]["coverage"]
        for key in PLACEMENT:
            del content["extract"][key]
        if not self.extract.channels_last:  # a key of a later version than the digests of older runs
            del content["extract"]["channels_last"]
        return content


def _way_to_store(feature: str) -> str:
    """How a pool of features comes to have one more."""
    return f"name its column in pool.columns.{feature}" if feature in TABLE_FEATURES else "run the model for it"


def load_spec(path: str | Path) -> Spec:
    """Read a spec from a YAML file; raises SpecError naming key, value and fix."""
    return parse_spec(read_yaml(path), str(path))


def parse_spec(content: Any, source: str) -> Spec:
    """Validate the content of a spec; ``source`` names it in errors."""
    return validated(Spec, content, source)
