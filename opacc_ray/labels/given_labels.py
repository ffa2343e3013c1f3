"""Labels as Python users give them: mappings of ids, lists, or columns of tables, compared with predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, counted, shown
from opacc_ray.estimators.rounds import Outcome
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import Pool
from opacc_ray.selection import Selection


def by_round(selection: Selection | Sequence[Selection], given: Any) -> Any:
    """Return what is given for each round as a list; anything that does not fit the rounds unchanged."""
    if isinstance(selection, Selection):
        return [given]
    if isinstance(given, Mapping):
        _refuse_unknown(selection, given)
        labels = {str(name): label for name, label in given.items()}
        return [{name: labels[name] for name in part.ids if name in labels} for part in selection]
    return list(given) if isinstance(given, Sequence) and len(given) == len(selection) else given


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
    return np.equal(*predicted_and_true(selection, labels, pool)).astype(np.float64)


def predicted_and_true(selection: Selection, labels: Any, pool: Pool | View) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the predicted and the true class of each chosen example, (n,); raises LabelError as :func:`outcomes`."""
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
        raise LabelError(
            "the pool has no predictions to compare labels with: give Pool(prediction=…), or a list of "
            "outcomes (1 right, 0 wrong) in the order of selection.ids"
        )
    predicted = view.column("prediction")[selection.index]
    if not np.array_equal(predicted, np.rint(predicted)):
        raise LabelError("the pool predicts values, not classes: give scores in [0, 1] instead of labels")
    names = getattr(pool, "classes", None)
    read = [class_of(str(text), names, id=name) for name, text in zip(selection.ids, texts, strict=True)]
    return predicted, np.array(read, dtype=np.int64)


def outcomes_of(selection: Selection, given: Any, pools: Sequence[Pool | View | None]) -> Any:
    """Outcomes as they are; labels compared with the predictions of one pool, or of each of several."""
    if not isinstance(selection, Selection) or not are_labels(given):
        return given
    if any(pool is None for pool in pools):
        raise LabelError("labels are compared with predictions: give the pool, as in estimate(…, pool=pool)")
    found = [outcomes(selection, given, pool) for pool in pools if pool is not None]
    return found[0] if len(found) == 1 else np.stack(found)


def are_labels(given: Any) -> bool:
    """Whether values are labels: a mapping, or texts."""
    texts = isinstance(given, list | tuple) or (hasattr(given, "dtype") and getattr(given.dtype, "kind", "O") in "OUT")
    return isinstance(given, Mapping) or (texts and any(isinstance(item, str) for item in given))


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
