"""The facts that commands print about labels: files, answers, annotators, tasks."""

import re
import shlex
from collections.abc import Sequence

from opacc_ray.audit.next_step import step_of
from opacc_ray.audit.sanity import predicted_by
from opacc_ray.audit.status import status
from opacc_ray.cli.command import short_name
from opacc_ray.cli.terminal import NEXT
from opacc_ray.cli.texts import changed, next_step
from opacc_ray.errors import OpaccError, counted
from opacc_ray.labels.label_documents import (
    AnsweredRound,
    AnswerList,
    ImportedLabels,
    LabelAction,
    LabelAgreement,
    LabellingTasks,
    LabelSession,
    Overruling,
    TrackRound,
    WithdrawnLabels,
)
from opacc_ray.labels.label_rows import few, quoted
from opacc_ray.report.facts import Column, Fact, Line, Table, facts, minute, round_table, warned
from opacc_ray.runs.estimate_documents import RoundCounts
from opacc_ray.runs.run import Run


def imported(document: ImportedLabels, run: Run) -> list[Line]:
    """Describe an imported file, the rounds after it, and the command to run next."""
    counts = {name: getattr(document, name) for name in RoundCounts.model_fields}
    rounds = document.rounds or [TrackRound(track=None, **counts)]
    step = step_of(run, rounds)
    if step == ["label"]:  # whoever imports one file will import the next one
        step = ["labels import", "FILE"]
    votes = [f"{_who(item.annotator)} {item.labels} ({item.file})" for item in document.votes]
    several = len({item.annotator for item in document.votes}) > 1 or document.num_overruled
    given_up = [
        ("not used", f"{counted(item.rows, 'row')} for examples given up in round {item.round}{_of(item.track)}")
        for item in document.not_used
    ]
    renamed = [
        ("renamed", f"{counted(item.rows, 'row')} by {_who(item.annotator)} count as {_who(document.annotator)}'s")
        for item in document.renamed
    ]
    return [
        _taken(document),
        round_table(rounds, method=False),
        *facts(("left out", f"{counted(document.left_out, 'row')} of other examples" if document.left_out else None)),
        *facts(("not in pool", f"{counted(document.unknown, 'row')}, left out" if document.unknown else None)),
        *facts(*given_up),
        *_numbers(document, run),
        *facts(*renamed),
        *warned(_times(document)),
        Fact("answers", _for(document.answers).lstrip(",: "), detail=True),
        *([Fact("labels by", few(votes, most=10), detail=True)] if several else []),
        *_overruled(document.overruled, document.num_overruled),
        next_step(step[0], run.uri, *step[1:], track=run.track),
    ]


def _times(document: ImportedLabels) -> list[str]:
    found = []
    if document.first_undated is not None:
        found.append(
            f"{counted(document.undated, 'row')} with a labelled_at that is no time, such as "
            f"{quoted(document.first_undated)}; it is ignored: write 2026-01-31T10:00:00"
        )
    if document.first_ahead is not None:
        found.append(
            f"{counted(document.ahead, 'row')} with a labelled_at without offset, such as "
            f"{quoted(document.first_ahead)}, which is in the future as UTC: write 2026-01-31T10:00:00+09:00"
        )
    return found


def _taken(document: ImportedLabels) -> Fact:
    name, labels = document.file.rpartition("/")[2], counted(document.labels, "label")
    if document.again:
        before = f" on {minute(document.came_before)}" if document.came_before else ""
        stay = counted(document.stay_withdrawn, "example")
        kept = f"; the labels of {stay} stay withdrawn" if document.stay_withdrawn else ""
        return Fact(name, f"nothing new: imported before{before}, {labels}{_for(document.answers)}{kept}")
    unsure = f", {document.cant_tell} can't tell" if document.cant_tell else ""
    who = f" ({few([_who(name) for name in document.annotators])})" if document.annotators else ""
    blank = document.rows - document.labels - document.cant_tell
    rows = f", {counted(document.rows, 'row')}" if blank else ""
    again = f"; withdrawn on {minute(document.withdrawn)}, they count again" if document.withdrawn else ""
    new = (
        f", {document.labels - document.as_before} new and {document.as_before} as before" if document.as_before else ""
    )
    if not document.labels + document.cant_tell:
        return Fact(name, f'no label taken: the column "label" of {counted(document.rows, "row")} is empty', "result")
    return Fact(name, f"{labels} taken{new}{who}{unsure}{rows}{_places(document.answers)}{again}", "result")


def _places(answers: Sequence[AnsweredRound]) -> str:
    """Return :func:`_for` where the labels do not answer one round of the main track, as they usually do."""
    return "" if len(answers) == 1 and answers[0].track is None else _for(answers)


def _for(answers: Sequence[AnsweredRound]) -> str:
    """Return which rounds some labels answer, with the number of each if there are several."""
    if len(answers) == 1:
        return f", for round {answers[0].round}{_of(answers[0].track)}"
    texts = [f"{item.examples} for round {item.round}{_of(item.track)}" for item in answers]
    return f": {few(texts, most=10)}" if texts else ""


