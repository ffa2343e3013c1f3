"""The documents of labels: what was done with them, what that changed, and who said what when.

| document | where |
|---|---|
| :class:`LabelAction` | ``labels/TIME-DIGEST.json``, answer of `opacc labels correct` and `rule` |
| :class:`WithdrawnLabels` | answer of `opacc labels withdraw` |
| :class:`ImportedLabels` | answer of `opacc labels import` |
| :class:`AnswerList` | answer of `opacc labels list` |
| :class:`LabellingTasks` | answer of `opacc manifest` |
| :class:`LabelAgreement` | answer of `opacc labels agreement` |
| :class:`ExportedLabels` | answer of `opacc labels export` |
"""

from typing import ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.runs.estimate_documents import ChangedObjects, RoundCounts
from opacc_ray.runs.run_documents import UnusedRows
from opacc_ray.spec import ConflictRule, ScoreSpec


class Overruling(Part):
    """An answer that does not count, and one that counts instead."""

    id: str = Field(description="the example")
    label: str = Field(description="the answer that does not count")
    annotator: str | None = Field(description="who gave it, if that is known")
    place: str = Field(description="file and line of it")
    by_label: str | None = Field(description="what counts instead; null: that nobody can tell")
    by_annotator: str | None = Field(description="who said so, if that is known")
    by_place: str | None = Field(description="file and line of that")


class LabelAction(Document):
    """One thing that was done with the labels of a run, in the order of ``at``; none is ever changed or removed."""

    remedy: ClassVar[str] = "restore it"

    format: Literal["opacc-label-action/1"] = Field(
        default="opacc-label-action/1", description="name and version of this form"
    )
    action: Literal["import", "correct", "withdraw", "rule", "spec"] = Field(
        description="a file came back; a label was corrected; labels were withdrawn; a rule was set by a command, "
        "or by an edited spec"
    )
    at: str = Field(description="when: ISO 8601, UTC")
    file: str | None = Field(default=None, description="the file of labels, by the name that it is kept under")
    source: str | None = Field(default=None, description="the name that the file had")
    annotator: str | None = Field(
        default=None, description="who gave the labels, in the importer's word; null: as the file says"
    )
    ids: list[str] = Field(default=[], description="the examples that were corrected or withdrawn")
    conflict: ConflictRule | None = Field(default=None, description="the rule from then on; null: as before")
    score: ScoreSpec | None = Field(default=None, description="the score from then on; null: as before")
    overlap: float | None = Field(
        default=None, ge=0, le=1, description="share of examples that two people label, from then on; null: as before"
    )
    numbers_are_classes: bool | None = Field(
        default=None,
        description="whether numbers in the file are indexes of classes that have names; of a spec: in files from then "
        "on; null: as before, and in a file, that it was written before that was asked: they are",
    )
    overruled: list[Overruling] = Field(default=[], description="answers overruled by it or in it, the first ones")
    num_overruled: int = Field(default=0, ge=0, description="how many answers were overruled by it or in it")


class Votes(Part):
    """How many examples an annotator answered in a file."""

    annotator: str | None = Field(description="who; null: the file does not say")
    file: str = Field(description="the file")
    labels: int = Field(ge=0, description="examples with a label of theirs")


class RenamedRows(Part):
    """Rows of a file that name another annotator than the importer does."""

    annotator: str | None = Field(description="whom the rows name; null: somebody else than the first hundred")
    rows: int = Field(ge=1, description="how many")


class RoundOfTrack(Part):
    """Which round."""

    track: str | None = Field(description="the track of the round; null: the first one")
    round: int = Field(ge=1, description="the round")


class AnsweredRound(RoundOfTrack):
    """How many examples of a round some labels answer; an example of two rounds is counted in both."""

    examples: int = Field(ge=1, description="its examples with an answer there, can't tell included")


class TrackRound(RoundCounts):
    """A round of a track in numbers."""

    track: str | None = Field(description="the track; null: the first one")


class ClassNumber(Part):
    """A number that labels give instead of a class's name."""

    number: int = Field(ge=0, description="the index of the class, counted from 0")
    name: str | None = Field(description="the class that it is read as; null: classes have no names")
    labels: int = Field(ge=1, description="labels with that number")


class ImportedLabels(Document, RoundCounts):
    """A file of labels that was taken back, and the newest round after it."""

    format: Literal["opacc-import/1"] = Field(default="opacc-import/1", description="name and version of this form")
    file: str = Field(description="the file")
    rows: int = Field(ge=0, description="rows in the file, unanswered ones included")
    labels: int = Field(default=0, ge=0, description="examples with a label in the file")
    cant_tell: int = Field(default=0, ge=0, description="examples of which the file says can't tell, and no label")
    annotators: list[str] = Field(default=[], description="who answers in the file, the first hundred names")
    answers: list[AnsweredRound] = Field(default=[], description="which rounds the file answers")
    rounds: list[TrackRound] = Field(
        default=[], description="the rounds that the file answers, and those of the track that wait for labels"
    )
    again: bool = Field(description="whether the same file came back before, so that nothing changed")
    came_before: str | None = Field(default=None, description="when it did: ISO 8601, UTC; null: not, or not known")
    withdrawn: str | None = Field(
        default=None, description="when the labels of the same file were withdrawn, which count again now; null: never"
    )
    stay_withdrawn: int = Field(
        default=0, ge=0, description="examples of the file whose labels were withdrawn one by one, and stay so"
    )
    class_numbers: list[ClassNumber] = Field(
        default=[], description="classes that the file names by numbers, the first hundred"
    )
    class_names: int = Field(default=0, ge=0, description="labels that are names, in a file that has numbers as well")
    annotator: str | None = Field(description="who gave the labels, in the importer's word; null: as the file says")
    renamed: list[RenamedRows] = Field(description="rows whose own annotator the importer's word replaced")
    undated: int = Field(default=0, ge=0, description="rows whose `labelled_at` is no time in ISO 8601")
    first_undated: str | None = Field(default=None, description="what the first of them says instead")
    ahead: int = Field(
        default=0, ge=0, description="rows whose `labelled_at` has no offset and, read as UTC, is yet to come"
    )
    first_ahead: str | None = Field(default=None, description="what the first of them says")
    conflict: ConflictRule = Field(description="the rule of the run where labels differ")
    not_used: list[UnusedRows] = Field(description="rows for examples that were given up")
    votes: list[Votes] = Field(description="labels per annotator and file, over all files")
    overruled: list[Overruling] = Field(description="answers overruled by this file or in it, the first ones")
    num_overruled: int = Field(ge=0, description="how many answers were overruled by this file or in it")


