"""The state of a run: how far it is, the command to run next, its last error, its log in words, and signs of a wrong
model: before extraction, in its predictions, and in the labels.

    trial          some examples are tried before extraction (`check`, `run`)
    predictions    of the whole pool, after extraction (`run`)
    labels         all labels so far (`next`, `estimate`, `status`, `report`)

The first two are stored in ``sanity.json``. :mod:`opacc_ray.samplers.plausibility` decides what deserves a warning.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from shlex import quote
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.designs.inclusion_probability import CARRIED
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, LabelError, OpaccError, SpecError, as_ours, counted, redacted
from opacc_ray.estimation.sample import Rounds
from opacc_ray.extract.readers import most_ready
from opacc_ray.extract.shards import ShardReport
from opacc_ray.extract.trial import Trial, try_examples, try_inputs, try_rows
from opacc_ray.extract.user_code import call
from opacc_ray.labels.formats import is_cant_tell, warnings_about
from opacc_ray.labels.label_log import label_rules, read_log
from opacc_ray.labels.labelled_rounds import LabelledRound, digest_of, having_labels, read_rounds
from opacc_ray.lake.examples import Plan
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.registry import Registry
from opacc_ray.runs.run import Run, find_changed, read_sample
from opacc_ray.runs.run_documents import (
    AccuracyEstimate,
    Commit,
    DrawnRound,
    Ended,
    Goal,
    GoalProgress,
    ModelSanity,
    Predicted,
    RoundCounts,
    Spread,
)
from opacc_ray.runs.series import PoolChanges, pool_changes
from opacc_ray.samplers import plausibility
from opacc_ray.selection import Selection
from opacc_ray.spec import ModelSpec, PoolSpec, Spec

log = logging.getLogger(__name__)

SANITY = "sanity.json"

MOST_NUMBERS = 100_000
"""Most classes without names that warnings count one by one; labels may be ids that are far larger."""


MOST_KINDS = 5
"""Most kinds of examples that a trial names."""


class TriedModel(NamedTuple):
    """Result of a trial."""

    found: str  # one sentence
    warnings: list[str]
    of_some: list[str]  # warnings of these examples alone: a run has the numbers of the whole pool
    pace: float | None = None  # seconds of an example in the model, if one runs


def check_model(spec: Spec, plan: Plan, compared: Plan | None = None) -> TriedModel:
    """Try some examples; raises SpecError, DataError or StorageError as extraction would.

    ``compared`` is the plan of the reference, whose inputs are compared with those of the pool.
    """
    if spec.pool.holds_features:
        return _check_rows(spec, plan)
    seconds = spec.extract.shard_timeout
    tried = call(try_examples, spec, plan, seconds=seconds)
    model, names, output = spec.model, spec.model.classes, tried.columns["output"]
    if names and model.task == "classification" and len(names) != output.shape[1]:
        raise SpecError(
            f"model.classes names {len(names)} classes and the model has {output.shape[1]} outputs; name each, in order"
        )
    warnings = [
        *call(_random_parts, model, seconds=seconds),
        *_random_results(tried),
        *plausibility.about_outputs(output, model.task, model.output),
        *_mixed_types(tried, spec),
    ]
    if compared is not None and spec.reference is not None:
        inputs = call(try_inputs, spec, spec.reference, compared, seconds=seconds)
        warnings += plausibility.about_inputs(tried.inputs, inputs)
    of_some = [*about_orientation(spec.pool, tried.turned, tried.num), *_doubtful_class(tried, model)]
    return TriedModel(_described(tried, spec), warnings, of_some, tried.pace)


def _check_rows(spec: Spec, plan: Plan) -> TriedModel:
    """Try the first rows of a pool of features."""
    rows, model = try_rows(spec, plan), spec.model
    sizes = ", ".join(f"{name} {own.shape[1]}" if own.ndim > 1 else name for name, own in rows.columns.items())
    found = f"example {rows.ids[0]!r} has {sizes}; no model is run"
    if model.classes and model.has_classes and int(rows.columns["prediction"].max()) >= len(model.classes):
        return TriedModel(found, [], [])  # extraction checks the whole pool
    predicted = predictions_of(model, rows.columns)
    output = rows.columns.get("output")
    warnings = [] if output is None else plausibility.about_outputs(output, model.task, model.output)
    said = f"; of {counted(predicted.examples, 'example')} predicted: {predicted}" if str(predicted) else ""
    return TriedModel(f"{found}{said}", warnings, [])


def _described(tried: Trial, spec: Spec) -> str:
    first, columns, model = tried.first, tried.columns, spec.model
    predicted = predictions_of(model, columns)
    left_out = f"; {counted(tried.excluded, 'example')} would be left out" if tried.excluded else ""
    note = f"; {tried.note}" if tried.note else ""
    unprepared = ""
    if not spec.transform:
        scales = sorted({np.iinfo(kind.dtype).max for kind in tried.kinds if kind.dtype in ("uint8", "uint16")})
        divided = f"divided by {' or '.join(map(str, scales))}" if scales else "numbers as they are"
        unprepared = f", no transform: {divided}"
    return (
        f"example {first.id!r} {first.array.shape} {first.array.dtype} becomes {tried.input}{unprepared}; read "
        f"{_kinds(tried)}; {tried.hidden} hidden neurons, {counted(columns['output'].shape[1], 'output')}; of "
        f"{counted(predicted.examples, 'example')} predicted: {predicted}{left_out}{note}"
    )


def _kinds(tried: Trial) -> str:
    """Return the kinds of examples that were read, the most frequent first."""
    kinds = [f"{num} × {kind}" for kind, num in tried.kinds.most_common()]
    more = f" and {len(kinds) - MOST_KINDS} more kinds" if len(kinds) > MOST_KINDS else ""
    return ", ".join(kinds[:MOST_KINDS]) + more


def _mixed_types(tried: Trial, spec: Spec) -> list[str]:
    """Return a warning if a transform is given numbers of several scales."""
    types: Counter[str] = Counter()
    for kind, num in tried.kinds.items():
        types[kind.dtype] += num
    if spec.transform is None or len(types) < 2:
        return []
    counts = " and ".join(f"{num} as {name}" for name, num in types.most_common())
    return [f"the transform is given {counts}, and dividing all by 255 misfeeds some; let it scale each by its type"]


def _doubtful_class(tried: Trial, model: ModelSpec) -> list[str]:
    """Return a warning if nearly all examples are predicted as one class, and not all outputs are equal."""
    if model.task != "classification" or np.all(tried.columns["output"] == tried.columns["output"][0]):
        return []
    prediction, confidence = tried.columns["prediction"], tried.columns["confidence"]
    return plausibility.about_one_class(prediction, confidence, tried.columns["output"].shape[1], model.name_of)


def about_orientation(pool: PoolSpec, turned: int, num: int) -> list[str]:
    """Return a warning if the orientation of some of ``num`` images is ignored."""
    if not turned or pool.orientation == "apply":
        return []
    return [
        f"{turned:,} of {counted(num, 'image')} state an EXIF orientation, and the model is given them as they are "
        "stored, not upright; if its service turns them, as OpenCV does, set pool.orientation: apply"
    ]


def _random_parts(model: ModelSpec) -> list[str]:
    """Return a warning if the factory returns a different model each time, because there are no weights."""
    if model.factory is None or model.weights is not None:
        return []
    from opacc_ray.extract.torch_model import random_parameters

    names = random_parameters(model)
    if not names:
        return []
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return [
        f"model.weights is not given, and building the model twice gives different parameters ({', '.join(names[:2])}"
        f"{more}). They are random, so a random network would be audited; give model.weights"
    ]


def _random_results(tried: Trial) -> list[str]:
    """Return a warning if the same examples gave two results."""
    if tried.random is None:
        return []
    what, remedy = {
        "transform": (
            "transform gives another input for the same example",
            "it augments at random; give that of tests",
        ),
        "model": ("model gives another output for the same input", "dropout is on, or it draws numbers; call eval()"),
    }[tried.random]
    return [f"The {what}: {remedy}. As it is, one random draw is audited, and no second extraction agrees with it"]


def predictions_of(model: ModelSpec, columns: Mapping[str, NDArray[Any]]) -> Predicted:
    """Summarize the predictions for some examples."""
    prediction = columns["prediction"]
    counts = Counter(prediction.tolist()) if model.task == "classification" else None
    values = prediction if model.task == "regression" else columns.get("confidence")
    return _predicted(model, len(prediction), counts, values)


def _predicted(model: ModelSpec, num: int, counts: Mapping[int, int] | None, values: NDArray[Any] | None) -> Predicted:
    """Summarize predictions, from the examples of each class, and the confidences or the values of a regression."""
    spread = None
    if values is not None:
        spread = Spread(low=float(values.min()), median=float(np.median(values)), high=float(values.max()))
    most_first = None if counts is None else sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Predicted(
        examples=num,
        classes=None if most_first is None else {model.name_of(code): num for code, num in most_first},
        confidence=None if model.task == "regression" else spread,
        values=spread if model.task == "regression" else None,
    )


def note_trial(run: Run, warnings: Sequence[str]) -> None:
    """Store the warnings of a trial."""
    run.store.write(SANITY, ModelSanity(trial=list(warnings), predicted=None, warnings=[]).to_bytes())


def note_predictions(run: Run) -> None:
    """Store a summary of the predictions for the pool with its warnings, unless that is done."""
    before = _noticed(run)
    if before is not None and before.predicted is not None:
        return
    model, index = run.spec.model, run.complete_features().index
    is_regression = model.task == "regression"
    name = "prediction" if is_regression else "confidence"
    values = read_sample(run, name) if is_regression or name in index.features else None
    predicted = _predicted(model, index.num_examples, None if is_regression else index.predicted, values)
    spread = predicted.confidence or predicted.values
    span = None if spread is None else plausibility.Range(spread.low, spread.median, spread.high)
    warnings = plausibility.about_predictions(predicted.examples, predicted.classes, span, run.num_classes)
    warnings += about_orientation(run.spec.pool, index.turned, predicted.examples)
    unsure = next((name for name in run.spec.model.classes or () if is_cant_tell(name)), None)
    if unsure is not None:
        number = (run.spec.model.classes or []).index(unsure)
        warnings.append(f"a label {unsure!r} means can't tell, not that class: label the class {number}, or rename it")
    warnings += warnings_about(model.label_names)
    sanity = ModelSanity(trial=before.trial if before else [], predicted=predicted, warnings=warnings)
    run.store.write(SANITY, sanity.to_bytes())


def _noticed(run: Run) -> ModelSanity | None:
    with suppress(DataError):  # `opacc verify` reports it, and no number depends on it
        return run.read_document(ModelSanity, SANITY)
    return None


def predicted_by(run: Run) -> Predicted | None:
    """Return the summary of the predictions for the pool; None if it is not stored."""
    noticed = _noticed(run)
    return noticed.predicted if noticed else None


def warnings_of(run: Run, rounds: Sequence[LabelledRound]) -> list[str]:
    """Return all warnings about a run's model: from trial, predictions, and the labels of some rounds."""
    noticed = _noticed(run)
    before = [*noticed.trial, *noticed.warnings] if noticed else []
    return list(dict.fromkeys([*before, *_about_labels(run.spec.model, run.num_classes, having_labels(rounds))]))


