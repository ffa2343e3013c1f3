"""The sections of a spec apart from the pool: ``model``, ``extract``, ``sample``, ``manifest``, ``labels``, ``score``.

Also the keys ``metrics`` and ``goal``. A metric is ``macro_f1`` or ``{recall: stop_sign}``; as text,
``recall@stop_sign``.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar
from unicodedata import normalize

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from opacc_ray.documents import Section
from opacc_ray.errors import SpecError, shortened, shown
from opacc_ray.metrics.metric import ACCURACY, AVERAGES, ERRORS, Metric, find_place, is_of_class, parse_metric
from opacc_ray.metrics.scores import SCORES
from opacc_ray.neurons.requirements import Criterion
from opacc_ray.pool import OF_CLASSES
from opacc_ray.samplers import parse_parameters
from opacc_ray.spec.validation import FunctionName, function_name, read_share, share_of

WAYS = ("factory", "program", "function")
"""Keys that name a model; a spec has one of them."""

SCALES = {
    "verdict": {"right": 1.0, "partly": 0.5, "wrong": 0.0},
    "1-5": {"1": 0.0, "2": 0.25, "3": 0.5, "4": 0.75, "5": 1.0},
    "preference": {"first": 1.0, "tie": 0.5, "second": 0.0},
}
"""Grades that people or machines give an answer, with the outcome that each one is."""

SEPARATOR, NONE, MOST_TOGETHER = "|", "none", 52
"""Between the names of several classes, the name of no class, and how many classes a set may be of."""

_ROW = ("id", "uri", "label", "annotator", "status", "run", "round", "order", "labelled_at", "prediction", "note")
"""Columns of a file of labels that are no counts."""

SCORE = "score"  # the scale of numbers from 0 to 1


def plain_name(text: str) -> str:
    """Return the name of a class in normal form: stripped, with composed accents."""
    return normalize("NFC", text.strip())  # macOS may separate an accent from its letter


def _factory(name: str) -> str:
    return name if re.fullmatch(r"(timm|hf):\S+", name) else function_name(name)


def _digest(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError("give the 64 hexadecimal digits that sha256sum prints")
    return text.lower()


def _distinct(classes: list[str]) -> list[str]:
    plain = Counter(map(plain_name, classes))
    twice = [name for name, count in plain.items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} appears twice, apart from spaces and accents; give each class its own name")
    if "" in plain:
        raise ValueError("a class has an empty name, which would stand for a missing label; name it")
    if damaged := [name for name in plain if "\0" in name]:
        raise ValueError(f"the class {damaged[0]!r} has a byte 0, as a damaged file has; repair the predictions")
    return classes


def _grades(value: Any) -> Any:
    """Return a scale, or grades with their outcomes."""
    if isinstance(value, str):
        if value not in (*SCALES, SCORE):
            raise ValueError(f"use {', '.join((*SCALES, SCORE))}, or a grade for each outcome: {{good: 1, bad: 0}}")
        return value
    for name in value if isinstance(value, dict) else ():
        if name is None or isinstance(name, bool):
            raise ValueError(f"YAML parses the name of a grade as {name!r}; put quotes around it")
    found = {str(name).strip(): outcome for name, outcome in value.items()} if isinstance(value, dict) else {}
    fit = (isinstance(outcome, int | float) and not isinstance(outcome, bool) for outcome in found.values())
    if "" in found or len(found) < 2 or not all(fit) or {min(found.values()), max(found.values())} != {0, 1}:
        raise ValueError("give grades with outcomes from 0 to 1, the worst 0 and the best 1, such as {good: 1, bad: 0}")
    return {name: float(outcome) for name, outcome in found.items()}


def _count_names(names: list[str]) -> list[str]:
    unfit = next((name for name in names if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or name in _ROW), None)
    if unfit is not None:
        raise ValueError(f"{unfit!r} is no name of a count; use a-z, 0-9 and '_', and none of {', '.join(_ROW)}")
    return _distinct(names)


class ModelSpec(Section):
    """The model under audit."""

    # name of the model in results over time, the same for all its versions; default: its factory, program or function
    # with its weights, or the column of its predictions
    name: str | None = Field(default=None, min_length=1)
    # module:function that returns the torch module; weights are loaded after
    factory: Annotated[str, AfterValidator(_factory)] | None = None
    program: str | None = None  # alternative: URI of a TorchScript file, or a .pt2 of torch.export; needs trust
    function: FunctionName | None = None  # alternative: module:function that maps a batch to arrays, in any framework
    trust: bool = False  # allow the program to run: its file is code
    arguments: dict[str, Any] = Field(default={})  # keyword arguments of the factory or the function
    weights: str | None = None  # URI of a safetensors file or a state dict
    sha256: Annotated[str, AfterValidator(_digest)] | None = None  # expected digest of the weights
    # dotted name of the layer whose output is stored; default: input of the last Linear
    hidden_layer: str | None = None
    # a class per example, any number of classes, one number, any answer, which annotators see and grade, or counts of
    # what is right and wrong in an example, such as the boxes of an image
    task: Literal["classification", "multilabel", "regression", "grade", "counts"] = "classification"
    # counts: their names, as columns of a file of labels have them, such as [tp, fp, fn]; the first of metrics is the
    # score of an example
    counts: Annotated[list[str], AfterValidator(_count_names)] | None = None
    # grade: verdict (right, partly, wrong; the default), score (a number from 0 to 1), 1-5, preference (between two
    # answers), or own grades with their outcomes, such as {good: 1, fair: 0.6, bad: 0}
    grades: Annotated[str | dict[str, float], BeforeValidator(_grades)] | None = None
    # type of the last layer's output; logit and probability: one value, for a binary model
    output: Literal["logits", "probabilities", "logit", "probability"] = "logits"
    threshold: float = Field(default=0.5, gt=0, lt=1)  # binary model: least probability for class 1
    # class names for annotators, in the model's order
    classes: Annotated[list[str], AfterValidator(_distinct)] | None = None

    @property
    def has_classes(self) -> bool:
        """Whether predictions and labels are classes."""
        return self.task == "classification"

    @property
    def outcomes(self) -> dict[str, float] | None:
        """Outcome of each grade; None if there are no grades, or they are numbers from 0 to 1."""
        if self.task != "grade" or self.grades == SCORE:
            return None
        return SCALES[self.grades or "verdict"] if not isinstance(self.grades, dict) else self.grades

    @property
    def label_names(self) -> Sequence[str]:
        """Names of the classes or grades; empty if labels are numbers."""
        return self.classes or list(self.outcomes or ())

    @property
    def reads_numbers(self) -> bool:
        """Whether labels are numbers: values, or scores from 0 to 1."""
        return self.task == "regression" or (self.task == "grade" and self.outcomes is None)

    @property
    def prefers(self) -> bool:
        """Whether annotators choose between the answers of two models."""
        return self.task == "grade" and self.grades == "preference"

    @staticmethod
    def set_name(names: Sequence[str]) -> str:
        """Return the canonical form of several classes, in their order."""
        return SEPARATOR.join(names) or NONE

    def classes_in(self, text: str) -> list[str]:
        """Return the classes that a text names, in their order; raises ValueError for another name."""
        classes = {plain_name(name): name for name in self.classes or ()}
        named = [plain_name(part) for part in re.split(r"[|;,]", text) if part.strip()]
        if named == [NONE]:
            return []
        unknown = next((name for name in named if name not in classes), None)
        if unknown is not None:
            raise ValueError(unknown)
        return [name for plain, name in classes.items() if plain in named]

    def name_of(self, prediction: Any) -> str:
        """Return the name of a predicted class, or its number."""
        if self.task in ("grade", "counts"):
            return ""
        if self.task == "multilabel":
            return self.set_name(
                [name for place, name in enumerate(self.classes or ()) if int(prediction) >> place & 1]
            )
        return self.classes[prediction] if self.classes else str(prediction)

    @model_validator(mode="after")
    def _is_one_model(self) -> "ModelSpec":
        ways = [key for key in WAYS if getattr(self, key) is not None]
        if len(ways) > 1:
            raise ValueError(f"{ways[0]} and {ways[1]} both name a model; remove one")
        if self.program is not None and not self.trust:
            raise ValueError("a program is code with your permissions; set trust: true if you trust its source")
        if self.task == "multilabel":
            self._has_distinct_names()
        if self.task == "counts" and self.counts is None:
            raise ValueError("counts are missing, which task: counts needs; name them, as in counts: [tp, fp, fn]")
        unused = next((key for key in ("weights", "hidden_layer") if getattr(self, key)), None)
        if unused and ways and ways[0] != "factory":
            raise ValueError(f"{unused} is only supported for a factory; a {ways[0]} has its own, so remove it")
        if self.arguments and ways == ["program"]:
            raise ValueError("arguments are only supported for a factory or a function; remove them")
        return self

    def _has_distinct_names(self) -> None:
        """Raise ValueError unless the names of a multilabel model can be joined, and sets of them be one number."""
        if not self.classes:
            raise ValueError("classes are missing, which task: multilabel needs; name them")
        if len(self.classes) > MOST_TOGETHER:
            raise ValueError(f"task: multilabel supports {MOST_TOGETHER} classes, and there are {len(self.classes)}")
        unfit = next((name for name in self.classes if re.search(r"[|;,]", name) or plain_name(name) == NONE), None)
        if unfit is not None:
            raise ValueError(
                f"class {unfit!r}: with task: multilabel a name has no '|', ';' or ',' and is not {NONE!r}"
            )


# -- metrics ---------------------------------------------------------------------------------------------------


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
        if isinstance(positive, bool):
            raise ValueError(f"YAML parses the class of {name} as {positive}; put quotes around it")
        if not isinstance(name, str) or isinstance(positive, dict | list) or (pair and positive is None):
            raise ValueError(f"{shown(item)} is no number to state; write accuracy, macro_f1 or {{recall: CLASS}}")
        found.append(name if positive is None else f"{name}@{positive}")
    return found


def _parsed(text: str) -> Metric:
    try:
        return parse_metric(text)
    except SpecError as error:
        raise ValueError(str(error)) from None


def check_metrics(metrics: Sequence[str], model: ModelSpec, key: str = "metrics") -> None:
    """Raise SpecError for a number that a model does not have, or one of a class that it does not have."""
    for text in metrics:
        check_metric(parse_metric(text), model, key)
        if is_of_class(text):
            try:
                place_of(text, model)
            except SpecError as error:
                raise SpecError(f"{key}: {error}") from None


def check_metric(metric: Metric, model: ModelSpec, key: str) -> None:
    """Raise SpecError unless a number is about what the labels of a model are: classes, counts or values."""
    ratio = metric.ratio
    needs, task = ("classes", "classification") if ratio is None else ("counts", "counts")
    if metric.is_error:
        needs, task = "values", "regression"
    if model.task != task and (metric.name != ACCURACY or model.counts):
        remedies = {
            "regression": f"choose one of {', '.join(ERRORS)}",
            "counts": "give a ratio, such as tp / (tp + fn)",
        }
        remedy = remedies.get(model.task, "remove it")
        raise SpecError(f"{key}: {metric} needs {needs}, and model.task is {model.task}; {remedy}")
    known = model.counts or ()
    unknown = next((name for name in ratio.names if name not in known), None) if ratio else None
    if unknown is not None:
        raise SpecError(f"{key}: {metric} has {shown(unknown)}, which is none of model.counts: {', '.join(known)}")


def check_served(numbers: Sequence[str], model: ModelSpec, slices: Sequence[str]) -> None:
    """Raise SpecError for a number to serve that the model and its pool do not have."""
    for text in numbers:
        if is_of_class(text) or text in AVERAGES:
            check_metrics([text], model, "sample.serve")
        elif text in OF_CLASSES and not model.has_classes:
            raise SpecError(f"sample.serve: {text} needs classes, and model.task is {model.task}; remove it")
        elif text not in (ACCURACY, *SCORES, *OF_CLASSES, *slices):
            known = ", ".join([ACCURACY, *AVERAGES, *SCORES, *OF_CLASSES, *slices])
            raise SpecError(
                f"sample.serve: {shown(text)} is no number to serve; choose one of {known}, a metric of a class such "
                "as {recall: CLASS}, or add it to pool.slices"
            )


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


# -- the steps -------------------------------------------------------------------------------------------------------

Feature = Literal["hidden", "output", "prediction", "confidence", "dsa", "lsa", "coverage"]

ConflictRule = Literal["error", "majority", "latest"]
"""Treatment of examples with different labels."""

LINK_FIELDS = ("id", "uri", "run", "round")
"""Fields in braces of a manifest's link."""


