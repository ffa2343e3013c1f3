"""Labels come back: bring all labels of a run together, by id alone: never by order, never by file name.

The result depends on which labels came back, not on the order of files or lines.

- Repeats that agree are one label.
- An annotator who answers an example again corrects it if `labelled_at` says which answer is later, in
  whatever file. Without it their answers are in conflict. Lines without an annotator may come from different
  people: none of them replaces another.
- A label counts beside somebody's "can't tell"; an example is unsure when nobody could tell.
- Labels in conflict are refused, or the most frequent one is taken: one vote for each line without an
  annotator; one for each annotator and label, however often a file was exported and imported again.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labelling.rows import Label


@dataclass(frozen=True)
class Joined:
    """The labels of a selection, as far as they came back; each selected id is in one of the first three.

    Attributes
    ----------
    label : id → label, in the order of the selection.
    unsure : ids on which nobody could tell, in the order of the selection.
    missing : ids without an answer, in the order of the selection.
    repeated : number of ids with more than one answer.
    overruled : number of answers that are not the result: corrected, outvoted, "can't tell" beside a label.
    blank : number of rows that nobody had filled in.
    num_annotators : number of distinct names among the answers.
    """

    label: dict[str, str]
    unsure: tuple[str, ...]
    missing: tuple[str, ...]
    repeated: int
    overruled: int
    blank: int
    num_annotators: int


def join(
    labels: Iterable[Label],
    selected: Sequence[str],
    *,
    run: str,
    pool_contains: Callable[[str], bool] | None = None,
    conflict: str = "error",
    source: str = "labels",
    check: Callable[[str, str], object] | None = None,
) -> Joined:
    """Find the label of each selected example, by id.

    Parameters
    ----------
    labels : all labels that came back so far, of all files, in any order.
    selected : ids of the selection; an id may be in it more than once.
    run : the run that is answered.
    pool_contains : tells whether an id is in the run's pool, to say what is wrong with an unknown one.
    conflict : ``error`` refuses labels that differ, ``majority`` takes the most frequent.
    source : what the labels are called in messages.
    check : given the id and the text of a label in conflict, raises if it is no label at all, which is said first.

    Raises
    ------
    LabelError : a label names another run, an id is unknown, labels are in conflict (``majority``: tied).
    SpecError : `conflict` is neither of the two.
    """
    if conflict not in ("error", "majority"):
        raise SpecError(f"conflict {conflict!r} is unknown: use error or majority")
    rows = list(labels)
    _refuse_other_runs(rows, run, source)
    _refuse_unknown_ids({row.id for row in rows} - set(selected), selected, pool_contains, source)
    answers: dict[str, list[Label]] = {id: [] for id in selected}
    for row in rows:
        if row.status != "blank":
            answers[row.id].append(row)
    winners = {id: _winners(given, conflict) for id, given in answers.items() if given}
    for id, text in [(id, text) for id, texts in winners.items() if len(texts) > 1 for text in texts]:
        if check:
            check(id, text)
    _refuse_disputes(winners, answers, conflict, source)
    chosen = {id: texts[0] if texts else None for id, texts in winners.items()}
    return Joined(
        label={id: text for id, text in chosen.items() if text is not None},
        unsure=tuple(id for id, text in chosen.items() if text is None),
        missing=tuple(id for id, given in answers.items() if not given),
        repeated=sum(len(given) > 1 for given in answers.values()),
        overruled=sum(row.label != chosen[row.id] for given in answers.values() for row in given),
        blank=sum(row.status == "blank" for row in rows),
        num_annotators=len({row.annotator for given in answers.values() for row in given} - {None}),
    )


def _refuse_other_runs(rows: Sequence[Label], run: str, source: str) -> None:
    others = sorted((row.place, row.run) for row in rows if row.run is not None and row.run != run)
    for place, other in others[:1]:
        what = f"{len(others)} row(s) answer another run, {other!r} ({place}), not {run!r}"
        raise LabelError(f"{source}: {what}: import them into the run that they answer")


def _refuse_unknown_ids(
    unknown: set[str], selected: Sequence[str], pool_contains: Callable[[str], bool] | None, source: str
) -> None:
    if not unknown:
        return
    strangers = {id for id in unknown if pool_contains and not pool_contains(id)}
    passed_over = ("in the pool but " if pool_contains else "") + "not selected for labelling"
    parts = [(strangers, "not in the pool of this run"), (unknown - strangers, passed_over)]
    said = "; ".join(f"{len(ids)} id(s) {what}: {few(sorted(map(repr, ids)))}" for ids, what in parts if ids)
    remedy = "import the file into the run that it answers"
    shortened = {id.lstrip("0") for id in selected if id.startswith("0")}
    if any(id in shortened or re.fullmatch(r"\d(\.\d+)?E\+\d+", id) for id in unknown):
        remedy = "a spreadsheet rewrote ids as numbers, so open the manifest with its id column as text"
    raise LabelError(f"{source}: {said}: {remedy}")


def _winners(answers: Sequence[Label], conflict: str) -> list[str]:
    """Return the labels that count: none if nobody could tell, more than one if there is a dispute."""
    by_annotator: dict[str | None, list[Label]] = {}
    for answer in answers:
        by_annotator.setdefault(answer.annotator, []).append(answer)
    votes: Counter[str] = Counter(row.label for row in by_annotator.pop(None, []) if row.label is not None)
    for given in by_annotator.values():
        votes.update({row.label for row in _latest(given) if row.label is not None})
    fewest = max(votes.values(), default=0) if conflict == "majority" else 1
    return sorted(text for text, count in votes.items() if count >= fewest)


def _latest(answers: Sequence[Label]) -> list[Label]:
    """Return the last answers of one annotator; all of them if one has no time to order them by."""
    times = [_time(answer.labelled_at or "") for answer in answers]
    last = None if None in times else max(time for time in times if time)
    return [answer for answer, time in zip(answers, times, strict=True) if last in (None, time)]


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _refuse_disputes(
    winners: Mapping[str, list[str]], answers: Mapping[str, list[Label]], conflict: str, source: str
) -> None:
    said = [_dispute(id, texts, answers[id]) for id, texts in winners.items() if len(texts) > 1]
    if not said:
        return
    what, remedy = "labels in conflict", "settle them, or take the most frequent with --conflict majority"
    if conflict == "majority":
        what, remedy = "a tie between labels", "have one more person label them"
    raise LabelError(f"{source}: {what} on {len(said)} example(s): {few(said, '; ')}: {remedy}")


def _dispute(id: str, texts: Sequence[str], answers: Sequence[Label]) -> str:
    places = {text: min(row.place for row in answers if row.label == text) for text in texts}
    return f"{id!r} is " + " and ".join(f"{text!r} ({place})" for text, place in places.items())


def few(texts: Sequence[str], separator: str = ", ", most: int = 5) -> str:
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return separator.join([*texts[:most], *more])
