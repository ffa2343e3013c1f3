"""Characterize the data sets of runs: pool, selection and reference. Nothing is written.

All sets of one answer are grouped by prediction, because a pool has no labels. A labelled test set can replace the
pool; then the test set, the reference and its clusters are grouped by label.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.characterization_documents import ClassCoverage, ModelCoverage, Moved, SetCoverage
from opacc_ray.datasets.class_coverage import Metrics, Regions, measure
from opacc_ray.datasets.classes import Clusters, Grouped, find_clusters
from opacc_ray.datasets.covariate_shift import LEAST, Mixtures, Shift, measure_shift
from opacc_ray.datasets.exchange import LEAST as LEAST_TESTED
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract import reference as training
from opacc_ray.extract.feature_files import Features, StoredParts
from opacc_ray.neurons import set_cover
from opacc_ray.parts.subset import subset
from opacc_ray.parts.view import View
from opacc_ray.runs.feature_store import open_view, predicted_classes
from opacc_ray.runs.run import Run

Name = Literal["pool", "selection", "test", "set", "reference"]

By = Literal["label", "prediction"]
"""What assigns examples to classes."""

FEATURES = ("hidden", "output", "confidence", "coverage")
"""Features that the measures use, in addition to predictions."""

UNUSED = "its labels are not used: the pool has none, so both are grouped by prediction (--test groups by label)"


class ReferenceSet(NamedTuple):
    """Examples to compare a pool with, or to measure instead of it."""

    uri: str
    view: View
    label: NDArray[np.int64] | None = None  # (N,), -1 without a label
    remarks: Sequence[str] = ()  # remarks on how it was read

    def by_label(self, num_classes: int) -> Grouped:
        """Group the labelled examples by label; raises DataError if there are no labels."""
        if self.label is None:
            raise DataError(f"{self.uri} has no labels; give a .npz, .parquet or .csv with the column label")
        known = np.flatnonzero(self.label >= 0)
        view = self.view if len(known) == self.view.size else subset(self.view, known)
        return Grouped(view, num_classes, self.label[known])

    def left_out(self) -> list[str]:
        """Return the remark on examples without a label."""
        num = 0 if self.label is None else int((self.label < 0).sum())
        return [f"{num} of {self.view.size} examples have no label and are left out"] if num else []


class _Set(NamedTuple):
    name: Name
    data: Grouped
    remarks: Sequence[str] = ()


def characterize_run(
    run: Run,
    reference: ReferenceSet | None,
    regions: Regions,
    mixtures: Mixtures | None = None,
    test: ReferenceSet | None = None,
    own_clusters: bool = False,
) -> ModelCoverage:
    """Measure EP, CP, BC and PBC of pool, selection and reference of a run, and the shift of the pool.

    Parameters
    ----------
    run : the run on the track with the selection
    reference : reference; None: the run's own training data, if its features were compared with it
    regions : limits for near the centroid and near a boundary
    mixtures : settings for the shift; None: no shift is measured
    test : labelled examples to measure by label, instead of pool and selection; the reference needs labels then
    own_clusters : whether centroids and distances are those of the pool or test, not of the reference

    Raises SpecError if the run is a regression; DataError if the features are incomplete, the reference has features
    of another width, or labels are missing.
    """
    if not run.spec.model.has_classes:
        raise SpecError(f"{run.uri} is a regression, and EP, CP, BC, PBC and the shift need classes")
    names = class_names(run)
    known = reference if test else reference or _own_reference(run)
    with ExitStack() as stack:
        if test:
            sets = _labelled_sets(test, known, len(names))
        else:
            view = stack.enter_context(open_view(run, ("prediction",), FEATURES))
            sets = _predicted_sets(view, _chosen(run), known, len(names))
        measured = _measured(sets, names, regions, mixtures, own_clusters=own_clusters)
    criterion = run.spec.extract.coverage.criterion if measured[0].requirements is not None else None
    place = known.uri if known else None
    return ModelCoverage(run=run.uri, name=run.spec.name, reference=place, criterion=criterion, sets=measured)


def characterize_set(
    data: ReferenceSet,
    reference: ReferenceSet | None,
    names: Sequence[str],
    name: str,
    regions: Regions,
    mixtures: Mixtures | None = None,
    by: By | None = None,
    own_clusters: bool = False,
) -> ModelCoverage:
    """Measure EP, CP, BC and PBC of a set without a run, and its shift from the reference.

    Parameters
    ----------
    data, reference : the set, and what it is compared with; both with features of the same model
    names : classes of the model, in its order
    name : name of the set in the answer
    regions, mixtures : as for :func:`characterize_run`
    by : what groups both sets; None: the label, if both have labels
    own_clusters : whether centroids and distances are those of the set, not of the reference

    Raises DataError if labels are asked for and missing, or features do not fit.
    """
    given: list[tuple[Name, ReferenceSet]] = [("set", data)]
    given += [("reference", reference)] if reference else []
    by = by or ("label" if all(one.label is not None for _, one in given) else "prediction")
    sets = [
        _Set(kind, one.by_label(len(names)), [*one.remarks, *one.left_out()])
        if by == "label"
        else _Set(kind, Grouped(one.view, len(names)), one.remarks)
        for kind, one in given
    ]
    measured = _measured(sets, names, regions, mixtures, own_clusters=own_clusters)
    return ModelCoverage(run=data.uri, name=name, reference=reference.uri if reference else None, sets=measured)


def _labelled_sets(test: ReferenceSet, known: ReferenceSet | None, num_classes: int) -> list[_Set]:
    given: list[tuple[Name, ReferenceSet | None]] = [("test", test), ("reference", known)]
    return [_Set(name, one.by_label(num_classes), [*one.remarks, *one.left_out()]) for name, one in given if one]


def _predicted_sets(view: View, chosen: NDArray[np.int64], known: ReferenceSet | None, num_classes: int) -> list[_Set]:
    sets = [_Set("pool", Grouped(view, num_classes))]
    if len(chosen):
        sets.append(_Set("selection", Grouped(subset(view, chosen), num_classes)))
    if known:
        remarks = [*known.remarks, UNUSED] if known.label is not None else known.remarks
        sets.append(_Set("reference", Grouped(known.view, num_classes), remarks))
    return sets


def _measured(
    sets: Sequence[_Set],
    names: Sequence[str],
    regions: Regions,
    mixtures: Mixtures | None,
    *,
    own_clusters: bool = False,
) -> list[SetCoverage]:
    """Measure the sets by the clusters of the reference, which is last.

    Without a reference, or with ``own_clusters``, they are those of the first set.
    """
    first, last = sets[0].data, sets[-1]
    base = last.data if last.name == "reference" and "hidden" in last.data.view.fields else None
    has_hidden = "hidden" in first.view.fields
    clusters = find_clusters(first if own_clusters or base is None else base) if has_hidden else None
    shifts = measure_shift(base, first, mixtures) if base and has_hidden and mixtures else None
    found = []
    for one in sets:
        metrics = measure(one.data, regions, clusters)
        own = shifts if one is sets[0] else None
        remarks = [*one.remarks, *_missing(metrics), *_small(one.data, names, metrics)]
        if base and clusters and one.data is not base:
            remarks += _without_cluster(names, metrics, clusters)
        remarks += [*_unmet(metrics), *_unmeasured(names, metrics, own), *_power(own)]
        found.append(_coverage(one, names, metrics, own, remarks))
    return found


def class_names(run: Run) -> list[str]:
    """Return the classes of a run's model, by name or number; raises DataError while features are incomplete."""
    predicted = predicted_classes(run)
    num = run.num_classes or 1 + max(predicted or {0: 0})
    return list(run.spec.model.classes or map(str, range(num)))


