"""Watch an audit: its runs as windows of arrival, one alarm with one false-alarm rate for its whole life.

The reference is the first run with labels. Every later run is a window: the examples that are new or changed since the
run before, or the whole pool where no labels were carried over. Where one table holds all weeks, its slices by a column
of times are the windows. See :mod:`opacc_ray.extensions.fleet.watching`.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.audit.accuracy import measure_accuracy, whole_rounds
from opacc_ray.audit.carried_labels import carried_facts
from opacc_ray.audit.run_numbers import RunNumbers
from opacc_ray.designs.design import Design
from opacc_ray.designs.draw_probability import HansenHurwitz
from opacc_ray.designs.inclusion_probability import CARRIED, NEW, Grown, InclusionProbability
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, LabelError, OpaccError, counted
from opacc_ray.estimation.failures import failures_by_design
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.model_comparison import independent_difference
from opacc_ray.estimation.sample import Rounds, join
from opacc_ray.extensions.fleet.alerts import AlertCheck, Evidence
from opacc_ray.extensions.fleet.fleet_spec import WatchSpec
from opacc_ray.extensions.fleet.watching import (
    Reference,
    adjusted,
    begin,
    bets_on_draws,
    bets_on_interval,
    counted_reference,
    interval_reference,
    labels_to_draw,
    windows_to_alarm,
    without_labels,
)
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.lake.store_uris import open_store
from opacc_ray.metrics.metric import ACCURACY, Metric
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import StatedEstimate
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import names_of_runs, output_of, run_beside, runs_of
from opacc_ray.selection import Selection
from opacc_ray.slices import NOT_GIVEN, rank

Array = NDArray[np.float64]

LEVEL = 0.95

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

    run: str = Field(description="name of the run that brought it, or of the slice that it is")
    created: str = Field(description="when the run was created")
    examples: int = Field(ge=0, description="examples of the window")
    estimate: StatedEstimate | None = Field(default=None, description="estimated accuracy; null without labels")
    change: StatedEstimate | None = Field(default=None, description="difference from the accuracy of the reference")
    evidence: float | None = Field(default=None, description="evidence of a drop so far; null without labels")
    without_labels: dict[str, float] = Field(
        description="accuracy if confidence means here what it meant in the reference, by method; empty if unknown"
    )


class WatchedAudit(Document):
    """A watched audit: its windows, and whether they raise the alarm; the answer of `opacc watch`."""

    format: Literal["opacc-watch/1"] = format_field("opacc-watch/1")
    audit: str = Field(description="name of the audit")
    output: str = Field(description="URI of the folder of its runs")
    reference: str = Field(description="name of the run or slice that is the reference")
    estimate: StatedEstimate = Field(description="estimated accuracy of the reference")
    tolerance: float = Field(description="accuracy drop to tolerate")
    false_alarms: float = Field(description="maximum false-alarm probability over the audit's lifetime")
    windows: list[WatchedWindow] = Field(description="windows, the oldest first")
    order: str = Field(description="the first and the last window, and what orders them")
    alarm: str | None = Field(description="run or slice of the window in which the alarm was raised; null: none")
    delay: int | None = Field(
        description="windows like the last after which a further drop by 5 points is noticed; null: more than 520"
    )
    exact: bool = Field(description="whether every window was drawn label by label, so that the rate holds exactly")
    answer: str = Field(description="the state in one sentence")
    notes: list[str] = Field(
        default=[], description="what else limits the result, such as a removed reference or a low window"
    )

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
    rows: NDArray[np.int64]  # (n,) in the pool
    weight: Array  # (n,) in the mean
    estimate_at: Callable[[float], Estimate]  # the accuracy at a confidence level
    draws: Array | None  # (n,) unbiased values of the share of failures, draw by draw; None: not drawn so
    is_simple: bool  # whether it is a simple random sample

    @property
    def estimate(self) -> Estimate:
        return self.estimate_at(LEVEL)

    def interval_at(self, level: float) -> tuple[float, float]:
        return self.estimate_at(level).interval


class Window(NamedTuple):
    """A window, or the reference."""

    name: str
    run: Run
    examples: NDArray[np.bool_] | None  # (N,) which of the run's pool it holds; None: unknown
    labels: WindowLabels | None
    unused: str | None = None  # why labels that it has do not count

    @property
    def stated(self) -> WindowLabels:
        assert self.labels is not None
        return self.labels


def watched_runs(name: str, output: str, since: str | None) -> list[Run]:
    """Return the runs of an audit since a day, with the population of the newest one, the oldest first."""
    runs, _ = runs_of(output, name)
    newest = Population.of(runs[-1].spec) if runs else None
    own = [run for run in runs if Population.of(run.spec) == newest]
    return [run for run in own if since is None or run.header.created >= since]


def lost_before(run: Run) -> str | None:
    """Return the name of the run that a run has its labels or features from, if that is no longer there."""
    facts = run.read_selection(1).facts.get(CARRIED, {}) if run.rounds() else {}
    before = facts.get("run") or run.header.grown_from
    return before if before and run_beside(output_of(run), before) is None else None


def rounds_of(run: Run) -> list[LabelledRound]:
    """Return the rounds of a run with all their labels, up to the first that lacks one.

    Raises OpaccError if a round or a label cannot be read.
    """
    is_there = run.rounds() and run.read_features()
    return having_labels(whole_rounds(read_rounds(run))) if is_there else []


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


def _missing(item: LabelledRound) -> str:
    number = len(item.missing)
    return f"{counted(number, 'label')} of its round {item.number} {'is' if number == 1 else 'are'} missing"


def _reference_labels(run: Run) -> WindowLabels:
    accuracy = measure_accuracy(run, rounds_of(run))
    sample, rounds = accuracy.sample, accuracy.sample.rounds
    is_simple = all(isinstance(part.design, SimpleRandom) for part in rounds.selections)
    return WindowLabels(
        outcome=sample.outcome,
        rows=rounds.index,
        weight=rounds.weights,
        estimate_at=cache(accuracy.estimate),
        draws=sample.failure if is_simple else None,
        is_simple=is_simple,
    )


def _window_labels(rounds: Sequence[LabelledRound]) -> WindowLabels | None:
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
            own = design.inclusion_probability[new], np.full(len(outcome), share)
            design = InclusionProbability(*own, share * size, size, len(outcome), np.empty(0, dtype=np.int64))
    if isinstance(design, SimpleRandom):
        draws = 1 - outcome
    elif isinstance(design, HansenHurwitz):
        draws = len(outcome) * design.weights * (1 - outcome)
    return _by_design(design, size, outcome, draws, rows, design.weights)


def _by_design(
    design: Design, size: int, outcome: Array, draws: Array | None, rows: NDArray[np.int64], weight: Array
) -> WindowLabels:
    """Return labels (n,) of a part of ``size`` examples with the estimate of their own design."""
    ids = tuple(map(str, range(len(outcome))))
    drawn = Selection("window", {}, 0, size, np.arange(len(outcome)), ids, design)
    estimate_at = cache(failures_by_design(join(drawn, outcome)).accuracy)
    return WindowLabels(outcome, rows, weight, estimate_at, draws, isinstance(design, SimpleRandom))


def windows_of(runs: Sequence[Run], until: contextlib.ExitStack) -> tuple[Window, list[Window]]:
    """Return runs as windows: the first one, which has labels, and what each of the others brought.

    Intervals can be computed ``until`` the end of a block.
    """
    first, *later = runs
    known = Window(first.name, first, None, _reference_labels(first))
    return known, [_window(run) for run in later]


def _window(run: Run) -> Window:
    """Return a run as a window; its labels do not count while some are missing, or one cannot be read."""
    try:
        rounds = read_rounds(run) if run.rounds() else []
        is_there = rounds and run.read_features()
        labels, unused = _window_labels(having_labels(whole_rounds(rounds)) if is_there else []), None
        if rounds and rounds[0].missing and int(rounds[0].labelled.sum()) > rounds[0].known_otherwise:
            unused = f"the labels of {run.name} do not count yet: {_missing(rounds[0])}"
        return Window(run.name, run, _fresh(run), labels, unused)
    except OpaccError as error:
        return Window(run.name, run, None, None, f"the labels of {run.name} do not count: {error}")


def windows_by(run: Run, by: str, until: contextlib.ExitStack) -> tuple[Window, list[Window]]:
    """Return the slices of a run's pool as windows in their order: the first labelled one, and those after it.

    Examples without a value are in no window. Intervals can be computed ``until`` the end of a block. Raises SpecError
    if the pool has no such slices, and DataError if none of them has a label, or their order is not clear.
    """
    rounds = rounds_of(run)
    numbers = until.enter_context(Evidence(run, rounds).numbers(by))
    slicing = numbers.numbers.pool.slicings[by]
    labels_of = _labels_by_slice(numbers, by, rounds)
    windows = [
        Window(f"{by}={name}", run, slicing.codes == code, labels_of(code, name))
        for code, name in _in_time(by, slicing.names)
    ]
    first = next((place for place, window in enumerate(windows) if window.labels is not None), None)
    if first is None:
        raise DataError(f"no slice of {by!r} has a label in {run.uri}; label an example, for a reference")
    return windows[first], windows[first + 1 :]


def _in_time(by: str, names: Sequence[str]) -> list[tuple[int, str]]:
    """Return the places and names of slices as time goes on; raises DataError for dates whose order is not clear."""
    given = [(place, name) for place, name in enumerate(names) if name != NOT_GIVEN]
    if unclear := next((name for _, name in given if _UNCLEAR.fullmatch(name)), None):
        raise DataError(
            f"the windows of {by!r} have names like {unclear!r}, whose order in time is not clear; write the year "
            "first, as in 2026-11-02 or 2026-W45"
        )
    if any(name.startswith(("< ", ">= ")) for _, name in given):
        return given  # intervals between cuts
    with contextlib.suppress(ValueError, TypeError):
        return sorted(given, key=lambda own: datetime.fromisoformat(own[1]))
    return sorted(given, key=lambda own: rank(own[1]))


def _labels_by_slice(
    numbers: RunNumbers, by: str, rounds: Sequence[LabelledRound]
) -> Callable[[int, str], WindowLabels | None]:
    """Return a function of the code and the name of a slice, which returns its labels; None without any."""
    known, codes = [item.known for item in rounds], numbers.numbers.pool.slicings[by].codes
    index, outcome = (np.concatenate(parts) for parts in ([part.index for part in known], [r.outcome for r in rounds]))
    weight = Rounds(known).weights
    drawn, sizes = np.concatenate([_drawn(part) for part in known]), np.bincount(codes)
    at = cache(lambda level: numbers.numbers.by(Metric(ACCURACY), by, level))

    def labels_of(code: int, name: str) -> WindowLabels | None:
        own = codes[index] == code
        if not own.any():
            return None
        if np.ptp(drawn[own]) <= 1e-9:  # a simple random sample of the slice, given its size
            design = SimpleRandom(int(own.sum()), int(sizes[code]), replacement=False)
            return _by_design(design, design.population, outcome[own], 1 - outcome[own], index[own], weight[own])
        return WindowLabels(outcome[own], index[own], weight[own], lambda level: at(level)[name], None, False)

    return labels_of


def _drawn(part: Selection) -> Array:
    """Return the probabilities (n,) with which examples were drawn at random; NaN for another design."""
    if isinstance(part.design, SimpleRandom):
        return np.ones(len(part))
    if isinstance(part.design, Grown) and part.method == "srs":
        return np.asarray(part.design.inclusion_probability, dtype=np.float64)
    return np.full(len(part), np.nan)


def _fresh(run: Run) -> NDArray[np.bool_] | None:
    """Return which examples of a run's pool are its window, (N,); None if its features, or those before, are gone."""
    there = run.read_features()
    if there is None:
        return None
    size = there.index.num_examples
    facts = carried_facts(run)
    if facts is None:
        return np.ones(size, dtype=bool)
    before = run_beside(output_of(run), facts["run"])
    known = before.read_features() if before else None
    if known is None:
        return None
    old = np.concatenate([np.unique(own) for own in known.features.sources()])
    return ~np.isin(np.concatenate(list(there.features.sources())), old)


