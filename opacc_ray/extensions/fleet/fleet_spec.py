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
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from opacc_ray.documents import Section
from opacc_ray.errors import SpecError, meant, shown
from opacc_ray.extensions.fleet.fleet_documents import Limit, LimitKey
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.metrics.scores import SCORES
from opacc_ray.spec import Spec, parse_spec, read_yaml, validated
from opacc_ray.spec.model_spec import check_metrics, metric_texts

log = logging.getLogger(__name__)

Least = Annotated[float, Field(gt=0, lt=1)]
Most = Annotated[float, Field(ge=0, lt=1)]

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


class AlertLimits(Section):
    """The limits of an audit; null disables the check."""

    min: dict[str, Least | None] | None = Field(
        default=None,
        description="accuracy, or a metric such as f1@defect -> raise an alert if its interval is below this",
    )
    max_drop: dict[str, Most | None] | None = Field(
        default=None,
        description="accuracy, or a metric -> raise an alert if the interval of its drop is above this",
    )
    min_slices: dict[str, Least | None] | None = Field(
        default=None,
        description="slices of the pool -> raise an alert if the interval of the accuracy of any of them is below this",
    )

    @field_validator("min", "max_drop")
    @classmethod
    def _names_metrics(cls, given: dict[str, float | None] | None, info: ValidationInfo) -> Any:
        texts = metric_texts(list(given or ()))
        if info.field_name == "max_drop" and (lower := [text for text in texts if text in SCORES]):
            raise ValueError(f"{lower[0]} is better the lower it is, so a drop is no alarm; remove it")
        return given and dict(zip(texts, given.values(), strict=True))

    def changed_by(self, own: "AlertLimits | None") -> "AlertLimits":
        """Return these limits, replaced by those that ``own`` names."""
        named = own.model_dump(include=own.model_fields_set) if own else {}
        return AlertLimits(**_merged(self.model_dump(include=set(AlertLimits.model_fields)), named))

    def all(self) -> list[Limit]:
        """Return every limit, in the order of the keys."""
        by_key = [(key, getattr(self, key) or {}) for key in get_args(LimitKey)]
        return [
            Limit(kind=key, limit=limit, of=of)
            for key, limits in by_key
            for of, limit in limits.items()
            if limit is not None
        ]

    def check(self, spec: Spec, place: str) -> None:
        """Raise SpecError for a metric or slices that an audit does not have."""
        for key in ("min", "max_drop"):
            metrics = [text for text in getattr(self, key) or () if text != ACCURACY]
            check_metrics(metrics, spec.model, f"{place}: alerts.{key}")
        slices = spec.pool.slice_names
        for by in self.min_slices or ():
            if by not in slices:
                known = f"there are {', '.join(slices)}" if slices else "the pool has none"
                raise SpecError(f"{place}: alerts.min_slices: {shown(by)} is not in pool.slices; {known}; add it there")


class AlertSpec(AlertLimits):
    """When to raise alerts; an interval decides, never the estimate alone."""

    false_alarms: float = Field(
        default=0.05,
        gt=0,
        le=0.5,
        description="maximum probability that a summary raises a false alert",
    )
    decided_by: Literal["interval", "sequence"] = Field(
        default="interval",
        description="interval: valid for one analysis of each run; sequence: for analyses after every round or label",
    )
    to: str | list[str] | None = Field(
        default=None,
        description="receivers of alerts and failures: URL (https or of Apprise), s3:// URI, file, or $NAME",
    )

    @property
    def receivers(self) -> list[str]:
        """Return the receivers of alerts and failures."""
        return [self.to] if isinstance(self.to, str) else self.to or []


