"""Actions on the labels of a run: import a file, correct, withdraw, set the rule for conflicts; and list all answers.

Every action becomes an entry of the log of the run. Each is decided on the run as it is when the entry is written.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.errors import LabelError, SpecError, counted, shown
from opacc_ray.labels import formats, joining, label_log, labelled_rounds
from opacc_ray.labels.formats import Label, LabelFile, few, parse, quoted
from opacc_ray.labels.joining import Joined
from opacc_ray.labels.label_log import LabelAction, LabelLog, LoggedFile, log_action, read_log
from opacc_ray.labels.labelled_rounds import ids_in_pool, join_labels, label_rounds, read_selections
from opacc_ray.runs.run import Run, predicted_classes
from opacc_ray.runs.run_documents import RoundCounts, name_of_labels
from opacc_ray.selection import Selection
from opacc_ray.spec import ConflictRule, ModelSpec

AHEAD = timedelta(hours=14)  # how far a time may be ahead of UTC: a local time of the farthest east, without its offset
LISTED = 100  # most annotators and overruled answers in a document; `opacc labels list` has all answers

AnswerState = Literal["counts", "in conflict", "overruled", "withdrawn", "no label"]


class Overruling(Part):
    """A label that does not count, and the one that counts instead."""

    id: str  # id of the example
    label: str  # label that does not count
    annotator: str | None  # its annotator, if known
    place: str  # its file and line
    by_label: str | None  # label that counts instead; null: can't tell
    by_annotator: str | None  # its annotator, if known


class ImportedLabels(Document, RoundCounts):
    """An imported file of labels, and the rounds after it; the fields of a round describe the newest one."""

    format: Literal["opacc-import/1"] = "opacc-import/1"
    file: str  # name of the file
    rows: int = Field(ge=0)  # rows in the file, unanswered ones included
    names: dict[str, str] = Field(default={})  # ids of examples by other names that the file has for them
    labels: int = Field(default=0, ge=0)  # examples with a label in the file
    cant_tell: int = Field(default=0, ge=0)  # examples that are answered by can't tell alone
    blank: int = Field(default=0, ge=0)  # rows without an answer
    left_out: int = Field(default=0, ge=0)  # rows of examples that were not selected, which were left out
    unknown: int = Field(default=0, ge=0)  # rows of ids that the pool lacks, which were left out too
    annotators: list[str] = Field(default=[])  # annotators in the file, the first hundred names
    answers: dict[int, int] = Field(default={})  # round -> its examples that the file answers
    rounds: list[RoundCounts] = Field(default=[])  # all rounds
    again: bool  # whether the same file was imported before, so that nothing changed
    conflict: ConflictRule  # the run's rule for labels that differ
    overruled: list[Overruling]  # labels overruled by this file or in it, the first hundred
    num_overruled: int = Field(ge=0)  # number of labels overruled by this file or in it
    notes: list[str] = Field(default=[])  # how the file was read, where it may be meant otherwise


class WithdrawnLabels(Document):
    """Withdrawn labels, and the rounds after the withdrawal."""

    format: Literal["opacc-withdrawn/1"] = "opacc-withdrawn/1"
    run: str  # URI of the run
    at: str  # time in ISO 8601, UTC
    file: str | None  # file, by the name under which it is kept; null: the labels of an example
    source: str | None  # own name of the file, if known
    id: str | None  # id of the example; null: a file
    labels: int = Field(ge=0)  # withdrawn answers, can't tell included
    cant_tell: int = Field(default=0, ge=0)  # those of them that are can't tell
    answers: dict[int, int]  # round -> its examples that they answered
    rounds: list[RoundCounts]  # all rounds; empty if labels are in conflict
    drawn_later: list[int]  # rounds that were drawn after them, and remain as drawn
    unread: str | None = None  # why the labels of the rounds cannot be counted now


class Answered(Part):
    """One answer by one annotator to one example."""

    id: str  # id of the example
    label: str | None  # label as written, a class index as its name; null: can't tell
    annotator: str | None  # annotator, if known
    labelled_at: str | None  # time of the answer, if it is in the file
    imported_at: str | None  # time of the import, if known
    file: str  # file, by the name under which it is kept
    source: str | None  # own name of the file, if known
    place: str  # file and line
    correction: bool  # whether it is a correction
    state: AnswerState  # whether it counts; no label: it is no class, or no number


class AnswerList(Document):
    """All answers to the examples of a run."""

    format: Literal["opacc-answers/1"] = "opacc-answers/1"
    run: str  # URI of the run
    conflict: ConflictRule  # the run's rule for labels that differ
    answers: list[Answered]  # every answer, by example, in the order of import


class ExportedLabels(Document):
    """Labelled examples, exported to another tool."""

    format: Literal["opacc-export-labels/1"] = "opacc-export-labels/1"
    run: str  # URI of the run
    tool: str  # name of the tool
    to: str  # URI of the file or folder
    examples: int = Field(ge=0)  # number of labelled examples
    notes: list[str] = Field(default_factory=list)  # what to know of these examples


def answered_rounds(selections: Sequence[Selection], ids: Iterable[str]) -> dict[int, int]:
    """Count the examples of each round among some ids, without rounds that have none."""
    counts = {selection.round: len({*ids}.intersection(selection.ids)) for selection in selections}
    return {number: num for number, num in counts.items() if num}


def notes_on_given_up(run: Run, selections: Sequence[Selection], joined: Joined, order: int) -> list[str]:
    """Return a note for each closed round of which a file has rows: the examples were given up and not drawn again."""
    closed: dict[str, int | None] = {}
    for selection in selections:
        closed |= dict.fromkeys(selection.ids) | dict.fromkeys(run.read_closed(selection.round) or (), selection.round)
    rows: Counter[int] = Counter()
    for id, number in closed.items():
        if number is not None:
            rows[number] += sum(row.lines for row in joined.answers[id] if row.returned == order)
    return [
        f"{counted(num, 'row')} for examples given up in round {number}, which do not count"
        for number, num in sorted(rows.items())
        if num
    ]


def overrulings(joined: Joined, order: int) -> list[Overruling]:
    """Return the labels that do not count, of examples in a file, each with the first one that counts instead."""
    overrulings = []
    for id, answers in joined.answers.items():
        if not any(row.returned == order for row in answers):
            continue
        text = joined.label.get(id)
        voting = [row for row in joining.votes_of(answers) or answers if row.label == text]
        by = min(voting, key=lambda row: row.place, default=None)
        overrulings += [
            Overruling(
                id=id,
                label=row.label,
                annotator=row.annotator,
                place=row.place,
                by_label=text,
                by_annotator=by and by.annotator,
            )
            for row in answers
            if row.label not in (None, text)
        ]
    return sorted(overrulings, key=lambda item: (item.id, item.place, item.label))


class FileCounts:
    """Counts of the rows of a file, made while they are streamed; ``annotator`` replaces those in rows.

    Raises LabelError if a time is in the future.
    """

    def __init__(self, file: LabelFile, model: ModelSpec, annotator: str | None, now: str) -> None:
        self.num = Counter[str]()  # rows, and of these the blank, renamed, undated ones, and the names of classes
        self.ids: dict[str, None] = {}
        self.has_label: dict[str, bool] = {}  # id of an answered example -> whether it has one
        self.annotators: dict[str, None] = {}
        self.name, self._model, self._annotator = file.name, model, annotator
        self._latest = datetime.fromisoformat(now) + AHEAD
        self._numbers: Counter[int] = Counter()  # of classes
        self._undated: str | None = None  # the first text that is no time
        for row in parse(file):
            self._count(row)

    def _count(self, row: Label) -> None:
        self.num["rows"] += 1
        self.num["blank"] += row.status == "blank"
        self.num["renamed"] += self._annotator is not None and row.annotator not in (None, self._annotator)
        self.ids[row.id] = None
        if row.status != "blank":
            self.has_label[row.id] = self.has_label.get(row.id, False) or row.label is not None
            who = self._annotator or row.annotator
            if who and len(self.annotators) < LISTED:
                self.annotators[who] = None
        if row.label is not None and self._model.has_classes:
            index = joining.index_in(row.label, self._model.classes)
            self._numbers.update([index] if index is not None else [])
            self.num["named"] += index is None
        if row.labelled_at:
            time = joining.time_of(row.labelled_at)
            if time and time > self._latest:
                raise LabelError(
                    f"{row.place} was labelled at {quoted(row.labelled_at)}, which is in the future: correct the time, "
                    "or leave it empty"
                )
            self.num["undated"] += time is None
            self._undated = self._undated or (None if time else row.labelled_at)

    def notes(self, predicted: Mapping[int, int] | None) -> Iterator[str]:
        """Yield how the file was read, where it may be meant otherwise; ``predicted`` counts predictions by class."""
        num, names, total = self.num, self._model.classes, self._numbers.total()
        if num["renamed"]:
            yield f"{counted(num['renamed'], 'row by others counts', 'rows by others count')} as {self._annotator}'s"
        if self._undated:
            yield (
                f"{counted(num['undated'], 'row')} with a labelled_at that is no time, such as {quoted(self._undated)}"
                "; it is ignored: write 2026-01-31T10:00:00"
            )
        if num["blank"] and (lost := formats.emptied(self._model.label_names)):
            rows = counted(num["blank"], "row has an empty label", "rows have empty labels")
            yield (
                f"{rows}, which may be the class {lost}: if the file passed through it, read the manifest with "
                "keep_default_na=False and import it again"
            )
        if names and total:
            meanings = few([f"{k} = {quoted(names[k])} ({self._numbers[k]})" for k in sorted(self._numbers)], most=10)
            mixed = f"; {counted(num['named'], 'other label')} are names" if num["named"] else ""
            labels = counted(total, "label is a class number", "labels are class numbers")
            yield f"{labels}, counted from 0: {meanings}{mixed}"
        if len(self._numbers) > 1 and 0 not in self._numbers and (names or 0 in (predicted or {0: 1})):
            what = "If this file counts classes from 1, withdraw it, and count from 0"
            yield f"none of {total} labels is 0, the first class. {what}"


def import_labels(
    run: Run,
    name: str,
    data: bytes,
    *,
    conflict: ConflictRule | None = None,
    annotator: str | None = None,
    numbers_are_classes: bool | None = None,
    only_selected: bool = False,
) -> ImportedLabels:
    """Import a file of labels; it is kept only if all labels so far fit together.

    Parameters
    ----------
    run : its newest round keeps the file; the labels may answer examples of any round.
    conflict : rule for labels that differ, from now on; None: the run's rule.
    annotator : name that replaces those in the file; None: the names in the file.
    numbers_are_classes : whether numbers in the file are indexes, from 0, of classes that have names; if not, they are
        refused. None: as in the spec.
    only_selected : leave out rows of examples that were not selected; otherwise they are refused.

    Raises LabelError if the file names another run, an unknown id, a number or a future time, or contradicts earlier
    labels; SpecError if numbers cannot be indexes of the classes; DataError if a file of a draw is lost or was
    changed.
    """
    name = name.encode(errors="backslashreplace").decode()  # a file name need not be valid Unicode
    annotator = None if annotator is None else formats.checked_annotator(annotator)
    title, left_out = name, dict[str, Any]()
    if only_selected:
        name, data, left_out = _of_selected(run, name, data)
    asked: dict[str, Any] = {"source": title, "annotator": annotator, "conflict": conflict}
    asked["numbers_are_classes"] = _numbers_are_classes(run.spec.model, numbers_are_classes)
    return _take(run, name, data, asked).model_copy(update={"file": title, **left_out})


def import_answers(run: Run, other: Run, *, conflict: ConflictRule | None = None) -> ImportedLabels:
    """Take the answers of another run to the examples that this run has selected, as they count there.

    They replace those that were taken from it before. ``conflict`` is as for :func:`import_labels`. Raises as that; and
    LabelError if the other run is not about the same pool, task and classes, or has no such answer.
    """
    _refuse_other_question(run, other)
    chosen, answers = _chosen_ids(run), list_answers(other).answers
    corrected = {item.id for item in answers if item.correction and item.state == "counts"}
    votes = {"counts", "in conflict", "overruled"}  # where no correction outranks them
    taken = [
        {"id": item.id, "label": item.label or "?", "annotator": item.annotator, "labelled_at": item.labelled_at}
        | {formats.PLACE: f"{other.name}/{item.place}"}
        for item in answers
        if item.id in chosen and item.state in ({"counts"} if item.id in corrected else votes)
    ]
    if not taken:
        raise LabelError(f"{other.uri} has no answer to an example that {run.uri} has selected; label those")
    asked: dict[str, Any] = {"source": other.name, "from_run": other.name, "conflict": conflict}
    asked["numbers_are_classes"] = False
    return _take(run, other.name, formats.as_jsonl(taken), asked)


def _refuse_other_question(run: Run, other: Run) -> None:
    """Raise LabelError if the labels of another run do not answer what this run asks."""
    if run.uri == other.uri:
        raise LabelError(f"{run.uri} has its own answers already; name another run")

    def question(of: Run) -> dict[str, Any]:
        model, pool = of.spec.model, of.spec.pool
        asked = {"task": model.task, "classes": sorted(model.classes or ()) or None, "grades": model.grades}
        asked |= {"counts": model.counts, "answer": pool.columns.answer}
        return {"pool": f"{of.header.pool.digest[:8]} of {pool.uri}"} | asked

    own, theirs = question(run), question(other)
    key = next((key for key in own if own[key] != theirs[key]), None)
    if key is not None:
        raise LabelError(
            f"{other.uri} has the {key} {shown(theirs[key])}, and {run.uri} {shown(own[key])}; import answers of a run "
            "of the same pool, task and classes"
        )


def _take(run: Run, name: str, data: bytes, fields: dict[str, Any]) -> ImportedLabels:
    """Log the import of a file, with ``fields`` of its action that do not depend on the log, unless nothing changes."""
    imported: list[ImportedLabels] = []
    source = fields["source"]  # for messages; ``name`` may be that of a file with some of its rows
    asked = LabelAction(action="import", at="", **fields | {"source": source[-200:]})
    key = name_of_labels(name, data)

    def decide(now: Run) -> LabelAction | None:
        log = read_log(now)
        content, rule = label_log.label_file(now.spec, source, data), asked.conflict or log.rules.conflict
        counts = FileCounts(content, now.spec.model, asked.annotator, log.now())
        changes: dict[str, Any] = {"at": log.now(), "conflict": None if rule == log.rules.conflict else rule}
        known = log.find(key, asked.annotator)
        if known is None:
            changes |= {"file": key, "file_format": formats.format_of(content)}
            changes["names"] = _names_in(now, source, counts.ids)
            if now.spec.model.classes and asked.numbers_are_classes is None:
                changes["numbers_are_classes"] = log.rules.numbers_are_classes
        action = (asked if known is None else known.action).model_copy(update={"action": "import"} | changes)
        if known is None:
            log.add(action, content)
        file = known or log.returned[-1]
        imported[:] = [_imported(now, log, file, counts, rule, again=known is not None)]
        return action if known is None or action.conflict else None

    try:
        log_action(run, decide, (name, data))
    except LabelError as error:
        raise type(error)(f"{error}; nothing of the file was taken") from None
    return imported[0]


def _imported(
    run: Run, log: LabelLog, file: LoggedFile, counts: FileCounts, rule: ConflictRule, *, again: bool
) -> ImportedLabels:
    """Check that all labels fit together with a file, and describe its import."""
    name, action, selections = counts.name, file.action, read_selections(run)
    joined = join_labels(run, selections, log.labels(), rule, source=name)
    answered = {action.names.get(id, id): has_label for id, has_label in counts.has_label.items()}
    overruled = overrulings(joined, file.order)
    rounds = [item.counts() for item in label_rounds(run, selections, joined, log.score)]
    stay = len(file.withdrawn_ids & answered.keys())
    notes = [f"the labels of {counted(stay, 'example')} stay withdrawn"] if stay else []
    if not again and log.find(action.file, action.annotator, withdrawn=True):
        notes.append("the file was withdrawn before, and counts again")
    return ImportedLabels(
        **rounds[-1].model_dump(),
        file=name,
        rows=counts.num["rows"],
        names=dict(action.names),
        labels=sum(answered.values()),
        cant_tell=len(answered) - sum(answered.values()),
        blank=counts.num["blank"],
        annotators=list(counts.annotators),
        answers=answered_rounds(selections, answered),
        rounds=rounds,
        again=again,
        conflict=rule,
        overruled=overruled[:LISTED],
        num_overruled=len(overruled),
        notes=[*notes, *notes_on_given_up(run, selections, joined, file.order), *counts.notes(predicted_classes(run))],
    )


def _numbers_are_classes(model: ModelSpec, asked: bool | None) -> bool | None:
    """Return whether numbers in a file are class indexes; None: as the rule of the run says.

    Raises SpecError if they are asked for, and cannot be.
    """
    refusal = None if model.has_classes else f"the task is {model.task}, which has no classes"
    if model.classes and joining.have_numbers_for_names(tuple(model.classes)):
        refusal = "a class has a number as its name, so numbers are names"
    if asked and refusal:
        raise SpecError(f"--numbers-are-classes cannot be used: {refusal}; remove it")
    return asked if model.classes else None


def _names_in(run: Run, file: str, ids: Iterable[str], *, only_selected: bool = False) -> dict[str, str]:
    """Return the ids of a file's rows by other names that they have there; raises LabelError if one is unclear."""
    in_pool = partial(ids_in_pool, run, unless=())
    try:
        return joining.ids_of_names(ids, _chosen_ids(run), in_pool, only_selected=only_selected)
    except LabelError as error:
        raise LabelError(f"{file}: {error}") from None


