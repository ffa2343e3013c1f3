"""Append-only log of the labels of a run: files that came back, corrections, withdrawals and rules.

Files of labels are kept unchanged under ``rounds/N/labels``, named by their content; a correction is such a file.
``labels/`` has one small document per action, named by its time. That time is later than the time of every action
known when it was written, whatever the clocks of other machines show. Two concurrent actions are ordered by their
clocks, then by their digests. Files and actions decide which answers count:

- A file that no action names counts as it is.
- The same file for the same annotator counts once, however often it is imported.
- The annotator named by the importer replaces those in the rows.
- A withdrawal concerns what came back before it.
- A correction outranks every answer to its example; the last correction counts.
- The action records whether numbers in its file are indexes of classes that have names; without a record they are.

An action is written before its file, so an interrupted import leaves an action without a file, which changes nothing.
Once the file is written, ``labels/FILE.kept`` records that: if such a file is missing later, it was lost.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from opacc_ray.errors import DataError, LabelError
from opacc_ray.labels.formats.label_formats import FORMATS, format_of
from opacc_ray.labels.label_documents import LabelAction
from opacc_ray.labels.label_rows import FormatName, Label, LabelFile, name_by_number
from opacc_ray.runs.estimate_documents import AccuracyEstimate
from opacc_ray.runs.run import TRACKS, Run
from opacc_ray.spec import ConflictRule, ScoreSpec, Spec

FOLDER, KEPT = "labels/", ".kept"  # folder of the actions, and the suffix of the records that a file was kept


@dataclass(frozen=True)
class Score:
    """Score of a predicted value: 1 minus a bounded loss, in [0, 1], defined for every error."""

    scale: float = 1.0  # smallest error whose score is 0: max(0, 1 − (error / scale)²)
    within: float | None = None  # if given, the score is 1 for errors of at most this, else 0

    @property
    def measure(self) -> str:
        """Name of the mean score."""
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

    def clips(self, label: float, prediction: float) -> bool:
        """Return whether the error exceeds the scale, so that the score no longer depends on it."""
        return self.within is None and not abs(label - float(prediction)) <= self.scale


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

    def labels(self) -> Iterator[Label]:
        """Yield all labels of the file, withdrawn ones included."""
        return map(self.label_of, self.rows())

    def rows(self) -> Iterator[Label]:
        """Yield the rows as they are written, unanswered ones included; raises LabelError as `label_formats.parse`."""
        file = LabelFile(self.place, self.data)
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
    """Read the actions and files of all tracks of a run."""
    keys = [entry.key for entry in run.store.list(FOLDER) if entry.key.endswith(".json")]
    actions = []
    for key, data in zip(keys, run.store.read_many(keys), strict=True):
        uri = run.store.uri_of(key)
        if not key.endswith(f"-{_digest(data)}.json"):
            raise DataError(f"{uri} was changed since it was written: its name is not its digest; restore it")
        actions.append(LabelAction.from_bytes(data, uri))
    files = [file for track in run.tracks() for number in track.rounds() for file in track.read_labels(number)]
    by_name = {key.rpartition("/")[2]: (key, data) for key, data in reversed(files)}
    stated, by_spec = run.spec.labels, [action for action in actions if action.action == "spec"]
    score = _last_set("score", actions, stated_score(run.spec))
    return LabelLog(
        actions=tuple(actions),
        returned=tuple(_returned(actions, by_name, run.spec.model.classes)),
        conflict=_last_set("conflict", actions, stated.conflict),
        score=Score(score.error_scale or 1.0, score.within),
        overlap=_last_set("overlap", actions, stated.overlap),
        numbers_are_classes=_last_set("numbers_are_classes", by_spec, stated.numbers_are_classes),
    )


def _last_set(name: str, actions: Sequence[LabelAction], stated: Any) -> Any:
    """Return the last value that some actions set for a rule, or the stated one if none did."""
    values = [getattr(action, name) for action in actions]
    return [stated, *(value for value in values if value is not None)][-1]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def stated_score(spec: Spec) -> ScoreSpec:
    """Return the score of a spec, with the model's error scale as its default."""
    if spec.score.within is not None:
        return spec.score
    return ScoreSpec(error_scale=spec.score.error_scale or spec.model.error_scale)