def num_fresh(run: Run) -> int:
    """Return the size of a run's window: of what was new when its labels were carried over, or of its pool."""
    facts = carried_facts(run)
    index = run.read_index()
    return int(facts["new"]) if facts else index.num_examples if index else 0


log = logging.getLogger(__name__)


LEAST = 30
"""Labels of the reference that the slope of failure by confidence is estimated from, at least."""

DROP = 0.05
"""Drop for which the time until the alarm is stated."""


def watch_audit(name: str, output: str, asked: WatchSpec | None = None) -> WatchedAudit:
    """Return the windows of an audit and whether they raise the alarm; raises DataError without a labelled window.

    Slices ``by`` which it is watched are those of the newest labelled run.
    """
    asked = asked or WatchSpec()
    by, since = asked.by, asked.since
    runs = watched_runs(name, output, since)
    newest = next((run for run in reversed(runs) if rounds_of(run)), None) if by is not None else None
    first = place_of_reference(runs) if by is None else None
    if newest is None and first is None:
        raise _UnlabelledError(_no_reference(name, output, since))
    with contextlib.ExitStack() as until:
        known, later = windows_by(newest, by, until) if by and newest else windows_of(runs[first:], until)
        life = _Life(known, asked.tolerance, asked.false_alarms)
        windows = [life.take(window) for window in later]
    alone = _alone(windows, asked.tolerance) if life.alarm is None else []
    before = lost_before(known.run) if by is None and since is None else None
    lost = f"the reference, {known.name}, is not the first run of this life: {before}, before it, was removed"
    last = windows[-1].run if windows else known.name
    return WatchedAudit(
        audit=name,
        output=output,
        reference=known.name,
        estimate=StatedEstimate(**known.stated.estimate.to_dict()),
        tolerance=asked.tolerance,
        false_alarms=asked.false_alarms,
        windows=windows,
        order=f"{known.name} first, {last} last, in the order of their {'names' if by else 'creation'}",
        alarm=life.alarm,
        delay=life.delay(windows),
        exact=life.exact,
        answer=_answer(windows, life),
        notes=[*([lost] if before else []), *(own.unused for own in later if own.unused), *alone],
    )