def _numbers(document: ImportedLabels, run: Run) -> list[Fact]:
    """Describe how numbers were read as classes, and whether they seem to be counted from 1."""
    found, num = document.class_numbers, sum(item.labels for item in document.class_numbers)
    lines = []
    if any(item.name is not None for item in found):
        read = few([f"{item.number} = {quoted(item.name or '')} ({item.labels})" for item in found], most=10)
        mixed = f"; {counted(document.class_names, 'other label')} are names" if document.class_names else ""
        lines += facts(("numbers", f"{counted(num, 'label')} are class numbers, counted from 0: {read}{mixed}"))
    if len(found) > 1 and found[0].number and not _never_says_0(run):
        what = "If this file counts classes from 1, withdraw it, and count from 0"
        lines += warned([f"none of {num} labels is 0, the first class. {what}"])
    return lines


def _never_says_0(run: Run) -> bool:
    """Return whether predictions are numbers too, and none of them is 0: then labels count as they do."""
    said = predicted_by(run)
    classes = said.classes if said and run.spec.model.classes is None else {}
    return "0" not in (classes or ["0"])


def withdrawn(document: WithdrawnLabels) -> list[Line]:
    """Describe labels that were withdrawn, and the rounds after it."""
    name = f"{document.source} (kept as {document.file})" if document.source else document.file
    what = quoted(document.id) if document.id is not None else str(name)
    later = [f"{item.round}{_of(item.track)}" for item in document.drawn_later]
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


def agreement(document: LabelAgreement) -> list[Line]:
    """Describe how far annotators agree."""
    alpha = "not defined" if document.alpha is None else f"{document.alpha:.3f} ({document.scale})"
    rows = [
        (
            f"{_who(pair.first)}, {_who(pair.second)}",
            f"{pair.agree} of {pair.examples}",
            "–" if pair.kappa is None else f"{pair.kappa:.3f}",
        )
        for pair in document.pairs
    ]
    table = Table([Column("annotators"), Column("agree", "n"), Column("kappa", "n")], rows)
    shared = counted(document.examples, "example") + " with two opinions or more"
    return [*facts(("examples", shared), ("alpha", alpha)), *([table] if rows else [])]


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
    return next_step(step[0], run.uri, *step[1:], track=run.track)


def tasks(document: LabellingTasks) -> list[Line]:
    """Describe the tasks written for a tool, and the command to run next."""
    examples = f"{counted(document.examples, 'example')} of round {document.round}"
    images = [f"images as {document.images}"] if document.images else []
    columns = [f"with {', '.join(document.columns)}"] if document.columns else []
    what = ", ".join([f"{examples} for {document.tool}", *images, *columns])
    shares = ", ".join(f"{item.annotator} {item.examples}" for item in document.annotators)
    ends = f"{document.links_end} at the latest; for new links, write the tasks to another folder"
    return [
        *facts(
            ("tasks", what),
            *(("file", uri) for uri in document.files),
            ("shares", f"{shares}; {counted(document.twice, 'example')} go to two people" if shares else None),
            ("expires", ends if document.links_end else None),
        ),
        *changed(document.objects),
        next_step("labels import", document.run, "FILE"),
    ]


def action(document: LabelAction) -> list[Line]:
    """Describe one action on labels."""
    if document.action == "rule":
        done = facts(("rule", f"{document.conflict}, where labels differ"))
    else:
        done = facts(("corrected", f"{quoted(document.ids[0])} by {_who(document.annotator)}"))
    return [*done, *_overruled(document.overruled, document.num_overruled)]


def carried_to(run: Run, id: str, verb: str, *rest: str) -> Sequence[Line]:
    """Name the later runs that carry a label, and the commands that change it there as well."""
    from opacc_ray.audit.carried_labels import carried_to  # which labels list does not go through

    try:
        later = carried_to(run, id)
    except OpaccError as error:
        return warned([f"which later runs carry the label is not known: {error}"])
    if not later:
        return []
    told = f"{counted(len(later), 'later run')} {'carries' if len(later) == 1 else 'carry'} the label as it was"
    words = [f"opacc labels {verb} {short_name(own.uri)} {shlex.join(rest)}" for own in later]
    return [Fact("note", f"{told}; {verb} it there as well"), *(Fact(NEXT, own) for own in words)]


def _overruled(listed: Sequence[Overruling], num: int) -> list[Fact]:
    if not num:
        return []
    texts = [
        f"{quoted(item.id)}: {quoted(item.label)} of {_who(item.annotator)} ({item.place}) by "
        f"{_label(item.by_label)} of {_who(item.by_annotator)}"
        for item in listed[:5]
    ]
    rest = num - len(texts)
    more = f", and {rest} more: see `opacc labels list`" if rest else ""
    return facts(("overruled", f"{counted(num, 'answer')}: {'; '.join(texts)}{more}"))


def _of(track: str | None) -> str:
    return "" if track is None else f" of track {track}"


def _who(annotator: str | None) -> str:
    """Return the name of an annotator, in quotes where it could be taken for something else."""
    if annotator is None:
        return "unknown"
    is_plain = annotator != "unknown" and re.fullmatch(r"[\w.@+ -]{1,60}", annotator)
    return annotator if is_plain else quoted(annotator)


def _label(text: str | None) -> str:
    return "can't tell" if text is None else quoted(text)
