"""Actions on the labels of a run: import a file, correct, withdraw, set the rule for conflicts; and list all answers.

Every action becomes an entry of the log of the run. Each is decided on the run as it is when the entry is written.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels import import_summary
from opacc_ray.labels.formats.jsonl_file import as_jsonl
from opacc_ray.labels.formats.label_formats import format_of, parse
from opacc_ray.labels.import_summary import LISTED, RowCounts, of_selected
from opacc_ray.labels.joining import Joined, in_canonical_form, reading_by, winning
from opacc_ray.labels.label_documents import (
    Answered,
    AnswerList,
    AnswerState,
    ImportedLabels,
    LabelAction,
    Overruling,
    RoundOfTrack,
    WithdrawnLabels,
)
from opacc_ray.labels.label_log import LabelLog, Returned, log_action, now_after, read_log
from opacc_ray.labels.label_rows import Label, LabelFile, checked_annotator, few, have_numbers_for_names, quoted
from opacc_ray.labels.labelled_rounds import (
    Track,
    canonical_form,
    join_labels,
    read_rounds,
    read_tracks,
)
from opacc_ray.runs.commit_log import name_of_labels
from opacc_ray.runs.run import Run
from opacc_ray.spec import ConflictRule, ModelSpec


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
    run : the newest round of its track keeps the file; the labels may answer examples of any track.
    conflict : rule for labels that differ, from now on; None: the run's rule.
    annotator : name that replaces those in the file; None: the names in the file.
    numbers_are_classes : whether numbers in the file are indexes, from 0, of classes that have names; if not, they are
        refused. None: as in the spec.
    only_selected : leave out rows of examples that were not selected; otherwise they are refused.

    Raises LabelError if the file names another run, an unknown id, a number or a future time, or contradicts earlier
    labels; SpecError if numbers cannot be indexes of the classes; DataError if a manifest, or another file of a round,
    is lost or was changed.
    """
    name = name.encode(errors="backslashreplace").decode()  # a file name need not be valid Unicode
    annotator = None if annotator is None else checked_annotator(annotator)
    title, left_out = name, dict[str, int]()
    if only_selected:
        name, data, left_out = of_selected(run, name, data, _chosen_ids(run))
    given = _Given(name, title, data, annotator, conflict, numbers_are_classes)
    imported: list[ImportedLabels] = []

    def decide(now: Run) -> LabelAction | None:
        log, tracks = read_log(now), read_tracks(now)
        file = _file_of(now, log, given)
        imported[:] = [_imported(now, log, tracks, file, given)]
        return _import_of(now, log, file, given, imported[0])

    for number in run.rounds():
        run.check_copies(number)
    try:
        log_action(run, decide, (name, data))
    except LabelError as error:
        raise type(error)(f"{error}; nothing of the file was taken") from None
    return imported[0].model_copy(update={"file": title, **left_out})


class _Given(NamedTuple):
    """Arguments of an import."""

    name: str
    title: str  # name of the file that it is a part of, or its own
    data: bytes
    annotator: str | None
    conflict: ConflictRule | None
    numbers_are_classes: bool | None


def _file_of(run: Run, log: LabelLog, given: _Given) -> Returned:
    """Return the file as the log has it, or as it will."""
    key = name_of_labels(given.name, given.data)
    known = log.find(key, given.annotator)
    classes = _classes_by_number(run.spec.model, given.numbers_are_classes, log)
    counts = tuple(run.spec.model.counts or ())
    form, order = format_of(LabelFile(given.name, given.data, counts)), len(log.actions) + 1
    new = Returned(
        order, key, given.name, given.data, form, given.annotator, given.title, classes=classes, counts=counts
    )
    return known or new


def _imported(run: Run, log: LabelLog, tracks: Sequence[Track], file: Returned, given: _Given) -> ImportedLabels:
    """Check that all labels fit together with a file, and describe its import."""
    again, rule = any(part is file for part in log.returned), given.conflict or log.conflict
    counted = RowCounts(replace(file, place=given.name, annotator=given.annotator), now_after(log), run.spec.model)
    rows = chain(_other_labels(log, file), counted.count(read_again=again))
    joined = join_labels(tracks, rows, rule, source=given.name)
    titles = {part.order: part.title for part in log.returned} | {file.order: given.title}
    return ImportedLabels(
        **counted.fields(),
        **_state_after(log, tracks, file, joined, counted.answered.keys()),
        again=again,
        came_before=file.at if again else None,
        withdrawn=None if again else log.withdrawn_at(file.name, given.annotator),
        stay_withdrawn=len(file.withdrawn_ids & counted.answered.keys()),
        conflict=rule,
        votes=import_summary.votes(joined, titles),
        as_before=import_summary.as_before(joined, file.order),
    )


