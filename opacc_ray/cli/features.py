"""Commands for the features that runs share: features list, remove."""

import click

from opacc_ray.cli.command import Answer, command


@command("list")
@click.argument("output", metavar="OUTPUT")
def list_features(output: str) -> Answer:
    """Show the sets of features below an output, their sizes, and the runs that use them."""
    from opacc_ray.cli import feature_texts
    from opacc_ray.runs.feature_sets import list_sets

    found = list_sets(output)
    return Answer(found, feature_texts.sets(found))


@command("remove")
@click.argument("output", metavar="OUTPUT")
@click.argument("digest", metavar="DIGEST")
@click.option("--force", is_flag=True, help="Though runs use it; running them again extracts it again.")
def remove_features(output: str, digest: str, force: bool) -> Answer:
    """Delete a set of features that no run uses; its digest may be cut short."""
    from opacc_ray.cli import feature_texts
    from opacc_ray.runs.feature_sets import remove_set

    done = remove_set(output, digest, force=force)
    return Answer(done, feature_texts.removed(done))


features = click.Group("features", commands=[list_features, remove_features], help="Features that runs share.")

COMMANDS = [features]
