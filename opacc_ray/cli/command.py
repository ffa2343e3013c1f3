"""What every command has in common: ``--json``, its exit codes, its place in the help."""

import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from opacc_ray.cli.printable import printable, printable_json
from opacc_ray.cli.terminal import fail, kept_in_log, log_to_stderr, stdout_kept
from opacc_ray.errors import OpaccError, shortened

if TYPE_CHECKING:
    from opacc_ray.documents import Document

EXIT_CODES = (
    "Exit codes: 0 done · 1 unexpected failure · 2 wrong usage, spec or parameter · 3 storage · 4 cluster · "
    "5 pool, model or features · 6 labels · 7 done so far, labels are awaited (submit) · 8 an alert of a fleet · "
    "9 an alert was not delivered · "
    "130 interrupted, 143 ended by SIGTERM (what is done is kept; run again) · 141 nobody reads the output"
)


LOG, LOG_FORM = "OPACC_LOG", click.Choice(["text", "json"])
"""Environment variable that says how log lines are written, to workers of a local cluster too; and its values."""


class Answer(NamedTuple):
    """What a command gives back: for machines and for people."""

    document: "Document"
    text: str
    failure: OpaccError | None = None  # what the answer says is wrong: its exit code is the command's


class Command(click.Command):
    """A command whose callback returns an :class:`Answer`, which is printed as text, or with ``--json`` as JSON."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, epilog=EXIT_CODES, **settings)
        self.params.append(
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of text.")
        )
        self.params.append(
            click.Option(["--log"], type=LOG_FORM, envvar=LOG, help=f"Form of log lines; default: text, or {LOG}.")
        )

    def invoke(self, context: click.Context) -> int:
        """Run the callback; returns the exit code."""
        as_json, form = context.params.pop("as_json"), context.params.pop("log")
        if form is not None:
            os.environ[LOG] = form
            log_to_stderr()
        try:
            with stdout_kept():
                answer: Answer = super().invoke(context)
        except (click.ClickException, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            message, code = ending(error)
            return fail(f"{message}{kept_in_log(_details(error))}", code, as_json=as_json)
        document = json.dumps(answer.document.to_dict(), ensure_ascii=False)
        text = printable_json(document) if as_json else printable(answer.text)
        print(text, flush=True)
        if answer.failure is None:
            return 0
        return fail(f"{answer.failure}{kept_in_log(answer.failure.details)}", answer.failure.exit_code, as_json=False)


def ending(error: BaseException) -> tuple[str, int]:
    """The sentence and the exit code that a command ends with."""
    if isinstance(error, OpaccError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        how, code = ("ended by SIGTERM", 128 + signal.SIGTERM) if _sigterm_came.is_set() else ("interrupted", 130)
        return f"{how}; what is done is kept, so run the same command again", code
    return f"unexpected {type(error).__name__}: {shortened(str(error))}", 1


def _details(error: BaseException) -> str:
    """The trace, which whoever fixes a fault of the program or of the user's own code needs."""
    if isinstance(error, OpaccError):
        return error.details
    return "" if isinstance(error, KeyboardInterrupt) else "".join(traceback.format_exception(error))


_sigterm_came = threading.Event()
"""Says so, since an error's type does not: interrupted code of Ray raises a KeyboardInterrupt of its own."""


def end_on_sigterm() -> None:
    """Let SIGTERM raise KeyboardInterrupt, once: what it interrupts may then end in its own time."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _sigterm_came.set()
        raise KeyboardInterrupt(signal.Signals(number))

    if threading.current_thread() is threading.main_thread():
        _sigterm_came.clear()
        signal.signal(signal.SIGTERM, end)


class Section(NamedTuple):
    """Commands that the help lists together."""

    title: str
    commands: Sequence[click.Command]


class Application(click.Group):
    """The command line, whose help lists commands by sections."""

    def __init__(self, name: str, sections: Sequence[Section], **settings: Any) -> None:
        super().__init__(name, commands=[item for section in sections for item in section.commands], **settings)
        self.sections = sections

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [_rows_of(section.commands) for section in self.sections]
        width = max(len(name) for part in rows for name, _ in part)
        for section, part in zip(self.sections, rows, strict=True):
            with formatter.section(section.title):
                formatter.write_dl([(name.ljust(width), text) for name, text in part])


def _rows_of(commands: Sequence[click.Command]) -> list[tuple[str, str]]:
    """Name and help of each command; of a group, those of the commands in it."""
    rows = []
    for item in commands:
        if isinstance(item, click.Group):
            rows += [(f"{item.name} {part.name}", part.get_short_help_str(90)) for part in item.commands.values()]
        else:
            rows.append((item.name or "", item.get_short_help_str(90)))
    return rows


def command(name: str) -> Callable[[Callable[..., Answer]], Command]:
    """Make a function a command; the first line of its docstring is its help."""
    return click.command(name, cls=Command)
