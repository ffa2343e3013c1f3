"""``opacc``: the options of each command, the method of :class:`~opacc_ray.stored_audit.Audit`, and its answer.

Results go to stdout, progress and errors to stderr. This module and its imports load in a moment: a command loads what
it needs when it runs.
"""

import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import shell_complete

from opacc_ray._version import __version__
from opacc_ray.audit import EXPORTERS
from opacc_ray.cli import command as cli
from opacc_ray.errors import DataError, LabelsAwaited, OpaccError, SpecError, counted
from opacc_ray.registry import Lazy, Registry
from opacc_ray.runs.run_names import known_outputs, remember, uri_of

if TYPE_CHECKING:
    from opacc_ray import stored_audit
    from opacc_ray.extract import user_code
    from opacc_ray.report import answers, facts
    from opacc_ray.runs.run_documents import Goal
    from opacc_ray.spec import ConflictRule, Spec
    from opacc_ray.spec.table_spec import TableKeys
    from opacc_ray.stored_audit import Audit
else:
    LATER = "stored_audit", "extract.user_code", "report.answers", "report.facts"
    stored_audit, user_code, answers, facts = (Lazy(f"opacc_ray.{name}") for name in LATER)

log = logging.getLogger(__name__)

partial_option = click.option("--partial", is_flag=True, help="Treat missing labels as missing at random.")
annotator_option = click.option("--annotator", metavar="NAME", help="Annotator (default: the page asks).")
port_option = click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0: any free one."
)
host_option = functools.partial(click.option, "--host", default="127.0.0.1", show_default=True)


# -- rounds ----------------------------------------------------------------------------------------------


@cli.command("run")
@click.argument("spec", metavar="[FILE.csv|SPEC.yaml]", required=False)
@cli.table_keys
@click.option("--like", type=cli.RUN, metavar="RUN", help="Draw anew from the features of RUN, in a run of its own.")
@click.option("--seed", type=int, help="With --like: seed of the draw.")
@cli.set_option(help="With --like: parameter of the method, in YAML; repeatable.")
@click.option("--no-trial", is_flag=True, help="Skip the trial of some examples on this machine's CPU.")
@click.option("--exit-file", metavar="URI", help="Write the exit status as JSON to URI, even if the spec is invalid.")
def run_spec(
    spec: str | None,
    keys: "TableKeys",
    like: str | None,
    seed: int | None,
    assignments: tuple[str, ...],
    no_trial: bool,
    exit_file: str | None,
) -> cli.Answer:
    """Read predictions, or get them from a model, and choose what to label.

    FILE.csv has columns id, prediction and confidence: opacc run answers.csv --budget 100; of a regression, id and
    prediction: opacc run houses.csv --task regression --budget 100. Parquet and JSON lines are read as well. SPEC.yaml
    names a pool, and a model that runs on it: opacc spec prints one. --like RUN takes the spec of a run, with another
    --method, --budget, --seed or --set: opacc run --like RUN --method srs.

    A command that was interrupted goes on where it stopped if you run it again. Nothing is done twice.
    """
    if (spec is None) == (like is None):
        raise click.UsageError("give FILE.csv or SPEC.yaml, or --like RUN")
    if spec is not None and (assignments or seed is not None):
        raise click.UsageError("--seed and --set are for --like; set them in the spec")
    strange = next(iter(given_keys(keys._replace(method=None, budget=None))), None)
    if like is not None and strange:
        raise click.UsageError(f"--{strange} is only for a file of predictions, and --like has the spec of {like}")
    with _exit_file(exit_file) as note, user_code.isolated():
        other = None if like is None else stored_audit.Audit.open(like)
        if other is not None:
            parameters = cli.parse_assignments(assignments)
            audit = other.like(keys.method, keys.budget, seed=seed, parameters=parameters, trial=not no_trial)
        else:
            own = _begun(spec or "", keys, trial=not no_trial)  # before most is imported here
            audit = stored_audit.Audit.run(own, keys, trial=not no_trial)
        note(audit)
        remember(audit.uri)
        from opacc_ray.audit.status import newest_round

        drawn = newest_round(audit.record, like=None if other is None else other.record)
        return cli.Answer(drawn, answers.drawn(drawn))


def _begun(spec: str, keys: "TableKeys", *, trial: bool) -> "str | Spec":
    """Return the spec of a file, or a table as it is; a process imports torch for its trial meanwhile."""
    from opacc_ray.spec.table_spec import is_table, load_spec_or_table

    if is_table(spec):
        return spec
    own = load_spec_or_table(spec, keys)
    if trial:
        user_code.begin(own)
    return own


