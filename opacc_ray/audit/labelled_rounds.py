"""The labels of a run: taken back file by file, joined by id, turned into outcomes round by round."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.documents import ImportedLabels, RoundCounts, UnusedRows
from opacc_ray.audit.run import Run
from opacc_ray.errors import DataError, LabelError
from opacc_ray.labelling.joining import Joined, join
from opacc_ray.labelling.outcomes import class_of, outcome_of_classes, outcome_of_values
from opacc_ray.labelling.parsing import parse
from opacc_ray.labelling.rows import Label
from opacc_ray.selection import Selection
from opacc_ray.spec import ModelSpec

Outcomes = list[NDArray[np.float64]]
"""One array per round."""


class LabelledRound(NamedTuple):
    """A round, and the labels that came back for it."""

    selection: Selection  # as it was drawn, n examples
    labelled: NDArray[np.bool_]  # (n,)
    outcome: NDArray[np.float64]  # (labelled.sum(),)
    missing: tuple[str, ...]  # ids that still wait for a label
    unsure: tuple[str, ...]  # ids on which nobody could tell
    given_up: tuple[str, ...]  # ids without a label when the round was closed
    predicted: tuple[str, ...]  # of the labelled examples: what the model said
    truth: tuple[str, ...]  # and what it is, in the same words

    @property
    def number(self) -> int:
        return self.selection.round

    @property
    def known(self) -> Selection:
        """The part of the selection that is labelled."""
        return self.selection.restrict(self.labelled)

    @property
    def nonresponse(self) -> str | None:
        """Why the labels may not be a sample of the round's design, or None if they are.

        They are one if all are there; and if they are those of the first examples of a method that chooses one by one.
        A round without any label is not used, and so harms nothing.
        """
        if not self.labelled.any() and not self.unsure:
            return None
        absent = len(self.labelled) - int(self.labelled.sum())
        first_are_labelled = bool(np.all(self.labelled[:-1] >= self.labelled[1:]))
        if not absent or (first_are_labelled and not self.unsure and self.selection.design.is_sequential):
            return None
        return f"{absent} of {len(self.labelled)} labels of round {self.number} are taken to be missing at random"

    def counts(self) -> RoundCounts:
        """The round in numbers."""
        return RoundCounts(
            round=self.number,
            method=self.selection.method,
            budget=len(self.selection),
            labelled=int(self.labelled.sum()),
            missing=len(self.missing),
            unsure=len(self.unsure),
            given_up=len(self.given_up),
        )


def import_labels(run: Run, name: str, data: bytes, *, conflict: str = "error") -> ImportedLabels:
    """Take a file of labels back; it is kept only if all labels so far fit together.

    Returns
    -------
    ImportedLabels
        The file's rows, those of them that are not used because the round that asked for them was closed, and the
        newest round in numbers.

    Raises
    ------
    LabelError
        The file is of another run, names an unknown id, or contradicts labels that are there.
    DataError
        A manifest, or another file of a round, is lost or not what was drawn.
    """
    given = parse(data, name)
    for number in run.rounds():
        run.check_copies(number)
    rounds = read_rounds(run, given, conflict=conflict, source=name)  # raises before anything is kept
    run.write_labels(rounds[-1].number, name, data)
    counts = rounds[-1].counts().model_dump()
    return ImportedLabels(file=name, rows=len(given), not_used=_not_used(given, rounds), **counts)


def _not_used(given: Sequence[Label], rounds: Sequence[LabelledRound]) -> list[UnusedRows]:
    """Rows for examples that were given up and not drawn again, by the round that was closed."""
    closed: dict[str, int | None] = {}
    for item in rounds:
        closed |= dict.fromkeys(item.selection.ids) | dict.fromkeys(item.given_up, item.number)
    rows = Counter(closed[row.id] for row in given if row.status != "blank")
    return [UnusedRows(round=number, rows=rows[number]) for number in sorted(number for number in rows if number)]


def read_rounds(
    run: Run, extra: Sequence[Label] = (), *, conflict: str = "error", source: str = "the labels so far"
) -> list[LabelledRound]:
    """Every round with its labels, from all files that came back (and ``extra`` ones).

    A label belongs to an example, whichever round's file it came in, so files may come in any order, in pieces and
    twice.
    """
    numbers = run.rounds()
    if not numbers:
        raise LabelError(f"{run.uri} has no selection yet; run its spec, or `opacc select`")
    selections = [run.read_selection(number) for number in numbers]
    _check_pool(run, selections)
    files = [file for number in numbers for file in run.read_labels(number)]
    labels = [label for name, data in files for label in parse(data, name)]
    chosen = dict.fromkeys(name for selection in selections for name in selection.ids)
    joined = join(
        [*labels, *extra],
        list(chosen),
        run=run.name,
        conflict=conflict,
        source=source,
        check=lambda name, text: _truth(run.spec.model, name, text),
    )
    return [_labelled_round(run, selection, joined) for selection in selections]


def _check_pool(run: Run, selections: Sequence[Selection]) -> None:
    """Refuse selections from a pool of another size: the index was replaced, or a selection was edited."""
    index = run.read_index()
    for selection in selections:
        if index is not None and selection.pool_size != index.num_examples:
            raise DataError(
                f"round {selection.round} of {run.uri} was drawn from {selection.pool_size} examples, and its features "
                f"hold {index.num_examples}; restore selection.json or index.json"
            )


def digest_of(rounds: Sequence[LabelledRound]) -> str:
    """Digest of all labels: an estimate that was made of others is not current."""
    content = [
        [item.number, item.selection.ids, item.labelled.tolist(), item.truth, item.unsure, item.given_up]
        for item in rounds
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _labelled_round(run: Run, selection: Selection, joined: Joined) -> LabelledRound:
    given_up = run.read_closed(selection.round)
    label = {name: text for name, text in joined.label.items() if name not in (given_up or ())}
    model = run.spec.model
    predictions = _predictions(run, selection)
    pairs = [(name, prediction) for name, prediction in zip(selection.ids, predictions, strict=True) if name in label]
    own = set(selection.ids)
    return LabelledRound(
        selection,
        np.array([name in label for name in selection.ids]),
        np.array([_outcome(model, name, label[name], prediction) for name, prediction in pairs], dtype=np.float64),
        missing=tuple(name for name in joined.missing if name in own.difference(given_up or ())),
        unsure=tuple(name for name in joined.unsure if name in own),
        given_up=tuple(given_up or ()),
        predicted=tuple(model.name_of(prediction) for _, prediction in pairs),
        truth=tuple(_truth(model, name, label[name]) for name, _ in pairs),
    )


def _predictions(run: Run, selection: Selection) -> list[Any]:
    """What the model says of the examples of a selection, found by id, in their order."""
    chosen = run.read_chosen(selection.round)
    said = dict(zip(chosen.ids, chosen.predictions, strict=True))
    if said.keys() != set(selection.ids):
        raise DataError(
            f"predictions.parquet and selection.json of round {selection.round} of {run.uri} hold different examples; "
            "restore both from one backup"
        )
    return [said[name] for name in selection.ids]


def _outcome(model: ModelSpec, name: str, label: str, prediction: Any) -> float:
    if model.task == "regression":
        return outcome_of_values(label, prediction, model.error_scale, id=name)
    return outcome_of_classes(label, prediction, model.classes, id=name)


def _truth(model: ModelSpec, name: str, label: str) -> str:
    """The label in the words of the predictions."""
    if model.task == "regression":
        return label
    return model.name_of(class_of(label, model.classes, id=name))


def outcomes_of_another(
    known: Sequence[LabelledRound], model: ModelSpec, other: ModelSpec, predictions: Sequence[Any]
) -> Outcomes:
    """What the same labels say of another model: its outcomes, round by round.

    Classes are compared by name. Values are scored on the error scale of ``model``, so that the scores of both models
    mean the same.

    Parameters
    ----------
    known : rounds with their labels
    model, other : the one that the labels were drawn for, and the other
    predictions : what the other model says of the labelled examples, over all rounds
    """
    ids = [name for item in known for name in item.known.ids]
    truth = [text for item in known for text in item.truth]
    if model.task == "regression":
        rows = zip(truth, predictions, ids, strict=True)
        scores = [outcome_of_values(text, value, model.error_scale, id=name) for text, value, name in rows]
    else:
        scores = [float(text == other.name_of(c)) for text, c in zip(truth, predictions, strict=True)]
    ends = np.cumsum([len(item.outcome) for item in known])[:-1]
    return np.split(np.array(scores, dtype=np.float64), ends)
