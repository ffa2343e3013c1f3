"""Read cases, pools whose outcomes are all known, from .npz, Parquet or CSV, and write the labels of a run as one.

Columns are those of :mod:`opacc_ray.extensions.case_files`. The first of these that exists defines the outcome:

    outcome, correct      1 or 0, true or false, pass or fail, or a score in [0, 1]
    squared_error         of a regression: outcome = 1 - squared_error / scale², not below 0
    label                 class: outcome = (prediction == label); both are numbers, or both are names
    target                value: squared_error = (prediction - target)²

Any column that says nothing of the truth can name slices. Workers get the URI of the file with a digest, and each reads
it once.
"""

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError, meant, shown
from opacc_ray.extensions.case_files import (
    ALIASES,
    OUTCOMES,
    READERS,
    UNKNOWN,
    Table,
    are_numbers,
    open_table,
    pool_of,
    real_numbers,
    suffix_of,
)
from opacc_ray.extensions.study.study_spec import CaseSpec, Subpools
from opacc_ray.labels import label_log, labelled_rounds
from opacc_ray.labels.joining import class_of
from opacc_ray.labels.label_actions import ExportedLabels
from opacc_ray.lake.store_uris import absolute, open_store, write_object
from opacc_ray.neurons.requirements import Criterion
from opacc_ray.parts.view import View, subset, view_of
from opacc_ray.pool import FEATURES, Pool
from opacc_ray.report.facts import changed_texts, number, percent
from opacc_ray.runs.run import Run, find_changed, read_rows

MOST_CLASSES = 9999  # largest number of a class

WORDS = {"pass": 1.0, "true": 1.0, "correct": 1.0, "fail": 0.0, "false": 0.0, "incorrect": 0.0}


@dataclass(frozen=True)
class Source:
    """The file of a case, and how its columns are read."""

    name: str
    uri: str
    columns: tuple[tuple[str, str], ...] = ()  # (field, column) as given by the user
    error_scale: float | None = None
    digest: str | None = None  # sha256 of the file
    slices: tuple[str, ...] = ()  # columns that name slices
    coverage: str | None = None  # criterion to compute from the layers, where no column has it
    subpool: tuple[int, int] | None = None  # size and number of a pool drawn from the case; None: all of it
    drawn_from: str | None = None  # name of that case


class Case(NamedTuple):
    """A pool in memory with its truth."""

    source: Source
    view: View
    outcome: NDArray[np.float64]  # (N,)
    outcome_rule: str  # rule that defined the outcomes
    truth: NDArray[np.int64] | None = None  # (N,) true classes, as `prediction` numbers them; None: they are not known
    classes: tuple[str, ...] = ()  # their names


def find_cases(
    specs: Sequence[CaseSpec],
    columns: Mapping[str, str] = MappingProxyType({}),
    error_scale: float | None = None,
    slices: Sequence[str] = (),
    coverage: str | None = None,
    subpools: Subpools | None = None,
) -> list[Source]:
    """Return the files of all cases; their own columns, scale and coverage replace those of the study.

    With ``subpools``, each case is replaced by them.

    Raises DataError if a folder has no cases, a field does not exist, or two cases have the same name.
    """
    found = []
    for spec in specs:
        mapping = dict(columns if spec.columns is None else spec.columns)
        for field in mapping:
            if field not in ALIASES:
                hint = meant(field, ALIASES, f"fields are {', '.join(ALIASES)}")
                raise DataError(f"columns: there is no field {field!r}; {hint}")
        scale = error_scale if spec.error_scale is None else spec.error_scale
        uris = files_of(spec.path)
        for uri in uris:
            name = spec.name_of(uri, is_alone=len(uris) == 1)
            mapped, criterion = tuple(sorted(mapping.items())), spec.coverage or coverage
            whole = Source(name, uri, mapped, scale, None, tuple(slices), criterion)
            found += (
                [whole]
                if subpools is None
                else [
                    replace(whole, name=f"{name}~{number}", subpool=(subpools.size, number), drawn_from=name)
                    for number in range(1, subpools.number + 1)
                ]
            )
    names = [source.name for source in found]
    twice = next((source for source in found if names.count(source.name) > 1), None)
    if twice:
        raise DataError(f"two cases are called {twice.name!r} (one is {twice.uri}); name them in a spec")
    return found


