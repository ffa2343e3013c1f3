"""Names of numbers in a spec: ``macro_f1``, ``{recall: stop_sign}`` and slices; as text ``recall@stop_sign``."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from opacc_ray.errors import SpecError, shown
from opacc_ray.estimators.metrics import ACCURACY, AVERAGES, Metric, find_place, is_of_class, parse_metric
from opacc_ray.estimators.scores import SCORES
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH
from opacc_ray.spec.model_spec import ModelSpec, plain_name


def metric_texts(given: Any) -> list[str]:
    """Return metrics as text, with the class after ``@``; raises ValueError for one that there is not."""
    texts = _texts(given)
    found = [str(_parsed(text)) for text in texts]
    if twice := [text for text, num in Counter(found).items() if num > 1]:
        raise ValueError(f"{twice[0]} appears twice; remove one")
    return found


def served_texts(given: Any) -> list[str]:
    """Return numbers to serve as text: metrics with the class after ``@``, slices as they are."""
    return [str(_parsed(text)) if is_of_class(text) else text for text in _texts(given)]


def _texts(given: Any) -> list[str]:
    items = given if isinstance(given, list | tuple) else [given]
    found = []
    for item in items:
        pair = isinstance(item, dict) and len(item) == 1
        name, positive = next(iter(item.items())) if pair else (item, None)
        if not isinstance(name, str) or isinstance(positive, dict | list) or (pair and positive is None):
            raise ValueError(f"{shown(item)} is no number to state; write accuracy, macro_f1 or {{recall: CLASS}}")
        found.append(name if positive is None else f"{name}@{positive}")
    return found


def _parsed(text: str) -> Metric:
    try:
        return parse_metric(text)
    except SpecError as error:
        raise ValueError(str(error)) from None


def check_metrics(metrics: Sequence[str], model: ModelSpec) -> None:
    """Raise SpecError for a metric of a class that the model does not have."""
    for text in metrics:
        _check(text, model, "metrics")


def check_served(numbers: Sequence[str], model: ModelSpec, slices: Sequence[str]) -> None:
    """Raise SpecError for a number to serve that the model and its pool do not have."""
    for text in numbers:
        if is_of_class(text) or text in AVERAGES:
            _check(text, model, "sample.serve")
        elif text in (BY_PREDICTION, BY_TRUTH) and model.task == "regression":
            raise SpecError(f"sample.serve: {text} needs classes, and model.task is regression; remove it")
        elif text not in (ACCURACY, *SCORES, BY_PREDICTION, BY_TRUTH, *slices):
            known = ", ".join([ACCURACY, *AVERAGES, *SCORES, BY_PREDICTION, BY_TRUTH, *slices])
            raise SpecError(
                f"sample.serve: {shown(text)} is no number to serve; choose one of {known}, a metric of a class such "
                "as {recall: CLASS}, or add it to pool.slices"
            )


def _check(text: str, model: ModelSpec, key: str) -> None:
    if text != ACCURACY and model.task == "regression":
        raise SpecError(f"{key}: {text} is only supported for classification, and model.task is regression; remove it")
    if is_of_class(text):
        try:
            place_of(text, model)
        except SpecError as error:
            raise SpecError(f"{key}: {error}") from None


def place_of(text: str, model: ModelSpec) -> int:
    """Return the place of the class of a metric; raises SpecError if the model has no such class."""
    metric = parse_metric(text)
    if model.classes:
        positive = None if metric.positive is None else plain_name(metric.positive)
        return find_place(metric._replace(positive=positive), list(map(plain_name, model.classes)))
    if not (metric.positive or "").isdecimal():
        given = "names no class" if metric.positive is None else f"has the class {shown(metric.positive)}"
        raise SpecError(f"metric {text} {given}, and classes have no names; give its number, as in {metric.name}@3")
    return int(str(metric.positive))


def in_places(numbers: Sequence[str], model: ModelSpec) -> list[str]:
    """Return numbers with the place of each class instead of its name."""
    return [f"{parse_metric(text).name}@{place_of(text, model)}" if is_of_class(text) else text for text in numbers]
