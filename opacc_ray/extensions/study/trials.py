"""Run the repetitions of a study, in blocks of one method at one budget on one case, and define what they estimate.

Every repetition has its own seed, derived from the study's seed and its place in the study. So its result does not
depend on the worker, the time or the blocks, and `opacc.select` can reproduce it alone.

They estimate a metric of the whole pool, or of each slice. The yardstick is a simple random sample without replacement
of n labels whose examples are put in strata afterwards: the examples predicted as a class are counted, so their number
is known. To first order, its error is the mean over the sample of

    u_i = N · [ ∂g/∂TP · (tp_i - TP/P) if i is predicted as the class, else ∂g/∂FN · (fn_i - FN/(M - P)) ]

so the variance is S²(u) · (1/n - 1/N). An average over classes has the mean of their u. For the accuracy of a slice,
u_i is N/M · (y_i - θ) in the slice and 0 elsewhere; for that of the pool, it is y_i - θ, and the variance is exact.

Legend: N pool, M slice, y outcome, g the metric, TP and FN true positives and false negatives, P predicted as the
class.
"""

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.estimation.estimate import KnownPool, estimate_outcomes, numbers_of
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.sample import join
from opacc_ray.extensions.study import f_measures
from opacc_ray.extensions.study.cases import Case, Source, read_case
from opacc_ray.extensions.study.peers import PEERS, Question
from opacc_ray.extensions.study.study_spec import ITSELF, MethodSpec
from opacc_ray.metrics.metric import ACCURACY, AVERAGES, Metric, Parts, find_place, parse_metric, slopes
from opacc_ray.neurons.sections import histogram, part_values
from opacc_ray.pool import Slicing
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.select import select
from opacc_ray.selection import Outcome, Selection, is_binary

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

ALL = ""
"""Name of the whole pool among slices."""


class Target(NamedTuple):
    """The number, or the numbers, that a study estimates."""

    name: str = ACCURACY  # of the metric
    by: str | None = None  # name of the slices

    @property
    def metric(self) -> Metric:
        return parse_metric(self.name)

    @property
    def is_accuracy(self) -> bool:
        """Whether it is the accuracy of the whole pool."""
        return self == Target()

    def __str__(self) -> str:
        return self.name if self.by is None else f"{self.name} by {self.by}"


class Truth(NamedTuple):
    """A true number of a case, and how precise a simple random sample is."""

    size: int  # N
    value: float  # θ
    variance: float  # S² of u
    binary: bool  # whether the case's outcomes are 0 or 1

    def deviation(self, n: float) -> float:
        """Return s, the standard deviation of the estimate by a simple random sample without replacement."""
        return math.sqrt(self.variance * (1 / n - 1 / self.size))


def truths_of(case: Case, target: Target) -> dict[str, Truth]:
    """Return the true numbers of a case by slice; raises DataError if it has no such number."""
    slicing, size, truths = slices_of(case, target), case.view.size, {}
    for number, name in enumerate(slicing.names):
        value, effect = _metric(case, target.metric, slicing.codes == number)
        variance = size**2 * float(effect @ effect) / max(size - 1, 1)
        truths[name] = Truth(size, value, variance, is_binary(case.outcome))
    return truths


def slices_of(case: Case, target: Target) -> Slicing:
    """Return the slices of a case; one of all examples where none are asked for."""
    if target.by is None:
        return Slicing((ALL,), np.zeros(case.view.size, dtype=np.int32))
    by = target.by
    return case.view.once("study slices", by, lambda: case.view.slicing(by))


def classes_of(case: Case, metric: Metric) -> list[int]:
    """Return the classes of a metric, 0 .. C - 1: all for an average, and of two the second by default.

    Raises
    ------
    DataError
        The true classes of the case are not known, or it has no such class.
    """
    if case.truth is None:
        raise DataError(f"case {case.source.name}: {metric} needs true classes; give label next to prediction")
    try:
        return [*range(len(case.classes))] if metric.name in AVERAGES else [find_place(metric, case.classes)]
    except SpecError as error:
        raise DataError(f"case {case.source.name}: {error}") from None


