"""Commands on one audit or run: run, audit, check, plan, status, select, next, verify, log, submit."""

import logging
from collections.abc import Callable, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from opacc_ray.audit.progress import Progress
from opacc_ray.cli import command as cli
from opacc_ray.cli.terminal import log_is_json, say

if TYPE_CHECKING:
    from opacc_ray.runs.run import Run

log = logging.getLogger(__name__)

table_options = cli.with_options(
    click.option("--name", metavar="NAME", help="CSV: name of the audit (default: the file's name)."),
    click.option("--output", metavar="URI", help="CSV: folder of the run and its spec (default: ./audits)."),
    click.option("--method", type=cli.METHOD, help="CSV: sampling method (default: neyman)."),
    cli.columns_option,
    click.option("--answer", metavar="A", help="CSV: column with answers to grade; A,B: two to choose between."),
    cli.judges_option,
    click.option("--show", metavar="A,B", help="CSV: columns that annotators see, such as subject,text."),
    click.option("--slices", metavar="A,B", help="CSV: columns that make slices, such as camera,region,camera*region."),
    click.option("--budget", type=int, metavar="N", help="CSV: number of labels (default: that of its run, if any)."),
)
"""Options of an audit of a file of predictions, which has no spec."""


def set_option(text: str) -> Callable[[Any], Any]:
    """Return the option that changes parameters of the method."""
    return click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help=text)


def _selecting() -> Progress:
    return Progress("select", "examples", delay=2.0)


@cli.command("run")
@click.argument("spec", metavar="FILE.csv|SPEC.yaml")
@table_options
@click.option("--no-trial", is_flag=True, help="Skip the trial of some examples on this machine's CPU.")
@click.option("--exit-file", metavar="URI", help="Write the exit status as JSON to URI, even if the spec is invalid.")
@click.option("--until", hidden=True)
def run_spec(spec: str, no_trial: bool, exit_file: str | None, until: str | None, **options: Any) -> cli.Answer:
    """Read predictions, or get them from a model, and choose what to label.

    FILE.csv has columns id, prediction and confidence: opacc run answers.csv --budget 100. Parquet and JSON lines are
    read as well. SPEC.yaml names a pool, and a model that runs on it: opacc spec --template neyman prints one.

    A command that was interrupted goes on where it stopped if you run it again. Nothing is done twice.
    """
    from opacc_ray.cli import run_answers

    if until is not None:
        audit, goal = f"opacc audit {_typed(spec, options)}", f"--until {quote(until)}"
        raise click.UsageError(
            f"opacc run draws the first round only; `{audit} {goal}` goes on to a goal, and so does "
            f"`opacc next RUN {goal}` after the first labels"
        )
    with run_answers.exit_file(exit_file) as note:
        run = _extracted(spec, trial=not no_trial, **options)
        note(run)
        cli.remember(run.uri)
        return run_answers.drawn(run)


@cli.command("audit")
@click.argument("spec", metavar="FILE.csv|SPEC.yaml")
@table_options
@cli.until_option(help="Draw and label rounds until the interval is ±W.")
@cli.goal_parts_option
@click.option("--annotator", metavar="NAME", help="Annotator (default: the page asks).")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0: any free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the labelling page.")
@click.option("--no-browser", is_flag=True, help="Print addresses instead of opening a browser.")
def audit(
    spec: str,
    until: tuple[str, float] | None,
    by: str | None,
    annotator: str | None,
    port: int,
    host: str,
    no_browser: bool,
    **options: Any,
) -> cli.Answer:
    """Do a whole audit: check, run the model, choose, open the labelling page, go on to the goal, report.

    FILE.csv has columns id, prediction and confidence; no model runs on it. --budget is the number of labels of the
    first round (default: as `opacc budget` predicts for the goal). Ctrl-C ends the labelling page; the same command
    goes on where it stopped.
    """
    from opacc_ray.audit import goals, guided
    from opacc_ray.cli import guided_answers
    from opacc_ray.report.run_report import make_report

    if by is not None and until is None:
        raise click.UsageError("--by is for --until; give both, or remove it")
    goal = (until[1], goals.read_target(until[0], by)) if until else ()
    if goal and options["budget"] is None:
        options["budget"] = guided_answers.first_budget(spec, *goal, **options)
    run = _extracted(spec, trial=True, **options)
    cli.remember(run.uri)
    ask = guided_answers.asking(host, port, annotator, browser=not no_browser)
    with _selecting() as selecting:
        guided.label_until(run, ask, *goal, on_round=guided_answers.tell_round, selecting=selecting)
    written, report = make_report(run)
    if not no_browser:
        guided_answers.show(written.files[0])
    again = guided_answers.same_command(run, spec, until, by)
    return guided_answers.audited(run, written, report, again)