def given_keys(keys: "TableKeys") -> dict[str, str]:
    """Return the options of a file that are given, as a shell takes them."""
    return {name: quote(str(value)) for name, value in keys._asdict().items() if value is not None}


def typed(spec: str, keys: "TableKeys") -> str:
    """Return a spec or file with its options, as they can be pasted into a shell."""
    return " ".join([quote(spec), *(f"--{name} {value}" for name, value in given_keys(keys).items())])


@contextmanager
def _exit_file(uri: str | None) -> Iterator[Callable[["Audit"], None]]:
    """Write to ``uri`` how the block ended; the block passes the finished audit to the function that it gets."""
    if uri is None:  # most of the package is imported later
        yield lambda audit: None
        return
    from opacc_ray.audit.status import ended_by
    from opacc_ray.lake.store_uris import write_object
    from opacc_ray.runs.run_documents import Ended, RunExit

    done: list[Audit] = []
    try:
        yield done.append
        waits_for = done[-1].status().waits_for
        left = RunExit(ended=ended_by(waits_for), exit_code=0, run=done[-1].uri, waits_for=waits_for, error=None)
        write_object(uri, left.to_bytes())
    except BaseException as error:
        ours = cli.ending(error)
        ended: Ended = "wrong spec" if isinstance(error, SpecError) else "failed"
        ended = "interrupted" if isinstance(error, KeyboardInterrupt) else ended
        left = RunExit(ended=ended, exit_code=ours.exit_code, run=None, waits_for=None, error=str(ours))
        try:
            write_object(uri, left.to_bytes())
        except OpaccError as trouble:  # the error that ended the command matters more
            log.warning("the exit file could not be written: %s", trouble)
        raise


@cli.command("audit")
@click.argument("spec", metavar="FILE.csv|SPEC.yaml")
@cli.table_keys
@cli.until_option(help="Draw and label rounds until the interval is ±W.")
@cli.by_option
@annotator_option
@port_option
@host_option(help="Address of the labelling page.")
@click.option("--no-browser", is_flag=True, help="Print addresses instead of opening a browser.")
def audit(
    spec: str,
    keys: "TableKeys",
    until: str | None,
    by: str | None,
    annotator: str | None,
    port: int,
    host: str,
    no_browser: bool,
) -> cli.Answer:
    """Do a whole audit: check, run the model, choose, open the labelling page, go on to the goal, report.

    FILE.csv has columns id, prediction and confidence; no model runs on it. --budget is the number of labels of the
    first round (default: as `opacc budget` predicts for the goal). Ctrl-C ends the labelling page; the same command
    goes on where it stopped.
    """
    if until is not None and keys.budget is None:
        keys = keys._replace(budget=stored_audit.first_budget(spec, until, by, keys))
    with user_code.isolated():
        own = stored_audit.Audit.run(spec, keys)
    remember(own.uri)
    browser = not no_browser and sys.stdout.isatty()

    def tell(goal: "Goal") -> None:
        log.info("%s", answers.round_done(goal))

    own.label(until=until, by=by, on_round=tell, host=host, port=port, annotator=annotator, browser=browser)
    written = own.report()
    if browser:
        cli.open_page(written.files[0])
    places = facts.facts(("run", own.uri), ("report", written.files[0]))
    lines = [*answers.concluded(written), *places, *answers.step_of_report(written)]
    missing, waits = own.num_missing(), None
    if missing:
        awaited = f"{own.record.name} waits for {counted(missing, 'label')}"
        waits = LabelsAwaited(f"{awaited}; then run the same command again")
    return cli.Answer(written, lines, waits)


@cli.command("check")
@click.argument("spec", metavar="FILE.csv|SPEC.yaml")
@cli.table_keys
@click.option("--plan", is_flag=True, help="Also predict the requests, bytes, hours and memory of a run.")
@click.option(
    "--actors",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --plan: actors of the cluster (default: as in SPEC).",
)
def check(spec: str, keys: "TableKeys", plan: bool, actors: int | None) -> cli.Answer:
    """Check the spec, and try the model on some examples; with --plan, predict what a run will take."""
    from opacc_ray.audit import checks
    from opacc_ray.spec.table_spec import load_spec_or_table

    if actors is not None and not plan:
        raise click.UsageError("--actors is for --plan; give both, or remove it")
    with user_code.isolated():
        made, failure = checks.check(load_spec_or_table(spec, keys), spec, forecast=plan, actors=actors)
    if failure is not None:  # the answer has its sentence
        wrong = [item.name for item in made.checks if not item.ok]
        short = f"{len(wrong)} of {len(made.checks)} checks failed: {', '.join(wrong)}; see the lines above"
        details, failure = failure.details, type(failure)(short)
        failure.details = details
    return cli.Answer(made, answers.checks(made, typed(spec, keys)), failure)


