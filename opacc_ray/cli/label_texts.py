"""Documents about labels as people read them on a terminal."""

from collections.abc import Sequence
from shlex import quote

from opacc_ray.cli.printable import printable_line
from opacc_ray.cli.texts import changed
from opacc_ray.errors import counted
from opacc_ray.labelling.messages import few, quoted
from opacc_ray.labelpage.serving import LabelSession
from opacc_ray.labels.documents import (
    AnswerList,
    ImportedLabels,
    LabelAction,
    LabelAgreement,
    LabellingTasks,
    Overruling,
)


def imported(document: ImportedLabels) -> str:
    """A file of labels that was taken back."""
    lines = [
        f"{document.labelled} labelled, {document.missing} missing, {document.unsure} can't tell "
        f"({document.rows} rows read from {printable_line(document.file)})"
    ]
    lines += [
        f"{item.rows} rows answer examples that were given up when round {item.round}{_of(item.track)} was closed and "
        "are not used"
        for item in document.not_used
    ]
    if document.again:
        lines.append("the same file came back before, so nothing changed")
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
    votes = [f"{_who(item.annotator)} {item.labels} ({printable_line(item.file)})" for item in document.votes]
    if len({item.annotator for item in document.votes}) > 1 or document.num_overruled:
        lines.append(f"labels by {few(votes, most=10)}")
    return "\n".join([*lines, *_overruled(document.overruled, document.num_overruled)])


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
        lines.append(f"expires    the links do, {document.links_end} at the latest; write the tasks to another folder for new ones")
    lines += changed(document.objects)
    return "\n".join([*lines, f"next       label them, then: opacc labels import {quote(document.run)} FILE"])


def action(document: LabelAction) -> str:
    """One thing that was done with labels."""
    lines = [_what(document)]
    return "\n".join([*lines, *_overruled(document.overruled, document.num_overruled)])


def _what(document: LabelAction) -> str:
    if document.action == "rule":
        return f"where labels differ: {document.conflict}"
    what = quoted(document.ids[0]) if document.ids else f"the file {document.file}"
    if document.action == "withdraw":
        return f"withdrawn: the labels of {what}; they are kept and do not count"
    return f"corrected: {what}, by {_who(document.annotator)}"


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
