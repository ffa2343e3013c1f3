"""``opacc``: parse, call, print. Results go to stdout, progress and errors to stderr.

This module and its imports load in a moment: a command loads what it needs when it runs.
"""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import click
from click.shell_completion import shell_complete

import opacc_ray
from opacc_ray.cli import (
    characterize_commands,
    evidence_commands,
    fleet_commands,
    label_commands,
    other_commands,
    output_commands,
    result_commands,
    run_commands,
    suite_commands,
)
from opacc_ray.cli.command import RUN, Group, end_on_sigterm, known_outputs
from opacc_ray.cli.terminal import CLOSED_PIPE, escape_unprintable, fail, leave_closed_pipe, log_to_stderr

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
    "that are labelled together. A track is a series of rounds by one method, and each track has its own estimate. "
    "docs/glossary.md has all words."
)

application = Group(
    "opacc",
    {
        "A whole audit": [run_commands.audit],
        "An audit, step by step": [
            run_commands.check,
            run_commands.run_spec,
            label_commands.label,
            run_commands.next_round,
            result_commands.estimate,
            result_commands.report,
        ],
        "Labels": [label_commands.manifest, label_commands.labels],
        "Runs and features": [
            run_commands.status,
            run_commands.plan,
            run_commands.submit,
            run_commands.select,
            run_commands.verify,
            run_commands.list_log,
            output_commands.runs,
            output_commands.features,
        ],
        "Results": [
            result_commands.budget,
            result_commands.compare,
            result_commands.export,
            characterize_commands.characterize,
            characterize_commands.generate,
            suite_commands.suite,
            suite_commands.regress,
            evidence_commands.evidence,
        ],
        "Fleets and operations": [
            fleet_commands.fleet,
            fleet_commands.alerts,
            fleet_commands.metrics,
            fleet_commands.history,
            fleet_commands.watch,
        ],
        "More": [
            other_commands.methods,
            other_commands.spec,
            other_commands.study,
            other_commands.drift,
            other_commands.demo,
            other_commands.schemas,
        ],
    },
    help="How accurate is a model on unlabelled data? opacc picks the few examples worth labelling and reports the "
    "accuracy with a confidence interval.",
    epilog=f"{RUN_NAMES}\n\n{WORDS}\n\n{EXIT_CODES}\n\n"
    f'Completion: eval "$({COMPLETION}=bash_source opacc)" in ~/.bashrc (or zsh, fish).',
)
click.version_option(opacc_ray.__version__, message="opacc %(version)s")(application)


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
