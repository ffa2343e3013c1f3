"""Measure what data sets cover: pools and selections of runs, files of labelled examples, and pools in memory.

All sets of a model are grouped alike. A run is grouped by prediction, because its pool has no labels; a file by its
labels, if it and its reference have some. Centroids and distances are those of the reference, if there is one.

Remarks state what a measure of a data set does not tell, and why.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, SpecError, counted
from opacc_ray.extensions.case_files import stem_of
from opacc_ray.extensions.characterize.classes import Clusters, Grouped, Metrics, Regions, find_clusters, measure
from opacc_ray.extensions.characterize.covariate_shift import LEAST, LEAST_TESTED, Moved, Shift, measure_shift
from opacc_ray.extensions.characterize.data_sets import (
    FEATURES,
    By,
    ClassList,
    DataSet,
    class_list,
    classes_of_files,
    numbers_of,
    open_reference,
    read_file,
    training_data,
)
from opacc_ray.neurons.requirements import num_met
from opacc_ray.parts.view import subset, view_of
from opacc_ray.pool import Pool
from opacc_ray.runs.run import Run, open_view, versions
from opacc_ray.samplers.select import seed_of

DOCUMENT = "characterization.json"
"""Name of the file of a characterisation."""

Name = Literal["pool", "selection", "set", "reference"]

Share = Annotated[float, Field(ge=0, le=1)]


class ClassCoverage(Part):
    """Coverage of one class; null if unknown, and the remarks give the reason."""

    name: str  # name of the class
    examples: int = Field(ge=0)  # examples of the class
    ep: float = Field(ge=0)  # equivalence partitioning: its share of the examples, times the classes
    cp: Share | None  # centroid positioning: share of them near their centroid
    bc: Share | None  # boundary conditioning: share of them near a boundary
    # pairwise boundary conditioning: other class -> share of them near the boundary to it, if any
    pbc: dict[str, Share] | None
    shift: Share | None = None  # Jensen-Shannon divergence of their features from those of the reference
    shift_error: float | None = None  # its standard error, by Monte Carlo
    shift_floor: Share | None = None  # the same between random parts of both sets together, as large as they are
    moved: Moved | None = None  # whether their features have moved; null: they are too few, or it was not asked for


class SetCoverage(Part):
    """Coverage of one data set: classes, centres and boundaries."""

    name: Name  # the pool; the examples of all rounds; a set without a run; or what these are compared with
    examples: int = Field(ge=1)  # examples in it
    grouped_by: Literal["prediction", "label"]  # how examples are assigned to classes
    classes: list[ClassCoverage]  # every class of the model, in its order
    # requirements of neuron coverage that the set meets; null: it has no coverage
    requirements: int | None = Field(default=None, ge=0)
    remarks: list[str]  # remarks on measures that are unknown, with the reason


class ModelCoverage(Part):
    """Coverage of the data sets of one run, or of one set without a run."""

    run: str  # URI of the run or of the set; empty: a set in memory
    name: str  # name of its audit, or of the set
    # URI of the reference, whose centroids and distances measure all sets; null: those of the pool do
    reference: str | None
    criterion: str | None = None  # criterion of neuron coverage; null: there is none
    sets: list[SetCoverage]  # the pool and the selection, or a set without a run; and the reference, if there is one


class Characterization(Document):
    """Coverage of data sets by the features of one or several models."""

    remedy: ClassVar[str] = "make it again with `opacc characterize`"

    format: Literal["opacc-characterization/1"] = "opacc-characterization/1"
    radius: float = Field(gt=0, le=1)  # r: near the centroid is within this share of the largest distance
    boundary: list[Share] = Field(min_length=2, max_length=2)  # [θ₁, θ₂]: near a boundary is a confidence in between
    seed: int = Field(ge=0)  # of the mixtures that shifts are measured by
    models: list[ModelCoverage]  # one per run
    made_with: str  # version of opacc_ray


# -- the data sets of a characterisation ---------------------------------------------------------------------------

UNUSED = "its labels are not used: the pool has none, so both are grouped by prediction"


class _Set(NamedTuple):
    name: Name
    data: Grouped
    remarks: Sequence[str] = ()


def characterize(
    data: Pool,
    reference: Pool | None = None,
    *,
    labels: ArrayLike | None = None,
    reference_labels: ArrayLike | None = None,
    by: By | None = None,
    radius: float = 0.5,
    boundary: tuple[float, float] = (0.0, 0.7),
    shift: bool = True,
    seed: int | np.random.Generator | None = 0,
) -> ModelCoverage:
    """Measure how a data set covers the classes of a model, their centres and their boundaries.

    Parameters
    ----------
    data : examples with predictions; `hidden` (N, m) is needed for CP, `confidence` for BC, `output` too for PBC
    reference : examples of the same model to compare with, usually its training data
    labels, reference_labels : (N,) names or indexes of the true classes; None, NaN or "?" where there is none
    by : "label" or "prediction", which groups both sets; default: label, if both have labels
    radius, boundary : near a centroid is within this share of the largest distance, near a boundary a confidence in
        this range
    shift : also test whether features have moved from the reference; needs scikit-learn
    seed : of that test, as for :func:`opacc_ray.select`

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
    classes = _classes_of_pools(pools)
    first, *others = (
        _in_memory(pool, texts, classes, what)
        for pool, texts, what in zip(pools, (labels, reference_labels), ("the data", "the reference"), strict=False)
    )
    sets = _sets_of_files(first, others[0] if others else None, len(classes.names), by)
    shift_seed = seed_of(seed) if shift else None
    measured = _measured(sets, classes.names, Regions(radius, *boundary), shift_seed)
    return ModelCoverage(run="", name="data", reference="" if others else None, sets=measured)


