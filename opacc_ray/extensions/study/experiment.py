"""Run a study from its spec to its results: plan the cells, run what is missing, measure, write.

    blocks/…/0000000-0000100.json   trials, one file per block: the checkpoint of the work
    results.json                    every cell with its measures, impossible pairs, versions, seed, command
    table.md                        the results as tables
    figures/errors.svg              error of each case against the number of labels
    figures/failures.svg            failures found, likewise

A block's key depends on everything that decides its content, including the code of the package. So an interrupted study
resumes, and one with more methods, budgets or repetitions runs only what is new. After a change of the code everything
is measured again, and old blocks are kept.

A study may make its cases, of images as the models of audits see them: OUTPUT/cases/NAME.npz, or NAME-SPEC.npz of each
of several models. A model runs in this process. Its cases hold hidden, output, prediction and confidence, and every
array of the images' file but the images.
"""

import json
import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from typing import Any

import numpy as np

from opacc_ray._version import __version__
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.case_files import stem_of
from opacc_ray.extensions.study import cases, drift, trials
from opacc_ray.extensions.study.measures import (
    CaseFacts,
    CellMeasures,
    NotPossible,
    StudyResults,
    find_paper,
    least_variance,
    measure_slices,
    report_paper,
    write_table,
)
from opacc_ray.extensions.study.peers import PEERS, kind_of
from opacc_ray.extensions.study.study_figures import draw_study
from opacc_ray.extensions.study.study_spec import CaseSpec, MethodSpec, StudySpec
from opacc_ray.extract.inference import run_here
from opacc_ray.lake.examples import Example
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.pool import CROSSING
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.selection import is_binary
from opacc_ray.spec import Spec, load_spec, read_yaml, validated

Report = Callable[[int, int], None]
"""Called with the blocks done so far and in all."""

PACKAGES = ("numpy", "scipy", "ray")


def study(arguments: Sequence[str], options: Mapping[str, Any], progress: Report) -> tuple[StudyResults, str]:
    """Run the study of a command line; return the results and the text to print."""
    spec = read_options(arguments, options)
    results = run_study(spec, progress, shlex.join(["opacc", *sys.argv[1:]]))
    store = open_store(spec.output)
    text = store.read("table.md").decode()
    paper = report_paper(results)
    if paper:  # all measures of all methods may be hundreds of lines
        text = f"{paper}measures   {store.uri_of('table.md')}"
    return results, f"{text}\nresults    {store.uri}"


def read_options(arguments: Sequence[str], options: Mapping[str, Any]) -> StudySpec:
    """Read a study from arguments, and from options that replace the keys of the spec.

    Arguments that end in .yaml are specs, at most one; the others are cases and replace those of the spec. An option
    that is None or empty was not given.
    """
    specs = [text for text in arguments if text.endswith((".yaml", ".yml"))]
    paths = [text for text in arguments if text not in specs]
    if len(specs) > 1:
        raise SpecError(f"{' and '.join(specs)} are two specs; give only one")
    source = specs[0] if specs else "opacc study"
    content = read_yaml(specs[0]) if specs else {}
    if isinstance(content, dict):
        replaced = {key: value for key, value in options.items() if value is not None and value != []}
        paper = find_paper(options.get("paper") or content.get("paper"))
        content = (paper.spec if paper else {}) | content | replaced | ({"cases": paths} if paths else {})
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
    store, target = open_store(spec.output), trials.Target(spec.metric, spec.by)
    slices = [] if spec.by is None else [name.strip() for name in spec.by.split(CROSSING)]
    made = list(prepared(spec.cases, spec.models, store))
    facts: dict[cases.Source, CaseFacts] = {}
    truths: dict[cases.Source, dict[str, trials.Truth]] = {}
    found = cases.find_cases(made, spec.columns, spec.error_scale, slices, spec.coverage, spec.subpools)
    for case in map(cases.read_case, found):
        truths[case.source] = _truths_of(case, spec, target)
        facts[case.source] = _facts_of(case, spec, target, truths[case.source])
    measured, impossible = list[CellMeasures](), list[NotPossible]()
    for follows in (False, True):  # a method that follows another one takes as many labels as that has chosen
        methods = [method for method in spec.methods if (method.leader is not None) == follows]
        chosen = {(cell.case, cell.method): max(1, round(cell.labels)) for cell in measured}
        cells = list(_plan(spec, target, methods, facts, chosen, impossible))
        done = _all_trials(store, cells, spec.workers, progress) if cells else {}
        measured += [
            CellMeasures(
                case=cell.source.name,
                method=cell.method.name,
                design=cell.method.design,
                budget=cell.budget,
                **measure_slices(done[cell.key], truths[cell.source]),
            )
            for cell in cells
        ]
    if not measured:
        reasons = "; ".join(f"{pair.method} {pair.reason} of {pair.case}" for pair in impossible)
        raise DataError(f"no method is possible on any case: {reasons}")
    results = StudyResults(
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"opacc_ray": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
        spec=spec,
        cases=list(facts.values()),
        methods=[method.name for method in spec.methods],
        cells=measured,
        not_possible=impossible,
    )
    _write(store, results)
    return results


