"""``opacc``: parse, call, print. Results go to stdout, progress and errors to stderr.

This module and its imports load in a moment: a command loads what it needs when it runs.
"""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import click
from click.shell_completion import shell_complete

from opacc_ray._version import __version__
from opacc_ray.cli import commands
from opacc_ray.cli.command import RUN, Group, end_on_sigterm
from opacc_ray.cli.terminal import CLOSED_PIPE, escape_unprintable, fail, leave_closed_pipe, log_to_stderr
from opacc_ray.registry import Registry
from opacc_ray.runs.run_names import known_outputs

COMPLETION = "_OPACC_COMPLETE"
"""Environment variable by which a shell asks for completions."""

EXIT_CODES = (
    "Exit codes: 0 done · 1 unexpected failure · 2 wrong usage, spec or parameter · 3 storage · 4 cluster · "
    "5 pool, model or features · 6 labels · 7 waits for labels (audit, submit) · 8 alert of a fleet · "
    "9 alert not delivered · 10 regression on a suite · 130 interrupted, 143 ended by SIGTERM (rerun to resume) · "
    "141 reader of the output is gone"
)

RUN_NAMES = (
    "RUN is the URI of a run, or its short name, such as digits-cfbb3651. Short names are looked up under "
    "$OPACC_OUTPUT, else under the outputs that opacc run and submit used on this machine."
)

WORDS = (
    "Features are what the model says about each example: prediction, confidence, hidden values. A round is examples "
    "that are labelled together. A run is a series of rounds, and has one estimate. "
    "docs/glossary.md has all words."
)

application = Group(
    "opacc",
    {
        "A whole audit": [commands.audit],
        "An audit, step by step": [
            commands.check,
            commands.run_spec,
            commands.label,
            commands.next_round,
            commands.estimate,
            commands.report,
        ],
        "Labels": [commands.labels],
        "Results": [commands.status, commands.budget, commands.compare],
        "More": [commands.methods, commands.spec_template],
    },
    others=Registry("commands"),
    first=(
        "An audit, in the order of work",
        ("spec", "check", "run", "label", "labels", "next", "estimate", "report", "status", "budget", "audit"),
    ),
    help="How accurate is a model on unlabelled data? opacc picks the few examples worth labelling and reports the "
    "accuracy with a confidence interval.",
    epilog=f"{RUN_NAMES}\n\n{WORDS}\n\n{EXIT_CODES}\n\n"
    f'Completion: eval "$({COMPLETION}=bash_source opacc)" in ~/.bashrc (or zsh, fish).',
)
click.version_option(__version__, message="opacc %(version)s")(application)


_SHOWN = 3  # runs in an error about a missing one


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if COMPLETION in os.environ:
        return shell_complete(application, {}, "opacc", COMPLETION, os.environ[COMPLETION])
    escape_unprintable()
    log_to_stderr()
    end_on_sigterm()
    try:
        return _run(given)
    except BrokenPipeError:
        leave_closed_pipe()
        return CLOSED_PIPE


def _run(given: list[str]) -> int:
    try:
        with application.make_context("opacc", given) as context:
            return int(application.invoke(context))
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except click.ClickException as error:
        return _wrong_usage(error, as_json="--json" in given)


def _wrong_usage(error: click.ClickException, *, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # `opacc` alone
        click.echo(error.format_message(), err=True)
        return error.exit_code
    hint = f"; see {context.command_path} --help" if context else ""
    if isinstance(error, click.NoSuchOption) and context:
        error = click.NoSuchOption(error.option_name, None, _options_like(error.option_name, context), context)
    if isinstance(error, click.MissingParameter) and error.param is not None and error.param.type is RUN:
        newest = [name for names in known_outputs().values() for name in names][:_SHOWN]
        hint = (f", such as {', '.join(newest)}" if newest else "") + hint
    return fail(f"{error.format_message().rstrip('.')}{hint}", 2, as_json=as_json)


def _options_like(name: str, context: click.Context) -> list[str]:
    """Return the option that was probably meant: click compares the dashes too, and names hidden options."""
    shown = [item for item in context.command.get_params(context) if not getattr(item, "hidden", False)]
    names = [own.lstrip("-") for item in shown for own in item.opts if own.startswith("--")]
    return [f"--{near}" for near in get_close_matches(name.lstrip("-"), names, 1)]
