"""The base of every command: ``--json``, ``--verbose``, ``--log``, exit codes and the help by groups."""

import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from opacc_ray.cli.terminal import fail, kept_in_log, log_to_stderr, printable_json, stdout_kept
from opacc_ray.errors import OpaccError, shortened

if TYPE_CHECKING:
    from opacc_ray.cli.layout import Line
    from opacc_ray.documents import Document

LOG, LOG_FORM = "OPACC_LOG", click.Choice(["text", "json"])
"""Environment variable of the form of log lines, for workers of a local cluster as well; and its values."""


class Answer(NamedTuple):
    """The result of a command: a document for machines, facts and tables for people."""

    document: "Document"
    lines: "Sequence[Line]"
    failure: OpaccError | None = None  # its exit code is the command's


class RunName(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """A run: its URI, or its short name."""

    name = "run"

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from opacc_ray.cli.run_names import known_outputs

        names = dict.fromkeys(name for names in known_outputs().values() for name in names)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class Command(click.Command):
    """A command whose callback returns an :class:`Answer`, printed as text or as JSON."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.params += [
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of text."),
            click.Option(["--verbose"], is_flag=True, help="Print details as well."),
            click.Option(["--log"], type=LOG_FORM, envvar=LOG, help=f"Form of log lines (default: text, or {LOG})."),
        ]

    def invoke(self, context: click.Context) -> int:
        """Run the callback; return the exit code."""
        as_json, verbose, form = (context.params.pop(name) for name in ("as_json", "verbose", "log"))
        if form is not None:
            os.environ[LOG] = form
            log_to_stderr()
        try:
            with stdout_kept():
                self._find_runs(context)
                answer: Answer = super().invoke(context)
        except (click.ClickException, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            message, code = ending(error)
            return fail(f"{message}{kept_in_log(_details(error))}", code, as_json=as_json)
        print(_json_of(answer) if as_json else _text_of(answer, verbose=verbose), flush=True)
        if answer.failure is None:
            return 0
        return fail(f"{answer.failure}{kept_in_log(answer.failure.details)}", answer.failure.exit_code, as_json=False)

    def _find_runs(self, context: click.Context) -> None:
        """Replace short names of runs by their URIs."""
        from opacc_ray.cli.run_names import uri_of

        for parameter in self.params:
            name = parameter.name or ""
            if isinstance(parameter.type, RunName):
                given = context.params[name]
                context.params[name] = tuple(map(uri_of, given)) if isinstance(given, tuple) else uri_of(given)


def _json_of(answer: Answer) -> str:
    return printable_json(json.dumps(answer.document.to_dict(), ensure_ascii=False))


def _text_of(answer: Answer, *, verbose: bool) -> str:
    from opacc_ray.cli.layout import is_styled, terminal_text

    return terminal_text(answer.lines, verbose=verbose, styled=is_styled())


def ending(error: BaseException) -> tuple[str, int]:
    """Return the sentence and the exit code of an error."""
    if isinstance(error, OpaccError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        how, code = ("ended by SIGTERM", 128 + signal.SIGTERM) if _sigterm_received.is_set() else ("interrupted", 130)
        return f"{how}; finished work is kept; run the same command again", code
    return f"unexpected {type(error).__name__}: {shortened(str(error))}", 1


def _details(error: BaseException) -> str:
    """Return the traceback of a bug, in this program or in the user's code."""
    if isinstance(error, OpaccError):
        return error.details
    return "" if isinstance(error, KeyboardInterrupt) else "".join(traceback.format_exception(error))


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


class Section(NamedTuple):
    """A group of commands in the help."""

    title: str
    commands: Sequence[click.Command]


class Group(click.Group):
    """A group of commands; its help lists them in order of definition, with their whole first sentences."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(_rows_of(list(self.commands.values())))


class Application(click.Group):
    """The command line; its help lists commands by sections."""

    def __init__(self, name: str, sections: Sequence[Section], **settings: Any) -> None:
        commands = [item for section in sections for item in section.commands]
        super().__init__(name, commands=commands, **settings)
        self.sections = sections

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [_rows_of(section.commands) for section in self.sections]
        width = max(len(name) for part in rows for name, _ in part)
        for section, part in zip(self.sections, rows, strict=True):
            with formatter.section(section.title):
                formatter.write_dl([(name.ljust(width), text) for name, text in part])


def _rows_of(commands: Sequence[click.Command]) -> list[tuple[str, str]]:
    """Return the name and the first sentence of the help of each command, and of those in a group."""
    rows = []
    for item in commands:
        parts = item.commands.values() if isinstance(item, click.Group) else ()
        rows += [(f"{item.name} {part.name}", _first_paragraph(part)) for part in parts]
        rows += [] if parts else [(item.name or "", _first_paragraph(item))]
    return rows


def _first_paragraph(command: click.Command) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())


def command(name: str) -> Callable[[Callable[..., Answer]], Command]:
    """Make a function a command; the first line of its docstring is its help."""
    return click.command(name, cls=Command)
