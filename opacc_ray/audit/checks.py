"""Checking a spec before Ray starts: all that can be found out from the driver, one check after another.

Every check answers in one sentence what it found. A check that rests on one that failed is left out, so that one
mistake gives one failure. Nothing is kept: the object that tries whether the output can be written is removed at once,
and no folder is made for it.
"""

from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import Field

from opacc_ray.audit.history import check_history
from opacc_ray.audit.sanity import check_model
from opacc_ray.audit.several_models import check_models
from opacc_ray.documents import Document, Part
from opacc_ray.errors import OpaccError, SpecError, counted
from opacc_ray.extract import reference
from opacc_ray.extract.source import plan_pool
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.storage import open_store
from opacc_ray.runs.identity import checked_weights
from opacc_ray.samplers.select import parse_parameters
from opacc_ray.spec import Spec

Found = TypeVar("Found")


class Check(Part):
    """One thing that was checked."""

    name: str = Field(
        description="what was checked: pool, budget, weights, output, model, or what the spec names beside them"
    )
    ok: bool = Field(description="whether a run can go on with it")
    found: str = Field(description="what was found, or what is wrong and how to put it right")


class SpecChecks(Document):
    """What can be said of a spec before anything is extracted."""

    format: Literal["opacc-check/1"] = Field(default="opacc-check/1", description="name and version of this form")
    spec: str = Field(description="the file")
    ok: bool = Field(description="whether all checks passed")
    checks: list[Check] = Field(description="in order; those that rest on a failed one are left out")
    warnings: list[str] = Field(default=[], description="reasons to doubt that this is the model that is meant")


def check_budget(spec: Spec, plan: Plan | None = None) -> str:
    """What the method may spend; raises SpecError if it needs a budget and has none, or more than a pool can give."""
    sample = spec.sample
    if sample.budget is None:
        if not parse_parameters(sample.method, sample.parameters).stops_itself:
            raise SpecError("sample.budget is missing; say how many labels can be paid for, such as budget: 100")
        return f"{sample.method} stops by itself"
    if plan is not None and plan.num_examples is not None and sample.budget > plan.num_examples:
        raise SpecError(
            f"sample.budget={sample.budget} is more than the pool {spec.pool.uri} can give: "
            f"it holds {plan.num_examples} examples; give at most {plan.num_examples}"
        )
    return f"{counted(sample.budget, 'label')} by {sample.method}"


def check_pool(spec: Spec) -> Plan:
    """The shards of the pool; raises SpecError if there is no budget, or one that is more than the pool can give."""
    check_budget(spec)  # before the pool is listed
    plan = plan_pool(spec.pool, spec.extract)
    check_budget(spec, plan)
    return plan


def check(spec: Spec, source: str) -> tuple[SpecChecks, OpaccError | None]:
    """All checks of a spec that parses; returns them, and the first failure.

    Parameters
    ----------
    spec : what is checked
    source : the file that it came from
    """
    made = _Checks()
    plan = made.add("pool", lambda: plan_pool(spec.pool, spec.extract), _describe)
    made.add("budget", lambda: check_budget(spec, plan))
    compared = made.add("reference", lambda: reference.plan(spec), _describe) if spec.reads_reference else None
    if spec.sample.models:
        made.add("models", lambda: check_models(spec, plan))
    weighed = made.add("weights", lambda: checked_weights(spec), _weights)
    if spec.has_history and plan is not None and weighed is not None:
        made.add("history", lambda: check_history(weighed, plan, compared))
    made.add("output", lambda: _try_output(spec.output))
    tried = None
    if plan is not None and weighed is not None:
        tried = made.add("model", lambda: check_model(spec, plan, compared), lambda tried: tried.found)
    warnings = tried.warnings if tried else []
    return SpecChecks(spec=source, ok=made.failure is None, checks=made.checks, warnings=warnings), made.failure


class _Checks:
    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.failure: OpaccError | None = None

    def add(self, name: str, work: Callable[[], Found], describe: Callable[[Found], str] = str) -> Found | None:
        """Make one check; returns what it found, or None if it failed."""
        try:
            found = work()
        except OpaccError as error:
            self.failure = self.failure or error
            self.checks.append(Check(name=name, ok=False, found=str(error)))
            return None
        self.checks.append(Check(name=name, ok=True, found=describe(found)))
        return found


def _describe(plan: Plan | None) -> str:
    assert plan is not None
    examples = "" if plan.num_examples is None else f", {counted(plan.num_examples, 'example')}"
    return f"{counted(len(plan.entries), 'file')} in {counted(len(plan.shards), 'shard')}{examples}"


def _weights(spec: Spec) -> str:
    if spec.pool.holds_features:
        return "none: the pool brings its features"
    return f"SHA-256 {spec.model.sha256}" if spec.model.sha256 else "those that the model's code brings"


def _try_output(uri: str) -> str:
    store = open_store(uri)
    store.try_writing()
    return f"{store.uri} can be written"