def _no_reference(name: str, output: str, since: str | None) -> str:
    """Return why an audit has no labelled run, and what to do."""
    if since is not None and any(map(rounds_of, watched_runs(name, output, None))):
        return f"no run of {name!r} in {output} since {since} has complete labels; give an earlier day, or label one"
    names = sorted({run.rpartition("-")[0] for run in names_of_runs(open_store(output))})
    if name not in names:
        known = f"; the audits there are {', '.join(names[:10])}{', …' * (len(names) > 10)}" if names else ""
        return f"there is no run of {name!r} in {output}{known}; give the name of an audit, and --output of its runs"
    return f"no run of {name!r} in {output} has complete labels; label one, which is the reference"


class _UnlabelledError(DataError):
    """No run has labels yet."""


def watch_state(
    name: str, output: str, asked: WatchSpec, *, was_raised: bool
) -> tuple[WatchedAudit | None, AlertCheck, list[str]]:
    """Return the state of a watched audit, its alert and notes; the state is None without a usable reference.

    An alarm that ``was_raised`` stays raised while labels that decide it cannot be used.
    """
    found, drop, raised, notes = None, None, False, list[str]()
    reason: str | None = "no window after the reference has labels yet"
    try:
        found = watch_audit(name, output, asked)
        raised, notes = found.alarm is not None, found.notes
        if found.labelled:
            drop, reason = found.labelled[-1].change, None
    except _UnlabelledError:
        pass
    except OpaccError as error:
        raised, reason, notes = was_raised, str(error), [f"The watch cannot be decided: {error}."]
    bounds: dict[str, Any] = {"value": -drop.value, "low": -drop.high, "high": -drop.low} if drop else {}
    check = AlertCheck(kind="watch", limit=asked.tolerance, **bounds, level=LEVEL, raised=raised, reason=reason)
    return found, check, notes


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
    with contextlib.ExitStack() as until:
        known, later = windows_of(runs[first:], until)
        life = _Life(known, asked.tolerance, rate=1.0)
        for window in later:
            life.bet(window)
    return int(labels_to_draw(life.state, least, most))


