"""Labels of a run, as its log has them: files that came back, corrections, withdrawals and rules.

Files of labels are kept unchanged under ``rounds/N/labels``, named by their content; a correction is such a file. The
log (:mod:`opacc_ray.runs.commit_log`) has one entry per action, which names its file. They decide which answers count:

- The same file for the same annotator counts once, however often it is imported.
- The annotator named by the importer replaces those in the rows.
- A withdrawal concerns what came back before it.
- A correction outranks every answer to its example; the last correction counts.
- The action records whether numbers in its file are indexes of classes that have names; without a record they are.

A file that an entry names and that is missing was lost, unless it is withdrawn.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any

from opacc_ray.errors import DataError, LabelError
from opacc_ray.estimators.ratios import Ratio
from opacc_ray.labels.formats.label_formats import FORMATS, format_of
from opacc_ray.labels.grades import numbers_in
from opacc_ray.labels.label_documents import LabelAction
from opacc_ray.labels.label_rows import FormatName, Label, LabelFile, name_by_number
from opacc_ray.runs.commit_log import Commit, Happening, name_of_labels
from opacc_ray.runs.estimate_documents import AccuracyEstimate
from opacc_ray.runs.run import TRACKS, Run
from opacc_ray.spec import ConflictRule, Guidance, ModelSpec, ScoreSpec, Spec


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
class Returned:
    """A file that came back, for one annotator."""

    order: int  # its position among all actions; 0 if no action names it
    name: str  # digest of its content, the name under which it is kept
    place: str  # its name in messages
    data: bytes
    format: FormatName | None = None  # as recognised when it was imported; None: not recorded
    annotator: str | None = None
    source: str | None = None
    at: str | None = None
    is_correction: bool = False
    withdrawn: bool = False  # the whole file
    withdrawn_ids: set[str] = field(default_factory=set)  # examples whose answers in it are withdrawn
    classes: Sequence[str] | None = None  # class names if numbers in it are class indexes; None if numbers are labels
    counts: tuple[str, ...] = ()  # columns that are its labels

    def labels(self) -> Iterator[Label]:
        """Yield all labels of the file, withdrawn ones included."""
        return map(self.label_of, self.rows())

    def rows(self) -> Iterator[Label]:
        """Yield the rows as they are written, unanswered ones included; raises LabelError as `label_formats.parse`."""
        file = LabelFile(self.place, self.data, self.counts)
        form = self.format or format_of(file)
        if form not in FORMATS:
            raise LabelError(f"{self.place} has the format {form}, which belongs to a later version; update opacc_ray")
        return FORMATS[form].parse(file)

    def label_of(self, row: Label) -> Label:
        """Complete a row of the file: class names for class indexes, the file's annotator and its order."""
        return row._replace(
            label=row.label and name_by_number(row.label, self.classes),
            annotator=self.annotator or row.annotator,
            returned=self.order,
            correction=self.order if self.is_correction else 0,
        )

    @property
    def title(self) -> str:
        """Name of the file where it came from, if that is known."""
        return self.source or self.place

    def is_withdrawn(self, id: str) -> bool:
        """Return whether the file's answer to an example is withdrawn."""
        return self.withdrawn or id in self.withdrawn_ids


@dataclass(frozen=True)
class LabelLog:
    """All actions on the labels of a run, and the files that came back."""

    actions: tuple[LabelAction, ...]  # in their order
    returned: tuple[Returned, ...]  # in the order in which they came back
    conflict: ConflictRule  # rule for labels that differ
    score: Score  # of a regression's predictions
    overlap: float = 0.0  # share of the examples that two annotators label
    numbers_are_classes: bool = False  # whether numbers in the next file are indexes of classes that have names
    show: Sequence[str] = ()  # columns of rows that annotators see
    guidance: Guidance = field(default_factory=Guidance)  # what annotators are asked and told
    lost: Mapping[str, str] = field(default_factory=dict)  # by the key of each file that is missing, an error message

    def labels(self) -> Iterator[Label]:
        """Yield all labels that are not withdrawn."""
        for file in self.returned:
            if not file.withdrawn:
                yield from (row for row in file.labels() if row.id not in file.withdrawn_ids)

    def find(self, name: str, annotator: str | None, *, withdrawn: bool = False) -> Returned | None:
        """Return the file with this content, for this annotator, that is withdrawn or not; None if there is none."""
        same = [file for file in self.returned if file.name == name and file.withdrawn == withdrawn]
        return next((file for file in same if annotator in (None, file.annotator)), None)

    def withdrawn_at(self, name: str, annotator: str | None) -> str | None:
        """Return when a file with this content, for this annotator, was last withdrawn; None if it never was."""
        times = [action.at for action in self.actions if action.action == "withdraw" and action.file == name]
        return times[-1] if times and self.find(name, annotator, withdrawn=True) else None


def read_log(run: Run) -> LabelLog:
    """Read the actions and files of all tracks of a run; raises DataError if a file was changed."""
    found = _logged(run)
    actions = [action for _, action in found]
    keys, lost = _files_of(run, found)
    contents = zip(keys.items(), run.store.read_many(list(keys.values())), strict=True)
    files = {name: (key, _checked(run, key, data)) for (name, key), data in contents}
    stated, by_spec = run.spec.labels, [action for action in actions if action.action == "spec"]
    score = _last_set("score", actions, stated_score(run.spec))
    return LabelLog(
        actions=tuple(actions),
        returned=tuple(_returned(actions, files, run.spec.model)),
        conflict=_last_set("conflict", actions, stated.conflict),
        score=score_of(run.spec, score),
        overlap=_last_set("overlap", actions, stated.overlap),
        numbers_are_classes=_last_set("numbers_are_classes", by_spec, stated.numbers_are_classes),
        show=_last_set("show", by_spec, run.spec.manifest.show),
        guidance=_last_set("guidance", by_spec, stated.guidance),
        lost=lost,
    )


