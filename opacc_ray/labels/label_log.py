"""Labels of a run, as its log has them: files that came back, corrections, withdrawals and rules.

Files of labels are kept unchanged under ``rounds/N/labels``, named by their content; a correction is such a file. The
log (:mod:`opacc_ray.runs.run_documents`) has one entry per action, which names its file. They decide which answers
count:

- The same file for the same annotator counts once, however often it is imported.
- The annotator named by the importer replaces those in the rows.
- A withdrawal concerns what came back before it.
- Answers taken from another run replace those that were taken from it before.
- A correction outranks every answer to its example; the last correction counts.
- The action records whether numbers in its file are indexes of classes that have names; without a record they are.

A file that an entry names and that is missing was lost, unless it is withdrawn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from opacc_ray.documents import Document
from opacc_ray.errors import DataError
from opacc_ray.labels.formats import Label, LabelFile, parse
from opacc_ray.labels.joining import name_by_number, numbers_in
from opacc_ray.metrics.metric import Ratio
from opacc_ray.runs.run import ESTIMATE, ROUNDS, Run
from opacc_ray.runs.run_documents import AccuracyEstimate, Commit, Happening, name_of_labels
from opacc_ray.spec import ConflictRule, Guidance, ModelSpec, ScoreSpec, Spec


class LabelAction(Document):
    """One action on the labels of a run, in an entry of its log."""

    remedy: ClassVar[str] = "restore it"

    format: Literal["opacc-label-action/1"] = "opacc-label-action/1"
    # a file was imported; a label was corrected; labels were withdrawn; a rule was set by a command, or by an edited
    # spec
    action: Literal["import", "correct", "withdraw", "rule", "spec"]
    at: str  # time in ISO 8601, UTC
    file: str | None = None  # file of labels, by the name under which it is kept
    file_format: str | None = None  # format of the file; null: it is recognised by the content
    source: str | None = None  # own name of the file
    from_run: str | None = None  # run whose answers the file has; null: it came from people
    annotator: str | None = None  # annotator named by the importer; null: as in the file
    names: dict[str, str] = Field(default={})  # ids of examples by other names that the file has for them
    ids: list[str] = Field(default=[])  # examples that were corrected or withdrawn
    conflict: ConflictRule | None = None  # new rule for labels that differ; null: unchanged
    score: ScoreSpec | None = None  # new score of a regression; null: unchanged
    # new share of examples that two annotators label; null: unchanged
    overlap: float | None = Field(default=None, ge=0, le=1)
    # whether numbers in the file are indexes of classes that have names; of a spec: in files from then on; null:
    # unchanged, and of a file: they are
    numbers_are_classes: bool | None = None
    show: list[str] | None = None  # columns of rows that annotators see from then on; null: unchanged
    guidance: Guidance | None = None  # what annotators are asked and told from then on; null: unchanged

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


@dataclass(frozen=True)
class Score:
    """Score of a predicted value: 1 minus a bounded loss, in [0, 1], defined for every error."""

    scale: float = 1.0  # smallest error whose score is 0: max(0, 1 − (error / scale)²)
    within: float | None = None  # if given, the score is 1 for errors of at most this, else 0
    exact: bool = False  # of several classes: 1 for equal sets, else 0; and not their Jaccard index
    ratio: Ratio | None = None  # of counts

    @property
    def measure(self) -> str:
        """Name of the mean score."""
        if self.ratio is not None:
            return f"mean of {self.ratio} per example"
        if self.within is not None:
            return f"share within ±{self.within:g}"
        return f"mean score, max(0, 1 - (error / {self.scale:g})²)"

    def of(self, label: float, prediction: float) -> float:
        """Return the score of one prediction."""
        error = abs(label - float(prediction))
        if self.within is not None:
            return float(error <= self.within)
        relative = error / self.scale
        return 1.0 - relative * relative if relative < 1 else 0.0

    def of_sets(self, label: set[str], prediction: set[str]) -> float:
        """Return the score of predicted classes: the share of all classes of both sets that are in both."""
        if self.exact or not label | prediction:
            return float(label == prediction)
        return len(label & prediction) / len(label | prediction)

    def clips(self, label: float, prediction: float) -> bool:
        """Return whether the error exceeds the scale, so that the score no longer depends on it."""
        return self.within is None and not abs(label - float(prediction)) <= self.scale


def measure_of(spec: Spec, score: Score) -> str:
    """Return the name of the mean outcome."""
    model, outcomes = spec.model, spec.model.outcomes or {}
    if model.counts is not None:
        return score.measure
    if model.task == "multilabel":
        return "share with all classes right" if score.exact else "mean Jaccard index of the classes"
    if model.task == "regression":
        return score.measure
    if model.task == "grade" and model.outcomes is None:
        return "mean score, from 0 to 1"
    if model.prefers:
        first, second = spec.pool.columns.answer or ("the first", "the second")
        return f"share in which {first} is preferred to {second}, a tie counting half"
    between = [f"{name} as {outcome:g}" for name, outcome in outcomes.items() if 0 < outcome < 1]
    if not between:
        return "accuracy"
    name = "mean grade" if isinstance(model.grades, dict) or model.grades == "1-5" else "share right"
    return f"{name}, counting {', '.join(between)}"


def outcome_of(model: ModelSpec, score: Score, prediction: Any, truth: str) -> float:
    """Return the outcome, in [0, 1], of a prediction, given the label in canonical form."""
    if model.task == "multilabel":
        return score.of_sets(set(model.classes_in(truth)), set(model.classes_in(model.name_of(prediction))))
    if score.ratio is not None:
        return score.ratio.of_example(numbers_in(truth))
    if model.task == "grade":
        return float(truth) if model.outcomes is None else model.outcomes[truth]
    if model.task == "regression":
        return score.of(float(truth), prediction)
    return float(truth == model.name_of(prediction))


@dataclass
class LoggedFile:
    """A file that came back, with the action that names it."""

    order: int  # its position among all actions
    action: LabelAction
    content: LabelFile
    classes: Sequence[str] | None = None  # class names if numbers in it are class indexes; None if numbers are labels
    withdrawn: bool = False  # the whole file
    withdrawn_ids: set[str] = field(default_factory=set)  # examples whose answers in it are withdrawn

    @property
    def name(self) -> str:
        """Name under which it is kept: the digest of its content."""
        return self.action.file or ""

    @property
    def is_correction(self) -> bool:
        """Whether it outranks earlier answers."""
        return self.action.action == "correct"

    def labels(self) -> Iterator[Label]:
        """Yield all labels of the file, withdrawn and unanswered ones included; raises as :func:`.formats.parse`."""
        order, annotator, names = self.order, self.action.annotator, self.action.names
        correction, is_taken = order * self.is_correction, self.action.from_run is not None
        for row in parse(self.content, self.action.file_format):
            yield row._replace(
                id=names.get(row.id, row.id),
                label=row.label and name_by_number(row.label, self.classes),
                annotator=annotator or row.annotator,
                returned=order,
                correction=correction,
                from_run=is_taken,
            )

    def is_withdrawn(self, id: str) -> bool:
        """Return whether the file's answer to an example is withdrawn."""
        return self.withdrawn or id in self.withdrawn_ids

    def standing(self) -> Iterator[Label]:
        """Yield the labels that are not withdrawn."""
        return iter(()) if self.withdrawn else (row for row in self.labels() if row.id not in self.withdrawn_ids)


