"""Commands for evidence: seal a promise, sign a run, pack it for others; verify a run or a pack."""

from typing import TYPE_CHECKING

import click

from opacc_ray.cli import command as cli
from opacc_ray.errors import DataError, counted

if TYPE_CHECKING:
    from opacc_ray.extensions.evidence.verify import PackVerification, Verified
    from opacc_ray.report.facts import Line
    from opacc_ray.runs.run import Run


@cli.command("seal")
@cli.on_run
@click.option("--metric", "metrics", multiple=True, metavar="METRIC", help="Number to state besides the accuracy.")
@click.option("--by", multiple=True, metavar="SLICES", help="Slices to state it by.")
@cli.level_option
@click.option("--until", type=cli.HALF_WIDTH, metavar="±W", help="Goal of opacc next at which sampling will stop.")
@click.option("--as", "name", metavar="NAME", help="Who promises it.")
def seal(
    run: "Run", metrics: tuple[str, ...], by: tuple[str, ...], level: float, until: float | None, name: str | None
) -> cli.Answer:
    """Write down what will be stated, before the first label."""
    from opacc_ray.extensions.evidence.evidence import seal as seal_run
    from opacc_ray.report.facts import facts

    made = seal_run(run, metrics=metrics, by=by, level=level, half_width=until, promised_by=name)
    goal = None if until is None else f"±{until:g}"
    what = f"{', '.join(made.seal.metrics)} at level {level:g}"
    return cli.Answer(made, facts(("sealed", what), ("by", ", ".join(by)), ("until", goal)))


@cli.command("sign")
@cli.on_run
@click.option("--as", "name", metavar="NAME", required=True, help="Who signs.")
@click.option("--role", metavar="ROLE", required=True, help="In which role, such as auditor.")
@click.option("--key", metavar="KEY.pem", required=True, help="Private ed25519 key.")
def sign(run: "Run", name: str, role: str, key: str) -> cli.Answer:
    """Sign a run as it is: its log, labels, estimates, features and report."""
    from opacc_ray.extensions.evidence.evidence import sign as sign_run
    from opacc_ray.report.facts import facts

    made = sign_run(run, name, role, key)
    what = f"{made.entries} entries of the log, head {made.head}"
    return cli.Answer(made, facts(("signed", what), ("by", f"{name} ({role}), key {made.key}"), ("wrote", made.file)))


@cli.command("pack")
@cli.on_run
@click.option("--to", metavar="FILE.zip", default="evidence.zip", show_default=True, help="Archive to write.")
@click.option(
    "--features/--no-features",
    default=None,
    help="Pack what the model answered for the pool, to recompute all numbers (default: up to 256 MiB).",
)
def pack(run: "Run", to: str, features: bool | None) -> cli.Answer:
    """Write one archive with which others check a run and recompute its numbers."""
    from opacc_ray.extensions.evidence.evidence import pack as pack_run
    from opacc_ray.report.facts import facts

    made = pack_run(run, to, features=features)
    left_out = (
        None if made.packed.features else "not packed, so others cannot recompute all numbers; --features packs them"
    )
    lines = facts(
        ("wrote", made.file),
        ("files", made.files),
        ("features", left_out),
        ("signatures", made.signatures),
        ("attempts", str(made.packed.attempts)),
        ("sha256", made.sha256),
    )
    return cli.Answer(made, lines)


@cli.command("verify")
@click.argument("uri", metavar="RUN|PACK.zip", type=cli.RUN)
@click.option("--key", "keys", multiple=True, metavar="PUB.pem", help="Check signatures by this public key.")
@click.option("--allow-later", is_flag=True, help="Accept a newest estimate, or a report, from after the signatures.")
@click.option(
    "--head", metavar="DIGEST", help="Also check that the log still has this entry: the head of `opacc status --log`."
)
def verify_command(uri: str, keys: tuple[str, ...], allow_later: bool, head: str | None) -> cli.Answer:
    """Check all files of a run, with its signatures; or an archive that others made, whose numbers are recomputed."""
    from opacc_ray.extensions.evidence.verify import verify as verify_run
    from opacc_ray.extensions.evidence.verify import verify_pack
    from opacc_ray.lake.store_uris import open_store, split
    from opacc_ray.report.answers import changed
    from opacc_ray.report.facts import facts

    folder, name = split(uri)
    found: Verified
    if name.endswith(".zip") or open_store(folder).exists(name):  # a run is a folder or a prefix
        found = pack = verify_pack(uri, keys, head=head, allow_later=allow_later)
        lines = pack_text(pack)
    else:
        found = run = verify_run(uri, keys, head=head, allow_later=allow_later)
        lines = [*facts(("run", run.run)), *_verified(run), *changed(run.objects)]
    faults = counted(len(found.faults), "fault")
    fault = None if found.sound else DataError(f"{uri}: {faults} found; see the fault lines above")
    return cli.Answer(found, lines, fault)


def _verified(found: "Verified") -> "list[Line]":
    """Describe what was checked, how far each signature goes, and what is wrong."""
    from opacc_ray.report.facts import Fact, facts, warned

    lines = list["Line"](facts(("checked", counted(found.checked, "file"))))
    for own in found.signatures:
        text = f"{own.by} ({own.role}), {own.at}: entries 1-{own.entries} of {found.entries}"
        if not own.checked:
            lines += facts(("not checked", f"signature in the name of {text}; give its public key by --key"))
            continue
        later = "; the newest estimate is NOT signed" if found.newest_estimate_signed is False else ""
        lines += facts(("signed by", f"{text}{later}"))
    faults = [fault.problem for fault in found.faults]
    allowed = [text for text in found.not_signed if not any(text in problem for problem in faults)]
    lines += [*warned(allowed, "allowed"), *(Fact("fault", problem, "error") for problem in faults)]
    return [*lines, *facts(("sound", "nothing is wrong") if found.sound else ("faults", len(faults)))]


def pack_text(found: "PackVerification") -> "list[Line]":
    """Describe an archive, who signed how much of it, its numbers, and what is wrong."""
    from opacc_ray.report.facts import facts, in_a_line, stated

    lines = facts(
        ("pack", found.file),
        ("sha256", found.sha256),
        ("made with", f"opacc_ray {found.made_with}; checked with {found.verified_with}"),
        ("run", found.run),
        ("weights", found.weights or "unknown"),
        ("code", found.code or "none: the pool holds the model's answers"),
        ("attempts", f"{found.attempts}, as the maker of the archive says"),
    )
    if own := found.estimate:
        number = in_a_line(stated(own, own.measure), own.level, counted(own.n, "label"))
        more = f"; {counted(own.earlier, 'earlier estimate')} not recomputed" if own.earlier else ""
        lines += facts((own.measure, f"{number} (entry {own.entry})"), ("recomputed", own.recomputed + more))
    return [*lines, *_verified(found)]


group = cli.Group(
    "evidence",
    {"Commands": [seal, sign, pack]},
    help="Seal what will be stated, sign a run, and pack it for others, who check it by opacc verify.",
)
