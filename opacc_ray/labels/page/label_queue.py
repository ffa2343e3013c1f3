"""Queue of the labelling page: assigns examples to annotators, and saves each answer in the run at once.

An answer is a file of labels with one line, and the action that names it, like every imported file. Undo withdraws
that file. So no answer is lost when the server ends, and the next server continues from the run. Another server, or
`opacc labels`, may write to the same run meanwhile: the queue looks for new actions every `LOOK` seconds.

An annotator may have the page open twice. An answer that would replace their own is saved only if it names the version
of that answer, which they have then seen. A number far larger than all others is saved only if it is confirmed.

An example is reserved for one annotator at a time, or for two in turn if two shall label it. A reservation ends with an
answer, or after `RESERVED` seconds, so that a closed browser does not block an example.
"""

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from opacc_ray.errors import LabelError
from opacc_ray.labels.formats.jsonl_file import as_jsonl
from opacc_ray.labels.grades import as_shown
from opacc_ray.labels.label_documents import LabelAction
from opacc_ray.labels.label_log import Score, log_action, now_after, read_log
from opacc_ray.labels.label_rows import THOUSANDS, is_cant_tell, quoted
from opacc_ray.labels.labelled_rounds import canonical_form
from opacc_ray.labels.labelling_tasks import doubled, waiting_ids
from opacc_ray.runs.commit_log import name_of_labels
from opacc_ray.runs.run import Run

SOURCE = "opacc label"  # name of the page's files in the log
RESERVED, LOOK = 900.0, 3.0  # seconds for which an example is reserved, and between looks at the run
LAST = 10  # answers of an annotator that are listed
FAR = 100  # factor over all predictions and labels above which a number must be confirmed

GIVEN_UP = "Not used: the round was closed or drawn again without this example. Here is the next one."
TAKEN = "Not saved: somebody else has labelled this example. Here is the next one."


class TakenError(LabelError):
    """The example needs no answer any more."""


class UnsureError(LabelError):
    """An answer that is saved only if its annotator confirms ``over``, ``sure`` or both.

    ``over`` is the version of the annotator's own answer that it would replace, and ``sure`` an unlikely number.
    """

    def __init__(self, question: str, *, over: str | None = None, sure: str | None = None) -> None:
        super().__init__(question)
        self.over, self.sure = over, sure


class Given(NamedTuple):
    """A saved answer: a label in canonical form, or None for "can't tell"; and its file, which is its version."""

    label: str | None
    file: str


class Progress(NamedTuple):
    """Numbers of answers."""

    done: int  # saved
    total: int  # needed
    mine: int  # saved by one annotator


