"""What was done with the labels of a run: files that came back, corrections, withdrawals, rules. Nothing is destroyed.

Files of labels stay under ``rounds/N/labels`` as they came, named by their content; a correction is such a file, too.
Beside them, ``labels/`` holds one small document per action, named by its time, and that is later than the time of
every action which was there when it was made, whatever the clocks of machines say: an action follows all that it knew.
Two that did not know of one another are ordered by their clocks, then by their digests. Which answers count follows
from files and actions:

- A file that no action names came back before there were actions; it counts as it is.
- The same file for the same annotator counts once, however often it comes back.
- The importer's word for who wrote a file (``annotator``) replaces what its rows say.
- A withdrawal concerns what came back before it.
- A correction outranks every answer to its example; the last one counts.
- Whether numbers in a file are indexes of classes that have names is as its action says; files that no action speaks of
  come from before that was asked, and are read so.

An action is written before the file that it names, so an interrupted import leaves an action without a file, which
changes nothing. Once the file is there, ``labels/FILE.kept`` records that: such a file that is gone is lost.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from opacc_ray.errors import DataError
from opacc_ray.labels.documents import LabelAction
from opacc_ray.labels.formats.parsing import parse
from opacc_ray.labels.outcomes import Score, name_by_number
from opacc_ray.labels.rows import Label
from opacc_ray.runs.documents import AccuracyEstimate
from opacc_ray.runs.run import TRACKS, Run
from opacc_ray.spec import ConflictRule, ScoreSpec, Spec

FOLDER, KEPT = "labels/", ".kept"
"""Where actions are, and the end of the names of what records that a file of labels is there."""


@dataclass
class Returned:
    """A file that came back, for one annotator.

    Attributes
    ----------
    order : its place among all actions; 0 if it came before there were any.
    name : of the file: the digest of its content.
    place : what messages call it.
    withdrawn : whether the whole file is.
    withdrawn_ids : examples whose answers in it are.
    classes : names of the classes, of which numbers in it are indexes; None: numbers are labels as they are.
    """

    order: int
    name: str
    place: str
    data: bytes
    annotator: str | None = None
    source: str | None = None
    at: str | None = None
    is_correction: bool = False
    withdrawn: bool = False
    withdrawn_ids: set[str] = field(default_factory=set)
    classes: Sequence[str] | None = None

    def labels(self) -> Iterator[Label]:
        """Yield all labels of the file, withdrawn ones included."""
        for row in parse(self.data, self.place):
            yield row._replace(
                label=self.label_of(row),
                annotator=self.annotator or row.annotator,
                returned=self.order,
                correction=self.order if self.is_correction else 0,
            )

    def label_of(self, row: Label) -> str | None:
        """Return the label of a row, as the file means it."""
        return row.label and name_by_number(row.label, self.classes)

    def is_standing(self, id: str) -> bool:
        return not self.withdrawn and id not in self.withdrawn_ids


@dataclass(frozen=True)
class LabelLog:
    """All that was done with the labels of a run.

    Attributes
    ----------
    actions : in their order.
    returned : the files, in the order in which they came back.
    conflict : the rule where labels differ.
    score : what a regression's prediction is worth.
    overlap : share of the examples that two people label.
    numbers_are_classes : whether numbers in the next file are indexes of classes that have names.
    """

    actions: tuple[LabelAction, ...]
    returned: tuple[Returned, ...]
    conflict: ConflictRule
    score: Score
    overlap: float = 0.0
    numbers_are_classes: bool = False

    def labels(self) -> Iterator[Label]:
        """Yield all labels that are not withdrawn."""
        for file in self.returned:
            if file.withdrawn:
                continue
            for row in file.labels():
                if row.id not in file.withdrawn_ids:
                    yield row

    def names(self) -> dict[int, str]:
        """Return what each file was called, by its order."""
        return {file.order: file.source or file.place for file in self.returned}

    def find(self, name: str, annotator: str | None) -> Returned | None:
        """Return the file with this content, for this annotator, if it came back and is not withdrawn."""
        same = [file for file in self.returned if file.name == name and not file.withdrawn]
        return next((file for file in same if annotator in (None, file.annotator)), None)

    def withdrawn_at(self, name: str, annotator: str | None) -> str | None:
        """Return when a file with this content, for this annotator, was last withdrawn; None if it never was."""
        same = [file for file in self.returned if file.name == name and file.withdrawn]
        times = [action.at for action in self.actions if action.action == "withdraw" and action.file == name]
        return times[-1] if times and any(annotator in (None, file.annotator) for file in same) else None

    def is_kept(self, name: str) -> bool:
        """Tell whether a file with this content is there, withdrawn or not."""
        return any(file.name == name for file in self.returned)


def read_log(run: Run) -> LabelLog:
    """Read what was done with the labels of a run, for whichever of its tracks."""
    keys = [entry.key for entry in run.store.list(FOLDER) if entry.key.endswith(".json")]
    found = zip(keys, run.store.read_many(keys), strict=True)
    actions = [_read_action(data, run.store.uri_of(key)) for key, data in found]
    files = [file for track in run.tracks() for number in track.rounds() for file in track.read_labels(number)]
    stated = run.spec.labels
    rules = [action.conflict for action in actions if action.conflict]
    scores = [action.score for action in actions if action.score]
    overlaps = [action.overlap for action in actions if action.overlap is not None]
    numbers = [a.numbers_are_classes for a in actions if a.action == "spec" and a.numbers_are_classes is not None]
    by_name = {key.rpartition("/")[2]: (key, data) for key, data in reversed(files)}
    return LabelLog(
        actions=tuple(actions),
        returned=tuple(_returned(actions, by_name, run.spec.model.classes)),
        conflict=rules[-1] if rules else stated.conflict,
        score=_score(scores[-1] if scores else stated_score(run.spec)),
        overlap=overlaps[-1] if overlaps else stated.overlap,
        numbers_are_classes=numbers[-1] if numbers else stated.numbers_are_classes,
    )


def _read_action(data: bytes, source: str) -> LabelAction:
    if not source.endswith(f"-{_digest(data)}.json"):
        raise DataError(f"{source} was changed since it was written: its name is not its digest; restore it")
    return LabelAction.from_bytes(data, source)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def stated_score(spec: Spec) -> ScoreSpec:
    """Return the score of a spec, with the scale that it takes from the model."""
    if spec.score.within is not None:
        return spec.score
    return ScoreSpec(error_scale=spec.score.error_scale or spec.model.error_scale)


def _score(stated: ScoreSpec) -> Score:
    return Score(stated.error_scale or 1.0, stated.within)


def _returned(
    actions: Sequence[LabelAction], files: Mapping[str, tuple[str, bytes]], classes: Sequence[str] | None
) -> list[Returned]:
    named = {action.file for action in actions if action.action in ("import", "correct")}
    found = [Returned(0, name, *files[name], classes=classes) for name in sorted(files) if name not in named]
    for order, action in enumerate(actions, start=1):
        if action.action == "withdraw":
            _withdraw(found, action)
        elif action.action in ("import", "correct") and action.file and action.file in files:
            known = None if action.numbers_are_classes is False else classes
            _add(found, Returned(order, action.file, *files[action.file], classes=known), action)
    return found


def _add(found: list[Returned], new: Returned, action: LabelAction) -> None:
    """Add a file, unless it is there; a name replaces the same file without one."""
    same = [file for file in found if file.name == new.name and not file.withdrawn]
    if any(action.annotator in (None, file.annotator) for file in same):
        return
    for file in same:
        file.withdrawn = file.withdrawn or file.annotator is None
    new.annotator, new.source, new.at = action.annotator, action.source, action.at
    new.is_correction = action.action == "correct"
    found.append(new)


def _withdraw(found: Sequence[Returned], action: LabelAction) -> None:
    for file in found:
        file.withdrawn_ids.update(action.ids)
        file.withdrawn = file.withdrawn or file.name == action.file


def now_after(log: LabelLog) -> datetime:
    """Return the time, later than that of every action, whatever the clocks of other machines said."""
    last = [datetime.fromisoformat(action.at) for action in log.actions[-1:]]
    return max([datetime.now(UTC), *(time + timedelta(microseconds=1) for time in last)])


def write_action(run: Run, action: LabelAction) -> str:
    """Add an action, which never replaces another; returns its key."""
    time = datetime.fromisoformat(action.at).strftime("%Y%m%dT%H%M%S.%f")
    data = action.to_bytes()
    key = f"{FOLDER}{time}-{_digest(data)}.json"
    run.store.write(key, data)
    return key


def keep_file(run: Run, number: int, name: str, data: bytes) -> None:
    """Keep a file of labels with a round, after the action that names it, and record that it is there."""
    key = run.write_labels(number, name, data)
    run.store.write(f"{FOLDER}{key.rpartition('/')[2]}{KEPT}", f"{key}\n".encode())


def lost_files(run: Run) -> dict[str, str]:
    """Return, by URI, a sentence for each file of labels that was kept, is not withdrawn, and is gone."""
    records = [entry.key for entry in run.store.list(FOLDER) if entry.key.endswith(KEPT)]
    there = {entry.key.rpartition("/")[2] for place in ("rounds/", TRACKS) for entry in run.store.list(place)}
    gone = {key.removeprefix(FOLDER).removesuffix(KEPT): key for key in records}
    gone = {name: key for name, key in gone.items() if name not in there}
    actions = read_log(run).actions if gone else ()
    withdrawn = {action.file for action in actions if action.action == "withdraw"}
    found = {}
    for name, key in gone.items():
        if name not in withdrawn:
            uri = run.store.uri_of(run.store.read(key).decode(errors="replace").strip())
            what = next((_described(action) for action in reversed(actions) if action.file == name), "labels")
            found[uri] = (
                f"{uri} is lost, which holds {what}; restore it or import it again, or delete "
                f"{run.store.uri_of(key)} to go on without it"
            )
    return found


def refuse_lost(run: Run, estimate: AccuracyEstimate | None = None) -> None:
    """Raise DataError if a file of labels that was kept, or that an estimate was made of, is gone."""
    there = set(all_files(run)) if estimate else set()
    lost = [key for key in (estimate.label_files if estimate else ()) if key not in there]
    if lost:
        raise DataError(
            f"{run.store.uri_of(lost[0])} is lost, and the last estimate was made with it; restore it, or "
            f"delete {run.estimate_key} to go on without it"
        )
    for text in lost_files(run).values():
        raise DataError(text)


def all_files(run: Run) -> list[str]:
    """Return keys of the files of labels of all rounds of all tracks, and of what was done with them."""
    actions = [entry.key for entry in run.store.list(FOLDER) if entry.key.endswith(".json")]
    rounds = [(track, number) for track in run.tracks() for number in track.rounds()]
    return actions + [key for track, number in rounds for key in track.label_files(number)]


def _described(action: LabelAction) -> str:
    """What a file of labels holds, by the action that names it."""
    if action.action == "correct":
        return f"the correction of {', '.join(map(repr, action.ids))} by {action.annotator} ({action.at[:19]} UTC)"
    return f"the labels of {action.source!r} ({action.at[:19]} UTC)"


def adopt_rules(run: Run, spec: Spec) -> None:
    """Take over the rules of an edited spec: they are no part of a run's identity, so its header has the first ones."""
    log = read_log(run)
    before = [action for action in log.actions if action.action == "spec"]
    conflict = next((a.conflict for a in reversed(before) if a.conflict), run.spec.labels.conflict)
    score = next((a.score for a in reversed(before) if a.score), stated_score(run.spec))
    overlap = next((a.overlap for a in reversed(before) if a.overlap is not None), run.spec.labels.overlap)
    numbers = spec.labels.numbers_are_classes
    action = LabelAction(
        action="spec",
        at=now_after(log).isoformat(timespec="microseconds"),
        conflict=spec.labels.conflict if spec.labels.conflict != conflict else None,
        score=stated_score(spec) if stated_score(spec) != score else None,
        overlap=spec.labels.overlap if spec.labels.overlap != overlap else None,
        numbers_are_classes=numbers if numbers != log.numbers_are_classes else None,
    )
    if action.conflict or action.score or action.overlap is not None or action.numbers_are_classes is not None:
        write_action(run, action)
