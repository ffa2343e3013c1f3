"""Documents about labels: actions in the log of a run, and what the commands about labels print."""

from typing import ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part, format_field
from opacc_ray.labels.label_rows import FormatName, Way
from opacc_ray.runs.estimate_documents import ChangedObjects, RoundCounts
from opacc_ray.runs.run_documents import UnusedRows
from opacc_ray.spec import ConflictRule, Guidance, ScoreSpec

AnswerState = Literal["counts", "in conflict", "overruled", "withdrawn", "no label"]


class Overruling(Part):
    """A label that does not count, and the one that counts instead."""

    id: str = Field(description="id of the example")
    label: str = Field(description="label that does not count")
    annotator: str | None = Field(description="its annotator, if known")
    place: str = Field(description="its file and line")
    by_label: str | None = Field(description="label that counts instead; null: can't tell")
    by_annotator: str | None = Field(description="its annotator, if known")
    by_place: str | None = Field(description="its file and line")


class LabelAction(Document):
    """One action on the labels of a run, in an entry of its log."""

    remedy: ClassVar[str] = "restore it"

    format: Literal["opacc-label-action/1"] = format_field("opacc-label-action/1")
    action: Literal["import", "correct", "withdraw", "rule", "spec"] = Field(
        description="a file was imported; a label was corrected; labels were withdrawn; a rule was set by a command, "
        "or by an edited spec"
    )
    at: str = Field(description="time in ISO 8601, UTC")
    file: str | None = Field(default=None, description="file of labels, by the name under which it is kept")
    file_format: FormatName | None = Field(
        default=None, description="format of the file; null: it is recognised by the content"
    )
    source: str | None = Field(default=None, description="own name of the file")
    annotator: str | None = Field(default=None, description="annotator named by the importer; null: as in the file")
    ids: list[str] = Field(default=[], description="examples that were corrected or withdrawn")
    conflict: ConflictRule | None = Field(default=None, description="new rule for labels that differ; null: unchanged")
    score: ScoreSpec | None = Field(default=None, description="new score of a regression; null: unchanged")
    overlap: float | None = Field(
        default=None, ge=0, le=1, description="new share of examples that two annotators label; null: unchanged"
    )
    numbers_are_classes: bool | None = Field(
        default=None,
        description="whether numbers in the file are indexes of classes that have names; of a spec: in files from then "
        "on; null: unchanged, and of a file: they are",
    )
    show: list[str] | None = Field(
        default=None, description="columns of rows that annotators see from then on; null: unchanged"
    )
    guidance: Guidance | None = Field(
        default=None, description="what annotators are asked and told from then on; null: unchanged"
    )
    overruled: list[Overruling] = Field(default=[], description="labels overruled by it or in it, the first hundred")
    num_overruled: int = Field(default=0, ge=0, description="number of labels overruled by it or in it")


class Votes(Part):
    """Number of examples that an annotator labelled in a file."""

    annotator: str | None = Field(description="annotator; null: not in the file")
    file: str = Field(description="name of the file")
    labels: int = Field(ge=0, description="examples with a label by this annotator")


class RenamedRows(Part):
    """Rows of a file whose annotator differs from the one named by the importer."""

    annotator: str | None = Field(description="annotator in the rows; null: none of the first hundred")
    rows: int = Field(ge=1, description="number of rows")


class RoundOfTrack(Part):
    """A round of a track."""

    track: str | None = Field(description="track; null: the main one")
    round: int = Field(ge=1, description="number of the round")


class AnsweredRound(RoundOfTrack):
    """Number of examples of a round that are answered; an example of two rounds is counted in both."""

    examples: int = Field(ge=1, description="answered examples, can't tell included")


class TrackRound(RoundCounts):
    """A round of a track in numbers."""

    track: str | None = Field(description="track; null: the main one")


class ClassNumber(Part):
    """A class index used as a label."""

    number: int = Field(ge=0, description="index of the class, from 0")
    name: str | None = Field(description="name of the class; null: classes have no names")
    labels: int = Field(ge=1, description="labels with that number")


