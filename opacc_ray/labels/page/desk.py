"""One run at the page: the queue of its examples, what is shown of them, and what people did so far."""

import statistics
import threading
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from opacc_ray.errors import DataError, LabelError
from opacc_ray.labels.annotator_agreement import measure_agreement
from opacc_ray.labels.example_files import ExampleFiles, Picture, render
from opacc_ray.labels.joining import time_of
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.label_rows import Context, as_shown
from opacc_ray.labels.page.label_queue import Given, LabelQueue
from opacc_ray.labels.shown_rows import ANSWERS, refuse_invisible, rows_to_show
from opacc_ray.lake.store_uris import read_uri
from opacc_ray.packages import require
from opacc_ray.runs.run import Run

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


LONGEST, AT_ONCE = 1600, 2  # pixels of a picture's longer side, and pictures rendered at a time
PAUSE = timedelta(minutes=5)  # between two answers, above which somebody was away
TITLE = 60  # characters of a row in the list of last answers


class Person(NamedTuple):
    """What somebody answered on the page."""

    name: str
    answers: int
    today: int  # of these, in the last 24 hours
    seconds: float | None  # median time per answer, without pauses; None if unknown


class Desk:
    """Answers requests about one run; all methods may be called by several threads."""

    def __init__(self, run: Run, overlap: float | None = None) -> None:
        self.run, self.queue = run, LabelQueue(run, overlap)
        self.goes_on = False  # whether another round may follow once all examples are answered
        self._guidance = read_log(run).guidance
        self._examples: dict[tuple[int, int], Picture] = {}
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
        self._rows, context = rows_to_show(self.run, self.run.rounds())
        refuse_invisible(self.run, context)
        if context.has_pictures:
            require("a labelling page with pictures", "PIL")
        return context

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.run.name

    def setup(self) -> dict[str, Any]:
        """Return what the page needs before the first example."""
        context, own = self._context, self._guidance
        about = {name: {"text": it.text, "pictures": len(it.pictures)} for name, it in own.describe.items()}
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
            "guide": tree(own.guide or "", below=1),
            "about": about,
            "unit": own.unit,
            "range": own.range or ([0, 1] if context.task == "grade" and context.reads_numbers else None),
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
        if (index, place) not in self._examples:
            content = read_uri(described[index].pictures[place])
            self._examples[index, place] = render(content, longest=LONGEST // 4)
        return self._examples[index, place]

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
                self._rows, _ = rows_to_show(self.run, self.run.rounds())
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
        """Return who answered how many at what pace, how far people agree, and how long the rest will take."""
        times: dict[str, list[datetime]] = defaultdict(list)
        answers: dict[str, set[str]] = defaultdict(set)
        for row in read_log(self.run).labels():
            if row.status != "blank" and row.annotator is not None:
                answers[row.annotator].add(row.id)
                if time := time_of(row.labelled_at):
                    times[row.annotator].append(time)
        people = [_person(name, len(ids), times[name]) for name, ids in sorted(answers.items())]
        progress = self.queue.progress("")
        pace = [person.seconds for person in people if person.seconds is not None]
        active = max(1, sum(person.today > 0 for person in people))
        left = (progress.total - progress.done) * statistics.median(pace) / active if pace else None
        agreement = measure_agreement(self.run)
        return {
            "people": [person._asdict() for person in people],
            "done": progress.done,
            "total": progress.total,
            "different": self.queue.num_different(),
            "seconds_left": left,
            "alpha": agreement.alpha,
            "twice": agreement.examples,
        }


def _person(name: str, num: int, times: list[datetime]) -> Person:
    ordered = sorted(times)
    steps = [later - earlier for earlier, later in pairwise(ordered)]
    spent = [step.total_seconds() for step in steps if timedelta() < step < PAUSE]
    since = datetime.now(UTC) - timedelta(days=1)
    return Person(name, num, sum(time > since for time in times), statistics.median(spent) if spent else None)
