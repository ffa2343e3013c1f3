"""Labels that are carried to the next run of a pool that grew.

They are those of a sample with known probabilities, of the part of the pool that both runs have in common
(:mod:`opacc_ray.designs.inclusion_probability`). Examples that are gone take their labels with them. The part that is
new or changed has a draw of its own, with the share of the budget that it has of the pool, at least :data:`LEAST`
examples.
"""

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.history import LEARNED_FROM, read_history
from opacc_ray.designs.inclusion_probability import CARRIED, NEW, OLD, Grown, InclusionProbability
from opacc_ray.designs.simple_random import SimpleRandom, Stratified
from opacc_ray.errors import OpaccError, counted
from opacc_ray.estimation.failures import trusted_share
from opacc_ray.estimation.sample import Rounds
from opacc_ray.labels import labelled_rounds
from opacc_ray.labels.formats import as_jsonl
from opacc_ray.labels.label_actions import import_labels, list_answers
from opacc_ray.labels.label_log import LabelAction, outcome_of, read_log
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.parts.view import View, subset
from opacc_ray.pool import NO_HISTORY, History, Pool
from opacc_ray.runs.run import Run, find_rows, open_view, read_rows
from opacc_ray.runs.series import grown_from, output_of, run_beside, runs_of
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.samplers.base import Report
from opacc_ray.samplers.neyman.failure_model import predict_failure
from opacc_ray.samplers.neyman.sampling import signals_for
from opacc_ray.samplers.select import select as select_from
from opacc_ray.selection import Selection

log = logging.getLogger(__name__)

LEAST = 10
"""Examples that are drawn from the new part, if it has so many."""

_DESIGNS = (SimpleRandom, Stratified, InclusionProbability)


class Carried(NamedTuple):
    """Labels of an earlier run that count in a later one."""

    run: Run  # the earlier one
    places: NDArray[np.int64]  # (n,) in the pool of the later run
    ids: list[str]  # (n,)
    truth: list[str]  # (n,)
    probability: NDArray[np.float64]  # (n,) π
    num_labels: int  # of the earlier run
    common: NDArray[np.bool_]  # (N,) examples of the later pool that the earlier one has as well
    reason: str | None  # what an estimate from them assumes about labels that are not there


def choose_first(
    run: Run, progress: Report, labels_of_new: Callable[[], int] | None = None
) -> tuple[Selection, set[str]] | None:
    """Return the first round of a grown pool and its ids with carried labels.

    None if no label can be carried; labels of the same pool that do not count are then logged. ``labels_of_new``
    returns how many examples are drawn from the new part; default: its share of the budget.
    """
    sample, newest_first = run.spec.sample, runs_of(run.spec.output, run.spec.name)[0][::-1]
    carried = None
    if not (sample.fresh or sample.budget is None or sample.models):
        try:
            carried = _find_carried(run, newest_first)
        except OpaccError as error:
            log.warning("no label is carried over from an earlier run: %s", error)
    if carried is None:
        _tell_other_labels(run, newest_first)
        return None
    assert sample.budget is not None
    size = run.complete_features().index.num_examples
    new = int((~carried.common).sum())
    wanted = math.ceil(sample.budget * new / size) if labels_of_new is None else labels_of_new()
    return _choose(run, carried, min(new, max(LEAST, wanted)), progress), set(carried.ids)


def _find_carried(run: Run, newest_first: Sequence[Run]) -> Carried | None:
    """Return the labels of the newest earlier run that count in this one; None if there is no such run or label.

    Raises OpaccError if its labels or features are damaged.
    """
    for before in grown_from(newest_first, run.spec, run.header.pool.digest):
        asked = (before.spec.model.task, before.spec.model.classes) == (run.spec.model.task, run.spec.model.classes)
        if not asked or not before.rounds() or before.read_features() is None:
            continue
        rounds = labelled_rounds.read_rounds(before)
        if missing := sum(len(item.missing) for item in rounds):
            _tell_unused(run, before, sum(int(item.labelled.sum()) for item in rounds), missing)
            continue
        return _carried(run, before, labelled_rounds.having_labels(rounds))
    return None


def _tell_unused(run: Run, before: Run, labels: int, missing: int) -> None:
    """Warn that the labels of a run that waits for more do not count, and how they can, if it has any of its own."""
    if own := labels - before.read_selection(1).facts.get(CARRIED, {}).get("labels", 0):
        missed = f"{missing} {'is' if missing == 1 else 'are'} missing"
        log.warning(
            "%s of %s are not used, because %s: import %s (? for can't tell), then `opacc runs remove %s --force` "
            "and run again",
            *(counted(own, "label"), before.name, missed, "it" if missing == 1 else "them", run.uri),
        )


