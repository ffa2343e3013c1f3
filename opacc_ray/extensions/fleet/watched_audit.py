"""Watch an audit: its runs as windows of arrival, one alarm with one false-alarm rate for its whole life.

The reference is the first run with labels. Every later run is a window: the examples that are new or changed since the
run before, or the whole pool where no labels were carried over. Where one table holds all weeks, its slices by a column
of times are the windows. See :mod:`opacc_ray.extensions.fleet.watching`.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.audit.accuracy import whole_rounds
from opacc_ray.audit.carried_labels import carried_facts
from opacc_ray.audit.run_numbers import measure_accuracy
from opacc_ray.designs.design import Design
from opacc_ray.designs.draw_probability import HansenHurwitz
from opacc_ray.designs.inclusion_probability import CARRIED, NEW, Grown, InclusionProbability
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, LabelError, OpaccError, counted
from opacc_ray.estimation.failures import failures_by_design
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.model_comparison import independent_difference
from opacc_ray.estimation.sample import Rounds, join
from opacc_ray.extensions.fleet import watching
from opacc_ray.extensions.fleet.alerts import AlertCheck, Evidence
from opacc_ray.extensions.fleet.fleet_spec import WatchSpec
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.lake.store_uris import open_store
from opacc_ray.metrics.metric import ACCURACY, Metric
from opacc_ray.pool import NOT_GIVEN, rank
from opacc_ray.runs.run import Run, read_column
from opacc_ray.runs.run_documents import StatedEstimate
from opacc_ray.runs.series import Population, names_of_runs, output_of, run_beside, runs_of
from opacc_ray.selection import Selection

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

LEVEL = 0.95

LEAST = 30
"""Labels of the reference that the slope of failure by confidence is estimated from, at least."""

DROP = 0.05
"""Drop for which the time until the alarm is stated."""

_YEAR_LAST = r"\D*(\d{1,2}\D+)+(19|20)\d\d\b.*"
_DAY_AND_MONTH = r"\d{1,2}(/\d{1,2}|-\d{1,2}-\d\d|/\d{1,2}/\d\d)\b.*"
_MONTH = (
    r".*\b(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|"
    r"dec(ember)?)\b.*"
)
_UNCLEAR = re.compile(f"{_YEAR_LAST}|{_DAY_AND_MONTH}|{_MONTH}", re.IGNORECASE)
"""Names of days, weeks and months that do not sort by time."""


class WatchedWindow(Part):
    """One window of a watched audit."""

    run: str  # name of the run that brought it, or of the slice that it is
    created: str  # when the run was created
    examples: int = Field(ge=0)  # examples of the window
    estimate: StatedEstimate | None = None  # estimated accuracy; null without labels
    change: StatedEstimate | None = None  # difference from the accuracy of the reference
    evidence: float | None = None  # evidence of a drop so far; null without labels
    # accuracy if confidence means here what it meant in the reference; null if it is not known
    without_labels: float | None


class WatchedAudit(Document):
    """A watched audit: its windows, and whether they raise the alarm; the answer of `opacc watch`."""

    format: Literal["opacc-watch/1"] = "opacc-watch/1"
    audit: str  # name of the audit
    output: str  # URI of the folder of its runs
    reference: str  # name of the run or slice that is the reference
    estimate: StatedEstimate  # estimated accuracy of the reference
    tolerance: float  # accuracy drop to tolerate
    false_alarms: float  # maximum false-alarm probability over the audit's lifetime
    windows: list[WatchedWindow]  # windows, the oldest first
    order: str  # the first and the last window, and what orders them
    alarm: str | None  # run or slice of the window in which the alarm was raised; null: none
    delay: int | None  # windows like the last after which a further drop by 5 points is noticed; null: more than 520
    exact: bool  # whether every window was drawn label by label, so that the rate holds exactly
    answer: str  # the state in one sentence
    notes: list[str] = Field(default=[])  # what else limits the result, such as a removed reference or a low window

    @property
    def labelled(self) -> list[WatchedWindow]:
        """The windows that have labels."""
        return [window for window in self.windows if window.estimate]

    @property
    def guarantee(self) -> str:
        """How exactly the false-alarm probability holds."""
        return "exactly" if self.exact else "as far as the intervals of its windows hold"


class WindowLabels(NamedTuple):
    """Labels of a window, or of the reference."""

    outcome: Array  # (n,)
    weight: Array  # (n,) in the mean
    confidence: Array | None  # (n,) of the model; None if it has none
    estimate_at: Callable[[float], Estimate]  # the accuracy at a confidence level
    draws: Array | None  # (n,) unbiased values of the share of failures, draw by draw; None: not drawn so
    is_simple: bool  # whether it is a simple random sample

    @property
    def estimate(self) -> Estimate:
        return self.estimate_at(LEVEL)

    def interval_at(self, level: float) -> tuple[float, float]:
        return self.estimate_at(level).interval


class Window(NamedTuple):
    """A window."""

    name: str
    created: str  # when its run was created
    size: int  # examples
    confidence: Array | None  # (size,) of the model; None: it has none, or it is not known which examples these are
    labels: WindowLabels | None
    unused: str | None = None  # why labels that it has do not count


# -- runs as windows -----------------------------------------------------------------------------------------


def watched_runs(name: str, output: str, since: str | None) -> list[Run]:
    """Return the runs of an audit since a day, with the population of the newest one, the oldest first."""
    runs, _ = runs_of(output, name)
    newest = Population.of(runs[-1].spec) if runs else None
    alike = [run for run in runs if Population.of(run.spec) == newest]
    return [run for run in alike if since is None or run.header.created >= since]


def rounds_of(run: Run) -> list[LabelledRound]:
    """Return the rounds of a run with all their labels, up to the first that lacks one.

    Raises OpaccError if a round or a label cannot be read.
    """
    has_features = run.rounds() and run.read_features()
    return having_labels(whole_rounds(read_rounds(run))) if has_features else []


def place_of_reference(runs: Sequence[Run]) -> int | None:
    """Return the place of the first run with labels; None if there is none.

    Raises OpaccError if its labels cannot be used: with another reference, an alarm would begin or end for no reason.
    """
    for place, run in enumerate(runs):
        rounds = having_labels(read_rounds(run)) if run.rounds() else []
        if rounds:
            run.complete_features()
            if rounds[0].missing:
                raise LabelError(
                    f"the reference is {run.name}, the first run with labels, and {_missing(rounds[0])}: import what "
                    f"is missing (? for can't tell), remove the run with `opacc runs remove {run.uri}`, or begin with "
                    "a later one: --since"
                )
            return place
    return None


def _missing(labelled: LabelledRound) -> str:
    number = len(labelled.missing)
    return f"{counted(number, 'label')} of its round {labelled.number} {'is' if number == 1 else 'are'} missing"


def _confidence(run: Run) -> Array | None:
    """Return that of every example of a run's pool, (N,); None if it has none."""
    index = run.read_index()
    if index is None or "confidence" not in index.features:
        return None
    return read_column(run, "confidence").astype(np.float64)


