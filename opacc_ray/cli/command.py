"""What every command has: options, exit codes, and an answer that is printed as text or JSON."""

import contextlib
import ctypes
import functools
import io
import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import unicodedata
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from opacc_ray.audit.progress import CLEARED, LOG, Progress
from opacc_ray.errors import OpaccError, SpecError, as_ours, shortened
from opacc_ray.runs.run_names import known_outputs, uri_of

if TYPE_CHECKING:
    from opacc_ray.documents import Document
    from opacc_ray.report.facts import Fact, Line, Table

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """The result of a command: a document for machines, facts and tables for people."""

    document: "Document"
    lines: "Sequence[Line]"
    failure: OpaccError | None = None  # its exit code is the command's


class Command(click.Command):
    """A command whose callback returns an :class:`Answer`, printed as text or as JSON."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.params.append(
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of text.")
        )

    def invoke(self, context: click.Context) -> int:
        """Run the callback, with URIs instead of short names; return the exit code."""
        given = context.params
        as_json, verbose = given.pop("as_json"), given.pop("verbose", False)
        try:
            with stdout_kept():
                for name in [item.name or "" for item in self.params if item.type is RUN]:
                    uris = given[name]
                    given[name] = tuple(map(uri_of, uris)) if isinstance(uris, tuple) else uris and uri_of(uris)
                answer: Answer = super().invoke(context)
        except (click.ClickException, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            ours = ending(error)
            return fail(f"{ours}{kept_in_log(ours.details)}", ours.exit_code, as_json=as_json)
        if as_json:
            print(printable_json(json.dumps(answer.document.to_dict(), ensure_ascii=False)), flush=True)
        else:
            print(terminal_text(answer.lines, verbose=verbose, styled=is_styled()), flush=True)
        if answer.failure is None:
            return 0
        return fail(f"{answer.failure}{kept_in_log(answer.failure.details)}", answer.failure.exit_code, as_json=False)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those for a file of predictions in a group of their own."""
        for title, is_key in ((TABLE_TITLE, True), ("Options", False)):
            options = [item for item in self.get_params(context) if isinstance(item, click.Option)]
            shown = [item for item in options if isinstance(item, TableOption) is is_key]
            if rows := [row for item in shown if (row := item.get_help_record(context)) is not None]:
                with formatter.section(title):
                    formatter.write_dl(rows)


class TableOption(click.Option):
    """An option of an audit of a file of predictions: a key that a spec has."""


TABLE_TITLE = "Keys of FILE.csv (SPEC.yaml has its own)"


def command(name: str) -> Callable[[Callable[..., Answer]], Command]:
    """Make a function a command; the first line of its docstring is its help."""
    return click.command(name, cls=Command)