class WithdrawnLabels(Document):
    """Labels that were withdrawn, and the rounds after it."""

    format: Literal["opacc-withdrawn/1"] = Field(
        default="opacc-withdrawn/1", description="name and version of this form"
    )
    run: str = Field(description="URI of the run")
    at: str = Field(description="when: ISO 8601, UTC")
    file: str | None = Field(description="the file, by the name that it is kept under; null: the labels of an example")
    source: str | None = Field(description="the name that the file had, if that is known")
    id: str | None = Field(description="the example; null: a file")
    labels: int = Field(ge=0, description="answers that count no longer, can't tell included")
    answers: list[AnsweredRound] = Field(description="which rounds they answered")
    rounds: list[TrackRound] = Field(description="these rounds now, empty if their labels cannot be counted")
    drawn_later: list[RoundOfTrack] = Field(description="rounds that were drawn after them, and stay as drawn")
    unread: str | None = Field(default=None, description="why the labels of the rounds cannot be counted now")


class Answered(Part):
    """What one person said of one example in one place."""

    id: str = Field(description="the example")
    label: str | None = Field(description="the label as it was written, a class number as its name; null: can't tell")
    annotator: str | None = Field(description="who, if that is known")
    labelled_at: str | None = Field(description="when, if the file says so")
    imported_at: str | None = Field(description="when the file came back, if that is known")
    file: str = Field(description="the file, by the name that it is kept under")
    source: str | None = Field(description="the name that the file had, if that is known")
    place: str = Field(description="file and line")
    correction: bool = Field(description="whether it corrects what was said before")
    state: Literal["counts", "in conflict", "overruled", "withdrawn", "no label"] = Field(
        description="whether it is the result; no label: it names no class, or no number"
    )


class AnswerList(Document):
    """Who said what when."""

    format: Literal["opacc-answers/1"] = Field(default="opacc-answers/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    conflict: ConflictRule = Field(description="the rule of the run where labels differ")
    answers: list[Answered] = Field(description="every answer, by example and then in the order in which they came")


class PairOfAnnotators(Part):
    """Two annotators on the examples that both answered."""

    first: str = Field(description="one of them")
    second: str = Field(description="the other")
    examples: int = Field(ge=1, description="examples that both answered")
    agree: int = Field(ge=0, description="examples on which they say the same")
    kappa: float | None = Field(description="Cohen's kappa; null where it is not defined, and for numbers")


class LabelAgreement(Document):
    """How far annotators agree, beyond what chance would give."""

    format: Literal["opacc-agreement/1"] = Field(
        default="opacc-agreement/1", description="name and version of this form"
    )
    run: str = Field(description="URI of the run")
    examples: int = Field(ge=0, description="examples that two or more named annotators answered")
    alpha: float | None = Field(description="Krippendorff's alpha; null where it is not defined")
    scale: Literal["nominal", "interval"] = Field(description="what alpha takes labels for: classes, or numbers")
    pairs: list[PairOfAnnotators] = Field(description="each two annotators with examples in common, by name")


class ExportedLabels(Document):
    """Labelled examples, as another tool opens them."""

    format: Literal["opacc-export-labels/1"] = Field(
        default="opacc-export-labels/1", description="name and version of this form"
    )
    run: str = Field(description="URI of the run")
    tool: str = Field(description="the tool")
    folder: str = Field(description="where the files lie")
    examples: int = Field(ge=0, description="labelled examples in it")


class AnnotatorShare(Part):
    """How many examples an annotator is given."""

    annotator: str = Field(description="who")
    examples: int = Field(ge=0, description="how many")


class LabellingTasks(Document):
    """A round as a labelling tool is given it."""

    format: Literal["opacc-tasks/1"] = Field(default="opacc-tasks/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    round: int = Field(ge=1, description="the round")
    tool: str = Field(description="the tool")
    folder: str = Field(description="where the files lie, copies of images among them")
    files: list[str] = Field(description="URIs of tasks and configurations")
    examples: int = Field(ge=0, description="examples to label")
    images: Literal["links", "copies", "thumbnails", "addresses"] = Field(
        description="how images reach annotators: links that expire, copies, pictures inside the tasks, or plain URIs"
    )
    links_end: str | None = Field(description="when the links expire: ISO 8601, UTC; null without links")
    twice: int = Field(ge=0, description="examples that two people are given")
    annotators: list[AnnotatorShare] = Field(description="the share of each; empty: everybody labels the same tasks")
    objects: ChangedObjects | None = Field(
        default=None, description="which objects of its examples changed since extraction: annotators see others"
    )
