"""Verbs of an audit: find the run of a spec, extract, select, draw further rounds, close a round.

``labels/label_actions.py`` imports the labels, and ``accuracy.py`` estimates the accuracy. Each verb reads and writes
only the prefix of the run, and the shared features and reference next to it. So days may pass between two verbs, and
each verb may run in another process. Every verb may be repeated: completed work is kept.

**Which run.** The digest of features includes the code that makes them. So changed code gives another run with its own
features, and the earlier run keeps its features, rounds and labels. Stored features have a record of what else was
loaded, which is compared, and some stored examples are extracted again. If either differs, the same spec gives the next
edition of its run.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.carried_labels import choose_first, import_carried
from opacc_ray.audit.checks import check_pool
from opacc_ray.audit.comparison import check_models, open_models
from opacc_ray.audit.extraction_stages import Stage, extract, most_examples, stages_of
from opacc_ray.audit.history import check_history, read_history
from opacc_ray.audit.sanity import check_model, note_predictions, note_trial
from opacc_ray.audit.status import EXTRACTION, failure_kept, has_page
from opacc_ray.cluster import local, session
from opacc_ray.errors import DataError, LabelError, counted
from opacc_ray.extract import feature_set, reference, user_code
from opacc_ray.extract.model_code import Code, changes, code_of, has_records, outdated, records
from opacc_ray.extract.shards import finished_shards
from opacc_ray.extract.table_columns import store_slices, try_slices
from opacc_ray.extract.trial import difference
from opacc_ray.labels import labelled_rounds
from opacc_ray.labels.formats import FORMATS, NOTES, Context, Task, link_to
from opacc_ray.labels.label_log import adopt_rules, label_rules
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.labels.shown_examples import read_shown, try_shown
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.pool import NO_HISTORY
from opacc_ray.runs.run import (
    HEADER,
    Closing,
    Run,
    check_drawn_from,
    check_fit,
    checked_weights,
    compare_objects,
    find_chosen,
    header_of,
    located,
    open_view,
    write_listing,
)
from opacc_ray.runs.run_documents import ClosedRound, Commit, Happening, RunHeader
from opacc_ray.runs.series import features_before, known_features, names_of_runs, pool_changes, run_beside
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.samplers.base import Report, unreported
from opacc_ray.samplers.select import select as select_from
from opacc_ray.selection import Selection
from opacc_ray.spec import PoolSpec, Spec
from opacc_ray.spec.table_spec import is_table, spec_of_other_model

log = logging.getLogger(__name__)


class Resolved(NamedTuple):
    """A spec with its plan and its run."""

    spec: Spec  # with absolute paths and the digest of its weights
    plan: Plan  # of the pool
    compared: Plan | None  # of the reference, if a feature is compared with one
    header: RunHeader
    uri: str  # of the run


def resolve(spec: Spec) -> Resolved:
    """Return the run for a spec with its present pool, reference, weights and code; writes nothing.

    Raises StorageError, DataError or SpecError if pool, reference or weights are not usable.
    """
    spec = located(spec)
    plan = check_pool(spec)
    if spec.sample.models:
        check_models(spec, plan)
    spec = checked_weights(spec)
    return _resolved(spec, plan, reference.plan(spec), code_of(spec))


def settle(spec: Spec, *, trial: bool) -> Resolved:
    """Return the run for a spec, such that features that are stored fit its code; raises as :func:`resolve`.

    With ``trial``, some stored examples are extracted again and compared; otherwise stored features are trusted.
    """
    resolved = resolve(spec)
    if resolved.header.code is None:
        return resolved
    doubt, fitting = "", None
    while True:
        fault, newer = _fault(resolved, trial=trial), _next(resolved)
        fitting = resolved if fault is None else fitting
        if fitting and (trial or not _is_stored(newer)):
            break
        doubt, resolved = fault or doubt, newer
    if _is_stored(fitting):
        files = {name for each in records(_folder(fitting)) for name in each.files}
        weights = "code, weights" if spec.model.sha256 or spec.model.weights else "code"
        log.info("features reused: %s and %s unchanged", weights, counted(len(files), "file"))
    elif reason := doubt or _changed(fitting):
        log.warning("%s: extracting again", reason)
    return fitting


def _fault(resolved: Resolved, *, trial: bool) -> str | None:
    """Describe why stored features do not fit today's code; None if they do, or none are stored."""
    seconds = resolved.spec.extract.shard_timeout
    for source, plan, folder in _stored(resolved):
        what, has_shards = outdated(folder, os.getcwd()), bool(finished_shards(folder))
        if what is None and has_shards and not has_records(folder):
            what = "the record of the code was lost"
        if what is not None:
            return f"{what} since the features in {folder.uri} were extracted"
        found = None
        if trial and has_shards:  # else a local Ray would start only after the model's process has imported torch
            found = user_code.call(difference, resolved.spec, source, plan, folder, seconds=seconds)
        if found is not None:
            return f"{found}; no source file has changed, so data or settings of the model have"
    return None


def _resolved(spec: Spec, plan: Plan, compared: Plan | None, code: Code | None) -> Resolved:
    link = feature_set.plan_set(spec, plan, compared, code)
    header = header_of(spec, plan, compared, link, code)
    uri = join(spec.output, f"{spec.name}-{(header.digest or '')[:8]}")
    stored = open_store(uri).read_if_there(HEADER)
    if stored is None:
        before = features_before(spec, plan, link, code)
    else:
        before = RunHeader.from_bytes(stored, join(uri, HEADER)).grown_from
    return Resolved(spec, plan, compared, header.model_copy(update={"grown_from": before}), uri)