def characterize_sets(
    sets: Sequence[Run | str],
    references: Sequence[str] = (),
    *,
    by: By | None = None,
    regions: Regions | None = None,
    shift: bool = True,
    seed: int = 0,
) -> Characterization:
    """Measure what runs and files cover, each next to the others.

    Parameters
    ----------
    sets : runs, each with the features of its own model; and labelled cases (.npz, .parquet, .csv), all of one model
    references : one for each set, in their order, or one for all if none is a run: the URI of a run, for a run, or of
        a labelled case; none: the training data of each run, if its features compare with it
    by : as for :func:`characterize`; a run is grouped by prediction
    regions : what counts as near the centroid or a boundary
    shift, seed : whether shifts are measured, and their seed

    Raises
    ------
    SpecError
        Another number of references than of sets, a run of a regression, or one by label.
    DataError
        A file or a reference cannot be read, or its features have another width.
    """
    _check_numbers(sets, references, by)
    compared = [*references] if len(references) == len(sets) else [*references, None][:1] * len(sets)
    regions, models, shift_seed = regions or Regions(), list[ModelCoverage](), seed if shift else None
    pairs = [(one, other) for one, other in zip(sets, compared, strict=True) if isinstance(one, str)]
    files = dict.fromkeys(uri for pair in pairs for uri in pair if uri is not None)
    classes = classes_of_files(files)
    opened = {uri: read_file(uri, classes) for uri in files}
    for one, other in zip(sets, compared, strict=True):
        if isinstance(one, Run):
            models.append(_of_run(one, other, regions, shift_seed))
            continue
        grouped = _sets_of_files(opened[one], None if other is None else opened[other], len(classes.names), by)
        measured = _measured(grouped, classes.names, regions, shift_seed)
        models.append(ModelCoverage(run=one, name=stem_of(one), reference=other, sets=measured))
    return Characterization(
        radius=regions.radius,
        boundary=[regions.low, regions.high],
        seed=seed,
        models=models,
        made_with=versions()["opacc_ray"],
    )


