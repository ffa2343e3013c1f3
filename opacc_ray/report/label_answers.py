"""What answers about labels tell people: files, answers, annotators."""

import re
import shlex
from collections.abc import Mapping, Sequence

from opacc_ray.audit.status import status, step_of
from opacc_ray.errors import OpaccError, counted
from opacc_ray.labels.desk import LabelSession
from opacc_ray.labels.formats import few, quoted
from opacc_ray.labels.label_actions import AnswerList, ImportedLabels, WithdrawnLabels
from opacc_ray.report.answers import next_step
from opacc_ray.report.facts import Column, Fact, Line, Table, facts, next_fact, round_table, warned
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_names import short_name


def imported(document: ImportedLabels, run: Run) -> list[Line]:
    """Describe an imported file, the rounds after it, and the command to run next."""
    step = step_of(run, document.rounds)
    if step == ["label"]:  # whoever imports one file will import the next one
        step = ["labels import", "FILE"]
    names = [f"{quoted(name)} is {quoted(id)}" for name, id in document.names.items()]
    lines: list[Line] = [_taken(document), round_table(document.rounds, method=False)]
    lines += facts(("names", few(names, most=2)))
    if document.left_out:
        lines += facts(("left out", f"{counted(document.left_out, 'row')} of other examples"))
    if document.unknown:
        lines += facts(("not in pool", f"{counted(document.unknown, 'row')}, left out"))
    lines += warned(document.notes)
    if num := document.num_overruled:
        texts = [
            f"{quoted(item.id)}: {quoted(item.label)} of {_who(item.annotator)} ({item.place}) by "
            f"{_label(item.by_label)} of {_who(item.by_annotator)}"
            for item in document.overruled[:5]
        ]
        more = f", and {num - len(texts)} more: see `opacc labels list`" if num > len(texts) else ""
        lines += facts(("overruled", f"{counted(num, 'answer')}: {'; '.join(texts)}{more}"))
    return [*lines, next_step(step[0], run.uri, *step[1:])]


def _taken(document: ImportedLabels) -> Fact:
    name, labels = document.file.rpartition("/")[2], counted(document.labels, "label")
    if document.again:
        return Fact(name, f"nothing new: imported before, {labels}{_for(document.answers)}")
    unsure = f", {document.cant_tell} can't tell" if document.cant_tell else ""
    who = f" ({few([_who(name) for name in document.annotators])})" if document.annotators else ""
    blank = document.rows - document.labels - document.cant_tell
    rows = f", {counted(document.rows, 'row')}" if blank else ""
    if not document.labels + document.cant_tell:
        return Fact(name, f'no label taken: the column "label" of {counted(document.rows, "row")} is empty', "result")
    places = "" if len(document.answers) == 1 else _for(document.answers)
    return Fact(name, f"{labels} taken{who}{unsure}{rows}{places}", "result")


def _for(answers: Mapping[int, int]) -> str:
    """Return which rounds some labels answer, with the number of each if there are several."""
    if len(answers) == 1:
        return f", for round {min(answers)}"
    texts = [f"{num} for round {number}" for number, num in answers.items()]
    return f": {few(texts, most=10)}" if texts else ""


def withdrawn(document: WithdrawnLabels) -> list[Line]:
    """Describe labels that were withdrawn, and the rounds after it."""
    name = f"{document.source} (kept as {document.file})" if document.source else document.file
    what = quoted(document.id) if document.id is not None else str(name)
    later = [*map(str, document.drawn_later)]
    kept = f"round{'s' * (len(later) > 1)} {few(later, most=10)} used them to choose examples; the choice stays"
    unread = f"the rounds cannot be counted yet: {document.unread}"
    unsure = f", {document.cant_tell} can't tell," if document.cant_tell else ""
    labels = f"{counted(document.labels - document.cant_tell, 'label')}{unsure} of {what}{_for(document.answers)}"
    return [
        *facts(("withdrawn", f"{labels}; kept in the log, ignored from now on")),
        *([round_table(document.rounds, method=False)] if document.rounds else []),
        *facts(("later", kept if later else None), ("rounds", unread if document.unread is not None else None)),
    ]


def answers(document: AnswerList) -> list[Line]:
    """Describe every answer in a table, and the rule for labels that differ."""
    names = "example", "label", "annotator", "time", "state", "from"
    rows = [
        (
            quoted(item.id),
            _label(item.label),
            _who(item.annotator),
            (item.labelled_at or item.imported_at or "")[:16].replace("T", " "),
            item.state + " (correction)" * item.correction,
            item.place + (f" ({item.source})" if item.source else ""),
        )
        for item in document.answers
    ]
    return [
        Table([Column(name) for name in names], rows),
        f"{counted(len(rows), 'answer')}; rule for labels that differ: {document.conflict}",
    ]


def session(document: LabelSession, run: Run | None) -> list[Line]:
    """Describe the answers that the labelling page saved, and the command to run next; None: it served an output."""
    name = short_name(document.run) if run else "RUN of each run"
    see = f"see opacc labels list {name}, and opacc labels correct"
    differ = f"{counted(document.different, 'example')} have answers that differ: {see}"
    saved = f"{counted(document.saved, 'answer')}; {document.done} of {document.total} done"
    return [
        *facts(("saved", saved)),
        *warned([differ] if document.different else []),
        after(run) if run else next_step("label" if document.done < document.total else "runs list", document.run),
    ]


def after(run: Run) -> Fact:
    """Return the command to run next, as the run is now."""
    step = status(run, with_warnings=False).step
    return next_step(step[0], run.uri, *step[1:])


def carried_to(run: Run, id: str, verb: str, *rest: str) -> Sequence[Line]:
    """Name the later runs that carry a label, and the commands that change it there as well."""
    from opacc_ray.audit.carried_labels import carried_to as later_runs  # which labels list does not go through

    try:
        later = later_runs(run, id)
    except OpaccError as error:
        return warned([f"which later runs carry the label is not known: {error}"])
    if not later:
        return []
    told = f"{counted(len(later), 'later run')} {'carries' if len(later) == 1 else 'carry'} the label as it was"
    steps = [next_fact("opacc labels", verb, short_name(own.uri), shlex.join(rest)) for own in later]
    return [Fact("note", f"{told}; {verb} it there as well"), *steps]


def _who(annotator: str | None) -> str:
    """Return the name of an annotator, in quotes where it could be taken for something else."""
    if annotator is None:
        return "unknown"
    is_plain = annotator != "unknown" and re.fullmatch(r"[\w.@+ -]{1,60}", annotator)
    return annotator if is_plain else quoted(annotator)


def _label(text: str | None) -> str:
    return "can't tell" if text is None else quoted(text)