def _next(resolved: Resolved) -> Resolved:
    """Return the run with the next edition of its features."""
    code = resolved.header.code
    assert code is not None
    newer = code.model_copy(update={"edition": code.edition + 1})
    return _resolved(resolved.spec, resolved.plan, resolved.compared, newer)


def _stored(resolved: Resolved) -> Iterator[tuple[PoolSpec, Plan, Store]]:
    """Yield pool and reference with their plans and folders of features, and what the pool takes from a run before it.

    The shards of that plan are those that take something.
    """
    spec, store, header = resolved.spec, open_store(resolved.uri), resolved.header
    known = store.read_if_there(HEADER)
    link = RunHeader.from_bytes(known, store.uri_of(HEADER)).features if known else header.features
    yield spec.pool, resolved.plan, feature_set.feature_set(store, link).folder
    before = run_beside(open_store(spec.output), header.grown_from)
    if before is not None:
        shards = [shard for shard in feature_set.locate(before.features, resolved.plan.shards) if shard.carried]
        yield spec.pool, resolved.plan._replace(shards=tuple(shards)), before.features
    if resolved.compared is not None and spec.reference is not None:
        digest = reference.digest(spec, resolved.compared, header.code)
        yield spec.reference, resolved.compared, reference.folder_of(spec, digest, store)


def _folder(resolved: Resolved) -> Store:
    """Return the folder of the pool's features."""
    _, _, folder = next(_stored(resolved))
    return folder


def _is_stored(resolved: Resolved) -> bool:
    """Whether any shard of the pool has features."""
    return bool(finished_shards(_folder(resolved)) & {shard.name for shard in resolved.plan.shards})


def _changed(resolved: Resolved) -> str | None:
    """Describe how the code changed after an earlier extraction of the same data; None if there was none."""
    now, home = resolved.header, open_store(resolved.spec.output)
    names = names_of_runs(home)
    if resolved.uri.rpartition("/")[2] in names:
        return None
    found = []
    for run in names:
        with suppress(DataError):
            key = f"{run}/{HEADER}"
            other = RunHeader.from_bytes(home.read(key), home.uri_of(key))
            what = changes(other.code, now.code) if other.code and now.code else None
            folder = feature_set.feature_set(home.store(run), other.features).folder
            same = _decided(other, resolved.plan) == _decided(now, resolved.plan)
            if what and same and finished_shards(folder):
                found.append((other.created, run, other, what))
    if not found:
        return None
    _, run, other, what = max(found, key=lambda item: item[0])
    place = f"{feature_set.HOME}/{other.features.digest}" if other.features else f"{run}/{feature_set.HOME}"
    kept = f" for {run}, which keeps them with its rounds and labels" if other.spec.name == now.spec.name else ""
    return f"{what} since the features in {place} were extracted{kept}"


def _decided(header: RunHeader, plan: Plan) -> tuple[str, dict[str, object]]:
    """Return everything that decides the features of a run, apart from its code."""
    return header.pool.digest, feature_set.decided_by(header.spec, header.spec.pool, plan, None)


# -- rounds ----------------------------------------------------------------------------------------------------------


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
    pace: float | None = None
    if not store.exists(HEADER):
        if spec.has_history:
            check_history(spec, plan, compared)
        there = None
        with suppress(DataError):  # it will be extracted again
            there = feature_set.feature_set(store, header.features, spec.surprise()).read()
        if there is not None:
            check_fit(spec, there.index)
        elif not spec.pool.holds_features and session.needs_ray(spec.extract, most_examples(plan, spec.extract)):
            local.begin()
        if there is None and trial:
            read_only = spec.pool.holds_features
            log.info("reading the first rows of the pool" if read_only else "trying the model on some examples")
            tried = check_model(spec, plan, compared)
            doubts, pace = tried.warnings, tried.pace
            log.info("%s", tried.found)
            for doubt in tried.of_some:
                log.warning("%s", doubt)
            if pace is not None and session.needs_ray(spec.extract, most_examples(plan, spec.extract), pace):
                local.begin()
    try_slices(spec.pool, plan)
    try_shown(spec)
    run = Run.create(uri, header)
    if doubts:
        note_trial(run, doubts)
    adopt_rules(run, spec)
    write_listing(run, plan)
    return run, stages_of(run, spec, plan, compared, pace)


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
            work = extract(stages, extracting)
        if work is not None:
            log.info("extracted: %s", work)
            audit.store.write(EXTRACTION, work.to_bytes())
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
    check_drawn_from(run, [item.number for item in rounds])
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
        with open_view(run, needs, parameters.optional_features, parameters.instead) as view:
            chosen = draw(view, [item.outcome for item in known], history)
    facts = dict(chosen.facts) | ({NAMES_SERVED: True} if choice.names_served else {})
    return replace(chosen, round=len(earlier) + 1, facts=facts)


def _write_round(run: Run, selection: Selection, labelled: set[str], closing: Closing = lambda now: []) -> None:
    """Write a round with its manifests; ``labelled`` are the ids of all examples with a label."""
    spec = run.spec
    chosen = find_chosen(run, selection, labelled)
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
