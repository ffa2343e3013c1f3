"""The model under audit: ``model``."""

import re
from collections import Counter
from typing import Any, Literal
from unicodedata import normalize

from pydantic import Field, field_validator, model_validator

from opacc_ray.spec.validation import FunctionName, Section, function_name

WAYS = ("factory", "program", "function")
"""Keys that name a model; a spec has one of them."""


def plain_name(text: str) -> str:
    """Return the name of a class in normal form: stripped, with composed accents."""
    return normalize("NFC", text.strip())  # macOS may separate an accent from its letter


class ModelSpec(Section):
    """The model under audit."""

    factory: str | None = Field(
        default=None, description="module:function that returns the torch module; weights are loaded after"
    )
    program: str | None = Field(
        default=None, description="alternative: URI of a TorchScript file, or a .pt2 of torch.export; needs trust"
    )
    function: FunctionName | None = Field(
        default=None, description="alternative: module:function that maps a batch to arrays, in any framework"
    )
    trust: bool = Field(default=False, description="allow the program to run: its file is code")
    arguments: dict[str, Any] = Field(default={}, description="keyword arguments of the factory or the function")
    weights: str | None = Field(default=None, description="URI of a safetensors file or a state dict")
    sha256: str | None = Field(default=None, description="expected digest of the weights")
    hidden_layer: str | None = Field(
        default=None,
        description="dotted name of the layer whose output is stored; default: input of the last Linear",
    )
    task: Literal["classification", "regression"] = Field(
        default="classification", description="a class per example, or one number per example"
    )
    output: Literal["logits", "probabilities", "logit", "probability"] = Field(
        default="logits",
        description="type of the last layer's output; logit and probability: one value, for a binary model",
    )
    threshold: float = Field(default=0.5, gt=0, lt=1, description="binary model: least probability for class 1")
    classes: list[str] | None = Field(default=None, description="class names for annotators, in the model's order")
    error_scale: float = Field(
        default=1.0, gt=0, description="regression: score = max(0, 1 - (error / scale)²), unless score says otherwise"
    )

    def name_of(self, prediction: Any) -> str:
        """Return the name of a predicted class, or its number."""
        return self.classes[prediction] if self.classes else str(prediction)

    @field_validator("factory")
    @classmethod
    def _names_a_function(cls, value: str | None) -> str | None:
        return value if value is None or re.fullmatch(r"(timm|hf):\S+", value) else function_name(value)

    @model_validator(mode="after")
    def _is_one_model(self) -> "ModelSpec":
        ways = [key for key in WAYS if getattr(self, key) is not None]
        if len(ways) > 1:
            raise ValueError(f"{ways[0]} and {ways[1]} both name a model; remove one")
        if self.program is not None and not self.trust:
            raise ValueError("a program is code with your permissions; set trust: true if you trust its source")
        unused = next((key for key in ("weights", "hidden_layer") if getattr(self, key)), None)
        if unused and ways and ways[0] != "factory":
            raise ValueError(f"{unused} is only supported for a factory; a {ways[0]} has its own, so remove it")
        if self.arguments and ways == ["program"]:
            raise ValueError("arguments are only supported for a factory or a function; remove them")
        return self

    @field_validator("classes")
    @classmethod
    def _are_distinct(cls, value: list[str] | None) -> list[str] | None:
        plain = Counter(map(plain_name, value or []))
        twice = [name for name, count in plain.items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} appears twice, apart from spaces and accents; give each class its own name")
        if "" in plain:
            raise ValueError("a class has an empty name, which would stand for a missing label; name it")
        return value

    @field_validator("sha256")
    @classmethod
    def _is_a_digest(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", value):
            raise ValueError("give the 64 hexadecimal digits that sha256sum prints")
        return value.lower() if value else value