# -- extract ---------------------------------------------------------------------------------------------------


class CoverageSpec(Section):
    """The requirements of neuron coverage: see :mod:`opacc_ray.neurons.requirements`."""

    # nc:β, nc-raw:β, kmnc:k, nbc, snac or tknc:k
    criterion: Annotated[str, AfterValidator(lambda value: str(Criterion.parse(value)))] = "nc:0.5"
    layers: list[str] | None = Field(default=None, min_length=1)  # dotted names; default: every layer with weights

    @property
    def rule(self) -> Criterion:
        return Criterion.parse(self.criterion)


def _selectors(value: dict[str, str]) -> dict[str, str]:
    """Return the values as Ray's label selectors, without spaces."""
    packed = {key: "".join(wanted.split()) for key, wanted in value.items()}
    name = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
    for key, wanted in packed.items():
        if not re.fullmatch(rf"!?({name}|in\({name}(,{name})*\))", wanted):
            raise ValueError(
                f"{key}: {shortened(value[key])} is not a label selector; write eu, !eu, in(eu,us) or !in(eu,us)"
            )
    return packed


_PLACEMENT = "placement"
Value = TypeVar("Value")
Placement = Annotated[Value, _PLACEMENT]
"""A key for placement or timeouts, which does not change features."""


class ExtractSpec(Section):
    """Features to compute, and how.

    batch_size, shard_size, precision, threads, features and coverage determine the result.
    """

    batch_size: int = Field(default=256, ge=1)  # examples per call of the model
    shard_size: int = Field(default=1024, ge=1)  # examples per shard, the unit of work and of resume
    # number type of the model's computation; features are stored as float32
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    threads_per_actor: int = Field(default=1, ge=1)  # CPU threads of the model per actor
    # ray: actors compute; local: one process of the command; auto: local if some seconds of work are left and no
    # cluster is joined or named, or without Ray
    executor: Placement[Literal["auto", "ray", "local"]] = "auto"
    # most copies of the model; there are fewer if the cluster has less room; auto: no limit
    actors: Placement[Annotated[int, Field(ge=1)] | Literal["auto"]] = "auto"
    # GPUs per actor; 0.5: two actors share one; auto: 1 if the cluster has GPUs, else 0
    gpus_per_actor: Placement[Annotated[float, Field(ge=0)] | Literal["auto"]] = "auto"
    # processes per actor that read, decode and transform; 0: a thread of the actor does; auto: the CPUs of its node
    # that no actor computes on
    readers: Placement[Annotated[int, Field(ge=0)] | Literal["auto"]] = "auto"
    # most further readers of an actor with a GPU, on nodes without any; auto: its share of their CPUs
    remote_readers: Placement[Annotated[int, Field(ge=0)] | Literal["auto"]] = 0
    # only nodes with these labels, such as {ray.io/accelerator-type: H100} or {region: eu}; also !eu, in(eu,us) and
    # !in(eu,us)
    node_labels: Placement[Annotated[dict[str, str], AfterValidator(_selectors)]] = Field(default={})
    # the cluster may grow: ask it for all actors, and wait instead of refusing the run
    autoscaling: Placement[bool] = False
    # most seconds for a shard before its actor counts as hung; null: no limit
    shard_timeout: Placement[float | None] = Field(default=1800, gt=0)
    features: list[Feature] | None = None  # default: those of the forward pass, and those that the method needs
    coverage: CoverageSpec = CoverageSpec()  # for methods that need coverage: deepreduce
    # treatment of an unreadable example: end the run, or exclude and count it
    on_bad_item: Literal["error", "exclude"] = "error"


