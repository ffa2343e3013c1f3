"""What people do with labels: take a file back, correct, withdraw, and set a rule (`answers.py` lists them).

Every verb writes one action to the log (`log.py`) and none changes a file that is there.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels import report
from opacc_ray.labels.answers import answers_of, chosen_ids
from opacc_ray.labels.documents import (
    Answered,
    ImportedLabels,
    LabelAction,
    Overruling,
    RoundOfTrack,
    WithdrawnLabels,
)
from opacc_ray.labels.formats.parsing import parse
from opacc_ray.labels.labelled_rounds import join_labels, labelled_rounds, read_rounds, read_tracks, reading_by
from opacc_ray.labels.log import LabelLog, Returned, keep_file, now_after, read_log, write_action
from opacc_ray.labels.messages import few, quoted
from opacc_ray.labels.outcomes import have_numbers_for_names
from opacc_ray.labels.report import LISTED, Seen
from opacc_ray.labels.rows import Label, checked_annotator
from opacc_ray.runs.run import Run, name_of_labels
from opacc_ray.spec import ConflictRule, ModelSpec


def import_labels(
    run: Run,
    name: str,
    data: bytes,
    *,
    conflict: ConflictRule | None = None,
    annotator: str | None = None,
    numbers_are_classes: bool | None = None,
) -> ImportedLabels:
    """Take a file of labels back; it is kept only if all labels so far fit together.

    Parameters
    ----------
    run : along the track whose newest round keeps the file; the labels may be of examples of any track.
    conflict : the rule of the run from now on, where labels differ; None: the rule that it has.
    annotator : who gave the labels, whatever the file says; None: as the file says.
    numbers_are_classes : whether numbers in the file are indexes of classes that have names, counted from 0; if not,
        they are refused. None: as the spec says.

    Raises
    ------
    LabelError
        The file is of another run, names an unknown id, a number or a time to come, or contradicts labels that are
        there.
    SpecError
        Numbers cannot be indexes of the classes.
    DataError
        A manifest, or another file of a round, is lost or not what was drawn.
    """
    name = name.encode(errors="backslashreplace").decode()  # a file's name need not be valid Unicode
    for number in run.rounds():
        run.check_copies(number)
    log, tracks = read_log(run), read_tracks(run)
    annotator = None if annotator is None else checked_annotator(annotator)
    key, model = name_of_labels(name, data), run.spec.model
    again = log.find(key, annotator)
    reading = _classes_by_number(model, numbers_are_classes, log)
    file = again or Returned(len(log.actions) + 1, key, name, data, annotator, name, classes=reading)
    seen = Seen(replace(file, place=name, annotator=annotator), now_after(log), model)
    rows = chain(_labels_beside(log, file), seen.count(read_again=again is not None))
    joined = join_labels(tracks, rows, conflict or log.conflict, source=name)
    newest = labelled_rounds(*tracks[0], joined, log.score)[-1].counts()  # raises before anything is kept
    overruled = report.overruled(joined, file.order)
    answers = report.answered_rounds(tracks, seen.answered.keys())
    done = ImportedLabels(
        **seen.fields(),
        answers=answers,
        rounds=report.rounds_now(tracks, joined, log.score, answers),
        again=again is not None,
        came_before=again.at if again else None,
        withdrawn=None if again else log.withdrawn_at(key, annotator),
        stay_withdrawn=len(file.withdrawn_ids & seen.answered.keys()),
        conflict=conflict or log.conflict,
        not_used=report.not_used(joined, file.order, tracks),
        votes=report.votes(joined, log.names() | {file.order: name}),
        overruled=overruled[:LISTED],
        num_overruled=len(overruled),
        **newest.model_dump(),
    )
    _keep(run, log, file, conflict, done)
    return done


def _keep(run: Run, log: LabelLog, file: Returned, conflict: ConflictRule | None, done: ImportedLabels) -> None:
    """Write the action of an import, then its file under the newest round; what is there is not written again."""
    rule = conflict if conflict != log.conflict else None
    if not done.again or rule:
        action = LabelAction(
            action="import",
            at=_text(now_after(log)),
            file=file.name,
            source=(file.source or file.place)[-200:],
            annotator=file.annotator,
            conflict=rule,
            numbers_are_classes=file.classes is not None if run.spec.model.classes else None,
            overruled=done.overruled,
            num_overruled=done.num_overruled,
        )
        write_action(run, action)
    if not log.is_kept(file.name):
        keep_file(run, done.round, done.file, file.data)


def _classes_by_number(model: ModelSpec, asked: bool | None, log: LabelLog) -> Sequence[str] | None:
    """The classes that numbers in a new file stand for, by their indexes; None if numbers are no classes."""
    refusal = None
    if asked and model.task == "regression":
        refusal = "labels of a regression are values"
    elif asked and model.classes and have_numbers_for_names(tuple(model.classes)):
        refusal = "a class has a number for its name, so that numbers are names"
    if refusal:
        raise SpecError(f"--numbers-are-classes: {refusal}; leave it out")
    return model.classes if asked or (asked is None and log.numbers_are_classes) else None


def _labels_beside(log: LabelLog, file: Returned) -> Iterator[Label]:
    """Yield the labels so far, without those of the same file if it came without a name and now comes with one."""
    if any(part is file for part in log.returned):
        return log.labels()
    others = tuple(part for part in log.returned if part.name != file.name or part.annotator is not None)
    return replace(log, returned=others).labels()


def correct(run: Run, id: str, label: str, annotator: str) -> LabelAction:
    """Say what an example is, whatever was said before: its earlier answers are kept and do not count.

    Raises
    ------
    LabelError
        The example was not selected, or the text is neither a label nor "can't tell".
    """
    log = read_log(run)
    name, now = checked_annotator(annotator), now_after(log)
    if id not in chosen_ids(run):
        raise LabelError(f"{quoted(id)} was not selected in {run.uri}; `opacc labels list` has the ids")
    fields = {"id": id, "label": label, "annotator": name, "labelled_at": _text(now), "run": run.name}
    data = json.dumps(fields, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
    model = run.spec.model
    read = reading_by(model, run.num_classes, numbers_are_classes=log.numbers_are_classes)
    overruled = _corrected(answers_of(run, log, id), _correction(data, read), read)
    action = LabelAction(
        action="correct",
        at=_text(now),
        file=name_of_labels("correction.jsonl", data),
        annotator=name,
        ids=[id],
        numbers_are_classes=log.numbers_are_classes if model.classes else None,
        overruled=overruled[:LISTED],
        num_overruled=len(overruled),
    )
    write_action(run, action)
    keep_file(run, run.rounds()[-1], "correction.jsonl", data)
    return action


def _correction(data: bytes, read: Callable[[str, str], str]) -> Label:
    """The one label of a correction, in canonical form; raises LabelError if it says nothing, or is no label."""
    (row,) = parse(data, "the correction")
    if row.status == "blank":
        raise LabelError(f"{quoted(row.id)} is corrected to nothing: give a label, or ? if nobody can tell")
    return row if row.label is None else row._replace(label=read(row.id, row.label))


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


def withdraw(run: Run, what: str) -> WithdrawnLabels:
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
    chosen = chosen_ids(run)
    standing = [file for file in log.returned if not file.withdrawn]
    files = sorted({file.name for file in standing if what in _names(file)})
    if len(files) + (what in chosen) > 1:
        names = few([*files, *(["an id"] if what in chosen else [])])
        raise LabelError(f"{quoted(what)} could be {names}; give a file by the name that it is kept under")
    ids = [what] if what in chosen else []
    if ids and all(item.state == "withdrawn" for item in answers_of(run, log, what)):
        raise LabelError(f"{quoted(what)} has no label in {run.uri} that could be withdrawn")
    if not ids and not files:
        raise LabelError(
            f"{quoted(what)} is no selected id and no file of labels of {run.uri}; see `opacc labels list`"
        )
    concerned = [file for file in standing if ids or file.name in files]
    answers = Counter(
        row.id
        for file in concerned
        for row in file.labels()
        if row.status != "blank" and file.is_standing(row.id) and (not ids or row.id == what)
    )
    action = LabelAction(action="withdraw", at=_text(now_after(log)), file=files[0] if files else None, ids=ids)
    write_action(run, action)
    return _withdrawn(run, action, concerned[0], answers)


def _withdrawn(run: Run, action: LabelAction, file: Returned, answers: Counter[str]) -> WithdrawnLabels:
    """What a withdrawal did, with the rounds after it as far as their labels can be counted."""
    log, tracks, unread = read_log(run), read_tracks(run), None
    rounds = report.answered_rounds(tracks, answers.keys())
    first = {item.track: item.round for item in reversed(rounds)}
    try:
        now = report.rounds_now(tracks, join_labels(tracks, log.labels(), log.conflict), log.score, rounds)
    except LabelError as error:  # the withdrawal holds, and the rest is to be settled
        now, unread = [], str(error)
    return WithdrawnLabels(
        run=run.uri,
        at=action.at,
        file=action.file,
        source=(file.source or file.place) if action.file else None,
        id=action.ids[0] if action.ids else None,
        labels=answers.total(),
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


def _text(time: datetime) -> str:
    return time.isoformat(timespec="microseconds")
