"""The labels of a run: taken back file by file, joined by id, turned into outcomes round by round."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from itertools import combinations, compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, LabelError
from opacc_ray.labels.annotator_agreement import opinions_of
from opacc_ray.labels.joining import Joined, join
from opacc_ray.labels.log import read_log
from opacc_ray.labels.outcomes import Score, canonical_number, class_of, name_by_number, value_of
from opacc_ray.labels.rows import Label
from opacc_ray.runs.chosen import Chosen
from opacc_ray.runs.documents import RoundCounts
from opacc_ray.runs.run import Run
from opacc_ray.selection import Selection
from opacc_ray.spec import ModelSpec

Outcomes = list[NDArray[np.float64]]
"""One array per round."""


class LabelledRound(NamedTuple):
    """A round, and the labels that came back for it."""

    selection: Selection  # as it was drawn, n examples
    labelled: NDArray[np.bool_]  # (n,) which draws count as labelled
    outcome: NDArray[np.float64]  # (labelled.sum(),)
    missing: tuple[str, ...]  # ids that still wait for a label
    unsure: tuple[str, ...]  # ids on which nobody could tell
    given_up: tuple[str, ...]  # ids without a label when the round was closed
    predicted: tuple[str, ...]  # of the labelled examples: what the model said
    truth: tuple[str, ...]  # and what it is, in the same words
    measure: str = "accuracy"  # what the mean outcome is called
    clipped: int = 0  # labels so far from the prediction that the score no longer tells how far
    known_before: int = 0  # labelled examples that had a label already when they were chosen
    disagreement: NDArray[np.float64] = np.empty(0)  # (labelled.sum(),) mean |y - y'| of opinions; NaN without two

    @property
    def number(self) -> int:
        return self.selection.round

    @property
    def known(self) -> Selection:
        """The part of the selection that is labelled."""
        return self.selection.restrict(self.labelled)

    @property
    def is_begun(self) -> bool:
        """Whether its answers count: those that were there when it was drawn wait for one of its own, or for all.

        In the first round they are all there is, and count for whoever asks for what is there.
        """
        own = int(self.labelled.sum()) - self.known_before + len(self.unsure)
        return bool(self.labelled.any() or self.unsure) and (own > 0 or bool(self.labelled.all()) or self.number == 1)

    @property
    def nonresponse(self) -> str | None:
        """Why the labels may not be a sample of the round's design, or None if they are.

        They are one if all are there; and if they are those of the first examples of a method that chooses one by one,
        unless some of their labels were known before, for another round's sake. A round that is not begun is not used,
        and so harms nothing.
        """
        if not self.is_begun:
            return None
        absent = len(self.labelled) - int(self.labelled.sum())
        first_are_labelled = bool(np.all(self.labelled[:-1] >= self.labelled[1:]))
        if not absent:
            return None
        if first_are_labelled and not self.unsure and not self.known_before and self.selection.design.is_sequential:
            return None
        said = f"{absent} of {len(self.labelled)} labels of round {self.number} are taken to be missing at random"
        if self.known_before:
            said += f", though {self.known_before} of those that are there were known before it was drawn"
        return said

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


def refuse_empty_strata(run: Run, last: LabelledRound) -> None:
    """Raise LabelError if no estimate could count the labels of a round, for then none of later rounds could either."""
    if not last.is_begun or not last.labelled.any():
        return
    try:
        _ = last.known.design.weights
    except LabelError as error:
        raise LabelError(
            f"what is labelled of round {last.number} of {run.title} cannot be counted: {error}, or open another track "
            "with `opacc select`"
        ) from None


class Track(NamedTuple):
    """The rounds of a track, as they were drawn."""

    run: Run  # along the track
    selections: list[Selection]


def read_rounds(run: Run, *, conflict: str | None = None, score: Score | None = None) -> list[LabelledRound]:
    """Every round of the run's track with its labels, from all files that came back for any track.

    A label belongs to an example, whichever round's file it came in, so files may come in any order, in pieces and
    twice.

    Parameters
    ----------
    conflict, score : what to do where labels differ, and what a regression's prediction is worth; None: as the run has
        it.

    Raises
    ------
    LabelError
        The track has no round, or labels do not fit together.
    DataError
        A round is damaged, or of another pool.
    """
    return read_all(run, conflict=conflict, score=score)[0]


def having_labels(rounds: Iterable[LabelledRound]) -> list[LabelledRound]:
    """The rounds that have labels which count."""
    return [item for item in rounds if item.is_begun and item.labelled.any()]


def no_label(run: Run, rounds: Sequence[LabelledRound] = ()) -> LabelError:
    """The error of a run that has no label yet, or none but of people who could not tell."""
    unsure = sum(len(item.unsure) for item in rounds)
    if unsure:
        return LabelError(
            f"no example of {run.title} has a label: on {unsure} nobody could tell; draw others with `opacc next`, or "
            "say what one is with `opacc labels correct`"
        )
    return LabelError(f"no example of {run.title} has a label yet; import some with `opacc labels import`")


def read_all(
    run: Run, *, conflict: str | None = None, score: Score | None = None
) -> tuple[list[LabelledRound], set[str]]:
    """What :func:`read_rounds` and :func:`read_labelled` give, read once."""
    now = run.snapshot()
    log, tracks = read_log(now), read_tracks(now)
    joined = join_labels(tracks, log.labels(), conflict or log.conflict)
    return labelled_rounds(*tracks[0], joined, score or log.score), set(joined.label)


def read_labelled(run: Run) -> set[str]:
    """The ids of all examples that have a label, whichever track chose them."""
    now = run.snapshot()
    return set(_join_all(now, _all_tracks(now)).label)


def is_labelled(run: Run, number: int) -> bool:
    """Whether a round has labels: files that came back for it, or answers to examples that no other round chose."""
    now = run.snapshot()
    if now.read_labels(number):
        return True
    tracks = _all_tracks(now)
    chosen = {(own.track, item.round): item.ids for own, selections in tracks for item in selections}
    own = set(chosen.pop((run.track, number), ())).difference(*chosen.values())
    answers = _join_all(now, tracks).answers
    return any(answers[id] for id in own)


def _join_all(run: Run, tracks: Sequence[Track]) -> Joined:
    """The labels of the examples of all tracks."""
    log = read_log(run)
    return join_labels(tracks, log.labels(), log.conflict)


def read_tracks(run: Run) -> list[Track]:
    """The run's own track, then all others; raises LabelError if its own has no round, DataError as `read_rounds`."""
    run.drawn_rounds()
    return [_read_track(run), *(_read_track(other) for other in run.tracks() if other.track != run.track)]


