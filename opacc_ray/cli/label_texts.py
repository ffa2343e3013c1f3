"""Documents about labels as people read them on a terminal."""

from collections.abc import Sequence
from datetime import datetime
from shlex import quote
from typing import Any

from opacc_ray.cli.printable import printable_line
from opacc_ray.cli.texts import changed
from opacc_ray.errors import counted
from opacc_ray.labels.documents import (
    AnsweredRound,
    AnswerList,
    ImportedLabels,
    LabelAction,
    LabelAgreement,
    LabellingTasks,
    Overruling,
    TrackRound,
    WithdrawnLabels,
)
from opacc_ray.labels.messages import few, quoted
from opacc_ray.labels.page.serving import LabelSession
from opacc_ray.runs.documents import RoundCounts


def imported(document: ImportedLabels) -> str:
    """A file of labels that was taken back, and how the rounds stand."""
    lines = [_taken(document), *_rounds(document.rounds or [TrackRound(track=None, **_counts(document))])]
    lines += [
        f"{item.rows} rows answer examples that were given up when round {item.round}{_of(item.track)} was closed and "
        "are not used"
        for item in document.not_used
    ]
    lines += _numbers(document)
    lines += [
        f"{item.rows} rows name {_who(item.annotator)} as their annotator; they count as {quoted(who)}'s"
        for item in document.renamed
        if (who := document.annotator) is not None
    ]
    if document.first_undated is not None:
        lines.append(
            f"labelled_at is no time in {counted(document.undated, 'row')}, such as {quoted(document.first_undated)}, "
            "and counts as empty there: write 2026-01-31T10:00:00"
        )
    if document.first_ahead is not None:
        lines.append(
            f"labelled_at has no offset in {counted(document.ahead, 'row')}, such as {quoted(document.first_ahead)}, "
            "and read as UTC it is yet to come: write local times with their offset, 2026-01-31T10:00:00+09:00"
        )
    votes = [f"{_who(item.annotator)} {item.labels} ({printable_line(item.file)})" for item in document.votes]
    if len({item.annotator for item in document.votes}) > 1 or document.num_overruled:
        lines.append(f"labels by {few(votes, most=10)}")
    return "\n".join([*lines, *_overruled(document.overruled, document.num_overruled)])


def _taken(document: ImportedLabels) -> str:
    """What happened to the file."""
    unsure = f" and {document.cant_tell} can't tell" * bool(document.cant_tell)
    said = f"{counted(document.labels, 'label')}{unsure}"
    rounds = _for(document.answers)
    name = printable_line(document.file)
    if document.again:
        before = f" on {_moment(document.came_before)}" if document.came_before else ""
        num = document.stay_withdrawn
        stay = f"; the labels of {counted(num, 'example')} were withdrawn one by one and stay so" * bool(num)
        return f"taken      nothing new: the same file came back before{before}, {said}{rounds} ({name}){stay}"
    blank = f" ({counted(document.rows, 'row')})" * (document.rows != document.labels + document.cant_tell)
    by = f" by {few([quoted(who) for who in document.annotators])}" if document.annotators else ""
    again = f"; withdrawn on {_moment(document.withdrawn)}, they count again" if document.withdrawn else ""
    return f"taken      {said} of {name}{blank}{by}{rounds}{again}"


def _for(answers: Sequence[AnsweredRound]) -> str:
    """Which rounds labels answer; with how many each if there are several."""
    several = len(answers) > 1
    names = [f"{item.examples} for " * several + f"round {item.round}{_of(item.track)}" for item in answers]
    return ("" if not names else ": " if several else " for ") + few(names, most=10)


def _rounds(rounds: Sequence[TrackRound]) -> list[str]:
    lines = []
    for item in rounds:
        others = [("missing", item.missing), ("can't tell", item.unsure), ("given up", item.given_up)]
        said = [f"{num} {what}" for what, num in others if num]
        name = f"round {item.round}{_of(item.track)}"
        lines.append(f"{name:<10} {', '.join([f'{item.labelled} of {item.budget} labelled', *said])}")
    return lines


def _counts(document: RoundCounts) -> dict[str, Any]:
    return {name: getattr(document, name) for name in RoundCounts.model_fields}


def _numbers(document: ImportedLabels) -> list[str]:
    """How numbers were read as classes, and whether they seem to be counted from 1."""
    found, num = document.class_numbers, sum(item.labels for item in document.class_numbers)
    lines = []
    if any(item.name is not None for item in found):
        read = few([f"{item.number} = {quoted(item.name or '')} ({item.labels})" for item in found], most=10)
        mixed = f"; {counted(document.class_names, 'other label')} are names" * bool(document.class_names)
        lines.append(f"numbers    {counted(num, 'label')} are class numbers, counted from 0: {read}{mixed}")
    if len(found) > 1 and found[0].number:
        lines.append(
            f"numbers    no label is 0, the first class, among {num}: are classes counted from 1 in this file? Then "
            "withdraw it, and count from 0"
        )
    return lines


