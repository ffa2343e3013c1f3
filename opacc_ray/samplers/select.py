"""Choose the examples to label: :func:`select` checks a request and runs a method on a pool."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from difflib import get_close_matches
from typing import Any, get_args, get_origin

import numpy as np

from opacc_ray.errors import LabelError, SpecError, shortened
from opacc_ray.estimators.plausibility import contradiction
from opacc_ray.estimators.rounds import Outcome
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.parts.content import content_of
from opacc_ray.parts.view import View
from opacc_ray.samplers import METHODS, Draw, Previous, Sampler, Task
from opacc_ray.samplers.base import NO_PREVIOUS, OtherModel, Report, unreported
from opacc_ray.samplers.models import (
    Pools,
    histories_of,
    identify_in_all,
    listed,
    refuse_no_rounds,
    refuse_other_pools,
    rows_of,
    views_of,
)
from opacc_ray.samplers.replicates import replicate
from opacc_ray.selection import Selection


def select(
    pool: Pools,
    method: str = "neyman",
    budget: int | None = None,
    seed: int = 0,
    *,
    previous: Sequence[tuple[Selection, Outcome]] = (),
    replicates: int | None = None,
    history: History | Sequence[History] | None = None,
    progress: Report = unreported,
    **parameters: Any,
) -> Selection:
    """Choose ``budget`` examples of the pool to label, after ``previous`` rounds with outcomes.

    Arguments, facts and errors are those of :func:`opacc_ray.labelled.select`, which also accepts labels.
    """
    sampler, views = find_method(method), views_of(listed(pool))
    view = views[0]
    _check_seed(seed)
    labelled = _gather(previous, views)
    histories = histories_of(history, len(views))
    others = tuple(map(OtherModel, views[1:], [own.outcome for own in labelled[1:]], histories[1:]))
    task = Task(budget, parse_parameters(method, parameters), labelled[0], progress, histories[0], others)
    _check_several(method, task, replicates)
    _check_history(method, task, replicates)
    _check_budget(budget, view.size, len(task.previous.chosen), optional=task.parameters.stops_itself)
    view.need(sampler.needs(task.parameters), method, task.parameters.instead)
    number = 1 + max((selection.round for selection, _ in previous), default=0)
    contents = tuple(filter(None, map(content_of, views)))
    drawn = _draw(sampler, view, task, replicates, [int(seed), number])
    return Selection(
        method=method,
        parameters=json.loads(json.dumps(asdict(task.parameters))),  # as a saved selection returns them
        seed=int(seed),
        pool_size=view.size,
        index=drawn.chosen,
        ids=identify_in_all(views, drawn.chosen),
        design=drawn.design,
        round=number,
        facts=drawn.facts | _notice(previous, len(views)),
        contents=contents,
    )


def _notice(previous: Sequence[tuple[Selection, Outcome]], num_models: int) -> dict[str, str]:
    """Return a notice if the labels of earlier rounds contradict the predicted failures of the first model."""
    outcomes = [rows_of(selection, outcome, num_models)[0] for selection, outcome in previous]
    found = contradiction([selection for selection, _ in previous], outcomes)
    return {"notice": found} if found else {}


def _draw(sampler: Sampler, view: View, task: Task, replicates: int | None, seed: Sequence[int]) -> Draw:
    if replicates is not None:
        return _replicated(sampler, view, task, replicates, seed)
    return sampler.draw(view, task, np.random.default_rng(seed))


def _check_several(method: str, task: Task, replicates: int | None) -> None:
    if not task.others:
        return
    if not task.parameters.serves_several:
        raise SpecError(
            f"method {method!r} chooses for one model; give one pool and compare the other models by its labels, "
            "or use neyman"
        )
    if replicates is not None:
        raise SpecError("`replicates` cannot be combined with several pools; give one pool, or remove replicates")


def _check_history(method: str, task: Task, replicates: int | None) -> None:
    if all(history is NO_HISTORY for history in (task.history, *(other.history for other in task.others))):
        return
    if not task.parameters.learns_from_history:
        raise SpecError(f"method {method!r} does not use a history; remove it, or use neyman")
    if replicates is not None:
        raise SpecError("`replicates` cannot be combined with `history`; remove one of them")


def _replicated(sampler: Sampler, view: View, task: Task, num: int, seed: Sequence[int]) -> Draw:
    """Draw from ``num`` parts of the pool; progress counts the steps of all of them."""
    done = 0

    def choose(part: View, share: int | None, r: int) -> Draw:
        nonlocal done
        own = Task(share, task.parameters, NO_PREVIOUS, lambda here, _: task.progress(done + here, task.budget))
        drawn = sampler.draw(part, own, np.random.default_rng([*seed, 1 + r]))
        done += len(drawn.chosen)
        return drawn

    return replicate(view, num, task.budget, task.previous.chosen, np.random.default_rng([*seed, 0]), choose)


def find_method(method: str, others: Iterable[str] = ()) -> Sampler:
    """Return the module of a method; raises SpecError with the nearest name, of methods and ``others``."""
    if method not in METHODS:
        names = [*METHODS, *others]
        near = get_close_matches(str(method), names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"
        raise SpecError(f"there is no method {shortened(repr(method), 60)}; {hint}")
    return METHODS[method]


_COMMON = ("method", "budget", "replicates", "models")  # keys of every method


def parse_parameters(method: str, given: Mapping[str, Any]) -> Any:
    """Return the validated Parameters of a method; raises SpecError for an unknown name, with the nearest one."""
    kind: Any = find_method(method).Parameters
    known = {item.name: item.default for item in fields(kind)}
    lists = {item.name for item in fields(kind) if any(get_origin(part) is tuple for part in get_args(item.type))}
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name, [*known, *_COMMON], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known) or 'none'}"
            raise SpecError(f"method {method!r} has no parameter {shortened(repr(name), 60)}; {hint}")
        if isinstance(value, list | tuple) and (name in lists or isinstance(known[name], tuple)):
            _check_items(method, name, value, known[name])
        else:
            _check_type(method, name, value, known[name])
    return kind(**given)


def _check_type(method: str, name: str, value: Any, default: Any) -> None:
    """Raise SpecError unless a value has the type of the default; an int is accepted as a float, a list as a tuple."""
    accepted: dict[type, tuple[type, ...]] = {float: (float, int), tuple: (tuple, list)}
    kinds = accepted.get(type(default), (type(default),))
    is_bool_as_number = isinstance(value, bool) and bool not in kinds
    finite = not isinstance(value, float) or math.isfinite(value)
    if default is not None and (not isinstance(value, kinds) or is_bool_as_number or not finite):
        wanted = {int: "a whole number", float: "a number", str: "a name", bool: "true or false"}
        given = f"{name}={shortened(repr(value), 60)} of method {method!r}"
        raise SpecError(f"{given}: give {wanted.get(kinds[0], 'a list')}, such as {default!r}")


def _check_items(method: str, name: str, values: Sequence[Any], default: Any) -> None:
    """Raise SpecError unless all values have the type of the default or of its items."""
    example = default[0] if isinstance(default, tuple) else default
    for value in values:
        _check_type(method, name, value, example)


def _check_seed(seed: int) -> None:
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise SpecError(f"seed={seed!r}: give a whole number, 0 or more")


def _check_budget(budget: int | None, pool_size: int, num_labelled: int, *, optional: bool) -> None:
    left = pool_size - num_labelled
    if not left:
        raise LabelError(
            f"all {pool_size} examples of the pool are labelled, so there is none left to choose; estimate the "
            "accuracy with `opacc estimate` or opacc.estimate"
        )
    if budget is None:
        if optional:
            return
        raise SpecError("no budget is given; set the number of labels, such as budget=100 (--budget 100)")
    if not isinstance(budget, int | np.integer) or isinstance(budget, bool) or budget < 1:
        raise SpecError(f"budget={budget!r}: give a whole number of labels, at least 1")
    if budget > left:
        already = f", of which {num_labelled} are labelled" if num_labelled else ""
        raise SpecError(
            f"budget={budget} is more than the pool has: {pool_size} examples{already}; give at most {left}"
        )


def _gather(previous: Sequence[tuple[Selection, Outcome]], views: Sequence[View]) -> list[Previous]:
    """Return the labels of earlier rounds for each model."""
    refuse_no_rounds(previous)
    if not previous:
        return [NO_PREVIOUS] * len(views)
    refuse_other_pools(views, [selection for selection, _ in previous])
    index = np.concatenate([selection.index for selection, _ in previous])
    rows = [rows_of(selection, values, len(views)) for selection, values in previous]
    outcomes = [np.concatenate(row) for row in zip(*rows, strict=True)]
    return [Previous.of(index, outcome) for outcome in outcomes]