def _check_numbers(sets: Sequence[Run | str], references: Sequence[str], by: By | None) -> None:
    has_run = any(isinstance(one, Run) for one in sets)
    if has_run and by == "label":
        raise SpecError("--by label is for FILEs; a RUN is grouped by prediction")
    if len(references) not in ((0, len(sets)) if has_run else (0, 1, len(sets))):
        for_all = "" if has_run else ", or one for all"
        raise SpecError(
            f"{counted(len(references), 'reference')} for {counted(len(sets), 'RUN' if has_run else 'FILE')}; give "
            f"--reference once for each, in their order{for_all}: each reference has the features of one model"
        )


def _classes_of_pools(pools: Sequence[Pool]) -> ClassList:
    """Return the classes of the pools' predictions; raises DataError if they differ."""
    if any(pool.prediction is None for pool in pools):
        raise DataError("a pool has no predictions; give prediction for every example")
    names = {pool.classes for pool in pools}
    if len(names) > 1:
        raise DataError("data and reference have other classes; give both pools the same classes=")
    named = names.pop()
    last = max(int(pool.prediction.max()) for pool in pools if pool.prediction is not None)
    return ClassList(named or [str(number) for number in range(1 + last)], named is not None)


def _in_memory(pool: Pool, labels: ArrayLike | None, classes: ClassList, what: str) -> DataSet:
    label = None if labels is None else numbers_of(f"label of {what}", np.asarray(labels), classes)
    if label is not None and len(label) != pool.size:
        raise DataError(f"there are {len(label)} labels and {pool.size} examples of {what}; give one per example")
    return DataSet("", view_of(pool), label)


def _sets_of_files(data: DataSet, reference: DataSet | None, num_classes: int, by: By | None) -> list[_Set]:
    """Return a set without a run and its reference, by label if both have labels or ``by`` asks for it."""
    sets: list[tuple[Name, DataSet]] = [("set", data)]
    sets += [("reference", reference)] if reference else []
    by = by or ("label" if all(one.label is not None for _, one in sets) else "prediction")
    return [_Set(name, one.grouped(num_classes, by), one.remarks_by(by)) for name, one in sets]


def _of_run(run: Run, reference: str | None, regions: Regions, shift_seed: int | None) -> ModelCoverage:
    """Measure pool, selection and reference of a run, by prediction, and the shift of the pool."""
    if not run.spec.model.has_classes:
        raise SpecError(f"{run.uri} is a regression, and EP, CP, BC, PBC and the shift need classes")
    names = class_list(run).names
    with ExitStack() as stack:
        compared = training_data(run) if reference is None else open_reference(reference, run, stack)
        view = stack.enter_context(open_view(run, ("prediction",), FEATURES))
        sets = [_Set("pool", Grouped(view, len(names)))]
        rounds = [run.read_selection(number).index for number in run.rounds()]
        if rounds:
            chosen = np.unique(np.concatenate(rounds))  # each example once
            sets.append(_Set("selection", Grouped(subset(view, chosen), len(names))))
        if compared:
            remarks = [*compared.remarks, *([] if compared.label is None else [UNUSED])]
            sets.append(_Set("reference", compared.grouped(len(names), "prediction"), remarks))
        measured = _measured(sets, names, regions, shift_seed)
    criterion = run.spec.extract.coverage.criterion if measured[0].requirements is not None else None
    place = compared.uri if compared else None
    return ModelCoverage(run=run.uri, name=run.spec.name, reference=place, criterion=criterion, sets=measured)


# -- measures ----------------------------------------------------------------------------------------------------


def _measured(
    sets: Sequence[_Set], names: Sequence[str], regions: Regions, shift_seed: int | None
) -> list[SetCoverage]:
    """Measure the sets by the clusters of the reference, which is last, else of the first set.

    ``shift_seed`` is that of the shift of the first set from the reference; None: it is not measured.
    """
    first, last = sets[0].data, sets[-1]
    base = last.data if last.name == "reference" and "hidden" in last.data.view.fields else None
    has_hidden = "hidden" in first.view.fields
    clusters = find_clusters(base or first) if has_hidden else None
    shifts = measure_shift(base, first, shift_seed) if base and has_hidden and shift_seed is not None else []
    coverages = []
    for one in sets:
        metrics, moves = measure(one.data, regions, clusters), shifts if one is sets[0] else []
        lost = clusters if base and one.data is not base else None
        remarks = [*one.remarks, *measured_remarks(one.data, names, metrics, moves, lost)]
        coverages.append(_coverage(one, names, metrics, moves, remarks))
    return coverages


