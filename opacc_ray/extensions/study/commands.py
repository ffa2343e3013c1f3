"""Commands that compare methods: study, drift."""

from typing import Any

import click

from opacc_ray.audit.progress import Progress
from opacc_ray.cli.command import LEVEL, Answer, command


@command("study")
@click.argument("cases", metavar="CASE|SPEC.yaml...", nargs=-1, required=True)
@click.option("--as", "paper", metavar="PAPER", help="Experiments of a paper: see docs/papers.md.")
@click.option("--method", "methods", multiple=True, help="Method, such as ces or neyman:rounds=4; repeatable.")
@click.option("--budget", "budgets", type=int, metavar="N", multiple=True, help="Number of labels; repeatable.")
@click.option("--metric", metavar="METRIC", help="What is estimated, such as macro_f1 or f1@CLASS (default: accuracy).")
@click.option("--by", metavar="COLUMN", help="The metric in each slice of this column of the cases.")
@click.option("--repetitions", type=int, metavar="R", help="Repetitions (default: 1000).")
@click.option("--seed", type=int, help="Seed (default: 0).")
@click.option("--level", type=LEVEL, help="Confidence level of the intervals (default: 0.95).")
@click.option("--error-scale", type=float, help="Scale of a regression: score = 1 - (error / scale)².")
@click.option(
    "--model", "models", metavar="SPEC.yaml", multiple=True, help="Spec of an audit: CASEs are .npz with x and label."
)
@click.option("--workers", type=int, metavar="N", help="Tasks at a time (default: all CPUs of the cluster).")
@click.option("--output", metavar="FOLDER", help="Folder or prefix of the results (default: study).")
def study(cases: tuple[str, ...], **options: Any) -> Answer:
    """Compare methods on cases with known outcomes.

    A CASE is a .npz, .csv or .parquet file, or a folder of them.
    """
    from opacc_ray.extensions.study.experiment import study as run_study

    given = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    with Progress("study", "blocks") as progress:
        document, text = run_study(cases, given, progress)
    return Answer(document, [text])


@command("drift")
@click.argument("source", metavar="FOLDER|FILE.npz")
@click.option("--kind", required=True, metavar="KIND", help="Drift, such as blur or label_shift; see docs/papers.md.")
@click.option("--strength", type=float, default=0.5, show_default=True, help="From 0, no drift, to 1.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed.")
@click.option("--out", required=True, metavar="FOLDER|FILE.npz", help="Place of the drifted copy.")
def drift(source: str, kind: str, strength: float, seed: int, out: str) -> Answer:
    """Write a drifted copy of images or labelled arrays, such as darker ones."""
    from opacc_ray.extensions.study.drift import drift as write_drifted

    found = write_drifted(source, out, kind, strength, seed)
    return Answer(found, [f"{found.examples:,} examples with {kind} of strength {strength:g} in {out}"])