def read_case(source: Source) -> Case:
    """Read one file; raises DataError if it is not readable, has no outcome, or has changed since its digest."""
    try:
        table, digest = open_table(source.uri, dict(source.columns))
        if source.digest not in (None, digest):
            raise DataError("it has changed since the study began; start it again")
        outcome, rule = _outcome(table, source.error_scale)
        truth, classes = _classes(table)
        pool = pool_of(table, slices={name: table.slice_column(name) for name in source.slices})
        if source.coverage is not None and pool.coverage is None:
            pool = _covered(pool, source.coverage)
        if len(outcome) != pool.size:
            raise DataError(f"there are {len(outcome)} outcomes and {pool.size} examples")
    except DataError as error:
        raise DataError(f"case {source.name} ({source.uri}): {error}") from None
    known = truth is not None and np.array_equal(outcome, pool.prediction == truth)
    case = Case(replace(source, digest=digest), view_of(pool), outcome, rule, truth if known else None, classes)
    return case if source.subpool is None else _drawn(case, *source.subpool)


def _drawn(case: Case, size: int, number: int) -> Case:
    """Return a pool of ``size`` random examples of a case, the same ones for the same number."""
    if size >= case.view.size:
        place = f"case {case.source.name} ({case.source.uri})"
        raise DataError(f"{place}: subpools of {size} examples: it holds {case.view.size}; give a smaller size")
    rows = np.sort(np.random.default_rng((size, number)).choice(case.view.size, size, replace=False))
    truth = None if case.truth is None else case.truth[rows]
    return case._replace(view=subset(case.view, rows), outcome=case.outcome[rows], truth=truth)


def _covered(pool: Pool, criterion: str) -> Pool:
    """Return the pool with its coverage by a criterion over the layers that it has."""
    layers = [values for values in (pool.hidden, pool.output) if values is not None]
    if not layers:
        raise DataError(f"coverage {criterion} is computed from the hidden and the output layer, and it has neither")
    pool = pool.share()
    pool.coverage = Criterion.parse(criterion).bits(layers)
    return pool


def _classes(table: Table) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return true classes (N,) as the pool numbers its predictions, and the names of all; None if they are unknown."""
    prediction, label = table.get("prediction"), table.get("label")
    if prediction is None or label is None:
        return None, ()
    if are_numbers(prediction):
        found = label.astype(np.float64) if are_numbers(label) else np.array([-1.0])
        last = max(found.max(), prediction.max())
        if not np.array_equal(found, np.rint(found)) or min(found.min(), prediction.min()) < 0 or last > MOST_CLASSES:
            return None, ()
        return found.astype(np.int64), tuple(map(str, range(int(last) + 1)))
    predicted = np.unique(prediction.astype(str))
    names = [*predicted, *np.setdiff1d(label.astype(str), predicted)]
    number = {name: place for place, name in enumerate(names)}
    return np.array([number[name] for name in label.astype(str)]), tuple(map(str, names))


def _outcome(table: Table, error_scale: float | None) -> tuple[NDArray[np.float64], str]:
    """Return outcomes (N,) in [0, 1], and the rule that defined them."""
    given = {name: values for name in OUTCOMES if (values := table.get(name)) is not None}
    prediction = table.get("prediction")
    if "outcome" in given:
        return _checked(_numbers(given["outcome"])), "as given"
    if "squared_error" in given:
        return _score(real_numbers("squared_error", given["squared_error"]), error_scale)
    for name in ("label", "target"):
        if prediction is not None and name in given and given[name].shape != prediction.shape:
            found = f"{name} has the shape {given[name].shape} and prediction {prediction.shape}"
            raise DataError(f"{found}; give one of each per example: (N,)")
    if prediction is not None and "label" in given:
        return _agreement(prediction, given["label"]), "prediction == label"
    if prediction is not None and "target" in given:
        error = real_numbers("prediction", prediction) - real_numbers("target", given["target"])
        return _score(error**2, error_scale)
    raise DataError(
        f"it has no outcome; give outcome, correct or squared_error, or label or target next to prediction "
        f"(its columns are {', '.join(table.names)}), or name its column under columns"
    )


def _agreement(prediction: NDArray[Any], label: NDArray[Any]) -> NDArray[np.float64]:
    """Return 1 where prediction and label are the same class, (N,); raise DataError for missing or mixed ones."""
    _refuse_missing("prediction", prediction, frozenset())
    _refuse_missing("label", label, UNKNOWN.difference(map(str, prediction.ravel().tolist())))
    if are_numbers(prediction) == are_numbers(label):
        return np.asarray(prediction == label, dtype=np.float64)
    first = [shown(values.ravel().tolist()[0]) for values in (prediction, label)]
    raise DataError(
        f"prediction is {first[0]} and label {first[1]} in row 1, and a number never equals a name; "
        "give both as numbers, or both as names"
    )


def _refuse_missing(name: str, values: NDArray[Any], unknown: Collection[str]) -> None:
    """Raise DataError for the first cell that is empty, NaN, null or one of the ``unknown`` texts."""
    for row, value in enumerate(values.ravel().tolist(), start=1):
        if value is None or value != value or str(value).strip().lower() in ("", *unknown):
            raise DataError(
                f"{name} of row {row} is {shown(value)}, so whether the prediction is right is not known; "
                "fill it in, or remove such rows"
            )


def _numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    words = np.array([str(value).strip().lower() for value in values])
    wrong = np.flatnonzero(~np.isin(words, list(WORDS)))
    if len(wrong):
        raise DataError(f"outcome {str(values[wrong[0]])!r} of row {wrong[0] + 1} is not one of {', '.join(WORDS)}")
    return np.array([WORDS[word] for word in words])


def _score(error: NDArray[np.float64], error_scale: float | None) -> tuple[NDArray[np.float64], str]:
    largest = float(np.sqrt(error.max(initial=0)))
    scale = largest if error_scale is None else error_scale
    why = ", the largest error" if error_scale is None else ""
    score = np.maximum(1 - error / scale**2, 0) if scale else np.ones(len(error))
    return _checked(score), f"1 - (error / {scale:.6g})², not below 0{why}"


def _checked(outcome: NDArray[np.float64]) -> NDArray[np.float64]:
    if outcome.ndim != 1:
        raise DataError(f"the outcomes have shape {outcome.shape}; give one per example: (N,)")
    bad = np.flatnonzero(~((outcome >= 0) & (outcome <= 1)))
    if len(bad):
        raise DataError(f"outcome {outcome[bad[0]]} of row {bad[0] + 1} is not in [0, 1]")
    return outcome


def files_of(path: str) -> list[str]:
    """Return the URI of a file, or those of a folder's cases."""
    if suffix_of(path) in READERS:
        return [absolute(path)]
    store = open_store(path)
    entries, oddities, _ = store.survey()
    links = [key for key, kind in oddities if suffix_of(key) in READERS]
    if links:
        raise DataError(f"{store.uri_of(links[0])} is no file but a {dict(oddities)[links[0]]}; name the case itself")
    found = [store.uri_of(entry.key) for entry in entries if suffix_of(entry.key) in READERS]
    if not found:
        raise DataError(f"there is no case at {store.uri}; give a .npz, .csv or .parquet file, or a folder of them")
    return found