@contextmanager
def open_reference_run(uri: str, run: Run) -> Iterator[ReferenceSet]:
    """Open the pool of another run of the same model as a reference; raises DataError if its classes differ."""
    other = Run.open(uri)
    own, theirs = run.spec.model.classes, other.spec.model.classes
    if own and theirs and own != theirs:
        place = next((i for i, pair in enumerate(zip(own, theirs, strict=False)) if pair[0] != pair[1]), len(own))
        raise DataError(
            f"the classes of {uri} are not those of {run.uri}: they differ from class {place} on; give a run of "
            "the same model"
        )
    with open_view(other, ("prediction",), FEATURES) as view:
        yield ReferenceSet(uri, view)


def _own_reference(run: Run) -> ReferenceSet | None:
    """Return the features of the run's training data; None if the run has none."""
    known = run.header.reference
    if known is None or "traces" not in run.spec.compares_with():
        return None
    folder = training.folder_of(run.spec, known.digest, run.store)
    index = training.complete_index(folder)
    names = [name for name in (*FEATURES, "prediction") if name in index.features]
    return ReferenceSet(folder.uri, View(StoredParts(Features.of(folder, index.files), names)))


def _chosen(run: Run) -> NDArray[np.int64]:
    """Return the examples of all rounds of the track, each once, sorted."""
    found = [run.read_selection(number).index for number in run.rounds()]
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)