def _at(confidence: Array | None, rows: NDArray[Any]) -> Array | None:
    return None if confidence is None else confidence[rows]


def _reference_labels(run: Run) -> WindowLabels:
    accuracy = measure_accuracy(run, rounds_of(run))
    sample, rounds = accuracy.sample, accuracy.sample.rounds
    is_simple = all(isinstance(part.design, SimpleRandom) for part in rounds.selections)
    draws = sample.failure if is_simple else None
    confidence = _at(_confidence(run), rounds.index)
    return WindowLabels(sample.outcome, rounds.weights, confidence, cache(accuracy.estimate), draws, is_simple)


def _window(run: Run) -> Window:
    """Return a run as a window; its labels do not count while some are missing, or one cannot be read."""
    unused = labels = confidence = fresh = None
    try:
        rounds = read_rounds(run) if run.rounds() else []
        confidence, fresh = _confidence(run), _fresh(run)
        if rounds and run.read_features():
            labels = _window_labels(having_labels(whole_rounds(rounds)), confidence)
        if rounds and rounds[0].missing and int(rounds[0].labelled.sum()) > rounds[0].known_otherwise:
            unused = f"the labels of {run.name} do not count yet: {_missing(rounds[0])}"
    except OpaccError as error:
        labels, fresh, unused = None, None, f"the labels of {run.name} do not count: {error}"
    if fresh is None:  # what was new when its labels were carried over, or its pool
        facts, index = carried_facts(run), run.read_index()
        size = int(facts["new"]) if facts else index.num_examples if index else 0
        return Window(run.name, run.header.created, size, None, labels, unused)
    return Window(run.name, run.header.created, int(fresh.sum()), _at(confidence, fresh), labels, unused)


