"""Run the repetitions of a study, in blocks of one method at one budget on one case.

Every repetition has its own seed, derived from the study's seed and its place in the study. So its result does not
depend on the worker, the time or the blocks, and `opacc.select` can reproduce it alone.
"""

import hashlib
import json
import time
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import OpaccError
from opacc_ray.estimators.rounds import Outcome
from opacc_ray.neurons.sections import EqualCount, Histogram, equal_count, part_codes, part_counts, relative_entropy
from opacc_ray.samplers.select import select
from opacc_ray.selection import Selection
from opacc_ray.slices import CROSSING
from opacc_ray.study.cases import Case, Source, read_case
from opacc_ray.study.peers import PEERS
from opacc_ray.study.peers.peer import Positives, Question, weight_of
from opacc_ray.study.study_spec import ITSELF, MethodSpec
from opacc_ray.study.target import ALL, Target, class_of, estimates, predicted_of, serving, slices_of

SECTIONS = 20  # of each neuron of the output layer, for its divergence

BLOCK_SIZE = 100  # repetitions per block: the unit of parallel work and of resume

DECISIVE = (
    *("datasets", "designs", "estimators", "neurons", "parts", "samplers", "study"),
    *("history.py", "judges.py", "pool.py", "selection.py", "slices.py"),
)
"""The packages and modules whose code decides the result of a repetition."""


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
        facts += [self.source.error_scale, *self.source.shuffle, *self.target, self.divergence]
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
def code_digest(package: Path = Path(__file__).parents[1]) -> str:
    """Return the digest of the DECISIVE code, which changes with any of its lines."""
    found = hashlib.blake2b(digest_size=12)
    for place in DECISIVE:
        for path in sorted((package / place).rglob("*.py")) or [package / place]:
            found.update(f"{path.relative_to(package).as_posix()}\n".encode() + path.read_bytes())
    return found.hexdigest()


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
    case = _case(block.cell.source)
    return [
        trial for repetition in range(block.start, block.stop) for trial in _run_named(case, block.cell, repetition)
    ]


def _run_named(case: Case, cell: Cell, repetition: int) -> list[Trial]:
    seed = cell.seed_of(repetition)
    place = f"{cell}, repetition {repetition} (seed {seed})"
    try:
        return _run(case, cell, seed)
    except OpaccError as error:
        raise type(error)(f"{place}: {error}") from None
    except Exception as error:
        raise OpaccError(f"{place}: {type(error).__name__}: {error}") from error


def _run(case: Case, cell: Cell, seed: int) -> list[Trial]:
    """Choose, look the outcomes up, and choose again until the budget is spent; then estimate."""
    method = cell.method
    if method.method in PEERS:
        return _run_peer(case, cell, seed)
    parameters = serving(method.method, method.parameters, case, cell.target)
    rounds: list[tuple[Selection, Outcome]] = []
    seconds = 0.0
    for size in method.batches(cell.budget):
        begun = time.perf_counter()
        chosen = select(case.view, method.method, size, seed, previous=rounds, **parameters)
        seconds += time.perf_counter() - begun
        rounds.append((chosen, case.outcome[chosen.index]))
    selections, outcomes = [chosen for chosen, _ in rounds], [outcome for _, outcome in rounds]
    prediction = case.view.column("confidence") if method.assist else None
    found = estimates(case, cell.target, (selections, outcomes), cell.level, prediction)
    index = np.concatenate([chosen.index for chosen in selections])
    counts, kl = (*_counts(case, index), seconds), divergence(case, index) if cell.divergence else None
    return [
        Trial(one.value, one.low, one.high, *counts, one.interval, one.design_based, name, kl)
        for name, one in found.items()
    ]


def _run_peer(case: Case, cell: Cell, seed: int) -> list[Trial]:
    """Draw and estimate by a peer; the whole is timed as one choice."""
    assert cell.budget is not None, "no peer stops by itself"
    asked = question(case, cell.target)
    begun = time.perf_counter()
    found = PEERS[cell.method.method].estimate(asked, cell.budget, np.random.default_rng(seed), cell.level)
    counts = *_counts(case, found.chosen), time.perf_counter() - begun
    kl = divergence(case, found.chosen) if cell.divergence else None
    values, lows, highs = (np.atleast_1d(own).tolist() for own in found[:3])
    rows = zip(slices_of(case, cell.target).names, values, lows, highs, strict=True)
    return [Trial(value, low, high, *counts, "of the peer", True, name, kl) for name, value, low, high in rows]


def _counts(case: Case, index: NDArray[np.int64]) -> tuple[int, int, float]:
    """Return the number of draws, of distinct examples, and of failures among these."""
    labels = np.unique(index)
    return len(index), len(labels), float((1 - case.outcome[labels]).sum())


def divergence(case: Case, index: NDArray[np.int64]) -> float:
    """Return KL(P_S || P_T) of the output layer, as DeepReduce measures it (Formula 1), for the chosen examples."""
    sections, share = _sections(case.source)
    codes = case.view.take(part_codes, np.unique(index), (sections,))  # (n, C)
    counts = np.stack([np.bincount(neuron, minlength=sections.num) for neuron in codes.T])
    return relative_entropy(share, counts)


@lru_cache(maxsize=2)
def _sections(source: Source) -> tuple[EqualCount, NDArray[np.float64]]:
    """Return DeepReduce's sections of the output layer of a case, and the shares of the pool in them."""
    view = _case(source).view
    sections = equal_count(view, "output", SECTIONS)
    return sections, Histogram((sections,), view.total(part_counts, sections)).share


_case = lru_cache(maxsize=2)(read_case)  # once per worker, and kept for the next blocks


def encode(trials: list[Trial]) -> bytes:
    """Encode the trials as JSON, column by column."""
    return json.dumps({name: [getattr(trial, name) for trial in trials] for name in Trial._fields}).encode()


def decode(data: bytes) -> list[Trial]:
    """Restore the trials that :func:`encode` was given."""
    columns = json.loads(data)
    return [Trial(*row) for row in zip(*(columns[name] for name in Trial._fields), strict=True)]


# -- what the methods of others may read of a case ----------------------------------------------------------------


def question(case: Case, target: Target) -> Question:
    """Return what peers may read of a case, made once."""
    return case.view.once("study question", target, lambda: _question(case, target))


def _question(case: Case, target: Target) -> Question:
    confidence = np.clip(case.view.column("confidence"), 0, 1)
    names = [] if target.by is None else [name.strip() for name in target.by.split(CROSSING)]
    slices = tuple(case.view.slicing(name) for name in names)
    alpha = weight_of(target.name)
    positives = None if alpha is None else _positives(case, target, confidence, alpha)
    return Question(confidence, case.outcome, positives, slices)


def _positives(case: Case, target: Target, confidence: np.ndarray, alpha: float) -> Positives:
    """Return one class against the rest; what the confidence leaves is shared equally by the other classes."""
    c = class_of(case, target.metric)
    assert case.truth is not None
    predicted = predicted_of(case) == c
    probability = np.where(predicted, confidence, (1 - confidence) / max(len(case.classes) - 1, 1))
    return Positives(predicted.astype(np.float64), probability, (case.truth == c).astype(np.float64), alpha)