def shown_columns(run: Run) -> Any:
    """Return ``manifest.show`` as it was set last, without reading any label."""
    by_spec = [action for _, action in _logged(run) if action.action == "spec"]
    return _last_set("show", by_spec, run.spec.manifest.show)


def _logged(run: Run) -> list[tuple[dict[str, str], LabelAction]]:
    """Return all actions in their order, each with the digests of its files by key."""
    return [(commit.files, action) for commit in run.commits for action in commit.documents(LabelAction)]


def _files_of(run: Run, found: Sequence[tuple[dict[str, str], LabelAction]]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the keys of the files that are there, by name, and a sentence for each lost one, by key."""
    there = {entry.key for place in ("rounds/", TRACKS) for entry in run.store.list(place)}
    keys = {action.file: key for files, action in found for key in files if action.file and key in there}
    withdrawn = {action.file for _, action in found if action.action == "withdraw"}
    lost = {
        key: f"{run.store.uri_of(key)} is lost, with {_content_of(action)}; restore it or import it again, or "
        f"`opacc labels withdraw {run.uri} {action.file}` to go on without it"
        for files, action in found
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


def _last_set(name: str, actions: Sequence[LabelAction], stated: Any) -> Any:
    """Return the last value that some actions set for a rule, or the stated one if none did."""
    values = [getattr(action, name) for action in actions]
    return [stated, *(value for value in values if value is not None)][-1]


def score_of(spec: Spec, stated: ScoreSpec) -> Score:
    """Return the score of predictions: of counts, the first of the metrics."""
    ratio = Ratio.parse(spec.metrics[0]) if spec.model.counts else None
    return Score(stated.error_scale or 1.0, stated.within, bool(stated.exact), ratio)


def stated_score(spec: Spec) -> ScoreSpec:
    """Return the score of a spec, with the model's error scale as its default."""
    if spec.score.within is not None or spec.model.task != "regression":
        return spec.score
    return ScoreSpec(error_scale=spec.score.error_scale or spec.model.error_scale)


def _returned(
    actions: Sequence[LabelAction], files: Mapping[str, tuple[str, bytes]], model: ModelSpec
) -> list[Returned]:
    found = list[Returned]()
    for order, action in enumerate(actions, start=1):
        if action.action == "withdraw":
            for file in found:
                file.withdrawn_ids.update(action.ids)
                file.withdrawn = file.withdrawn or file.name == action.file
        elif action.action in ("import", "correct") and action.file and action.file in files:
            known = None if action.numbers_are_classes is False else model.classes
            names = tuple(model.counts or ())
            _add(found, Returned(order, action.file, *files[action.file], classes=known, counts=names), action)
    return found


def _add(found: list[Returned], new: Returned, action: LabelAction) -> None:
    """Add a file unless it is there; with an annotator, it replaces the same file without one."""
    same = [file for file in found if file.name == new.name and not file.withdrawn]
    if any(action.annotator in (None, file.annotator) for file in same):
        return
    for file in same:
        file.withdrawn = file.withdrawn or file.annotator is None
    new.format, new.annotator, new.source, new.at = action.file_format, action.annotator, action.source, action.at
    new.is_correction = action.action == "correct"
    found.append(new)


def now_after(log: LabelLog) -> datetime:
    """Return the current time, or a later one that follows every action, whatever other clocks show."""
    last = [datetime.fromisoformat(action.at) for action in log.actions[-1:]]
    return max([datetime.now(UTC), *(time + timedelta(microseconds=1) for time in last)])


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
        return Happening([done[0]], run.track, place if file else None, kept, done[0].at)

    run.log.append(happening)
    return done[0]


def refuse_lost(run: Run, estimate: AccuracyEstimate | None = None) -> None:
    """Raise DataError if a file of labels is missing, or one that an estimate used is not in the log any more."""
    named = set(label_files(run.at(run.log.read())))  # of today, also where the run is seen as it was
    for key in estimate.label_files if estimate else ():
        if "/labels/" in key and key not in named:
            raise DataError(
                f"{run.store.uri_of(key)} is not in the log, and the last estimate used it: the log was restored from "
                f"an earlier time; restore the newest one, or delete {run.estimate_key} to go on without it"
            )
    for text in _files_of(run, _logged(run))[1].values():
        raise DataError(text)


def label_files(run: Run) -> list[str]:
    """Return the keys of the files of labels of all rounds of all tracks, in the order of the log."""
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
        log = read_log(now)
        before = [action for action in log.actions if action.action == "spec"]
        rules, known = _rules_of(spec), _rules_of(now.spec)
        changed = {name: rule for name, rule in rules.items() if rule != _last_set(name, before, known[name])}
        return LabelAction(action="spec", at=now_after(log).isoformat(), **changed) if changed else None

    log_action(run, decide)


def _rules_of(spec: Spec) -> dict[str, Any]:
    """Return the label rules of a spec, by the names that they have in actions."""
    names = ("conflict", "overlap", "numbers_are_classes")
    rules = {name: getattr(spec.labels, name) for name in names}
    return rules | {"score": stated_score(spec), "show": spec.manifest.show, "guidance": spec.labels.guidance}
