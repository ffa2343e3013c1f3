"""What every command has: options, short names of runs, exit codes, and an answer that is printed as text or JSON.

A short name such as ``digits-cfbb3651`` is looked up under ``$OPACC_OUTPUT``, or else under the outputs that commands
used on this machine. They are kept in ``$XDG_STATE_HOME/opacc/outputs.json``, newest first, with the names of their
runs.
"""

import contextlib
import functools
import json
import os
import re
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from opacc_ray.cli.terminal import (
    fail,
    is_styled,
    kept_in_log,
    log_to_stderr,
    printable_json,
    stdout_kept,
    terminal_text,
)
from opacc_ray.errors import DataError, OpaccError, SpecError, shortened

if TYPE_CHECKING:
    from opacc_ray.documents import Document
    from opacc_ray.report.facts import Line

LOG, LOG_FORM = "OPACC_LOG", click.Choice(["text", "json"])
"""Environment variable of the form of log lines, for workers of a local cluster as well; and its values."""

OUTPUT = "OPACC_OUTPUT"
"""Environment variable that names the output of short names."""

MOST_OUTPUTS, MOST_RUNS = 20, 200
"""Outputs that are kept, and runs of each."""

USUAL_OUTPUT = "audits"
"""The output, in the current folder, of a run of a file of predictions."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}-[0-9a-f]{8}")


class Answer(NamedTuple):
    """The result of a command: a document for machines, facts and tables for people."""

    document: "Document"
    lines: "Sequence[Line]"
    failure: OpaccError | None = None  # its exit code is the command's


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
        """Run the callback, with URIs instead of short names; return the exit code."""
        given = context.params
        as_json, verbose, form = (given.pop(name) for name in ("as_json", "verbose", "log"))
        if form is not None:
            os.environ[LOG] = form
            log_to_stderr()
        try:
            with stdout_kept():
                for name in [item.name or "" for item in self.params if item.type is RUN]:
                    uris = given[name]
                    given[name] = tuple(map(uri_of, uris)) if isinstance(uris, tuple) else uri_of(uris)
                answer: Answer = super().invoke(context)
        except (click.ClickException, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            message, code = ending(error)
            return fail(f"{message}{kept_in_log(_details(error))}", code, as_json=as_json)
        if as_json:
            print(printable_json(json.dumps(answer.document.to_dict(), ensure_ascii=False)), flush=True)
        else:
            print(terminal_text(answer.lines, verbose=verbose, styled=is_styled()), flush=True)
        if answer.failure is None:
            return 0
        return fail(f"{answer.failure}{kept_in_log(answer.failure.details)}", answer.failure.exit_code, as_json=False)


def command(name: str) -> Callable[[Callable[..., Answer]], Command]:
    """Make a function a command; the first line of its docstring is its help."""
    return click.command(name, cls=Command)


class Group(click.Group):
    """A group of commands; its help lists them by section, in order of definition, with their whole first sentences.

    ``default`` is the command that is meant if the first argument is no command.
    """

    def __init__(
        self, name: str, sections: Mapping[str, Sequence[click.Command]], default: str | None = None, **settings: Any
    ) -> None:
        super().__init__(name, commands=[item for part in sections.values() for item in part], **settings)
        self.sections, self.default = sections, default

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        if self.default and arguments and arguments[0] not in (*self.commands, "--help"):
            arguments = [self.default, *arguments]
        return super().parse_args(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {title: [row for item in part for row in _rows_of(item)] for title, part in self.sections.items()}
        width = max(len(name) for part in rows.values() for name, _ in part)
        for title, part in rows.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in part])


def _rows_of(item: click.Command) -> list[tuple[str, str]]:
    """Return the name of a command and the first sentence of its help; of a group, those of its commands."""
    if isinstance(item, click.Group):
        return [(f"{item.name} {name}", text) for part in item.commands.values() for name, text in _rows_of(part)]
    return [(item.name or "", " ".join((item.help or "").partition("\n\n")[0].split()))]


# -- how a command ends ----------------------------------------------------------------------------------


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


# -- names of runs ---------------------------------------------------------------------------------------


def uri_of(given: str) -> str:
    """Return the URI of a run that a user names; a URI or path is returned as it is.

    Raises DataError if no output, or more than one, holds a run of that name.
    """
    if Path(given).exists():
        return given
    asked = os.environ.get(OUTPUT)
    outputs = known_outputs()
    if not _NAME.fullmatch(given):
        runs = [name for names in outputs.values() for name in names if name.rpartition("-")[0] == given]
        if runs:
            raise DataError(f"{given} is the name of an audit; give one of its runs: {shortened(', '.join(runs), 200)}")
        return given
    places = [asked] if asked else [output for output, names in outputs.items() if given in names]
    usual = [str(Path(USUAL_OUTPUT).resolve())] if Path(USUAL_OUTPUT).is_dir() else []
    found = [uri for place in places or dict.fromkeys([*usual, *outputs]) if (uri := _run_in(place, given))]
    if len(found) == 1:
        if not asked:
            remember(found[0])
        return found[0]
    if found:
        raise DataError(f"{len(found)} outputs hold a run {given}: {', '.join(found)}; give one of these URIs")
    where = (
        f"${OUTPUT} ({asked})"
        if asked
        else shortened(", ".join(outputs), 200) or "no output: none was used on this machine"
    )
    raise DataError(f"there is no run {given} in {where}; give its URI, or set {OUTPUT} to the `output` of its spec")


def _run_in(output: str, name: str) -> str | None:
    """Return the URI of a run below an output; None if it is not there, or the output cannot be read."""
    from opacc_ray.lake.store_uris import open_store
    from opacc_ray.runs.run import HEADER

    with contextlib.suppress(OpaccError):
        store = open_store(output).store(name)
        return store.uri if store.exists(HEADER) else None
    return None


def short_name(uri: str) -> str:
    """Return the shortest name that :func:`uri_of` resolves to a run, quoted for a shell."""
    output, _, name = uri.rstrip("/").rpartition("/")
    if not _NAME.fullmatch(name) or Path(name).exists():
        return quote(uri)
    if asked := os.environ.get(OUTPUT):
        from opacc_ray.lake.store_uris import open_store

        holders = [open_store(asked).uri.rstrip("/")]
    else:
        holders = [known for known, names in known_outputs().items() if name in names]
    return name if holders == [output] else quote(uri)


def known_outputs() -> dict[str, list[str]]:
    """Return the outputs that commands used, newest first, each with the names of its runs."""
    try:
        kept = json.loads(_state_file().read_text(encoding="utf-8"))["outputs"]
        return {str(output): [str(name) for name in names] for output, names in kept.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def remember(uri: str) -> None:
    """Keep the output and the name of a run; a state file that cannot be written is no error."""
    output, _, name = uri.rstrip("/").rpartition("/")
    outputs = known_outputs()
    names = [name, *(known for known in outputs.pop(output, []) if known != name)][:MOST_RUNS]
    kept = dict(list(({output: names} | outputs).items())[:MOST_OUTPUTS])
    with contextlib.suppress(OSError):
        path = _state_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        number, draft = tempfile.mkstemp(dir=path.parent)
        with open(number, "w", encoding="utf-8") as file:
            json.dump({"outputs": kept}, file, indent=2)
        os.replace(draft, path)


def _state_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "opacc" / "outputs.json"


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


class _BetweenZeroAndOne(click.ParamType):  # type: ignore[type-arg]
    """A number between 0 and 1, both excluded."""

    def __init__(self, name: str, example: str) -> None:
        self.name, self.example = name, example

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        text = str(value)
        try:
            number = float(text.removeprefix("±").removesuffix("%"))
        except ValueError:
            number = float("nan")
        in_percent = text.endswith("%") or number >= 1
        if in_percent or not number > 0:
            meant = f"; {number:g} % is {number / 100:g}" if in_percent and 0 < number < 100 else ""
            self.fail(f"{text}: give a {self.name} between 0 and 1, such as {self.example}{meant}", param, context)
        return number


class _Goal(click.ParamType):  # type: ignore[type-arg]
    """A number and half the width of its interval: 0.02, ±0.02 or "f1@defect ±0.02"."""

    name = "goal"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> tuple[str, float]:
        metric, _, width = str(value).strip().rpartition(" ")
        return metric.strip() or "accuracy", HALF_WIDTH.convert(width, param, context)


LEVEL = _BetweenZeroAndOne("confidence level", "0.95")
HALF_WIDTH = _BetweenZeroAndOne("half-width", "0.02")
GOAL = _Goal()
until_option = functools.partial(click.option, "--until", type=GOAL, metavar='"[METRIC ]±W"')
goal_parts_option = click.option(
    "--by",
    metavar="SLICES",
    help="The goal is about each of these slices, or one: camera=north; also prediction, truth.",
)
RULE = click.Choice(["error", "majority", "latest"])
TOOL = click.Choice(["label-studio", "cvat", "ground-truth", "csv", "jsonl"])


def _svg_name(name: str) -> str:
    if not name.lower().endswith(".svg"):
        raise click.BadParameter(f"{name}: pictures are SVG; give a file whose name ends in .svg")
    return name


def picture_option(text: str) -> Callable[[Any], Any]:
    """Return the option of a file or object for a picture."""
    return click.option("--picture", type=_svg_name, metavar="FILE.svg", help=text)


run_argument = click.argument("uri", metavar="RUN", type=RUN)
columns_option = click.option(
    "--columns", metavar="KEY=A,…", help="CSV: columns without a usual name: id=sku,prediction=guess,confidence=sure."
)
judges_option = click.option(
    "--judges", metavar="A,B", help="CSV: columns that say whether the answer is right, such as gpt,rules."
)
track_option = click.option("--track", metavar="NAME", help="Series of rounds to use (default: the main one).")
budget_option = click.option("--budget", type=int, metavar="N", help="Number of labels.")
out_option = functools.partial(click.option, "--out", metavar="FOLDER")
level_option = click.option(
    "--level", type=LEVEL, default=0.95, show_default=True, help="Confidence level of the intervals."
)


def on_run(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Add the argument RUN; the function gets the run, opened on the track of `--track` if it has that option."""

    @functools.wraps(function)
    def opened(uri: str, track: str | None = None, **options: Any) -> Answer:
        from opacc_ray.runs.run import Run

        return function(Run.open(uri, track), **options)

    return run_argument(opened)


def with_options(*options: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda function: functools.reduce(lambda made, option: option(made), options, function)


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