def warnings_now(run: Run) -> list[str]:
    """Return all warnings with all labels so far, unless the labels are in conflict."""
    try:
        return warnings_of(run, read_rounds(run, with_lost=True))
    except LabelError:
        return warnings_of(run, ())


def _about_labels(model: ModelSpec, num_classes: int | None, known: Sequence[LabelledRound]) -> list[str]:
    if not known:
        return []
    try:
        of_labels = Rounds([item.known for item in known]).weights  # (n,)
    except LabelError:  # they allow no estimate
        of_labels = np.ones(sum(len(item.outcome) for item in known))
    ids = [name for item in known for name in item.known.ids]
    _, first, place = np.unique(ids, return_index=True, return_inverse=True)
    weights = np.bincount(place, weights=np.maximum(of_labels, 0))  # a repeated example counts once
    texts = {name: [text for item in known for text in getattr(item, name)] for name in ("predicted", "truth")}
    predicted, truth = ([texts[name][row] for row in first] for name in ("predicted", "truth"))
    if model.task in ("grade", "multilabel", "counts"):
        return []
    if model.task == "regression":
        outcome = np.concatenate([item.outcome for item in known])[first]
        said, so = (np.array(own, dtype=np.float64) for own in (predicted, truth))
        return plausibility.about_values(said, so, weights.astype(np.float64), outcome)
    names = model.classes or _numbers_of([*predicted, *truth], num_classes or 0)
    code = {name: number for number, name in enumerate(names)}
    said_class, true_class = (np.array([code[text] for text in own], dtype=np.int64) for own in (predicted, truth))
    foreseen = np.concatenate([_foreseen(item.known) for item in known])[first]
    return plausibility.about_classes(said_class, true_class, weights.astype(np.float64), names, foreseen)