def _of_selected(run: Run, name: str, data: bytes) -> tuple[str, bytes, dict[str, Any]]:
    """Return the answers of a file to the selected examples as another file, with what the import is to report.

    Raises LabelError if there are none, or if ids that the pool lacks are chosen ones without a row, written otherwise.
    """
    content, chosen = label_log.label_file(run.spec, name, data), _chosen_ids(run)
    names = _names_in(run, name, {row.id for row in parse(content)}, only_selected=True)
    kept, others = list[dict[str, Any]](), Counter[str]()
    missing = set(chosen)
    for row in parse(content):
        if (id := names.get(row.id, row.id)) not in chosen:
            others[id] += 1
            continue
        missing.discard(id)
        if row.status != "blank":
            fields = {key: getattr(row, key) for key in formats.COLUMNS} | {"id": id, formats.PLACE: row.place}
            kept.append({key: value for key, value in fields.items() if value is not None})
    strange = sorted(others.keys() - set(ids_in_pool(run, list(others))))
    remedy = formats.rewritten(strange, sorted(missing))
    if remedy is not None:
        what = f"{len(strange)} id(s) not in the pool: {few([quoted(id) for id in strange])}"
        raise LabelError(f"{name}: {what}: {remedy}; nothing of the file was taken")
    if not kept:
        raise LabelError(
            f"{name} has no label of a selected example, but {others.total():,} rows of others: take ids from the "
            "manifest"
        )
    unknown = sum(others[id] for id in strange)
    used = {other: id for other, id in names.items() if id in chosen}
    counts = {"left_out": others.total() - unknown, "unknown": unknown}
    return f"{name}.selected.jsonl", formats.as_jsonl(kept), {**counts, "names": used}


