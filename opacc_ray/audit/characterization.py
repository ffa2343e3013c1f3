"""Characterise the data sets of runs: the pool, what was chosen of it, and the reference. Nothing is written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.characterization_documents import ClassCoverage, ModelCoverage, SetCoverage
from opacc_ray.characterize.classes import Grouped
from opacc_ray.characterize.clusters import find_clusters
from opacc_ray.characterize.covariate_shift import LEAST, Mixtures, Shift, measure_shift
from opacc_ray.characterize.metrics import Metrics, Regions, measure
from opacc_ray.errors import SpecError
from opacc_ray.extract import reference as training
from opacc_ray.extract.features import Features, StoredParts
from opacc_ray.parts.subset import subset
from opacc_ray.parts.view import View
from opacc_ray.runs.feature_store import open_view, predicted_classes
from opacc_ray.runs.run import Run

Name = Literal["pool", "selection", "reference"]

FEATURES = ("hidden", "output", "confidence")
"""Features that the measures are of, beside predictions."""


class ReferenceSet(NamedTuple):
    """What a pool is compared with: examples that the same model has seen."""

    uri: str
    view: View
    label: NDArray[np.int64] | None = None  # (N,)


def characterize_run(
    run: Run, reference: ReferenceSet | None, regions: Regions, mixtures: Mixtures | None = None
) -> ModelCoverage:
    """EP, CP, BC and PBC of the pool of a run, of its selection and of the reference, and the shift of the pool.

    Parameters
    ----------
    run : along the track whose selection is meant, if it has one
    reference : None: the run's own training data, if its features have been compared with it
    regions : what counts as near the centroid and near a boundary
    mixtures : how shifts are measured; None: they are not

    Raises
    ------
    SpecError
        The run is of a regression.
    DataError
        The features are not complete, or the reference has features of another width.
    """
    if run.spec.model.task == "regression":
        raise SpecError(f"{run.uri} is of a regression, and EP, CP, BC, PBC and the shift are of classes")
    names = class_names(run)
    known = reference or _own_reference(run)
    with open_view(run, ("prediction",), FEATURES) as view:
        pool = Grouped(view, len(names))
        base = Grouped(known.view, len(names)) if known and "hidden" in known.view.fields else None
        has_hidden = "hidden" in view.fields
        clusters = find_clusters(base or pool) if has_hidden else None
        shifts = measure_shift(base, pool, mixtures) if base and has_hidden and mixtures else None
        sets = [_coverage("pool", pool, names, measure(pool, regions, clusters), shifts)]
        chosen = _chosen(run)
        if len(chosen):
            part = Grouped(subset(view, chosen), len(names))
            sets.append(_coverage("selection", part, names, measure(part, regions, clusters)))
        if known:
            whole = Grouped(known.view, len(names), known.label)
            sets.append(_coverage("reference", whole, names, measure(whole, regions, clusters)))
    return ModelCoverage(run=run.uri, name=run.spec.name, reference=known.uri if known else None, sets=sets)


def class_names(run: Run) -> list[str]:
    """The classes of a run's model, by name or number; raises DataError while the features are not complete."""
    predicted = predicted_classes(run)
    num = run.num_classes or 1 + max(predicted or {0: 0})
    return list(run.spec.model.classes or map(str, range(num)))


@contextmanager
def open_reference_run(uri: str) -> Iterator[ReferenceSet]:
    """The pool of a run, to compare others with."""
    with open_view(Run.open(uri), ("prediction",), FEATURES) as view:
        yield ReferenceSet(uri, view)


def _own_reference(run: Run) -> ReferenceSet | None:
    """The traces of the training data that the run's features were compared with; None if it has none."""
    known = run.header.reference
    if known is None or "traces" not in run.spec.compares_with():
        return None
    folder = training.folder_of(run.spec, known.digest, run.store)
    index = training.complete_index(folder)
    names = [name for name in (*FEATURES, "prediction") if name in index.features]
    return ReferenceSet(folder.uri, View(StoredParts(Features.of(folder, index), names)))


def _chosen(run: Run) -> NDArray[np.int64]:
    """The examples of all rounds of the track, each once, sorted."""
    found = [run.read_selection(number).index for number in run.rounds()]
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)


def _coverage(
    name: Name, data: Grouped, names: Sequence[str], found: Metrics, shifts: list[Shift | None] | None = None
) -> SetCoverage:
    classes = [
        ClassCoverage(
            name=own,
            examples=int(found.num[i]),
            ep=float(found.ep[i]),
            cp=_number(found.cp, i),
            bc=_number(found.bc, i),
            pbc=_pairs(found.pbc, i, names),
            **_shift(shifts[i] if shifts else None),
        )
        for i, own in enumerate(names)
    ]
    return SetCoverage(
        name=name,
        examples=data.view.size,
        grouped_by="prediction" if data.label is None else "label",
        classes=classes,
        remarks=[*_missing(found), *_small(data, names, found), *_unmeasured(names, found, shifts)],
    )


def _number(values: NDArray[np.float64] | None, i: int) -> float | None:
    return None if values is None or np.isnan(values[i]) else float(values[i])


def _pairs(pbc: NDArray[np.float64] | None, i: int, names: Sequence[str]) -> dict[str, float] | None:
    if pbc is None or np.isnan(pbc[i]).any():
        return None
    return {names[j]: float(pbc[i, j]) for j in np.argsort(-pbc[i], kind="stable") if pbc[i, j] > 0}


def _shift(shift: Shift | None) -> dict[str, float | None]:
    if shift is None:
        return {"shift": None, "shift_error": None, "shift_floor": None}
    return {"shift": shift.value, "shift_error": shift.error, "shift_floor": shift.floor}


def _missing(found: Metrics) -> list[str]:
    """Features that the set lacks."""
    lacks = [("CP", "hidden", found.cp), ("BC", "confidence", found.bc), ("PBC", "output and confidence", found.pbc)]
    return [
        f"{what} needs {feature} of every example, and they lack it"
        for what, feature, values in lacks
        if values is None
    ]


def _small(data: Grouped, names: Sequence[str], found: Metrics) -> list[str]:
    """Classes of which too little is there."""
    never = [names[i] for i in np.flatnonzero(found.num == 0).tolist()]
    once = [names[i] for i in np.flatnonzero(found.num == 1).tolist()]
    verb = "predicted" if data.label is None else "among the labels"
    said = [f"{_list(never)} never {verb}: EP is 0, and nothing else can be told"] if never else []
    if once:
        said.append(f"{_list(once)} {verb} once: of one example the shares are 0 or 1, and say nothing of a class")
    return said


def _unmeasured(names: Sequence[str], found: Metrics, shifts: list[Shift | None] | None) -> list[str]:
    few = [names[i] for i, shift in enumerate(shifts or []) if shift is None and found.num[i]]
    least = f"fewer than {LEAST} examples here or {2 * LEAST} in the reference, too few for a mixture"
    return [f"no shift is measured where a class has {least}: {', '.join(few)}"] if few else []


def _list(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"class {names[0]!r} is"
    return f"classes {', '.join(map(repr, names[:-1]))} and {names[-1]!r} are"
