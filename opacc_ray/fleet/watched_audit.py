"""Watch an audit: its runs as windows of arrival, one alarm with one false-alarm rate for its whole life.

The reference is the first run with labels. Every later run is a window: the examples that are new or changed since the
run before, or the whole pool where no labels were carried over. Where one table holds all weeks, its slices by a column
of times are the windows. See :mod:`opacc_ray.estimators.watching`.
"""

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, OpaccError, counted
from opacc_ray.estimators.watching import (
    Reference,
    Watch,
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
from opacc_ray.fleet.fleet_documents import AlertCheck, WatchState
from opacc_ray.fleet.fleet_spec import WatchSpec
from opacc_ray.fleet.watched_windows import (
    LEVEL,
    Window,
    WindowLabels,
    lost_before,
    num_fresh,
    place_of_reference,
    rounds_of,
    watched_runs,
    windows_by,
    windows_of,
)
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import names_of_runs

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

LEAST = 30
"""Labels of the reference that the slope of failure by confidence is estimated from, at least."""

DROP = 0.05
"""Drop for which the time until the alarm is stated."""


class WatchedWindow(Part):
    """One window of a watched audit."""

    run: str = Field(description="name of the run that brought it, or of the slice that it is")
    created: str = Field(description="when the run was created")
    examples: int = Field(ge=0, description="examples of the window")
    labels: int = Field(ge=0, description="labels of the window")
    value: float | None = Field(description="estimated accuracy; null without labels")
    low: float | None = Field(description="lower end of its 95 % interval")
    high: float | None = Field(description="upper end")
    change: float | None = Field(description="difference from the accuracy of the reference")
    change_low: float | None = Field(description="lower end of the 95 % interval of the change")
    change_high: float | None = Field(description="upper end")
    evidence: float | None = Field(description="evidence of a drop so far; null before the first label of the window")
    without_labels: dict[str, float] = Field(
        description="accuracy if confidence means here what it meant in the reference, by method; empty if unknown"
    )


class WatchedAudit(Document):
    """A watched audit: its windows, and whether they raise the alarm."""

    format: Literal["opacc-watch/1"] = format_field("opacc-watch/1")
    audit: str = Field(description="name of the audit")
    output: str = Field(description="URI of the folder of its runs")
    reference: str = Field(description="name of the run or slice that is the reference")
    accuracy: float = Field(description="estimated accuracy of the reference")
    low: float = Field(description="lower end of its 95 % interval")
    high: float = Field(description="upper end")
    tolerance: float = Field(description="drop of the accuracy that is no reason for an alarm")
    false_alarms: float = Field(description="probability of a false alarm in the whole life of the audit, at most")
    windows: list[WatchedWindow] = Field(description="windows, the oldest first")
    order: str = Field(default="", description="the first and the last window, and what orders them")
    alarm: str | None = Field(description="run or slice of the window in which the alarm was raised; null: none")
    delay: int | None = Field(
        description="windows like the last after which a further drop by 5 points is noticed; null: more than 520"
    )
    exact: bool = Field(description="whether every window was drawn label by label, so that the rate holds exactly")
    answer: str = Field(description="the state in one sentence, and which windows alone are lower")
    notes: list[str] = Field(default=[], description="what else limits the result, such as a removed reference")


def watch_audit(
    name: str,
    output: str,
    *,
    tolerance: float = 0.0,
    false_alarms: float = 0.05,
    by: str | None = None,
    since: str | None = None,
) -> WatchedAudit:
    """Return the windows of an audit and whether they raise the alarm; raises DataError without a labelled window.

    ``by`` names the slices of the pool that are the windows, such as weeks, in their order: of the newest labelled run.
    ``since`` is the first day of the life, in ISO 8601: earlier runs do not count.
    """
    runs = watched_runs(name, output, since)
    newest = next((run for run in reversed(runs) if rounds_of(run)), None) if by is not None else None
    first = place_of_reference(runs) if by is None else None
    if newest is None and first is None:
        raise _UnlabelledError(_no_reference(name, output, since))
    with contextlib.ExitStack() as until:
        known, later = windows_by(newest, by, until) if by and newest else windows_of(runs[first:], until)
        life = _Life(known, tolerance, false_alarms)
        windows = [life.take(window) for window in later]
    found, alone = known.stated.estimate, _alone(windows, life.alarm, tolerance)
    return WatchedAudit(
        audit=name,
        output=output,
        reference=known.name,
        accuracy=found.value,
        low=found.low,
        high=found.high,
        tolerance=tolerance,
        false_alarms=false_alarms,
        windows=windows,
        order=_order(by, known.name, windows),
        alarm=life.alarm,
        delay=life.delay(windows),
        exact=life.exact,
        answer=_answer(windows, life.alarm, life.state, false_alarms) + (f" But {alone}" if alone else ""),
        notes=[*_notes(known, is_whole=by is None and since is None), *(own.unused for own in later if own.unused)],
    )


def _notes(known: Window, *, is_whole: bool) -> list[str]:
    """Return a note if the run before the reference is gone, unless the user chose where the life begins."""
    before = lost_before(known.run) if is_whole else None
    if before is None:
        return []
    return [f"the reference, {known.name}, is not the first run of this life: {before}, before it, was removed"]


def _order(by: str | None, reference: str, windows: Sequence[WatchedWindow]) -> str:
    """Return what orders the windows, with the first and the last one, so that a reader sees a wrong order."""
    last = windows[-1].run if windows else reference
    return f"{reference} first, {last} last, in the order of their {'names' if by else 'creation'}"


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
    name: str, output: str, asked: WatchSpec, rate: float, *, was_raised: bool
) -> tuple[WatchState | None, AlertCheck, list[str]]:
    """Return the state of a watched audit, its alert and notes; the state is None without a usable reference.

    An alarm that ``was_raised`` stays raised while labels that decide it cannot be used.
    """
    tolerance, by, since = asked.tolerance, asked.by, asked.since
    try:
        found = watch_audit(name, output, tolerance=tolerance, false_alarms=rate, by=by, since=since)
    except _UnlabelledError:
        return None, watch_check(asked, None, is_raised=False), []
    except OpaccError as error:
        undecided = watch_check(asked, None, is_raised=was_raised).model_copy(update={"reason": str(error)})
        return None, undecided, [f"The watch cannot be decided: {error}."]
    labelled = [window for window in found.windows if window.labels]
    alone = _alone(found.windows, found.alarm, tolerance)
    notes = [*found.notes, *([alone] if alone else [])]
    state = WatchState(
        **found.model_dump(include={"reference", "accuracy", "alarm", "delay", "exact", "false_alarms"}),
        notes=notes,
        windows=len(found.windows),
        labelled=len(labelled),
        last=found.windows[-1].run if found.windows else None,
        evidence=labelled[-1].evidence if labelled else None,
        needed=1 / rate,
        without_labels=found.windows[-1].without_labels if found.windows and not found.windows[-1].labels else {},
    )
    check = watch_check(asked, labelled[-1] if labelled else None, is_raised=found.alarm is not None)
    return state, check, notes