class LabelRules(NamedTuple):
    """Rules for the labels of a run: those of its first spec, and what commands and edited specs have set since."""

    conflict: ConflictRule  # for labels that differ
    overlap: float  # share of the examples that two annotators label
    numbers_are_classes: bool  # whether numbers in the next file are indexes of classes that have names
    guidance: Guidance  # what annotators are asked and told
    score: ScoreSpec
    show: Sequence[str]  # columns of rows that annotators see

    @classmethod
    def of(cls, spec: Spec) -> "LabelRules":
        """Return the rules of a spec."""
        own = spec.labels
        return cls(own.conflict, own.overlap, own.numbers_are_classes, own.guidance, spec.score, spec.manifest.show)

    def after(self, actions: Iterable[LabelAction]) -> "LabelRules":
        """Return the rules after some actions; an import sets none but the one for conflicts."""
        rules = self
        for action in actions:
            names = self._fields if action.action == "spec" else ("conflict",)
            rules = rules._replace(**{name: own for name in names if (own := getattr(action, name)) is not None})
        return rules


@dataclass
class LabelLog:
    """All actions on the labels of a run, and the files that came back."""

    spec: Spec
    actions: list[LabelAction] = field(default_factory=list)  # in their order
    returned: list[LoggedFile] = field(default_factory=list)  # in the order in which they came back
    lost: Mapping[str, str] = field(default_factory=dict)  # by the key of each file that is missing, an error message

    def labels(self) -> Iterator[Label]:
        """Yield all labels that are not withdrawn."""
        for file in self.returned:
            yield from file.standing()

    def find(self, name: str | None, annotator: str | None, *, withdrawn: bool = False) -> LoggedFile | None:
        """Return the file with this content, for this annotator, that is withdrawn or not; None if there is none."""
        same = [file for file in self.returned if file.name == name and file.withdrawn == withdrawn]
        return next((file for file in same if annotator in (None, file.action.annotator)), None)

    def add(self, action: LabelAction, content: LabelFile | None = None) -> None:
        """Add an action, and the file that it names if that is there.

        A file that is there already is not added. With an annotator, it replaces the same file without one; and the
        answers of a run replace those that were taken from it before.
        """
        self.actions.append(action)
        if action.action == "withdraw":
            for file in self.returned:
                file.withdrawn_ids.update(action.ids)
                file.withdrawn = file.withdrawn or file.name == action.file
        elif content is not None and self.find(action.file, action.annotator) is None:
            for file in self.returned:
                is_unnamed = file.name == action.file and file.action.annotator is None
                is_older = action.from_run is not None and file.action.from_run == action.from_run
                file.withdrawn = file.withdrawn or is_unnamed or is_older
            classes = None if action.numbers_are_classes is False else self.spec.model.classes
            self.returned.append(LoggedFile(len(self.actions), action, content, classes))

    def now(self) -> str:
        """Return the current time, or a later one that follows every action, whatever other clocks show."""
        last = [datetime.fromisoformat(action.at) + timedelta(microseconds=1) for action in self.actions[-1:]]
        return max([datetime.now(UTC), *last]).isoformat(timespec="microseconds")

    @property
    def rules(self) -> LabelRules:
        """Rules as they are now."""
        return LabelRules.of(self.spec).after(self.actions)

    @property
    def score(self) -> Score:
        """Score of predictions: of counts, the first of the metrics."""
        stated = self.rules.score
        ratio = Ratio.parse(self.spec.metrics[0]) if self.spec.model.counts else None
        return Score(stated.error_scale or 1.0, stated.within, bool(stated.exact), ratio)


