"""Labelled rounds: the labels of a run, joined by id and turned into outcomes round by round; and how far annotators
agree on the examples that two or more of them answered, beyond agreement by chance.

A round counts once it has an answer, and is the first round, complete, or answered since it was drawn.

Cohen's κ of two annotators, for classes, on the examples that both answered (J. Cohen, "A coefficient of agreement for
nominal scales", Educational and Psychological Measurement 20, 1960):

    κ = (p_o - p_e) / (1 - p_e),    p_o the share on which they agree,  p_e = Σ_c share_1(c) · share_2(c)

Krippendorff's α of all annotators, whatever examples each answered (K. Krippendorff, "Computing Krippendorff's
alpha-reliability", 2011), for classes with δ² = 1 where two differ, for numbers with δ² their squared difference:

    α = 1 - (n - 1) · Σ_u S(u) / (m_u - 1) / S(all),    S(values) = Σ over ordered pairs of δ²
      S = m² - Σ_c m_c²  for classes,   S = 2·(m·Σx² - (Σx)²)  for numbers

Both are 1 for full agreement and 0 for agreement by chance. They are undefined if all labels are equal.

Legend: u an example with m_u ≥ 2 answers, n = Σ m_u, m_c answers of class c.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import CARRIED
from opacc_ray.errors import DataError, LabelError
from opacc_ray.estimation.intervals import Estimate, joined_reasons
from opacc_ray.estimation.sample import Rounds
from opacc_ray.labels.formats import Label, emptied
from opacc_ray.labels.joining import Joined, join, opinions_of, reading_by
from opacc_ray.labels.label_log import Score, measure_of, outcome_of, read_log
from opacc_ray.runs.run import Chosen, Run
from opacc_ray.runs.run_documents import PairOfAnnotators, RoundCounts
from opacc_ray.selection import Selection
from opacc_ray.spec import ModelSpec


class LabelledRound(NamedTuple):
    """A round with its labels: n draws, m of them labelled."""

    selection: Selection  # as drawn, n draws
    labelled: NDArray[np.bool_]  # (n,) which draws count as labelled

    # by labelled draw
    outcome: NDArray[np.float64]  # (m,) in [0, 1]: 1 correct, 0 not; in a regression the score
    predicted: tuple[str, ...]  # m predictions, in canonical form
    truth: tuple[str, ...]  # m labels, in canonical form
    disagreement: NDArray[np.float64]  # (m,) mean |difference of outcomes| of pairs of annotators; NaN without a pair

    # other examples, by id
    missing: tuple[str, ...]  # not answered yet
    unsure: tuple[str, ...]  # answered "can't tell"
    given_up: tuple[str, ...]  # without a label when the round was closed

    measure: str = "accuracy"  # name of the mean outcome
    clipped: int = 0  # labels that are farther from the prediction than the score distinguishes
    known_otherwise: int = 0  # answered examples whose label came before the draw, or from another run
    opinions: tuple[tuple[str, ...], ...] = ()  # m labels of each named annotator, in canonical form
    gone: tuple[int, ...] = ()  # examples of the pool that the round was drawn with a label of, and that have none now
    nonresponse: str | None = None  # why the labels may be no sample by the design; None if they are, or do not count

    @property
    def number(self) -> int:
        """Number of the round, from 1."""
        return self.selection.round

    @property
    def known(self) -> Selection:
        """Labelled part of the selection."""
        return self.selection.restrict(self.labelled).forget(np.array(self.gone, dtype=np.int64))

    @property
    def is_answered(self) -> bool:
        """Whether the round has an answer since it was drawn."""
        return int(self.labelled.sum()) + len(self.unsure) > self.known_otherwise

    @property
    def is_counted(self) -> bool:
        """Whether the round has an answer, and is the first one, complete, or answered since it was drawn."""
        has_answer = bool(self.labelled.any() or self.unsure)
        return has_answer and (self.number == 1 or bool(self.labelled.all()) or self.is_answered)

    def counts(self) -> RoundCounts:
        """Return the round in numbers."""
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
    """Raise LabelError if a round cannot be estimated from: then the rounds after it could not either."""
    if not last.is_counted or not last.labelled.any():
        return
    try:
        _ = last.known.design.weights
    except LabelError as error:
        raise LabelError(
            f"the labels of round {last.number} of {run.uri} cannot be used yet: {error}, or draw anew with "
            f"`opacc run --like {run.uri}`"
        ) from None


def having_labels(rounds: Iterable[LabelledRound]) -> list[LabelledRound]:
    """Return the rounds that count and have a label."""
    return [item for item in rounds if item.is_counted and item.labelled.any()]


def read_known(run: Run) -> list[LabelledRound]:
    """Read the rounds that count and have a label; raises LabelError without one, and as :func:`read_rounds`."""
    rounds = read_rounds(run)
    known = having_labels(rounds)
    if not known:
        raise no_label(run, rounds)
    return known


def no_label(run: Run, rounds: Sequence[LabelledRound] = ()) -> LabelError:
    """Return the error of a run without a label, or with nothing but "can't tell"."""
    unsure = sum(len(item.unsure) for item in rounds)
    if not unsure:
        return LabelError(f"no example of {run.uri} has a label yet; import some with `opacc labels import`")
    answers = "The only answer is" if unsure == 1 else f"All {unsure} answers are"
    return LabelError(
        f'{answers} "can\'t tell", so there is nothing to estimate. Draw more with `opacc next`, or set a label with '
        "`opacc labels correct`."
    )


def none_imported(run: Run, number: int) -> LabelError:
    """Return the error of a round without an answer: it names the manifest to fill in."""
    manifests = sorted(run.manifests(number))  # CSV before JSON lines
    place = manifests[0] if manifests else "its manifest"
    return LabelError(
        f"no example of {run.uri} has a label yet: fill in a copy of {place}, and import it with `opacc labels import`"
    )


def read_rounds(
    run: Run, *, conflict: str | None = None, score: Score | None = None, with_lost: bool = False
) -> list[LabelledRound]:
    """Read every round with its labels.

    A label belongs to an example, whichever round its file was imported for. Files may come in any order and in pieces.
    The rule for labels that differ, and the score of a regression's predictions, are those of the run if None.
    ``with_lost`` reads the other labels where a file of labels is lost.

    Raises LabelError if there is no round, or labels do not fit together; DataError if a file of labels is lost,
    or a round is damaged, or drawn from another pool.
    """
    return read_all(run, conflict=conflict, score=score, with_lost=with_lost)[0]


def read_all(
    run: Run, *, conflict: str | None = None, score: Score | None = None, with_lost: bool = False
) -> tuple[list[LabelledRound], set[str]]:
    """Return the results of :func:`read_rounds` and :func:`read_labelled`, reading the labels once."""
    now = run.snapshot()
    log, selections = read_log(now), read_selections(now)
    if log.lost and not with_lost:
        raise DataError(next(iter(log.lost.values())))
    joined = join_labels(now, selections, log.labels(), conflict or log.rules.conflict)
    return label_rounds(now, selections, joined, score or log.score), set(joined.label)


def label_rounds(run: Run, selections: Iterable[Selection], joined: Joined, score: Score) -> list[LabelledRound]:
    """Return rounds in their order, each with its part of the labels."""
    labelled, rounds = set[int](), list[LabelledRound]()
    for selection in selections:
        drawn_after = selection.design.drawn_after
        gone = () if drawn_after is None else tuple(sorted(set(drawn_after.tolist()) - labelled))
        rounds.append(_with_nonresponse(_labelled_round(run, selection, joined, score)._replace(gone=gone), run))
        if rounds[-1].is_counted:
            labelled.update(selection.index[rounds[-1].labelled].tolist())
    return rounds


def _with_nonresponse(item: LabelledRound, run: Run) -> LabelledRound:
    """Return a round with the reason why its labels may be no sample by its design.

    They are one if all are there, and all that the round was drawn with; or if they are the first of a method that
    draws one by one, unless some are known otherwise. Labels carried over from an earlier run have its reasons.
    """
    carried = item.selection.facts.get(CARRIED, {}).get("reason")
    lost = absent = None
    if num := len(item.gone):
        labels, whose = ("1 label", "its example is") if num == 1 else (f"{num} labels", "their examples are")
        lost = (
            f"round {item.number} was drawn with {labels} since withdrawn, or corrected to can't tell; {whose} assumed "
            "to be like those that the round was drawn from"
        )
    are_first = item.selection.design.is_sequential and bool(np.all(item.labelled[:-1] >= item.labelled[1:]))
    num = len(item.labelled) - int(item.labelled.sum())
    if num and not (are_first and not item.unsure and not item.known_otherwise):
        absent = f"{num} of {len(item.labelled)} labels of round {item.number} are assumed to be missing at random"
        if empty := emptied(run.spec.model.label_names):
            absent += f", though an empty cell may be the class {empty}"
        if item.known_otherwise:
            absent += f", though {item.known_otherwise} of the others were labelled for another sample"
    return item._replace(nonresponse=joined_reasons([carried, lost, absent]) if item.is_counted else None)


def read_labelled(run: Run) -> set[str]:
    """Return the ids of all examples with a label."""
    now = run.snapshot()
    log = read_log(now)
    if not now.rounds():
        return set()
    return set(join_labels(now, read_selections(now), log.labels(), log.rules.conflict).label)


def read_selections(run: Run) -> list[Selection]:
    """Read the selection of every round; raises errors as :func:`read_rounds`.

    Rounds from a pool of another size are refused: the index or a selection was replaced.
    """
    selections = [run.read_selection(number) for number in run.drawn_rounds()]
    index = run.read_index()
    for selection in selections:
        if index is not None and selection.pool_size != index.num_examples:
            raise DataError(
                f"round {selection.round} of {run.uri} was drawn from {selection.pool_size} examples, but its "
                f"features have {index.num_examples}; restore selection.json or index.json"
            )
    return selections


def join_labels(
    run: Run, selections: Sequence[Selection], labels: Iterable[Label], conflict: str, source: str = "the labels so far"
) -> Joined:
    """Join labels to the examples of all rounds."""
    ids = dict.fromkeys(id for selection in selections for id in selection.ids)
    read, in_pool = canonical_form(run), partial(ids_in_pool, run)
    return join(labels, list(ids), run=run.name, conflict=conflict, source=source, read=read, in_pool=in_pool)


def ids_in_pool(run: Run, wanted: Sequence[str], unless: Collection[str] | None = None) -> Collection[str]:
    """Return which of some ids the pool has; ``unless`` its features are gone: then that, or all of them."""
    features = run.read_features() if wanted else None
    if features is None:
        return wanted if unless is None else unless
    return features.features.places(wanted)


def canonical_form(run: Run, *, numbers_are_classes: bool = False) -> Callable[[str, str], str]:
    """Return :func:`.joining.reading_by` for the classes of a run."""
    return reading_by(run.spec.model, run.num_classes, numbers_are_classes=numbers_are_classes)


def stated(estimate: Estimate, rounds: Sequence[LabelledRound]) -> dict[str, Any]:
    """Return the fields of :class:`StatedEstimate`."""
    return with_nonresponse(estimate, rounds).to_dict()


def with_nonresponse(estimate: Estimate, rounds: Sequence[LabelledRound]) -> Estimate:
    """Return the estimate with its assumptions about labels that are not there."""
    is_complete = not any(item.nonresponse for item in rounds)
    reason = reason_of(estimate.reason, rounds)
    return replace(estimate, design_based=estimate.design_based and is_complete, reason=reason)


def reason_of(own: str | None, rounds: Sequence[LabelledRound]) -> str | None:
    """Return the assumptions of an estimate: its own, and those about nonresponse."""
    return joined_reasons([own, *(item.nonresponse for item in rounds)])


def digest_of(rounds: Sequence[LabelledRound]) -> str:
    """Return a digest of all answers, by which an outdated estimate is recognised.

    A round that does not count adds nothing to an estimate, so drawing it does not outdate one.
    """
    content = [
        [item.number, item.selection.ids, item.labelled.tolist(), item.truth, item.unsure, item.given_up]
        + [item.measure] * (item.measure != "accuracy")
        + [np.nan_to_num(item.disagreement, nan=-1).tolist()] * bool(np.isfinite(item.disagreement).any())
        for item in rounds
        if item.is_counted or item.given_up
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _labelled_round(run: Run, selection: Selection, joined: Joined, score: Score) -> LabelledRound:
    """Return a round with its part of the labels."""
    given_up = run.read_closed(selection.round) or ()
    label = {name: text for name, text in joined.label.items() if name not in given_up}
    model, read, ids = run.spec.model, canonical_form(run), set(selection.ids)
    chosen = run.read_chosen(selection.round)
    labelled = _labelled_draws(selection.ids, label.keys())
    answered = {id: joined.answers[id] for id in ids.difference(given_up) if joined.answers[id]}
    taken = {id for id, rows in answered.items() if all(row.from_run for row in rows)}
    pairs = list(compress(zip(selection.ids, _predictions(run, selection, chosen), strict=True), labelled))
    is_regression = model.task == "regression"
    opinions = tuple(tuple(opinions_of(joined.answers[name], read).values()) for name, _ in pairs)
    values = (value for _, value in pairs)
    return LabelledRound(
        selection,
        labelled,
        np.array([outcome_of(model, score, value, label[name]) for name, value in pairs], dtype=np.float64),
        predicted=tuple(model.name_of(prediction) for _, prediction in pairs),
        truth=tuple(label[name] for name, _ in pairs),
        disagreement=mean_differences(opinions, values, lambda text, value: outcome_of(model, score, value, text)),
        opinions=opinions,
        missing=tuple(name for name in joined.missing if name in ids.difference(given_up)),
        unsure=tuple(name for name in joined.unsure if name in ids),
        given_up=tuple(given_up),
        measure=measure_of(run.spec, score),
        clipped=sum(is_regression and score.clips(float(label[name]), value) for name, value in pairs),
        known_otherwise=len(chosen.labelled_ids & label.keys() | taken),
    )


def mean_differences(
    opinions: Iterable[Sequence[str]], predictions: Iterable[Any], value: Callable[[str, Any], float]
) -> NDArray[np.float64]:
    """Return the mean |difference| of the ``value`` of two opinions on each example, (m,); NaN without a pair."""
    rows = zip(opinions, predictions, strict=True)
    pairs = ([abs(value(a, said) - value(b, said)) for a, b in combinations(own, 2)] for own, said in rows)
    return np.array([np.mean(own) if own else np.nan for own in pairs], dtype=np.float64)


def _labelled_draws(ids: Sequence[str], label: Set[str]) -> NDArray[np.bool_]:
    """Return which draws count as labelled, (n,): those whose example has a label.

    If these examples are the first ones, only the draws before the first gap count. Later draws that repeat an example
    would count without the draws around them, which would give too much weight to examples that are drawn often.
    """
    has_label = np.array([name in label for name in ids])
    first = np.logical_and.accumulate(has_label)
    are_first = set(compress(ids, first)) == set(compress(ids, has_label))
    return first if are_first else has_label


def _predictions(run: Run, selection: Selection, chosen: Chosen) -> list[Any]:
    """Return the model's predictions for a selection, found by id, in its order."""
    by_id = dict(zip(chosen.ids, chosen.predictions, strict=True))
    if by_id.keys() != set(selection.ids):
        raise DataError(
            f"predictions.parquet and selection.json of round {selection.round} of {run.uri} have different "
            "examples; restore both from one backup"
        )
    return [by_id[name] for name in selection.ids]


