"""What is said of a file of labels that came back: what it holds, which rows are not used, who overruled whom."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from opacc_ray.errors import LabelError
from opacc_ray.labelling.joining import Joined, time_of, votes_of
from opacc_ray.labelling.messages import quoted
from opacc_ray.labelling.parsing import parse
from opacc_ray.labelling.rows import Label
from opacc_ray.labels.documents import Overruling, RenamedRows, Votes
from opacc_ray.labels.labelled_rounds import Track
from opacc_ray.labels.log import Returned
from opacc_ray.runs.documents import UnusedRows

CLOCKS_DIFFER = timedelta(minutes=10)
"""How far the clock of a labelling tool may be ahead of ours."""

LISTED = 100
"""Overruled answers, and other names, that a document lists; `opacc labels list` has all answers."""


class Seen:
    """What a file holds, counted while its rows pass."""

    def __init__(self, annotator: str | None, now: datetime) -> None:
        self.rows = self.undated = 0
        self.first_undated: str | None = None  # a text of `labelled_at` that names no time
        self._renamed: Counter[str | None] = Counter()  # None: names after the first ones
        self._annotator, self._latest = annotator, now + CLOCKS_DIFFER
        self._times: dict[str, datetime | None] = {}

    @property
    def renamed(self) -> list[RenamedRows]:
        """Rows whose own annotator the importer's word replaced."""
        return [RenamedRows(annotator=who, rows=num) for who, num in self._renamed.most_common()]

    def count(self, file: Returned, *, read_again: bool) -> Iterator[Label]:
        """Yield the rows of a new file, or none of one whose rows are there; raises LabelError for a time to come."""
        for row in parse(file.data, file.place):
            self.rows += 1
            if self._annotator and row.annotator not in (None, self._annotator):
                known = row.annotator in self._renamed or len(self._renamed) < LISTED
                self._renamed[row.annotator if known else None] += 1
            if row.labelled_at:
                self._check_time(row.labelled_at, row.place)
            if not read_again:
                yield row._replace(annotator=self._annotator or row.annotator, returned=file.order)

    def _check_time(self, text: str, place: str) -> None:
        """Count a text that names no time; raises LabelError for a time to come."""
        if text not in self._times:
            if len(self._times) > 10_000:
                self._times.clear()
            self._times[text] = time_of(text)
        time = self._times[text]
        if time is None:
            self.undated += 1
            self.first_undated = self.first_undated or text
        elif time > self._latest:
            raise LabelError(
                f"{place} was labelled at {quoted(text)}, which is yet to come: correct the time, or leave it empty"
            )


def not_used(joined: Joined, order: int, tracks: Sequence[Track]) -> list[UnusedRows]:
    """Rows for examples that were given up and not drawn again, by the round that was closed."""
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
    """Labels per annotator and file."""
    counts: Counter[tuple[str, str]] = Counter()
    for given in joined.answers.values():
        counts.update(
            {
                (row.annotator or "", names[row.returned] if row.returned else row.place.rpartition(" line ")[0])
                for row in given
                if row.label is not None
            }
        )
    return [Votes(annotator=who or None, file=file, labels=num) for (who, file), num in sorted(counts.items())]


def overruled(joined: Joined, order: int) -> list[Overruling]:
    """Labels that do not count, of examples that a file answers, each with the first one that counts instead."""
    found = []
    for id, given in joined.answers.items():
        if not any(row.returned == order for row in given):
            continue
        text = joined.label.get(id)
        voting = [row for row in votes_of(given) or given if row.label == text]
        by = min(voting, key=lambda row: row.place, default=None)
        found += [
            Overruling(
                id=id,
                label=row.label,
                annotator=row.annotator,
                place=row.place,
                by_label=text,
                by_annotator=by.annotator if by else None,
                by_place=by.place if by else None,
            )
            for row in given
            if row.label is not None and row.label != text
        ]
    return sorted(found, key=lambda item: (item.id, item.place, item.label))
