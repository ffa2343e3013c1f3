"""Costs of errors, read from a YAML file.

    6: 10                # true class: the cost of every error on it
    shirt:               # true class: the cost of each predicted class
      coat: 2
      dress: 0.5

Classes are named as in labels. An error that is not in the file costs 1, a correct prediction nothing.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opacc_ray.errors import SpecError
from opacc_ray.labels.label_rows import find_class, quoted, why_no_class
from opacc_ray.spec import ModelSpec, read_yaml

Costs = dict[str, float | dict[str, float]]
"""True class → cost of every error on it, or → predicted class → cost of that confusion."""


def load_costs(path: str | Path, model: ModelSpec, num_classes: int | None = None) -> Costs:
    """Read costs, by the class names of the run's labels and predictions.

    ``num_classes`` is the number of classes of the run's model, if that is known. Raises SpecError if the model is a
    regression, if a name is no class, or if a cost is no finite number of at least 0.
    """
    if not model.has_classes:
        raise SpecError(f"--costs is only supported for classification, and the task is {model.task}; remove it")
    file = _File(str(path), model, num_classes)
    costs: Costs = {}
    for true, item in file.by_class(read_yaml(path, "file of costs"), "costs").items():
        if isinstance(item, dict):
            confused = file.by_class(item, f"the costs of {true!r}")
            costs[true] = {predicted: file.cost(value, true, predicted) for predicted, value in confused.items()}
        else:
            costs[true] = file.cost(item, true)
    return costs


@dataclass(frozen=True)
class _File:
    """A file of costs, and the classes that it may name."""

    path: str
    model: ModelSpec
    num_classes: int | None

    def by_class(self, content: Any, what: str) -> dict[str, Any]:
        """Return a mapping with canonical class names as keys."""
        if not isinstance(content, dict) or not content:
            classes = self.model.classes or ["3"]
            raise SpecError(f"{self.path}: {what} must have lines with a class and a cost, such as {classes[0]}: 10")
        named: dict[str, Any] = {}
        for key, value in content.items():
            name = self._name(key)
            if name in named:
                raise SpecError(f"{self.path}: the class {name!r} appears twice; keep one of its lines")
            named[name] = value
        return named

    def cost(self, value: Any, true: str, predicted: str | None = None) -> float:
        """Return a cost as a number of at least 0."""
        of = f"errors on {true!r}" if predicted is None else f"predicting {predicted!r} for {true!r}"
        if true == predicted:
            raise SpecError(f"{self.path}: predicting {true!r} for {true!r} is no error; remove that line")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise SpecError(f"{self.path}: the cost of {of} is {value!r}; give a finite number of at least 0")
        return float(value)

    def _name(self, key: Any) -> str:
        if isinstance(key, bool) or not isinstance(key, str | int | float):
            raise SpecError(f"{self.path}: YAML parses the name of a class as {key!r}; put quotes around it")
        found = find_class(str(key), self.model.classes)
        if found is None:
            raise SpecError(f"{self.path} names {quoted(str(key))}, {why_no_class(str(key), self.model.classes)}")
        if self.num_classes is not None and found >= self.num_classes:
            raise SpecError(f"{self.path}: the class {found} is none of the model's, 0 to {self.num_classes - 1}")
        return self.model.name_of(found)