def _foreseen(selection: Selection) -> NDArray[np.float64]:
    """Return the failure probabilities (n,) that were predicted before the labels of a round, NaN without any."""
    prediction = selection.design.prediction
    if prediction is None or plausibility.FORESEEN_FROM not in selection.facts:
        return np.full(len(selection), np.nan)
    return prediction.labelled


def _numbers_of(texts: Sequence[str], num_classes: int) -> list[str]:
    """Return the names of classes without names: all up to the largest, or those that occur if that is far beyond."""
    size = max([num_classes, *(int(text) + 1 for text in texts)])
    return [str(number) for number in (range(size) if size <= MOST_NUMBERS else sorted(set(map(int, texts))))]


# -- signs of a wrong model ------------------------------------------------------------------------------------------


def command_of(run: Run, verb: str, *rest: str) -> str:
    """Return a command on a run, as it can be pasted into a shell."""
    return " ".join(["opacc", verb, quote(run.uri), *rest])


def step_of(run: Run, rounds: Sequence[RoundCounts], *, stated: bool = False) -> list[str]:
    """Return the command to run next and its arguments, without the run.

    ``stated`` says whether an estimate uses all labels that are there.
    """
    if any(item.missing for item in rounds):
        return ["label"] if has_page(run) else ["labels import", "FILE"]
    if not any(item.labelled for item in rounds):
        return ["next"]
    goal = run.newest_goal(reached=False)
    if goal is not None:
        return ["next", *until_options(goal.half_width, goal.metric, goal.by)]
    return ["report" if stated else "estimate"]


