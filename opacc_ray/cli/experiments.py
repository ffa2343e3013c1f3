"""Commands that try methods out: study, demo."""

from pathlib import Path
from typing import Any

import click

from opacc_ray.audit.progress import Progress
from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import LEVEL


@command("study")
@click.argument("cases", metavar="CASE|SPEC.yaml...", nargs=-1, required=True)
@click.option("--method", "methods", multiple=True, help="Such as ces or neyman:rounds=4; repeat for more.")
@click.option("--budget", "budgets", type=int, metavar="N", multiple=True, help="Number of labels; repeat for more.")
@click.option("--repetitions", type=int, metavar="R", help="Default: 1000.")
@click.option("--seed", type=int, help="Default: 0.")
@click.option("--level", type=LEVEL, help="Confidence level of the intervals; default: 0.95.")
@click.option("--error-scale", type=float, help="Regression: score = 1 - (error / scale)².")
@click.option("--shuffle", metavar="FEATURE", multiple=True, help="Put it in random order, as a control.")
@click.option("--workers", type=int, metavar="N", help="Tasks at a time; default: all CPUs of the cluster.")
@click.option("--output", metavar="FOLDER", help="Folder or prefix of the results; default: study.")
def study(cases: tuple[str, ...], **options: Any) -> Answer:
    """Compare methods on data whose outcomes are all known.

    A CASE is a .npz, .csv or .parquet file, or a folder of them.
    """
    from opacc_ray.study.command import study as run_study

    given = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    with Progress("study", "blocks") as progress:
        return Answer(*run_study(cases, given, progress))


@command("demo")
@click.option("--folder", type=click.Path(path_type=Path), help="Where to keep it; default: a new temporary folder.")
@click.option("--s3", is_flag=True, help="Use a local S3 server, from the extra `demo`.")
def demo(folder: Path | None, s3: bool) -> Answer:
    """Run a whole audit on embedded data, in less than a minute."""
    from opacc_ray.demo.audit import run_demo

    return Answer(*run_demo(folder, s3=s3))


COMMANDS = [study, demo]
