"""The whole spec: all sections, and the checks between them."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from opacc_ray.documents import Section
from opacc_ray.errors import SpecError
from opacc_ray.lake.formats import FEATURE_COLUMNS, has_rows, place_of
from opacc_ray.metrics.metric import ACCURACY, ERRORS
from opacc_ray.samplers import find_method
from opacc_ray.spec import spec_sections as sections
from opacc_ray.spec.pool_spec import PoolSpec, ReferenceSpec, as_list, time_text
from opacc_ray.spec.validation import FunctionName, read_yaml, validated

SURPRISE = ("dsa", "lsa")
"""Features that compare an example with reference traces."""

_OF_CLASSES = {
    "confidence": "a regression has no confidence; choose a method without it, such as srs or ces",
    "dsa": "dsa compares classes, and a regression has none; choose lsa",
}
"""Why a regression lacks some features."""

_ANY = ("classification", "multilabel", "regression")

_ONLY_FOR = {
    "model.classes": _ANY,
    "model.counts": ("counts",),
    "model.grades": ("grade",),
    "pool.columns.answer": ("grade",),
    "pool.columns.prediction": _ANY,
    "pool.columns.output": ("classification", "regression"),
    "pool.columns.dsa": _ANY,
    "reference.labels": _ANY,
    "sample.models": _ANY,
    "labels.unit": ("labels that are numbers",),
    "labels.range": ("labels that are numbers",),
    "labels.numbers_are_classes": ("classification",),
    "score.error_scale": ("regression",),
    "score.within": ("regression",),
    "score.exact": ("multilabel",),
}
"""Tasks that support a key. Where people judge an answer, or count, there is no other prediction and no other label."""

_OF_A_RUN_MODEL = (*sections.WAYS, "arguments", "weights", "sha256", "hidden_layer")
"""Keys of a model that are not supported for stored features."""


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise ValueError("use letters, digits, '.', '_' and '-': it becomes part of the run's name")
    return value


def _time(value: str) -> str:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("it is not a date or a time; write it as 2026-01-31 or 2026-01-31T12:00:00Z") from None
    return value


class Spec(Section):
    """The specification of an audit."""

    name: Annotated[str, AfterValidator(_name)]  # name of the audit, and first part of its run's name
    seed: int = Field(default=0, ge=0, lt=2**63)  # seed of all random draws: the same seed gives the same selection
    pool: PoolSpec  # the examples on which accuracy is estimated
    # name of the population of the pool: runs with one name are one series over time; default: determined by place,
    # filter, split and table of the pool
    population: str | None = Field(default=None, min_length=1)
    # date or time of the data, such as 2026-01-31, for results over time; default: when the table's version, or the
    # newest file of the pool, was written
    data_as_of: Annotated[str, BeforeValidator(time_text), AfterValidator(_time)] | None = None
    model: sections.ModelSpec = sections.ModelSpec()  # the model under audit
    transform: FunctionName | None = None  # module:function from a decoded example to the model's input
    # training data, for dsa, lsa and some coverage; missing keys: those of the pool
    reference: ReferenceSpec | None = None
    # neyman: earlier audits to learn from: URIs of runs, or auto: runs under the output with the same weights and
    # source files
    history: Annotated[
        Literal["auto"] | list[str] | None, BeforeValidator(lambda value: value if value == "auto" else as_list(value))
    ] = None
    extract: sections.ExtractSpec = sections.ExtractSpec()  # features to compute, and how
    sample: sections.SampleSpec = sections.SampleSpec()  # sampling method, budget, and the method's own parameters
    manifest: sections.ManifestSpec = sections.ManifestSpec()  # files and links for annotators
    labels: sections.LabelsSpec = sections.LabelsSpec()  # rules for returned labels
    score: sections.ScoreSpec = sections.ScoreSpec()  # regression: score of an error
    # numbers to state in addition to the accuracy, such as macro_f1 or {recall: stop_sign}; the first one steers the
    # draw of neyman, unless sample.serve names others
    metrics: Annotated[list[str], BeforeValidator(sections.metric_texts)] = Field(default=[])
    # least accuracy, or mean score, that the model must have, such as 85 %, or the least value of another metric, such
    # as {recall@defect: 90 %}; the report states whether it is met
    goal: sections.Goal | None = None
    output: str  # place for runs: s3://bucket/prefix, or a folder that all workers can write

    @model_validator(mode="before")
    @classmethod
    def _read_reference_as_pool(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        pool, reference = content.get("pool"), content.get("reference")
        if isinstance(pool, dict) and "format" in pool and isinstance(reference, dict):
            shared = {key: value for key, value in pool.items() if key not in ("uri", "split", "slices", "sample_of")}
            return content | {"reference": shared | reference}
        return content

    @model_validator(mode="after")
    def _fits_together(self) -> "Spec":
        self._refuse_keys_of_other_tasks()
        self._check_model()
        self._check_history()
        self._check_task()
        self._check_features()
        self._check_shown()
        sections.check_metrics(self.numbers, self.model)
        sections.check_served(self.served, self.model, self.pool.slice_names)
        return self

    @property
    def least(self) -> sections.Least | None:
        """The goal, and the number that it is about."""
        return None if self.goal is None else sections.Least.of(self.goal)

    @property
    def numbers(self) -> list[str]:
        """Metrics to state in addition to the accuracy: those of the spec, and that of its goal."""
        least = self.least
        goal = [] if least is None or least.metric == ACCURACY else [least.metric]
        return list(dict.fromkeys([*self.metrics, *goal]))

    @property
    def served(self) -> list[str]:
        """Numbers that the draw of neyman serves, by the names of their classes; empty: its default."""
        named = self.sample.parameters.get("serve")
        if named is None:
            return [] if self.model.counts else [name for name in self.numbers if name not in ERRORS][:1]
        return list(named)

    def drawn_with(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a draw: neyman serves the numbers of the spec, or those that are named.

        A class is named in ``parameters``, and by its place in what is returned. Raises SpecError for a number to serve
        that there is not.
        """
        if method != "neyman":
            return dict(parameters)
        try:
            serve = sections.served_texts(parameters["serve"]) if "serve" in parameters else self.served
        except ValueError as error:
            raise SpecError(f"serve: {error}") from None
        sections.check_served(serve, self.model, self.pool.slice_names)
        return dict(parameters) | ({"serve": sections.in_places(serve, self.model)} if serve else {})

    def like(self, method: str | None, budget: int | None, seed: int | None, parameters: Mapping[str, Any]) -> "Spec":
        """Return the spec with another sample section: None leaves a key as it is, another method has its defaults.

        Histories and judges are left out for a method that does not learn from them, and ``history: auto`` for every
        method: it would learn from labels of the run that has this spec.
        """
        kept = self.sample.model_dump() if method in (None, self.sample.method) else {"budget": self.sample.budget}
        given = {"method": method or self.sample.method} | ({} if budget is None else {"budget": budget})
        sample = validated(sections.SampleSpec, kept | given | dict(parameters), "sample")
        content = self.model_dump(mode="json") | {"sample": sample.model_dump()}
        content |= {} if seed is None else {"seed": seed}
        if self.history == "auto" or not sample.settings.learns_from_history:
            content["history"] = None
        if not sample.settings.learns_from_history:
            content["pool"]["columns"]["judges"] = None
        return parse_spec(content, "the spec")

    def _refuse_keys_of_other_tasks(self) -> None:
        task = self.model.task
        kinds = {task, "labels that are numbers"} if self.model.reads_numbers else {task}
        for key, tasks in _ONLY_FOR.items():
            value: Any = self
            for name in key.split("."):
                value = getattr(value, name, None)
            if value and kinds.isdisjoint(tasks):
                raise SpecError(f"{key} is only supported for {', '.join(tasks)}, and model.task is {task}; remove it")

    def _check_shown(self) -> None:
        shown, pool = self.manifest.show, self.pool
        if shown and not has_rows(pool.format):
            raise SpecError(f"manifest.show names columns, and pool.format {pool.format} has none; remove it")
        twice = next((name for name in shown if shown.count(name) > 1), None)
        if twice is not None:
            raise SpecError(f"manifest.show names {twice!r} twice; remove one")
        model = {name: key for key, names in pool.columns.features.items() for name in names}
        model |= dict.fromkeys(pool.columns.judges or (), "judges")
        answer = next((name for name in shown if name in model), None)
        if answer is not None:
            raise SpecError(
                f"manifest.show names {answer!r}, which is pool.columns.{model[answer]}: annotators who see what a "
                "model says agree with it; remove it"
            )

    def _check_model(self) -> None:
        if self.pool.holds_features:
            if self.model.counts is None:
                try:
                    self.pool.check_columns(("output", "prediction", "answer"))
                except ValueError as error:
                    raise SpecError(f"pool: {error}") from None
            unused = next((f"model.{key}" for key in _OF_A_RUN_MODEL if getattr(self.model, key)), None)
            if key := unused or ("transform" if self.transform else None):
                raise SpecError(
                    f"{key} is not supported for a pool of stored features, for which no model runs; remove it"
                )
            return
        way = next((key for key in sections.WAYS if getattr(self.model, key)), None)
        if way is None:
            remedy = "add it, or audit stored predictions with pool.format: features"
            raise SpecError(f"key 'model.factory' is missing; {remedy}")
        if way != "factory" and "coverage" in self.features():
            raise SpecError(f"coverage needs the layers of a module, and a {way} has none; set model.factory")

    def _check_history(self) -> None:
        given = {"history": self.history, "pool.columns.judges": self.pool.columns.judges}
        key = next((name for name, value in given.items() if value), None)
        if key is None:
            return
        if not self.sample.settings.learns_from_history:
            raise SpecError(
                f"{key} is only supported for neyman, and sample.method is {self.sample.method!r}; remove {key}"
            )

    def _check_grades(self) -> None:
        answer = self.pool.columns.answer or []
        if self.model.task != "grade":
            return
        num = 2 if self.model.prefers else 1
        if len(answer) != num:
            why = "a preference is between two answers" if num == 2 else "annotators grade one answer"
            raise SpecError(f"pool.columns.answer names {len(answer)} columns, and {why}; name {num}")

    def _check_counts(self) -> None:
        if self.model.counts is None:
            return
        if not self.metrics:
            raise SpecError(
                "metrics is missing, which task: counts needs; give one ratio of counts or more, such as "
                "[2 tp / (2 tp + fp + fn)]; the first is the score of an example, so more must be better, as in "
                "1 - edits / words"
            )
        if not self.pool.holds_features:
            raise SpecError(
                "task: counts needs a table of the pool: pool.format: features, with columns.id, and with "
                "columns.confidence if there is one"
            )

    def _check_task(self) -> None:
        self._check_grades()
        self._check_counts()
        self.labels.check(self.model)
        if self.model.task == "multilabel" and not self.pool.holds_features:
            raise SpecError(
                "task: multilabel needs stored predictions: pool.format: features, with columns.prediction that holds "
                "lists of classes, or texts such as cat|dog"
            )
        if not self.model.has_classes and not self.sample.settings.supports_regression:
            raise SpecError(
                f"sample.method {self.sample.method!r} does not support {self.model.task}; choose another method"
            )

    def _check_features(self) -> None:
        needed, features = self._needed(), self.features()
        for name in dict.fromkeys([*needed, *features]):
            who = f"sample.method {self.sample.method!r} needs" if name in needed else "extract.features has"
            if name in _OF_CLASSES and self.model.task == "regression":
                raise SpecError(f"{who} {name}, and {_OF_CLASSES[name]}")
            source = "hidden" if name in SURPRISE and name not in self.stored() else name
            if self.pool.holds_features and source not in self.stored():
                instead = self.sample.settings.instead
                way = f", or {instead[name]}" if name in needed and name in instead else ""
                raise SpecError(f"{who} {name}, which the stored features lack: {_way_to_store(source)}{way}")
            if name not in features:
                raise SpecError(f"{who} {name}, which is not extracted: add {name} to extract.features")
            if self._compares_with(name) and self.reference is None:
                raise SpecError(f"{who} {name}, which compares with training data: add reference: {{uri: ...}}")

    def features(self) -> tuple[str, ...]:
        """Return the features to extract: those in the spec, else those of the forward pass and of the method.

        The prediction is always one of them.
        """
        every: Sequence[str] | None = self.extract.features
        if every is None and self.pool.holds_features:
            every = [*self.stored(), *(name for name in self._needed() if name in SURPRISE)]
        if every is None:
            every = ["hidden", "output", *([] if self.model.task == "regression" else ["confidence"]), *self._needed()]
        return tuple(dict.fromkeys([*every, "prediction"]))

    def stored(self) -> tuple[str, ...]:
        """Return the features in the pool's columns, and those computed from them."""
        named = list(self.pool.columns.features)
        follows = ["prediction"] if not self.model.has_classes else ["prediction", "confidence"]
        follows_output = "output" in named or self.pool.columns.answer or self.model.counts
        return tuple(dict.fromkeys([*named, *(follows if follows_output else [])]))

    def surprise(self) -> tuple[str, ...]:
        """Return the features that are computed from the stored hidden layer of the pool and of the reference."""
        return tuple(name for name in self.features() if "traces" in self._compares_with(name))

    def extracted(self) -> tuple[str, ...]:
        """Return the features that a model gives, or a table has: those that surprise is computed from among them."""
        hidden = ["hidden"] if self.surprise() else []
        return tuple(dict.fromkeys([*hidden, *(name for name in self.features() if name not in self.surprise())]))

    @property
    def reads_reference(self) -> bool:
        """Whether a feature, or the method, uses the reference."""
        return self.reference is not None and bool(self.compares_with() or self.reference.labels)

    @property
    def has_history(self) -> bool:
        """Return whether the method starts from earlier labels or judges."""
        labelled = self.reference is not None and self.reference.labels is not None
        return bool(self.history) or labelled or bool(self.pool.columns.judges)

    def compares_with(self) -> set[str]:
        """Return what the features need of the reference: traces, ranges, both or nothing."""
        return set().union(*(self._compares_with(name) for name in self.features()))

    def _compares_with(self, feature: str) -> set[str]:
        if self.pool.holds_features and feature in self.pool.columns.features:
            return set()
        if feature == "coverage" and self.extract.coverage.rule.needs_ranges:
            return {"ranges"}
        return {"traces"} if feature in SURPRISE else set()

    def remedy(self, feature: str) -> str:
        """Return the remedy for a run that lacks a feature."""
        if feature in _OF_CLASSES and self.model.task == "regression":
            return _OF_CLASSES[feature]
        if self.pool.holds_features and feature not in SURPRISE:
            return f"{_way_to_store(feature)} in a spec and run that"
        there = [name for name in self.features() if name != "prediction"]
        keys = f"extract.features: [{', '.join(dict.fromkeys([*there, feature]))}]"
        if self._compares_with(feature) and self.reference is None:
            keys += " and reference: {uri: ...}, which is training data,"
        return f"add {keys} to the spec and run that"

    def _needed(self) -> tuple[str, ...]:
        return find_method(self.sample.method).needs(self.sample.settings)

    def described_as(self, other: "Spec") -> "Spec":
        """Return the spec with the keys of another one that may change for an existing run: none of them decides it."""
        pool = self.pool.model_copy(update={key: getattr(other.pool, key) for key in ("slices", "sample_of")})
        model = self.model.model_copy(update={"name": other.model.name})
        named = {key: getattr(other, key) for key in ("metrics", "goal", "population", "data_as_of")}
        return self.model_copy(update=named | {"pool": pool, "model": model})

    def identity(self) -> dict[str, Any]:
        """Return everything that determines features and selections.

        Left out are placement and speed, keys that no feature uses, slices that the draw does not serve, and how labels
        are read and scored.
        """
        left_out = {"extract": set(sections.PLACEMENT), "model": {"name"}}
        others = ("output", "labels", "score", "population", "data_as_of", "metrics", "goal")
        content = self.model_dump(exclude=left_out | dict.fromkeys(others, True))
        del content["manifest"]["show"]
        content["pool"] = self.pool.identity()
        content["reference"] = self.reference and self.reference.identity()
        if not self.reads_reference:
            del content["reference"]
        if "coverage" not in self.features():
            del content["extract"]["coverage"]
        content["pool"] |= self.pool.slices_of(self.sample.parameters.get("serve", []))
        return content


def _way_to_store(feature: str) -> str:
    return f"set pool.columns.{feature} to its column" if feature in FEATURE_COLUMNS else "run the model for it"


def load_spec(path: str | Path) -> Spec:
    """Read a spec from a YAML file; raises SpecError with key, value and remedy."""
    if place_of("features", str(path))[1] is not None:
        table, renamed = (f"{path}l", "; rename it so") if str(path).lower().endswith(".json") else (path, "")
        raise SpecError(
            f"{path} is a file of predictions, and this needs a spec, a YAML file: `opacc run {table} --budget 100` "
            f"reads the predictions as they are, and writes a spec{renamed}"
        )
    return parse_spec(read_yaml(path), str(path))


def parse_spec(content: Any, source: str) -> Spec:
    """Validate the content of a spec, which errors call ``source``."""
    return validated(Spec, content, source)