def _window_labels(rounds: Sequence[LabelledRound], confidence: Array | None) -> WindowLabels | None:
    """Return the labels that the first of a run's rounds drew from the window; None without any."""
    if not rounds or rounds[0].number != 1:
        return None
    selection, outcome = rounds[0].known, rounds[0].outcome
    design, rows, draws, size = selection.design, selection.index, None, selection.pool_size
    if isinstance(design, Grown):
        new = design.part == NEW
        if not new.any():
            return None
        outcome, rows, size = outcome[new], rows[new], selection.facts[CARRIED]["new"]
        if selection.method == "srs":
            design = SimpleRandom(len(outcome), size, replacement=False)
        else:
            share = float((1 - outcome).mean())
            probabilities = design.inclusion_probability[new], np.full(len(outcome), share)
            design = InclusionProbability(*probabilities, share * size, size, len(outcome), np.empty(0, dtype=np.int64))
    if isinstance(design, SimpleRandom):
        draws = 1 - outcome
    elif isinstance(design, HansenHurwitz):
        draws = len(outcome) * design.weights * (1 - outcome)
    return _by_design(design, size, outcome, draws, design.weights, _at(confidence, rows))


def _by_design(
    design: Design, size: int, outcome: Array, draws: Array | None, weight: Array, confidence: Array | None
) -> WindowLabels:
    """Return labels (n,) of a part of ``size`` examples with the estimate of their own design."""
    ids = tuple(map(str, range(len(outcome))))
    drawn = Selection("window", {}, 0, size, np.arange(len(outcome)), ids, design)
    estimate_at = cache(failures_by_design(join(drawn, outcome)).accuracy)
    return WindowLabels(outcome, weight, confidence, estimate_at, draws, isinstance(design, SimpleRandom))


def _fresh(run: Run) -> NDArray[np.bool_] | None:
    """Return which examples of a run's pool are its window, (N,); None if its features, or those before, are gone."""
    complete = run.read_features()
    if complete is None:
        return None
    facts = carried_facts(run)
    if facts is None:
        return np.ones(complete.index.num_examples, dtype=bool)
    before = run_beside(output_of(run), facts["run"])
    earlier = before.read_features() if before else None
    if earlier is None:
        return None
    old = np.concatenate([np.unique(sources) for sources in earlier.features.sources()])
    return ~np.isin(np.concatenate(list(complete.features.sources())), old)


# -- slices as windows ---------------------------------------------------------------------------------------


