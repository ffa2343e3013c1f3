"""Commands that make runs and choose what to label: check, run, status, select, next, verify."""

from typing import Any

import click

from opacc_ray.audit.progress import Progress
from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import (
    HALF_WIDTH,
    METHOD,
    budget_option,
    parse_assignments,
    run_argument,
    set_option,
    table_options,
    track_option,
)


def _selecting() -> Progress:
    return Progress("select", "examples", delay=2.0)


@command("run")
@click.argument("spec", metavar="SPEC.yaml|FILE.csv")
@table_options
@click.option(
    "--no-trial",
    is_flag=True,
    help="Skip the trial on this machine's CPU: some examples, or a comparison with stored ones.",
)
@click.option("--exit-file", metavar="URI", help="Write how it ended there, also if the spec is wrong.")
def run_spec(spec: str, no_trial: bool, exit_file: str | None, **options: Any) -> Answer:
    """Extract features, select, write manifests; run it again and it does what is missing."""
    from opacc_ray.audit import verbs
    from opacc_ray.cli.answers import drawn
    from opacc_ray.cli.exit_file import noted
    from opacc_ray.cluster import local
    from opacc_ray.spec.predictions_table import load_spec_or_table

    with (
        noted(exit_file) as note,
        Progress("extract", "shards") as extracting,
        _selecting() as selecting,
        local.ahead(),
    ):
        run = verbs.run(load_spec_or_table(spec, **options), extracting, selecting, trial=not no_trial)
        note(run)
        return drawn(run)


@command("check")
@click.argument("spec", metavar="SPEC.yaml|FILE.csv")
@table_options
def check(spec: str, **options: Any) -> Answer:
    """Check all that can be checked before Ray starts, and nothing else."""
    from opacc_ray.audit.checks import check as make_checks
    from opacc_ray.cli import texts
    from opacc_ray.spec.predictions_table import load_spec_or_table

    made, failure = make_checks(load_spec_or_table(spec, **options, write=False), spec)
    if failure is not None:  # the answer has its sentence
        wrong = [item.name for item in made.checks if not item.ok]
        short = f"{len(wrong)} of {len(made.checks)} checks failed: {', '.join(wrong)}; the answer says why"
        details, failure = failure.details, type(failure)(short)
        failure.details = details
    return Answer(made, texts.checks(made), failure)


@command("plan")
@click.argument("spec", metavar="SPEC.yaml")
@click.option("--actors", type=click.IntRange(min=1), metavar="N", help="Of the cluster you mean; default: the spec's.")
@click.option("--batches", type=click.IntRange(min=1), default=4, show_default=True, help="Batches to measure here.")
def plan(spec: str, actors: int | None, batches: int) -> Answer:
    """Say what a run will take: shards, requests, bytes, hours and memory. Nothing is written, and Ray not started."""
    from opacc_ray.audit.checks import plan_run
    from opacc_ray.cli import plan_texts
    from opacc_ray.spec import load_spec

    planned = plan_run(load_spec(spec), spec, actors, batches)
    return Answer(planned, plan_texts.plan(planned))


@command("status")
@run_argument
@track_option
def status(uri: str, track: str | None) -> Answer:
    """Show what is done and what a run waits for."""
    from opacc_ray.audit.status import status as state_of
    from opacc_ray.cli import texts
    from opacc_ray.runs.run import Run

    state = state_of(Run.open(uri, track))
    return Answer(state, texts.status(state))


