"""A fleet in YAML: models and pools, each pair of which is an audit, or a list of audits.

name: weekly
output: s3://audits/
spec: {seed: 7, sample: {budget: 200}}                       # what all audits have: any keys of a spec
models:
  lenet: {factory: "mypkg:lenet5", weights: s3://models/lenet5.safetensors}
  vgg: {factory: "mypkg:vgg16", weights: s3://models/vgg16.safetensors}
pools:
  shops: {uri: s3://lake/shops/, format: images}
  field: {uri: s3://lake/field/, format: images}
overrides:
  - {models: [vgg], pools: [field], spec: {sample: {budget: 400}}, alerts: {min: {accuracy: 0.85}}}
alerts: {min: {accuracy: 0.92}, max_drop: {accuracy: 0.02}}   # of all that have none of their own
"""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from opacc_ray.documents import Part, Section
from opacc_ray.errors import SpecError, meant, shown
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.metrics.scores import SCORES
from opacc_ray.spec import Spec, parse_spec, read_yaml, validated
from opacc_ray.spec.spec_sections import check_metrics, metric_texts
from opacc_ray.spec.validation import merged

log = logging.getLogger(__name__)

Least = Annotated[float, Field(gt=0, lt=1)]
Most = Annotated[float, Field(ge=0, lt=1)]

LimitKey = Literal["min", "max_drop", "min_slices"]


class Limit(Part):
    """A limit of an audit."""

    kind: LimitKey | Literal["watch"]  # key of the limit in the spec
    limit: float  # minimum accuracy or metric, or maximum drop, or tolerance of a watch
    of: str = ACCURACY  # accuracy, another metric, or the slices whose accuracies are checked

    @property
    def name(self) -> str:
        """What no other limit of an audit has."""
        return f"{self.kind} {self.of}"


class AlertLimits(Section):
    """The limits of an audit; null disables the check."""

    # accuracy, or a metric such as f1@defect -> raise an alert if its interval is below this
    min: dict[str, Least | None] | None = None
    # accuracy, or a metric -> raise an alert if the interval of its drop is above this
    max_drop: dict[str, Most | None] | None = None
    # slices of the pool -> raise an alert if the interval of the accuracy of any of them is below this
    min_slices: dict[str, Least | None] | None = None

    @field_validator("min", "max_drop")
    @classmethod
    def _names_metrics(cls, limits: dict[str, float | None] | None, info: ValidationInfo) -> Any:
        texts = metric_texts(list(limits or ()))
        if info.field_name == "max_drop" and (lower := [text for text in texts if text in SCORES]):
            raise ValueError(f"{lower[0]} is better the lower it is, so a drop is no alarm; remove it")
        return limits and dict(zip(texts, limits.values(), strict=True))

    def changed_by(self, other: "AlertLimits | None") -> "AlertLimits":
        """Return these limits, replaced by those that the other one names."""
        named = other.model_dump(include=other.model_fields_set) if other else {}
        return AlertLimits(**merged(self.model_dump(include=set(AlertLimits.model_fields)), named))

    def all(self) -> list[Limit]:
        """Return every limit, in the order of the keys."""
        return [
            Limit(kind=key, limit=limit, of=of)
            for key in get_args(LimitKey)
            for of, limit in (getattr(self, key) or {}).items()
            if limit is not None
        ]

    def check(self, spec: Spec, place: str) -> None:
        """Raise SpecError for a metric or slices that an audit does not have."""
        for key in ("min", "max_drop"):
            metrics = [text for text in getattr(self, key) or () if text != ACCURACY]
            check_metrics(metrics, spec.model, f"{place}: alerts.{key}")
        for by in self.min_slices or ():
            _check_slices(by, spec, f"{place}: alerts.min_slices")


def _check_slices(by: str, spec: Spec, place: str) -> None:
    if by not in (slices := spec.pool.slice_names):
        names = f"there are {', '.join(slices)}" if slices else "the pool has none"
        raise SpecError(f"{place}: {shown(by)} is not in pool.slices; {names}; add it there")


class AlertSpec(AlertLimits):
    """When to raise alerts; an interval decides, never the estimate alone."""

    false_alarms: float = Field(default=0.05, gt=0, le=0.5)  # maximum probability that a summary raises a false alert
    # interval: valid for one analysis of each run; sequence: for analyses after every round or label
    decided_by: Literal["interval", "sequence"] = "interval"
    # receivers of alerts and failures: URL (https or of Apprise), s3:// URI, file, or $NAME
    to: str | list[str] | None = None

    @property
    def receivers(self) -> list[str]:
        """Return the receivers of alerts and failures."""
        return [self.to] if isinstance(self.to, str) else self.to or []


