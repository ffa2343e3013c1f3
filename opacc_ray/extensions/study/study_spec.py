"""Define the spec of a study: cases, methods, budgets, repetitions, from YAML or from the command line.

methods:
  - srs
  - "ces:objective=kl,initial=5"                             # as on the command line
  - {method: neyman, rounds: 4}                              # the budget in four rounds of 10, 20, 30 and 40 %
  - {method: deepreduce, coverage: false, budget: itself, repetitions: 1, label: DeepReduce}
  - {method: srs, budget: as DeepReduce}                     # as many labels as that method chose on the same case
"""

import json
import re
from itertools import accumulate
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from opacc_ray.documents import Section
from opacc_ray.errors import SpecError
from opacc_ray.extensions.case_files import stem_of
from opacc_ray.extensions.study.f_measures import weight_of
from opacc_ray.extensions.study.peers import PEERS
from opacc_ray.metrics.metric import ACCURACY, AVERAGES, CLASS_METRICS, parse_metric
from opacc_ray.neurons.requirements import Criterion
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.samplers.base import MethodParameters

ITSELF, AS = "itself", "as "
"""Budgets of a method that stops by itself, and of one that takes as many labels as another chose."""


def _else(message: str) -> WrapValidator:
    """Return a validator that states ``message`` for what does not fit."""

    def validate(value: Any, fit: ValidatorFunctionWrapHandler) -> Any:
        try:
            return fit(value)
        except ValidationError:
            raise ValueError(message) from None

    return WrapValidator(validate)


def _checked_criterion(text: str) -> str:
    """Return a coverage criterion that the layers of a case suffice for; raises SpecError for any other."""
    criterion = Criterion.parse(text)
    if criterion.needs_ranges:
        raise SpecError(
            f"coverage {text!r} needs ranges over training data, which a case does not have; give nc or tknc"
        )
    return str(criterion)


Coverage = Annotated[str, AfterValidator(_checked_criterion)]
"""A coverage criterion."""


class Subpools(Section):
    """Pools of fewer examples, drawn at random from a case."""

    size: int = Field(ge=2)  # examples of each
    number: int = Field(default=30, ge=1)  # number of pools