def until_options(half_width: float, metric: str = ACCURACY, by: str | None = None) -> list[str]:
    """Return the options that state a goal, for a shell."""
    width = f"±{half_width:g}"
    return [
        "--until",
        width if metric == ACCURACY else quote(f"{metric} {width}"),
        *(["--by", quote(by)] if by else []),
    ]


def has_page(run: Run) -> bool:
    """Return whether the labelling page can show the examples of a run: pictures, answers or columns of rows."""
    from opacc_ray.labels.shown_examples import may_have_pictures  # decoders, which few commands need

    return bool(run.spec.pool.columns.answer or label_rules(run).show) or may_have_pictures(run)


def no_page(run: Run) -> str:
    """Return why the labelling page shows nothing of a run, and what to do."""
    manifest = next((uri for uri in run.manifests(run.rounds()[-1]) if uri.endswith(".csv")), None)
    instead = f", or fill in a copy of {manifest} and import it" if manifest else ""
    return (
        "the labelling page has nothing to show: name columns of the pool to show, by --show for a CSV, or "
        f"manifest.show in the spec{instead}"
    )


FAILURE, EXTRACTION = "failure.json", "extraction.json"


class RunFailure(Document):
    """Error of the last `opacc run`, kept until a later one succeeds."""

    remedy = "delete it"

    format: Literal["opacc-run-failure/1"] = "opacc-run-failure/1"
    at: str  # time: ISO 8601, UTC
    error: str  # error message
    exit_code: int = Field(ge=1)  # exit code of `opacc run`


