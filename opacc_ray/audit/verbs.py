"""Verbs of an audit: extract, select, draw further rounds, close a round.

``labels/label_actions.py`` imports the labels, and ``accuracy.py`` estimates the accuracy. Each verb reads and writes
only the prefix of the run, and the shared features and reference next to it. So days may pass between two verbs, and
each verb may run in another process. Every verb may be repeated: completed work is kept.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.carried_labels import choose_first, import_carried
from opacc_ray.audit.comparison import open_models
from opacc_ray.audit.prior_knowledge import check_history, read_history
from opacc_ray.audit.sanity import check_model, note_predictions, note_trial
from opacc_ray.audit.stages import Stage, extract, settle, stages_of
from opacc_ray.audit.status import failure_kept, has_page
from opacc_ray.cluster import local
from opacc_ray.errors import DataError, LabelError, counted
from opacc_ray.extract import user_code
from opacc_ray.extract.feature_set import feature_set
from opacc_ray.extract.table_columns import store_slices, try_slices
from opacc_ray.labels import labelled_rounds
from opacc_ray.labels.formats import FORMATS, NOTES, Context, Task, link_to
from opacc_ray.labels.label_log import adopt_rules, label_rules
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.labels.shown_examples import read_shown, try_shown
from opacc_ray.lake.store_uris import open_store
from opacc_ray.pool import NO_HISTORY
from opacc_ray.runs import feature_store
from opacc_ray.runs.feature_store import compare_objects, write_listing
from opacc_ray.runs.run import HEADER, Closing, Run
from opacc_ray.runs.run_documents import ClosedRound, Commit, Happening
from opacc_ray.runs.series import known_features, pool_changes
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.samplers.base import Report, unreported
from opacc_ray.samplers.select import select as select_from
from opacc_ray.selection import Selection
from opacc_ray.spec import Spec
from opacc_ray.spec.table_spec import is_table, spec_of_other_model

log = logging.getLogger(__name__)

NAMES_SERVED = "names_served"
"""Fact of a selection: a caller named the numbers that it serves."""

ExtractionSlot = Callable[[Sequence[Stage]], AbstractContextManager[None]]
"""Context of an extraction, which may wait for other runs when it is entered."""


def start(spec: Spec, *, trial: bool = False) -> tuple[Run, list[Stage]]:
    """Open the run of a spec, or create it, and return the stages of its extraction.

    The same spec and data give the same run. With ``trial``, the model is built in this process: stored features are
    compared with new ones of some examples, and some examples are tried before a run is created that needs extraction.

    Raises StorageError, DataError or SpecError if pool, reference, weights or output are not usable; then nothing is
    written.
    """
    spec, plan, compared, header, uri = settle(spec, trial=trial)
    store = open_store(uri)
    doubts: list[str] = []
    if not store.exists(HEADER):
        if spec.has_history:
            check_history(spec, plan, compared)
        there = None
        with suppress(DataError):  # it will be extracted again
            there = feature_set(store, header.features, spec.surprise()).read()
        if there is not None:
            feature_store.check_fit(spec, there.index)
        elif not spec.pool.holds_features:
            local.begin()
        if there is None and trial:
            read_only = spec.pool.holds_features
            log.info("reading the first rows of the pool" if read_only else "trying the model on some examples")
            tried = check_model(spec, plan, compared)
            doubts = tried.warnings
            log.info("%s", tried.found)
            for doubt in tried.of_some:
                log.warning("%s", doubt)
    try_slices(spec.pool, plan)
    try_shown(spec)
    run = Run.create(uri, header)
    if doubts:
        note_trial(run, doubts)
    adopt_rules(run, spec)
    write_listing(run, plan)
    return run, stages_of(run, spec, plan, compared)


def open_other(run: Run, uri: str) -> Run:
    """Open the run of another model; of a file of its predictions for the same pool, make one that draws no sample."""
    if not is_table(uri):
        return Run.open(uri)
    with user_code.isolated():
        other, stages = start(spec_of_other_model(uri, run.spec))
        extract(stages, unreported)
    return other


def first_round(
    spec: Spec,
    extracting: Report = unreported,
    selecting: Report = unreported,
    *,
    trial: bool = False,
    slot: ExtractionSlot = lambda stages: nullcontext(),
    labels_of_new: Callable[[], int] | None = None,
) -> Run:
    """Extract, select the first round and write its manifests. Completed work is kept, damaged work is done again.

    An error is stored with the run until a later call succeeds.

    Parameters
    ----------
    extracting, selecting : progress of extraction, in shards, and of selection, in examples
    trial : as for :func:`start`
    slot : context of the extraction, which may wait for other runs
    labels_of_new : returns how many new examples of a grown pool are drawn; default: their share of the budget
    """
    audit, stages = start(spec, trial=trial)
    with failure_kept(audit):
        log.info("run %s: %s", audit.uri, counted(audit.header.pool.num_shards, "shard"))
        if changes := pool_changes(audit, stages[-1].plan.entries):
            log.info("the pool: %s", changes)
        with slot(stages):
            extract(stages, extracting)
        store_slices(audit.spec.pool, stages[-1].plan, audit.complete_features(), known_features(audit))
        note_predictions(audit)
        if drawn := audit.rounds():
            at = audit.drawn_at(drawn[-1])
            log.info("round %d was drawn before, %s: nothing new is drawn", drawn[-1], f"{at:%Y-%m-%d %H:%M} UTC")
        elif first := choose_first(audit, selecting, labels_of_new):
            _write_round(audit, *first)
        else:
            own = spec.sample
            select(audit, own.method, own.budget, own.parameters, progress=selecting)
        import_carried(audit)
    return audit


class Choice(NamedTuple):
    """What a round is drawn by."""

    method: str
    budget: int | None
    parameters: Mapping[str, Any]
    seed: int
    names_served: bool  # whether a caller named the numbers that it serves, which later rounds then serve too


def _choice(
    run: Run,
    method: str,
    budget: int | None,
    given: Mapping[str, Any],
    seed: int,
    before: Selection | None = None,
) -> Choice:
    """Return what a round is drawn by: what is given, what the round before kept by this method, then the spec."""
    kept = dict(before.parameters) if before and before.method == method else {}
    if kept and before and before.facts.get(NAMES_SERVED) and "serve" not in given:
        return Choice(method, budget, kept | dict(given), seed, names_served=True)
    kept.pop("serve", None)
    return Choice(method, budget, kept | dict(run.spec.drawn_with(method, given)), seed, "serve" in given)


def _matches(choice: Choice, selection: Selection) -> bool:
    """Whether a selection was drawn by a choice, as far as that is visible without drawing it again."""
    stated = asdict(parse_parameters(choice.method, choice.parameters))
    return (
        choice.method == selection.method
        and choice.budget in (None, len(selection))
        and choice.seed == selection.seed
        and json.loads(json.dumps(stated)) == selection.parameters
    )


def select(
    run: Run,
    method: str,
    budget: int | None,
    parameters: Mapping[str, Any],
    seed: int | None = None,
    progress: Report = unreported,
) -> Selection:
    """Choose the examples of the first round and write its manifests.

    ``progress`` is used as in :func:`opacc_ray.select`. Raises SpecError for an unknown method or parameter, or an
    invalid budget; LabelError if the run has another first round.
    """
    choice = _choice(run, method, budget, parameters, run.spec.seed if seed is None else seed)
    selection = _choose(run, choice, [], progress)
    _write_round(run, selection, set())
    return selection


def next_round(
    run: Run,
    budget: int | None,
    *,
    method: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    serve: Sequence[str] | None = None,
    close: bool = False,
    repeat: bool = False,
    progress: Report = unreported,
) -> Selection:
    """Draw a further round with all labels so far, or the first one.

    Method and parameters are those of the last round unless given; another method starts with its own defaults.
    `neyman` serves the numbers of the spec, also where these have changed, unless a ``serve`` was given among the
    parameters of this round or an earlier one; the argument ``serve`` is for this round only. ``close`` gives up the
    missing labels of the last round: they count as not drawn, and their examples may be drawn again. With ``repeat``,
    the last round is returned, and none drawn, if it has no answer since it was drawn and these arguments.
    ``progress(done, total)`` counts chosen examples.

    Raises
    ------
    LabelError
        The last round needs labels and is not closed, or its labels allow no estimate; labels came during the draw;
        another command drew the round first; or every example has a label.
    SpecError
        Unknown method or parameter, or invalid budget. Nothing is closed in this case.
    DataError
        A file of labels or of a round is lost or changed, or the features belong to another model.
    """
    if not run.rounds():
        sample = run.spec.sample
        usual = sample.parameters if method in (None, sample.method) else {}
        return select(run, method or sample.method, budget, {**usual, **(parameters or {})}, progress=progress)
    rounds, labelled = labelled_rounds.read_all(run)
    feature_store.check_drawn_from(run, [item.number for item in rounds])
    last = rounds[-1]
    before = last.selection
    choice = _choice(run, method or before.method, budget, parameters or {}, before.seed, before)
    if serve is not None and "serve" not in (parameters or {}):
        served = run.spec.drawn_with(choice.method, {"serve": list(serve)})
        choice = choice._replace(parameters={**choice.parameters, **served})
    if last.missing and not close:
        if repeat and last.number > 1 and not last.is_answered and _matches(choice, before):
            return before
        raise _missing_labels(run, last)
    labelled_rounds.refuse_empty_strata(run, last)
    selection = _choose(run, choice, rounds, progress)
    _write_round(run, selection, labelled, closing=partial(_given_up, last))
    return selection


def _missing_labels(run: Run, last: LabelledRound) -> LabelError:
    go_on = f"none has come yet: give them by `opacc {'label' if has_page(run) else 'labels import'}`"
    if last.is_answered:
        go_on = "import them, or give --close to continue without them"
    return LabelError(
        f"round {last.number} of {run.uri} needs {counted(len(last.missing), 'label')}, the first for "
        f"{last.missing[0]!r}; {go_on}"
    )


def _choose(run: Run, choice: Choice, earlier: Sequence[LabelledRound], progress: Report) -> Selection:
    """Draw a round with the labels of the earlier rounds."""
    parameters = parse_parameters(choice.method, choice.parameters)
    needs, known = find_method(choice.method).needs(parameters), labelled_rounds.having_labels(earlier)
    history = read_history(run) if parameters.learns_from_history else NO_HISTORY

    def draw(pool: Any, outcomes: Sequence[NDArray[np.float64]], history: Any) -> Selection:
        previous = [(item.known, values) for item, values in zip(known, outcomes, strict=True)]
        given = {"history": history, "progress": progress} | dict(choice.parameters)
        return select_from(pool, choice.method, choice.budget, choice.seed, previous=previous, **given)

    if run.spec.sample.models and parameters.serves_several:
        with open_models(run, needs, parameters, known, history) as models:
            chosen = draw(*models)
    else:
        with feature_store.open_view(run, needs, parameters.optional_features, parameters.instead) as view:
            chosen = draw(view, [item.outcome for item in known], history)
    facts = dict(chosen.facts) | ({NAMES_SERVED: True} if choice.names_served else {})
    return replace(chosen, round=len(earlier) + 1, facts=facts)


def _write_round(run: Run, selection: Selection, labelled: set[str], closing: Closing = lambda now: []) -> None:
    """Write a round with its manifests; ``labelled`` are the ids of all examples with a label."""
    spec = run.spec
    chosen = feature_store.find_chosen(run, selection, labelled)
    notes = {key: NOTES[state] for key, state in compare_objects(run, [chosen])[1].items()}
    first = {name: i for i, name in reversed([*enumerate(chosen.ids)])}  # draws: an example is labelled once
    shown = read_shown(run, [chosen], label_rules(run).show)
    rows = [
        Task(
            id=chosen.ids[i],
            uri=link_to(chosen.uris[i], spec.manifest.link, id=chosen.ids[i], run=run.name, round=selection.round),
            run=run.name,
            round=selection.round,
            order=i + 1,
            note=notes.get(chosen.objects[i] or ""),
            shown=shown.get(chosen.ids[i], {}),
        )
        for i in sorted(first.values())
        if not chosen.labelled[i]
    ]
    names, counts = spec.model.classes, spec.model.counts
    context = Context(tuple(names) if names else None, counts=tuple(counts or ()))
    files = {name: data for kind in ("jsonl", "csv") for name, data in FORMATS[kind].write(rows, context).items()}
    run.write_round(selection, chosen, files, closing)


def close_round(run: Run) -> None:
    """Give up the missing labels of the newest round, so that they count as not drawn.

    Raises LabelError if the existing labels allow no estimate for the pool, or further labels came meanwhile.
    """
    last = labelled_rounds.read_rounds(run)[-1]
    labelled_rounds.refuse_empty_strata(run, last)

    def decide(commits: tuple[Commit, ...]) -> Happening | None:
        closed = _given_up(last, run.at(commits))
        return Happening(closed, last.number) if closed else None

    run.log.append(decide)


def _given_up(last: LabelledRound, now: Run) -> list[ClosedRound]:
    """Return what closes the last round of a run as it is now.

    Raises LabelError if one of its missing labels came meanwhile: it would be lost.
    """
    missing = set(last.missing) - set(now.read_closed(last.number) or ())
    if not missing:
        return []
    if not missing.isdisjoint(labelled_rounds.read_labelled(now)):
        raise LabelError(
            f"labels of round {last.number} of {now.uri} were imported during its closing, so nothing was closed or "
            "drawn; run the command again"
        )
    return [now.closing(last.number, last.missing)]