def _metric(case: Case, metric: Metric, inside: NDArray[np.bool_]) -> tuple[float, Array]:
    """Return a metric of the examples ``inside`` (N,), and u/N of each (M,)."""
    if metric.name == ACCURACY:
        outcome = case.outcome[inside]
        return float(outcome.mean()), (outcome - outcome.mean()) / len(outcome)
    places, num = classes_of(case, metric), len(case.classes)
    assert case.truth is not None
    truth, predicted = case.truth[inside], predicted_of(case)[inside]  # (M,)
    right = truth == predicted
    tp, fn = (np.bincount(truth[own], minlength=num).astype(np.float64) for own in (right, ~right))  # (C,)
    of_class = np.bincount(predicted, minlength=num)
    size, by_tp, by_fn = Parts(of_class, len(truth) - of_class), np.zeros(num), np.zeros(num)
    value, by_tp[places], by_fn[places] = slopes(metric, tp[places], fn[places], Parts(*(own[places] for own in size)))
    hit, missed = tp / np.maximum(size.inside, 1), fn / np.maximum(size.outside, 1)
    own = by_tp[predicted] * (right - hit[predicted])  # the effect on the predicted class, then on all others
    return value, own + np.where(right, 0, by_fn[truth]) + by_fn[predicted] * missed[predicted] - by_fn @ missed


def predicted_of(case: Case) -> Codes:
    """Return the predicted class of each example, (N,)."""
    return case.view.once("study classes", None, lambda: case.view.column("prediction").astype(np.int64))


# -- estimates -----------------------------------------------------------------------------------------------------


def serving(method: str, parameters: Mapping[str, Any], case: Case, target: Target) -> dict[str, Any]:
    """Return the parameters of a method: one that can draw for a number draws for the target, unless it is told not to.

    This is the only place that knows of the parameter ``serve``.
    """
    names = {field.name for field in fields(parse_parameters(method, parameters))}
    if target.is_accuracy or "serve" not in names or "serve" in parameters:
        return dict(parameters)
    metric = target.metric
    one_class = metric.name not in (ACCURACY, *AVERAGES)
    number = f"{metric.name}@{classes_of(case, metric)[0]}" if one_class else metric.name
    return dict(parameters) | {"serve": [number if target.by is None else target.by]}


def estimates(
    case: Case,
    target: Target,
    rounds: tuple[list[Selection], list[Outcome]],
    level: float,
) -> dict[str, Estimate]:
    """Return the estimate of each slice from the selections and outcomes of all rounds."""
    selections, outcomes = rounds
    if target.is_accuracy:
        return {ALL: estimate_outcomes(selections, outcomes, level, pool=case.view)}
    index = np.concatenate([chosen.index for chosen in selections])
    truth = None if case.truth is None else case.truth[index]
    predicted = np.zeros(case.view.size, dtype=np.int64) if case.truth is None else predicted_of(case)
    slicings = {} if target.by is None else {target.by: slices_of(case, target)}
    pool = KnownPool(case.view, predicted, case.classes or ("all",), slicings)
    numbers = numbers_of(pool, join(selections, outcomes, truth=truth), [target.metric])
    if target.by is not None:
        return numbers.by(target.metric, target.by, level)
    return {ALL: numbers.estimate(target.metric, level)}


BLOCK_SIZE = 100  # repetitions per block: the unit of parallel work and of resume


class Trial(NamedTuple):
    """The result of one repetition."""

    value: float
    low: float
    high: float
    draws: int  # an example drawn twice counts twice
    labels: int  # distinct examples
    failures: float  # among them
    seconds: float  # to choose, all rounds
    interval: str
    design_based: bool
    slice: str = ALL  # whose number it is
    kl: float | None = None  # KL divergence of the output layer from the pool's; None: it was not asked for


class Cell(NamedTuple):
    """One method at one budget on one case."""

    source: Source
    method: MethodSpec
    budget: int | None  # None: the method stops by itself
    seed: int
    level: float
    repetitions: int
    target: Target = Target()
    divergence: bool = False  # whether to measure the KL divergence of the output layer

    def __str__(self) -> str:
        return f"case {self.source.name}, method {self.method.name}, budget {self.budget or ITSELF}"

    @property
    def key(self) -> str:
        """Digest of what decides a repetition: the code, the content of the case, the method and its place."""
        facts: list[Any] = [code_digest(), *self._place, self.level, self.source.digest, self.source.columns]
        facts += [self.source.error_scale, *self.target, self.divergence]
        facts += [self.source.coverage, self.source.subpool]
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=12).hexdigest()

    @property
    def _place(self) -> list[str | int | None]:
        return [self.seed, self.source.name, self.method.design, self.budget]

    def seed_of(self, repetition: int) -> int:
        """Return the seed for `opacc.select`, in [0, 2^63)."""
        text = json.dumps([*self._place, repetition]).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1

    def blocks(self) -> "Iterator[Block]":
        for start in range(0, self.repetitions, BLOCK_SIZE):
            yield Block(self, start, min(start + BLOCK_SIZE, self.repetitions))


@cache
def code_digest(package: Path = Path(__file__).parents[2]) -> str:
    """Return the digest of the package's code, which changes with any of its lines."""
    digest = hashlib.blake2b(digest_size=12)
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


