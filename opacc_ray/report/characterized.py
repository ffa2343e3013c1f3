"""Characterise runs, files and pools in memory; write a document, a page and a summary."""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import ArrayLike

from opacc_ray.audit.characterization import (
    By,
    ReferenceSet,
    characterize_run,
    characterize_set,
    class_names,
    open_reference_run,
)
from opacc_ray.audit.characterization_documents import Characterization, ModelCoverage
from opacc_ray.datasets.class_coverage import Regions
from opacc_ray.datasets.covariate_shift import Mixtures
from opacc_ray.errors import DataError, SpecError, counted
from opacc_ray.lake.store import write_files
from opacc_ray.lake.store_uris import open_store
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool
from opacc_ray.report.coverage_page import page, summary
from opacc_ray.report.report_documents import WrittenCharacterization
from opacc_ray.runs.identity import versions
from opacc_ray.runs.run import Run
from opacc_ray.study.case_files import READERS
from opacc_ray.study.reference_examples import ClassList, class_list, numbers_of, read_labelled
from opacc_ray.study.study_spec import stem_of

OF_TEST = "characterized-test"
"""Folder next to the estimate for the characterisation of a test set."""

OF_SETS = "characterized"
"""Folder in the current one for the characterisation of sets without a run."""

DOCUMENT, PAGE, SUMMARY = "characterization.json", "characterization.html", "characterization.md"


def characterize(
    data: Pool,
    reference: Pool | None = None,
    *,
    labels: ArrayLike | None = None,
    reference_labels: ArrayLike | None = None,
    by: By | None = None,
    own_clusters: bool = False,
    radius: float = 0.5,
    boundary: tuple[float, float] = (0.0, 0.7),
    shift: bool = True,
    seed: int = 0,
) -> ModelCoverage:
    """Measure how a data set covers the classes of a model, their centres and their boundaries.

    Parameters
    ----------
    data : examples with predictions; `hidden` (N, m) is needed for CP, `confidence` for BC, `output` too for PBC
    reference : examples of the same model to compare with, usually its training data
    labels, reference_labels : (N,) names or indexes of the true classes; None, NaN or "?" where there is none
    by : "label" or "prediction", which groups both sets; default: label, if both have labels
    own_clusters : measure distances from the centroids of the data themselves instead of the reference's
    radius, boundary : near a centroid is within this share of the largest distance, near a boundary a confidence in
        this range
    shift : also test whether features have moved from the reference; needs scikit-learn
    seed : of that test

    Returns
    -------
    ModelCoverage
        ``sets[0]`` has the measures of the data by class, ``sets[1]`` those of the reference

    Raises
    ------
    DataError
        Predictions or labels that are missing or unknown, or features that do not fit.
    SpecError
        A radius or a boundary out of range.

    Source: S. Mani et al. 2019, https://arxiv.org/abs/1911.07309.
    """
    pools = [data] if reference is None else [data, reference]
    names, named = _classes_of(pools)
    sets = [
        _in_memory(pool, given, ClassList(names, named), what)
        for pool, given, what in zip(pools, (labels, reference_labels), ("the data", "the reference"), strict=False)
    ]
    other, regions = sets[1] if reference is not None else None, Regions(radius, *boundary)
    mixtures = Mixtures(seed=seed) if shift else None
    return characterize_set(sets[0], other, names, "data", regions, mixtures, by, own_clusters)


def _classes_of(pools: Sequence[Pool]) -> tuple[list[str], bool]:
    """Return the classes of the pools' predictions, and whether they have names; raises DataError if they differ."""
    if any(pool.prediction is None for pool in pools):
        raise DataError("a pool has no predictions; give prediction for every example")
    given = {pool.classes for pool in pools}
    if len(given) > 1:
        raise DataError("data and reference have other classes; give both pools the same classes=")
    names = given.pop()
    if names is not None:
        return list(names), True
    last = max(int(pool.prediction.max()) for pool in pools if pool.prediction is not None)
    return [str(number) for number in range(1 + last)], False


def _in_memory(pool: Pool, labels: ArrayLike | None, classes: ClassList, what: str) -> ReferenceSet:
    known = None if labels is None else numbers_of(f"label of {what}", np.asarray(labels), classes)
    if known is not None and len(known) != pool.size:
        raise DataError(f"there are {len(known)} labels and {pool.size} examples of {what}; give one per example")
    return ReferenceSet("", view_of(pool), known)


