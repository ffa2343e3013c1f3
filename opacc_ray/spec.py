"""A job's specification: YAML in, validated objects out.

Every key is declared here once, with its default. A wrong key is refused with its full path, its value and the
nearest key that exists.
"""

import importlib
import json
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from opacc_ray.errors import SpecError
from opacc_ray.sampling import find_method, parse_parameters

Feature = Literal["hidden", "output", "prediction", "confidence"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PoolSpec(_Section):
    """Where the operational examples are."""

    uri: str
    format: Literal["images", "npy"]


class ModelSpec(_Section):
    """The model under audit."""

    factory: str = Field(description="module:function that returns the torch module, weights aside")
    arguments: dict[str, Any] = Field(default={}, description="keyword arguments of the factory")
    weights: str | None = Field(default=None, description="URI of a safetensors file or a state dict")
    sha256: str | None = Field(default=None, description="expected digest of the weights")
    hidden_layer: str | None = Field(
        default=None,
        description="dotted name of the layer whose output is recorded; default: input of the last Linear",
    )
    task: Literal["classification", "regression"] = "classification"
    output: Literal["logits", "probabilities"] = "logits"
    classes: list[str] | None = Field(default=None, description="names that annotators use, in the model's order")
    error_scale: float = Field(default=1.0, gt=0, description="regression: score = 1 - (error / scale)²")

    @field_validator("factory")
    @classmethod
    def _names_a_function(cls, value: str) -> str:
        return _function_name(value)

    @field_validator("sha256")
    @classmethod
    def _is_a_digest(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", value):
            raise ValueError("give the 64 hexadecimal digits that sha256sum prints")
        return value.lower() if value else value


class ExtractSpec(_Section):
    """How features are computed. None of it changes what is computed but precision, batch_size and threads."""

    batch_size: int = Field(default=256, ge=1)
    shard_size: int = Field(default=1024, ge=1, description="examples per shard, the unit of work and of resume")
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    threads_per_actor: int = Field(default=1, ge=1, description="CPU threads of the model in one actor")
    actors: int | Literal["auto"] = "auto"
    gpus_per_actor: float | Literal["auto"] = "auto"
    attempts: int = Field(default=3, ge=1, description="tries per shard before the run fails with its name")
    autoscaling: bool = Field(default=False, description="the cluster may grow: wait for actors instead of refusing")
    start_timeout: float = Field(default=300, gt=0, description="seconds an actor may take to start")
    features: list[Feature] | None = Field(default=None, description="default: what the method needs")
    on_bad_item: Literal["error", "exclude"] = "error"

    @field_validator("actors")
    @classmethod
    def _at_least_one(cls, value: Any) -> Any:
        if value != "auto" and value < 1:
            raise ValueError("give at least 1, or auto")
        return value


class SampleSpec(BaseModel):
    """The method, its budget, and the method's own parameters beside them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    method: str = "ces"
    budget: int | None = None

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

    formats: list[Literal["jsonl", "csv"]] = ["jsonl", "csv"]
    show_prediction: bool = Field(default=False, description="an annotator who sees the answer tends to agree with it")


class Spec(_Section):
    """One audit."""

    name: str
    seed: int = Field(default=0, ge=0)
    pool: PoolSpec
    model: ModelSpec
    transform: str | None = Field(default=None, description="module:function: decoded example -> model input")
    extract: ExtractSpec = ExtractSpec()
    sample: SampleSpec = SampleSpec()
    manifest: ManifestSpec = ManifestSpec()
    output: str

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
    def _extracts_what_the_method_needs(self) -> "Spec":
        self.features()
        return self

    def features(self) -> tuple[str, ...]:
        """Features to extract: what the spec names, else what the method needs, and always the prediction."""
        sampler = find_method(self.sample.method)
        needed = sampler.needs(parse_parameters(self.sample.method, self.sample.parameters))
        named = self.extract.features
        every: list[str] = ["hidden", "output", "confidence"] if named is None else list(named)
        if self.model.task == "regression":
            every = [name for name in every if name != "confidence"]
        missing = [name for name in needed if name not in every]
        if missing:
            why = _why(self, missing[0])
            raise SpecError(f"sample.method {self.sample.method!r} needs {missing[0]}, which is not extracted: {why}")
        return tuple(dict.fromkeys([*every, "prediction"]))

    def identity(self) -> dict[str, Any]:
        """All that decides the result. Where and how fast it is computed is left out."""
        content = self.model_dump(exclude={"output"})
        for key in ("actors", "gpus_per_actor", "attempts", "autoscaling", "start_timeout"):
            del content["extract"][key]
        return content


def _why(spec: Spec, feature: str) -> str:
    if feature == "confidence" and spec.model.task == "regression":
        return "a regression has no confidence; choose srs or ces"
    return f"add {feature} to extract.features"


def load_spec(path: str | Path) -> Spec:
    """Read a spec from a YAML file; raises SpecError naming key, value and fix."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"there is no spec at {path}; give the path of a YAML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the spec {path} cannot be read: {error}") from None
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SpecError(f"the spec {path} is not YAML: {' '.join(str(error).split())}") from None
    return parse_spec(content, str(path))


def parse_spec(content: Any, source: str) -> Spec:
    """Validate the content of a spec; ``source`` names it in errors."""
    if not isinstance(content, dict):
        raise SpecError(f"{source} holds {type(content).__name__}, not the mapping of keys that a spec is")
    try:
        return Spec.model_validate(content)
    except ValidationError as error:
        problems = sorted(
            error.errors(), key=lambda problem: problem["type"] != "extra_forbidden"
        )  # a typo explains more
        raise SpecError(f"{source}: {_sentence(problems[0])}") from None


def load_function(name: str, key: str) -> Any:
    """The callable that ``module:function`` under the spec's ``key`` names."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise SpecError(f"{key}: {name!r} cannot be imported ({error}); run where the module is on the path") from None
    except AttributeError:
        raise SpecError(f"{key}: module {module!r} has no {function!r}") from None
    if not callable(found):
        raise SpecError(f"{key}: {name!r} is a {type(found).__name__}, not a function")
    return found


def _function_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("write module:function, such as mypkg.models:lenet5")
    return value


def _sentence(problem: Any) -> str:
    """One sentence of a pydantic problem: the key, the value and what to give instead."""
    place = ".".join(str(part) for part in problem["loc"] if part not in ("int", "float", "literal['auto']"))
    if problem["type"] == "extra_forbidden":
        near = get_close_matches(str(problem["loc"][-1]), _keys_beside(problem["loc"]), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_keys_beside(problem['loc']))}"
        return f"unknown key {place!r} (value {_short(problem['input'])}); {hint}"
    if problem["type"] == "missing":
        return f"key {place!r} is missing; add it"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{place or 'the spec'}: {message} (value {_short(problem['input'])})"


def _keys_beside(location: tuple[Any, ...]) -> list[str]:
    model: type[BaseModel] = Spec
    for part in location[:-1]:
        model = model.model_fields[part].annotation  # type: ignore[assignment]
    return list(model.model_fields)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