class WatchSpec(Section):
    """How the audits of a fleet are watched over their whole life."""

    tolerance: float = Field(default=0.0, ge=0, lt=1, description="accuracy drop to tolerate")
    false_alarms: float = Field(
        default=0.05, gt=0, le=0.5, description="probability of a false alarm of any audit in the life of the fleet"
    )
    by: str | None = Field(
        default=None,
        description="slices of the pool that are the windows, such as week; default: what each run brings",
    )
    since: str | None = Field(
        default=None, description="first day of the life, such as 2026-11-02: its first labelled run is the reference"
    )
    labels: list[Annotated[int, Field(ge=1)]] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="least and most labels of new examples: the most while a drop shows; default: their share",
    )

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

    models: list[str] | None = Field(default=None, description="names of models; default: all")
    pools: list[str] | None = Field(default=None, description="names of pools; default: all")
    spec: dict[str, Any] = Field(default={}, description="any keys of a spec; later overrides win")
    alerts: AlertLimits | None = Field(default=None, description="limits instead of the fleet's; null: the same limits")

    def is_for(self, model: str, pool: str) -> bool:
        return (self.models is None or model in self.models) and (self.pools is None or pool in self.pools)


class FleetSpec(Section):
    """The spec of a fleet."""

    name: str = Field(description="name of the fleet; audits of models and pools are named NAME-MODEL-POOL")
    output: str = Field(description="folder of all runs and the summary: s3://bucket/prefix, or a local one")
    spec: dict[str, Any] = Field(default={}, description="settings of all audits: any keys of a spec")
    models: dict[str, dict[str, Any]] = Field(default={}, description="name -> section model of a spec")
    pools: dict[str, dict[str, Any]] = Field(default={}, description="name -> section pool of a spec")
    overrides: list[Override] = Field(default=[], description="settings of some pairs of a model and a pool")
    audits: list[dict[str, Any]] = Field(
        default=[],
        description="instead of models and pools: keys of the spec of each audit, with its name and its alerts",
    )
    concurrency: int = Field(default=2, ge=1, description="number of audits that run at a time")
    alerts: AlertSpec | None = Field(default=None, description="limits that raise alerts; default: none")
    watch: WatchSpec | None = Field(
        default=None, description="one alarm of each audit with one false-alarm rate for its whole life; default: none"
    )

    @field_validator("name")
    @classmethod
    def _fits_a_path(cls, value: str) -> str:
        if not re.fullmatch(_NAME, value):
            raise ValueError("use letters, digits, '.', '_' and '-'; names of audits begin with it")
        return value

    @model_validator(mode="after")
    def _has_audits(self) -> "FleetSpec":
        if self.audits and (self.models or self.pools or self.overrides):
            raise SpecError("give either models and pools, or a list of audits")
        if not self.audits and not (self.models and self.pools):
            missing = "models" if not self.models else "pools"
            raise SpecError(f"key {missing!r} is missing; add models and pools; every pair is an audit")
        return self

    @model_validator(mode="after")
    def _overrides_what_is_there(self) -> "FleetSpec":
        for place, item in enumerate(self.overrides):
            for kind, named, known in (("models", item.models, self.models), ("pools", item.pools, self.pools)):
                strange = next((name for name in named or () if name not in known), None)
                if strange is not None:
                    hint = meant(strange, known, f"there are {', '.join(known)}")
                    raise SpecError(f"overrides.{place}.{kind}: {strange!r} is not one of the fleet's {kind}; {hint}")
        return self


class FleetAudit(NamedTuple):
    """One audit of a fleet."""

    name: str
    spec: Spec
    model: str | None = None  # as the fleet names it; None in a list of audits
    pool: str | None = None
    limits: AlertLimits = AlertLimits()
    watch: WatchSpec | None = None


class Fleet(NamedTuple):
    """A fleet with the spec of each audit."""

    spec: FleetSpec
    audits: tuple[FleetAudit, ...]

    @property
    def alerts(self) -> AlertSpec | None:
        """Return how alerts are decided; None if no audit has limits."""
        asks = any(item.limits.all() for item in self.audits)
        return (self.spec.alerts or AlertSpec()) if asks else None


def load_fleet(path: str | Path) -> Fleet:
    """Read a fleet from a YAML file; raise SpecError with audit, key, value and fix."""
    return parse_fleet(read_yaml(path, "fleet"), str(path))


