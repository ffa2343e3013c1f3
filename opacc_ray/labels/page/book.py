"""Who labels which example now, what they said, and every answer kept in the run at once.

An answer is a file of labels of one line, with the action that names it, as every file that comes back: written whole,
named by its content, never changed. Undo withdraws that file. So nothing is lost when the server ends, and the next one
goes on from what the run holds. Another server, or `opacc labels`, may write to the same run meanwhile: new actions are
looked for every `LOOK` seconds.

Somebody may have the page open twice: an answer that would replace their own is kept only if it names the version of
that one, which they have then seen. A number far larger than all others is kept only if it is given twice.

An example is lent to one annotator at a time, and again where two shall label it. A loan ends with an answer, or after
`LOAN` seconds, so that nobody's closed lid keeps an example.
"""

import json
import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from opacc_ray.errors import LabelError, OpaccError
from opacc_ray.labels.documents import LabelAction
from opacc_ray.labels.labelled_rounds import canonical_form
from opacc_ray.labels.log import FOLDER, KEPT, keep_file, now_after, read_log, write_action
from opacc_ray.labels.outcomes import Score
from opacc_ray.labels.overlap import doubled
from opacc_ray.labels.rows import says_unsure
from opacc_ray.labels.tasks import waiting_ids
from opacc_ray.runs.run import Run, name_of_labels

SOURCE = "opacc label"
"""What files of this page are called in the log."""

LOAN, LOOK = 900.0, 3.0

FAR = 100
"""How many times larger than all predictions and labels a number is, about which its author is asked."""

THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
"""Numbers whose comma may be meant as a decimal point, or between thousands."""

GIVEN_UP = "the round was closed or drawn anew meanwhile, without this one; here is the next"
"""What is said of an answer that is not used."""


class TakenError(OpaccError):
    """Somebody else has answered the example meanwhile."""

    exit_code = 6


class UnsureError(OpaccError):
    """An answer that is kept only if its author says once more that it is meant.

    Attributes
    ----------
    over : the version of the author's own answer that it would replace; None if that is not the question.
    sure : the text that is asked about; None if that is not the question.
    """

    exit_code = 6

    def __init__(self, question: str, *, over: str | None = None, sure: str | None = None) -> None:
        super().__init__(question)
        self.over, self.sure = over, sure


class Given(NamedTuple):
    """An answer: a label in canonical form, or None for "can't tell"; and the file that holds it, its version."""

    label: str | None
    file: str


class Progress(NamedTuple):
    """How many opinions are wanted and there, and how many of them are one annotator's."""

    done: int
    total: int
    mine: int