class WatchSpec(Section):
    """How the audits of a fleet are watched over their whole life."""

    tolerance: float = Field(default=0.0, ge=0, lt=1)  # accuracy drop to tolerate
    # probability of a false alarm of any audit in the life of the fleet
    false_alarms: float = Field(default=0.05, gt=0, le=0.5)
    by: str | None = None  # slices of the pool that are the windows, such as week; default: what each run brings
    since: str | None = None  # first day of the life, such as 2026-11-02: its first labelled run is the reference
    # least and most labels of new examples: the most while a drop shows; default: their share
    labels: list[Annotated[int, Field(ge=1)]] | None = Field(default=None, min_length=2, max_length=2)

    @field_validator("since")
    @classmethod
    def _is_a_day(cls, value: str | None) -> str | None:
        return None if value is None else date.fromisoformat(value).isoformat()

    @model_validator(mode="after")
    def _rises(self) -> "WatchSpec":
        if self.labels is not None and self.labels[0] > self.labels[1]:
            raise ValueError(f"labels are {self.labels}; give the least first, such as [25, 200]")
        return self


class Override(Section):
    """Settings of some pairs of a model and a pool."""

    models: list[str] | None = None  # names of models; default: all
    pools: list[str] | None = None  # names of pools; default: all
    spec: dict[str, Any] = Field(default={})  # any keys of a spec; later overrides win
    alerts: AlertLimits | None = None  # limits instead of the fleet's; null: the same limits

    def is_for(self, model: str, pool: str) -> bool:
        return (self.models is None or model in self.models) and (self.pools is None or pool in self.pools)