def characterize_sets(
    sets: Sequence[Run | str],
    references: Sequence[str] = (),
    *,
    tests: Sequence[str] = (),
    by: By | None = None,
    own_clusters: bool = False,
    regions: Regions | None = None,
    mixtures: Mixtures | None = None,
    seed: int = 0,
) -> Characterization:
    """Measure what runs and files cover, each next to the others.

    Parameters
    ----------
    sets : runs, each with the features of its own model; and labelled cases (.npz, .parquet, .csv), all of one model
    references : one for each set, in their order, or one for all if none is a run: the URI of a run, for a run, or of
        a labelled case; none: the training data of each run, if its features compare with it
    tests : labelled cases, one for each run, that are measured by label instead of the pools; references need labels
    by, own_clusters : as for :func:`characterize`; a run is grouped by prediction, and its test by label
    regions : what counts as near the centroid or a boundary
    mixtures : how shifts are measured; None: they are not

    Raises
    ------
    SpecError
        Another number of references or tests than of sets, a run of a regression, or one by label.
    DataError
        A file or a reference cannot be read, or its features have another width.
    """
    runs, files = [one for one in sets if isinstance(one, Run)], [one for one in sets if isinstance(one, str)]
    _check_numbers(runs, files, references, tests, by)
    compared = [*references] if len(references) == len(sets) else [*references, None][:1] * len(sets)
    regions = regions or Regions()
    of_files = [uri for one, uri in zip(sets, compared, strict=True) if isinstance(one, str) and uri is not None]
    classes = class_list([*files, *of_files])
    opened = {uri: ReferenceSet(uri, *read_labelled(uri, classes)) for uri in dict.fromkeys([*files, *of_files])}
    found = []
    for place, (one, other) in enumerate(zip(sets, compared, strict=True)):
        if isinstance(one, str):
            reference, name = None if other is None else opened[other], stem_of(one)
            given = opened[one], reference, classes.names, name, regions, mixtures
            found.append(characterize_set(*given, by, own_clusters))
            continue
        with ExitStack() as stack:
            uris = other, tests[place] if tests else None
            known, test = (None if uri is None else open_reference(uri, one, stack) for uri in uris)
            found.append(characterize_run(one, known, regions, mixtures, test, own_clusters))
    return _document(found, regions, mixtures, seed)


def _check_numbers(
    runs: Sequence[Run], files: Sequence[str], references: Sequence[str], tests: Sequence[str], by: By | None
) -> None:
    num = len(runs) + len(files)
    if tests and files:
        raise SpecError("--test replaces the pool of a RUN; give the labelled case as FILE, with --by label")
    if runs and by == "label":
        raise SpecError("--by label is for FILEs; a RUN is grouped by prediction, and its --test by label")
    allowed = (0, num) if runs else (0, 1, num)
    for option, numbers, given in (("reference", allowed, references), ("test", (0, num), tests)):
        if len(given) not in numbers:
            for_all = "" if runs else ", or one for all"
            raise SpecError(
                f"{counted(len(given), option)} for {counted(num, 'RUN' if runs else 'FILE')}; give --{option} once "
                f"for each, in their order{for_all}: each {option} has the features of one model"
            )


def _document(found: list[ModelCoverage], regions: Regions, mixtures: Mixtures | None, seed: int) -> Characterization:
    return Characterization(
        radius=regions.radius,
        boundary=[regions.low, regions.high],
        seed=seed if mixtures is None else mixtures.seed,
        models=found,
        made_with=versions()["opacc_ray"],
    )


def write_characterization(
    found: Characterization, run: Run | None = None, out: str | None = None
) -> WrittenCharacterization:
    """Write the document, the page and the summary to ``out``, or next to the estimate of ``run``.

    The characterisation of a test set goes to a folder of its own there, and that of sets without a run to
    characterized/ in the current folder.
    """
    files = {DOCUMENT: found.to_bytes(), PAGE: page(found).encode(), SUMMARY: summary(found).encode()}
    if run is None or out is not None:
        folder = open_store(out or OF_SETS)
    else:
        folder = run.results().store(OF_TEST) if found.models[0].sets[0].name == "test" else run.results()
    return WrittenCharacterization(characterization=found, files=write_files(folder, files))


def read_characterization(run: Run) -> Characterization | None:
    """Return the characterisation next to the estimate of a run; None if there is none."""
    store = run.results()
    if not store.exists(DOCUMENT):
        return None
    return Characterization.from_bytes(store.read(DOCUMENT), store.uri_of(DOCUMENT))


def open_reference(uri: str, run: Run, stack: ExitStack) -> ReferenceSet:
    """Open a labelled case (.npz, .parquet, .csv), or the pool of another run until the stack closes.

    The classes of a case are those of ``run``, by name.
    """
    if uri.rpartition(".")[2].lower() in READERS:
        named = run.spec.model.classes is not None
        return ReferenceSet(uri, *read_labelled(uri, ClassList(class_names(run), named)))
    return stack.enter_context(open_reference_run(uri, run))