class _Life:
    """What the windows of an audit have shown so far, compared with a reference."""

    def __init__(self, known: Window, tolerance: float, rate: float) -> None:
        self.known, self.rate = known, rate
        self.state = begin(_reference(known.stated), tolerance)
        self.exact = known.stated.draws is not None
        self.alarm: str | None = None
        self._read: tuple[str, Array | None] = ("", None)
        sure = self._confidence(known.run)
        self.sure = None if sure is None else sure[known.stated.rows]  # of the labels of the reference
        self.strength = 0.0 if self.sure is None else _slope(1 - self.sure, known.stated)

    def take(self, window: Window) -> WatchedWindow:
        """Add a window."""
        self.bet(window)
        if self.alarm is None and self.state.evidence >= 1 / self.rate:
            self.alarm = window.name
        return _stated(window, self.known, float(self.state.evidence), self._guesses(window))

    def bet(self, window: Window) -> None:
        """Bet on a drop by the labels of a window, if it has any."""
        labels, limits = window.labels, self.state.limits
        if labels is None:
            return
        if labels.draws is not None:
            bets = bets_on_draws(self._values(window, labels.draws), limits)
        else:
            bets = bets_on_interval(labels.interval_at, limits)
        self.exact = self.exact and labels.draws is not None
        self.state = self.state.after(bets)

    def _values(self, window: Window, draws: Array) -> Array:
        """Return the draws of a simple random sample with the model's confidence as control variate, if it has one."""
        labels, sure = window.stated, self._confidence(window.run)
        if sure is None or not self.strength or not labels.is_simple or window.examples is None:
            return draws
        own = sure[window.examples]
        return adjusted(draws, 1 - sure[labels.rows], 1 - own.mean(), 1 - own.min(), self.strength, self.state.limits)

    def _guesses(self, window: Window) -> dict[str, float]:
        """Return what the confidences of a window say, compared with the labels of the reference."""
        fresh, known, sure = window.examples, self.known.stated, self._confidence(window.run)
        if fresh is None or not fresh.any() or sure is None or self.sure is None:
            return {}
        return without_labels(sure[fresh], self.sure, known.outcome, known.weight)

    def _confidence(self, run: Run) -> Array | None:
        """Return that of every example of a run's pool, (N,); None if it has none."""
        if self._read[0] != run.uri:
            there = run.read_index()
            found = None
            if there is not None and "confidence" in there.features:
                found = feature_store.read_column(run, "confidence").astype(np.float64)
            self._read = run.uri, found
        return self._read[1]

    def delay(self, windows: Sequence[WatchedWindow]) -> int | None:
        """Return after how many windows with as many labels as the last one a drop by DROP is noticed."""
        known = self.known.stated
        usual = next((window.estimate.n for window in reversed(windows) if window.estimate), len(known.outcome))
        return windows_to_alarm(self.state, min(1 - known.estimate.value + DROP, 1.0), usual, self.rate)