def _tell_other_labels(run: Run, newest_first: Sequence[Run]) -> None:
    """Warn of the labels of another run of the same audit, pool and model, with another budget, method or seed."""
    for before in newest_first:
        same = before.header.pool.digest == run.header.pool.digest and before.spec.model == run.spec.model
        if same and before.uri != run.uri and (labels := labelled_rounds.read_labelled(before)):
            log.warning(
                "%s has %s of the same pool: `opacc next %s` goes on with them, and `opacc labels import %s %s` takes "
                "those of examples that are chosen here",
                *(before.name, counted(len(labels), "label"), before.uri, run.uri, before.uri),
            )
            return


def _carried(run: Run, before: Run, rounds: list[LabelledRound]) -> Carried | None:
    known = [item.known for item in rounds]
    if not known:
        return None
    strange = next((part.method for part in known if not isinstance(part.design, _DESIGNS)), None)
    late = Rounds(known).late
    if strange or late or not all(part.design.is_distinct for part in known):
        reason = late or f"a sample by {strange or known[0].method} does not keep its probabilities"
        log.info("the labels of %s are not carried over: %s", before.name, reason)
        return None
    old, new = before.complete_features().features, run.complete_features().features
    there, here = [list(part.sources()) for part in (old, new)]
    if not there or not here:
        return None
    sources, own = np.concatenate(there), np.concatenate(here)
    common = np.isin(own, sources)
    if common.sum() != np.isin(sources, own).sum():
        log.info("the labels of %s are not carried over: its pool left out other examples", before.name)
        return None
    ids = [name for part in known for name in part.ids]
    truth = [text for item in rounds for text in item.truth]
    places = new.places(ids)
    kept = [row for row, name in enumerate(ids) if name in places and common[places[name]]]
    if not kept:
        log.warning(
            "the %s of %s do not count here, because the files that held their examples changed or are gone; a file "
            "counts as a whole, so add rows as a new file to a folder and leave its other files as they are",
            *(counted(len(ids), "label"), before.name),
        )
        return None
    weights = Rounds(known).weights[kept]
    probability = np.minimum(1 / (known[0].pool_size * weights), 1.0)
    index = np.array([places[ids[row]] for row in kept], dtype=np.int64)
    names, texts = [ids[row] for row in kept], [truth[row] for row in kept]
    differ = any(np.nan_to_num(item.disagreement).any() for item in rounds)
    assumed = labelled_rounds.reason_of(
        "errors that differences of annotators show are not allowed for" if differ else None, rounds
    )
    return Carried(before, index, names, texts, probability, len(ids), common, assumed)


def _choose(run: Run, carried: Carried, num: int, progress: Report) -> Selection:
    """Return the carried labels and a draw of ``num`` from the rest of the pool as one selection."""
    spec, sample = run.spec, run.spec.sample
    parameters = parse_parameters(sample.method, spec.drawn_with(sample.method, sample.parameters))
    needs = find_method(sample.method).needs(parameters)
    failure, learns = 1 - _outcomes(run, carried), parameters.learns_from_history
    history = _history(run, carried, failure) if learns else NO_HISTORY
    added, inclusion, num_new = np.empty(0, dtype=np.int64), np.empty(0), int((~carried.common).sum())
    with open_view(run, needs, parameters.optional_features, parameters.instead) as view:
        p, leverage = _predicted(view, parameters, carried.places, failure, learns)
        drawn = _draw(run, view, carried, num, history, progress)
        if drawn is not None:
            added, inclusion = drawn.index, np.minimum(1 / (num_new * drawn.design.weights), 1.0)
        places = np.concatenate([carried.places, added])
        ids = tuple(view.identify(places))
    sizes = [len(carried.ids), len(added)]
    design = Grown(
        inclusion_probability=np.concatenate([carried.probability, inclusion]),
        predicted_failure=np.clip(p[places], 0, 1),
        predicted_failures=float(p.sum()),
        population=len(p),
        num_drawn=len(places),
        labelled_before=np.empty(0, dtype=np.int64),
        part=np.repeat([OLD, NEW], sizes),
        leverage=np.concatenate([leverage, np.zeros(len(added))]),
        drawn=np.array(sizes if drawn is not None else sizes[:1]),
    )
    facts = {
        "run": carried.run.name,
        "labels": len(carried.ids),
        "of": carried.num_labels,
        "share": float(carried.common.mean()),
        "new": num_new,
    }
    if carried.reason:
        facts["reason"] = f"of the labels carried over from {carried.run.name}, {carried.reason}"
    made = drawn.parameters if drawn is not None else json.loads(json.dumps(asdict(parameters)))
    facts = dict(drawn.facts if drawn is not None else {}) | {CARRIED: facts}
    return Selection(sample.method, made, spec.seed, len(p), places, ids, design, facts=facts)


