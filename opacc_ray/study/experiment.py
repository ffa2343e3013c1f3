"""A study from its spec to its results: plan the cells, run what is missing, measure, write.

    blocks/…/0000000-0000100.json   trials, one file per block: the checkpoint of the work
    results.json                    every cell with its measures, what was not possible, versions, seed, command
    table.md                        the same to read
    figures/CASE.svg, CASE.png      error and failures found against the number of labels

A block's key says all that decides its content, so a study that was interrupted goes on, and one that is extended by
methods, budgets or repetitions does only what is new. The code of the methods is a part of it: after any change to them
all is measured anew, and what the code before measured is left where it lies.
"""

import logging
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from typing import NamedTuple

from opacc_ray import __version__
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimators.base import is_binary
from opacc_ray.estimators.without_labels import guesses
from opacc_ray.lake.storage import Store, open_store
from opacc_ray.samplers.select import find_method, parse_parameters
from opacc_ray.study.bound import least_variance
from opacc_ray.study.cases import Case, Source, find_cases, read_case
from opacc_ray.study.documents import CaseFacts, CellMeasures, NotPossible, StudyResults
from opacc_ray.study.measures import Truth, measure, truth_of
from opacc_ray.study.peers import PEERS
from opacc_ray.study.spec import MethodSpec, StudySpec
from opacc_ray.study.table import write_table
from opacc_ray.study.trials import Block, Cell, Trial, decode, encode, run_block

log = logging.getLogger(__name__)

Report = Callable[[int, int], None]
"""Called with the blocks done so far and in all."""

PACKAGES = ("numpy", "scipy", "ray")


class Subject(NamedTuple):
    """What the study needs of a case after it has been read and let go."""

    source: Source
    truth: Truth
    features: frozenset[str]
    outcome: str  # how it was made
    bound: dict[int, float]  # per budget, the least variance that an unbiased method could have
    without_labels: dict[str, float]  # accuracy as the confidence has it


def run_study(
    spec: StudySpec,
    progress: Report = lambda done, total: None,
    command: str | None = None,
) -> StudyResults:
    """Run what is missing of a study, and write its results.

    Parameters
    ----------
    spec : what to study
    progress : called with the number of blocks done and in all
    command : recorded with the results

    Returns
    -------
    StudyResults
        The document results.json. All of it but the times depends on the spec and the cases alone.

    Raises
    ------
    SpecError, DataError
        A method, a budget or a case that cannot be used.
    OpaccError
        A block failed: case, method, budget and the repetition's seed are named. Finished blocks are kept.
    """
    sources = find_cases(spec.cases, spec.columns, spec.error_scale, spec.shuffle)
    subjects = [_subject(read_case(source), spec) for source in sources]
    cells, impossible = _plan(spec, subjects)
    store = open_store(spec.output)
    trials = _all_trials(store, cells, spec.workers, progress)
    truths = {subject.source.name: subject.truth for subject in subjects}
    results = StudyResults(
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"opacc_ray": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
        spec=spec,
        cases=[_describe(subject) for subject in subjects],
        methods=[method.name for method in spec.methods],
        cells=[_measured(cell, trials[cell.key], truths[cell.source.name]) for cell in cells],
        not_possible=impossible,
    )
    _write(store, results)
    return results


def _subject(case: Case, spec: StudySpec) -> Subject:
    truth = truth_of(case.outcome)
    if not truth.variance:
        raise DataError(
            f"case {case.source.name}: every outcome is {truth.accuracy:g}, so there is nothing to tell methods apart; "
            "leave the case out"
        )
    _check_budgets(spec, case.source.name, truth.size)
    try:
        bound = least_variance(case.view, case.outcome, spec.budgets)
    except DataError as error:
        raise DataError(f"case {case.source.name} ({case.source.uri}): {error}") from None
    return Subject(case.source, truth, case.view.fields, case.outcome_rule, bound, _guesses(case))


def _guesses(case: Case) -> dict[str, float]:
    """What the confidence says without labels, beside the case's labelled reference if it has one."""
    if "confidence" not in case.view.fields or not is_binary(case.outcome):
        return {}
    confidence = case.view.column("confidence")
    if case.source.reference is None:
        return guesses(confidence)
    reference = read_case(replace(case.source, uri=case.source.reference, reference=None, digest=None))
    reference.view.need(["confidence"], "difference of confidences")
    return guesses(confidence, reference.view.column("confidence"), reference.outcome)


