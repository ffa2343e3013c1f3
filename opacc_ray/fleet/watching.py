"""Watch an audit: its runs as windows of arrival, one alarm with one false-alarm rate for its whole life.

The reference is the first run with labels. Every later run is a window: the examples that are new or changed since the
run before, or the whole pool where no labels were carried over. See :mod:`opacc_ray.estimators.watching`.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.audit.accuracy import accuracy_of, sample_of
from opacc_ray.audit.carried_labels import CARRIED
from opacc_ray.designs.grown import NEW, Grown
from opacc_ray.designs.hansen_hurwitz import HansenHurwitz
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.design_based import estimate_sample
from opacc_ray.estimators.rounds import linear_estimator
from opacc_ray.estimators.watching import (
    IntervalAt,
    Reference,
    Watch,
    begin,
    bets_on_draws,
    bets_on_interval,
    counted_reference,
    interval_reference,
    windows_to_alarm,
    without_labels,
)
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.runs import feature_store
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import output_of, run_beside, runs_of

Array = NDArray[np.float64]

LEVEL = 0.95
DROP = 0.05
"""Drop for which the time until the alarm is stated."""


class WatchedWindow(Part):
    """One window of a watched audit."""

    run: str = Field(description="name of the run that brought it")
    created: str = Field(description="when that run was created")
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

    format: Literal["opacc-watch/1"] = Field(default="opacc-watch/1", description="name and version of this form")
    audit: str = Field(description="name of the audit")
    output: str = Field(description="URI of the folder of its runs")
    reference: str = Field(description="name of the run that is the reference")
    accuracy: float = Field(description="estimated accuracy of the reference")
    low: float = Field(description="lower end of its 95 % interval")
    high: float = Field(description="upper end")
    tolerance: float = Field(description="drop of the accuracy that is no reason for an alarm")
    false_alarms: float = Field(description="probability of a false alarm in the whole life of the audit, at most")
    windows: list[WatchedWindow] = Field(description="windows, the oldest first")
    alarm: str | None = Field(description="run of the window in which the alarm was raised; null: none")
    delay: int | None = Field(
        description="windows like the last after which a further drop by 5 points is noticed; null: more than 520"
    )
    exact: bool = Field(description="whether every window was drawn label by label, so that the rate holds exactly")
    answer: str = Field(description="the state in one sentence")


class _Labels(NamedTuple):
    """Labels of a window, or of the reference."""

    outcome: Array  # (n,)
    estimate: Estimate
    interval_at: IntervalAt
    draws: Array | None  # (n,) unbiased values of the share of failures, draw by draw; None: not drawn so


def watch_audit(name: str, output: str, *, tolerance: float = 0.0, false_alarms: float = 0.05) -> WatchedAudit:
    """Return the windows of an audit and whether they raise the alarm; raises DataError without a labelled run."""
    runs, _ = runs_of(output, name)
    newest = runs[-1] if runs else None
    runs = [run for run in runs if newest and Population.of(run.spec) == Population.of(newest.spec)]
    labelled = [place for place, run in enumerate(runs) if _rounds_of(run)]
    if not labelled:
        raise DataError(f"no run of {name!r} in {output} has complete labels; label one, which is the reference")
    first, later = runs[labelled[0]], runs[labelled[0] + 1 :]
    known = _reference_labels(first)
    state = begin(_reference(known), tolerance)
    windows, alarm, exact = list[WatchedWindow](), None, known.draws is not None
    for run in later:
        labels = _window_labels(run)
        if labels is not None:
            bets = bets_on_interval(labels.interval_at, state.limits)
            if labels.draws is not None:
                bets = bets_on_draws(labels.draws, state.limits)
            exact = exact and labels.draws is not None
            state = state.after(bets)
            alarm = alarm or (run.name if state.evidence >= 1 / false_alarms else None)
        windows.append(_window(run, first, known, labels, float(state.evidence)))
    usual = next((window.labels for window in reversed(windows) if window.labels), len(known.outcome))
    found = known.estimate
    return WatchedAudit(
        audit=name,
        output=output,
        reference=first.name,
        accuracy=found.value,
        low=found.low,
        high=found.high,
        tolerance=tolerance,
        false_alarms=false_alarms,
        windows=windows,
        alarm=alarm,
        delay=windows_to_alarm(state, min(1 - found.value + DROP, 1.0), usual, false_alarms),
        exact=exact,
        answer=_answer(windows, alarm, state, false_alarms),
    )


def _answer(windows: Sequence[WatchedWindow], alarm: str | None, state: Watch, rate: float) -> str:
    if alarm is not None:
        return f"ALARM: the accuracy has dropped; the window of {alarm} raised it."
    if not state.windows:
        return "No window has labels yet."
    times = 1 / rate / max(float(state.evidence), 1e-9)
    return (
        f"No alarm after {state.windows} of {len(windows)} windows; the evidence would have to grow {times:.3g} times."
    )


# -- labels -----------------------------------------------------------------------------------------------------


def _rounds_of(run: Run) -> list[LabelledRound]:
    """Return the rounds of a run that have labels; none if they cannot be read or are not complete."""
    try:
        rounds = read_rounds(run) if run.rounds() and run.read_features() else []
        return [] if any(item.missing for item in rounds) else having_labels(rounds)
    except OpaccError:
        return []


def _reference_labels(run: Run) -> _Labels:
    rounds = _rounds_of(run)
    sample = sample_of(rounds)

    def interval_at(level: float) -> tuple[float, float]:
        found = accuracy_of(run, *sample, level)
        return found.low, found.high

    outcome = np.concatenate(sample[1])
    plain = all(isinstance(part.design, SimpleRandom) for part in sample[0])
    return _Labels(outcome, accuracy_of(run, *sample, LEVEL), interval_at, 1 - outcome if plain else None)


def _reference(known: _Labels) -> Reference:
    """Return what the reference says: exactly for a simple random sample, else by its intervals."""
    found = known.estimate
    if known.draws is not None and set(np.unique(known.outcome)) <= {0.0, 1.0}:
        return counted_reference(float(known.draws.sum()), len(known.draws))
    return interval_reference(known.interval_at, found.value, found.standard_error)


def _window_labels(run: Run) -> _Labels | None:
    """Return the labels that the first round drew from the window; None without any."""
    rounds = _rounds_of(run)
    if not rounds or rounds[0].number != 1:
        return None
    selection, outcome = rounds[0].known, rounds[0].outcome
    design, draws = selection.design, None
    if isinstance(design, Grown):
        new = design.part == NEW
        if not new.any():
            return None
        outcome, size = outcome[new], selection.facts[CARRIED]["new"]
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

    def interval_at(level: float) -> tuple[float, float]:
        found = estimate_sample(design, outcome, level)
        return found.low, found.high

    return _Labels(outcome, estimate_sample(design, outcome, LEVEL), interval_at, draws)


def _window(run: Run, first: Run, known: _Labels, labels: _Labels | None, evidence: float) -> WatchedWindow:
    fresh = _fresh(run)
    examples = 0 if fresh is None else int(fresh.sum())
    base: dict[str, Any] = {"run": run.name, "created": run.header.created, "examples": examples}
    base["without_labels"] = _guesses(run, first, fresh)
    if labels is None:
        named = ("value", "low", "high", "change", "change_low", "change_high", "evidence")
        return WatchedWindow(**base | dict.fromkeys(named), labels=0)
    own, other = labels.estimate, known.estimate
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


def _fresh(run: Run) -> NDArray[np.bool_] | None:
    """Return which examples of a run's pool are its window, (N,); None while its features are incomplete."""
    there = run.read_features()
    if there is None:
        return None
    size = there.index.num_examples
    facts = run.read_selection(1).facts.get(CARRIED) if run.rounds() else None
    before = run_beside(output_of(run), facts["run"]) if facts else None
    if before is None:
        return np.ones(size, dtype=bool)
    old = np.concatenate([np.unique(own) for own in before.complete_features().features.sources()])
    return ~np.isin(np.concatenate(list(there.features.sources())), old)


def _guesses(run: Run, first: Run, fresh: NDArray[np.bool_] | None) -> dict[str, float]:
    """Return what the confidences of a window say, compared with the labels of the reference."""
    rounds, there = _rounds_of(first), run.read_index()
    if fresh is None or not fresh.any() or there is None or "confidence" not in there.features:
        return {}
    selections, outcomes = sample_of(rounds)
    index = np.concatenate([part.index for part in selections])
    own = feature_store.read_rows(first, ["confidence"], index).get("confidence")
    if own is None:
        return {}
    confidence = feature_store.read_column(run, "confidence").astype(np.float64)[fresh]
    weight = np.asarray(linear_estimator(selections).weights, dtype=np.float64)
    return without_labels(confidence, own.astype(np.float64), np.concatenate(outcomes), weight)