def _answer(windows: Sequence[WatchedWindow], life: _Life) -> str:
    if life.alarm is not None:
        return f"ALARM: the accuracy has dropped; the window of {life.alarm} raised it."
    if not (num := life.state.windows):
        return "No window has labels yet."
    times = 1 / life.rate / max(float(life.state.evidence), 1e-9)
    return f"No alarm after {num} of {len(windows)} windows; the evidence would have to grow {times:.3g} times."


def _alone(windows: Sequence[WatchedWindow], tolerance: float) -> list[str]:
    """Return what to say of windows whose own interval shows a drop by more than the tolerance."""
    lower = [(window.run, window.change) for window in windows if window.change and window.change.high < -tolerance]
    if not lower:
        return []
    name, worst = min(lower, key=lambda own: own[1].high)
    others = f" So {'is' if len(lower) == 2 else 'are'} {counted(len(lower) - 1, 'other')}." if len(lower) > 1 else ""
    return [
        f"{name} alone is {-100 * worst.high:.1f} to {-100 * worst.low:.1f} points lower than the reference (95 % "
        f"interval), more than the tolerance.{others} Without such a drop, at most about one window in 40 shows that "
        "by chance; more labels of it decide, or an alert `max_drop`."
    ]


def _slope(doubt: Array, labels: WindowLabels) -> float:
    """Return the slope of failure by doubt (n,) among labels; 0 if they are few, or it falls."""
    if len(doubt) < LEAST:
        return 0.0
    share = labels.weight / labels.weight.sum()
    away = doubt - share @ doubt
    spread = float(share @ away**2)
    return max(float(share @ (away * (1 - labels.outcome))) / spread, 0.0) if spread > 0 else 0.0


def _stated(window: Window, known: Window, evidence: float, guesses: dict[str, float]) -> WatchedWindow:
    stated = dict[str, Any]()
    if window.labels is not None:
        own = window.labels.estimate
        change = independent_difference(own, known.stated.estimate)
        stated = {"estimate": StatedEstimate(**own.to_dict()), "change": StatedEstimate(**change.to_dict())}
        stated["evidence"] = evidence
    return WatchedWindow(
        run=window.name,
        created=window.run.header.created,
        examples=num_fresh(window.run) if window.examples is None else int(window.examples.sum()),
        without_labels=guesses,
        **stated,
    )


def _reference(known: WindowLabels) -> Reference:
    """Return what the reference says: exactly for a simple random sample, else by its intervals."""
    found = known.estimate
    if known.draws is not None and set(np.unique(known.outcome)) <= {0.0, 1.0}:
        return counted_reference(float(known.draws.sum()), len(known.draws))
    return interval_reference(known.interval_at, found.value, found.standard_error)