def _truths_of(case: cases.Case, spec: StudySpec, target: trials.Target) -> dict[str, trials.Truth]:
    """Return the true numbers of a case by slice; raises DataError or SpecError if it cannot be studied."""
    name, size = case.source.name, case.view.size
    if not np.ptp(case.outcome):
        raise DataError(f"case {name}: every outcome is {case.outcome[0]:g}, so methods cannot differ; leave it out")
    most = max(
        [*spec.budgets, *(method.budget for method in spec.methods if isinstance(method.budget, int))], default=0
    )
    if most >= size:
        raise SpecError(
            f"budget={most}: case {name} holds {size} examples; "
            "give a smaller budget, because nothing is left to estimate once all are labelled"
        )
    truths = trials.truths_of(case, target)
    if not any(truth.variance for truth in truths.values()):
        raise DataError(f"case {name}: {target} is the same whatever is labelled; leave the case out")
    return truths


def _facts_of(
    case: cases.Case, spec: StudySpec, target: trials.Target, truths: Mapping[str, trials.Truth]
) -> CaseFacts:
    """Describe a case; raises DataError if its features cannot be read."""
    source = case.source
    variance = sum(truth.variance for truth in truths.values()) / len(truths)
    try:
        bound = least_variance(case.view, case.outcome, spec.budgets) if target.is_accuracy else {}
    except DataError as error:
        raise DataError(f"case {source.name} ({source.uri}): {error}") from None
    return CaseFacts(
        case=source.name,
        drawn_from=source.drawn_from,
        uri=source.uri,
        sha256=source.digest,
        size=case.view.size,
        accuracy=float(case.outcome.mean()),
        variance=variance,
        number=str(target),
        truth={name: truth.value for name, truth in truths.items()},
        outcome=case.outcome_rule,
        binary=is_binary(case.outcome),
        features=sorted(case.view.fields),
        bound={str(n): least / truths[trials.ALL].deviation(n) ** 2 for n, least in bound.items()},
    )


def _plan(
    spec: StudySpec,
    target: trials.Target,
    methods: Sequence[MethodSpec],
    facts: Mapping[cases.Source, CaseFacts],
    chosen: Mapping[tuple[str, str], int],
    impossible: list[NotPossible],
) -> Iterator[trials.Cell]:
    """Yield the possible cells of some methods, and note the impossible pairs of case and method with the reason.

    ``chosen`` has the number of labels that a leader chose, by names of case and method.
    """
    for source, case in facts.items():
        for method in methods:
            reason = _obstacle(method, case.features, target)
            budgets: list[int | None] = [*spec.budgets] if method.budget is None else [None]
            if isinstance(method.budget, int):
                budgets = [method.budget]
            elif method.leader is not None and not reason:
                budgets = [chosen.get((source.name, method.leader))]
                reason = None if budgets[0] else f"follows {method.leader}, which is not possible"
            if reason:
                impossible.append(NotPossible(case=source.name, method=method.name, reason=reason))
                continue
            for budget in budgets:
                method.batches(budget)
                repetitions = method.repetitions or spec.repetitions
                yield trials.Cell(source, method, budget, spec.seed, spec.level, repetitions, target, spec.divergence)


