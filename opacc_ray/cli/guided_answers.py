"""`opacc audit`: the labelling page that it opens, and what it answers at the end."""

import logging
import os
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

import click

from opacc_ray.audit.goals import Target
from opacc_ray.audit.guided import GoOn, missing_labels
from opacc_ray.audit.next_step import command_of, has_page, no_page, until_options
from opacc_ray.cli.command import Answer, short_name
from opacc_ray.cli.terminal import NEXT
from opacc_ray.errors import LabelsAwaited, counted
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report import sentences
from opacc_ray.report.facts import Fact, facts
from opacc_ray.report.report_documents import RunReport, WrittenReport
from opacc_ray.report.stated_numbers import round_done
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Goal
from opacc_ray.spec.predictions_table import is_table

log = logging.getLogger(__name__)


def asking(host: str, port: int, annotator: str | None, *, browser: bool) -> Callable[[Run, GoOn], object]:
    """Return the function that serves the labelling page of a run until there is nothing to label, or Ctrl-C."""

    def announce(address: str) -> None:
        click.echo(f"label at   {address}\nend with   Ctrl-C; answers are saved at once", err=True)
        if browser:
            show(address)

    def ask(run: Run, go_on: GoOn) -> object:
        if not has_page(run):
            log.info("%s", no_page(run))
            return None
        from opacc_ray.labels.page.serve import serve

        return serve(run, host, port, announce, annotator=annotator, go_on=go_on)

    return ask


def first_budget(spec: str, half_width: float, target: Target, **options: Any) -> int | None:
    """Return the labels of a first round towards a goal for a file of predictions without a run; None otherwise."""
    from opacc_ray.audit.label_budget import label_budget_of_table
    from opacc_ray.spec.table_spec import kept_budget

    if not is_table(spec) or options["answer"] or kept_budget(spec, options["output"], options["name"]) is not None:
        return None
    found = label_budget_of_table(spec, half_width, target, judges=options["judges"], columns=options["columns"])
    log.info("first round: %d of about %d labels that the goal needs", found.sizes[0], found.total_labels)
    return found.sizes[0]


def tell_round(goal: Goal) -> None:
    """Print what is known after a round, and that another one follows."""
    log.info("%s", round_done(goal))


def show(address: str) -> None:
    """Open a page, or a local file, in the browser of a user who looks at the terminal."""
    if not sys.stdout.isatty():
        return
    if "://" not in address:
        address = Path(address).resolve().as_uri()
    if address.startswith(("http://", "file://")):
        webbrowser.open(address)


def same_command(run: Run, spec: str, until: tuple[str, float] | None, by: str | None) -> str:
    """Return the command that goes on with an audit; of a file of predictions, with the spec that was written."""
    if is_table(spec):
        spec = open_store(run.spec.output).uri_of(f"{run.spec.name}.yaml").removeprefix("file://")
        spec = os.path.relpath(spec) if os.path.exists(spec) else spec
    goal = until_options(until[1], until[0], by) if until else []
    return " ".join(["opacc audit", quote(spec), *goal])


def audited(run: Run, written: WrittenReport, report: RunReport, again: str) -> Answer:
    """Return the result of an audit and its report; labels that are missing end it with the code of waiting."""
    lines = [*concluded(report), *facts(("run", run.uri), ("report", written.files[0]))]
    missing = missing_labels(run)
    if missing:
        waits = LabelsAwaited(f"{run.name} waits for {counted(missing, 'label')}; then run the same command again")
        command = again if has_page(run) else command_of(run, "labels import", "FILE")
        return Answer(written, [*lines, Fact(NEXT, command)], waits)
    return Answer(written, [*lines, *step_after(report)])


def concluded(report: RunReport) -> list[Fact]:
    """Return what the page shows first: verdict, result, what is not sound, and where the model fails."""
    heading, detail = sentences.verdict(report)
    lines = facts(("verdict", heading and f"{heading}: {detail}"), ("answer", report.answer))
    lines += [Fact(item.name, item.text, "warning") for item in report.checks if item.state != "ok"]
    fails = [item.text for item in report.findings] or [sentences.no_findings(report)]
    return [*lines, *facts(*(("fails", text) for text in fails))]


def step_after(report: RunReport) -> list[Fact]:
    """Return the next command of a report, with the short name of its run, if there is one."""
    return [Fact(NEXT, report.next.command.replace(quote(report.run), short_name(report.run)))] if report.next else []