class ImportedLabels(Document, RoundCounts):
    """An imported file of labels, and the rounds after it; the fields of a round describe the newest one."""

    format: Literal["opacc-import/1"] = format_field("opacc-import/1")
    file: str = Field(description="name of the file")
    rows: int = Field(ge=0, description="rows in the file, unanswered ones included")
    labels: int = Field(default=0, ge=0, description="examples with a label in the file")
    cant_tell: int = Field(default=0, ge=0, description="examples that are answered by can't tell alone")
    as_before: int = Field(default=0, ge=0, description="labels that earlier files have too, by the same annotator")
    annotators: list[str] = Field(default=[], description="annotators in the file, the first hundred names")
    answers: list[AnsweredRound] = Field(default=[], description="rounds that the file answers")
    rounds: list[TrackRound] = Field(
        default=[], description="all rounds of the track, and the rounds of other tracks that the file answers"
    )
    again: bool = Field(description="whether the same file was imported before, so that nothing changed")
    came_before: str | None = Field(
        default=None, description="time of that import: ISO 8601, UTC; null: none or unknown"
    )
    withdrawn: str | None = Field(
        default=None, description="time at which the same file was withdrawn, which counts again now; null: never"
    )
    left_out: int = Field(default=0, ge=0, description="rows of examples that were not selected, which were left out")
    unknown: int = Field(default=0, ge=0, description="rows of ids that the pool lacks, which were left out too")
    stay_withdrawn: int = Field(
        default=0, ge=0, description="examples of the file whose labels were withdrawn one by one, and remain so"
    )
    class_numbers: list[ClassNumber] = Field(
        default=[], description="classes that the file names by numbers, the first hundred"
    )
    class_names: int = Field(default=0, ge=0, description="labels that are names, in a file that also has numbers")
    annotator: str | None = Field(description="annotator named by the importer; null: as in the file")
    renamed: list[RenamedRows] = Field(description="rows whose annotator was replaced by the importer's")
    undated: int = Field(default=0, ge=0, description="rows whose `labelled_at` is no time in ISO 8601")
    first_undated: str | None = Field(default=None, description="text of the first of them")
    ahead: int = Field(
        default=0, ge=0, description="rows whose `labelled_at` has no offset and, read as UTC, is in the future"
    )
    first_ahead: str | None = Field(default=None, description="text of the first of them")
    conflict: ConflictRule = Field(description="the run's rule for labels that differ")
    not_used: list[UnusedRows] = Field(description="rows for examples that were given up")
    votes: list[Votes] = Field(description="labels by annotator and file, over all files")
    overruled: list[Overruling] = Field(description="labels overruled by this file or in it, the first hundred")
    num_overruled: int = Field(ge=0, description="number of labels overruled by this file or in it")


class WithdrawnLabels(Document):
    """Withdrawn labels, and the rounds after the withdrawal."""

    format: Literal["opacc-withdrawn/1"] = format_field("opacc-withdrawn/1")
    run: str = Field(description="URI of the run")
    at: str = Field(description="time in ISO 8601, UTC")
    file: str | None = Field(description="file, by the name under which it is kept; null: the labels of an example")
    source: str | None = Field(description="own name of the file, if known")
    id: str | None = Field(description="id of the example; null: a file")
    labels: int = Field(ge=0, description="withdrawn answers, can't tell included")
    cant_tell: int = Field(default=0, ge=0, description="those of them that are can't tell")
    answers: list[AnsweredRound] = Field(description="rounds that they answered")
    rounds: list[TrackRound] = Field(
        description="all rounds of the track, and answered rounds of others; empty if labels are in conflict"
    )
    drawn_later: list[RoundOfTrack] = Field(description="rounds that were drawn after them, and remain as drawn")
    unread: str | None = Field(default=None, description="why the labels of the rounds cannot be counted now")