def correct(run: Run, id: str, label: str, annotator: str) -> AnswerList:
    """Override an example's label, and return its answers; earlier ones stay in the log but are ignored.

    Raises LabelError if the example was not selected, or if the text is neither a label nor "can't tell".
    """
    log = read_log(run)
    name, at = formats.checked_annotator(annotator), log.now()
    _refuse_unselected(run, id)
    data = formats.as_jsonl([{"id": id, "label": label, "annotator": name, "labelled_at": at, "run": run.name}])
    (row,) = parse(LabelFile("the correction", data))
    if row.status == "blank":
        raise LabelError(f"the correction of {quoted(row.id)} is empty: give a label, or ? for can't tell")
    read = labelled_rounds.canonical_form(run, numbers_are_classes=log.rules.numbers_are_classes)
    joining.in_canonical_form(row, read)

    def decide(now: Run) -> LabelAction:
        current = read_log(now)
        return LabelAction(
            action="correct",
            at=max(at, current.now()),
            file=name_of_labels("correction.jsonl", data),
            file_format="jsonl",
            annotator=name,
            ids=[id],
            numbers_are_classes=current.rules.numbers_are_classes if run.spec.model.classes else None,
        )

    log_action(run, decide, ("correction.jsonl", data))
    return list_answers(run, id)


