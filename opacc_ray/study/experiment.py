"""Run a study from its spec to its results: plan the cells, run what is missing, measure, write.

    blocks/…/0000000-0000100.json   trials, one file per block: the checkpoint of the work
    results.json                    every cell with its measures, impossible pairs, versions, seed, command
    table.md                        the results as tables
    figures/errors.svg              error of each case against the number of labels
    figures/failures.svg            failures found, likewise
    figures/CASE-failures.svg       failures by auxiliary variable, for papers that show them

A block's key depends on everything that decides its content, including the code of the methods. So an interrupted study
resumes, and one with more methods, budgets or repetitions runs only what is new. After a change of the code everything
is measured again, and old blocks are kept.
"""

import platform
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from typing import Any

import numpy as np

from opacc_ray import __version__
from opacc_ray.documents import Document
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimators.prediction_powered import label_free_accuracy
from opacc_ray.estimators.rounds import is_binary
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.slices import CROSSING
from opacc_ray.spec import read_yaml, validated
from opacc_ray.study.bound import least_variance
from opacc_ray.study.cases import Case, Source, find_cases, read_case
from opacc_ray.study.characterization_study import NAME as CHARACTERIZATION
from opacc_ray.study.characterization_study import CharacterizationSpec, characterize_cases, options_of
from opacc_ray.study.failure_curves import draw_curves
from opacc_ray.study.measures import CaseFacts, CellMeasures, NotPossible, StudyResults, measure_slices
from opacc_ray.study.papers import find_paper, report_paper
from opacc_ray.study.peers import PEERS, kind_of
from opacc_ray.study.plots import draw_study
from opacc_ray.study.seen_cases import prepared
from opacc_ray.study.study_spec import ITSELF, MethodSpec, StudySpec
from opacc_ray.study.table import write_table
from opacc_ray.study.target import Target, Truth, srs_deviation, truth_of, truths_of
from opacc_ray.study.trials import Block, Cell, Trial, decode, encode, run_block

Report = Callable[[int, int], None]
"""Called with the blocks done so far and in all."""

PACKAGES = ("numpy", "scipy", "ray")


def study(arguments: Sequence[str], options: Mapping[str, Any], progress: Report) -> tuple[Document, str]:
    """Run the study of a command line; return the results and the text to print."""
    spec, command = read_options(arguments, options), shlex.join(["opacc", *sys.argv[1:]])
    results: Document
    if isinstance(spec, CharacterizationSpec):
        results = characterize_cases(spec, command)
    else:
        results = run_study(spec, progress, command)
    store = open_store(spec.output)
    text = store.read("table.md").decode()
    paper = report_paper(results.model_dump(mode="json")) if isinstance(results, StudyResults) else ""
    if paper:  # all measures of all methods may be hundreds of lines
        text = f"{paper}measures   {store.uri_of('table.md')}"
    return results, f"{text}\nresults    {store.uri}"


def read_options(arguments: Sequence[str], options: Mapping[str, Any]) -> StudySpec | CharacterizationSpec:
    """Read a study from arguments, and from options that replace the keys of the spec.

    Arguments that end in .yaml are specs, at most one; the others are cases and replace those of the spec. An option
    that is None or empty was not given.
    """
    specs = [item for item in arguments if item.endswith((".yaml", ".yml"))]
    cases = [item for item in arguments if item not in specs]
    if len(specs) > 1:
        raise SpecError(f"{' and '.join(specs)} are two specs; give only one")
    source = specs[0] if specs else "opacc study"
    content = read_yaml(specs[0]) if specs else {}
    if isinstance(content, dict):
        given = {key: value for key, value in options.items() if value is not None and value != []}
        asked = options.get("paper") or content.get("paper")
        paper = None if asked == CHARACTERIZATION else find_paper(asked)
        content = (paper.content if paper else {}) | content | given | ({"cases": cases} if cases else {})
        if asked == CHARACTERIZATION:
            return validated(CharacterizationSpec, options_of(content), source)
        if "reference" in content:
            raise SpecError(
                f"{source}: --reference is for --as {CHARACTERIZATION}; name it in a case of a spec instead"
            )
        for key, way in (("cases", "a file or folder"), ("methods", "--method ces")):
            if not content.get(key):
                raise SpecError(f"{source}: no {key} given; add {way}, or a spec with {key}")
    return validated(StudySpec, content, source)