def _extracted(spec: str, *, trial: bool, **options: Any) -> "Run":
    """Return the run of a spec or a file of predictions, with its features and a first round."""
    from opacc_ray.audit import verbs
    from opacc_ray.audit.checks import check_pool
    from opacc_ray.cluster import local
    from opacc_ray.extract import user_process
    from opacc_ray.spec.predictions_table import is_table
    from opacc_ray.spec.table_spec import kept_spec, load_spec_or_table

    with local.ahead(), user_process.isolated():
        given = load_spec_or_table(spec, **options)
        if is_table(spec):
            check_pool(given)
            given = kept_spec(given)
        verb = "read" if given.pool.holds_features else "extract"
        with Progress(verb, "shards") as extracting, _selecting() as selecting:
            return verbs.run(given, extracting, selecting, trial=trial)


@cli.command("check")
@click.argument("spec", metavar="FILE.csv|SPEC.yaml")
@table_options
def check(spec: str, **options: Any) -> cli.Answer:
    """Check the spec, and try the model on some examples."""
    from opacc_ray.audit.checks import check as make_checks
    from opacc_ray.cli import texts
    from opacc_ray.extract import user_process
    from opacc_ray.spec.table_spec import load_spec_or_table

    with user_process.isolated():
        made, failure = make_checks(load_spec_or_table(spec, **options), spec)
    if failure is not None:  # the answer has its sentence
        wrong = [item.name for item in made.checks if not item.ok]
        short = f"{len(wrong)} of {len(made.checks)} checks failed: {', '.join(wrong)}; see the lines above"
        details, failure = failure.details, type(failure)(short)
        failure.details = details
    return cli.Answer(made, texts.checks(made, _typed(spec, options)), failure)


def _typed(spec: str, options: Mapping[str, Any]) -> str:
    """Return a spec or file with its options, as they can be pasted into a shell."""
    given = [f"--{name} {quote(str(value))}" for name, value in options.items() if value is not None]
    return " ".join([quote(spec), *given])


@cli.command("plan")
@click.argument("spec", metavar="SPEC.yaml")
@click.option(
    "--actors", type=click.IntRange(min=1), metavar="N", help="Actors of the cluster (default: those of the spec)."
)
@click.option(
    "--batches", type=click.IntRange(min=1), default=4, show_default=True, help="Batches to measure on this machine."
)
def plan(spec: str, actors: int | None, batches: int) -> cli.Answer:
    """Predict the requests, bytes, hours and memory of a run; start nothing."""
    from opacc_ray.audit.checks import plan_run
    from opacc_ray.cli import run_answers
    from opacc_ray.extract import user_process
    from opacc_ray.spec import load_spec

    with user_process.isolated():
        planned = plan_run(load_spec(spec), spec, actors, batches)
    return cli.Answer(planned, run_answers.plan(planned))


@cli.command("status")
@cli.on_run
@cli.track_option
def status(run: "Run") -> cli.Answer:
    """Show the rounds of a run, its estimate, and what it waits for."""
    from opacc_ray.audit.status import status as state_of
    from opacc_ray.cli import texts

    state = state_of(run)
    return cli.Answer(state, texts.status(state))


@cli.command("select")
@cli.run_argument
@click.option("--method", type=cli.METHOD, required=True, help="Sampling method.")
@cli.budget_option
@click.option("--seed", type=int, help="Seed of the draw (default: that of the spec).")
@click.option(
    "--replicates",
    type=int,
    metavar="R",
    help="Draw R samples from R random parts of the pool, whose spread gives the interval.",
)
@set_option("Parameter of the method, in YAML; repeatable.")
@click.option("--track", metavar="NAME", help="Series of rounds to draw for; created if missing.")
def select(uri: str, track: str | None, assignments: tuple[str, ...], **options: Any) -> cli.Answer:
    """Choose examples anew, by another method or budget, from the same features.

    They replace the newest round if that has no labels. Otherwise they go to a track, a series of rounds, of their own.
    """
    from opacc_ray.audit import verbs
    from opacc_ray.cli.run_answers import drawn
    from opacc_ray.runs.run import Run

    run, parameters = Run.open(uri), cli.parse_assignments(assignments)
    with _selecting() as progress:
        choice = verbs.Choice.of(run, parameters=parameters, **options)
        run = verbs.free_track(run, choice) if track is None else run.along(track)
        verbs.select(run, parameters=parameters, progress=progress, **options)
    return drawn(run)