def _plan(spec: StudySpec, subjects: Sequence[Subject]) -> tuple[list[Cell], list[NotPossible]]:
    """The cells that can be run, and the pairs of case and method that cannot, with the reason."""
    cells, impossible = [], []
    for subject in subjects:
        for method in spec.methods:
            missing = _missing(method, subject)
            if missing:
                reason = f"needs {' and '.join(missing)}"
                impossible.append(NotPossible(case=subject.source.name, method=method.name, reason=reason))
                continue
            for budget in spec.budgets:
                method.batches(budget)
                repetitions = method.repetitions or spec.repetitions
                cells.append(Cell(subject.source, method, budget, spec.seed, spec.level, repetitions))
    if not cells:
        reasons = "; ".join(f"{item.method} {item.reason} of {item.case}" for item in impossible)
        raise DataError(f"no method is possible on any case: {reasons}")
    return cells, impossible


def _check_budgets(spec: StudySpec, case: str, size: int) -> None:
    largest = max(spec.budgets)
    if largest >= size:
        raise SpecError(
            f"budget={largest}: case {case} holds {size} examples; "
            "give less, for there is nothing to estimate once all are labelled"
        )


def _missing(method: MethodSpec, subject: Subject) -> list[str]:
    if method.method in PEERS:
        return [] if "confidence" in subject.features else ["confidence"]
    needs = find_method(method.method).needs(parse_parameters(method.method, method.parameters))
    wanted = [*needs, "confidence"] if method.assist else needs
    return [name for name in dict.fromkeys(wanted) if name not in subject.features]


def _all_trials(store: Store, cells: Sequence[Cell], workers: int | None, progress: Report) -> dict[str, list[Trial]]:
    """The trials of each cell, in the order of the repetitions; those that are not kept yet are run."""
    blocks = list(chain.from_iterable(cell.blocks() for cell in cells))
    kept = {entry.key for entry in store.list("blocks/")}
    missing = [block for block in blocks if block.key not in kept]
    progress(len(blocks) - len(missing), len(blocks))
    for done, (block, trials) in enumerate(_run(missing, workers), len(blocks) - len(missing) + 1):
        store.write(block.key, encode(trials))
        progress(done, len(blocks))
    trials_of: dict[str, list[Trial]] = {cell.key: [] for cell in cells}
    for block, data in zip(blocks, store.read_many(block.key for block in blocks), strict=True):
        trials_of[block.cell.key] += decode(data)
    return trials_of


def _run(missing: Sequence[Block], workers: int | None) -> Iterator[tuple[Block, list[Trial]]]:
    """The first block of every cell first, so that what fails fails early; then case by case, which are read once."""
    if not missing:
        return
    from opacc_ray.cluster import session

    with session.connected():
        from opacc_ray.cluster import tasks  # imports Ray, which reads its token mode then

        yield from tasks.map_tasks(run_block, sorted(missing, key=lambda block: block.start > 0), workers)


def _describe(subject: Subject) -> CaseFacts:
    source, truth = subject.source, subject.truth
    return CaseFacts(
        case=source.name,
        uri=source.uri,
        sha256=source.digest,
        size=truth.size,
        accuracy=truth.accuracy,
        variance=truth.variance,
        outcome=subject.outcome,
        binary=truth.binary,
        features=sorted(subject.features),
        shuffled=list(source.shuffle),
        without_labels=subject.without_labels,
        bound={str(n): least / truth.srs_deviation(n) ** 2 for n, least in subject.bound.items()},
    )


def _measured(cell: Cell, trials: list[Trial], truth: Truth) -> CellMeasures:
    return CellMeasures(
        case=cell.source.name,
        method=cell.method.name,
        design=cell.method.design,
        budget=cell.budget,
        **measure(trials, truth),
    )


def _write(store: Store, results: StudyResults) -> None:
    content = results.to_dict()
    store.write("table.md", write_table(content).encode())
    try:
        from opacc_ray.study.plots import draw_case
    except ImportError:
        log.warning("no figures: they need matplotlib; pip install 'opacc_ray[report]' and run the same command again")
    else:
        for case in results.cases:
            for suffix, data in draw_case(content, case.case).items():
                store.write(f"figures/{case.case}.{suffix}", data)
    store.write("results.json", results.to_bytes())