@contextmanager
def windows_by(run: Run, by: str) -> Iterator[tuple[str, WindowLabels, Iterator[Window]]]:
    """Yield the name and labels of the first labelled slice of a run's pool, and those after it as windows.

    Examples without a value are in no window. Intervals can be computed in the block. Raises SpecError if the pool has
    no such slices, and DataError if none of them has a label, or their order is not clear.
    """
    rounds, confidence = rounds_of(run), _confidence(run)
    selections = [labelled.known for labelled in rounds]
    index, drawn = (
        np.concatenate(parts) for parts in ([one.index for one in selections], [_drawn(one) for one in selections])
    )
    outcome, weight = np.concatenate([labelled.outcome for labelled in rounds]), Rounds(selections).weights
    with Evidence(run, rounds).numbers(by) as numbers:
        slicing = numbers.numbers.pool.slicings[by]
        estimates_at = cache(lambda level: numbers.numbers.by(Metric(ACCURACY), by, level))

        def window(code: int, name: str) -> Window:
            examples, at, labels = slicing.codes == code, slicing.codes[index] == code, None
            sure = _at(confidence, index[at])
            if at.any() and np.ptp(drawn[at]) <= 1e-9:  # a simple random sample of the slice, given its size
                design = SimpleRandom(int(at.sum()), int(examples.sum()), replacement=False)
                labels = _by_design(design, design.population, outcome[at], 1 - outcome[at], weight[at], sure)
            elif at.any():
                labels = WindowLabels(
                    outcome[at], weight[at], sure, lambda level: estimates_at(level)[name], None, False
                )
            return Window(f"{by}={name}", run.header.created, int(examples.sum()), _at(confidence, examples), labels)

        windows = (window(code, name) for code, name in _in_time(by, slicing.names))
        first = next((one for one in windows if one.labels is not None), None)
        if first is None or first.labels is None:
            raise DataError(f"no slice of {by!r} has a label in {run.uri}; label an example, for a reference")
        yield first.name, first.labels, windows


def _in_time(by: str, names: Sequence[str]) -> list[tuple[int, str]]:
    """Return the places and names of slices as time goes on; raises DataError for dates whose order is not clear."""
    named = [(place, name) for place, name in enumerate(names) if name != NOT_GIVEN]
    if unclear := next((name for _, name in named if _UNCLEAR.fullmatch(name)), None):
        raise DataError(
            f"the windows of {by!r} have names like {unclear!r}, whose order in time is not clear; write the year "
            "first, as in 2026-11-02 or 2026-W45"
        )
    if any(name.startswith(("< ", ">= ")) for _, name in named):
        return named  # intervals between cuts
    with suppress(ValueError, TypeError):
        return sorted(named, key=lambda pair: datetime.fromisoformat(pair[1]))
    return sorted(named, key=lambda pair: rank(pair[1]))


def _drawn(part: Selection) -> Array:
    """Return the probabilities (n,) with which examples were drawn at random; NaN for another design."""
    if isinstance(part.design, SimpleRandom):
        return np.ones(len(part))
    if isinstance(part.design, Grown) and part.method == "srs":
        return np.asarray(part.design.inclusion_probability, dtype=np.float64)
    return np.full(len(part), np.nan)


# -- a life --------------------------------------------------------------------------------------------------


def watch_audit(name: str, output: str, asked: WatchSpec | None = None) -> WatchedAudit:
    """Return the windows of an audit and whether they raise the alarm; raises DataError without a labelled window.

    Slices ``by`` which it is watched are those of the newest labelled run.
    """
    asked = asked or WatchSpec()
    runs, windows, notes = watched_runs(name, output, asked.since), list[WatchedWindow](), list[str]()
    if asked.by is None:
        first = place_of_reference(runs)
        run = None if first is None else runs[first]
    else:
        run = next((run for run in reversed(runs) if rounds_of(run)), None)
    if run is None:
        raise _UnlabelledError(_no_reference(name, output, asked.since))
    if asked.by is None and asked.since is None and (lost := _lost_before(run)):
        notes.append(f"the reference, {run.name}, is not the first run of this life: {lost}, before it, was removed")
    with windows_by(run, asked.by) if asked.by else nullcontext(_windows_of(runs[runs.index(run) :])) as parts:
        reference, labels, later = parts
        life = _Life(labels, asked.tolerance, asked.false_alarms)
        for window in later:
            windows.append(life.take(window))
            notes += [window.unused] if window.unused else []
        delay = life.delay(windows)
    last = windows[-1].run if windows else reference
    return WatchedAudit(
        audit=name,
        output=output,
        reference=reference,
        estimate=StatedEstimate(**labels.estimate.to_dict()),
        tolerance=asked.tolerance,
        false_alarms=asked.false_alarms,
        windows=windows,
        order=f"{reference} first, {last} last, in the order of their {'names' if asked.by else 'creation'}",
        alarm=life.alarm,
        delay=delay,
        exact=life.exact,
        answer=life.answer(windows),
        notes=[*notes, *(_alone(windows, asked.tolerance) if life.alarm is None else [])],
    )


