"""The audit, verb by verb: extract → select → write manifests, round after round.

``extraction.py`` makes the features, ``labelled_rounds.py`` takes the labels back, ``results.py`` states the accuracy.
Each verb reads and writes only the prefix of the run, and features and reference beside it, so days may pass between
two of them and each may run in another process. Every verb may be repeated: what is done is kept.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from opacc_ray.audit.closing import give_up
from opacc_ray.audit.extraction import Stage, extract, stages_of
from opacc_ray.audit.history import check_history, read_history
from opacc_ray.audit.progress import both
from opacc_ray.audit.resolution import settle
from opacc_ray.audit.run_metrics import RunMetrics
from opacc_ray.audit.sanity import check_model, note_predictions, note_trial
from opacc_ray.audit.several_models import histories_with, open_views, outcomes_of_all, served_with
from opacc_ray.cluster import local
from opacc_ray.errors import LabelError, SpecError, counted
from opacc_ray.extract.feature_set import feature_set, read_sound
from opacc_ray.history import NO_HISTORY
from opacc_ray.labels.formats import manifest
from opacc_ray.labels.labelled_rounds import (
    LabelledRound,
    having_labels,
    is_labelled,
    read_all,
    read_labelled,
    read_rounds,
    refuse_empty_strata,
)
from opacc_ray.labels.log import adopt_rules, read_log, refuse_lost
from opacc_ray.labels.rows import Context, ManifestRow
from opacc_ray.lake.storage import open_store
from opacc_ray.runs import feature_store
from opacc_ray.runs.failure import failure_kept
from opacc_ray.runs.pool_objects import compare_objects, write_listing
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.samplers.base import Report, unreported
from opacc_ray.samplers.select import find_method, parse_parameters
from opacc_ray.samplers.select import select as select_from
from opacc_ray.selection import Selection
from opacc_ray.spec import SampleSpec, Spec

log = logging.getLogger(__name__)

Turn = Callable[[Sequence[Stage]], AbstractContextManager[None]]
"""What a run waits for before it extracts, and what it holds meanwhile."""


def start(spec: Spec, *, trial: bool = False) -> tuple[Run, list[Stage]]:
    """Resolve the spec against pool, reference and weights, and open its run: the same spec and data, the same run.

    Parameters
    ----------
    spec : what is asked
    trial : build the model here; compare stored features with what it makes of some examples, and before a new run is
        made whose features are not there, run some examples

    Returns
    -------
    (Run, list of Stage)
        The run, and what to extract for it: the reference if a feature compares with it, then the pool.

    Raises
    ------
    StorageError, DataError, SpecError
        Pool, reference, weights or output cannot be used. Nothing is written then.
    """
    resolved = settle(spec, trial=trial)
    spec, plan, header, uri = resolved.spec, resolved.plan, resolved.header, resolved.uri
    store = open_store(uri)
    doubts: list[str] = []
    if not store.exists(HEADER):
        if spec.has_history:
            check_history(spec, plan, resolved.compared)
        there = read_sound(feature_set(store, header.features))
        if there is not None:
            feature_store.check_fit(spec, there.index)
        elif not spec.pool.holds_features:
            local.begin()
        if there is None and trial:
            log.info("trying %s", "one row of the pool" if spec.pool.holds_features else "the model on some examples")
            tried = check_model(spec, plan, resolved.compared)
            doubts = tried.warnings
            log.info("%s", tried.found)
    run = Run.create(uri, header)
    if doubts:
        note_trial(run, doubts)
    adopt_rules(run, spec)
    write_listing(run, plan.entries)
    return run, stages_of(run, spec, plan, resolved.compared)


def run(
    spec: Spec,
    extracting: Report = unreported,
    selecting: Report = unreported,
    *,
    trial: bool = False,
    turn: Turn = lambda stages: nullcontext(),
) -> Run:
    """Extract, select and write manifests; what an earlier call did is kept, and what is damaged of it made again.

    What ends it is kept with the run, until a later call succeeds.

    ``extracting(done, total)`` counts shards, ``selecting(done, total)`` chosen examples.
    ``trial`` is that of :func:`start`; extraction happens within ``turn(stages)``, which may wait for other runs.
    """
    audit, stages = start(spec, trial=trial)
    with failure_kept(audit):
        _extract_and_select(audit, spec.sample, stages, extracting, selecting, turn)
    return audit


def _extract_and_select(
    audit: Run, sample: SampleSpec, stages: Sequence[Stage], extracting: Report, selecting: Report, turn: Turn
) -> None:
    """Do what is missing of a run."""
    log.info("run %s: %d shards", audit.uri, audit.header.pool.num_shards)
    metrics = RunMetrics(audit)
    with turn(stages):
        extract(stages, both(extracting, metrics.shards), metrics.extracted)
    note_predictions(audit)
    rounds = [(track, number) for track in audit.tracks() for number in track.rounds()]
    for uri in [uri for track, number in rounds for uri in track.restore_copies(number)]:
        log.warning("%s was lost or changed; it is as it was drawn again, and what was changed lies in replaced/", uri)
    if not audit.rounds():
        select(
            audit,
            sample.method,
            sample.budget,
            sample.parameters,
            replicates=sample.replicates,
            progress=selecting,
        )
    metrics.state()


class Choice(NamedTuple):
    """What is asked of `opacc.select`."""

    method: str
    budget: int | None
    parameters: Mapping[str, Any]
    seed: int
    replicates: int | None

    @classmethod
    def of(
        cls,
        run: Run,
        method: str,
        budget: int | None,
        parameters: Mapping[str, Any],
        seed: int | None,
        replicates: int | None,
    ) -> "Choice":
        """What is asked of a run, with its seed if none is given."""
        return cls(method, budget, parameters, run.spec.seed if seed is None else seed, replicates)

    def gave(self, selection: Selection) -> bool:
        """Whether a selection is what this asks for, as far as that shows without drawing it again."""
        stated = asdict(parse_parameters(self.method, self.parameters))
        return (
            self.method == selection.method
            and self.budget in (None, len(selection))
            and self.seed == selection.seed
            and json.loads(json.dumps(stated)) == selection.parameters
            and (self.replicates or 0) == selection.design.num_replicates
        )


def select(
    run: Run,
    method: str,
    budget: int | None,
    parameters: Mapping[str, Any],
    seed: int | None = None,
    replicates: int | None = None,
    progress: Report = unreported,
) -> Selection:
    """Choose what to label in the newest round of the run's track and write its manifests.

    A selection that has no labels yet is replaced, and stays under ``draws/``; one that has labels is not touched.
    ``progress`` is that of :func:`opacc_ray.select`.

    Raises
    ------
    SpecError
        Unknown method or parameter, unfit budget, or labels that are there already.
    LabelError
        Another command drew the round meanwhile; or the run has no first selection, and this is another track.
    """
    number = max(run.rounds(), default=1)
    if run.track is not None and not run.along(None).rounds():
        raise LabelError(f"{run.uri} has no selection yet, which comes before other tracks; leave --track out")
    earlier = read_rounds(run)[:-1] if number > 1 else []
    there, before = number in run.rounds(), run.num_draws(number)
    selection = _choose(run, Choice.of(run, method, budget, parameters, seed, replicates), earlier, progress)
    if number in run.rounds():
        if run.read_selection(number).to_dict() == selection.to_dict():
            run.restore_copies(number)  # the command that drew it may have been killed before it wrote them
            return selection
        if is_labelled(run, number):
            raise SpecError(
                f"round {number} of {run.title} has labels already, which another selection would orphan; draw a "
                "further round with `opacc next`, or select on another track with --track NAME"
            )
        if there and not before:
            run.keep_draw(number)
            before = 1
    _write_round(run, selection, read_labelled(run), before)
    return selection


def select_beside(
    run: Run,
    method: str,
    budget: int | None,
    parameters: Mapping[str, Any],
    seed: int | None = None,
    replicates: int | None = None,
    progress: Report = unreported,
) -> Run:
    """Select as :func:`select`; where the newest round has labels and is another selection, on a track of its own.

    The name is METHOD-BUDGET. That track takes over labels that its examples have, and learns nothing from them.

    Returns
    -------
    Run
        Along the track of the selection.
    """
    choice = Choice.of(run, method, budget, parameters, seed, replicates)
    number = max(run.rounds(), default=0)
    if number and not choice.gave(run.read_selection(number)) and is_labelled(run, number):
        run = run.along(method if budget is None else f"{method}-{budget}")
    select(run, *choice, progress)
    return run


def next_round(
    run: Run,
    budget: int | None,
    *,
    method: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    replicates: int | None = None,
    close: bool = False,
    progress: Report = unreported,
) -> Selection:
    """Choose what to label next, knowing all labels so far.

    Method, parameters and number of replicates are those of the round before unless given; another method starts from
    its own defaults. ``replicates=0`` goes on without them. ``close`` gives up the labels that the round before still
    waits for: they count as not drawn, and their examples may be drawn again. ``progress(done, total)`` counts chosen
    examples.

    Raises
    ------
    LabelError
        The round before waits for labels and is not closed, or has labels of which nothing can be stated; some came
        while this one was drawn; another command drew it first, or all is labelled.
    SpecError
        Unknown method or parameter, or unfit budget. Nothing is closed then.
    DataError
        A file of labels or of a round is lost or changed, or the features are of another model.
    """
    rounds, labelled = read_all(run)
    refuse_lost(run)
    feature_store.check_drawn_from(run, [item.number for item in rounds])
    last = rounds[-1]
    if last.missing and not close:
        raise LabelError(
            f"round {last.number} of {run.title} waits for {counted(len(last.missing), 'label')}, the first for "
            f"{last.missing[0]!r}; import them, or give --close to go on without them"
        )
    refuse_empty_strata(run, last)
    selection = _choose(run, _like(last.selection, method, budget, parameters or {}, replicates), rounds, progress)
    if last.missing:  # only now: a wrong parameter or budget must not cost labels
        give_up(run, last)
    _write_round(run, selection, labelled)
    return selection


def _like(
    before: Selection, method: str | None, budget: int | None, parameters: Mapping[str, Any], replicates: int | None
) -> Choice:
    """What is asked of a round that follows another one."""
    if method in (None, before.method):
        parameters = before.parameters | dict(parameters)
        replicates = before.design.num_replicates if replicates is None else replicates
    return Choice(method or before.method, budget, parameters, before.seed, replicates or None)


def _choose(run: Run, choice: Choice, earlier: Sequence[LabelledRound], progress: Report) -> Selection:
    parameters = parse_parameters(choice.method, choice.parameters)
    others = served_with(run, parameters)
    known = having_labels(earlier)
    if known and others:
        outcomes = outcomes_of_all(known, run, others, read_log(run).score)
    else:
        outcomes = [item.outcome for item in known]
    previous = [(item.known, values) for item, values in zip(known, outcomes, strict=True)]
    needs = find_method(choice.method).needs(parameters)
    known_before = read_history(run) if parameters.learns_from_history else NO_HISTORY
    with open_views(run, others, needs, parameters) as views:
        chosen = select_from(
            views,
            choice.method,
            choice.budget,
            choice.seed,
            previous=previous,
            replicates=choice.replicates,
            history=histories_with(known_before, len(others)),
            progress=progress,
            **choice.parameters,
        )
    return replace(chosen, round=len(earlier) + 1)


def _write_round(run: Run, selection: Selection, labelled: set[str], before: int = 0) -> None:
    """``labelled`` are the ids of all examples that have a label."""
    spec = run.spec
    chosen = feature_store.find_chosen(run, selection)
    chosen = chosen._replace(labelled=[name in labelled for name in chosen.ids])
    compared = compare_objects(run, [chosen])
    notes = dict.fromkeys(compared.changed, manifest.NOTES["changed"])
    notes |= dict.fromkeys(compared.lost, manifest.NOTES["lost"])
    rows = [
        ManifestRow(
            id=chosen.ids[i],
            uri=manifest.link_to(
                chosen.uris[i], spec.manifest.link, id=chosen.ids[i], run=run.name, round=selection.round
            ),
            run=run.name,
            round=selection.round,
            order=i + 1,
            prediction=spec.model.name_of(chosen.predictions[i]),
            note=notes.get(chosen.objects[i] or ""),
        )
        for i in _first_draws(selection)
        if not chosen.labelled[i]
    ]
    context = Context(tuple(spec.model.classes) if spec.model.classes else None)
    files = {
        f"manifest{manifest.FORMATS[kind].suffix}": manifest.encode(
            kind, rows, show_prediction=spec.manifest.show_prediction, context=context
        )
        for kind in spec.manifest.formats
    }
    run.write_round(selection, chosen, files, before)


def _first_draws(selection: Selection) -> list[int]:
    """Places in the selection, without the repeats of an example that was drawn more than once: it is labelled once."""
    return sorted({name: i for i, name in reversed(list(enumerate(selection.ids)))}.values())
