"""What people do with labels: take a file back, look at who said what, correct, withdraw, and set a rule.

Every verb writes one action to the log (`label_log.py`) and none changes a file that is there.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from opacc_ray.audit.documents import UnusedRows
from opacc_ray.audit.label_documents import (
    Answered,
    AnswerList,
    ImportedLabels,
    LabelAction,
    Overruling,
    RenamedRows,
    Votes,
)
from opacc_ray.audit.label_log import LabelLog, Returned, now_after, read_log, write_action
from opacc_ray.audit.labelled_rounds import (
    Track,
    canonical_form,
    ids_of,
    join_labels,
    labelled_rounds,
    read_rounds,
    read_tracks,
)
from opacc_ray.audit.run import Run, name_of_labels
from opacc_ray.errors import LabelError
from opacc_ray.labelling.joining import Joined, time_of, votes_of, winning
from opacc_ray.labelling.messages import few, quoted
from opacc_ray.labelling.parsing import parse
from opacc_ray.labelling.rows import LONGEST, Label
from opacc_ray.spec import ConflictRule

CLOCKS_DIFFER = timedelta(minutes=10)
"""By how much the clock of a labelling tool may be ahead of ours."""

LISTED = 100
"""Overruled answers, and other names, that a document lists; `opacc labels list` has all answers."""


def import_labels(
    run: Run, name: str, data: bytes, *, conflict: ConflictRule | None = None, annotator: str | None = None
) -> ImportedLabels:
    """Take a file of labels back; it is kept only if all labels so far fit together.

    Parameters
    ----------
    conflict : the rule of the run from now on, where labels differ; None: the rule that it has.
    annotator : who gave the labels, whatever the file says; None: as the file says.

    Raises
    ------
    LabelError
        The file is of another run, names an unknown id or a time to come, or contradicts labels that are there.
    DataError
        A manifest, or another file of a round, is lost or not what was drawn.
    """
    name = name.encode(errors="backslashreplace").decode()  # a file's name need not be valid Unicode
    for number in run.rounds():
        run.check_copies(number)
    log, tracks = read_log(run), read_tracks(run)
    annotator, key = _checked_name(annotator), name_of_labels(name, data)
    again = log.find(key, annotator)
    file = again or Returned(len(log.actions) + 1, key, name, data, annotator, name)
    seen = _Seen(annotator, now_after(log) + CLOCKS_DIFFER)
    nameless = () if again else [part for part in log.returned if part.name == key and part.annotator is None]
    rows = _chain(_without(log, nameless).labels(), seen.count(file, read_again=bool(again)))
    joined = join_labels(tracks, rows, conflict or log.conflict, source=name)
    rounds = labelled_rounds(*tracks[0], joined, log.score)  # raises before anything is kept
    overruled = _overruled(joined, file.order)
    new_rule = conflict if conflict != log.conflict else None
    if not again or new_rule:
        write_action(run, _import_action(log, file, new_rule, overruled))
    if not log.is_kept(key):
        run.write_labels(rounds[-1].number, name, data)
    return ImportedLabels(
        file=name,
        rows=seen.rows,
        again=again is not None,
        annotator=annotator,
        renamed=[RenamedRows(annotator=who, rows=num) for who, num in seen.renamed.most_common()],
        conflict=conflict or log.conflict,
        not_used=_not_used(joined, file.order, tracks),
        votes=_votes(joined, log.names() | {file.order: name}),
        overruled=overruled[:LISTED],
        num_overruled=len(overruled),
        **rounds[-1].counts().model_dump(),
    )


def _import_action(
    log: LabelLog, file: Returned, conflict: ConflictRule | None, overruled: Sequence[Overruling]
) -> LabelAction:
    return LabelAction(
        action="import",
        at=_text(now_after(log)),
        file=file.name,
        source=(file.source or file.place)[-200:],
        annotator=file.annotator,
        conflict=conflict,
        overruled=list(overruled[:LISTED]),
        num_overruled=len(overruled),
    )


class _Seen:
    """What a file holds, counted while its rows pass."""

    def __init__(self, annotator: str | None, latest: datetime) -> None:
        self.rows = 0
        self.renamed: Counter[str | None] = Counter()  # None: names after the first ones
        self._annotator, self._latest = annotator, latest
        self._times: dict[str, bool] = {}

    def count(self, file: Returned, *, read_again: bool) -> Iterator[Label]:
        """Yield the rows of a new file, or none of one whose rows are there; raises LabelError for a time to come."""
        for row in parse(file.data, file.place):
            self.rows += 1
            if self._annotator and row.annotator not in (None, self._annotator):
                known = row.annotator in self.renamed or len(self.renamed) < LISTED
                self.renamed[row.annotator if known else None] += 1
            if row.labelled_at and self._is_to_come(row.labelled_at):
                raise LabelError(
                    f"{row.place} was labelled at {quoted(row.labelled_at)}, which is yet to come: correct the time, "
                    "or leave it empty"
                )
            if not read_again:
                yield row._replace(annotator=self._annotator or row.annotator, returned=file.order)

    def _is_to_come(self, text: str) -> bool:
        if text not in self._times:
            if len(self._times) > 10_000:
                self._times.clear()
            time = time_of(text)
            self._times[text] = time is not None and time > self._latest
        return self._times[text]


def _chain(*parts: Iterator[Label]) -> Iterator[Label]:
    for part in parts:
        yield from part


def _without(log: LabelLog, dropped: Sequence[Returned]) -> LabelLog:
    """The log without the nameless returns of a file that now comes back with a name."""
    rest = tuple(file for file in log.returned if not any(file is other for other in dropped))
    return replace(log, returned=rest)


def _checked_name(annotator: str | None) -> str | None:
    if annotator is None:
        return None
    name = annotator.strip()
    if not name or len(name) > LONGEST["annotator"] or not name.isprintable():
        raise LabelError(f"--annotator {quoted(annotator)}: give a name of 1 to {LONGEST['annotator']} letters")
    return name


def _text(time: datetime) -> str:
    return time.isoformat(timespec="microseconds")


def _not_used(joined: Joined, order: int, tracks: Sequence[Track]) -> list[UnusedRows]:
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


def _votes(joined: Joined, names: Mapping[int, str]) -> list[Votes]:
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


def _overruled(joined: Joined, order: int | None, ids: Sequence[str] | None = None) -> list[Overruling]:
    """Labels that do not count, of examples that a file answers, each with the first one that counts instead."""
    found = []
    for id in joined.answers if ids is None else ids:
        given = joined.answers[id]
        if order is not None and not any(row.returned == order for row in given):
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


# -- what is done after --------------------------------------------------------------------------------------


def correct(run: Run, id: str, label: str, annotator: str) -> LabelAction:
    """Say what an example is, whatever was said before: its earlier answers are kept and do not count.

    Raises
    ------
    LabelError
        The example was not selected, or the text is neither a label nor "can't tell".
    """
    log = read_log(run)
    name, now = _checked_name(annotator), now_after(log)
    chosen = _chosen(run)
    if id not in chosen:
        raise LabelError(f"{quoted(id)} was not selected in {run.uri}; `opacc labels list` has the ids")
    fields = {"id": id, "label": label, "annotator": name, "labelled_at": _text(now), "run": run.name}
    data = json.dumps(fields, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
    (row,) = parse(data, "the correction")
    if row.status == "blank":
        raise LabelError(f"{quoted(id)} is corrected to nothing: give a label, or ? if nobody can tell")
    if row.label is not None:
        row = row._replace(label=canonical_form(run)(id, row.label))
    overruled = _corrected(_answers(run, log, id), row, canonical_form(run))
    action = LabelAction(
        action="correct",
        at=_text(now),
        file=name_of_labels("correction.jsonl", data),
        annotator=name,
        ids=[id],
        overruled=overruled[:LISTED],
        num_overruled=len(overruled),
    )
    write_action(run, action)
    run.write_labels(run.rounds()[-1], "correction.jsonl", data)
    return action


def _corrected(answers: Sequence[Answered], correction: Label, read: Callable[[str, str], str]) -> list[Overruling]:
    """The answers that counted, or were in conflict, and say something else than their correction."""
    return [
        Overruling(
            id=item.id,
            label=item.label,
            annotator=item.annotator,
            place=item.place,
            by_label=correction.label,
            by_annotator=correction.annotator,
            by_place=None,
        )
        for item in answers
        if item.state in ("counts", "in conflict") and item.label and read(item.id, item.label) != correction.label
    ]


def withdraw(run: Run, what: str) -> LabelAction:
    """Let the answers to an example, or those of a file, count no longer; they are kept, and may come back.

    Parameters
    ----------
    what : the id of an example; or a file, by the name that it had or is kept under.

    Raises
    ------
    LabelError
        There is no such example or file, or what is said fits several.
    """
    log = read_log(run)
    chosen = _chosen(run)
    standing = [file for file in log.returned if not file.withdrawn]
    files = sorted({file.name for file in standing if what in _names(file)})
    if len(files) + (what in chosen) > 1:
        names = few([*files, *(["an id"] if what in chosen else [])])
        raise LabelError(f"{quoted(what)} could be {names}; give a file by the name that it is kept under")
    ids = [what] if what in chosen else []
    if ids and not any(item.state != "withdrawn" for item in _answers(run, log, what)):
        raise LabelError(f"{quoted(what)} has no label in {run.uri} that could be withdrawn")
    if not ids and not files:
        raise LabelError(
            f"{quoted(what)} is no selected id and no file of labels of {run.uri}; see `opacc labels list`"
        )
    action = LabelAction(action="withdraw", at=_text(now_after(log)), file=files[0] if files else None, ids=ids)
    write_action(run, action)
    return action


def _names(file: Returned) -> set[str]:
    """What a file may be called: as it is kept, and as it was called where it came from, with or without its folder."""
    source = file.source or file.place
    return {file.name, file.place, source, source.rpartition("/")[2]}


def set_rule(run: Run, conflict: ConflictRule) -> LabelAction:
    """Let a rule decide where labels differ, for every verb from now on.

    Raises
    ------
    LabelError
        The labels that are there are in conflict under it; the rule stays as it was.
    """
    log = read_log(run)
    for track in run.tracks():
        if track.rounds():
            read_rounds(track, conflict=conflict)
    action = LabelAction(action="rule", at=_text(now_after(log)), conflict=conflict)
    write_action(run, action)
    return action


def list_answers(run: Run, id: str | None = None) -> AnswerList:
    """Say who said what when, of all examples or of one; withdrawn and overruled answers included.

    Raises
    ------
    LabelError
        The example was not selected.
    """
    log = read_log(run)
    chosen = _chosen(run)
    if id is not None and id not in chosen:
        raise LabelError(f"{quoted(id)} was not selected in {run.uri}; `opacc labels list` without --id has the ids")
    return AnswerList(run=run.uri, conflict=log.conflict, answers=_answers(run, log, id))


def _chosen(run: Run) -> set[str]:
    """The ids of all rounds of all tracks."""
    return set(ids_of(read_tracks(run)))


def _answers(run: Run, log: LabelLog, id: str | None) -> list[Answered]:
    read = canonical_form(run)
    by_id: dict[str, list[tuple[Returned, Label, Label | None]]] = {}
    for file in log.returned:
        for row in file.labels():
            if row.status != "blank" and id in (None, row.id):
                by_id.setdefault(row.id, []).append((file, row, _canonical(row, read)))
    return [item for given in by_id.values() for item in _states(given, log.conflict)]


def _canonical(row: Label, read: Callable[[str, str], str]) -> Label | None:
    """The answer with its label in canonical form; None if it is no label."""
    if row.label is None:
        return row
    try:
        return row._replace(label=read(row.id, row.label))
    except LabelError:
        return None


def _states(given: Sequence[tuple[Returned, Label, Label | None]], conflict: str) -> Iterator[Answered]:
    """The answers to one example, each with whether it counts."""
    standing = [label for file, row, label in given if label is not None and file.is_standing(row.id)]
    texts: list[str | None] = [*winning(standing, conflict)] or [None]
    rank = max((row.correction for row in standing), default=0)
    for file, row, label in given:
        state = "overruled"
        if not file.is_standing(row.id):
            state = "withdrawn"
        elif label is None:
            state = "no label"
        elif label.correction == rank and label.label in texts:
            state = "counts" if len(texts) == 1 else "in conflict"
        yield Answered.model_validate(
            {
                "id": row.id,
                "label": row.label,
                "annotator": row.annotator,
                "labelled_at": row.labelled_at,
                "imported_at": file.at,
                "file": file.name,
                "source": file.source,
                "place": row.place,
                "correction": file.is_correction,
                "state": state,
            }
        )
