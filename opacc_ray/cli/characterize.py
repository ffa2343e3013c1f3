"""Commands that say what data sets cover, and make what they lack: characterize, generate."""

from typing import TYPE_CHECKING

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import run_argument, track_option
from opacc_ray.errors import SpecError

if TYPE_CHECKING:
    from opacc_ray.audit.characterization_documents import Generation
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
@click.option(
    "--test",
    "tests",
    metavar="URI",
    multiple=True,
    help="Labelled case to measure by its labels instead of the pool, by the clusters of the reference's labels.",
)
@click.option("--radius", type=float, default=0.5, show_default=True, help="Near the centroid: share of the reach.")
@click.option("--boundary", default="0-0.7", show_default=True, metavar="LOW-HIGH", help="Near a boundary: confidence.")
@click.option("--no-shift", is_flag=True, help="Do not measure the covariate shift, which takes seconds per class.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the mixtures and the test of the shift."
)
@click.option("--out", metavar="FOLDER", help="Where to write it; default: beside the estimate of the first RUN.")
def characterize(
    uris: tuple[str, ...],
    track: str | None,
    references: tuple[str, ...],
    tests: tuple[str, ...],
    radius: float,
    boundary: str,
    no_shift: bool,
    seed: int,
    out: str | None,
) -> Answer:
    """Say how the pool, the selection and a reference cover classes, their centres and boundaries.

    Several RUNs are several models, side by side.
    """
    from opacc_ray.characterize.covariate_shift import Mixtures
    from opacc_ray.characterize.metrics import Regions
    from opacc_ray.report.characterized import characterize, write_characterization
    from opacc_ray.runs.run import Run

    low, high = pair_of(boundary, "--boundary", "0-0.7")
    runs = [Run.open(uri, track) for uri in uris]
    found = characterize(
        runs,
        references,
        tests=tests,
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
    """What stands out, a line per class of the pools or test sets, and where the files are."""
    from opacc_ray.report.coverage import worries

    lines = []
    for model in written.characterization.models:
        for item in model.sets:
            lines.append(f"{model.name}, {item.name}: {item.examples} examples, by {item.grouped_by}")
            lines += [f"  remark   {text}" for text in item.remarks]
            for own in item.classes if item is model.sets[0] else ():
                values = [
                    ("EP", own.ep),
                    ("CP", own.cp),
                    ("BC", own.bc),
                    ("shift", own.shift),
                    ("floor", own.shift_floor),
                    ("moved by sd", own.moved and own.moved.sd),
                    ("p", own.moved and own.moved.p),
                ]
                said = "  ".join(f"{name} {value:.3f}" for name, value in values if value is not None)
                lines.append(f"  {own.name:20} {own.examples:8}  {said}")
        lines += [f"  notice   {text}" for text in worries(model)]
    return "\n".join([*lines, *(f"wrote      {uri}" for uri in written.files)])


@command("generate")
@run_argument
@track_option
@click.option(
    "--shares", multiple=True, metavar="C-B", help="Percent near centroids and near boundaries; repeat. [default: five]"
)
@click.option(
    "--count", "counts", type=int, multiple=True, metavar="N", help="Vectors of a set; repeat. [default: 300]"
)
@click.option("--reference", metavar="URI", help="Labelled case (.npz, …) or run to start from; default: the pool.")
@click.option("--radius", type=float, default=0.5, show_default=True, help="Near the centroid: share of the reach.")
@click.option("--boundary", default="0-0.7", show_default=True, metavar="LOW-HIGH", help="Near a boundary: confidence.")
@click.option("--pictures", is_flag=True, help="Decode some vectors to a contact sheet; the pool must hold images.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draw, and of the decoder.")
@click.option("--out", metavar="FOLDER", help="Where to write them; default: generated/ in the prefix of the run.")
def generate(
    uri: str,
    track: str | None,
    shares: tuple[str, ...],
    counts: tuple[int, ...],
    reference: str | None,
    radius: float,
    boundary: str,
    pictures: bool,
    seed: int,
    out: str | None,
) -> Answer:
    """Make feature vectors near centroids and boundaries, and say how the model's classifier head does on them."""
    from opacc_ray.characterize.metrics import Regions
    from opacc_ray.report.generated import Wanted, generate_for, with_pictures
    from opacc_ray.runs.run import Run

    low, high = pair_of(boundary, "--boundary", "0-0.7")
    wanted = [Wanted(_centroid_share(text), num) for text in shares or SHARES for num in counts or (300,)]
    regions = Regions(radius, low, high)
    run = Run.open(uri, track)
    made = generate_for(run, wanted, reference, regions=regions, seed=seed, out=out)
    document = made.document
    if pictures:
        from opacc_ray.audit.characterization import class_names
        from opacc_ray.report.contact_sheet import draw_pictures

        document = with_pictures(made, draw_pictures(run, made, class_names(run), seed))
    return Answer(document, _generated(document))


SHARES = ("0-100", "30-70", "50-50", "70-30", "100-0")
"""Shares of the paper: percent near the centroid, and near the boundary."""


def _centroid_share(text: str) -> float:
    centroid, boundary = pair_of(text, "--shares", "30-70")
    if min(centroid, boundary) < 0 or centroid + boundary != 100:
        raise SpecError(f"--shares {text}: give percents that sum to 100, such as 30-70")
    return centroid / 100


def _generated(document: "Generation") -> str:
    agrees = f"{100 * document.agreement:.2f}% of the pool predicted as by the model"
    lines = [
        f"head       {document.head}, {agrees}",
        f"sources    {document.sources} examples of {document.source}, by {document.labels}",
        "shares (centroid-boundary)   vectors   accuracy   violations",
    ]
    for item in document.sets:
        lines.append(f"{item.shares:>26} {item.count:9} {item.accuracy:10.3f} {item.violations:12.3f}")
    lines += [f"remark     {text}" for text in document.remarks]
    if document.pictures:
        found = document.pictures
        lines.append(
            f"decoder    error {found.error:.3f} (mean image {found.baseline:.3f}) after {found.epochs} epochs on "
            f"{found.images} images; decoded vectors are {found.distance:.3f} from the nearest real image"
        )
        lines.append(f"pictures   {found.file}")
    return "\n".join([*lines, *(f"wrote      {item.file}" for item in document.sets)])


COMMANDS = [characterize, generate]
