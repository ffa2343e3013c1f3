"""Commands that send runs to a cluster's job server: submit."""

import logging

import click

from opacc_ray.audit.progress import log_is_json
from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.terminal import say

log = logging.getLogger(__name__)


@command("submit")
@click.argument("spec", metavar="SPEC.yaml")
@click.option("--address", metavar="URL", help="The cluster's dashboard, http://HEAD:8265; default: RAY_ADDRESS.")
@click.option("--wait/--detach", default=True, show_default=True, help="Follow the job to its end, or leave it alone.")
@click.option(
    "--env",
    "environment",
    metavar="NAME",
    multiple=True,
    help="Give the job this variable of yours; repeat. Ray keeps its value with the job, for all who may ask for it.",
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
    sent, failure = submission.submit(load_spec(spec), order, _relay)
    return Answer(sent, texts.submission(sent), failure)


def _relay(text: str) -> None:
    """Hand on what a job has printed; among JSON lines, those that are none become some."""
    for line in text.splitlines():
        if log_is_json() and not line.startswith("{"):
            log.info("%s", line)
        else:
            say(line)


COMMANDS = [submit]