def _coverage(
    one: _Set, names: Sequence[str], metrics: Metrics, shifts: Sequence[Shift], remarks: list[str]
) -> SetCoverage:
    shifts = shifts or [Shift()] * len(names)
    classes = [
        ClassCoverage(
            name=name,
            examples=int(metrics.num[i]),
            ep=float(metrics.ep[i]),
            cp=_number(metrics.cp, i),
            bc=_number(metrics.bc, i),
            pbc=_pairs(metrics.pbc, i, names),
            shift=shift.value,
            shift_error=shift.error,
            shift_floor=shift.floor,
            moved=shift.move,
        )
        for i, (name, shift) in enumerate(zip(names, shifts, strict=True))
    ]
    return SetCoverage(
        name=one.name,
        examples=one.data.view.size,
        grouped_by="prediction" if one.data.label is None else "label",
        classes=classes,
        requirements=num_met(one.data.view) if "coverage" in one.data.view.fields else None,
        remarks=remarks,
    )


def _number(values: NDArray[np.float64] | None, i: int) -> float | None:
    return None if values is None or np.isnan(values[i]) else float(values[i])


def _pairs(pbc: NDArray[np.float64] | None, i: int, names: Sequence[str]) -> dict[str, float] | None:
    if pbc is None or np.isnan(pbc[i]).any():
        return None
    return {names[j]: float(pbc[i, j]) for j in np.argsort(-pbc[i], kind="stable") if pbc[i, j] > 0}


def measured_remarks(
    data: Grouped, names: Sequence[str], metrics: Metrics, shifts: Sequence[Shift], clusters: Clusters | None
) -> list[str]:
    """Return the remarks on a data set; ``clusters`` are those of a reference that it is compared with."""
    needs = {
        "CP": ("hidden", metrics.cp),
        "BC": ("confidence", metrics.bc),
        "PBC": ("output and confidence", metrics.pbc),
    }
    remarks = [
        f"{measure} needs {feature} of every example, and they lack it"
        for measure, (feature, values) in needs.items()
        if values is None
    ]
    some, verb = metrics.num > 0, "predicted" if data.label is None else "among the labels"
    untested = np.array([shift.move is None for shift in shifts], dtype=bool)
    unmeasured = np.array([shift.value is None for shift in shifts], dtype=bool)
    classes: list[tuple[str, NDArray[np.bool_]]] = [
        (f"never {verb}, so that EP is 0 and nothing else is known", ~some),
        (f"{verb} once, and the shares of one example are 0 or 1", metrics.num == 1),
    ]
    if clusters is not None:
        classes.append(("no CP where the reference has fewer than two examples of a class", some & (clusters.num < 2)))
    if shifts:
        few = f"no shift is measured with fewer than {LEAST} examples of a class here or {2 * LEAST} in the reference"
        fewer = f"a move is not tested with fewer than {LEAST_TESTED} examples of a class here or in the reference"
        classes += [(few, some & unmeasured), (f"{fewer}, or where all are equal", some & untested)]
    remarks += [f"{text}: {', '.join(np.array(names)[chosen])}" for text, chosen in classes if chosen.any()]
    if metrics.pbc is not None and len(names) > 1:
        pairs = int(some.sum()) * (len(names) - 1)
        unmet = int((metrics.pbc[some] == 0).sum()) - int(some.sum())  # less a class and itself
        if unmet:
            remarks.append(f"no example lies near the boundary in {unmet} of {pairs} pairs of a class and another")
    detected = [shift.move.detects for shift in shifts if shift.move]
    if detected:
        span = " to ".join(dict.fromkeys(f"{move:.2f}" for move in (min(detected), max(detected))))
        remarks.append(
            f"a move of a class by {span} standard deviations along one direction would be found with a probability of "
            "80 %; smaller ones may be missed"
        )
    return remarks