class CaseSpec(Section):
    """A file whose examples are all labelled, or a folder of such files."""

    path: str  # URI of a .npz, .csv or .parquet file, or of a folder of such files
    name: str | None = None  # how tables and figures call it; default: the name of the file
    columns: dict[str, str] | None = None  # default: those of the study
    error_scale: float | None = Field(default=None, gt=0)  # default: that of the study
    coverage: Coverage | None = None  # default: that of the study

    def name_of(self, uri: str, *, is_alone: bool) -> str:
        """Return the name of a file of the case; ``is_alone`` says whether it is the only one."""
        if is_alone:
            return self.name or stem_of(uri)
        return f"{self.name}-{stem_of(uri)}" if self.name else stem_of(uri)

    @field_validator("name")
    @classmethod
    def _names_a_file(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[^/\\.][^/\\]{0,99}", value):
            raise ValueError("must not contain '/' or start with '.', because it becomes a file name")
        return value


def _paths_as_cases(value: Any) -> Any:
    return [{"path": item} if isinstance(item, str) else item for item in value] if isinstance(value, list) else value


Cases = Annotated[list[CaseSpec], BeforeValidator(_paths_as_cases)]
"""Cases, each a path or the keys of a case."""


class MethodSpec(Section):
    """A method, how it is run, and the method's own parameters."""

    model_config = ConfigDict(extra="allow")  # parameters of the method

    method: str  # one of `opacc methods`, or of the methods of others
    # number of rounds, which grow as 1, 2, 3, …; or a list of their shares
    rounds: Annotated[
        PositiveInt | Annotated[list[PositiveFloat], Field(min_length=1)],
        _else("give a number of rounds, or a list of their shares such as [1, 1, 2]"),
    ] = 1
    repetitions: int | None = Field(default=None, ge=1)  # default: those of the study
    # number of labels; `itself`: by the method's own stopping rule; `as LABEL`: as many as the method with that label
    # chose on the case; default: the budgets of the study
    budget: Annotated[
        PositiveInt | Annotated[str, Field(pattern=rf"^({ITSELF}|{AS}\s*\S.*)$")] | None,
        _else(f"give a number of labels, `{ITSELF}`, or `as LABEL` with the label of another method"),
    ] = None
    label: str | None = None  # how tables call it; default: method and parameters

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def design(self) -> str:
        """Method, parameters and rounds, which decide the examples and the estimate."""
        own = {"rounds": self.rounds} if len(self.shares) > 1 else {}
        stated = ",".join(f"{name}={_plain(value)}" for name, value in sorted((self.parameters | own).items()))
        return f"{self.method}:{stated}" if stated else self.method

    @property
    def name(self) -> str:
        return self.label or (self.design if self.budget is None else f"{self.design}, {self.budget}")

    @property
    def leader(self) -> str | None:
        """Label of the method whose number of labels this one takes; None: it has a number of its own."""
        return self.budget[len(AS) :].strip() if isinstance(self.budget, str) and self.budget != ITSELF else None

    @property
    def shares(self) -> list[float]:
        """Size of each round, in any unit."""
        return list(self.rounds) if isinstance(self.rounds, list) else list(range(1, self.rounds + 1))

    def batches(self, budget: int | None) -> list[int | None]:
        """Split the budget in rounds; raise SpecError if a round gets no label, or a peer fewer than it needs.

        A method that stops by itself has one round, and no budget.
        """
        if budget is None:
            return [None]
        least = PEERS[self.method].least if self.method in PEERS else 1
        if budget < least:
            raise SpecError(
                f"budget={budget} of method {self.name!r}: its variance needs {least} labels; "
                f"give at least {least}, or remove the method"
            )
        ends = [round(budget * end / sum(self.shares)) for end in accumulate(self.shares)]
        sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        if min(sizes) < 1:
            raise SpecError(
                f"budget={budget} in rounds={self.rounds} of method {self.name!r} gives batches of {sizes} labels: "
                "raise the budget or take fewer rounds"
            )
        return list(sizes)

    @model_validator(mode="after")
    def _fits_the_method(self) -> "MethodSpec":
        if self.budget == ITSELF and (self.method in PEERS or len(self.shares) > 1 or not self._parsed().stops_itself):
            raise ValueError(
                f"budget={ITSELF} of method {self.name!r}: only deepreduce, and ces with stop_at_kl, stop by "
                "themselves, in one round; give a number of labels"
            )
        if self.method in PEERS:
            for name in (*self.parameters, *["rounds"] * (len(self.shares) > 1)):
                raise ValueError(f"{name} of method {self.method!r}: it runs as in its paper, in one round; remove it")
            return self
        self._parsed()
        return self

    def _parsed(self) -> MethodParameters:
        find_method(self.method, others=PEERS)
        return parse_parameters(self.method, self.parameters)


class StudySpec(Section):
    """One study: every method at every budget on every case, repeated."""

    # examples that are all labelled: paths of files or folders, or mappings with the keys of a case
    cases: Cases = Field(min_length=1)
    # what is compared: lines such as neyman:rounds=4, or mappings with the keys of a method
    methods: list[MethodSpec] = Field(min_length=1)
    # numbers of labels, each tried with every method that has no budget of its own
    budgets: Annotated[
        list[PositiveInt],
        AfterValidator(lambda value: sorted(set(value))),
        _else("give numbers of labels, at least 1 each"),
    ] = Field(default=[])
    paper: str | None = None  # experiments of a paper to report, as of `opacc study --as`
    divergence: bool = False  # also measure the KL divergence of the output layer between pool and chosen examples
    # coverage criterion such as nc:0.5, computed from the hidden and the output layer of cases without coverage
    coverage: Coverage | None = None
    subpools: Subpools | None = None  # draw pools of fewer examples from each case, and study those instead
    # specs of audits (.yaml): cases are then .npz files with images x and label or target, and each model sees them in
    # this process
    models: list[str] = Field(default=[])
    # what is estimated: accuracy, macro_f1, macro_recall, macro_precision, or a metric of one class such as f1@CLASS,
    # precision@CLASS or recall@CLASS; all but the accuracy need label and prediction
    metric: str = ACCURACY
    # column of the cases, or several crossed as sex*race: the metric in each slice. Then measures are means over the
    # slices, and the coverage is the least of a slice
    by: str | None = None
    repetitions: int = Field(default=1000, ge=1)  # draws of each method at each budget on each case
    seed: int = Field(default=0, ge=0)  # of every random draw: the same seed, the same results
    level: float = Field(default=0.95, gt=0, lt=1)  # confidence level of the intervals that are checked
    columns: dict[str, str] = Field(default={})  # field -> column, where the column has another name
    # regression: score = 1 - (error / scale)²; default: the case's largest error
    error_scale: float | None = Field(default=None, gt=0)
    output: str = "study"  # folder or prefix of the results
    workers: int | None = Field(default=None, ge=1)  # tasks at a time; default: the cluster's CPUs

    @field_validator("methods", mode="before")
    @classmethod
    def _texts_are_methods(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [parse_method(item) if isinstance(item, str) else item for item in value]

    @field_validator("methods")
    @classmethod
    def _have_names(cls, value: list[MethodSpec]) -> list[MethodSpec]:
        for place, method in enumerate(value):
            if method.name in [other.name for other in value[:place]]:
                raise ValueError(f"two methods are called {method.name!r}; remove one, or give it another label")
        return value

    @field_validator("metric")
    @classmethod
    def _is_known(cls, value: str) -> str:
        metric = parse_metric(value)
        if metric.name not in (ACCURACY, *AVERAGES, *CLASS_METRICS) and weight_of(metric.name) is None:
            raise ValueError(f"a study knows no true {metric.name}; give accuracy, macro_f1 or f1@CLASS")
        return str(metric)

    @model_validator(mode="after")
    def _have_budgets(self) -> "StudySpec":
        free = next((method.name for method in self.methods if method.budget is None), None)
        if free and not self.budgets:
            raise ValueError(f"no budgets given; add --budget 100, because method {free!r} has no budget of its own")
        leaders = [method.name for method in self.methods if method.leader is None and method.budget is not None]
        for method in self.methods:
            if method.leader is not None and method.leader not in leaders:
                near = f"; such methods are {', '.join(leaders)}" if leaders else ""
                raise ValueError(
                    f"budget of method {method.name!r}: no method with a budget of its own has the label "
                    f"{method.leader!r}{near}"
                )
        return self


def parse_method(text: str) -> dict[str, Any]:
    """Parse ``neyman:rounds=4,floor=0.2`` to the content of a :class:`MethodSpec`; values are YAML."""
    method, _, rest = text.partition(":")
    content: dict[str, Any] = {"method": method.strip()}
    for item in re.split(r",(?=\s*\w+\s*=)", rest) if rest.strip() else []:
        name, separator, value = item.partition("=")
        if not separator:
            raise SpecError(f"method {text!r}: write METHOD:NAME=VALUE,NAME=VALUE, such as neyman:rounds=4")
        try:
            is_power = re.fullmatch(r"\s*[-+]?\d+e[-+]?\d+\s*", value)  # such as 1e-3, which YAML reads as text
            content[name.strip()] = float(value) if is_power else yaml.safe_load(value)
        except yaml.YAMLError:
            raise SpecError(f"method {text!r}: the value {value!r} of {name.strip()!r} is not YAML") from None
    return content


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