@command("select")
@run_argument
@click.option("--method", type=METHOD, required=True, help="Sampling method.")
@budget_option
@click.option("--seed", type=int, help="Seed of the draw; default: the spec's.")
@click.option("--replicates", type=int, metavar="R", help="Choose from R parts of the pool apart.")
@set_option("A parameter of the method, in YAML; repeat for more.")
@click.option("--track", metavar="NAME", help="Select on this track; one that is not there is opened.")
def select(
    uri: str,
    track: str | None,
    method: str,
    budget: int | None,
    seed: int | None,
    replicates: int | None,
    assignments: tuple[str, ...],
) -> Answer:
    """Draw another selection from the same features; beside one that has labels, on a track of its own."""
    from opacc_ray.audit import verbs
    from opacc_ray.cli.answers import drawn
    from opacc_ray.runs.run import Run

    run, parameters = Run.open(uri), parse_assignments(assignments)
    with _selecting() as progress:
        if track is None:
            run = verbs.select_on_free_track(run, method, budget, parameters, seed, replicates, progress)
        else:
            run = run.along(track)
            verbs.select(run, method, budget, parameters, seed, replicates, progress)
    return drawn(run)


@command("next")
@run_argument
@track_option
@budget_option
@click.option("--method", type=METHOD, help="Sampling method; default: that of the round before.")
@set_option("A parameter, in YAML; the others stay as they were, unless the method changes.")
@click.option("--replicates", type=int, metavar="R", help="Default: as many as in the round before; 0: without.")
@click.option("--close", is_flag=True, help="Give up the labels that are missing.")
@click.option(
    "--until",
    type=HALF_WIDTH,
    metavar="±W",
    help="Stop once the interval is ±W; else draw the next of the rounds planned for it.",
)
def next_round(
    uri: str,
    track: str | None,
    budget: int | None,
    method: str | None,
    assignments: tuple[str, ...],
    replicates: int | None,
    close: bool,
    until: float | None,
) -> Answer:
    """Choose what to label next, knowing all labels so far."""
    from opacc_ray.audit import label_budget, verbs
    from opacc_ray.cli.answers import drawn, reached
    from opacc_ray.runs.run import Run

    run, parameters, goal = Run.open(uri, track), parse_assignments(assignments), None
    if until is not None:
        goal = label_budget.look_for_goal(run, until, close=close)
        if goal.reached:
            if close:
                verbs.close(run)
            label_budget.record_goal(run, goal)
            return reached(run, goal)
    with _selecting() as progress:
        verbs.next_round(
            run,
            goal.sizes[0] if goal and budget is None else budget,
            method=method,
            parameters=parameters,
            replicates=replicates,
            close=close,
            progress=progress,
        )
    if goal:
        label_budget.record_goal(run, goal)
    return drawn(run, goal)


@command("verify")
@run_argument
def verify(uri: str) -> Answer:
    """Compare all files of a run with their digests and with one another; exit code 5 if anything is wrong."""
    from opacc_ray.audit.verify import verify as verify_run
    from opacc_ray.cli import texts
    from opacc_ray.errors import DataError

    found = verify_run(uri)
    failure = None if found.sound else DataError(f"{uri}: {len(found.faults)} faults were found; see fault lines above")
    return Answer(found, texts.verification(found), failure)


@command("list")
@click.argument("output", metavar="OUTPUT")
def list_runs(output: str) -> Answer:
    """List the runs of an output, the newest first: state, accuracy, labels and age; `opacc runs OUTPUT` does so."""
    from opacc_ray.audit.status import list_runs as listed
    from opacc_ray.cli import run_texts

    found = listed(output)
    return Answer(found, run_texts.listed(found))


@command("remove")
@run_argument
@click.option("--force", is_flag=True, help="Delete it although it holds labels.")
def remove_run(uri: str, force: bool) -> Answer:
    """Delete a run. Features that runs share are kept; a run with labels is kept unless forced."""
    from opacc_ray.audit.status import remove_run as remove
    from opacc_ray.cli import run_texts

    done = remove(uri, force=force)
    return Answer(done, run_texts.removed(done))


class _Runs(click.Group):
    """A group whose first argument may be an output, which it lists."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        if arguments and arguments[0] not in (*self.commands, "--help"):
            arguments = ["list", *arguments]
        return super().parse_args(context, arguments)


runs = _Runs("runs", commands=[list_runs, remove_run], help="The runs of an output: opacc runs OUTPUT lists them.")

COMMANDS = [check, plan, run_spec, status, select, next_round, verify, runs]