def _outcomes(run: Run, carried: Carried) -> NDArray[np.float64]:
    """Return the outcomes (n,) of the carried labels for the run's own model."""
    score, model = read_log(run).score, run.spec.model
    _, said = find_rows(run, carried.places)
    pairs = zip(said, carried.truth, strict=True)
    return np.array([outcome_of(model, score, prediction, truth) for prediction, truth in pairs], dtype=np.float64)


def _history(run: Run, carried: Carried, failure: NDArray[np.float64]) -> History:
    """Return what is known before the draw: the run's history, and the carried labels."""
    rows: dict[str, Any] = read_rows(run, LEARNED_FROM, carried.places)
    known = read_history(run)
    return replace(known, labelled=[*known.labelled, {"pool": Pool(**rows), "outcomes": 1 - failure}])


def _predicted(
    view: View, parameters: Any, places: NDArray[np.int64], failure: NDArray[np.float64], learns: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return p (N,) of every example, and the leverage (n,) of the carried labels at ``places`` (n,)."""
    mean = np.full(view.size, (failure.sum() + 0.5) / (len(failure) + 1))
    if not learns:
        return mean, np.zeros(len(places))
    forecast = predict_failure(signals_for(view, parameters, NO_HISTORY), places, failure)
    share = trusted_share(len(places))
    return share * forecast.failure + (1 - share) * mean, np.clip(share * forecast.leverage, 0, 1)


def _draw(run: Run, view: View, carried: Carried, num: int, history: History, progress: Report) -> Selection | None:
    """Return a draw from what is new or changed, by its places in the whole pool; None if nothing is."""
    new = np.flatnonzero(~carried.common)
    if not len(new):
        return None
    sample = run.spec.sample
    given = run.spec.drawn_with(sample.method, sample.parameters)
    known = None if history is NO_HISTORY else history.take(new)
    found = select_from(subset(view, new), sample.method, num, run.spec.seed, history=known, progress=progress, **given)
    return replace(found, index=new[found.index])


def carried_facts(run: Run) -> dict[str, Any] | None:
    """Return what the first draw of a run states of labels that it carries over; None if it carries none."""
    return run.read_selection(1).facts.get(CARRIED) if 1 in run.rounds() else None


def import_carried(run: Run) -> None:
    """Import the labels that the first round carries, unless that is done."""
    facts = carried_facts(run)
    if facts is None:
        return
    source = f"labels of {facts['run']}.jsonl"
    if any(action.source == source for commit in run.commits for action in commit.documents(LabelAction)):
        return
    before = run_beside(output_of(run), facts["run"])
    known = labelled_rounds.having_labels(labelled_rounds.read_rounds(before)) if before else []
    label = {name: text for item in known for name, text in zip(item.known.ids, item.truth, strict=True)}
    selection = run.read_selection(1)
    assert isinstance(selection.design, Grown)
    ids = [name for name, part in zip(selection.ids, selection.design.part.tolist(), strict=True) if part == OLD]
    if not all(name in label for name in ids):
        log.warning("the labels of %s can no longer be read; label its examples again", facts["run"])
        return
    import_labels(run, source, as_jsonl({"id": name, "label": label[name]} for name in ids))
    log.info("%s", describe(facts, len(selection) - facts["labels"]))


def carried_to(run: Run, id: str) -> list[Run]:
    """Return the later runs of an audit in which a run's label of an example counts, the oldest first."""
    found = [run]
    for later in runs_of(output_of(run).uri, run.spec.name)[0]:
        selection = later.read_selection(1) if 1 in later.rounds() else None
        source = selection.facts.get(CARRIED, {}).get("run") if selection else None
        if selection and any(source == own.name for own in found) and isinstance(selection.design, Grown):
            part = dict(zip(selection.ids, selection.design.part.tolist(), strict=True))
            found += [later] if part.get(id) == OLD else []
    return [own for own in found[1:] if _counts(own, id)]


def _counts(run: Run, id: str) -> bool:
    """Return whether a carried label counts: it is neither corrected nor withdrawn."""
    return any(item.state == "counts" and not item.correction for item in list_answers(run, id).answers)


def describe(facts: dict[str, Any], drawn: int) -> str:
    """Describe what is carried: how many labels, for which share of the pool, and how many are to come."""
    labels = counted(facts["labels"], "label")
    lost = facts["of"] - facts["labels"]
    left = f"; {counted(lost, 'other')} do not, whose files changed or are gone" if lost else ""
    more = f"{counted(drawn, 'example')} drawn from the {counted(facts['new'], 'new or changed one')}"
    return f"{labels} of {facts['run']} still count, for {100 * facts['share']:.1f} % of the pool{left}; {more}"