@cli.command("status")
@cli.on_audit
@click.option("--log", "show_log", is_flag=True, help="List what happened instead: rounds, labels, goals, estimates.")
def status(audit: "Audit", show_log: bool) -> cli.Answer:
    """Show the rounds of a run, its estimate, and what it waits for."""
    if show_log:
        entries = audit.log()
        return cli.Answer(entries, answers.run_log(entries))
    state = audit.status()
    lost = DataError(f"labels are lost: {state.lost[0]}") if state.lost else None
    return cli.Answer(state, answers.status(state), lost)


@cli.command("next")
@cli.on_audit
@cli.budget_option
@click.option("--method", type=cli.METHOD, help="Sampling method (default: that of the last round).")
@cli.set_option(help="Parameter of the method, in YAML; the others stay unless the method changes.")
@click.option("--close", is_flag=True, help="Give up the missing labels.")
@cli.until_option(
    help="Stop once the interval is ±W, such as 0.03 or 'f1@defect ±0.03'; else draw the next planned round."
)
@cli.by_option
@cli.verbose_option
def next_round(
    audit: "Audit",
    budget: int | None,
    method: str | None,
    assignments: tuple[str, ...],
    close: bool,
    until: str | None,
    by: str | None,
) -> cli.Answer:
    """Choose what to label next, using all labels so far."""
    parameters = cli.parse_assignments(assignments)
    drawn = audit.next(budget, until=until, by=by, method=method, parameters=parameters, close=close)
    return cli.Answer(drawn, answers.drawn(drawn))


# -- labels ----------------------------------------------------------------------------------------------


@cli.command("label")
@click.argument("uri", metavar="RUN|OUTPUT", type=cli.RUN)
@annotator_option
@port_option
@host_option(help="Address; another one lets other machines in (docs/labelling.md).")
@click.option("--people", metavar="NAMES", default="", help="People who get an address each, such as ann,bob.")
@click.option("--user-header", metavar="NAME", help="Header in which a proxy names who signed in.")
@cli.overlap_option
def label(
    uri: str,
    annotator: str | None,
    port: int,
    host: str,
    people: str,
    user_header: str | None,
    overlap: float | None,
) -> cli.Answer:
    """Label on a web page, until Ctrl-C; answers are saved at once.

    Of an OUTPUT, all runs that wait for labels are served, with an inbox and the team.
    """
    from opacc_ray.labels.web_app import holds_runs, serve
    from opacc_ray.runs.run import Run

    is_output = holds_runs(uri)

    def announce(address: str) -> None:
        who = "it shows the team, so keep it to yourself" if people else "anyone with this address can label"
        plain = "; it is not encrypted, so use it in a trusted network alone" if host in ("0.0.0.0", "::") else ""
        click.echo(f"label at   {address}\nend with   Ctrl-C; {who}{plain}", err=True)

    def on_person(name: str, address: str) -> None:
        click.echo(f"{name:<10} {address}", err=True)

    def on_done(desk: Any) -> None:
        step = answers.after(desk.run).text
        click.echo(f"done       {desk.name}: all examples are answered; next: {step}", err=True)

    run = None if is_output else Run.open(uri)
    session = serve(
        run or uri,
        host,
        port,
        announce,
        annotator=annotator,
        overlap=overlap,
        people=[name.strip() for name in people.split(",") if name.strip()],
        user_header=user_header,
        on_person=on_person,
        on_done=on_done,
    )
    return cli.Answer(session, answers.session(session, run))