def run_study(spec: StudySpec, progress: Report = lambda done, total: None, command: str | None = None) -> StudyResults:
    """Run the missing blocks of a study, and write its results.

    Returns the document results.json, which records the ``command``. Except for times it depends only on the spec and
    the cases. Raises SpecError or DataError for a method, a budget or a case that cannot be used; OpaccError if a block
    failed, with case, method, budget and the repetition's seed: finished blocks are kept.
    """
    facts: dict[Source, CaseFacts] = {}
    truths: dict[Source, dict[str, Truth]] = {}
    slices = [] if spec.by is None else [name.strip() for name in spec.by.split(CROSSING)]
    store = open_store(spec.output)
    for source in _sources(spec, slices, store):
        case = read_case(source)
        truths[case.source] = _truths_of(case, spec)
        facts[case.source] = _facts_of(case, spec, truths[case.source])
    cells, impossible = _plan(spec, facts)
    trials = _all_trials(store, cells, spec.workers, progress)
    led = list(_led(spec, facts, impossible, cells, trials))
    trials |= _all_trials(store, led, spec.workers, progress) if led else {}
    results = StudyResults(
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"opacc_ray": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
        spec=spec,
        cases=list(facts.values()),
        methods=[method.name for method in spec.methods],
        cells=[
            CellMeasures(
                case=cell.source.name,
                method=cell.method.name,
                design=cell.method.design,
                budget=cell.budget,
                **measure_slices(trials[cell.key], truths[cell.source]),
            )
            for cell in [*cells, *led]
        ],
        not_possible=impossible,
    )
    _write(store, results, facts)
    return results


def _sources(spec: StudySpec, slices: Sequence[str], store: Store) -> list[Source]:
    made = prepared(spec.cases, spec.models, spec.drifts, spec.seed, store)
    cases = [own.case for own in made]
    return find_cases(cases, spec.columns, spec.error_scale, spec.shuffle, slices, spec.coverage, spec.subpools)


def _truths_of(case: Case, spec: StudySpec) -> dict[str, Truth]:
    """Return the true numbers of a case by slice; raises DataError or SpecError if it cannot be studied."""
    name, truth, target = case.source.name, truth_of(case.outcome), Target(spec.metric, spec.by)
    if not truth.variance:
        raise DataError(f"case {name}: every outcome is {truth.value:g}, so methods cannot differ; leave the case out")
    most = max(
        [*spec.budgets, *(method.budget for method in spec.methods if isinstance(method.budget, int))], default=0
    )
    if most >= truth.size:
        raise SpecError(
            f"budget={most}: case {name} holds {truth.size} examples; "
            "give a smaller budget, because nothing is left to estimate once all are labelled"
        )
    truths = truths_of(case, target)
    if not any(own.variance for own in truths.values()):
        raise DataError(f"case {name}: {target} is the same whatever is labelled; leave the case out")
    return truths


def _facts_of(case: Case, spec: StudySpec, truths: Mapping[str, Truth]) -> CaseFacts:
    """Describe a case; raises DataError if its features cannot be read."""
    source, size, target = case.source, len(case.outcome), Target(spec.metric, spec.by)
    variance = sum(own.variance for own in truths.values()) / len(truths)
    try:
        bound = least_variance(case.view, case.outcome, spec.budgets) if target.is_accuracy else {}
    except DataError as error:
        raise DataError(f"case {source.name} ({source.uri}): {error}") from None
    return CaseFacts(
        case=source.name,
        drawn_from=source.drawn_from,
        uri=source.uri,
        sha256=source.digest,
        size=size,
        accuracy=float(case.outcome.mean()),
        variance=variance,
        number=str(target),
        truth={name: own.value for name, own in truths.items()},
        outcome=case.outcome_rule,
        binary=is_binary(case.outcome),
        features=sorted(case.view.fields),
        shuffled=list(source.shuffle),
        without_labels=_guesses(case) if target.is_accuracy else {},
        bound={str(n): least / srs_deviation(size, variance, n) ** 2 for n, least in bound.items()},
    )


def _guesses(case: Case) -> dict[str, float]:
    """Return the accuracy guessed from the confidence, and from the case's labelled reference if it has one."""
    if "confidence" not in case.view.fields or not is_binary(case.outcome):
        return {}
    confidence = case.view.column("confidence")
    if case.source.reference is None:
        return label_free_accuracy(confidence)
    reference = read_case(replace(case.source, uri=case.source.reference, reference=None, digest=None))
    reference.view.need(["confidence"], "difference of confidences")
    return label_free_accuracy(confidence, reference.view.column("confidence"), reference.outcome)


