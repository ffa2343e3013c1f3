"""One run at the page: the queue of its examples, what is shown of them, and what people did so far.

The queue assigns examples to annotators, and saves each answer in the run at once: a file of labels with one line, and
the action that names it, like every imported file. Undo withdraws that file. So no answer is lost when the server ends,
and the next server continues from the run. Another server, or `opacc labels`, may write to the same run meanwhile: the
queue looks for new actions every `LOOK` seconds.

An annotator may have the page open twice. An answer that would replace their own is saved only if it names the version
of that answer, which they have then seen. An unlikely number is saved only if it is confirmed.

An example is reserved for one annotator at a time, or for two in turn if two shall label it. A reservation ends with an
answer, or after `RESERVED` seconds, so that a closed browser does not block an example.
"""

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

from pydantic import Field

from opacc_ray.documents import Document
from opacc_ray.errors import DataError, LabelError
from opacc_ray.labels import shown_examples
from opacc_ray.labels.formats import Context, as_jsonl, is_cant_tell, quoted
from opacc_ray.labels.joining import THOUSANDS, as_shown, time_of
from opacc_ray.labels.label_log import LabelAction, label_rules, log_action, read_log
from opacc_ray.labels.labelled_rounds import canonical_form, measure_agreement
from opacc_ray.labels.shown_examples import ANSWERS, ExampleFiles, Picture
from opacc_ray.lake.store_uris import read_uri
from opacc_ray.registry import require
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import name_of_labels

