"""Select examples of a pool in memory, and estimate its accuracy from labels or outcomes.

:func:`estimate`, and ``previous`` of :func:`select`, accept labels wherever they accept outcomes: a mapping of ids to
labels, or labels in the order of ``selection.ids``. A label is the name of a class, as in `opacc labels import`, or its
index if the classes have no names. :func:`outcomes` compares labels with predictions without estimating anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from opacc_ray.errors import LabelError, counted, shown
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.rounds import Outcome
from opacc_ray.estimators.statement import baseline
from opacc_ray.history import History
from opacc_ray.parts.view import Pools, View, listed, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers.base import Report, unreported
from opacc_ray.samplers.estimate import estimate as estimate_from_outcomes
from opacc_ray.samplers.select import select as select_by_outcomes
from opacc_ray.selection import Selection


def select(
    pool: Pools,
    method: str = "neyman",
    budget: int | None = None,
    seed: int = 0,
    *,
    previous: Sequence[tuple[Selection, Any]] = (),
    replicates: int | None = None,
    history: History | Sequence[History] | None = None,
    progress: Report = unreported,
    **parameters: Any,
) -> Selection:
    """Choose ``budget`` examples of the pool to label.

    Parameters
    ----------
    pool : the examples with the features that the method needs. For several models a list of pools, one per model, with
        the same examples in the same order (`neyman` only)
    method : name of a method, see `opacc methods`
    budget : number of labels
    seed : a whole number of at least 0; the same seed, pool and parameters give the same selection
    previous : (selection, labels or outcomes) of every earlier round. Their examples are not chosen again, except by
        `srs` with replacement. For several models, outcomes have the shape (models, n)
    replicates : split the pool at random into that many parts and choose from each. This gives an interval for methods
        whose design has none
    history : what is known before the first label, for methods that use it. Give the same history to all rounds and to
        the estimate
    progress : called as ``progress(done, total)``, in this thread, after each step of methods that choose step by step
        (ces, deepreduce): ``done`` examples are chosen of ``total``, the budget or None. An exception that it raises
        ends the selection
    parameters : parameters of the method, see `opacc methods METHOD`

    Returns
    -------
    Selection
        The examples in order of choice, with the design that the estimate needs. Its facts contain a ``notice`` if the
        labels of earlier rounds contradict the confidence.

    Raises
    ------
    SpecError
        Unknown method or parameter, a negative seed, a budget that does not fit the pool, or an argument of a wrong
        type.
    LabelError
        The labels do not fit the earlier rounds, or all examples are labelled.
    DataError
        The pool lacks a feature, a value is not finite, or ids or their order differ from an earlier round or another
        pool.
    """
    pools = listed(pool)
    rounds = previous
    if isinstance(previous, Sequence) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in previous):
        rounds = [(selection, _outcomes_of(selection, given, pools)) for selection, given in previous]
    return select_by_outcomes(
        pools,
        method,
        budget,
        seed,
        previous=rounds,
        replicates=replicates,
        history=history,
        progress=progress,
        **parameters,
    )


def estimate(
    selection: Selection | Sequence[Selection],
    outcome: Any,
    level: float = 0.95,
    *,
    prediction: ArrayLike | None = None,
    pool: Pool | View | None = None,
    history: History | None = None,
) -> Estimate:
    """Estimate the accuracy on the pool that ``selection`` was drawn from.

    Parameters
    ----------
    selection : what :func:`select` returned, or ``Selection.load`` of a saved one. For several rounds a list
    outcome : (n,) outcomes or labels in the order of ``selection.ids``, or a mapping of ids to labels. An outcome is 1
        for correct, 0 for a misprediction, or a score in [0, 1]. Labels need ``pool``. For several rounds a list, or
        one mapping for all
    level : confidence level of the interval, between 0 and 1
    prediction : (N,) expected outcomes in [0, 1] of the whole pool, such as the model's confidence, for a
        prediction-powered estimate
    pool : the pool. `neyman` uses its features and all labels to predict the outcomes of unlabelled examples, which
        makes the estimate more precise. Without it, each round is estimated separately, which is exactly unbiased
    history : as given to :func:`select`; only with ``pool``

    Returns
    -------
    Estimate
        Value and interval, with ``effective_size``. ``reason`` says why an interval is not design-based, or that labels
        contradict the confidence.

    Raises
    ------
    LabelError
        A label is missing or none of the classes, an outcome is not in [0, 1], or a round is missing.
    DataError
        A prediction is not in [0, 1], or the pool has other ids or another order than the selection.
    SpecError
        The method does not accept ``prediction``, or the pool has another size.
    """
    given = outcome
    if isinstance(selection, Selection):
        given = _outcomes_of(selection, outcome, [pool])
    elif isinstance(outcome, Mapping):
        _refuse_unknown(selection, outcome)
        labels = {str(name): label for name, label in outcome.items()}
        parts = [{name: labels[name] for name in part.ids if name in labels} for part in selection]
        given = [_outcomes_of(part, own, [pool]) for part, own in zip(selection, parts, strict=True)]
    elif isinstance(outcome, Sequence) and len(outcome) == len(selection):
        given = [_outcomes_of(part, own, [pool]) for part, own in zip(selection, outcome, strict=True)]
    found = estimate_from_outcomes(selection, given, level, prediction=prediction, pool=pool, history=history)
    return replace(found, effective_size=baseline(selection, given, found).effective_size)


def outcomes(selection: Selection, labels: Any, pool: Pool | View) -> Outcome:
    """Compare labels with the predictions of a pool: 1 if they agree, 0 if not.

    Parameters
    ----------
    selection : the labelled examples, n
    labels : a mapping of ids to labels, or (n,) labels in the order of ``selection.ids``
    pool : the pool, with predicted classes

    Returns
    -------
    (n,) float64

    Raises
    ------
    LabelError
        A label is missing or none of the classes, an id was not chosen, or the pool has no predicted classes.
    """
    from opacc_ray.labels.label_rows import UNSURE, class_of, few

    labels = _by_id(selection, labels)
    if isinstance(labels, Mapping):
        _refuse_unknown([selection], labels)
        by_id = {str(name): label for name, label in labels.items()}
        labels = [by_id.get(name) for name in selection.ids]
    texts = [None if label is None or bool(label != label) else str(label).strip() for label in labels]
    if len(texts) != len(selection):
        raise LabelError(
            f"{counted(len(texts), 'label')} for {counted(len(selection), 'chosen example')}: give one per "
            "example, in the order of selection.ids, or a mapping of ids to labels"
        )
    missing = [name for name, text in zip(selection.ids, texts, strict=True) if not text or text in UNSURE]
    if missing:
        raise LabelError(
            f"{counted(len(missing), 'chosen example')} without a label: {few(missing)}; label all of them, or give "
            "selection.restrict(labelled) and its labels, which assumes that labels are missing at random"
        )
    view = view_of(pool)
    if "prediction" not in view.fields:
        raise LabelError("the pool has no predictions to compare labels with: give Pool(prediction=…), or outcomes")
    predicted = view.column("prediction")[selection.index]
    if not np.array_equal(predicted, np.rint(predicted)):
        raise LabelError("the pool predicts values, not classes: give scores in [0, 1] instead of labels")
    names = getattr(pool, "classes", None)
    read = [class_of(str(text), names, id=name) for name, text in zip(selection.ids, texts, strict=True)]
    return (predicted == np.array(read)).astype(np.float64)


def _outcomes_of(selection: Selection, given: Any, pools: Sequence[Pool | View | None]) -> Any:
    """Outcomes as they are; labels compared with the predictions of one pool, or of each of several."""
    if not isinstance(selection, Selection) or not _are_labels(given):
        return given
    if any(pool is None for pool in pools):
        raise LabelError("labels are compared with predictions: give the pool, as in estimate(…, pool=pool)")
    found = [outcomes(selection, given, pool) for pool in pools if pool is not None]
    return found[0] if len(found) == 1 else np.stack(found)


def _are_labels(given: Any) -> bool:
    """Whether values are labels: a mapping, or texts."""
    if isinstance(given, Mapping):
        return True
    is_array = hasattr(given, "dtype") and getattr(given.dtype, "kind", "O") in "OUT"
    return (is_array or isinstance(given, list | tuple)) and any(isinstance(item, str) for item in given)


def _refuse_unknown(selections: Sequence[Selection], labels: Mapping[Any, Any]) -> None:
    chosen = {name for part in selections for name in part.ids}
    unknown = [str(name) for name in labels if str(name) not in chosen]
    if unknown:
        raise LabelError(
            f"{counted(len(unknown), 'label')} for examples that were not chosen, the first {shown(unknown[0])}; "
            "give labels of the ids in selection.ids only"
        )


def _by_id(selection: Selection, labels: Any) -> Any:
    """A column of a table whose index has the ids, as a mapping; anything else as it is."""
    index = getattr(labels, "index", None)
    names = [] if index is None or callable(index) else [str(name) for name in index]  # a list has a method `index`
    return dict(zip(names, labels, strict=True)) if names and set(names) == set(selection.ids) else labels
