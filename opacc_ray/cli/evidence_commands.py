"""Commands for evidence: seal a promise, sign a run, pack it for others."""

from typing import TYPE_CHECKING

import click

from opacc_ray.cli import command as cli

if TYPE_CHECKING:
    from opacc_ray.audit.evidence_documents import SealState
    from opacc_ray.report.facts import Line
    from opacc_ray.runs.run import Run


@cli.command("seal")
@cli.on_run
@cli.track_option
@click.option("--metric", "metrics", multiple=True, metavar="METRIC", help="Number to state besides the accuracy.")
@click.option("--by", multiple=True, metavar="SLICES", help="Slices to state it by.")
@cli.level_option
@click.option("--until", type=cli.HALF_WIDTH, metavar="±W", help="Goal of opacc next at which sampling will stop.")
@click.option("--as", "name", metavar="NAME", help="Who promises it.")
def seal(
    run: "Run", metrics: tuple[str, ...], by: tuple[str, ...], level: float, until: float | None, name: str | None
) -> cli.Answer:
    """Write down what will be stated, before the first label."""
    from opacc_ray.audit.evidence import seal as seal_run

    found = seal_run(run, metrics=metrics, by=by, level=level, half_width=until, promised_by=name)
    return cli.Answer(found, seal_text(found))


def seal_text(found: "SealState") -> "list[Line]":
    """Describe a seal, and how the newest estimate deviates from it."""
    from opacc_ray.report.facts import facts, warned

    own = found.seal
    goal = None if own.half_width is None else f"±{own.half_width:g}"
    lines = facts(
        ("sealed", f"{', '.join(own.metrics)} at level {own.level:g}"), ("by", ", ".join(own.by)), ("until", goal)
    )
    return [*lines, *warned(found.deviations, "deviates")]


@cli.command("sign")
@cli.on_run
@click.option("--as", "name", metavar="NAME", required=True, help="Who signs.")
@click.option("--role", metavar="ROLE", required=True, help="In which role, such as auditor.")
@click.option("--key", metavar="KEY.pem", required=True, help="Private ed25519 key.")
def sign(run: "Run", name: str, role: str, key: str) -> cli.Answer:
    """Sign a run as it is: its log, labels, estimates, features and report."""
    from opacc_ray.audit.evidence import sign as sign_run
    from opacc_ray.report.facts import facts

    made = sign_run(run, name, role, key)
    what = f"{made.entries} entries of the log, head {made.head}"
    return cli.Answer(made, facts(("signed", what), ("by", f"{name} ({role}), key {made.key}"), ("wrote", made.file)))


@cli.command("pack")
@cli.on_run
@click.option("--to", metavar="FILE.zip", default="evidence.zip", show_default=True, help="Archive to write.")
def pack(run: "Run", to: str) -> cli.Answer:
    """Write one archive with which others recompute the numbers, without opacc."""
    from opacc_ray.audit.evidence_pack import pack as pack_run
    from opacc_ray.report.facts import facts

    made = pack_run(run, to)
    lines = facts(("wrote", made.file), ("files", made.files), ("signatures", made.signatures), ("sha256", made.sha256))
    return cli.Answer(made, lines)


evidence = cli.Group(
    "evidence",
    {"Commands": [seal, sign, pack]},
    help="Seal what will be stated, sign a run, and pack it for others; opacc verify RUN --key checks signatures.",
)
