"""Commands that send runs to a cluster's job server: submit."""

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.terminal import say


@command("submit")
@click.argument("spec", metavar="SPEC.yaml")
@click.option("--address", metavar="URL", help="The cluster's dashboard, http://HEAD:8265; default: RAY_ADDRESS.")
@click.option("--wait/--detach", default=True, show_default=True, help="Follow the job to its end, or leave it alone.")
@click.option(
    "--env", "environment", metavar="NAME", multiple=True, help="Give the job this variable of yours; repeat."
)
@click.option("--module", "modules", metavar="NAME", multiple=True, help="Send this module, too; repeat for more.")
def submit(
    spec: str, address: str | None, wait: bool, environment: tuple[str, ...], modules: tuple[str, ...]
) -> Answer:
    """Run a spec as a job on a cluster; a job of it that runs or succeeded is found, one that failed sent again."""
    from opacc_ray.audit import submission
    from opacc_ray.cli import texts
    from opacc_ray.spec import load_spec

    order = submission.Order(environment, modules, address, wait)
    sent, failure = submission.submit(load_spec(spec), order, lambda text: say(text.rstrip("\n")))
    return Answer(sent, texts.submission(sent), failure)


COMMANDS = [submit]