def outcomes_of_another(
    known: Sequence[LabelledRound], model: ModelSpec, predictions: Sequence[Any], score: Score
) -> list[NDArray[np.float64]]:
    """Return the outcomes of another model of the same task on the same labels, round by round.

    ``predictions`` are its predictions for the labelled examples over all rounds. Classes are compared by name. Values
    are scored alike, so that the scores of both models are comparable.
    """
    truth = [text for item in known for text in item.truth]
    scores = [outcome_of(model, score, prediction, text) for prediction, text in zip(predictions, truth, strict=True)]
    ends = np.cumsum([len(item.outcome) for item in known])[:-1]
    return np.split(np.array(scores, dtype=np.float64), ends)


def weights_of(known: Sequence[LabelledRound]) -> dict[str, float]:
    """Return the share of the pool that each labelled example stands for; empty if the labels allow no estimate."""
    weight_of: dict[str, float] = {}
    with suppress(LabelError):
        weights = Rounds([item.known for item in known]).weights.tolist()
        for id, weight in zip((id for item in known for id in item.known.ids), weights, strict=True):
            weight_of[id] = weight_of.get(id, 0.0) + weight
    return weight_of


# -- agreement of annotators -----------------------------------------------------------------------------------------


class Agreement(NamedTuple):
    """How far annotators agree, beyond agreement by chance."""

    examples: int  # that two or more named annotators answered
    alpha: float | None  # Krippendorff's; None if it is not defined
    pairs: list[PairOfAnnotators]