def _coverage(
    one: _Set, names: Sequence[str], found: Metrics, shifts: list[Shift] | None, remarks: list[str]
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
        name=one.name,
        examples=one.data.view.size,
        grouped_by="prediction" if one.data.label is None else "label",
        classes=classes,
        requirements=set_cover.num_met(one.data.view) if "coverage" in one.data.view.fields else None,
        remarks=remarks,
    )


def _number(values: NDArray[np.float64] | None, i: int) -> float | None:
    return None if values is None or np.isnan(values[i]) else float(values[i])


def _pairs(pbc: NDArray[np.float64] | None, i: int, names: Sequence[str]) -> dict[str, float] | None:
    if pbc is None or np.isnan(pbc[i]).any():
        return None
    return {names[j]: float(pbc[i, j]) for j in np.argsort(-pbc[i], kind="stable") if pbc[i, j] > 0}


def _shift(shift: Shift | None) -> dict[str, Any]:
    if shift is None:
        return {"shift": None, "shift_error": None, "shift_floor": None}
    moved = Moved(**shift.move._asdict()) if shift.move else None
    return {"shift": shift.value, "shift_error": shift.error, "shift_floor": shift.floor, "moved": moved}


def _missing(found: Metrics) -> list[str]:
    """Return remarks on missing features."""
    needs = {"CP": ("hidden", found.cp), "BC": ("confidence", found.bc), "PBC": ("output and confidence", found.pbc)}
    lacks = [(what, feature) for what, (feature, values) in needs.items() if values is None]
    return [f"{what} needs {feature} of every example, and they lack it" for what, feature in lacks]


def _small(data: Grouped, names: Sequence[str], found: Metrics) -> list[str]:
    """Return remarks on classes with too few examples."""
    never = _where(found.num == 0, names)
    once = _where(found.num == 1, names)
    verb = "predicted" if data.label is None else "among the labels"
    said = [f"{_list(never)} never {verb}: EP is 0, and nothing else can be told"] if never else []
    if once:
        said.append(f"{_list(once)} {verb} once: of one example the shares are 0 or 1, and say nothing of a class")
    return said


def _without_cluster(names: Sequence[str], found: Metrics, clusters: Clusters) -> list[str]:
    """Return remarks on classes without a cluster in the reference."""
    lost = _where((found.num > 0) & (clusters.num < 2), names)
    return [f"no CP where the reference has fewer than two examples of a class: {', '.join(lost)}"] if lost else []


def _unmet(found: Metrics) -> list[str]:
    """Return a remark on boundaries without an example near them."""
    if found.pbc is None or len(found.num) < 2:
        return []
    there = found.num > 0
    pairs = int(there.sum()) * (len(there) - 1)
    unmet = int((found.pbc[there] == 0).sum()) - int(there.sum())  # less a class and itself
    return [f"no example lies near the boundary in {unmet} of {pairs} pairs of a class and another"] if unmet else []


def _unmeasured(names: Sequence[str], found: Metrics, shifts: list[Shift] | None) -> list[str]:
    few = [names[i] for i, shift in enumerate(shifts or []) if shift.value is None and found.num[i]]
    least = f"fewer than {LEAST} examples here or {2 * LEAST} in the reference, too few for a mixture"
    untested = [names[i] for i, shift in enumerate(shifts or []) if shift.move is None and found.num[i]]
    tested = f"fewer than {LEAST_TESTED} examples here or in the reference, or where all are equal"
    return [
        *([f"no shift is measured where a class has {least}: {', '.join(few)}"] if few else []),
        *([f"a move is not tested where a class has {tested}: {', '.join(untested)}"] if untested else []),
    ]


def _power(shifts: list[Shift] | None) -> list[str]:
    """Return a remark on the smallest move that the test detects."""
    found = [shift.move.detects for shift in shifts or [] if shift.move]
    if not found:
        return []
    low, high = f"{min(found):.2f}", f"{max(found):.2f}"
    span = low if low == high else f"{low} to {high}"
    return [
        f"a move of a class by {span} standard deviations along one direction would be found with a probability of "
        "80 %; smaller ones may be missed"
    ]


def _where(chosen: NDArray[np.bool_], names: Sequence[str]) -> list[str]:
    return [names[i] for i in np.flatnonzero(chosen).tolist()]


def _list(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"class {names[0]!r} is"
    return f"classes {', '.join(map(repr, names[:-1]))} and {names[-1]!r} are"
