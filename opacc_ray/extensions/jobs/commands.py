"""The command that runs an audit on another machine: submit."""

import logging
from typing import Any

import click

from opacc_ray.cli.command import Answer, command, log_is_json, say
from opacc_ray.runs.run_names import remember

log = logging.getLogger(__name__)


@command("submit")
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
) -> Answer:
    """Submit a run as a Ray job and stream its logs; submitting it twice starts one job."""
    from opacc_ray.errors import counted
    from opacc_ray.extensions.jobs import submission
    from opacc_ray.report.facts import facts
    from opacc_ray.spec import load_spec

    options: dict[str, Any] = {"environment": environment, "modules": modules, "address": address, "wait": wait}
    sent, failure = submission.submit(load_spec(spec), _relay, **options)
    remember(sent.run)
    how = "was sent before" if sent.found else f"sent with {counted(len(sent.modules), 'file')} of code"
    ended = sent.ended or "not yet; the same command follows it, `ray job stop` stops it"
    waits_for = sent.waits_for if sent.ended else None
    lines = facts(("job", f"{sent.id} {how}"), ("run", sent.run), ("ended", ended), ("waits for", waits_for))
    return Answer(sent, lines, failure)


def _relay(text: str) -> None:
    """Print the output of a job; with JSON logs, lines of plain text become log lines."""
    for line in text.splitlines():
        if log_is_json() and not line.startswith("{"):
            log.info("%s", line)
        else:
            say(line)