PLACEMENT = tuple(name for name, info in ExtractSpec.model_fields.items() if _PLACEMENT in info.metadata)
"""Keys of ``extract`` for placement and timeouts, which do not change features."""


# -- sample, manifest, labels and score ------------------------------------------------------------------------


class SampleSpec(Section):
    """The method, its budget, and the method's own parameters."""

    model_config = ConfigDict(extra="allow")  # parameters of the method

    method: str = "neyman"  # see methods.md, or `opacc methods`
    budget: int | None = None  # number of labels; only deepreduce, and ces with stop_at_kl, need none
    # neyman: URIs of runs of other models on the same pool, to be audited with the same labels
    models: list[str] | None = Field(default=None, min_length=1)
    fresh: bool = False  # draw from the whole pool, even if labels of an earlier run of the audit could be carried over

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def settings(self) -> Any:
        """Return the checked ``Parameters`` of the method, with defaults."""
        return parse_parameters(self.method, self.parameters)

    @model_validator(mode="before")
    @classmethod
    def _read_served(cls, content: Any) -> Any:
        if isinstance(content, dict) and "serve" in content:
            return content | {"serve": served_texts(content["serve"])}
        return content

    @model_validator(mode="after")
    def _fits_the_method(self) -> "SampleSpec":
        settings = self.settings
        if self.models and not settings.serves_several:
            raise ValueError(f"models is not supported for method {self.method!r}; remove it, or choose neyman")
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget={self.budget}: give a whole number of labels, at least 1")
        return self


