"""Metrics and served numbers in a spec: their texts, their classes, and what identity and draws make of them."""

import re
from typing import Any

import pytest

from opacc_ray.errors import SpecError
from opacc_ray.spec import Spec, parse_spec


def spec_of(metrics: Any = (), sample: dict[str, Any] | None = None, **model: Any) -> Spec:
    content = {
        "name": "digits",
        "pool": {"uri": "pool", "format": "images", "slices": ["folder"]},
        "model": {"factory": "user:network", "classes": ["defect", "fine", "stop sign"]} | model,
        "sample": {"method": "neyman", "budget": 40} | (sample or {}),
        "output": "audits",
    }
    return parse_spec(content | ({"metrics": metrics} if metrics else {}), "spec")


def test_of_two_classes_the_second_is_meant() -> None:
    spec = spec_of(["f1"], classes=["fine", "defect"])
    assert spec.drawn_with("neyman", {}) == {"serve": ["f1@1"]}


@pytest.mark.parametrize(
    ("sample", "metrics", "serve"),
    [
        ({}, [], None),
        ({}, ["accuracy", "macro_f1"], ["accuracy"]),
        ({}, [{"recall": "stop sign"}, "accuracy"], ["recall@2"]),
        ({"serve": ["accuracy", "folder", {"f1": "fine"}]}, [{"recall": "stop sign"}], ["accuracy", "folder", "f1@1"]),
        ({"serve": "truth"}, ["macro_f1"], ["truth"]),
    ],
)
def test_first_metric_is_served_unless_the_sample_names_others(
    sample: dict[str, Any], metrics: list[Any], serve: list[str] | None
) -> None:
    spec = spec_of(metrics, sample)
    assert spec.drawn_with("neyman", spec.sample.parameters).get("serve") == serve
    assert spec.drawn_with("srs", {"replacement": True}) == {"replacement": True}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"metrics": ["roc"]}, "metrics: metric 'roc': choose one of accuracy, macro_f1"),
        ({"metrics": [{"f1": "defekt"}]}, "metrics: metric f1@defekt has the class \"defekt\"; did you mean 'defect'?"),
        ({"metrics": ["f1"]}, "metrics: metric f1 names no class; give one of defect, fine, stop sign"),
        ({"metrics": [["f1", "defect"]]}, "is no number to state; write accuracy, macro_f1 or {recall: CLASS}"),
        ({"metrics": [{"f1": None}]}, "is no number to state"),
        ({"metrics": [{"f1": False}]}, "YAML parses the class of f1 as False; put quotes around it"),
        ({"metrics": ["macro_f1", "Macro_F1"]}, "metrics: macro_f1 appears twice; remove one"),
        ({"metrics": ["macro_f1"], "task": "regression", "classes": None}, "only supported for classification"),
        ({"metrics": ["f1@x"], "classes": None}, "classes have no names; give its number, as in f1@3"),
        ({"sample": {"serve": ["camera"]}}, 'sample.serve: "camera" is no number to serve; choose one of accuracy'),
        ({"sample": {"serve": ["f1@fin"]}}, "sample.serve: metric f1@fin has the class \"fin\"; did you mean 'fine'?"),
        ({"sample": {"method": "srs", "serve": ["truth"]}}, "method 'srs' has no parameter 'serve'"),
    ],
)
def test_what_there_is_not_is_refused_in_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=re.escape(words)):
        spec_of(**given)