def withdraw(run: Run, what: str) -> WithdrawnLabels:
    """Withdraw the labels of a file or an example; they are kept in the log, and can be imported again.

    ``what`` is the id of an example; or a file, by its own name or the name under which it is kept. Raises LabelError
    if there is no such example or file, or if several fit.
    """
    withdrawn: list[Answered] = []

    def decide(now: Run) -> LabelAction:
        log = read_log(now)
        file, ids = _file_or_id(now, log, what)
        answers = _answers_of(now, log, what if ids else None)
        withdrawn[:] = [item for item in answers if item.state != "withdrawn" and file in (None, item.file)]
        if ids and not withdrawn:
            raise LabelError(f"{quoted(what)} has no label in {run.uri} that could be withdrawn")
        return LabelAction(action="withdraw", at=log.now(), file=file, ids=ids)

    action = log_action(run, decide)
    assert action is not None
    return _withdrawn(run, action, withdrawn)


def _file_or_id(run: Run, log: LabelLog, what: str) -> tuple[str | None, list[str]]:
    """Return the one file, or the one id, that a text names."""
    there = [(file.name, file.content.name, _title(file)) for file in log.returned if not file.withdrawn]
    files = sorted({name for name, key, title in there if what in (name, key, title, title.rpartition("/")[2])})
    ids = [what] if what in _chosen_ids(run) else []
    if len(files) + len(ids) > 1:
        meanings = few([*files, *(["an id"] if ids else [])])
        raise LabelError(f"{quoted(what)} could be {meanings}; name a file as it is kept")
    if not ids and not files:
        raise LabelError(f"{quoted(what)} is neither a selected id nor a file of {run.uri}; see `opacc labels list`")
    return files[0] if files else None, ids