def measure_agreement(run: Run) -> Agreement:
    """Measure how far the annotators of a run agree, before corrections.

    Labels in conflict are measured, so none is refused.
    """
    answers: dict[str, list[Label]] = {}
    for row in read_log(run).labels():
        answers.setdefault(row.id, []).append(row)
    model, read = run.spec.model, canonical_form(run)
    by_annotator = {id: opinions_of(rows, read) for id, rows in answers.items()}
    opinions = {id: texts for id, texts in by_annotator.items() if len(texts) > 1}
    are_numbers = model.reads_numbers or model.grades == "1-5"
    return Agreement(len(opinions), alpha(opinions, are_numbers=are_numbers), pairs(opinions, are_numbers=are_numbers))


def pairs(opinions: Mapping[str, Mapping[str, str]], *, are_numbers: bool = False) -> list[PairOfAnnotators]:
    """Return the agreement of each two annotators with examples in common, sorted by their names.

    ``opinions`` has the labels of the annotators of each example, by id.
    """
    common: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for own in opinions.values():
        for first, second in combinations(sorted(own), 2):
            common.setdefault((first, second), []).append((own[first], own[second]))
    return [
        PairOfAnnotators(
            first=first,
            second=second,
            examples=len(labels),
            agree=sum(a == b for a, b in labels),
            kappa=None if are_numbers else kappa(labels),
        )
        for (first, second), labels in sorted(common.items())
    ]


def kappa(labels: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's κ of pairs of labels; None if it is undefined."""
    num = len(labels)
    observed = sum(first == second for first, second in labels) / num
    one, other = Counter(first for first, _ in labels), Counter(second for _, second in labels)
    by_chance = sum(one[c] * other[c] for c in one) / num**2
    return None if by_chance == 1 else (observed - by_chance) / (1 - by_chance)


def alpha(opinions: Mapping[str, Mapping[str, str]], *, are_numbers: bool = False) -> float | None:
    """Return Krippendorff's α, nominal or for numbers interval; None if it is undefined."""
    units = [list(own.values()) for own in opinions.values() if len(own) > 1]
    disagreement = _of_numbers if are_numbers else _of_classes
    total = [label for unit in units for label in unit]
    expected = disagreement(total)
    if not expected:
        return None
    observed = sum(disagreement(unit) / (len(unit) - 1) for unit in units)
    return 1 - (len(total) - 1) * observed / expected


def _of_classes(labels: Sequence[str]) -> float:
    return len(labels) ** 2 - sum(count**2 for count in Counter(labels).values())


def _of_numbers(labels: Sequence[str]) -> float:
    values = np.array(labels, dtype=np.float64)
    return 2 * len(values) * float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0