class Answered(Part):
    """One answer by one annotator to one example."""

    id: str = Field(description="id of the example")
    label: str | None = Field(description="label as written, a class index as its name; null: can't tell")
    annotator: str | None = Field(description="annotator, if known")
    labelled_at: str | None = Field(description="time of the answer, if it is in the file")
    imported_at: str | None = Field(description="time of the import, if known")
    file: str = Field(description="file, by the name under which it is kept")
    source: str | None = Field(description="own name of the file, if known")
    place: str = Field(description="file and line")
    correction: bool = Field(description="whether it is a correction")
    state: AnswerState = Field(description="whether it counts; no label: it is no class, or no number")


class AnswerList(Document):
    """All answers to the examples of a run."""

    format: Literal["opacc-answers/1"] = format_field("opacc-answers/1")
    run: str = Field(description="URI of the run")
    conflict: ConflictRule = Field(description="the run's rule for labels that differ")
    answers: list[Answered] = Field(description="every answer, by example, in the order of import")


class PairOfAnnotators(Part):
    """Two annotators on the examples that both answered."""

    first: str = Field(description="first annotator")
    second: str = Field(description="second annotator")
    examples: int = Field(ge=1, description="examples that both answered")
    agree: int = Field(ge=0, description="examples with the same label from both")
    kappa: float | None = Field(description="Cohen's kappa; null if undefined, and for numbers")


class LabelAgreement(Document):
    """How far annotators agree, beyond agreement by chance."""

    format: Literal["opacc-agreement/1"] = format_field("opacc-agreement/1")
    run: str = Field(description="URI of the run")
    examples: int = Field(ge=0, description="examples that two or more named annotators answered")
    alpha: float | None = Field(description="Krippendorff's alpha; null if undefined")
    scale: Literal["nominal", "interval"] = Field(description="scale of the labels: classes, or numbers")
    pairs: list[PairOfAnnotators] = Field(description="pairs of annotators with examples in common, by name")


class ExportedLabels(Document):
    """Labelled examples, exported to another tool."""

    format: Literal["opacc-export-labels/1"] = format_field("opacc-export-labels/1")
    run: str = Field(description="URI of the run")
    tool: str = Field(description="name of the tool")
    folder: str = Field(description="folder of the files")
    examples: int = Field(ge=0, description="number of labelled examples")


class AnnotatorShare(Part):
    """Number of examples assigned to an annotator."""

    annotator: str = Field(description="name")
    examples: int = Field(ge=0, description="number of examples")


class LabellingTasks(Document):
    """Tasks of a round, written for a labelling tool."""

    format: Literal["opacc-tasks/1"] = format_field("opacc-tasks/1")
    run: str = Field(description="URI of the run")
    round: int = Field(ge=1, description="number of the round")
    tool: str = Field(description="name of the tool")
    folder: str = Field(description="folder of the files, with the copies of images")
    files: list[str] = Field(description="URIs of tasks and configurations")
    examples: int = Field(ge=0, description="number of examples to label")
    images: Way | None = Field(
        description="how images reach annotators: links that expire, copies, pictures inside the tasks, or plain URIs; "
        "null: examples are no pictures"
    )
    columns: list[str] = Field(default=[], description="columns of the rows that annotators see")
    links_end: str | None = Field(description="time at which the links expire in ISO 8601, UTC; null without links")
    twice: int = Field(ge=0, description="examples assigned to two annotators")
    annotators: list[AnnotatorShare] = Field(description="annotators and their shares; empty: all label the same tasks")
    objects: ChangedObjects | None = Field(
        default=None, description="images that changed since extraction: annotators see other content"
    )


class LabelSession(Document):
    """Answers that came in while the labelling page was served."""

    format: Literal["opacc-label-session/1"] = format_field("opacc-label-session/1")
    run: str = Field(description="URI of the run")
    saved: int = Field(ge=0, description="answers that this server saved, undone ones included")
    done: int = Field(ge=0, description="answers that are there now")
    total: int = Field(ge=0, description="answers that are needed: two for examples of the overlap, one for others")
    different: int = Field(ge=0, description="examples whose answers differ and that have no correction")