def read_log(run: Run) -> LabelLog:
    """Read the actions and files of a run; raises DataError if a file was changed."""
    logged = _logged(run)
    keys, lost = _files_of(run, logged)
    contents = zip(keys.items(), run.store.read_many(list(keys.values())), strict=True)
    files = {name: label_file(run.spec, key, _checked(run, key, data)) for (name, key), data in contents}
    log = LabelLog(run.spec, lost=lost)
    for _, action in logged:
        log.add(action, None if action.action == "withdraw" or action.file is None else files.get(action.file))
    return log


def label_rules(run: Run) -> LabelRules:
    """Return the rules of a run as they are now, without reading any label."""
    return LabelRules.of(run.spec).after(action for _, action in _logged(run))


def label_file(spec: Spec, name: str, data: bytes) -> LabelFile:
    """Return a file of labels, whose columns may have the names of a spec."""
    own = spec.pool.columns.id
    return LabelFile(name, data, tuple(spec.model.counts or ()), own if isinstance(own, str) else None)


def _logged(run: Run) -> list[tuple[dict[str, str], LabelAction]]:
    """Return all actions in their order, each with the digests of its files by key."""
    return [(commit.files, action) for commit in run.commits for action in commit.documents(LabelAction)]


def _files_of(run: Run, logged: Sequence[tuple[dict[str, str], LabelAction]]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the keys of the files that are there, by name, and a sentence for each lost one, by key."""
    there = {entry.key for entry in run.store.list(ROUNDS)}
    keys = {action.file: key for files, action in logged for key in files if action.file and key in there}
    withdrawn = {action.file for _, action in logged if action.action == "withdraw"}
    lost = {
        key: f"{run.store.uri_of(key)} is lost, with {_content_of(action)}; restore it or import it again, or "
        f"`opacc labels withdraw {run.uri} {action.file}` to go on without it"
        for files, action in logged
        for key in files
        if action.file not in keys.keys() | withdrawn
    }
    return keys, lost


def _checked(run: Run, key: str, data: bytes) -> bytes:
    """Return the content of a file of labels; raises DataError if its name is not the digest of its content."""
    if PurePath(key).name != name_of_labels(key, data):
        raise DataError(
            f"{run.store.uri_of(key)} was changed since it was imported: its name is not the digest of its content; "
            "restore it, or delete it and import the original file again"
        )
    return data


Decide = Callable[[Run], LabelAction | None]
"""What to do about the labels of a run as it is; None: nothing."""


def log_action(
    run: Run, decide: Decide, file: tuple[str, bytes] | None = None, number: int | None = None
) -> LabelAction | None:
    """Log what ``decide`` returns, and keep the file of labels, name and content, that it is about; returns the action.

    It is called with the run as it is then, again if another command came first, and may raise. The file is kept with
    the round ``number``, by default the newest.
    """
    done: list[LabelAction | None] = []

    def happening(commits: tuple[Commit, ...]) -> Happening | None:
        now = run.at(commits)
        done[:] = [decide(now)]
        if done[0] is None:
            return None
        place = number or now.rounds()[-1]
        kept = {} if file is None else run.write_labels(place, *file)
        return Happening([done[0]], place if file else None, kept, done[0].at)

    run.log.append(happening)
    return done[0]


def refuse_lost(run: Run, estimate: AccuracyEstimate | None = None) -> None:
    """Raise DataError if a file of labels is missing, or one that an estimate used is not in the log any more."""
    named = set(label_files(run.at(run.log.read())))  # of today, also where the run is seen as it was
    for key in estimate.label_files if estimate else ():
        if "/labels/" in key and key not in named:
            raise DataError(
                f"{run.store.uri_of(key)} is not in the log, and the last estimate used it: the log was restored from "
                f"an earlier time; restore the newest one, or delete {ESTIMATE} to go on without it"
            )
    for text in _files_of(run, _logged(run))[1].values():
        raise DataError(text)


def label_files(run: Run) -> list[str]:
    """Return the keys of the files of labels of all rounds, in the order of the log."""
    logged = (commit for commit in run.commits if any(commit.documents(LabelAction)))
    return list(dict.fromkeys(key for commit in logged for key in commit.files))


def _content_of(action: LabelAction) -> str:
    ids = ", ".join(map(repr, action.ids))
    is_correction = action.action == "correct"
    what = f"correction of {ids} by {action.annotator}" if is_correction else f"labels of {action.source!r}"
    return f"the {what} ({action.at[:19]} UTC)"


def adopt_rules(run: Run, spec: Spec) -> None:
    """Log the label rules of an edited spec: the run's header keeps the first ones, as they are no part of its name."""

    def decide(now: Run) -> LabelAction | None:
        log, new = read_log(now), LabelRules.of(spec)
        stated = LabelRules.of(now.spec).after(action for action in log.actions if action.action == "spec")
        rules = {name: own for name, own in new._asdict().items() if own != getattr(stated, name)}
        return LabelAction(action="spec", at=log.now(), **rules) if rules else None

    log_action(run, decide)