SOURCE = "opacc label"  # name of the page's files in the log
RESERVED, LOOK = 900.0, 3.0  # seconds for which an example is reserved, and between looks at the run
LAST = 10  # answers of an annotator that are listed

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

    All methods are thread-safe; names of annotators come from :func:`.formats.checked_annotator`.
    """

    def __init__(self, run: Run, overlap: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._overlap, self._clock = run, overlap, clock
        self._read = canonical_form(run)
        self._model = run.spec.model
        self._lock = threading.RLock()
        self._reserved: dict[str, tuple[int, float]] = {}  # annotator -> number of an example, and when it ends
        self._tab: dict[str, object] = {}  # annotator -> the tab of the browser that asked last
        self.saved = 0  # answers by this process, undone ones included
        self._round_of: dict[str, int] = {}  # in the order of choice
        self._load()

    def _load(self) -> None:
        log = read_log(self._run)
        share = log.rules.overlap if self._overlap is None else self._overlap
        needed, twice = set[str](), set[str]()
        for number in self._run.rounds():
            self._round_of |= dict.fromkeys(self._run.read_selection(number).ids, number)
            waiting = shown_examples.waiting_ids(self._run, number, log)
            needed.update(waiting)
            twice |= shown_examples.doubled(waiting, share, self._run.name)
        self.ids = list(self._round_of)  # by their numbers, which never change: browsers refer to examples by number
        self._numbers = {id: number for number, id in enumerate(self.ids) if id in needed}
        self._needed = [(id in needed) + (id in twice) for id in self.ids]  # answers
        self._guidance = log.rules.guidance
        self._last = datetime.fromisoformat(log.now())
        self._known = len(self._run.commits)
        self._looked = self._clock()
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
        answers = self._given[number]
        if annotator in answers or self._is_answered(number):
            return False
        others = sum(who != annotator and at == number and end > now for who, (at, end) in self._reserved.items())
        return len(answers) + others < self._needed[number]

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
        return None

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


Element = str | list[Any]
"""A text, or an element: its tag, its attributes, and what is inside."""

TAGS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "hr"),
    *("strong", "em", "s", "code", "br", "table", "thead", "tbody", "tr", "th", "td"),
}

DEEPEST = 20  # level below which the parser would drop a text


@cache
def _reader() -> Any:
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST}).enable(["table", "strikethrough"])
    return reader.disable(["link", "image", "autolink", "reference", "html_block", "html_inline"])


def tree(text: str, *, below: int, breaks: bool = False) -> list[Element]:
    """Return the elements of a text in Markdown, with headings below that level.

    With ``breaks``, a line ends where it ends in the text, as in a chat. A text nested too deeply stays as it is.
    """
    from markdown_it.tree import SyntaxTreeNode

    tokens = _reader().parse(text)
    if any(token.level >= DEEPEST - 1 for token in tokens):
        return [["pre", {}, text]]
    return list(_inside(SyntaxTreeNode(tokens), below, breaks))


def _inside(node: Any, below: int, breaks: bool) -> Iterator[Element]:
    for child in node.children:
        if child.type == "softbreak":
            yield ["br", {}] if breaks else "\n"
        elif child.type == "inline" or (child.type == "paragraph" and child.hidden):  # of a list without empty lines
            yield from _inside(child, below, breaks)
        elif child.type in ("fence", "code_block"):
            yield ["pre", {}, child.content]
        elif child.type == "code_inline":
            yield ["code", {}, child.content]
        elif child.tag in TAGS:
            tag = f"h{min(int(child.tag[1]) + below, 6)}" if child.type == "heading" else child.tag
            start = {"start": child.attrs["start"]} if "start" in child.attrs else {}
            yield [tag, start, *_inside(child, below, breaks)]
        elif child.content:
            yield child.content


# -- one run ---------------------------------------------------------------------------------------------------------


class LabelSession(Document):
    """Answers that came in while the labelling page was served."""

    format: Literal["opacc-label-session/1"] = "opacc-label-session/1"
    run: str  # URI of the run
    saved: int = Field(ge=0)  # answers that this server saved, undone ones included
    done: int = Field(ge=0)  # answers that are there now
    total: int = Field(ge=0)  # answers that are needed: two for examples of the overlap, one for others
    different: int = Field(ge=0)  # examples whose answers differ and that have no correction


LONGEST, AT_ONCE = 1600, 2  # pixels of a picture's longer side, and pictures rendered at a time
TITLE = 60  # characters of a row in the list of last answers


class Desk:
    """Answers requests about one run; all methods may be called by several threads."""

    def __init__(self, run: Run, overlap: float | None = None) -> None:
        self.run, self.queue = run, LabelQueue(run, overlap)
        self.goes_on = False  # whether another round may follow once all examples are answered
        self._guidance = label_rules(run).guidance
        self._gate = threading.Semaphore(AT_ONCE)
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Read what is shown of the examples.

        Raises SpecError if annotators would see nothing of them, DataError if the rows are not in the pool any more.
        """
        _ = self._context

    @cached_property
    def _files(self) -> ExampleFiles:
        return ExampleFiles(self.run, self.run.rounds())

    @cached_property
    def _context(self) -> Context:
        self._rows, context = shown_examples.rows_to_show(self.run, self.run.rounds())
        shown_examples.refuse_invisible(self.run, context)
        if context.has_pictures:
            require("a labelling page with pictures", "PIL")
        return context

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.run.name

    def setup(self) -> dict[str, Any]:
        """Return what the page needs before the first example."""
        context, guidance = self._context, self._guidance
        about = {name: {"text": it.text, "pictures": len(it.pictures)} for name, it in guidance.describe.items()}
        return {
            "run": self.name,
            "task": context.task,
            "classes": context.classes,
            "numbers": context.reads_numbers,
            "several": context.task == "multilabel",
            "counts": context.counts,
            "pictures": context.has_pictures,
            "long": sorted(context.long),
            "question": context.question,
            "guide": tree(guidance.guide or "", below=1),
            "about": about,
            "unit": guidance.unit,
            "range": guidance.range or ([0, 1] if context.task == "grade" and context.reads_numbers else None),
        }

    def state(self, name: str, again: int | None = None) -> dict[str, Any]:
        """Return the example to label now, or one that somebody answered before and shows ``again``."""
        queue = self.queue
        queue.look()
        number = queue.next(name) if again is None else again
        if number is None:
            queue.look(now=True)
            number = queue.next(name)
        mine, label = None, None
        if number is not None and (mine := queue.given(name, number)):
            label = self.as_shown(mine)
        return {
            "number": number,
            "row": [] if number is None else self._row(number),
            "rendered": {} if number is None else self._rendered(number),
            "mine": mine and {"label": label, "version": mine.file},
            "upcoming": None if number is None else queue.after(name, number),
            "progress": queue.progress(name)._asdict(),
            "more": self.goes_on,
            "different": queue.num_different() if number is None else 0,
            "undone": None,
            "last": [
                {"number": own.number, "label": self.as_shown(own), "title": self._title(own.number)}
                for own in queue.last(name)
            ],
        }

    def undo(self, name: str) -> dict[str, Any]:
        """Withdraw somebody's last answer; returns the state with that example."""
        undone = self.queue.undo(name)
        if undone is None:
            return self.state(name)
        return self.state(name, undone.number) | {"undone": {"label": self.as_shown(undone)}}

    def save(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Save an answer; returns the state after it. Raises the errors of :meth:`LabelQueue.save`."""
        number, label = self._number(asked), asked.get("label")
        if label is not None and not (isinstance(label, str) and label.strip()):
            raise LabelError("give a label")
        text = None if label is None else label.strip()
        kept = self.queue.save(name, number, text, over=asked.get("over"), sure=asked.get("sure"))
        return self.state(name) | {"saved": {"label": self.as_shown(kept)}}

    def again(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the state with an example that somebody answered, to correct it."""
        number = self._number(asked)
        return self.state(name, None if self.queue.given(name, number) is None else number)

    def picture(self, number: int, *, whole: bool) -> Picture:
        """Return an example as a picture; raises DataError or StorageError if it cannot be shown."""
        id = self.queue.ids[number]
        with self._gate:
            if id not in self._files.uris:  # chosen by a round drawn since
                self._files = ExampleFiles(self.run, self.run.rounds())
            return self._files.picture(id, None if whole else LONGEST)

    def example_of_class(self, index: int, place: int) -> Picture:
        """Return a picture of the guide, by the place of its class; raises DataError if there is none."""
        described = list(self._guidance.describe.values())
        if not (index < len(described) and place < len(described[index].pictures)):
            raise DataError("there is no such picture")
        return shown_examples.render(read_uri(described[index].pictures[place]), longest=LONGEST // 4)

    def as_shown(self, given: Given) -> str | None:
        """Return an answer in the words of the page."""
        return as_shown(given.label, self.run.spec.model, self.queue.ids[given.number])

    def _number(self, asked: dict[str, Any]) -> int:
        number = asked.get("number")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self.queue.ids):
            raise LabelError("there is no such example")
        return number

    def _row(self, number: int) -> list[tuple[str, str]]:
        """Return the shown columns of an example with their texts."""
        id = self.queue.ids[number]
        with self._lock:
            if self._context.columns and id not in self._rows:  # chosen by a round drawn since
                self._rows, _ = shown_examples.rows_to_show(self.run, self.run.rounds())
        return list(self._rows.get(id, {}).items())

    def _rendered(self, number: int) -> dict[str, list[Element]]:
        """Return the judged answers of an example, whose Markdown is shown as such."""
        if self._context.task != "grade":
            return {}
        return {name: tree(text, below=2, breaks=True) for name, text in self._row(number) if name in ANSWERS}

    def _title(self, number: int) -> str:
        first = next((text for _, text in self._row(number) if text), "")
        return first if len(first) <= TITLE else f"{first[:TITLE]}…"

    def entry(self, name: str | None) -> dict[str, Any]:
        """Return the line of the inbox."""
        self.queue.look()
        progress = self.queue.progress(name or "")
        return {"run": self.name, "question": self._guidance.question, **progress._asdict()}

    def team(self) -> dict[str, Any]:
        """Return who answered how many, of these in the last 24 hours, and how far people agree."""
        answers: dict[str, set[str]] = defaultdict(set)
        today, since = Counter[str](), datetime.now(UTC) - timedelta(days=1)
        for row in read_log(self.run).labels():
            if row.status != "blank" and row.annotator is not None:
                answers[row.annotator].add(row.id)
                time = time_of(row.labelled_at)
                today[row.annotator] += time is not None and time > since
        agreement, people = measure_agreement(self.run), sorted(answers.items())
        return {
            "people": [{"name": name, "answers": len(ids), "today": today[name]} for name, ids in people],
            "different": self.queue.num_different(),
            "alpha": agreement.alpha,
            "twice": agreement.examples,
        }