BUSY = 0.85
"""Share of time in which the model must run to be what limits extraction."""


class ExtractionWork(Document):
    """Who extracted the features of a run, in the last command that did, and what limited it."""

    remedy = "delete it"

    format: Literal["opacc-extraction/1"] = "opacc-extraction/1"
    executor: Literal["ray", "local"]  # actors of Ray, or the process of the command
    processes: int = Field(ge=1)  # that computed
    readers: int = Field(ge=0)  # of each, that read for it
    shards: int = Field(ge=1)  # that were extracted
    busy: float = Field(ge=0)  # share of time in which the model ran, from the first batch to the last
    ready: float = Field(ge=0)  # batches that were read when the model asked for one, on average
    read_rate: float = Field(ge=0)  # bytes of files a second, of all processes

    @classmethod
    def of(cls, executor: Literal["ray", "local"], reports: Sequence[ShardReport]) -> "ExtractionWork | None":
        """Summarize the reports of the shards for which a model ran; None without any."""
        spent = [report.spent for report in reports if report.spent]
        if not spent:
            return None
        last = {each.worker: each for each in sorted(spent, key=lambda each: each.elapsed)}
        elapsed = max(1e-9, sum(each.elapsed for each in last.values()))
        return cls(
            executor=executor,
            processes=len(last),
            readers=max(each.readers for each in spent),
            shards=len(spent),
            busy=round(sum(each.computing for each in last.values()) / elapsed, 4),
            ready=round(sum(each.ready for each in last.values()) / len(last), 1),
            read_rate=round(sum(each.num_bytes for each in spent) / elapsed * len(last)),
        )

    @property
    def load(self) -> str:
        """What limits it, in words."""
        words = f"device {100 * self.busy:.0f} % busy, {'the model' if self.busy >= BUSY else 'reading'} limits"
        return f"{words}; queue {self.ready:.0f} of {most_ready(self.readers)}; {self.read_rate / 1e6:.3g} MB/s"

    def __str__(self) -> str:
        who = counted(self.processes, "actor") if self.executor == "ray" else "this command"
        return f"{counted(self.shards, 'shard')} by {who} with {counted(self.readers, 'reader')}: {self.load}"


class ShardCounts(Part):
    """Shards of the pool."""

    done: int = Field(ge=0)  # shards with features
    total: int = Field(ge=0)  # all shards


class RunStatus(Document):
    """State of a run: extraction, rounds and estimate."""

    format: Literal["opacc-status/1"] = "opacc-status/1"
    run: str  # URI of the run
    shards: ShardCounts  # progress of extraction
    extraction: ExtractionWork | None = None  # the last command that extracted; null: none did since
    examples: int | None = Field(ge=0)  # examples in the pool; null while extraction is incomplete
    excluded: int | None = Field(ge=0)  # examples that could not be read; null as above
    # objects of the pool, compared with the run that it has grown from; null: none
    pool_changes: PoolChanges | None = None
    predicted: Predicted | None = None  # predictions for the pool; null if unknown
    warnings: list[str] = Field(default=[])  # signs that this may be the wrong model
    rounds: list[RoundCounts]  # every round in numbers
    estimate: AccuracyEstimate | None  # the last estimate; null if there is none
    # whether the last estimate uses all present labels; null without an estimate
    estimate_is_current: bool | None = None
    lost: list[str] = Field(default=[])  # files of labels that are missing, a sentence each
    waits_for: str  # the next thing to do, in words
    # command to run next and its arguments, without the run; empty: run the spec again
    step: list[str] = Field(default=[])
    failure: RunFailure | None = None  # error of the last `opacc run`; null if it succeeded