def _state_after(
    log: LabelLog, tracks: Sequence[Track], file: Returned, joined: Joined, ids: Set[str]
) -> dict[str, Any]:
    """Return the fields of :class:`ImportedLabels` that describe the rounds and the overruled labels."""
    answers = import_summary.answered_rounds(tracks, ids)
    rounds = import_summary.rounds_now(tracks, joined, log.score, answers)
    newest = next(item for item in reversed(rounds) if item.track == tracks[0].run.track)
    overruled = import_summary.overruled(joined, file.order)
    return newest.model_dump(exclude={"track"}) | {
        "answers": answers,
        "rounds": rounds,
        "not_used": import_summary.not_used(joined, file.order, tracks),
        "overruled": overruled[:LISTED],
        "num_overruled": len(overruled),
    }


def _import_of(run: Run, log: LabelLog, file: Returned, given: _Given, done: ImportedLabels) -> LabelAction | None:
    """Return the action of an import; None if it changes nothing."""
    rule = given.conflict if given.conflict != log.conflict else None
    if done.again and not rule:
        return None
    return LabelAction(
        action="import",
        at=now_after(log).isoformat(timespec="microseconds"),
        file=file.name,
        file_format=file.format,
        source=file.title[-200:],
        annotator=file.annotator,
        conflict=rule,
        numbers_are_classes=file.classes is not None if run.spec.model.classes else None,
        overruled=done.overruled,
        num_overruled=done.num_overruled,
    )


def _classes_by_number(model: ModelSpec, asked: bool | None, log: LabelLog) -> Sequence[str] | None:
    """Return the class names if numbers in a new file are class indexes, else None."""
    refusal = None if model.has_classes else f"the task is {model.task}, which has no classes"
    if model.classes and have_numbers_for_names(tuple(model.classes)):
        refusal = "a class has a number as its name, so numbers are names"
    if asked and refusal:
        raise SpecError(f"--numbers-are-classes cannot be used: {refusal}; remove it")
    return model.classes if asked or (asked is None and log.numbers_are_classes) else None


def _other_labels(log: LabelLog, file: Returned) -> Iterator[Label]:
    """Yield the labels so far, except those of the same file without an annotator if it now has one."""
    if any(part is file for part in log.returned):
        return log.labels()
    others = tuple(part for part in log.returned if part.name != file.name or part.annotator is not None)
    return replace(log, returned=others).labels()


def correct(run: Run, id: str, label: str, annotator: str) -> LabelAction:
    """Override an example's label; earlier answers stay in the log but are ignored.

    Raises LabelError if the example was not selected, or if the text is neither a label nor "can't tell".
    """
    log = read_log(run)
    name, at = checked_annotator(annotator), now_after(log).isoformat(timespec="microseconds")
    _refuse_unselected(run, id)
    fields = {"id": id, "label": label, "annotator": name, "labelled_at": at, "run": run.name}
    data = as_jsonl([fields])
    model = run.spec.model
    read = reading_by(model, run.num_classes, numbers_are_classes=log.numbers_are_classes)
    (row,) = parse(data, "the correction")
    if row.status == "blank":
        raise LabelError(f"the correction of {quoted(row.id)} is empty: give a label, or ? for can't tell")
    correction = in_canonical_form(row, read)

    def decide(now: Run) -> LabelAction:
        current = read_log(now)
        overruled = _overruled_by(correction, _answers_of(now, current, id), read)
        return LabelAction(
            action="correct",
            at=max(at, now_after(current).isoformat(timespec="microseconds")),
            file=name_of_labels("correction.jsonl", data),
            file_format="jsonl",
            annotator=name,
            ids=[id],
            numbers_are_classes=current.numbers_are_classes if model.classes else None,
            overruled=overruled[:LISTED],
            num_overruled=len(overruled),
        )

    action = log_action(run, decide, ("correction.jsonl", data))
    assert action is not None
    return action


def _overruled_by(correction: Label, answers: Sequence[Answered], read: Callable[[str, str], str]) -> list[Overruling]:
    """Return the answers that counted, or were in conflict, and differ from their correction."""
    return [
        import_summary.overruling(item, correction.label, correction.annotator)
        for item in answers
        if item.state in ("counts", "in conflict") and item.label and read(item.id, item.label) != correction.label
    ]


