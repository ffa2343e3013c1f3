"""Summary of an imported file of labels: what it has, which rows are not used, and which answers are overruled."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from operator import eq, ne
from typing import Any

from opacc_ray.errors import LabelError
from opacc_ray.labels.formats.jsonl_file import PLACE, as_jsonl
from opacc_ray.labels.formats.label_formats import parse
from opacc_ray.labels.joining import Joined, is_local, rewritten, time_of, votes_of
from opacc_ray.labels.label_documents import (
    Answered,
    AnsweredRound,
    ClassNumber,
    Overruling,
    RenamedRows,
    TrackRound,
    Votes,
)
from opacc_ray.labels.label_log import Returned, Score
from opacc_ray.labels.label_rows import COUNTED, Label, few, find_class, have_numbers_for_names, quoted, whole_number
from opacc_ray.labels.labelled_rounds import Track, ids_in_pool, labelled_round
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import UnusedRows
from opacc_ray.spec import ModelSpec

CLOCKS_DIFFER = timedelta(minutes=10)  # how far the clock of a labelling tool may be ahead of ours
FARTHEST_EAST = timedelta(hours=14)  # how far a local time without its offset may be ahead of UTC
LISTED = 100  # most overruled answers, and other names, in a document; `opacc labels list` has all answers


class RowCounts:
    """Counts of what a file has, made while its rows are streamed; an annotator of the file replaces those in rows."""

    def __init__(self, file: Returned, now: datetime, model: ModelSpec) -> None:
        self.answered: dict[str, bool] = {}  # id -> whether with a label
        self._num: Counter[str] = Counter()  # rows; names of classes; times "undated", or "ahead" if they are UTC
        self._first: dict[str, str] = {}  # the first text of the times undated, and of those ahead
        self._annotators: dict[str, None] = {}
        self._renamed: Counter[str | None] = Counter()  # None: names after the first ones
        self._file, self._latest, self._model = file, now + CLOCKS_DIFFER, model
        self._numbers: Counter[int] = Counter()
        self._first_number: Label | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of :class:`ImportedLabels` that describe the file."""
        labels, names, indexes = sum(self.answered.values()), self._model.classes, sorted(self._numbers)[:LISTED]
        numbers = [ClassNumber(number=i, name=names[i] if names else None, labels=self._numbers[i]) for i in indexes]
        return {
            "file": self._file.place,
            "rows": self._num["rows"],
            "labels": labels,
            "cant_tell": len(self.answered) - labels,
            "annotators": list(self._annotators),
            "annotator": self._file.annotator,
            "renamed": [RenamedRows(annotator=who, rows=num) for who, num in self._renamed.most_common()],
            "class_numbers": numbers,
            "class_names": self._num["names"] if numbers else 0,
            **{kind: self._num[kind] for kind in ("undated", "ahead")},
            **{f"first_{kind}": text for kind, text in self._first.items()},
        }

    def count(self, *, read_again: bool) -> Iterator[Label]:
        """Count all rows, and yield those of a new file.

        Raises LabelError if a time is in the future; or, after all rows, if labels are numbers and classes have names.
        """
        file = self._file
        for row in file.rows():
            self._count(row)
            if row.labelled_at:
                self._check_time(row.labelled_at, row.place)
            if not read_again:
                yield file.label_of(row)
        if self._model.classes and file.classes is None:
            self._refuse_numbers(self._model.classes)

    def _count(self, row: Label) -> None:
        own = self._file.annotator
        self._num["rows"] += 1
        if own and row.annotator not in (None, own):
            known = row.annotator in self._renamed or len(self._renamed) < LISTED
            self._renamed[row.annotator if known else None] += 1
        if row.status != "blank":
            self.answered[row.id] = self.answered.get(row.id, False) or row.label is not None
            who = own or row.annotator
            if who and len(self._annotators) < LISTED:
                self._annotators[who] = None
        if row.label is not None and self._model.has_classes:
            self._count_class(row, row.label)

    def _count_class(self, row: Label, label: str) -> None:
        number, classes = whole_number(label), self._model.classes
        if number is None or (classes and (number >= len(classes) or find_class(label, classes) is not None)):
            self._num["names"] += 1
        else:
            self._numbers[number] += 1
            self._first_number = self._first_number or row

    def _refuse_numbers(self, classes: Sequence[str]) -> None:
        first = self._first_number
        if first is None or have_numbers_for_names(tuple(classes)):
            return
        num, names = self._numbers.total(), self._num["names"]
        indexes = few([f"{index} = {quoted(name)}" for index, name in enumerate(classes)])
        raise LabelError(
            f"{self._file.place}: {num} of {num + names} labels are numbers, such as {quoted(first.label or '')} "
            f"for {quoted(first.id)} ({first.place}), but the classes have names: write names, {COUNTED} ({indexes})"
        )

    def _check_time(self, text: str, place: str) -> None:
        """Count a text that is no time, or a time in an unknown zone; raises LabelError for a future time."""
        time = time_of(text)
        if time and time > self._latest + (FARTHEST_EAST if is_local(text) else timedelta()):
            raise LabelError(
                f"{place} was labelled at {quoted(text)}, which is in the future: correct the time, or leave it empty"
            )
        if time is None or time > self._latest:
            kind = "ahead" if time else "undated"
            self._num[kind] += 1
            self._first.setdefault(kind, text)