class LabelQueue:
    """The examples of a run, numbered in the order of choice, with their answers and reservations.

    All methods are thread-safe; names of annotators come from :func:`.label_rows.checked_annotator`.
    """

    def __init__(self, run: Run, overlap: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._overlap, self._clock = run, overlap, clock
        self._read = canonical_form(run)
        self._model = run.spec.model
        self._is_regression = run.spec.model.task == "regression"
        self._lock = threading.RLock()
        self._reserved: dict[str, tuple[int, float]] = {}  # annotator -> number of an example, and when it ends
        self.saved = 0  # answers by this process, undone ones included
        self._round_of: dict[str, int] = {}  # in the order of choice
        self._load()

    def _load(self) -> None:
        log = read_log(self._run)
        share = log.overlap if self._overlap is None else self._overlap
        needed, twice = set[str](), set[str]()
        for number in self._run.rounds():
            self._run.check_copies(number)
            self._round_of |= dict.fromkeys(self._run.read_selection(number).ids, number)
            waiting = waiting_ids(self._run, number)
            needed.update(waiting)
            twice |= doubled(waiting, share, self._run.name)
        self.ids = list(self._round_of)  # by their numbers, which never change: browsers refer to examples by number
        self._numbers = {id: number for number, id in enumerate(self.ids) if id in needed}
        self._needed = [(id in needed) + (id in twice) for id in self.ids]  # answers
        self._given: list[dict[str, Given]] = [{} for _ in self.ids]
        self._settled: set[int] = set()
        self._history: dict[str, list[tuple[int, Given]]] = {}
        self._guidance = log.guidance
        self._last = now_after(log)
        self._known = len(self._run.commits)
        self._looked = self._clock()
        self._largest = self._largest_expected(log.score) if self._is_regression else math.inf
        for file in log.returned:
            for row in file.labels():
                if row.status == "blank" or file.is_withdrawn(row.id) or row.id not in self._numbers:
                    continue
                number, who, label = self._numbers[row.id], row.annotator or "", row.label
                with suppress(LabelError):  # a text that is no label stays as it is
                    label = label and self._read(row.id, label)
                self._given[number][who] = Given(label, file.name)
                if file.is_correction:
                    self._settled.add(number)
                if file.source == SOURCE:
                    self._history.setdefault(who, []).append((number, Given(label, file.name)))

    def _largest_expected(self, score: Score) -> float:
        """Return the largest magnitude of predictions, and of errors that the score distinguishes."""
        chosen = (self._run.read_chosen(number) for number in self._run.rounds())
        values = [abs(float(value)) for item in chosen for value in item.predictions]
        return max([score.within or score.scale, *(value for value in values if math.isfinite(value))])

    def look(self, *, now: bool = False) -> None:
        """Read the run again if it was changed by others, at most every `LOOK` seconds; always if ``now``."""
        with self._lock:
            if not now and self._clock() - self._looked < LOOK:
                return
            self._looked = self._clock()
            if now or len(self._run.commits) != self._known:
                self._load()

    def next(self, annotator: str) -> int | None:
        """Reserve an annotator's next example and return its number; None if there is none left."""
        with self._lock:
            now = self._clock()
            number, _ = self._reserved.pop(annotator, (None, now))
            if number is None or not self._is_open(number, annotator, now):
                number = self._first_open(annotator, now)
            if number is not None:
                self._reserved[annotator] = (number, now + RESERVED)
            return number

    def after(self, annotator: str, number: int) -> int | None:
        """Return the number that probably follows, for a browser to preload; it is not reserved."""
        with self._lock:
            return self._first_open(annotator, self._clock(), start=number + 1)

    def _first_open(self, annotator: str, now: float, start: int = 0) -> int | None:
        return next((i for i in range(start, len(self.ids)) if self._is_open(i, annotator, now)), None)

    def _is_open(self, number: int, annotator: str, now: float) -> bool:
        given = self._given[number]
        if annotator in given or number in self._settled or len(given) >= self._needed[number]:
            return False
        others = sum(who != annotator and at == number and end > now for who, (at, end) in self._reserved.items())
        return len(given) + others < self._needed[number]

    def save(
        self, annotator: str, number: int, text: str | None, *, over: str | None = None, sure: str | None = None
    ) -> Given:
        """Save an answer in the run, and return it once it is written. The same answer again changes nothing.

        ``text`` None is "can't tell"; ``over`` and ``sure`` are what the annotator confirmed, see :class:`UnsureError`.

        Raises LabelError if the text is no label; UnsureError if the annotator gave another answer on another page, or
        the number is far from all others; TakenError if enough others have answered, or the example was given up;
        StorageError if it could not be written: nothing has changed, and it can be tried again.
        """
        with self._lock:
            id, given = self.ids[number], self._given[number]
            label = None if text is None else self._label_of(text, id)
            own = given.get(annotator)
            if not self._needed[number]:
                raise TakenError(GIVEN_UP)
            if own is None and (number in self._settled or len(given) >= self._needed[number]):
                raise TakenError(TAKEN)
            if own is not None and own.label == label:
                self._reserved.pop(annotator, None)
                return own
            self._ask(own, as_shown(own.label, self._model, id) if own else None, label, text, over, sure)
            kept = Given(label, self._write(annotator, id, label))
            given[annotator] = kept
            self._history.setdefault(annotator, []).append((number, kept))
            self._reserved.pop(annotator, None)
            self.saved += 1
            return kept

    def _label_of(self, text: str, id: str) -> str:
        """Return the canonical form of a typed label; raises LabelError if it is no label."""
        try:
            return self._read(id, text.replace(",", ".", 1) if self._model.reads_numbers else text)
        except LabelError as error:  # the page shows it, and knows no ids
            raise LabelError(str(error).removeprefix(f"example {quoted(id)} has the label ")) from None

    def _ask(
        self,
        own: Given | None,
        before: str | None,
        label: str | None,
        text: str | None,
        over: str | None,
        sure: str | None,
    ) -> None:
        """Raise UnsureError if an answer is an unlikely number, or replaces one that is not shown here."""
        if own is not None and own.file != over:
            answer = "can’t tell" if before is None else before
            raise UnsureError(f"You already answered this example on another page: {answer}.", over=own.file)
        if not self._model.reads_numbers or label is None or text is None or text == sure:
            return
        low, high = self._guidance.range or (-math.inf, math.inf)
        if not low <= float(label) <= high:
            unit = f" {self._guidance.unit}" if self._guidance.unit else ""
            raise UnsureError(f"{text} is outside {low:g} to {high:g}{unit}, the usual range here.", sure=text)
        if THOUSANDS.fullmatch(text):
            raise UnsureError(f"{text} means {label}: the comma is a decimal point here.", sure=text)
        known = (float(given.label) for answers in self._given for given in answers.values() if given.label is not None)
        largest = max([self._largest, *(abs(value) for value in known if math.isfinite(value))])
        if self._is_regression and abs(float(label)) > FAR * largest:
            raise UnsureError(f"{text} is over {FAR} times larger than expected here.", sure=text)

    def _write(self, annotator: str, id: str, label: str | None) -> str:
        time, written, classes = self._now(), label, self._run.spec.model.classes or ()
        if label is not None and label in classes and is_cant_tell(label):  # a class called "unsure": by its index
            written = str(classes.index(label))
        fields = {
            "id": id,
            "label": written,
            "status": "unsure" if label is None else "labelled",
            "annotator": annotator,
            "labelled_at": time,
            "run": self._run.name,
            "round": self._round_of[id],
        }
        data = as_jsonl([fields])
        name = name_of_labels("page.jsonl", data)
        action = LabelAction(action="import", at=time, file=name, file_format="jsonl", source=SOURCE)

        def decide(now: Run) -> LabelAction:
            if id in (now.read_closed(self._round_of[id]) or ()):  # closed since the last look
                raise TakenError(GIVEN_UP)
            return action

        try:
            log_action(self._run, decide, ("page.jsonl", data), self._round_of[id])
        except TakenError:
            self._load()
            raise
        self._known += 1
        return name

    def last(self, annotator: str) -> list[tuple[int, Given]]:
        """Return an annotator's last `LAST` answers on the page that count, newest first, by number."""
        with self._lock:
            found: dict[int, Given] = {}
            for number, _ in reversed(self._history.get(annotator, [])):
                given = self._given[number].get(annotator)
                if given is not None and number not in found and len(found) < LAST:
                    found[number] = given
            return list(found.items())

    def given(self, annotator: str, number: int) -> Given | None:
        """Return an annotator's answer to an example; None without one."""
        with self._lock:
            return self._given[number].get(annotator)

    def undo(self, annotator: str) -> tuple[int, Given] | None:
        """Withdraw an annotator's last answer on this page, and reserve its example; None if there is none.

        An earlier answer that it had corrected counts again.
        """
        with self._lock:
            history = self._history.get(annotator, [])
            while history:
                number, last = history[-1]
                given = self._given[number].get(annotator)
                if given is None or given.file != last.file:  # answered again, or withdrawn by somebody
                    history.pop()
                    continue
                self._withdraw(last.file)
                history.pop()
                del self._given[number][annotator]
                before = [own for at, own in history if at == number]
                if before:
                    self._given[number][annotator] = before[-1]
                self._reserved[annotator] = (number, self._clock() + RESERVED)
                return number, given
            return None

    def _withdraw(self, file: str) -> None:
        action = LabelAction(action="withdraw", at=self._now(), file=file)
        log_action(self._run, lambda _: action)
        self._known += 1

    def _now(self) -> str:
        """Return the current time, later than that of every action so far."""
        self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
        return self._last.isoformat(timespec="microseconds")

    def progress(self, annotator: str) -> Progress:
        """Return the progress of all annotators and of one."""
        with self._lock:
            rows = enumerate(zip(self._given, self._needed, strict=True))
            done = sum(needed if i in self._settled else min(len(given), needed) for i, (given, needed) in rows)
            return Progress(done, sum(self._needed), sum(annotator in given for given in self._given))

    def is_done(self) -> bool:
        """Return whether no answer is missing."""
        progress = self.progress("")
        return progress.done == progress.total

    def num_different(self) -> int:
        """Return the number of examples whose labels differ and that have no correction."""
        with self._lock:
            labels = ({given.label for given in answers.values()} - {None} for answers in self._given)
            return sum(len(own) > 1 and i not in self._settled for i, own in enumerate(labels))