@cli.command("next")
@cli.on_run
@cli.track_option
@cli.budget_option
@click.option("--method", type=cli.METHOD, help="Sampling method (default: that of the last round).")
@set_option("Parameter of the method, in YAML; the others stay unless the method changes.")
@click.option(
    "--replicates", type=int, metavar="R", help="Samples, as of select (default: as in the last round; 0: one, of all)."
)
@click.option("--close", is_flag=True, help="Give up the missing labels.")
@cli.until_option(
    help="Stop once the interval is ±W, such as 0.03 or 'f1@defect ±0.03'; else draw the next planned round."
)
@cli.goal_parts_option
def next_round(
    run: "Run",
    budget: int | None,
    assignments: tuple[str, ...],
    close: bool,
    until: tuple[str, float] | None,
    by: str | None,
    **options: Any,
) -> cli.Answer:
    """Choose what to label next, using all labels so far."""
    from opacc_ray.audit import goals, verbs
    from opacc_ray.cli.run_answers import drawn, reached

    options |= {"parameters": cli.parse_assignments(assignments), "close": close}
    if until is None:
        if by is not None:
            raise click.UsageError("--by is for --until; give both, or remove it")
        newest = run.rounds()[-1:]
        with _selecting() as progress:
            selection = verbs.next_round(run, budget, repeat=budget is not None, progress=progress, **options)
        return drawn(run, again=[selection.round] == newest)
    target = goals.read_target(until[0], by)
    with _selecting() as progress:
        goal = goals.next_until(run, until[1], target, budget=budget, progress=progress, **options)
    return reached(run, goal) if goal.reached else drawn(run, goal)


@cli.command("verify")
@cli.run_argument
@click.option("--head", metavar="DIGEST", help="Also check that the log still has this entry: the head of `opacc log`.")
@click.option("--key", "keys", multiple=True, metavar="PUB.pem", help="Also check signatures by this public key.")
def verify(uri: str, head: str | None, keys: tuple[str, ...]) -> cli.Answer:
    """Check all files of a run against their digests and each other."""
    from opacc_ray.audit.verify import verify as verify_run
    from opacc_ray.cli import run_answers
    from opacc_ray.errors import DataError

    found = verify_run(uri, head, keys)
    wrong = DataError(f"{uri}: {len(found.faults)} faults were found; see the fault lines above")
    return cli.Answer(found, run_answers.verification(found), None if found.sound else wrong)


@cli.command("log")
@cli.on_run
def list_log(run: "Run") -> cli.Answer:
    """List what happened to a run: rounds drawn and closed, labels, goals, estimates."""
    from opacc_ray.audit.run_log import run_log
    from opacc_ray.cli import run_answers

    found = run_log(run)
    return cli.Answer(found, run_answers.logged(found))


@cli.command("submit")
@click.argument("spec", metavar="SPEC.yaml")
@click.option("--address", metavar="URL", help="Dashboard of the cluster, http://HEAD:8265 (default: RAY_ADDRESS).")
@click.option("--wait/--detach", default=True, show_default=True, help="Follow the job to its end, or return at once.")
@click.option(
    "--env",
    "environment",
    metavar="NAME",
    multiple=True,
    help="Environment variable to pass on; repeatable. All users of the cluster can read it.",
)
@click.option("--module", "modules", metavar="NAME", multiple=True, help="Further module to send; repeatable.")
def submit(
    spec: str, address: str | None, wait: bool, environment: tuple[str, ...], modules: tuple[str, ...]
) -> cli.Answer:
    """Submit a run as a Ray job and stream its logs; submitting it twice starts one job."""
    from opacc_ray.audit import submission
    from opacc_ray.cli import run_answers
    from opacc_ray.spec import load_spec

    order = submission.Order(environment, modules, address, wait)
    sent, failure = submission.submit(load_spec(spec), order, _relay)
    cli.remember(sent.run)
    return cli.Answer(sent, run_answers.submission(sent), failure)


def _relay(text: str) -> None:
    """Print the output of a job; with JSON logs, lines of plain text become log lines."""
    for line in text.splitlines():
        if log_is_json() and not line.startswith("{"):
            log.info("%s", line)
        else:
            say(line)