def withdraw(run: Run, what: str) -> WithdrawnLabels:
    """Withdraw the labels of a file or an example; they are kept in the log, and can be imported again.

    ``what`` is the id of an example; or a file, by its own name or the name under which it is kept. Raises LabelError
    if there is no such example or file, or if several fit.
    """
    concerned: list[Returned] = []
    answers, unsure = Counter[str](), list[str]()

    def decide(now: Run) -> LabelAction:
        log = read_log(now)
        files, ids = _files_and_ids(now, log, what)
        concerned[:] = [file for file in log.returned if not file.withdrawn and (ids or file.name in files)]
        rows = [
            row
            for file in concerned
            for row in file.labels()
            if row.status != "blank" and not file.is_withdrawn(row.id) and (not ids or row.id == what)
        ]
        answers.clear()
        answers.update(row.id for row in rows)
        unsure[:] = [row.id for row in rows if row.label is None]
        at = now_after(log).isoformat(timespec="microseconds")
        return LabelAction(action="withdraw", at=at, file=files[0] if files else None, ids=ids)

    action = log_action(run, decide)
    assert action is not None
    return _withdrawn(run, action, concerned[0], answers, len(unsure))


def _files_and_ids(run: Run, log: LabelLog, what: str) -> tuple[list[str], list[str]]:
    """Return the one file, or the one id, that a text names."""
    there = [file for file in log.returned if not file.withdrawn]
    names = [(file.name, file.place, file.title, file.title.rpartition("/")[2]) for file in there]
    files = sorted({kept for kept, *others in names if what in (kept, *others)})
    ids = [what] if what in _chosen_ids(run) else []
    if len(files) + len(ids) > 1:
        found = few([*files, *(["an id"] if ids else [])])
        raise LabelError(f"{quoted(what)} could be {found}; name a file as it is kept")
    if ids and all(item.state == "withdrawn" for item in _answers_of(run, log, what)):
        raise LabelError(f"{quoted(what)} has no label in {run.uri} that could be withdrawn")
    if not ids and not files:
        raise LabelError(f"{quoted(what)} is neither a selected id nor a file of {run.uri}; see `opacc labels list`")
    return files, ids


def _withdrawn(run: Run, action: LabelAction, file: Returned, answers: Counter[str], cant_tell: int) -> WithdrawnLabels:
    """Describe a withdrawal, with the rounds after it as far as their labels can be counted."""
    log, tracks, unread = read_log(run), read_tracks(run), None
    rounds = import_summary.answered_rounds(tracks, answers.keys())
    first = {item.track: item.round for item in reversed(rounds)}
    try:
        joined = join_labels(tracks, log.labels(), log.conflict)
        now = import_summary.rounds_now(tracks, joined, log.score, rounds)
    except LabelError as error:  # the withdrawal is done; other labels are in conflict
        now, unread = [], str(error)
    return WithdrawnLabels(
        run=run.uri,
        at=action.at,
        file=action.file,
        source=file.title if action.file else None,
        id=action.ids[0] if action.ids else None,
        labels=answers.total(),
        cant_tell=cant_tell,
        answers=rounds,
        rounds=now,
        drawn_later=[
            RoundOfTrack(track=own.track, round=selection.round)
            for own, selections in tracks
            for selection in selections
            if selection.round > first.get(own.track, selection.round)
        ],
        unread=unread,
    )


def set_rule(run: Run, conflict: ConflictRule) -> LabelAction:
    """Set the rule for labels that differ, for every command from now on.

    Raises LabelError if labels are in conflict under the new rule, which is not set then.
    """

    def decide(now: Run) -> LabelAction:
        for track in now.tracks():
            if track.rounds():
                read_rounds(track, conflict=conflict)
        at = now_after(read_log(now)).isoformat(timespec="microseconds")
        return LabelAction(action="rule", at=at, conflict=conflict)

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
    return AnswerList(run=run.uri, conflict=log.conflict, answers=_answers_of(run, log, id))


def _chosen_ids(run: Run) -> set[str]:
    return {id for track in read_tracks(run) for selection in track.selections for id in selection.ids}


def _refuse_unselected(run: Run, id: str) -> None:
    if id not in _chosen_ids(run):
        raise LabelError(f"{quoted(id)} was not selected in {run.uri}; list the ids with `opacc labels list`")


def _answers_of(run: Run, log: LabelLog, id: str | None) -> list[Answered]:
    read = canonical_form(run)
    by_id: dict[str, list[tuple[Returned, Label, Label | None]]] = {}
    for file in log.returned:
        for row in file.labels():
            if row.status != "blank" and id in (None, row.id):
                canonical = None
                with suppress(LabelError):  # no label
                    canonical = in_canonical_form(row, read)
                by_id.setdefault(row.id, []).append((file, row, canonical))
    return [item for given in by_id.values() for item in _with_states(given, log.conflict)]


def _with_states(given: Sequence[tuple[Returned, Label, Label | None]], conflict: str) -> Iterator[Answered]:
    """Yield the answers to one example, as written and in canonical form, each with whether it counts."""
    valid = [label for file, row, label in given if label is not None and not file.is_withdrawn(row.id)]
    texts: list[str | None] = [*winning(valid, conflict)] or [None]
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
            imported_at=file.at,
            file=file.name,
            source=file.source,
            place=row.place,
            correction=file.is_correction,
            state=state,
        )