def watch_check(asked: WatchSpec, last: WatchedWindow | None, *, is_raised: bool) -> AlertCheck:
    """Return the alert of a watch, with the drop in its last labelled window."""
    change = (None, None, None) if last is None else (last.change, last.change_high, last.change_low)
    value, low, high = (None if own is None else -own for own in change)
    return AlertCheck(
        kind="watch",
        limit=asked.tolerance,
        value=value,
        low=low,
        high=high,
        level=LEVEL,
        raised=is_raised,
        reason="no window after the reference has labels yet" if last is None else None,
    )


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
            if window.labels is not None:
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
        if window.labels is not None:
            self.bet(window)
            if self.alarm is None and self.state.evidence >= 1 / self.rate:
                self.alarm = window.name
        return _stated(window, self.known, float(self.state.evidence), self._guesses(window))

    def bet(self, window: Window) -> None:
        labels, limits = window.stated, self.state.limits
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
        usual = next((window.labels for window in reversed(windows) if window.labels), len(known.outcome))
        return windows_to_alarm(self.state, min(1 - known.estimate.value + DROP, 1.0), usual, self.rate)


def _answer(windows: Sequence[WatchedWindow], alarm: str | None, state: Watch, rate: float) -> str:
    if alarm is not None:
        return f"ALARM: the accuracy has dropped; the window of {alarm} raised it."
    if not state.windows:
        return "No window has labels yet."
    times = 1 / rate / max(float(state.evidence), 1e-9)
    return (
        f"No alarm after {state.windows} of {len(windows)} windows; the evidence would have to grow {times:.3g} times."
    )


def _alone(windows: Sequence[WatchedWindow], alarm: str | None, tolerance: float) -> str:
    """Return what to say of windows whose own interval shows a drop by more than the tolerance, without an alarm."""
    lower = [own for own in windows if own.change_high is not None and own.change_high < -tolerance]
    if alarm is not None or not lower:
        return ""
    worst = min(lower, key=lambda own: own.change_high or 0.0)
    assert worst.change_low is not None and worst.change_high is not None  # noqa: PT018
    others = f" So {'is' if len(lower) == 2 else 'are'} {counted(len(lower) - 1, 'other')}." if len(lower) > 1 else ""
    return (
        f"{worst.run} alone is {-100 * worst.change_high:.1f} to {-100 * worst.change_low:.1f} points lower than "
        f"the reference (95 % interval), more than the tolerance.{others} Without such a drop, at most about one "
        "window in 40 shows that by chance; more labels of it decide, or an alert `max_drop`."
    )


def _slope(doubt: Array, labels: WindowLabels) -> float:
    """Return the slope of failure by doubt (n,) among labels; 0 if they are few, or it falls."""
    if len(doubt) < LEAST:
        return 0.0
    share = labels.weight / labels.weight.sum()
    away = doubt - share @ doubt
    spread = float(share @ away**2)
    return max(float(share @ (away * (1 - labels.outcome))) / spread, 0.0) if spread > 0 else 0.0


def _stated(window: Window, known: Window, evidence: float, guesses: dict[str, float]) -> WatchedWindow:
    examples = num_fresh(window.run) if window.examples is None else int(window.examples.sum())
    base: dict[str, Any] = {"run": window.name, "created": window.run.header.created, "examples": examples}
    base["without_labels"] = guesses
    if window.labels is None:
        named = ("value", "low", "high", "change", "change_low", "change_high", "evidence")
        return WatchedWindow(**base | dict.fromkeys(named), labels=0)
    own, other = window.labels.estimate, known.stated.estimate
    change = own.value - other.value  # its interval: MOVER, of two independent estimates
    return WatchedWindow(
        **base,
        labels=own.n,
        value=own.value,
        low=own.low,
        high=own.high,
        change=change,
        change_low=change - float(np.hypot(own.value - own.low, other.high - other.value)),
        change_high=change + float(np.hypot(own.high - own.value, other.value - other.low)),
        evidence=evidence,
    )


def _reference(known: WindowLabels) -> Reference:
    """Return what the reference says: exactly for a simple random sample, else by its intervals."""
    found = known.estimate
    if known.draws is not None and set(np.unique(known.outcome)) <= {0.0, 1.0}:
        return counted_reference(float(known.draws.sum()), len(known.draws))
    return interval_reference(known.interval_at, found.value, found.standard_error)