def answered_rounds(tracks: Sequence[Track], ids: Set[str]) -> list[AnsweredRound]:
    """Count the examples of each round among some ids, without rounds that have none."""
    return [
        AnsweredRound(track=run.track, round=selection.round, examples=num)
        for run, selections in tracks
        for selection in selections
        if (num := len(ids & set(selection.ids)))
    ]


def rounds_now(
    tracks: Sequence[Track], joined: Joined, score: Score, answers: Sequence[AnsweredRound]
) -> list[TrackRound]:
    """Return all rounds of the first track, and the answered rounds of other tracks, in numbers."""
    wanted = {(item.track, item.round) for item in answers}
    return [
        TrackRound(track=run.track, **labelled_round(run, item, joined, score).counts().model_dump())
        for run, selections in tracks
        for item in selections
        if run is tracks[0].run or (run.track, item.round) in wanted
    ]


def not_used(joined: Joined, order: int, tracks: Sequence[Track]) -> list[UnusedRows]:
    """Count the rows for examples that were given up and not drawn again, by the round that was closed."""
    used: set[str] = set()
    closed: dict[str, tuple[str, int]] = {}
    for run, selections in tracks:
        own: dict[str, int | None] = {}
        for selection in selections:
            own |= dict.fromkeys(selection.ids) | dict.fromkeys(run.read_closed(selection.round) or (), selection.round)
        used.update(id for id, number in own.items() if number is None)
        closed = {id: (run.track or "", number) for id, number in own.items() if number} | closed
    rows: Counter[tuple[str, int]] = Counter()
    for id, place in closed.items():
        if id not in used:
            rows[place] += sum(row.lines for row in joined.answers[id] if row.returned == order)
    found = sorted((place, num) for place, num in rows.items() if num)
    return [UnusedRows(track=track or None, round=number, rows=num) for (track, number), num in found]


def votes(joined: Joined, names: Mapping[int, str]) -> list[Votes]:
    """Count the labelled examples by annotator and file."""
    counts: Counter[tuple[str, str]] = Counter()
    for given in joined.answers.values():
        labelled = [row for row in given if row.label is not None]
        files = [names[row.returned] if row.returned else row.place.rpartition(" line ")[0] for row in labelled]
        counts.update({(row.annotator or "", file) for row, file in zip(labelled, files, strict=True)})
    return [Votes(annotator=who or None, file=file, labels=num) for (who, file), num in sorted(counts.items())]


def as_before(joined: Joined, order: int) -> int:
    """Count the examples of a file that an earlier file has with the same label, by the same annotator."""
    num = 0
    for given in joined.answers.values():
        said = [
            {(row.label, row.annotator) for row in given if row.label and is_in(row.returned, order)}
            for is_in in (eq, ne)
        ]
        num += not said[0].isdisjoint(said[1])
    return num


def overruled(joined: Joined, order: int) -> list[Overruling]:
    """Return the labels that do not count, of examples in a file, each with the first one that counts instead."""
    found = []
    for id, given in joined.answers.items():
        if not any(row.returned == order for row in given):
            continue
        text = joined.label.get(id)
        voting = [row for row in votes_of(given) or given if row.label == text]
        by = min(voting, key=lambda row: row.place, default=None)
        who, place = (by.annotator, by.place) if by else (None, None)
        found += [overruling(row, text, who, place) for row in given if row.label not in (None, text)]
    return sorted(found, key=lambda item: (item.id, item.place, item.label))


def overruling(
    item: Label | Answered, by_label: str | None, by_annotator: str | None, by_place: str | None = None
) -> Overruling:
    """Describe a label that does not count, and the one that counts instead."""
    own: dict[str, Any] = {name: getattr(item, name) for name in ("id", "label", "annotator", "place")}
    return Overruling(**own, by_label=by_label, by_annotator=by_annotator, by_place=by_place)


KEPT = ("id", "label", "status", "annotator", "labelled_at", "run", "round")
"""Fields of a label that stay."""


def of_selected(run: Run, name: str, data: bytes, chosen: Set[str]) -> tuple[str, bytes, dict[str, int]]:
    """Return the answers of a file to the ``chosen`` examples as another file, and counts of the rows left out.

    Raises LabelError if there are none, or if ids that the pool lacks are chosen ones without a row, written otherwise.
    """
    kept, others, there = list[dict[str, Any]](), list[str](), set[str]()
    for row in parse(data, name, run.spec.model.counts or ()):
        if row.id not in chosen:
            others.append(row.id)
            continue
        there.add(row.id)
        if row.status != "blank":
            fields = {key: getattr(row, key) for key in KEPT}
            kept.append({key: value for key, value in fields.items() if value is not None} | {PLACE: row.place})
    strange = sorted(set(others).difference(ids_in_pool(run, list(dict.fromkeys(others)))))
    remedy = rewritten(strange, sorted(chosen - there))
    if remedy is not None:
        what = f"{len(strange)} id(s) not in the pool: {few([quoted(id) for id in strange])}"
        raise LabelError(f"{name}: {what}: {remedy}; nothing of the file was taken")
    if not kept:
        raise LabelError(
            f"{name} has no label of a selected example, but {len(others):,} rows of others: take ids from the manifest"
        )
    lacking = set(strange)
    unknown = sum(id in lacking for id in others)
    return f"{name}.selected.jsonl", as_jsonl(kept), {"left_out": len(others) - unknown, "unknown": unknown}
