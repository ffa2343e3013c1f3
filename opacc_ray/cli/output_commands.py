"""Commands on what an output holds: its runs, and the features that they share."""

import click

from opacc_ray.cli import command as cli


@cli.command("list")
@click.argument("output", metavar="OUTPUT")
def list_runs(output: str) -> cli.Answer:
    """List the runs of an output: state, accuracy, labels and age."""
    from opacc_ray.audit.status import list_runs as listed
    from opacc_ray.cli import run_answers

    found = listed(output)
    return cli.Answer(found, run_answers.listed(found))


@cli.command("remove")
@cli.run_argument
@click.option("--force", is_flag=True, help="Delete the run even if it has labels.")
def remove_run(uri: str, force: bool) -> cli.Answer:
    """Delete a run, but not its features; runs with labels need --force."""
    from opacc_ray.audit.status import remove_run as remove
    from opacc_ray.cli import run_answers

    done = remove(uri, force=force)
    return cli.Answer(done, run_answers.removed_run(done))


@cli.command("expire")
@click.argument("output", metavar="OUTPUT")
@click.option(
    "--days", type=click.FloatRange(min=0), required=True, help="Days without a change after which runs expire."
)
@click.option("--force", is_flag=True, help="Delete them; without it they are only listed.")
def expire_runs(output: str, days: float, force: bool) -> cli.Answer:
    """List or delete old runs with their labels, and features that only they used.

    The newest run of each audit is kept.
    """
    from opacc_ray.audit.retention import expire
    from opacc_ray.cli import run_answers

    found = expire(output, days, force=force)
    return cli.Answer(found, run_answers.expired(found))


runs = cli.Group(
    "runs",
    {"Commands": [list_runs, remove_run, expire_runs]},
    "list",
    help="List, remove or expire the runs of an output; opacc runs OUTPUT lists them.",
)


@cli.command("list")
@click.argument("output", metavar="OUTPUT")
def list_features(output: str) -> cli.Answer:
    """List the features of an output: size, model and the runs that use them."""
    from opacc_ray.cli import run_answers
    from opacc_ray.runs.feature_sets import list_sets

    found = list_sets(output)
    return cli.Answer(found, run_answers.feature_sets(found))


@cli.command("remove")
@click.argument("output", metavar="OUTPUT")
@click.argument("digest", metavar="DIGEST")
@click.option("--force", is_flag=True, help="Delete features that runs use; rerunning them extracts again.")
def remove_features(output: str, digest: str, force: bool) -> cli.Answer:
    """Delete features that no run uses, by their digest or its beginning."""
    from opacc_ray.cli import run_answers
    from opacc_ray.runs.feature_sets import remove_set

    done = remove_set(output, digest, force=force)
    return cli.Answer(done, run_answers.removed_set(done))


features = cli.Group(
    "features", {"Commands": [list_features, remove_features]}, help="List or remove features that runs share."
)
