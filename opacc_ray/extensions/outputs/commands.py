"""Commands on what an output holds: its runs, and the features that they share."""

from shlex import quote

import click

from opacc_ray.cli import command as cli


@cli.command("list")
@click.argument("output", metavar="OUTPUT")
@click.option("--features", is_flag=True, help="Also list stored features: size, model and the runs that use them.")
def list_runs(output: str, features: bool) -> cli.Answer:
    """List the runs of an output: state, accuracy, labels and age."""
    from opacc_ray.extensions.outputs import outputs

    found = outputs.list_runs(output, features=features)
    return cli.Answer(found, outputs.listed(found))


@cli.command("remove")
@click.argument("uris", metavar="RUN...|OUTPUT", nargs=-1, required=True, type=cli.RUN)
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Of OUTPUT: runs without a change for so long, unless they are the newest of their audit.",
)
@click.option("--unused-features", is_flag=True, help="Of OUTPUT: features that no run uses, or only those old runs.")
@click.option("--features", "digest", metavar="DIGEST", help="Of OUTPUT: features, by their digest or its beginning.")
@click.option(
    "--force", is_flag=True, help="Delete runs with labels, features in use, and what is only listed without --force."
)
def remove_runs(
    uris: tuple[str, ...], older_than: float | None, unused_features: bool, digest: str | None, force: bool
) -> cli.Answer:
    """Delete runs, but not their features; or old runs and features of an output.

    A run with labels needs --force. What --older-than and --unused-features find is only listed without it.
    """
    from opacc_ray.extensions.outputs import outputs

    found_by = older_than is not None or unused_features
    if (found_by or digest is not None) and len(uris) > 1:
        raise click.UsageError("--older-than, --unused-features and --features are for one OUTPUT; give no other URI")
    if found_by and digest is not None:
        raise click.UsageError("--features names what to delete; remove --older-than and --unused-features")
    if digest is not None:
        done = outputs.remove_features(uris[0], digest, force=force)
    elif found_by:
        done = outputs.remove_unneeded(uris[0], older_than, unused_features=unused_features, force=force)
    else:
        done = outputs.remove_runs(*uris, force=force)
    old = "" if older_than is None else f" --older-than {older_than:g}"
    again = f"opacc runs remove {quote(uris[0])}{old}{' --unused-features' * unused_features} --force"
    return cli.Answer(done, outputs.removed(done, again))


runs = cli.Group(
    "runs",
    {"Commands": [list_runs, remove_runs]},
    "list",
    help="List or remove the runs and features of an output; opacc runs OUTPUT lists them.",
)