def _windows_of(runs: Sequence[Run]) -> tuple[str, WindowLabels, Iterator[Window]]:
    """Return the name and labels of the first run, and what each of the others brought."""
    return runs[0].name, _reference_labels(runs[0]), map(_window, runs[1:])


def _lost_before(run: Run) -> str | None:
    """Return the name of the run that a run has its labels or features from, if that is no longer there."""
    before = (carried_facts(run) or {}).get("run") or run.header.grown_from
    return before if before and run_beside(output_of(run), before) is None else None


def _no_reference(name: str, output: str, since: str | None) -> str:
    """Return why an audit has no labelled run, and what to do."""
    if since is not None and any(map(rounds_of, watched_runs(name, output, None))):
        return f"no run of {name!r} in {output} since {since} has complete labels; give an earlier day, or label one"
    names = sorted({run.rpartition("-")[0] for run in names_of_runs(open_store(output))})
    if name not in names:
        others = f"; the audits there are {', '.join(names[:10])}{', …' * (len(names) > 10)}" if names else ""
        return f"there is no run of {name!r} in {output}{others}; give the name of an audit, and --output of its runs"
    return f"no run of {name!r} in {output} has complete labels; label one, which is the reference"


class _UnlabelledError(DataError):
    """No run has labels yet."""


def watch_state(
    name: str, output: str, asked: WatchSpec, *, was_raised: bool
) -> tuple[WatchedAudit | None, AlertCheck, list[str]]:
    """Return the state of a watched audit, its alert and notes; the state is None without a usable reference.

    An alarm that ``was_raised`` stays raised while labels that decide it cannot be used.
    """
    state, raised, notes, bounds = None, False, list[str](), dict[str, Any]()
    reason: str | None = "no window after the reference has labels yet"
    try:
        state = watch_audit(name, output, asked)
        raised, notes = state.alarm is not None, state.notes
        if state.labelled and (drop := state.labelled[-1].change):
            bounds, reason = {"value": -drop.value, "low": -drop.high, "high": -drop.low}, None
    except _UnlabelledError:
        pass
    except OpaccError as error:
        raised, reason, notes = was_raised, str(error), [f"The watch cannot be decided: {error}."]
    check = AlertCheck(kind="watch", limit=asked.tolerance, **bounds, level=LEVEL, raised=raised, reason=reason)
    return state, check, notes


def labels_for_next(name: str, output: str, asked: WatchSpec) -> int:
    """Return how many labels the next window of a watched audit gets: the most while bets on a drop are winning."""
    assert asked.labels is not None
    least, most = asked.labels
    runs = watched_runs(name, output, asked.since)
    try:
        first = place_of_reference(runs)
    except OpaccError as error:
        log.warning("a drop may show, so what is new gets %s: %s", counted(most, "label"), error)
        return most
    if first is None:
        return most
    _, labels, later = _windows_of(runs[first:])
    life = _Life(labels, asked.tolerance, rate=1.0)
    for window in later:
        life.bet(window)
    return int(watching.labels_to_draw(life.state, least, most))