class Block(NamedTuple):
    """Repetitions ``start`` up to ``stop`` of a cell."""

    cell: Cell
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.cell}, repetitions {self.start} to {self.stop - 1}"

    @property
    def key(self) -> str:
        """Key under which the block's trials are stored."""
        return f"blocks/{self.cell.key}/{self.start:07d}-{self.stop:07d}.json"


def run_block(block: Block) -> list[Trial]:
    """Run all repetitions of a block, in their order, a trial for each slice; an error names case, method and seed."""
    case, trials = _case(block.cell.source), list[Trial]()
    run = _run_peer if block.cell.method.method in PEERS else _run
    for repetition in range(block.start, block.stop):
        seed = block.cell.seed_of(repetition)
        place = f"{block.cell}, repetition {repetition} (seed {seed})"
        try:
            trials += run(case, block.cell, seed)
        except OpaccError as error:
            raise type(error)(f"{place}: {error}") from None
        except Exception as error:
            raise OpaccError(f"{place}: {type(error).__name__}: {error}") from error
    return trials


def _run(case: Case, cell: Cell, seed: int) -> list[Trial]:
    """Choose, look the outcomes up, and choose again until the budget is spent; then estimate."""
    method = cell.method
    parameters = serving(method.method, method.parameters, case, cell.target)
    rounds: list[tuple[Selection, Outcome]] = []
    seconds = 0.0
    for size in method.batches(cell.budget):
        begun = time.perf_counter()
        chosen = select(case.view, method.method, size, seed, previous=rounds, **parameters)
        seconds += time.perf_counter() - begun
        rounds.append((chosen, case.outcome[chosen.index]))
    selections, outcomes = [chosen for chosen, _ in rounds], [outcome for _, outcome in rounds]
    stated = estimates(case, cell.target, (selections, outcomes), cell.level)
    facts = _facts(case, cell, np.concatenate([chosen.index for chosen in selections]), seconds)
    return [
        Trial(one.value, one.low, one.high, interval=one.method, design_based=one.design_based, slice=name, **facts)
        for name, one in stated.items()
    ]


def _run_peer(case: Case, cell: Cell, seed: int) -> list[Trial]:
    """Draw and estimate by a peer; the whole is timed as one choice."""
    assert cell.budget is not None, "no peer stops by itself"
    asked = question(case, cell.target)
    begun = time.perf_counter()
    stated = PEERS[cell.method.method].estimate(asked, cell.budget, np.random.default_rng(seed), cell.level)
    facts = _facts(case, cell, stated.chosen, time.perf_counter() - begun)
    numbers = (np.atleast_1d(values).tolist() for values in (stated.value, stated.low, stated.high))
    return [
        Trial(value, low, high, interval="of the peer", design_based=True, slice=name, **facts)
        for name, value, low, high in zip(slices_of(case, cell.target).names, *numbers, strict=True)
    ]


def _facts(case: Case, cell: Cell, index: NDArray[np.int64], seconds: float) -> dict[str, Any]:
    """Return what holds for all slices of a repetition that chose ``index`` (draws,)."""
    labels = np.unique(index)
    return {
        "draws": len(index),
        "labels": len(labels),
        "failures": float((1 - case.outcome[labels]).sum()),
        "seconds": seconds,
        "kl": divergence(case, index) if cell.divergence else None,
    }


def divergence(case: Case, index: NDArray[np.int64]) -> float:
    """Return KL(P_S || P_T) of the output layer, as DeepReduce measures it (Formula 1), for the chosen examples."""
    pool = case.view.once("study histogram", None, lambda: histogram(case.view, "output"))
    return pool.divergence(case.view.take(part_values, np.unique(index), "output"))


_case = lru_cache(maxsize=2)(read_case)  # once per worker, and kept for the next blocks


# -- what the methods of others may read of a case ----------------------------------------------------------------


def question(case: Case, target: Target) -> Question | f_measures.Positives:
    """Return what peers may read of a case, made once."""
    return case.view.once("study question", target, lambda: _question(case, target))


def _question(case: Case, target: Target) -> Question | f_measures.Positives:
    """For an F-measure, return one class against the rest, which share equally what the confidence leaves."""
    confidence = np.clip(case.view.column("confidence"), 0, 1)
    alpha = f_measures.weight_of(target.name)
    if alpha is None:
        return Question(confidence, case.outcome)
    [c] = classes_of(case, target.metric)
    assert case.truth is not None
    predicted = predicted_of(case) == c
    probability = np.where(predicted, confidence, (1 - confidence) / max(len(case.classes) - 1, 1))
    return f_measures.Positives(predicted.astype(np.float64), probability, (case.truth == c).astype(np.float64), alpha)