def _link(value: str) -> str:
    unknown = [name for name in re.findall(r"\{([^{}]*)\}", value) if name not in LINK_FIELDS]
    if unknown:
        raise ValueError(f"{{{unknown[0]}}} is unknown; use {', '.join(f'{{{name}}}' for name in LINK_FIELDS)}")
    return value


class ManifestSpec(Section):
    """Files and links for annotators."""

    # tables: columns that annotators see of a row, such as [subject, text]; nothing else of it is written for them
    show: list[str] = Field(default=[])
    # link for annotators, with {id}, {uri}, {run} and {round}; default: the URI, except local paths
    link: Annotated[str, AfterValidator(_link)] | None = None


class ClassGuide(Section):
    """What annotators are told about a class."""

    text: str | None = None  # a sentence
    pictures: list[str] = Field(default=[])  # URIs of images that are examples of it


def _class_guides(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else ()
    return {str(name): {"text": own} if isinstance(own, str) else own for name, own in items} if items else value


class Guidance(Section):
    """What annotators are asked and told."""

    question: str | None = Field(default=None, max_length=300)  # question to annotators, above each example
    guide: str | None = None  # instructions for annotators, in Markdown
    # class or grade: a sentence, or {text: …, pictures: [URI, ...]}
    describe: Annotated[dict[str, ClassGuide], BeforeValidator(_class_guides)] = Field(default={})
    unit: str | None = Field(default=None, max_length=30)  # unit of numbers, such as years
    range: tuple[float, float] | None = None  # usual numbers, lowest and highest: the page asks before it saves others

    @model_validator(mode="after")
    def _has_a_range(self) -> Self:
        if self.range and not self.range[0] < self.range[1]:
            raise ValueError(f"range: {list(self.range)} is empty; give the lowest number and the highest")
        return self


class LabelsSpec(Guidance):
    """Rules for returned labels; `opacc labels import --conflict` changes them for an existing run."""

    @property
    def guidance(self) -> Guidance:
        """What annotators are asked and told."""
        return Guidance(**{name: getattr(self, name) for name in Guidance.model_fields})

    # treatment of examples with different labels: refuse them, or take the most frequent or the latest
    conflict: ConflictRule = "error"
    # fraction of the examples that two people label, to measure label noise
    overlap: float = Field(default=0.0, ge=0, le=1)
    numbers_are_classes: bool = False  # classes with names: accept a number as the index of a class, from 0

    def check(self, model: ModelSpec) -> None:
        """Raise SpecError for a key that does not fit the task, or the classes or grades of a model."""
        known = model.classes or list(model.outcomes or ())
        unknown = next((name for name in self.describe if name not in known), None)
        if unknown is not None and known:
            raise SpecError(f"labels.describe names {unknown!r}, which is none of {shortened(', '.join(known), 200)}")
        digits = next((name for name in model.classes or () if name.strip().isdecimal()), None)
        if self.numbers_are_classes and digits:
            raise SpecError(f"labels.numbers_are_classes: the name of class {digits!r} is a number; remove it")


class ScoreSpec(Section):
    """Score of a regression's prediction, in [0, 1]; features do not depend on it."""

    error_scale: float | None = Field(default=None, gt=0)  # score = max(0, 1 - (error / error_scale)²); default: 1
    within: float | None = Field(default=None, gt=0)  # score = 1 where the error is at most this, else 0
    exact: bool | None = None  # multilabel: score = 1 where all classes are right, else 0; default: Jaccard index

    @model_validator(mode="after")
    def _is_one(self) -> "ScoreSpec":
        if self.error_scale is not None and self.within is not None:
            raise ValueError("error_scale and within both define the score; remove one")
        return self


# -- goal ------------------------------------------------------------------------------------------------------

Share = Annotated[float, Field(gt=0, lt=1)]


class Least(NamedTuple):
    """What a model must reach, and the number that it is about."""

    share: float
    metric: str = ACCURACY

    @classmethod
    def of(cls, goal: "float | Mapping[str, float]") -> "Least":
        """Return a goal as a spec has it: a share, or a metric with one."""
        if not isinstance(goal, Mapping):
            return cls(goal)
        [(metric, share)] = goal.items()
        return cls(share, metric)

    @classmethod
    def parse(cls, text: str) -> "Least":
        """Read ``0.9``, ``90 %`` or ``recall@defect 0.9``; raises SpecError for anything else."""
        try:
            name, share = read_share(str(text))
        except ValueError as meant:
            raise SpecError(
                f"goal {text!r}: give a share between 0 and 1, such as 0.9 or 'recall@defect 0.9'{meant}"
            ) from None
        try:
            return cls.of(share if name is None else _goal_of({name: share}))
        except ValueError as error:
            raise SpecError(f"goal {text!r}: {error}") from None


def _goal_of(value: Any) -> Any:
    """Return a goal as it is kept: a share, or a metric with one; raises ValueError."""
    if not isinstance(value, dict):
        return share_of(value)
    if len(value) != 1:
        raise ValueError(f"it names {len(value)} numbers; give one, such as {{recall@defect: 90 %}}")
    [(name, share)] = value.items()
    metric = parse_metric(str(name))
    if not metric.is_best_high:
        raise ValueError(f"{name} is best at 0, and a goal is the least value of a number; choose another one")
    return share_of(share) if metric.name == ACCURACY else {str(metric): share_of(share)}


Goal = Annotated[Share | dict[str, Share], BeforeValidator(_goal_of)]
"""The value of ``goal``."""
