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
from opacc_ray.labels.label_documents import LabelAction
from opacc_ray.labels.label_log import Score, log_action, read_log
from opacc_ray.labels.label_rows import THOUSANDS, as_shown, is_cant_tell, quoted
from opacc_ray.labels.labelled_rounds import canonical_form
from opacc_ray.labels.shown_rows import doubled, waiting_ids
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
    """An answer in the run: a label in canonical form, or None for "can't tell"; its file is its version."""

    label: str | None
    file: str
    number: int  # of the example
    annotator: str
    is_correction: bool = False  # so that the example needs no answer any more
    is_ours: bool = True  # whether it was given on the page


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
        self._tab: dict[str, object] = {}  # annotator -> the tab of the browser that asked last
        self.saved = 0  # answers by this process, undone ones included
        self._round_of: dict[str, int] = {}  # in the order of choice
        self._load()

    def _load(self) -> None:
        log = read_log(self._run)
        share = log.overlap if self._overlap is None else self._overlap
        needed, twice = set[str](), set[str]()
        for number in self._run.rounds():
            self._round_of |= dict.fromkeys(self._run.read_selection(number).ids, number)
            waiting = waiting_ids(self._run, number, log)
            needed.update(waiting)
            twice |= doubled(waiting, share, self._run.name)
        self.ids = list(self._round_of)  # by their numbers, which never change: browsers refer to examples by number
        self._numbers = {id: number for number, id in enumerate(self.ids) if id in needed}
        self._needed = [(id in needed) + (id in twice) for id in self.ids]  # answers
        self._guidance = log.guidance
        self._last = datetime.fromisoformat(log.now())
        self._known = len(self._run.commits)
        self._looked = self._clock()
        self._largest = self._largest_expected(log.score) if self._is_regression else math.inf
        self._answers = list[Given]()  # in the order of the log
        for file in log.returned:
            for row in file.standing():
                if row.status == "blank" or row.id not in self._numbers:
                    continue
                label, is_ours = row.label, file.action.source == SOURCE
                with suppress(LabelError):  # a text that is no label stays as it is
                    label = label and self._read(row.id, label)
                number, who = self._numbers[row.id], row.annotator or ""
                self._answers.append(Given(label, file.name, number, who, file.is_correction, is_ours))
        self._join()

    def _join(self) -> None:
        """Find the last answer of each annotator, by example, and the examples that a correction settles."""
        self._given: list[dict[str, Given]] = [{} for _ in self.ids]
        for answer in self._answers:
            self._given[answer.number][answer.annotator] = answer
        self._settled = {answer.number for answer in self._answers if answer.is_correction}

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

    def note_tab(self, annotator: str, tab: object) -> None:
        """Remember the tab of a browser for which an annotator's example is reserved."""
        with self._lock:
            self._tab[annotator] = tab

    def release(self, annotator: str, tab: object) -> None:
        """Give back an annotator's example if this tab, which was closed, asked for it last."""
        with self._lock:
            if self._tab.get(annotator) == tab:
                self._reserved.pop(annotator, None)

    def after(self, annotator: str, number: int) -> int | None:
        """Return the number that probably follows, for a browser to preload; it is not reserved."""
        with self._lock:
            return self._first_open(annotator, self._clock(), start=number + 1)

    def _first_open(self, annotator: str, now: float, start: int = 0) -> int | None:
        return next((i for i in range(start, len(self.ids)) if self._is_open(i, annotator, now)), None)

    def _is_answered(self, number: int) -> bool:
        return number in self._settled or len(self._given[number]) >= self._needed[number]

    def _is_open(self, number: int, annotator: str, now: float) -> bool:
        given = self._given[number]
        if annotator in given or self._is_answered(number):
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
            id, answer = self.ids[number], self._given[number].get(annotator)
            label = None if text is None else self._label_of(text, id)
            if not self._needed[number]:
                raise TakenError(GIVEN_UP)
            if answer is None and self._is_answered(number):
                raise TakenError(TAKEN)
            if answer is None or answer.label != label:
                if answer is not None and answer.file != over:
                    before = as_shown(answer.label, self._model, id) or "can’t tell"
                    question = f"You already answered this example on another page: {before}."
                    raise UnsureError(question, over=answer.file)
                if text is not None and label is not None and text != sure and (doubt := self._doubt(text, label)):
                    raise UnsureError(doubt, sure=text)
                answer = self._write(annotator, number, label)
                self.saved += 1
            self._reserved.pop(annotator, None)
            return answer

    def _label_of(self, text: str, id: str) -> str:
        """Return the canonical form of a typed label; raises LabelError if it is no label."""
        try:
            return self._read(id, text.replace(",", ".", 1) if self._model.reads_numbers else text)
        except LabelError as error:  # the page shows it, and knows no ids
            raise LabelError(str(error).removeprefix(f"example {quoted(id)} has the label ")) from None

    def _doubt(self, text: str, label: str) -> str | None:
        """Return why a label may not be the number that was meant; None if nothing speaks against it."""
        if not self._model.reads_numbers:
            return None
        low, high = self._guidance.range or (-math.inf, math.inf)
        if not low <= float(label) <= high:
            unit = f" {self._guidance.unit}" if self._guidance.unit else ""
            return f"{text} is outside {low:g} to {high:g}{unit}, the usual range here."
        if THOUSANDS.fullmatch(text):
            return f"{text} means {label}: the comma is a decimal point here."
        known = (float(answer.label) for answer in self._answers if answer.label is not None)
        largest = max([self._largest, *(abs(value) for value in known if math.isfinite(value))])
        is_far = self._is_regression and abs(float(label)) > FAR * largest
        return f"{text} is over {FAR} times larger than expected here." if is_far else None

    def _write(self, annotator: str, number: int, label: str | None) -> Given:
        id, time, classes = self.ids[number], self._now(), self._run.spec.model.classes or ()
        is_unsure_class = label is not None and label in classes and is_cant_tell(label)
        fields = {
            "id": id,
            "label": str(classes.index(label)) if is_unsure_class and label else label,  # such a class: by its index
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
        self._answers.append(Given(label, name, number, annotator))
        self._join()
        return self._answers[-1]

    def _ours(self, annotator: str) -> list[Given]:
        """Return an annotator's answers on the page that count, newest first."""
        ours = [answer for answer in reversed(self._answers) if answer.is_ours and answer.annotator == annotator]
        return [answer for answer in ours if self._given[answer.number][annotator].file == answer.file]

    def last(self, annotator: str) -> list[Given]:
        """Return an annotator's last `LAST` answers on the page that count, newest first."""
        with self._lock:
            return self._ours(annotator)[:LAST]

    def given(self, annotator: str, number: int) -> Given | None:
        """Return an annotator's answer to an example; None without one."""
        with self._lock:
            return self._given[number].get(annotator)

    def undo(self, annotator: str) -> Given | None:
        """Withdraw an annotator's last answer on this page, and reserve its example; None if there is none.

        An earlier answer that it had corrected counts again.
        """
        with self._lock:
            last = next(iter(self._ours(annotator)), None)
            if last is not None:
                action = LabelAction(action="withdraw", at=self._now(), file=last.file)
                log_action(self._run, lambda _: action)
                self._known += 1
                self._answers = [answer for answer in self._answers if answer.file != last.file]
                self._join()
                self._reserved[annotator] = (last.number, self._clock() + RESERVED)
            return last

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
