"""Commands of regression suites: suite, regress."""

from shlex import quote
from typing import TYPE_CHECKING

import click

from opacc_ray.cli.command import RUN, Answer, command, on_run

if TYPE_CHECKING:
    from opacc_ray.extensions.suites.suites import Changed, Regression, Suite
    from opacc_ray.report.facts import Line
    from opacc_ray.runs.run import Run

SHOWN = 20
"""Changed examples that are printed; the JSON document has all."""


@command("suite")
@on_run
@click.argument("folder", metavar="SUITE")
@click.option("--size", type=click.IntRange(1), metavar="N", help="Most examples (default: as many as are needed).")
@click.option(
    "--coverage", metavar="CRITERION", default="nc:0.5", show_default=True, help="nc:0.5, kmnc:10, nbc, snac or tknc:2."
)
@click.option(
    "--method",
    metavar="METHOD",
    default="deepreduce",
    show_default=True,
    help="Chooses from the labelled examples, such as coverage: near centroids and boundaries.",
)
def suite(run: "Run", folder: str, size: int | None, coverage: str, method: str) -> Answer:
    """Make a regression suite of labelled examples, for `opacc regress`.

    SUITE is a new folder or prefix. It gets labels, inputs and answers of few examples that cover what the labelled
    ones cover.
    """
    from opacc_ray.extensions.suites.suites import make_suite

    made = make_suite(run, folder, size=size, criterion=coverage, method=method)
    return Answer(made, _made(made, folder))


@command("regress")
@click.argument("model", metavar="MODEL", type=RUN)
@click.argument("suite", metavar="SUITE")
@click.option(
    "--allow",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Examples that may be wrong although they were right.",
)
@click.option("--accept", is_flag=True, help="Compare with these answers from now on.")
def regress(model: str, suite: str, allow: int, accept: bool) -> Answer:
    """Run a model on a regression suite; exits with 10 on a regression.

    MODEL is a spec (.yaml), weights for the suite's model (.safetensors, .pt, …), a RUN, or a table of predictions
    (.csv, .parquet). It runs in this process, without Ray.
    """
    from opacc_ray.errors import RegressionError, counted
    from opacc_ray.extensions.suites.suites import regress as run_on_suite

    found = run_on_suite(model, suite, allow=allow, accept=accept)
    lines = _result(found, model, suite)
    if found.passed or found.accepted:
        return Answer(found, lines)
    allowed = f", and {found.allowed} may be" if found.allowed else ""
    wrong = counted(len(found.newly_wrong), "example is", "examples are")
    failure = f"{wrong} wrong that were right{allowed}; mend the model, or give --accept to compare with it from now on"
    return Answer(found, lines, RegressionError(failure))


def _made(suite: "Suite", folder: str) -> "list[Line]":
    from opacc_ray.report.answers import next_step
    from opacc_ray.report.facts import facts, percent

    right = f"{len(suite.examples)} of {suite.labelled} labelled, {suite.failures} of them mispredicted"
    lines = facts(("suite", folder), ("examples", right))
    if own := suite.coverage:
        of_all = f"{own.met} of {own.requirements} requirements of {own.criterion}"
        pool = f"{percent(own.share)} of the {own.pool} that the pool meets"
        lines += facts(("coverage", f"{of_all}; {pool}"))
    return [*lines, next_step("regress", suite.run, quote(folder))]


def _result(found: "Regression", model: str, suite: str) -> "list[Line]":
    from opacc_ray.report.facts import Fact, duration, facts, in_a_line, next_fact, percent, stated, warned

    pool = found.pool_accuracy
    result = "passed" if found.passed else "failed"
    share = percent(found.right / found.examples)
    counts = f"{found.right} of {found.examples} right ({share}), {found.right_before} before"
    meaning = "examples chosen to cover the model, so this share is no estimate of the accuracy on the pool"
    met = covered = None
    if own := found.coverage:
        met = f"{percent(own.met / own.requirements)} of {own.requirements} requirements of {own.criterion}"
    if own and own.pool is not None:
        covered = f"{percent(own.share)} of {own.pool} requirements that the pool of the run meets"
    wrong, right = len(found.newly_wrong), len(found.newly_right)
    changes = f"{wrong} newly wrong, {right} newly right, {found.otherwise_wrong} otherwise wrong"
    lines: list[Line] = [
        Fact("result", result, "result" if found.passed else "error"),
        *facts(("suite", counts), ("meaning", meaning)),
        *facts(("pool", pool and f"{in_a_line(stated(pool), pool.level)}, estimated when the suite was made")),
        *facts(("changed", changes), ("coverage", met), ("pool covered", covered)),
        *facts(("age", duration(found.age))),
    ]
    lines += [_table("newly wrong", found.newly_wrong)] if found.newly_wrong else []
    lines += [_table("newly right", found.newly_right)] if found.newly_right else []
    lines += warned(found.warnings)
    if found.accepted:
        return [*lines, *facts(("accepted", "the suite compares with these answers from now on"))]
    changed = found.newly_wrong or found.newly_right or found.otherwise_wrong
    step = next_fact("opacc regress", quote(model), quote(suite), "--accept")
    return [*lines, step] if changed else lines


def _table(title: str, changed: "list[Changed]") -> "Line":
    from opacc_ray.report.facts import Column, Table

    names = (title, "label", "before", "now")
    rows = [(own.id, own.label, own.before, own.now) for own in changed[:SHOWN]]
    if len(changed) > SHOWN:
        rows.append((f"and {len(changed) - SHOWN} more (--json)", "", "", ""))
    return Table([Column(name) for name in names], rows)