@cli.command("import")
@cli.run_argument
@click.argument("file", metavar="[FILE|RUN]", required=False)
@click.option("--annotator", metavar="NAME", help="Annotator of all labels in the file.")
@click.option(
    "--conflict",
    type=click.Choice(["error", "majority", "latest"]),
    help="Rule for labels that differ, for the run from now on; without FILE, set it alone.",
)
@click.option(
    "--numbers-are-classes", is_flag=True, help="Read numbers as class indexes from 0 although classes have names."
)
@click.option("--only-selected", is_flag=True, help="Leave out rows of other examples, as of a file of all labels.")
def import_file(
    uri: str,
    file: str | None,
    annotator: str | None,
    conflict: "ConflictRule | None",
    numbers_are_classes: bool,
    only_selected: bool,
) -> cli.Answer:
    """Import labels: CSV or JSONL with id and label, a tool's export, or the answers of another run.

    Files may come in any order, and may hold any part of the labels. Of another run on the same pool, the answers to
    the examples that RUN has selected are taken.
    """
    if file is None:
        if conflict is None:
            raise click.UsageError("give FILE or RUN, or --conflict RULE to set the rule for labels that differ")
        rule = facts.facts(("rule", f"{conflict}, where labels differ"))
        return cli.Answer(stored_audit.Audit.open(uri).set_rule(conflict), rule)
    source, audit = uri_of(file), stored_audit.Audit.open(uri)
    is_run = source != file or "://" in file or os.path.isdir(file)
    imported = audit.add_labels(
        stored_audit.Audit.open(source) if is_run else file,
        annotator=annotator,
        conflict=conflict,
        numbers_are_classes=numbers_are_classes or None,
        only_selected=only_selected,
    )
    return cli.Answer(imported, answers.imported(imported, audit.record))


@cli.command("list")
@cli.on_audit
@click.option("--id", "example", metavar="ID", help="Show one example only.")
def list_labels(audit: "Audit", example: str | None) -> cli.Answer:
    """List all answers: who, when, and which ones count."""
    listed = audit.answers(example)
    return cli.Answer(listed, answers.label_list(listed))


@cli.command("correct")
@cli.on_audit
@click.argument("example", metavar="ID")
@click.argument("label", metavar="LABEL")
@click.option("--annotator", metavar="NAME", required=True, help="Annotator of the correction.")
def correct(audit: "Audit", example: str, label: str, annotator: str) -> cli.Answer:
    """Override an example's label (`?` = can't tell). Earlier answers stay in the log but are ignored."""
    listed = audit.correct(example, label, annotator=annotator)
    later = answers.carried_to(audit.record, example, "correct", example, label, "--annotator", annotator)
    return cli.Answer(listed, [*answers.label_list(listed), *later])


@cli.command("withdraw")
@cli.on_audit
@click.argument("what", metavar="ID|FILE")
def withdraw(audit: "Audit", what: str) -> cli.Answer:
    """Withdraw the labels of a file or an example (kept in the log)."""
    gone = audit.withdraw(what)
    later = [] if gone.id is None else answers.carried_to(audit.record, gone.id, "withdraw", gone.id)
    return cli.Answer(gone, [*answers.withdrawn(gone), *later])


@cli.command("export")
@cli.on_audit
@click.argument("target", metavar="FOLDER|FILE")
@click.option("--to", "tool", type=click.Choice(list(EXPORTERS)), required=True, help="What to write them for.")
def export(audit: "Audit", target: str, tool: str) -> cli.Answer:
    """Write labelled examples: failures or all of them to train on, a case for a study, or for FiftyOne."""
    written = audit.export(target, tool)
    wrote = f"{written.examples} labelled examples for {tool} to {written.to}"
    return cli.Answer(written, facts.facts(("wrote", wrote), *(("note", text) for text in written.notes)))


labels = cli.Group(
    "labels",
    {"Commands": [import_file, list_labels, correct, withdraw, export]},
    help="Import, list and correct labels.",
)


# -- results ---------------------------------------------------------------------------------------------


@cli.command("estimate")
@cli.on_audit
@click.option("--costs", metavar="COSTS.yaml", help="Cost of errors by class; also report the mean cost.")
@click.option(
    "--assist",
    is_flag=True,
    help="Also report a prediction-powered estimate that uses the confidences of the whole pool.",
)
@click.option("--metric", "metrics", multiple=True, metavar="METRIC", help="Report macro_f1, recall@CLASS, mae, …")
@click.option("--by", multiple=True, metavar="SLICES", help="By a slice of the spec, prediction or truth.")
@click.option(
    "--score",
    metavar="NAME=VALUE",
    help="Score, this time only: within=0.5, error_scale=2, or exact=true (multilabel).",
)
@partial_option
@cli.level_option
@cli.verbose_option
def estimate(
    audit: "Audit",
    costs: str | None,
    assist: bool,
    metrics: tuple[str, ...],
    by: tuple[str, ...],
    score: str | None,
    partial: bool,
    level: float,
) -> cli.Answer:
    """Report the accuracy with a confidence interval, and the metrics of the spec."""
    stated = audit.estimate(
        level=level,
        partial=partial,
        assist=assist,
        metrics=metrics or None,
        by=by or None,
        costs=costs,
        score=None if score is None else cli.parse_assignments([score], "--score"),
    )
    return cli.Answer(stated, answers.estimate(stated, answers.step_after(audit.record, stated, metrics)))


