"""Documents about labels: actions in the log of a run, and what the commands about labels print."""

from typing import ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part, format_field
from opacc_ray.labels.label_rows import FormatName
from opacc_ray.runs.estimate_documents import RoundCounts
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
    from_run: str | None = Field(default=None, description="run whose answers the file has; null: it came from people")
    annotator: str | None = Field(default=None, description="annotator named by the importer; null: as in the file")
    names: dict[str, str] = Field(default={}, description="ids of examples by other names that the file has for them")
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

    def words(self) -> str:
        by = f" by {self.annotator}" if self.annotator else ""
        ids = ", ".join(self.ids[:3]) + (", …" if len(self.ids) > 3 else "")
        if self.action == "import":
            return f"labels of {self.source or self.file} imported{by}"
        if self.action == "correct":
            return f"label of {ids} corrected{by}"
        if self.action == "withdraw":
            return f"labels of {self.file or ids} withdrawn"
        names = {"conflict", "score", "overlap", "numbers_are_classes", "show"}
        rules = [f"{name} {value}" for name, value in self.model_dump(include=names, exclude_none=True).items()]
        return f"rule of labels set: {', '.join(rules + ['guidance'] * (self.guidance is not None))}"


class ImportedLabels(Document, RoundCounts):
    """An imported file of labels, and the rounds after it; the fields of a round describe the newest one."""

    format: Literal["opacc-import/1"] = format_field("opacc-import/1")
    file: str = Field(description="name of the file")
    rows: int = Field(ge=0, description="rows in the file, unanswered ones included")
    names: dict[str, str] = Field(default={}, description="ids of examples by other names that the file has for them")
    labels: int = Field(default=0, ge=0, description="examples with a label in the file")
    cant_tell: int = Field(default=0, ge=0, description="examples that are answered by can't tell alone")
    blank: int = Field(default=0, ge=0, description="rows without an answer")
    left_out: int = Field(default=0, ge=0, description="rows of examples that were not selected, which were left out")
    unknown: int = Field(default=0, ge=0, description="rows of ids that the pool lacks, which were left out too")
    annotators: list[str] = Field(default=[], description="annotators in the file, the first hundred names")
    answers: dict[int, int] = Field(default={}, description="round -> its examples that the file answers")
    rounds: list[RoundCounts] = Field(default=[], description="all rounds")
    again: bool = Field(description="whether the same file was imported before, so that nothing changed")
    conflict: ConflictRule = Field(description="the run's rule for labels that differ")
    overruled: list[Overruling] = Field(description="labels overruled by this file or in it, the first hundred")
    num_overruled: int = Field(ge=0, description="number of labels overruled by this file or in it")
    notes: list[str] = Field(default=[], description="how the file was read, where it may be meant otherwise")


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
    answers: dict[int, int] = Field(description="round -> its examples that they answered")
    rounds: list[RoundCounts] = Field(description="all rounds; empty if labels are in conflict")
    drawn_later: list[int] = Field(description="rounds that were drawn after them, and remain as drawn")
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


class ExportedLabels(Document):
    """Labelled examples, exported to another tool."""

    format: Literal["opacc-export-labels/1"] = format_field("opacc-export-labels/1")
    run: str = Field(description="URI of the run")
    tool: str = Field(description="name of the tool")
    to: str = Field(description="URI of the file or folder")
    examples: int = Field(ge=0, description="number of labelled examples")
    notes: list[str] = Field(default_factory=list, description="what to know of these examples")


class LabelSession(Document):
    """Answers that came in while the labelling page was served."""

    format: Literal["opacc-label-session/1"] = format_field("opacc-label-session/1")
    run: str = Field(description="URI of the run")
    saved: int = Field(ge=0, description="answers that this server saved, undone ones included")
    done: int = Field(ge=0, description="answers that are there now")
    total: int = Field(ge=0, description="answers that are needed: two for examples of the overlap, one for others")
    different: int = Field(ge=0, description="examples whose answers differ and that have no correction")