def _title(file: LoggedFile) -> str:
    """Return the name of a file where it came from, if that is known."""
    return file.action.source or file.content.name


def _withdrawn(run: Run, action: LabelAction, answers: Sequence[Answered]) -> WithdrawnLabels:
    """Describe a withdrawal, with the rounds after it as far as their labels can be counted."""
    log, selections, unread = read_log(run), read_selections(run), None
    rounds = answered_rounds(selections, {item.id for item in answers})
    first = min(rounds, default=len(selections))
    try:
        joined = join_labels(run, selections, log.labels(), log.rules.conflict)
        now = [item.counts() for item in label_rounds(run, selections, joined, log.score)]
    except LabelError as error:  # the withdrawal is done; other labels are in conflict
        now, unread = [], str(error)
    return WithdrawnLabels(
        run=run.uri,
        at=action.at,
        file=action.file,
        source=next((_title(file) for file in log.returned if file.name == action.file), None),
        id=action.ids[0] if action.ids else None,
        labels=len(answers),
        cant_tell=sum(item.label is None for item in answers),
        answers=rounds,
        rounds=now,
        drawn_later=[selection.round for selection in selections if selection.round > first],
        unread=unread,
    )


def set_rule(run: Run, conflict: ConflictRule) -> LabelAction:
    """Set the rule for labels that differ, for every command from now on.

    Raises LabelError if labels are in conflict under the new rule, which is not set then.
    """

    def decide(now: Run) -> LabelAction:
        if now.rounds():
            labelled_rounds.read_rounds(now, conflict=conflict)
        return LabelAction(action="rule", at=read_log(now).now(), conflict=conflict)

    action = log_action(run, decide)
    assert action is not None
    return action