def _returned(
    actions: Sequence[LabelAction], files: Mapping[str, tuple[str, bytes]], classes: Sequence[str] | None
) -> list[Returned]:
    named = {action.file for action in actions if action.action in ("import", "correct")}
    found = [Returned(0, name, *files[name], classes=classes) for name in sorted(files) if name not in named]
    for order, action in enumerate(actions, start=1):
        if action.action == "withdraw":
            for file in found:
                file.withdrawn_ids.update(action.ids)
                file.withdrawn = file.withdrawn or file.name == action.file
        elif action.action in ("import", "correct") and action.file and action.file in files:
            known = None if action.numbers_are_classes is False else classes
            _add(found, Returned(order, action.file, *files[action.file], classes=known), action)
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


def log_action(run: Run, log: LabelLog, **fields: Any) -> LabelAction:
    """Write an action with some fields, after all actions of the log, and return it."""
    action = LabelAction.model_validate({"at": now_after(log).isoformat(timespec="microseconds")} | fields)
    write_action(run, action)
    return action


def write_action(run: Run, action: LabelAction) -> str:
    """Add an action, which never replaces another, and return its key."""
    time = datetime.fromisoformat(action.at).strftime("%Y%m%dT%H%M%S.%f")
    data = action.to_bytes()
    key = f"{FOLDER}{time}-{_digest(data)}.json"
    run.store.write(key, data)
    return key


def keep_file(run: Run, number: int, name: str, data: bytes) -> None:
    """Keep a file of labels with a round, after the action that names it, and record that it was kept."""
    key = run.write_labels(number, name, data)
    run.store.write(f"{FOLDER}{key.rpartition('/')[2]}{KEPT}", f"{key}\n".encode())


def lost_files(run: Run) -> dict[str, str]:
    """Return an error message, by URI, for each file of labels that was kept, is not withdrawn, and is missing."""
    there = {entry.key.rpartition("/")[2] for place in ("rounds/", TRACKS) for entry in run.store.list(place)}
    kept = [entry.key.removeprefix(FOLDER) for entry in run.store.list(FOLDER) if entry.key.endswith(KEPT)]
    gone = [name for name in (key.removesuffix(KEPT) for key in kept) if name not in there]
    actions = read_log(run).actions if gone else ()
    withdrawn = {action.file for action in actions if action.action == "withdraw"}
    found = {}
    for name in sorted(set(gone) - withdrawn):
        key = f"{FOLDER}{name}{KEPT}"
        uri = run.store.uri_of(run.store.read(key).decode(errors="replace").strip())
        what = next((_content_of(action) for action in reversed(actions) if action.file == name), "labels")
        found[uri] = (
            f"{uri} is lost, with {what}; restore it or import it again, or delete "
            f"{run.store.uri_of(key)} to go on without it"
        )
    return found


def refuse_lost(run: Run, estimate: AccuracyEstimate | None = None) -> None:
    """Raise DataError if a file of labels is missing that was kept, or that an estimate used."""
    there = set(all_files(run)) if estimate else set()
    for key in estimate.label_files if estimate else ():
        if key not in there:
            raise DataError(
                f"{run.store.uri_of(key)} is lost, and the last estimate used it; restore it, or "
                f"delete {run.estimate_key} to go on without it"
            )
    for text in lost_files(run).values():
        raise DataError(text)


def all_files(run: Run) -> list[str]:
    """Return the keys of all actions, and of the files of labels of all rounds of all tracks."""
    actions = [entry.key for entry in run.store.list(FOLDER) if entry.key.endswith(".json")]
    rounds = [(track, number) for track in run.tracks() for number in track.rounds()]
    return actions + [key for track, number in rounds for key in track.label_files(number)]


def _content_of(action: LabelAction) -> str:
    ids = ", ".join(map(repr, action.ids))
    is_correction = action.action == "correct"
    what = f"correction of {ids} by {action.annotator}" if is_correction else f"labels of {action.source!r}"
    return f"the {what} ({action.at[:19]} UTC)"


def adopt_rules(run: Run, spec: Spec) -> None:
    """Log the label rules of an edited spec: the run's header keeps the first ones, as they are no part of its name."""
    log = read_log(run)
    before = [action for action in log.actions if action.action == "spec"]
    rules, known = _rules_of(spec), _rules_of(run.spec)
    changed = {name: rule for name, rule in rules.items() if rule != _last_set(name, before, known[name])}
    if changed:
        log_action(run, log, action="spec", **changed)


def _rules_of(spec: Spec) -> dict[str, Any]:
    """Return the label rules of a spec, by the names that they have in actions."""
    names = ("conflict", "overlap", "numbers_are_classes")
    return {name: getattr(spec.labels, name) for name in names} | {"score": stated_score(spec)}