# -- a run as a case -------------------------------------------------------------------------------------------------


def export_case(run: Run, file: str) -> ExportedLabels:
    """Write the labelled examples as a case for `opacc study`, an .npz file.

    The notes say how much of the pool they are. Raises SpecError if ``file`` has another suffix; LabelError if no
    example has a label.
    """
    if not file.lower().endswith(".npz"):
        raise SpecError(f"{file}: a case is an .npz file; give a name such as case.npz")
    selections, log = labelled_rounds.read_selections(run), label_log.read_log(run)
    joined = labelled_rounds.join_labels(run, selections, log.labels(), log.rules.conflict)
    chosen = [(item.ids, item.index.tolist()) for item in selections]
    place = {id: index for ids, places in chosen for id, index in zip(ids, places, strict=True)}
    label = dict(sorted((place[id], text) for id, text in joined.label.items()))  # by place in the pool
    if not label:
        raise labelled_rounds.no_label(run)
    arrays: dict[str, Any] = _arrays(run, label, log.score)
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    measure = label_log.measure_of(run.spec, log.score)
    notes = [f"{measure} {number(float(arrays['outcome'].mean()), measure)} of these examples"]
    size, unsure = selections[0].pool_size, len(joined.unsure)
    if len(label) < size:
        notes.append(
            f"they are {percent(len(label) / size)} of the pool, and no random sample, so a study of them does not "
            f'show the pool; {size - len(label) - unsure:,} have no label, {unsure} got "can\'t tell"'
        )
    notes += changed_texts(find_changed(run))
    return ExportedLabels(
        run=run.uri, tool="case", to=write_object(file, sink.getvalue()), examples=len(label), notes=notes
    )


def _arrays(run: Run, label: Mapping[int, str], score: label_log.Score) -> dict[str, NDArray[Any]]:
    """Return the columns of the case by name, (examples, ...) each, for the labels by place in the pool."""
    model = run.spec.model
    arrays = read_rows(run, FEATURES, np.array(list(label), dtype=np.int64))
    said = zip(label.values(), arrays["prediction"].tolist(), strict=True)
    outcome = np.array([label_log.outcome_of(model, score, value, text) for text, value in said])
    if model.task in ("grade", "multilabel", "counts"):
        return arrays | {"outcome": outcome}
    if model.task == "regression":
        truth = {"target": np.array([float(text) for text in label.values()])}
    else:
        classes = [class_of(text, model.classes) for text in label.values()]
        truth = {"label": np.array(classes, dtype=np.int64)}
    return arrays | truth | {"outcome": outcome}