def _plan(spec: StudySpec, cases: Mapping[Source, CaseFacts]) -> tuple[list[Cell], list[NotPossible]]:
    """Return the possible cells, and the impossible pairs of case and method with the reason."""
    cells, impossible, target = [], [], Target(spec.metric, spec.by)
    for source, facts in cases.items():
        for method in spec.methods:
            reason = _obstacle(method, facts.features, target)
            if reason:
                impossible.append(NotPossible(case=source.name, method=method.name, reason=reason))
                continue
            cells += [_cell(spec, source, method, budget) for budget in _budgets(spec, method)]
    if not cells:
        reasons = "; ".join(f"{item.method} {item.reason} of {item.case}" for item in impossible)
        raise DataError(f"no method is possible on any case: {reasons}")
    return cells, impossible


def _budgets(spec: StudySpec, method: MethodSpec) -> list[int | None]:
    """Return the budgets of a method that are known before the study; none if it follows another method."""
    if method.budget is None:
        return list(spec.budgets)
    if method.leader is not None:
        return []
    return [None if method.budget == ITSELF else int(method.budget)]


def _cell(spec: StudySpec, source: Source, method: MethodSpec, budget: int | None) -> Cell:
    method.batches(budget)
    repetitions = method.repetitions or spec.repetitions
    target = Target(spec.metric, spec.by)
    return Cell(source, method, budget, spec.seed, spec.level, repetitions, target, spec.divergence)


def _led(
    spec: StudySpec,
    cases: Mapping[Source, CaseFacts],
    impossible: list[NotPossible],
    cells: Sequence[Cell],
    trials: Mapping[str, Sequence[Trial]],
) -> Iterator[Cell]:
    """Yield the cells of methods that take as many labels as another one chose; note those that cannot run."""
    excluded = {(item.case, item.method) for item in impossible}
    chosen = {
        (cell.source.name, cell.method.name): max(1, round(float(np.mean([one.labels for one in trials[cell.key]]))))
        for cell in cells
        if cell.method.budget is not None
    }
    for source in cases:
        for method in (method for method in spec.methods if method.leader is not None):
            if (source.name, method.name) in excluded:
                continue
            number = chosen.get((source.name, str(method.leader)))
            if number is None:
                reason = f"follows {method.leader}, which is not possible"
                impossible.append(NotPossible(case=source.name, method=method.name, reason=reason))
            else:
                yield _cell(spec, source, method, number)


def _obstacle(method: MethodSpec, features: Sequence[str], target: Target) -> str | None:
    """Return why a method is not possible; None if it is."""
    if method.method in PEERS and PEERS[method.method].kind != kind_of(target.name, target.by):
        return f"is for {PEERS[method.method].kind}"
    needs = ["confidence"] * (method.assist or method.method in PEERS)
    if method.method not in PEERS:
        needs = [*find_method(method.method).needs(parse_parameters(method.method, method.parameters)), *needs]
    missing = [name for name in dict.fromkeys(needs) if name not in features]
    return f"needs {' and '.join(missing)}" if missing else None


def _all_trials(store: Store, cells: Sequence[Cell], workers: int | None, progress: Report) -> dict[str, list[Trial]]:
    """Return the trials of each cell, in the order of the repetitions; run those that are missing."""
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
    """Run the first block of every cell first, to fail early; then case by case, to read each once."""
    if not missing:
        return
    from opacc_ray.cluster import session

    with session.connected():
        from opacc_ray.cluster import tasks  # imports Ray, which reads its token mode then

        yield from tasks.map_tasks(run_block, sorted(missing, key=lambda block: block.start > 0), workers)


def _write(store: Store, results: StudyResults, sources: Iterable[Source]) -> None:
    content = results.to_dict()
    store.write("table.md", (report_paper(content) + write_table(content)).encode())
    for name, drawing in draw_study(content).items() if results.spec.budgets else ():
        store.write(f"figures/{name}.svg", drawing)
    paper = find_paper(results.spec.paper)
    for source in sources if paper and paper.curves else []:
        drawn = draw_curves(read_case(source))
        if drawn is not None:
            store.write(f"figures/{source.name}-failures.svg", drawn)
    store.write("results.json", results.to_bytes())