def list_answers(run: Run, id: str | None = None) -> AnswerList:
    """List the answers to all examples or to one, withdrawn and overruled answers included.

    Raises LabelError if the example was not selected.
    """
    log = read_log(run)
    if id is not None:
        _refuse_unselected(run, id)
    return AnswerList(run=run.uri, conflict=log.rules.conflict, answers=_answers_of(run, log, id))


def _chosen_ids(run: Run) -> set[str]:
    return {id for selection in read_selections(run) for id in selection.ids}


def _refuse_unselected(run: Run, id: str) -> None:
    if id not in _chosen_ids(run):
        raise LabelError(f"{quoted(id)} was not selected in {run.uri}; list the ids with `opacc labels list`")


def _answers_of(run: Run, log: LabelLog, id: str | None) -> list[Answered]:
    """Return the answers to all examples or to one, those to one example next to each other."""
    read, conflict = labelled_rounds.canonical_form(run), log.rules.conflict
    by_id: dict[str, list[tuple[LoggedFile, Label, Label | None]]] = {}
    for file in log.returned:
        for row in file.labels():
            if row.status != "blank" and id in (None, row.id):
                canonical = None
                with suppress(LabelError):  # no label
                    canonical = joining.in_canonical_form(row, read)
                by_id.setdefault(row.id, []).append((file, row, canonical))
    return [item for given in by_id.values() for item in _with_states(given, conflict)]


def _with_states(given: Sequence[tuple[LoggedFile, Label, Label | None]], conflict: str) -> Iterator[Answered]:
    """Yield the answers to one example, as written and in canonical form, each with whether it counts."""
    valid = [label for file, row, label in given if label is not None and not file.is_withdrawn(row.id)]
    texts: list[str | None] = [*joining.winning(valid, conflict)] or [None]
    rank = max((row.correction for row in valid), default=0)
    for file, row, label in given:
        state: AnswerState = "overruled"
        if file.is_withdrawn(row.id):
            state = "withdrawn"
        elif label is None:
            state = "no label"
        elif label.correction == rank and label.label in texts:
            state = "counts" if len(texts) == 1 else "in conflict"
        yield Answered(
            id=row.id,
            label=row.label,
            annotator=row.annotator,
            labelled_at=row.labelled_at,
            imported_at=file.action.at,
            file=file.name,
            source=file.action.source,
            place=row.place,
            correction=file.is_correction,
            state=state,
        )
