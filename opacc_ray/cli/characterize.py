"""Commands that say what data sets cover: characterize."""

from typing import TYPE_CHECKING

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import track_option
from opacc_ray.errors import SpecError

if TYPE_CHECKING:
    from opacc_ray.report.documents import WrittenCharacterization


@command("characterize")
@click.argument("uris", metavar="RUN...", nargs=-1, required=True)
@track_option
@click.option(
    "--reference",
    "references",
    metavar="URI",
    multiple=True,
    help="A run, or a labelled case (.npz, .parquet, .csv), to compare with; one for each RUN.",
)
@click.option("--radius", type=float, default=0.5, show_default=True, help="Near the centroid: share of the reach.")
@click.option("--boundary", default="0-0.7", show_default=True, metavar="LOW-HIGH", help="Near a boundary: confidence.")
@click.option("--no-shift", is_flag=True, help="Do not measure the covariate shift, which takes seconds per class.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the mixtures of the shift.")
@click.option("--out", metavar="FOLDER", help="Where to write it; default: beside the estimate of the first RUN.")
def characterize(
    uris: tuple[str, ...],
    track: str | None,
    references: tuple[str, ...],
    radius: float,
    boundary: str,
    no_shift: bool,
    seed: int,
    out: str | None,
) -> Answer:
    """Say how the pool, the selection and a reference cover classes, their centres and boundaries.

    Several RUNs are several models, side by side.
    """
    from opacc_ray.audit.run import Run
    from opacc_ray.characterize.covariate_shift import Mixtures
    from opacc_ray.characterize.metrics import Regions
    from opacc_ray.report.characterized import characterize, write_characterization

    low, high = pair_of(boundary, "--boundary", "0-0.7")
    runs = [Run.open(uri, track) for uri in uris]
    found = characterize(
        runs,
        references,
        regions=Regions(radius, low, high),
        mixtures=None if no_shift else Mixtures(seed=seed),
        seed=seed,
    )
    written = write_characterization(found, runs[0], out)
    return Answer(written, as_text(written))


def pair_of(text: str, option: str, example: str) -> tuple[float, float]:
    """Two numbers of an option, such as 30-70; raises SpecError if it is written otherwise."""
    try:
        first, second = (float(part) for part in text.split("-"))
    except ValueError:
        raise SpecError(f"{option} {text}: write two numbers, such as {example}") from None
    return first, second


def as_text(written: "WrittenCharacterization") -> str:
    """What stands out, a line per class of the pools, and where the files are."""
    from opacc_ray.report.coverage import worries

    lines = []
    for model in written.characterization.models:
        for item in model.sets:
            lines.append(f"{model.name}, {item.name}: {item.examples} examples, by {item.grouped_by}")
            lines += [f"  remark   {text}" for text in item.remarks]
            for own in item.classes if item.name == "pool" else ():
                values = [
                    ("EP", own.ep),
                    ("CP", own.cp),
                    ("BC", own.bc),
                    ("shift", own.shift),
                    ("floor", own.shift_floor),
                ]
                said = "  ".join(f"{name} {value:.3f}" for name, value in values if value is not None)
                lines.append(f"  {own.name:20} {own.examples:8}  {said}")
        lines += [f"  notice   {text}" for text in worries(model)]
    return "\n".join([*lines, *(f"wrote      {uri}" for uri in written.files)])


COMMANDS = [characterize]
