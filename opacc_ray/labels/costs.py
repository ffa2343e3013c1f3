"""What errors cost: a YAML file in, costs by the names of classes out.

    6: 10                # true class: what every error on it costs
    shirt:               # true class: what it costs to take it for
      coat: 2
      dress: 0.5

Classes are named as labels name them. An error that the file does not name costs 1, a correct answer nothing.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opacc_ray.errors import SpecError
from opacc_ray.labels.messages import quoted
from opacc_ray.labels.outcomes import find_class, why_no_class
from opacc_ray.spec import ModelSpec, read_yaml

Costs = dict[str, float | dict[str, float]]
"""True class -> the cost of missing it, or -> predicted class -> the cost of that confusion."""


def load_costs(path: str | Path, model: ModelSpec, num_classes: int | None = None) -> Costs:
    """Read costs, by the names that the run's labels and predictions have.

    Parameters
    ----------
    path : of the YAML file
    model : whose errors they are
    num_classes : how many classes it tells apart, if that is known

    Raises
    ------
    SpecError
        The model is a regression, a name is no class, or a cost is no finite number of at least 0.
    """
    if model.task == "regression":
        raise SpecError("costs are of taking one class for another, and a regression has none; leave --costs out")
    file = _File(str(path), model, num_classes)
    costs: Costs = {}
    for true, item in file.by_class(read_yaml(path, "file of costs"), "costs").items():
        if isinstance(item, dict):
            confused = file.by_class(item, f"what {true!r} is taken for")
            costs[true] = {said: file.cost(value, true, said) for said, value in confused.items()}
        else:
            costs[true] = file.cost(item, true)
    return costs


@dataclass(frozen=True)
class _File:
    """Where the costs stand, and which classes there are."""

    path: str
    model: ModelSpec
    num_classes: int | None

    def by_class(self, content: Any, what: str) -> dict[str, Any]:
        """A mapping under the names of its classes."""
        if not isinstance(content, dict) or not content:
            classes = self.model.classes or ["3"]
            raise SpecError(f"{self.path}: {what} must be lines of class and cost, such as {classes[0]}: 10")
        named: dict[str, Any] = {}
        for key, value in content.items():
            name = self._name(key)
            if name in named:
                raise SpecError(f"{self.path}: the class {name!r} appears twice; keep one of its lines")
            named[name] = value
        return named

    def cost(self, value: Any, true: str, said: str | None = None) -> float:
        place = f"the cost of missing {true!r}" if said is None else f"the cost of taking {true!r} for {said!r}"
        if true == said:
            raise SpecError(f"{self.path}: {true!r} taken for itself is no error, and costs nothing; remove that line")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise SpecError(f"{self.path}: {place} is {value!r}; give a finite number of at least 0")
        return float(value)

    def _name(self, key: Any) -> str:
        if isinstance(key, bool) or not isinstance(key, str | int | float):
            raise SpecError(f"{self.path}: YAML reads the name of a class as {key!r}; put quotes around it")
        found = find_class(str(key), self.model.classes)
        if found is None:
            raise SpecError(f"{self.path} names {quoted(str(key))}, {why_no_class(str(key), self.model.classes)}")
        if self.num_classes is not None and found >= self.num_classes:
            raise SpecError(f"{self.path}: the class {found} is none of the model's, 0 to {self.num_classes - 1}")
        return self.model.name_of(found)