class FleetSpec(Section):
    """The spec of a fleet."""

    name: str  # name of the fleet; audits of models and pools are named NAME-MODEL-POOL
    output: str  # folder of all runs and the summary: s3://bucket/prefix, or a local one
    spec: dict[str, Any] = Field(default={})  # settings of all audits: any keys of a spec
    models: dict[str, dict[str, Any]] = Field(default={})  # name -> section model of a spec
    pools: dict[str, dict[str, Any]] = Field(default={})  # name -> section pool of a spec
    overrides: list[Override] = Field(default=[])  # settings of some pairs of a model and a pool
    # instead of models and pools: keys of the spec of each audit, with its name and its alerts
    audits: list[dict[str, Any]] = Field(default=[])
    concurrency: int = Field(default=2, ge=1)  # number of audits that run at a time
    alerts: AlertSpec | None = None  # limits that raise alerts; default: none
    # one alarm of each audit with one false-alarm rate for its whole life; default: none
    watch: WatchSpec | None = None

    @field_validator("name")
    @classmethod
    def _fits_a_path(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
            raise ValueError("use letters, digits, '.', '_' and '-'; names of audits begin with it")
        return value

    @model_validator(mode="after")
    def _has_audits(self) -> "FleetSpec":
        if self.audits and (self.models or self.pools or self.overrides):
            raise SpecError("give either models and pools, or a list of audits")
        if not self.audits and not (self.models and self.pools):
            missing = "models" if not self.models else "pools"
            raise SpecError(f"key {missing!r} is missing; add models and pools; every pair is an audit")
        for place, override in enumerate(self.overrides):
            for kind, names in (("models", override.models), ("pools", override.pools)):
                choices = getattr(self, kind)
                strange = next((name for name in names or () if name not in choices), None)
                if strange is not None:
                    hint = meant(strange, choices, f"there are {', '.join(choices)}")
                    raise SpecError(f"overrides.{place}.{kind}: {strange!r} is not one of the fleet's {kind}; {hint}")
        return self


class FleetAudit(NamedTuple):
    """One audit of a fleet."""

    spec: Spec
    limits: AlertLimits
    model: str | None = None  # as the fleet names it; None in a list of audits
    pool: str | None = None

    @property
    def name(self) -> str:
        return self.spec.name


class Fleet(NamedTuple):
    """A fleet with the spec of each audit."""

    spec: FleetSpec
    audits: tuple[FleetAudit, ...]

    @property
    def alerts(self) -> AlertSpec | None:
        """How alerts are decided; None if no audit has limits."""
        has_limits = any(audit.limits.all() for audit in self.audits)
        return (self.spec.alerts or AlertSpec()) if has_limits else None

    @property
    def folder(self) -> Store:
        """The folder of its summary."""
        return open_store(join(self.spec.output, "fleets", self.spec.name))


def load_fleet(path: str | Path) -> Fleet:
    """Read a fleet from a YAML file; raise SpecError with audit, key, value and fix."""
    return parse_fleet(read_yaml(path, "fleet"), str(path))


def parse_fleet(content: Any, source: str) -> Fleet:
    """Validate the content of a fleet and every spec that it makes; ``source`` names it in errors."""
    if content is None:
        raise SpecError(f"{source} is empty; docs/fleet.md has an example")
    spec = validated(FleetSpec, content, source)
    fleet = Fleet(spec, tuple(_pairs(spec, source) if spec.models else _listed(spec, source)))
    twice = [name for name, count in Counter(audit.name for audit in fleet.audits).items() if count > 1]
    if twice:
        raise SpecError(f"{source}: two audits have the name {twice[0]!r}; give each one its own name")
    if spec.alerts is not None and fleet.alerts is None and not spec.alerts.receivers:
        raise SpecError(
            f"{source}: alerts: give min, max_drop or min_slices, for the fleet or for some of its audits, or `to`"
        )
    _warn_of_same_predictions(fleet.audits, source)
    for audit in fleet.audits:
        _check_audit(fleet, audit, f"{source}, audit {shown(audit.name)}")
    return fleet


def _warn_of_same_predictions(audits: Iterable[FleetAudit], source: str) -> None:
    """Warn of models that read one table of predictions: their audits would ask people for the same labels."""
    readers = defaultdict[tuple[str | None, str], list[str]](list)
    for audit in audits:
        if audit.model is not None and audit.spec.pool.holds_features:
            readers[audit.pool, audit.spec.pool.model_dump_json()].append(audit.model)
    same = [f"{' and '.join(models)} on {pool}" for (pool, _), models in readers.items() if len(models) > 1]
    if same:
        log.warning(
            "%s: these models read the same predictions, so people would label the same examples for each: %s; give "
            "each model its own: overrides: [{models: [MODEL], pools: [POOL], spec: {pool: {uri: URI}}}]",
            *(source, "; ".join(same[:10]) + f" and {len(same) - 10} more" * (len(same) > 10)),
        )


def _check_audit(fleet: Fleet, audit: FleetAudit, place: str) -> None:
    """Raise SpecError for limits or a watch that an audit cannot have."""
    audit.limits.check(audit.spec, place)
    beyond = next((limit for limit in audit.limits.all() if limit.of != ACCURACY), None)
    if beyond and fleet.alerts is not None and fleet.alerts.decided_by == "sequence":
        raise SpecError(
            f"{place}: alerts.{beyond.kind}: only the accuracy has an interval that is valid at any time; remove "
            f"{shown(beyond.of)}, or set decided_by: interval"
        )
    if fleet.spec.watch and fleet.spec.watch.by is not None:
        _check_slices(fleet.spec.watch.by, audit.spec, f"{place}: watch.by")


def _pairs(fleet: FleetSpec, source: str) -> Iterator[FleetAudit]:
    """Yield an audit for every model on every pool."""
    for model, pool in product(fleet.models, fleet.pools):
        content = merged(fleet.spec, {"model": {"name": model} | fleet.models[model], "pool": fleet.pools[pool]})
        limits = _limits_of(fleet)
        for override in fleet.overrides:
            if override.is_for(model, pool):
                content, limits = merged(content, override.spec), limits.changed_by(override.alerts)
        content["name"] = f"{fleet.name}-{model}-{pool}"
        yield FleetAudit(_spec(fleet, content, f"{source}, audit {model} × {pool}"), limits, model, pool)


def _listed(fleet: FleetSpec, source: str) -> Iterator[FleetAudit]:
    for number, content in enumerate(fleet.audits, start=1):
        name, limits = content.get("name"), None
        place = f"{source}, audit {shown(name) if name else number}"
        if content.get("alerts") is not None:
            limits = validated(AlertLimits, content["alerts"], f"{place}: alerts")
        rest = {key: value for key, value in content.items() if key != "alerts"}
        yield FleetAudit(_spec(fleet, merged(fleet.spec, rest), place), _limits_of(fleet).changed_by(limits))


def _limits_of(fleet: FleetSpec) -> AlertLimits:
    """Return the limits of audits without their own."""
    return (fleet.alerts or AlertLimits()).changed_by(None)


def _spec(fleet: FleetSpec, content: dict[str, Any], place: str) -> Spec:
    if "output" in content:
        raise SpecError(f"{place}: the fleet sets output, so that audits share features; remove it")
    return parse_spec(content | {"output": fleet.output}, place)