class _Life:
    """What the windows of an audit have shown so far, compared with a reference."""

    def __init__(self, reference: WindowLabels, tolerance: float, rate: float) -> None:
        self.reference, self.rate = reference, rate
        self.exact = reference.draws is not None
        self.state = watching.begin(self._compared(), tolerance)
        self.alarm: str | None = None
        self.strength = _slope(reference)

    def _compared(self) -> watching.Reference:
        """Return what the reference says: exactly for a simple random sample, else by its intervals."""
        labels = self.reference
        if labels.draws is not None and set(np.unique(labels.outcome)) <= {0.0, 1.0}:
            return watching.counted_reference(float(labels.draws.sum()), len(labels.draws))
        return watching.interval_reference(labels.interval_at, labels.estimate.value, labels.estimate.standard_error)

    def take(self, window: Window) -> WatchedWindow:
        """Add a window."""
        self.bet(window)
        evidence, labels, stated = float(self.state.evidence), self.reference, dict[str, Any]()
        if self.alarm is None and evidence >= 1 / self.rate:
            self.alarm = window.name
        if window.labels is not None:
            estimate = window.labels.estimate
            change = independent_difference(estimate, labels.estimate)
            stated = {"estimate": StatedEstimate(**estimate.to_dict()), "evidence": evidence}
            stated["change"] = StatedEstimate(**change.to_dict())
        guess = None
        if window.size and window.confidence is not None and labels.confidence is not None:
            guess = watching.without_labels(window.confidence, labels.confidence, labels.outcome, labels.weight)
        return WatchedWindow(
            run=window.name, created=window.created, examples=window.size, without_labels=guess, **stated
        )

    def bet(self, window: Window) -> None:
        """Bet on a drop by the labels of a window, if it has any.

        In a simple random sample, the model's confidence is the control variate, if it has one.
        """
        labels, limits = window.labels, self.state.limits
        if labels is None:
            return
        if labels.draws is None:
            self.exact, bets = False, watching.bets_on_interval(labels.interval_at, limits)
        else:
            values, sure = labels.draws, window.confidence
            if self.strength and labels.is_simple and sure is not None and labels.confidence is not None:
                doubt = 1 - labels.confidence, 1 - sure.mean(), 1 - sure.min()
                values = watching.adjusted(values, *doubt, self.strength, limits)
            bets = watching.bets_on_draws(values, limits)
        self.state = self.state.after(bets)

    def delay(self, windows: Sequence[WatchedWindow]) -> int | None:
        """Return after how many windows with as many labels as the last one a drop by DROP is noticed."""
        labels = self.reference
        usual = next((window.estimate.n for window in reversed(windows) if window.estimate), len(labels.outcome))
        return watching.windows_to_alarm(self.state, min(1 - labels.estimate.value + DROP, 1.0), usual, self.rate)

    def answer(self, windows: Sequence[WatchedWindow]) -> str:
        """Return whether the alarm was raised, in one sentence."""
        if self.alarm is not None:
            return f"ALARM: the accuracy has dropped; the window of {self.alarm} raised it."
        if not (num := self.state.windows):
            return "No window has labels yet."
        times = 1 / self.rate / max(float(self.state.evidence), 1e-9)
        return f"No alarm after {num} of {len(windows)} windows; the evidence would have to grow {times:.3g} times."


def _slope(labels: WindowLabels) -> float:
    """Return the slope of failure by doubt among labels; 0 if they are few, without confidences, or it falls."""
    if labels.confidence is None or len(labels.confidence) < LEAST:
        return 0.0
    doubt, share = 1 - labels.confidence, labels.weight / labels.weight.sum()
    away = doubt - share @ doubt
    spread = float(share @ away**2)
    return max(float(share @ (away * (1 - labels.outcome))) / spread, 0.0) if spread > 0 else 0.0


def _alone(windows: Sequence[WatchedWindow], tolerance: float) -> list[str]:
    """Return what to say of windows whose own interval shows a drop by more than the tolerance."""
    lower = [(window.run, window.change) for window in windows if window.change and window.change.high < -tolerance]
    if not lower:
        return []
    name, worst = min(lower, key=lambda pair: pair[1].high)
    others = f" So {'is' if len(lower) == 2 else 'are'} {counted(len(lower) - 1, 'other')}." if len(lower) > 1 else ""
    return [
        f"{name} alone is {-100 * worst.high:.1f} to {-100 * worst.low:.1f} points lower than the reference (95 % "
        f"interval), more than the tolerance.{others} Without such a drop, at most about one window in 40 shows that "
        "by chance; more labels of it decide, or an alert `max_drop`."
    ]