@cli.command("compare")
@cli.on_audit
@click.argument("others", metavar="OTHER...", nargs=-1, required=True, type=cli.RUN)
@click.option("--metric", default="accuracy", metavar="METRIC", help="Compare macro_f1, recall@CLASS, … instead.")
@partial_option
@cli.level_option
@cli.verbose_option
def compare(audit: "Audit", others: tuple[str, ...], metric: str, partial: bool, level: float) -> cli.Answer:
    """Compare the model of RUN with other models, by the labels of RUN.

    OTHER is a run of another model on the same pool, or a CSV of its predictions with the same ids; it needs no labels.
    All differences hold together, and each model has a probability that it is the best.
    """
    compared = audit.compare(*others, metric=metric, partial=partial, level=level)
    return cli.Answer(compared, answers.comparison(compared))


@cli.command("budget")
@click.argument("uri", metavar="RUN|FILE.csv", type=cli.RUN)
@cli.until_option(required=True, help="Half-width to reach, such as 0.03 or 'recall@defect ±0.03'.")
@cli.by_option
@cli.level_option
@cli.columns_option
def budget(uri: str, until: str, by: str | None, level: float, columns: str | None) -> cli.Answer:
    """Predict how many labels an interval of ±W needs."""
    from opacc_ray.audit.goals import label_budget_of_table, read_goal
    from opacc_ray.spec.table_spec import is_table

    if is_table(uri):
        needed = label_budget_of_table(uri, *read_goal(until, by), level=level, columns=columns)
    else:
        if columns is not None:
            raise click.UsageError("--columns is for a CSV file; a run has those of pool.columns; remove it")
        needed = stored_audit.Audit.open(uri).budget(until, by=by, level=level)
    step = answers.step_to_goal(needed, is_table(uri), columns)
    return cli.Answer(needed, [*answers.label_budget(needed), *step])


@cli.command("report")
@cli.on_audit
@cli.out_option(help="Folder of the report (default: next to the estimate).")
@cli.level_option
@click.option("--goal", metavar='"[METRIC ]SHARE"', help="Least accuracy, or metric: 0.9 or 'recall@defect 0.9'.")
def report(audit: "Audit", out: str | None, level: float, goal: str | None) -> cli.Answer:
    """Write the result as a page (HTML), JSON and Markdown."""
    from opacc_ray.spec.spec_sections import Least

    least = None if goal is None else Least.parse(goal)
    written = audit.report(out, level=level, goal=least and {least.metric: least.share})
    return cli.Answer(written, answers.report(written))


# -- what there is ---------------------------------------------------------------------------------------


@cli.command("methods")
@click.argument("name", metavar="[METHOD]", type=cli.METHOD, required=False)
def methods(name: str | None) -> cli.Answer:
    """List the sampling methods, or the parameters of one."""
    from opacc_ray.cli.explanations import as_text, list_methods

    listed = list_methods([name] if name else None)
    return cli.Answer(listed, [as_text(listed)])


@cli.command("spec")
def spec_template() -> cli.Answer:
    """Print a spec to start from: opacc spec > spec.yaml."""
    from opacc_ray.cli.explanations import SpecTemplate

    template = SpecTemplate()
    return cli.Answer(template, [template.yaml.rstrip("\n")])


# -- the application -----------------------------------------------------------------------------------------------

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

application = cli.Group(
    "opacc",
    {
        "A whole audit": [audit],
        "An audit, step by step": [
            check,
            run_spec,
            label,
            next_round,
            estimate,
            report,
        ],
        "Labels": [labels],
        "Results": [status, budget, compare],
        "More": [methods, spec_template],
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
    cli.escape_unprintable()
    cli.log_to_stderr()
    cli.end_on_sigterm()
    try:
        return _run(given)
    except BrokenPipeError:
        cli.leave_closed_pipe()
        return cli.CLOSED_PIPE


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
    if isinstance(error, click.MissingParameter) and error.param is not None and error.param.type is cli.RUN:
        newest = [name for names in known_outputs().values() for name in names][:_SHOWN]
        hint = (f", such as {', '.join(newest)}" if newest else "") + hint
    return cli.fail(f"{error.format_message().rstrip('.')}{hint}", 2, as_json=as_json)