def _all_tracks(run: Run) -> list[Track]:
    """The first one first, then by name."""
    return [_read_track(other) for other in run.tracks()]


def _read_track(run: Run) -> Track:
    track = Track(run, [run.read_selection(number) for number in run.rounds()])
    _check_pool(*track)
    return track


def ids_of(tracks: Iterable[Track]) -> list[str]:
    """The ids of all chosen examples, each once, in the order in which they were chosen."""
    return list(dict.fromkeys(id for track in tracks for selection in track.selections for id in selection.ids))


def join_labels(
    tracks: Sequence[Track], labels: Iterable[Label], conflict: str, source: str = "the labels so far"
) -> Joined:
    """Bring labels together for the examples of all rounds of all tracks."""
    run = tracks[0].run
    return join(labels, ids_of(tracks), run=run.name, conflict=conflict, source=source, read=canonical_form(run))


def labelled_rounds(run: Run, selections: Sequence[Selection], joined: Joined, score: Score) -> list[LabelledRound]:
    """Every round with its part of the labels."""
    return [_labelled_round(run, selection, joined, score) for selection in selections]


def canonical_form(run: Run) -> Callable[[str, str], str]:
    """What gives the text of a label, for an id, in the words of the predictions; raises LabelError if it is none."""
    return reading_by(run.spec.model, run.num_classes)


def reading_by(
    model: ModelSpec, num_classes: int | None, *, numbers_are_classes: bool = False
) -> Callable[[str, str], str]:
    """The same for a model, of which ``num_classes`` may not be known yet."""

    def read(name: str, text: str) -> str:
        if model.task == "regression":
            return canonical_number(value_of(text, id=name))
        if numbers_are_classes:
            text = name_by_number(text, model.classes)
        return model.name_of(class_of(text, model.classes, num_classes, id=name))

    return read


def _check_pool(run: Run, selections: Sequence[Selection]) -> None:
    """Refuse selections from a pool of another size: the index was replaced, or a selection was edited."""
    index = run.read_index()
    for selection in selections:
        if index is not None and selection.pool_size != index.num_examples:
            raise DataError(
                f"round {selection.round} of {run.title} was drawn from {selection.pool_size} examples, and its "
                f"features hold {index.num_examples}; restore selection.json or index.json"
            )