def status(run: Run, *, with_warnings: bool = True) -> RunStatus:
    """Return the state of a run.

    A run with lost labels, or with labels in conflict, waits for their repair. Warnings are found by all labels, so a
    caller that does not show them leaves them out.
    """
    index, total = run.read_index(), run.header.pool.num_shards
    lost, failure = list(read_log(run).lost.values()), read_failure(run)
    rounds, conflict = _rounds(run) if index and run.rounds() else ([], None)
    counts, estimate, is_current = [item.counts() for item in rounds], run.read_estimate(), None
    if estimate is not None:
        goal = run.newest_goal(reached=True) if rounds else None
        stops_at = (None, ACCURACY) if goal is None else (goal.half_width, goal.target)
        stated = estimate.labels_digest, (estimate.goal, estimate.goal_of)
        is_current = bool(rounds) and stated == (digest_of(rounds), stops_at)
    waits_for, step = "; ".join(lost) or conflict or _waits_for(rounds, is_current), list[str]()
    if failure and not rounds:
        waits_for = f"another run of its spec, which failed: {failure.error}"
    elif not index:
        waits_for = "extraction: run the spec again, finished shards are kept"
    elif rounds:
        step = ["labels list"] if lost or conflict else step_of(run, counts, stated=is_current is True)
    return RunStatus(
        run=run.uri,
        shards=ShardCounts(done=total if index else len(run.finished_shards()), total=total),
        extraction=run.read_document(ExtractionWork, EXTRACTION),
        examples=index.num_examples if index else None,
        excluded=len(index.bad) if index else None,
        pool_changes=pool_changes(run),
        predicted=predicted_by(run) if index else None,
        warnings=warnings_of(run, rounds) if index and with_warnings else [],
        failure=failure,
        rounds=counts,
        estimate=estimate,
        estimate_is_current=is_current,
        lost=lost,
        waits_for=waits_for,
        step=step,
    )


def _rounds(run: Run) -> tuple[list[LabelledRound], str | None]:
    """Return the rounds, and the conflict of labels if there is one; the majority is counted then."""
    try:
        return read_rounds(run, with_lost=True), None
    except LabelError as error:
        reason = str(error)
    try:
        return read_rounds(run, conflict="majority", with_lost=True), reason
    except LabelError:
        return [], reason


def _waits_for(rounds: Sequence[LabelledRound], is_current: bool | None) -> str:
    """Return what a run with complete features waits for."""
    if not rounds:
        return "a selection: run the spec again"
    missing = sum(len(item.missing) for item in rounds)
    if missing:
        return counted(missing, "label")
    if not any(item.labelled.any() for item in rounds):
        return 'another round: all answers so far are "can\'t tell", so draw more examples with `opacc next`'
    return "nothing" if is_current else "nothing but `opacc estimate`"


# -- rounds ----------------------------------------------------------------------------------------------------


