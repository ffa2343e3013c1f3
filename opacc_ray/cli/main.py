"""``opacc``: parse, call, print. Results go to stdout, progress and errors to stderr.

This module and those that it imports load in a moment: a command loads what it needs when it runs.
"""

import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

import opacc_ray
from opacc_ray.cli import (
    characterize,
    experiments,
    explanations,
    features,
    fleet,
    jobs,
    labelling,
    labels,
    report,
    results,
    runs,
    schemas,
)
from opacc_ray.cli.command import EXIT_CODES, Application, Section, end_on_sigterm
from opacc_ray.cli.terminal import CLOSED_PIPE, fail, leave_closed_pipe, log_to_stderr, say_any_text

COMPLETION = "_OPACC_COMPLETE"
"""Environment variable by which a shell asks for completions."""

application = Application(
    "opacc",
    help="How accurate is a model on data that nobody has labelled? Label a few examples, chosen well, and state "
    "its accuracy with a confidence interval.",
    epilog=f'{EXIT_CODES}\n\nCompletion: eval "$({COMPLETION}=bash_source opacc)" in ~/.bashrc (or zsh, fish).',
    sections=[
        Section("Runs", runs.COMMANDS),
        Section("Jobs", jobs.COMMANDS),
        Section("Features", features.COMMANDS),
        Section("Labels", [*labelling.COMMANDS, *labels.COMMANDS]),
        Section("Results", [*results.COMMANDS, *report.COMMANDS, *characterize.COMMANDS]),
        Section("Fleets", fleet.COMMANDS),
        Section("Experiments", experiments.COMMANDS),
        Section("Explanations", explanations.COMMANDS),
        Section("For other tools", schemas.COMMANDS),
    ],
)
click.version_option(opacc_ray.__version__, message="opacc %(version)s")(application)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if COMPLETION in os.environ:
        return shell_complete(application, {}, "opacc", COMPLETION, os.environ[COMPLETION])
    say_any_text()
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
    return fail(f"{error.format_message().rstrip('.')}{hint}", 2, as_json=as_json)