def parse_fleet(content: Any, source: str) -> Fleet:
    """Validate the content of a fleet and every spec that it makes; ``source`` names it in errors."""
    if content is None:
        raise SpecError(f"{source} is empty; docs/fleet.md has an example")
    spec = validated(FleetSpec, content, source)
    made = _pairs(spec, source) if spec.models else _listed(spec, source)
    audits = tuple(item._replace(watch=spec.watch) for item in made)
    twice = [name for name, count in Counter(item.name for item in audits).items() if count > 1]
    if twice:
        raise SpecError(f"{source}: two audits have the name {twice[0]!r}; give each one its own name")
    fleet = Fleet(spec, audits)
    if spec.alerts is not None and fleet.alerts is None and not spec.alerts.receivers:
        raise SpecError(
            f"{source}: alerts: give min, max_drop or min_slices, for the fleet or for some of its audits, or `to`"
        )
    _warn_of_same_predictions(audits, source)
    for item in audits:
        _check_limits(fleet, item, source)
        by = spec.watch.by if spec.watch else None
        if by is not None and by not in item.spec.pool.slice_names:
            raise SpecError(
                f"{source}, audit {shown(item.name)}: watch.by: {shown(by)} is not in pool.slices; add it there"
            )
    return fleet


def _warn_of_same_predictions(audits: Iterable[FleetAudit], source: str) -> None:
    """Warn of models that read one table of predictions: their audits would ask people for the same labels."""
    readers = defaultdict[tuple[str | None, str], list[str]](list)
    for item in audits:
        if item.model is not None and item.spec.pool.holds_features:
            readers[item.pool, item.spec.pool.model_dump_json()].append(item.model)
    same = [f"{' and '.join(models)} on {pool}" for (pool, _), models in readers.items() if len(models) > 1]
    if same:
        log.warning(
            "%s: these models read the same predictions, so people would label the same examples for each: %s; give "
            "each model its own: overrides: [{models: [MODEL], pools: [POOL], spec: {pool: {uri: URI}}}]",
            *(source, "; ".join(same[:10]) + f" and {len(same) - 10} more" * (len(same) > 10)),
        )


def _check_limits(fleet: Fleet, audit: FleetAudit, source: str) -> None:
    place = f"{source}, audit {shown(audit.name)}"
    audit.limits.check(audit.spec, place)
    beyond = next((limit for limit in audit.limits.all() if limit.of != ACCURACY), None)
    if beyond and fleet.alerts is not None and fleet.alerts.decided_by == "sequence":
        raise SpecError(
            f"{place}: alerts.{beyond.kind}: only the accuracy has an interval that is valid at any time; remove "
            f"{shown(beyond.of)}, or set decided_by: interval"
        )


def _pairs(fleet: FleetSpec, source: str) -> Iterator[FleetAudit]:
    """Yield an audit for every model on every pool."""
    for model, pool in ((model, pool) for model in fleet.models for pool in fleet.pools):
        content = _merged(fleet.spec, {"model": {"name": model} | fleet.models[model], "pool": fleet.pools[pool]})
        limits = _limits_of(fleet)
        for item in fleet.overrides:
            if item.is_for(model, pool):
                content, limits = _merged(content, item.spec), limits.changed_by(item.alerts)
        place = f"{source}, audit {model} × {pool}"
        spec = _spec(fleet, content | {"name": f"{fleet.name}-{model}-{pool}"}, place)
        yield FleetAudit(spec.name, spec, model, pool, limits)


def _listed(fleet: FleetSpec, source: str) -> Iterator[FleetAudit]:
    for number, own in enumerate(fleet.audits, start=1):
        name = own.get("name")
        place = f"{source}, audit {shown(name) if name else number}"
        asked = own.get("alerts")
        limits = None if asked is None else validated(AlertLimits, asked, f"{place}: alerts")
        spec = _spec(fleet, _merged(fleet.spec, {key: own[key] for key in own if key != "alerts"}), place)
        yield FleetAudit(spec.name, spec, limits=_limits_of(fleet).changed_by(limits))


def _limits_of(fleet: FleetSpec) -> AlertLimits:
    """Return the limits of audits without their own."""
    return (fleet.alerts or AlertLimits()).changed_by(None)


def _spec(fleet: FleetSpec, content: dict[str, Any], place: str) -> Spec:
    if "output" in content:
        raise SpecError(f"{place}: the fleet sets output, so that audits share features; remove it")
    return parse_spec(content | {"output": fleet.output}, place)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two mappings section by section; the second one wins."""
    found = dict(base)
    for key, value in own.items():
        known = found.get(key)
        found[key] = _merged(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return found