class Book:
    """The examples of a run that people label on a page, by their numbers in the order of choice.

    All methods may be called from several threads; names are those of :func:`.rows.checked_annotator`.
    """

    def __init__(self, run: Run, overlap: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._overlap, self._clock = run, overlap, clock
        self._read = canonical_form(run)
        self._is_regression = run.spec.model.task == "regression"
        self._lock = threading.RLock()
        self._loans: dict[str, tuple[int, float]] = {}  # annotator -> the number of an example, and when it ends
        self._saved = 0
        self._round_of: dict[str, int] = {}
        self.ids: list[str] = []  # by their numbers, which stay: a browser shows one by its number, and answers it
        self._load()

    @property
    def saved(self) -> int:
        """How many answers this process has saved, undone ones included."""
        return self._saved

    def _load(self) -> None:
        """Read what the run holds now."""
        for number in self._run.rounds():
            self._run.check_copies(number)
        log = read_log(self._run)
        share = log.overlap if self._overlap is None else self._overlap
        chosen = {number: self._run.read_selection(number).ids for number in self._run.rounds()}
        self._round_of |= {id: number for number, ids in chosen.items() for id in ids}
        waiting = {number: waiting_ids(self._run, number) for number in chosen}
        wanted = {id for ids in waiting.values() for id in ids}
        self.ids = list(dict.fromkeys([*self.ids, *(id for ids in chosen.values() for id in ids)]))
        self._numbers = {id: number for number, id in enumerate(self.ids) if id in wanted}
        twice = frozenset[str]().union(*(doubled(ids, share, self._run.name) for ids in waiting.values()))
        self._wanted = [(id in wanted) + (id in twice) for id in self.ids]
        self._given: list[dict[str, Given]] = [{} for _ in self.ids]
        self._settled: set[int] = set()
        self._history: dict[str, list[tuple[int, str]]] = {}
        self._last = now_after(log)
        self._known = self._keys()
        self._looked = self._clock()
        self._largest = self._largest_expected(log.score) if self._is_regression else math.inf
        for file in log.returned:
            for row in file.labels():
                if row.status == "blank" or not file.is_standing(row.id) or row.id not in self._numbers:
                    continue
                number, who = self._numbers[row.id], row.annotator or ""
                self._given[number][who] = Given(self._canonical(row.label), file.name)
                if file.is_correction:
                    self._settled.add(number)
                if file.source == SOURCE:
                    self._history.setdefault(who, []).append((number, file.name))

    def _canonical(self, label: str | None) -> str | None:
        """A label in canonical form; as it is if it is none."""
        with suppress(LabelError):
            return label and self._read("", label)
        return label

    def _largest_expected(self, score: Score) -> float:
        """The largest magnitude of predictions, and of an error that the score tells from others."""
        chosen = (self._run.read_chosen(number) for number in self._run.rounds())
        values = [abs(float(value)) for item in chosen for value in item.predictions]
        return max([score.within or score.scale, *(value for value in values if math.isfinite(value))])

    def look(self, *, now: bool = False) -> None:
        """Read again if somebody else has written to the run; at once with ``now``, new rounds included."""
        with self._lock:
            if not now and self._clock() - self._looked < LOOK:
                return
            self._looked = self._clock()
            if now or self._keys() != self._known:
                self._load()

    def _keys(self) -> set[str]:
        """Keys of what decides who labels what: actions, draws, closings; files of labels come with an action."""
        entries = [*self._run.store.list(FOLDER), *self._run.store.list(self._run.key_of(""))]
        return {entry.key for entry in entries if not re.search(rf"rounds/\d+/labels/|{re.escape(KEPT)}$", entry.key)}

    def next(self, annotator: str) -> int | None:
        """The example that an annotator labels now, lent to nobody else; None if there is none left for them."""
        with self._lock:
            now = self._clock()
            lent = self._loans.get(annotator)
            if lent and lent[0] < len(self.ids) and self._is_open(lent[0], annotator, now):
                number: int | None = lent[0]
            else:
                number = self._first_open(annotator, now)
            self._loans.pop(annotator, None)
            if number is not None:
                self._loans[annotator] = (number, now + LOAN)
            return number

    def after(self, annotator: str, number: int) -> int | None:
        """The example that probably follows, which a page may fetch ahead; it is not lent."""
        with self._lock:
            return self._first_open(annotator, self._clock(), start=number + 1)

    def _first_open(self, annotator: str, now: float, start: int = 0) -> int | None:
        return next((i for i in range(start, len(self.ids)) if self._is_open(i, annotator, now)), None)

    def _is_open(self, number: int, annotator: str, now: float) -> bool:
        given = self._given[number]
        if annotator in given or number in self._settled or len(given) >= self._wanted[number]:
            return False
        lent = sum(who != annotator and at == number and end > now for who, (at, end) in self._loans.items())
        return len(given) + lent < self._wanted[number]

    def save(
        self, annotator: str, number: int, text: str | None, *, over: str | None = None, sure: str | None = None
    ) -> Given:
        """Keep an answer in the run; returns once it is there. The same answer again changes nothing.

        Parameters
        ----------
        text : a label; None: "can't tell".
        over : the version of the annotator's own answer that they saw and want to replace.
        sure : a text that they were asked about, and mean.

        Raises
        ------
        LabelError
            The text is no label.
        UnsureError
            The annotator gave another answer meanwhile, on another page; or the number is far from all others.
        TakenError
            Enough others have answered meanwhile, or it was given up.
        StorageError
            It could not be written; then nothing has changed, and it may be tried again.
        """
        with self._lock:
            id, given = self.ids[number], self._given[number]
            label = None if text is None else self._label_of(text)
            own = given.get(annotator)
            if not self._wanted[number]:
                raise TakenError(GIVEN_UP)
            if own is None and (number in self._settled or len(given) >= self._wanted[number]):
                raise TakenError("somebody else has labelled this one meanwhile; here is the next")
            if own is not None and own.label == label:
                self._loans.pop(annotator, None)
                return own
            self._ask(own, label, text, over, sure)
            kept = Given(label, self._write(annotator, id, label))
            given[annotator] = kept
            self._history.setdefault(annotator, []).append((number, kept.file))
            self._loans.pop(annotator, None)
            self._saved += 1
            if id in (self._run.read_closed(self._round_of[id]) or ()):  # since the last look; who closes looks, too
                self._load()
                raise TakenError(GIVEN_UP)
            return kept

    def _label_of(self, text: str) -> str:
        """The canonical form of what somebody typed; raises LabelError if it is no label."""
        try:
            return self._read("", text.replace(",", ".", 1) if self._is_regression else text)
        except LabelError as error:  # the page shows it, and has no ids
            raise LabelError(str(error).removeprefix("example '' has the label ")) from None

    def _ask(self, own: Given | None, label: str | None, text: str | None, over: str | None, sure: str | None) -> None:
        """Raise UnsureError if an answer replaces one that its author has not seen here, or is an unlikely number."""
        if own is not None and own.file != over:
            said = "can’t tell" if own.label is None else own.label
            raise UnsureError(f"You answered this one on another page meanwhile: {said}.", over=own.file)
        if not self._is_regression or label is None or text is None or text == sure:
            return
        if THOUSANDS.fullmatch(text):
            raise UnsureError(f"{text} is read as {label}: a comma is a decimal point here.", sure=text)
        known = (float(given.label) for answers in self._given for given in answers.values() if given.label is not None)
        largest = max([self._largest, *(abs(value) for value in known if math.isfinite(value))])
        if abs(float(label)) > FAR * largest:
            raise UnsureError(f"{text} is more than {FAR} times as large as the numbers expected here.", sure=text)

    def _write(self, annotator: str, id: str, label: str | None) -> str:
        time = self._now()
        fields = {
            "id": id,
            "label": self._text_of(label),
            "status": "unsure" if label is None else "labelled",
            "annotator": annotator,
            "labelled_at": time,
            "run": self._run.name,
            "round": self._round_of[id],
        }
        data = json.dumps(fields, ensure_ascii=False).encode() + b"\n"
        name = name_of_labels("page.jsonl", data)
        self._act(LabelAction(action="import", at=time, file=name, source=SOURCE))
        keep_file(self._run, self._round_of[id], "page.jsonl", data)
        return name

    def _text_of(self, label: str | None) -> str | None:
        """The label as a file says it; a class that is called "unsure" by its index, which means the class alone."""
        classes = self._run.spec.model.classes
        if label is not None and classes and says_unsure(label):
            return str(classes.index(label))
        return label

    def undo(self, annotator: str) -> tuple[int, Given] | None:
        """Withdraw an annotator's last answer on this page, and lend them its example; None if there is none."""
        with self._lock:
            history = self._history.get(annotator, [])
            while history:
                number, file = history[-1]
                given = self._given[number].get(annotator)
                if given is None or given.file != file:  # answered again, or withdrawn by somebody
                    history.pop()
                    continue
                self._act(LabelAction(action="withdraw", at=self._now(), file=file))
                history.pop()
                del self._given[number][annotator]
                self._loans[annotator] = (number, self._clock() + LOAN)
                return number, given
            return None

    def _now(self) -> str:
        """A time later than that of every action so far."""
        self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
        return self._last.isoformat(timespec="microseconds")

    def _act(self, action: LabelAction) -> None:
        self._known.add(write_action(self._run, action))

    def progress(self, annotator: str) -> Progress:
        """How far all are."""
        with self._lock:
            rows = zip(range(len(self.ids)), self._given, self._wanted, strict=True)
            done = sum(wanted if i in self._settled else min(len(given), wanted) for i, given, wanted in rows)
            return Progress(done, sum(self._wanted), sum(annotator in given for given in self._given))

    def num_different(self) -> int:
        """How many examples have answers that differ, and no correction that settles them."""
        with self._lock:
            said = ({given.label for given in answers.values()} - {None} for answers in self._given)
            return sum(len(labels) > 1 and i not in self._settled for i, labels in enumerate(said))