def _obstacle(method: MethodSpec, features: Sequence[str], target: trials.Target) -> str | None:
    """Return why a method is not possible; None if it is."""
    needs: Sequence[str] = ("confidence",)
    if method.method not in PEERS:
        needs = find_method(method.method).needs(parse_parameters(method.method, method.parameters))
    elif PEERS[method.method].kind != kind_of(target.name, target.by):
        return f"is for {PEERS[method.method].kind}"
    missing = [name for name in dict.fromkeys(needs) if name not in features]
    return f"needs {' and '.join(missing)}" if missing else None


def _all_trials(
    store: Store, cells: Sequence[trials.Cell], workers: int | None, progress: Report
) -> dict[str, list[trials.Trial]]:
    """Return the trials of each cell by its key, in the order of the repetitions; run those that are missing."""
    blocks = list(chain.from_iterable(cell.blocks() for cell in cells))
    kept = {entry.key for entry in store.list("blocks/")}
    missing = [block for block in blocks if block.key not in kept]
    progress(len(blocks) - len(missing), len(blocks))
    for done, (block, new) in enumerate(_run(missing, workers), len(blocks) - len(missing) + 1):
        store.write(block.key, json.dumps(new).encode())
        progress(done, len(blocks))
    trials_of: dict[str, list[trials.Trial]] = {cell.key: [] for cell in cells}
    for block, data in zip(blocks, store.read_many(block.key for block in blocks), strict=True):
        trials_of[block.cell.key] += [trials.Trial(*values) for values in json.loads(data)]
    return trials_of


def _run(missing: Sequence[trials.Block], workers: int | None) -> Iterator[tuple[trials.Block, list[trials.Trial]]]:
    """Run the first block of every cell first, to fail early; then case by case, to read each once."""
    if not missing:
        return
    from opacc_ray.cluster import session

    with session.connected():
        from opacc_ray.cluster import tasks  # imports Ray, which reads its token mode then

        yield from tasks.map_tasks(trials.run_block, sorted(missing, key=lambda block: block.start > 0), workers)


def _write(store: Store, results: StudyResults) -> None:
    store.write("table.md", (report_paper(results) + write_table(results)).encode())
    for name, drawing in draw_study(results).items() if results.spec.budgets else ():
        store.write(f"figures/{name}.svg", drawing)
    store.write("results.json", results.to_bytes())


def prepared(specs: Sequence[CaseSpec], models: Sequence[str], store: Store) -> Iterator[CaseSpec]:
    """Yield the cases of a study; those that models see are written below ``store``.

    Raises SpecError if two models have one name; DataError for a file that has no images.
    """
    audits = {stem_of(uri): load_spec(uri) for uri in models}
    if len(audits) < len(models):
        raise SpecError(f"two of the specs {', '.join(models)} have one name; rename one of the files")
    for case in specs:
        uris = cases.files_of(case.path) if audits else []
        for uri in uris:
            arrays, name = drift.read_arrays(uri), case.name_of(uri, is_alone=len(uris) == 1)
            for model, audit in audits.items():
                stem = f"{name}-{model}" if len(audits) > 1 else name
                place = store.uri_of(f"cases/{stem}.npz")
                drift.write_arrays(place, _seen(arrays, audit, uri, model))
                yield case.model_copy(update={"path": place, "name": stem})
        if not audits:
            yield case


def _seen(arrays: drift.Arrays, spec: Spec, uri: str, model: str) -> drift.Arrays:
    """Return the arrays of a file of images, with what a model computes for these instead of them."""
    if "x" not in arrays:
        raise DataError(f"{uri} has no array 'x' of images, only {', '.join(arrays)}; a model needs them")
    examples = [Example(str(row), f"{uri}#row={row}", array) for row, array in enumerate(arrays["x"])]
    columns = dict(run_here(spec, examples, model))
    classes, label = spec.model.classes, arrays.get("label")
    if classes and label is not None and label.dtype.kind not in "biuf":  # both by name
        columns["prediction"] = np.array(classes)[columns["prediction"]]
    return {key: values for key, values in arrays.items() if key != "x"} | columns