def withdrawn(document: WithdrawnLabels) -> str:
    """Labels that were withdrawn, and how the rounds stand."""
    name = f"{document.source} (kept as {document.file})" if document.source else document.file
    what = quoted(document.id) if document.id is not None else printable_line(str(name))
    said = f"{counted(document.labels, 'label')} of {what}{_for(document.answers)}"
    lines = [f"withdrawn  {said}; they stay in the log and count no longer", *_rounds(document.rounds)]
    later = [f"{item.round}{_of(item.track)}" for item in document.drawn_later]
    if later:
        s, were, they, stay = ("s", "were", "they", "stay") if len(later) > 1 else ("", "was", "it", "stays")
        lines.append(
            f"later      round{s} {few(later, most=10)} {were} drawn while they counted; {they} {stay} as drawn"
        )
    if document.unread is not None:
        lines.append(f"rounds     cannot be counted yet: {document.unread}")
    return "\n".join(lines)


def _moment(text: str) -> str:
    """A time of the log, in minutes."""
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M UTC")


def answers(document: AnswerList) -> str:
    """Who said what when, one line for each answer."""
    rows = [
        (
            quoted(item.id),
            "can't tell" if item.label is None else quoted(item.label),
            _who(item.annotator),
            printable_line(item.labelled_at or item.imported_at or ""),
            item.state + (" (correction)" if item.correction else ""),
            printable_line(item.place + (f" ({item.source})" if item.source else "")),
        )
        for item in document.answers
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, f"{len(rows)} answers; where labels differ: {document.conflict}"])


def agreement(document: LabelAgreement) -> str:
    """How far annotators agree."""
    known = "not defined" if document.alpha is None else f"{document.alpha:.3f} ({document.scale})"
    lines = [f"examples   {document.examples} with two opinions or more", f"alpha      {known}"]
    for pair in document.pairs:
        kappa = "" if pair.kappa is None else f", kappa {pair.kappa:.3f}"
        names = f"{quoted(pair.first)} and {quoted(pair.second)}"
        lines.append(f"pair       {names} agree on {pair.agree} of {pair.examples}{kappa}")
    return "\n".join(lines)


def session(document: LabelSession) -> str:
    """What came in over the labelling page."""
    lines = [f"saved      {document.saved} answers; {document.done} of {document.total} wanted are there"]
    if document.different:
        lines.append(
            f"differ     {document.different} examples have answers that differ: see opacc labels list {document.run}, "
            "and opacc labels correct"
        )
    return "\n".join(lines)


def tasks(document: LabellingTasks) -> str:
    """What a tool is given, and what to do next."""
    given = ", ".join(f"{item.annotator} {item.examples}" for item in document.annotators)
    what = f"{document.examples} of round {document.round} for {document.tool}, images as {document.images}"
    lines = [f"run        {document.run}", f"tasks      {what}"]
    lines += [f"file       {uri}" for uri in document.files]
    if given:
        lines.append(f"given to   {given}; {document.twice} examples to two people")
    if document.links_end:
        lines.append(
            f"expires    {document.links_end}, at the latest: for new links, write the tasks to another folder"
        )
    lines += changed(document.objects)
    return "\n".join([*lines, f"next       label them, then: opacc labels import {quote(document.run)} FILE"])


def action(document: LabelAction) -> str:
    """One thing that was done with labels."""
    lines = [_what(document)]
    return "\n".join([*lines, *_overruled(document.overruled, document.num_overruled)])


def _what(document: LabelAction) -> str:
    if document.action == "rule":
        return f"where labels differ: {document.conflict}"
    return f"corrected: {quoted(document.ids[0])}, by {_who(document.annotator)}"


def _overruled(listed: Sequence[Overruling], num: int) -> list[str]:
    """Who overruled whom."""
    if not num:
        return []
    said = [
        f"{quoted(item.id)}: {quoted(item.label)} of {_who(item.annotator)} ({item.place}) by "
        f"{_label(item.by_label)} of {_who(item.by_annotator)}"
        for item in listed
    ]
    rest = num - min(num, len(said), 5)
    more = f", and {rest} more: see `opacc labels list`" if rest else ""
    return [f"{counted(num, 'answer')} overruled: {printable_line('; '.join(said[:5]))}{more}"]


def _of(track: str | None) -> str:
    return "" if track is None else f" of track {track}"


def _who(annotator: str | None) -> str:
    return "somebody" if annotator is None else quoted(annotator)


def _label(text: str | None) -> str:
    return "can't tell" if text is None else quoted(text)