def newest_round(run: Run, goal: Goal | None = None, *, again: bool = False, like: Run | None = None) -> DrawnRound:
    """Return the newest round of a run, the progress towards its goal, and the command to run next.

    ``again``: it was drawn by an earlier call. The labels of a run that it is ``like`` are imported next, if that has
    some of the chosen examples.
    """
    progress = goal and GoalProgress(**{name: getattr(goal, name) for name in GoalProgress.model_fields})
    if goal is not None and goal.reached:  # nothing was drawn
        return DrawnRound(run=run.uri, step=["report"], goal=progress)
    selection, warnings = run.read_selection(run.rounds()[-1]), warnings_now(run)
    step, chosen = status(run, with_warnings=False).step, set(selection.ids)
    if like and like.uri != run.uri and any(row.id in chosen for row in read_log(like).labels()):
        step = ["labels import", like.uri]
    return DrawnRound(
        run=run.uri,
        method=selection.method,
        round=selection.round,
        n=len(selection),
        labelled=len(run.read_chosen(selection.round).labelled_ids),
        carried_from=selection.facts.get(CARRIED, {}).get("run"),
        pool_size=selection.pool_size,
        manifests=run.manifests(selection.round),
        notice=f"round {selection.round} was drawn already; label it"
        if again
        else plausibility.without_lead(selection.facts.get("notice"), warnings),
        objects=find_changed(run, [selection.round]),
        predicted=predicted_by(run),
        warnings=warnings,
        step=step,
        goal=progress,
    )


# -- failures --------------------------------------------------------------------------------------------------


def read_failure(run: Run) -> RunFailure | None:
    """Read the error of the last `opacc run`; None if it succeeded."""
    return run.read_document(RunFailure, FAILURE)


def write_failure(run: Run, error: str, exit_code: int) -> None:
    """Keep the error of a run with it."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    run.store.write(FAILURE, RunFailure(at=at, error=redacted(error), exit_code=exit_code).to_bytes())


@contextmanager
def failure_kept(run: Run) -> Iterator[None]:
    """Store an error of the block; once the block succeeds, remove an earlier error."""
    try:
        yield
    except Exception as error:
        try:
            write_failure(run, str(as_ours(error)), as_ours(error).exit_code)
        except OpaccError as trouble:  # the first error matters more
            log.warning("the error of the run could not be stored: %s", trouble)
        raise
    if run.store.exists(FAILURE):
        run.store.delete(FAILURE)


def ended_by(waits_for: str) -> Ended:
    """Return the result of a run that did not fail, by what it waits for."""
    return "done" if waits_for.startswith("nothing") else "waits for labels"


# -- log ---------------------------------------------------------------------------------------------------------------

_RUNS = "opacc_ray.runs"
ENTRIES = Registry(
    "entries",
    {
        "opacc-closed/2": f"{_RUNS}.run_documents:ClosedRound",
        "opacc-draw/1": f"{_RUNS}.run_documents:Draw",
        "opacc-goal/1": f"{_RUNS}.run_documents:Goal",
        "opacc-label-action/1": "opacc_ray.labels.label_log:LabelAction",
        "opacc-removal/1": f"{_RUNS}.run_documents:Removal",
        "opacc-seal/1": f"{_RUNS}.run_documents:Seal",
        "opacc-stated/1": f"{_RUNS}.run_documents:Stated",
        "opacc-taught/1": f"{_RUNS}.run_documents:Taught",
    },
)
"""Format -> document of an entry of the log, which says in ``words()`` what happened."""


class LoggedEntry(Part):
    """One entry of the log of a run."""

    number: int = Field(ge=1)  # number of the entry
    at: str  # time in ISO 8601, UTC
    round: int | None  # round that it is about; null: none
    what: str  # what happened, in words


class RunLog(Document):
    """The log of a run."""

    format: Literal["opacc-log/1"] = "opacc-log/1"
    run: str  # URI of the run
    head: str | None  # SHA-256 of the newest entry, which depends on all; null: no entry yet
    entries: list[LoggedEntry]  # all entries, in their order


def run_log(run: Run) -> RunLog:
    """Return the log of a run."""
    entries = [
        LoggedEntry(number=commit.number, at=commit.at, round=commit.round, what="; ".join(_said(commit)))
        for commit in run.commits
    ]
    return RunLog(run=run.uri, head=run.head, entries=entries)


def _said(commit: Commit) -> Iterator[str]:
    """Yield what an entry says, in words; what nothing here knows by the name of its format."""
    for content in commit.content:
        form = str(content.get("format"))
        yield ENTRIES[form].from_dict(content, f"entry {commit.number} of the log").words() if form in ENTRIES else form