def digest_of(rounds: Sequence[LabelledRound]) -> str:
    """Digest of all answers: an estimate that was made of others is not current.

    A round that is not begun adds nothing to an estimate, so it may be drawn without making one old.
    """
    content: list[list[Any]] = [
        [item.number, item.selection.ids, item.labelled.tolist(), item.truth, item.unsure, item.given_up]
        + [item.measure] * (item.measure != "accuracy")
        + [np.nan_to_num(item.disagreement, nan=-1).tolist()] * bool(np.isfinite(item.disagreement).any())
        for item in rounds
        if item.is_begun or item.given_up
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _labelled_round(run: Run, selection: Selection, joined: Joined, score: Score) -> LabelledRound:
    given_up = run.read_closed(selection.round)
    label = {name: text for name, text in joined.label.items() if name not in (given_up or ())}
    model = run.spec.model
    chosen = run.read_chosen(selection.round)
    predictions = _predictions(run, selection, chosen)
    labelled = _labelled_draws(selection.ids, label.keys())
    drawn = zip(selection.ids, predictions, labelled.tolist(), strict=True)
    pairs = [(name, prediction) for name, prediction, counts in drawn if counts]
    own = set(selection.ids)
    outcomes = [outcome_of(model, score, prediction, label[name]) for name, prediction in pairs]
    is_regression = model.task == "regression"
    read = canonical_form(run)
    disagreement = [
        _disagreement(opinions_of(joined.answers[name], read).values(), partial(outcome_of, model, score, prediction))
        for name, prediction in pairs
    ]
    return LabelledRound(
        selection,
        labelled,
        np.array(outcomes, dtype=np.float64),
        missing=tuple(name for name in joined.missing if name in own.difference(given_up or ())),
        unsure=tuple(name for name in joined.unsure if name in own),
        given_up=tuple(given_up or ()),
        predicted=tuple(model.name_of(prediction) for _, prediction in pairs),
        truth=tuple(label[name] for name, _ in pairs),
        measure=score.measure if is_regression else "accuracy",
        clipped=sum(is_regression and score.clips(float(label[name]), value) for name, value in pairs),
        known_before=len(chosen.labelled_ids & label.keys()),
        disagreement=np.array(disagreement, dtype=np.float64),
    )


def _labelled_draws(ids: Sequence[str], label: Set[str]) -> NDArray[np.bool_]:
    """Which draws count as labelled, (n,): those whose example has a label.

    Where these examples are the first ones, only the draws before the first gap: later ones that repeat an example
    would count without the draws around them, and examples that are drawn often would count too much.
    """
    has_label = np.array([name in label for name in ids])
    first = np.logical_and.accumulate(has_label)
    are_first = set(compress(ids, first)) == set(compress(ids, has_label))
    return first if are_first else has_label


def _disagreement(opinions: Iterable[str], outcome_of: Callable[[str], float]) -> float:
    """The mean difference of the outcomes of two opinions, over all pairs of annotators; NaN if there is none."""
    outcomes = [outcome_of(text) for text in opinions]
    differences = [abs(first - second) for first, second in combinations(outcomes, 2)]
    return float(np.mean(differences)) if differences else np.nan


def _predictions(run: Run, selection: Selection, chosen: Chosen) -> list[Any]:
    """What the model says of the examples of a selection, found by id, in their order."""
    said = dict(zip(chosen.ids, chosen.predictions, strict=True))
    if said.keys() != set(selection.ids):
        raise DataError(
            f"predictions.parquet and selection.json of round {selection.round} of {run.title} hold different "
            "examples; restore both from one backup"
        )
    return [said[name] for name in selection.ids]


def outcome_of(model: ModelSpec, score: Score, prediction: Any, truth: str) -> float:
    """The outcome, in [0, 1], of a label in canonical form."""
    if model.task == "regression":
        return score.of(float(truth), prediction)
    return float(truth == model.name_of(prediction))


def outcomes_of_another(
    known: Sequence[LabelledRound], model: ModelSpec, predictions: Sequence[Any], score: Score
) -> Outcomes:
    """What the same labels say of another model: its outcomes, round by round.

    Classes are compared by name. Values are scored alike, so that the scores of both models mean the same.

    Parameters
    ----------
    known : rounds with their labels
    model : the other one, of the same task
    predictions : what it says of the labelled examples, over all rounds
    score : of a regression
    """
    truth = [text for item in known for text in item.truth]
    scores = [outcome_of(model, score, said, text) for said, text in zip(predictions, truth, strict=True)]
    ends = np.cumsum([len(item.outcome) for item in known])[:-1]
    return np.split(np.array(scores, dtype=np.float64), ends)