class Group(click.Group):
    """A group of commands; its help lists them by section, in order of definition, with their whole first sentences.

    ``default`` is the command that is meant if the first argument is no command. ``others`` are commands of extensions,
    which are imported when they are called or listed. With ``first``, a title and names, `--help` lists these commands
    alone, and `--help-all` all of them.
    """

    def __init__(
        self,
        name: str,
        sections: Mapping[str, Sequence[click.Command]],
        default: str | None = None,
        others: Mapping[str, click.Command] = MappingProxyType({}),
        first: tuple[str, Sequence[str]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(name, commands=[item for part in sections.values() for item in part], **settings)
        self.sections, self.default, self.others, self.first = sections, default, others, first
        if first:
            self.params.append(
                click.Option(
                    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help=ALL_HELP
                )
            )

    def list_commands(self, context: click.Context) -> list[str]:
        return [*self.commands, *self.others]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return self.commands.get(name) or self.others.get(name)

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        if self.default and arguments and arguments[0] not in (*self.commands, "--help"):
            arguments = [self.default, *arguments]
        return super().parse_args(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if self.first and not context.meta.get(ALL):
            title, names = self.first
            rows = {title: [row for name in names for row in _rows_of(self.commands[name], alone=True)]}
        else:
            sections = {**self.sections, **({"Extensions": list(self.others.values())} if self.others else {})}
            rows = {title: [row for item in part for row in _rows_of(item)] for title, part in sections.items()}
        width = max(len(name) for part in rows.values() for name, _ in part)
        for title, part in rows.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in part])

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.first or context.meta.get(ALL):
            return super().format_epilog(context, formatter)
        formatter.write_paragraph()
        formatter.write_text(
            "opacc --help-all lists all commands, those of extensions (fleet, study, evidence, …) as well, and exit "
            "codes. opacc labels --help lists those of a group."
        )


ALL = "opacc.all"
"""Key of a context whose help lists every command."""

ALL_HELP = "List all commands, those of extensions as well."


def _show_all(context: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        context.meta[ALL] = True
        click.echo(context.get_help())
        context.exit()


def _rows_of(item: click.Command, *, alone: bool = False) -> list[tuple[str, str]]:
    """Return the name of a command and the first sentence of its help; of a group, those of its commands.

    With ``alone``, a group is one row as well.
    """
    if isinstance(item, click.Group) and not alone:
        return [(f"{item.name} {name}", text) for part in item.commands.values() for name, text in _rows_of(part)]
    return [(item.name or "", " ".join((item.help or "").partition("\n\n")[0].split()))]


# -- how a command ends ----------------------------------------------------------------------------------


def ending(error: BaseException) -> OpaccError:
    """Return what ended a command as an error of ours."""
    if not isinstance(error, KeyboardInterrupt):
        return as_ours(error)
    how, code = ("ended by SIGTERM", 128 + signal.SIGTERM) if _sigterm_received.is_set() else ("interrupted", 130)
    interrupted = OpaccError(f"{how}; finished work is kept; run the same command again")
    interrupted.exit_code = code
    return interrupted


_sigterm_received = threading.Event()
"""Set by SIGTERM. The type of the error does not tell: interrupted code of Ray raises its own KeyboardInterrupt."""


def end_on_sigterm() -> None:
    """Let the first SIGTERM raise KeyboardInterrupt, so that the interrupted work can finish cleanly."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _sigterm_received.set()
        raise KeyboardInterrupt(signal.Signals(number))

    if threading.current_thread() is threading.main_thread():
        _sigterm_received.clear()
        signal.signal(signal.SIGTERM, end)


# -- options ---------------------------------------------------------------------------------------------


class _Completed(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """Text that a shell completes with known names; the command checks it."""

    def __init__(self, name: str, known: Callable[[], Iterable[str]]) -> None:
        self.name, self.known = name, known

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in self.known() if name.startswith(incomplete)]


def _methods() -> Iterable[str]:
    from opacc_ray.samplers import METHODS

    return METHODS


METHOD = _Completed("method", _methods)
RUN = _Completed("run", lambda: dict.fromkeys(name for names in known_outputs().values() for name in names))
"""A run: its URI, or its short name. A command gets the URI."""


class _Share(click.ParamType):  # type: ignore[type-arg]
    """A number between 0 and 1, both excluded, or a percentage.

    With ``of_metric``, the text of such a number, which may follow a metric: 0.02, ±2 % or "f1@defect ±0.02".
    """

    def __init__(self, name: str, example: str, of_metric: bool = False) -> None:
        self.name, self.example, self.of_metric = name, example, of_metric

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float | str:
        from opacc_ray.spec.validation import read_share

        why = ""
        try:
            metric, number = read_share(str(value))
            if self.of_metric or metric is None:
                return str(value) if self.of_metric else number
        except ValueError as meant:
            why = str(meant)
        self.fail(f"{value}: give a {self.name} between 0 and 1, such as {self.example}{why}", param, context)


LEVEL = _Share("confidence level", "0.95")
HALF_WIDTH, GOAL = _Share("half-width", "0.02"), _Share("half-width", "0.02", of_metric=True)
until_option = functools.partial(click.option, "--until", type=GOAL, metavar='"[METRIC ]±W"')
by_option = click.option(
    "--by",
    metavar="SLICES",
    help="The goal is about each of these slices, or one: camera=north; also prediction, truth.",
)
TOOL = click.Choice(["label-studio", "cvat", "ground-truth", "csv", "jsonl"])


TASKS = "classification", "regression"
run_argument = click.argument("uri", metavar="RUN", type=RUN)
table_option = functools.partial(click.option, cls=TableOption)
columns_option = table_option(
    "--columns", metavar="KEY=A,…", help="Columns: id=sku,prediction=guess,answer=reply,judges=a,b."
)
TABLE_KEYS = (
    table_option("--name", metavar="NAME", help="Name (default: the file's)."),
    table_option("--output", metavar="URI", help="Folder of the run (default: ./audits)."),
    table_option("--method", type=METHOD, help="Sampling method (default: neyman)."),
    columns_option,
    table_option("--task", type=click.Choice(TASKS), metavar="TASK", help="classification or regression."),
    table_option("--show", metavar="A,B", help="Columns that annotators see: subject,text."),
    table_option("--slices", metavar="A,B", help="Columns of slices: camera,region,camera*region."),
    table_option("--budget", type=int, metavar="N", help="Number of labels (default: its run's)."),
)
"""Options of an audit of a file of predictions, which has no spec."""

overlap_option = click.option(
    "--overlap",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Share of the examples that two people label (default: labels.overlap of the spec).",
)
verbose_option = click.option("--verbose", is_flag=True, help="Print details as well.")
"""Of a command whose answer has details; the answer is printed with them."""
set_option = functools.partial(click.option, "--set", "assignments", metavar="NAME=VALUE", multiple=True)
budget_option = click.option("--budget", type=int, metavar="N", help="Number of labels.")
out_option = functools.partial(click.option, "--out", metavar="FOLDER")
level_option = click.option(
    "--level", type=LEVEL, default=0.95, show_default=True, help="Confidence level of the intervals."
)


def on_run(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Add the argument RUN; the function gets the run."""

    @functools.wraps(function)
    def opened(uri: str, **options: Any) -> Answer:
        from opacc_ray.runs.run import Run

        return function(Run.open(uri), **options)

    return run_argument(opened)


def on_audit(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Add the argument RUN; the function gets the audit."""

    @functools.wraps(function)
    def opened(run: Any, **options: Any) -> Answer:
        from opacc_ray.stored_audit import Audit

        return function(Audit(run), **options)

    return on_run(opened)


def table_keys(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Add the options of a file of predictions; the function gets them as ``keys``."""

    @functools.wraps(function)
    def collected(**options: Any) -> Answer:
        from opacc_ray.spec.table_spec import TableKeys

        keys = TableKeys(**{name: options.pop(name) for name in TableKeys._fields})
        return function(keys=keys, **options)

    return functools.reduce(lambda made, option: option(made), TABLE_KEYS, collected)


def open_page(address: str) -> None:
    """Open a page, or a local file, in the browser."""
    address = address if "://" in address else Path(address).resolve().as_uri()
    if address.startswith(("http://", "file://")):
        webbrowser.open(address)


def parse_assignments(given: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Return the ``NAME=VALUE`` of an option as a mapping; values are YAML."""
    from opacc_ray.spec import parse_yaml

    parameters = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator:
            raise SpecError(f"{option} {shortened(item, 80)}: write NAME=VALUE, such as --set sections=20")
        parameters[name] = parse_yaml(value, f"{option} {shortened(item, 80)}: the value")
    return parameters


# -- the terminal --------------------------------------------------------------------------------------------------


CLOSED_PIPE = 141
"""Exit code if the reader of the output is gone, as in `opacc … | head -1`: that of a shell for SIGPIPE."""

MAX_MESSAGE = 2000
"""Most characters of an error; the middle of a longer one is left out."""

LEAST_LABEL = 10
"""Least characters of the column of labels, and of the first column of a table with its gap."""

MOST_LABEL = 20
"""Most characters of a label that the others are aligned with: a file name may be longer."""

_STYLES = {"result": "1", "warning": "33", "error": "31", "head": "2", "next": "1;36"}


class _AboveBar(logging.Handler):
    """Writes log lines to stderr, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


class _AsJson(logging.Formatter):
    """Formats a log line as a JSON object: time, level, message and its ``fields``."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}), ensure_ascii=False)


def log_is_json() -> bool:
    """Return whether log lines are JSON, for programs."""
    return os.environ.get(LOG) == "json"


def log_to_stderr() -> None:
    """Send log lines to stderr, as plain text or as JSON; of storage libraries, only warnings and errors."""
    handler = _AboveBar()
    handler.setFormatter(_AsJson() if log_is_json() else logging.Formatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for name in ("botocore", "boto3", "urllib3", "s3transfer"):
        logging.getLogger(name).setLevel(logging.WARNING)


def say(text: str) -> None:
    """Print a line on stderr, above a progress bar."""
    text = printable(text)
    if Progress.drawn:
        print(f"{CLEARED}{text}\n{Progress.drawn}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr)


def kept_in_log(details: str) -> str:
    """Write a traceback to a file that only this user can read; returns text that names it, empty without details."""
    if not details:
        return ""
    try:
        number, path = tempfile.mkstemp(prefix="opacc-", suffix=".log")
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(printable(details))
    except OSError:
        return ""
    return f"; the traceback is in {path}"


def fail(message: str, code: int, *, as_json: bool) -> int:
    """Print an error in one sentence, and as JSON if asked for; return ``code``."""
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 2 :]}"
    if log_is_json():
        log.error("%s", message, extra={"fields": {"exit_code": code}})
    else:
        say(f"opacc: {message}")
    if as_json:
        print(printable_json(json.dumps({"error": message, "exit_code": code}, ensure_ascii=False)), flush=True)
    return code


@contextlib.contextmanager
def stdout_kept() -> Iterator[None]:
    """Keep stdout for the result: any other output in the block, even from native code, goes to stderr."""
    _flush()
    with contextlib.ExitStack() as until:
        with contextlib.suppress(OSError):  # one of them is closed
            kept = os.dup(1)
            until.callback(os.close, kept)
            os.dup2(2, 1)
            until.callback(os.dup2, kept, 1)
            until.callback(_flush)
        until.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:
            stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def escape_unprintable() -> None:
    """Print characters that the terminal's encoding lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave_closed_pipe() -> None:
    """Discard what is still buffered for stdout, so that the end of the process does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -- control characters ----------------------------------------------------------------------------------
# Ids, labels and names come from others. A terminal obeys control characters in them: it moves the cursor, rewrites
# lines, sets its title or types answers. Marks of direction reorder text. All of them become visible escapes.

_CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"  # C0 but for tab and line feed, DEL, C1
    "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"  # direction, line and paragraph
    "\\ud800-\\udfff]"  # halves of characters, which no terminal can be sent
)


def printable(text: str) -> str:
    """Return text of several lines with control characters as escapes; other text is unchanged."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _CONTROL.sub(escape, text)


def printable_line(text: str) -> str:
    """Return text with control characters, line breaks and tabs as escapes."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def printable_json(text: str) -> str:
    """Return JSON with control characters as JSON escapes, which have the same meaning."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# -- layout of an answer ----------------------------------------------------------------------------------


def is_styled() -> bool:
    """Return whether stdout is a terminal with colours; NO_COLOR switches them off."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_text(lines: "Sequence[Line]", *, verbose: bool = False, styled: bool = False) -> str:
    """Return the text of an answer; details are shown if ``verbose``."""
    from opacc_ray.report.facts import Fact, Table

    shown = [line for line in lines if verbose or not (isinstance(line, Fact) and line.detail)]
    labels = [width_of(printable_line(line.label)) for line in shown if isinstance(line, Fact)]
    width = max([LEAST_LABEL, *(label + 2 for label in labels if label <= MOST_LABEL)])
    texts: list[str] = []
    for line in shown:
        if isinstance(line, Table):
            texts += _table(line, styled)
        else:
            texts.append(printable(line) if isinstance(line, str) else _fact(line, width, styled))
    return "\n".join(texts)


def _fact(fact: "Fact", width: int, styled: bool) -> str:
    text = printable_line(fact.text)
    label = printable_line(fact.label)
    if fact.tone == "next":
        return _style(f"{label} {text}", fact.tone, styled)
    label = label if width_of(label) <= MOST_LABEL else f"{label}  "
    return f"{_padded(label, width)}{_style(text, fact.tone, styled)}".rstrip()


def _table(table: "Table", styled: bool) -> list[str]:
    rows = [
        [printable_line(cell if isinstance(cell, str) else "  ".join(filter(None, cell))) for cell in row]
        for row in table.rows
    ]
    head = [column.name for column in table.columns]
    widths = [max(map(width_of, column)) for column in zip(head, *rows, strict=True)]
    if len(widths) > 1:
        widths[0] = max(widths[0], LEAST_LABEL - 2)
    right = [column.kind == "n" for column in table.columns]

    def text(cells: Sequence[str]) -> str:
        padded = (_padded(cell, width, right=own) for cell, width, own in zip(cells, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return [_style(text(head), "head", styled), *map(text, rows)]


def width_of(text: str) -> int:
    """Return the columns that a text takes: two for a wide character, none for a combining mark."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def _style(text: str, tone: str, styled: bool) -> str:
    code = _STYLES.get(tone) if styled else None
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text
