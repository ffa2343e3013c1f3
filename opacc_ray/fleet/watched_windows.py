"""The windows of a watched audit, and what their labels say of each: runs as they arrive, or slices of one pool."""

import contextlib
import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.accuracy import accuracy_of, sample_of, whole_rounds
from opacc_ray.audit.carried_labels import carried_facts
from opacc_ray.audit.run_numbers import RunNumbers, open_for_estimates
from opacc_ray.designs.design import Design
from opacc_ray.designs.grown import CARRIED, NEW, Grown
from opacc_ray.designs.hansen_hurwitz import HansenHurwitz
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.errors import DataError, LabelError, OpaccError, counted
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.design_based import estimate_sample
from opacc_ray.estimators.metrics import ACCURACY, Metric
from opacc_ray.estimators.rounds import linear_estimator
from opacc_ray.estimators.watching import IntervalAt
from opacc_ray.fleet.alerts import Evidence
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import output_of, run_beside, runs_of
from opacc_ray.samplers.neyman.regression import uses_regression
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


class WindowLabels(NamedTuple):
    """Labels of a window, or of the reference."""

    outcome: Array  # (n,)
    estimate: Estimate
    interval_at: IntervalAt
    draws: Array | None  # (n,) unbiased values of the share of failures, draw by draw; None: not drawn so
    is_simple: bool  # whether it is a simple random sample
    rows: NDArray[np.int64]  # (n,) in the pool
    weight: Array  # (n,) in the mean


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


def _reference_labels(run: Run, until: contextlib.ExitStack) -> WindowLabels:
    sample = sample_of(rounds_of(run))
    view = until.enter_context(open_for_estimates(run, sample[0])) if uses_regression(sample[0]) else None

    def interval_at(level: float) -> tuple[float, float]:
        found = accuracy_of(run, *sample, level, view)
        return found.low, found.high

    outcome = np.concatenate(sample[1])
    plain = all(isinstance(part.design, SimpleRandom) for part in sample[0])
    index, weight = np.concatenate([part.index for part in sample[0]]), linear_estimator(sample[0]).weights
    draws = 1 - outcome if plain else None
    return WindowLabels(outcome, accuracy_of(run, *sample, LEVEL, view), interval_at, draws, plain, index, weight)


def _window_labels(rounds: Sequence[LabelledRound]) -> WindowLabels | None:
    """Return the labels that the first of a run's rounds drew from the window; None without any."""
    if not rounds or rounds[0].number != 1:
        return None
    selection, outcome = rounds[0].known, rounds[0].outcome
    design, rows, draws = selection.design, selection.index, None
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
    return _by_design(design, outcome, draws, rows, design.weights)


def _by_design(
    design: Design, outcome: Array, draws: Array | None, rows: NDArray[np.int64], weight: Array
) -> WindowLabels:
    """Return labels (n,) with the interval of their own design."""

    def interval_at(level: float) -> tuple[float, float]:
        found = estimate_sample(design, outcome, level)
        return found.low, found.high

    found, is_simple = estimate_sample(design, outcome, LEVEL), isinstance(design, SimpleRandom)
    return WindowLabels(outcome, found, interval_at, draws, is_simple, rows, weight)


def windows_of(runs: Sequence[Run], until: contextlib.ExitStack) -> tuple[Window, list[Window]]:
    """Return runs as windows: the first one, which has labels, and what each of the others brought.

    Intervals can be computed ``until`` the end of a block.
    """
    first, *later = runs
    known = Window(first.name, first, None, _reference_labels(first, until))
    return known, [_window(run) for run in later]


def _window(run: Run) -> Window:
    """Return a run as a window; its labels do not count while some are missing, or one cannot be read."""
    try:
        rounds = read_rounds(run) if run.rounds() else []
        is_there = rounds and run.read_features()
        labels, unused = _window_labels(having_labels(whole_rounds(rounds)) if is_there else []), None
        if rounds and rounds[0].missing and int(rounds[0].labelled.sum()) > rounds[0].known_before:
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
    slicing, labels = numbers.slicings[by], _SliceLabels(numbers, by, rounds)
    windows = [
        Window(f"{by}={name}", run, slicing.codes == code, labels.of(code, name))
        for code, name in _in_time(by, slicing.names)
    ]
    first = next((place for place, window in enumerate(windows) if window.labels is not None), None)
    if first is None:
        raise DataError(f"no slice of {by!r} has a label in {run.title}; label an example, for a reference")
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


class _SliceLabels:
    """The labels of a run by slice."""

    def __init__(self, numbers: RunNumbers, by: str, rounds: Sequence[LabelledRound]) -> None:
        known, codes = [item.known for item in rounds], numbers.slicings[by].codes
        self._index = np.concatenate([part.index for part in known])
        self._code, self._sizes = codes[self._index], np.bincount(codes)
        self._outcome = np.concatenate([item.outcome for item in rounds])
        self._weight = np.asarray(linear_estimator(known).weights, dtype=np.float64)
        self._drawn = np.concatenate([_drawn(part) for part in known])
        self._estimates, self._by, self._levels = numbers.estimates, by, dict[float, dict[str, Estimate]]()

    def of(self, code: int, name: str) -> WindowLabels | None:
        """Return the labels of a slice; None without any."""
        own = self._code == code
        outcome, index, weight = self._outcome[own], self._index[own], self._weight[own]
        if not len(outcome):
            return None
        if np.ptp(self._drawn[own]) <= 1e-9:  # a simple random sample of the slice, given its size
            design = SimpleRandom(len(outcome), int(self._sizes[code]), replacement=False)
            return _by_design(design, outcome, 1 - outcome, index, weight)

        def interval_at(level: float) -> tuple[float, float]:
            found = self._at(level)[name]
            return found.low, found.high

        return WindowLabels(outcome, self._at(LEVEL)[name], interval_at, None, False, index, weight)

    def _at(self, level: float) -> dict[str, Estimate]:
        if level not in self._levels:
            self._levels[level] = self._estimates.by_slice(Metric(ACCURACY), self._by, level)
        return self._levels[level]


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
