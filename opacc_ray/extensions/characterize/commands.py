"""Commands that measure what data sets cover, and generate vectors: characterize, generate."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from opacc_ray.cli.command import RUN, Answer, command, on_run, out_option
from opacc_ray.errors import SpecError, counted

if TYPE_CHECKING:
    from opacc_ray.extensions.characterize.characterization import Characterization
    from opacc_ray.extensions.characterize.classes import Regions
    from opacc_ray.extensions.characterize.generation import Generation
    from opacc_ray.report.facts import Line
    from opacc_ray.runs.run import Run

SHARES = ("0-100", "30-70", "50-50", "70-30", "100-0")
"""Shares of the paper, in percent: near the centroid, near the boundary."""

radius_option = click.option(
    "--radius",
    type=float,
    default=0.5,
    show_default=True,
    help="What counts as near a centroid: share of the largest distance.",
)
boundary_option = click.option(
    "--boundary",
    default="0-0.7",
    show_default=True,
    metavar="LOW-HIGH",
    help="What counts as near a boundary: confidence.",
)


def seed_option(text: str) -> Callable[[Any], Any]:
    """Return the option of the seed."""
    return click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help=text)


@command("characterize")
@click.argument("uris", metavar="RUN|FILE|FOLDER...", nargs=-1, required=True, type=RUN)
@click.option(
    "--reference",
    "references",
    metavar="URI",
    multiple=True,
    help="Run, or labelled case (.npz, .parquet, .csv), to compare with; one for each, or one for all FILEs.",
)
@click.option("--by", type=click.Choice(["label", "prediction"]), help="FILE: what groups examples by class.")
@radius_option
@boundary_option
@click.option("--no-shift", is_flag=True, help="Skip the covariate shift, which takes seconds per class.")
@seed_option("Seed of the covariate shift.")
@out_option(help="Folder of the files (default: next to the estimate of the first RUN).")
def characterize(
    uris: tuple[str, ...],
    radius: float,
    boundary: str,
    no_shift: bool,
    out: str | None,
    **given: Any,
) -> Answer:
    """Measure how a pool or a data set covers classes and boundaries.

    Several RUNs compare several models, and several FILEs (.npz, .parquet, .csv) several sets of one model; a FOLDER
    holds FILEs. All are on one page.
    """
    from opacc_ray.extensions.characterize.characterization import characterize_sets
    from opacc_ray.extensions.characterize.coverage_page import write_characterization
    from opacc_ray.report.facts import Fact
    from opacc_ray.runs.run import Run

    regions = _regions(radius, boundary)
    sets = [one for uri in uris for one in _sets_of(uri)]
    document = characterize_sets(sets, **given, regions=regions, shift=not no_shift)
    written = write_characterization(document, sets[0] if isinstance(sets[0], Run) else None, out)
    return Answer(document, [*coverage_text(document), *(Fact("wrote", uri) for uri in written)])


def _sets_of(uri: str) -> "list[Run | str]":
    """Return the run of a URI, the file that it names, or the files of a folder."""
    from opacc_ray.extensions.case_files import READERS, suffix_of
    from opacc_ray.lake.store_uris import open_store
    from opacc_ray.runs.run import HEADER, Run

    if suffix_of(uri) in READERS:
        return [uri]
    store = open_store(uri)
    files = [] if store.exists(HEADER) else [entry.key for entry in store.list() if suffix_of(entry.key) in READERS]
    return [store.uri_of(key) for key in files] or [Run.open(uri)]


def _regions(radius: float, boundary: str) -> "Regions":
    from opacc_ray.extensions.characterize.classes import Regions

    return Regions(radius, *pair_of(boundary, "--boundary", "0-0.7"))


def pair_of(text: str, option: str, example: str) -> tuple[float, float]:
    """Return the two numbers of an option, such as 30-70; raise SpecError for other text."""
    try:
        first, second = (float(part) for part in text.split("-"))
    except ValueError:
        raise SpecError(f"{option} {text}: write two numbers, such as {example}") from None
    return first, second


def coverage_text(document: "Characterization") -> "list[Line]":
    """Describe what stands out, and the measures of each class."""
    from opacc_ray.extensions.characterize.coverage_page import class_table, neuron_coverage, remarks_on
    from opacc_ray.report.facts import Fact, facts

    lines: list[Line] = []
    for model in document.models:
        for item in model.sets:
            lines.append(f"{model.name}, {item.name}: {counted(item.examples, 'example')}, by {item.grouped_by}")
            lines += facts(("coverage", neuron_coverage(model, item)), *(("remark", text) for text in item.remarks))
            lines += [class_table(item)] if item is model.sets[0] else []
        lines += [Fact("notice", text, "warning") for text in remarks_on(model)]
    return lines


@command("generate")
@on_run
@click.option(
    "--shares",
    multiple=True,
    metavar="C-B",
    help="Percent near centroids and near boundaries; repeatable (default: five).",
)
@click.option(
    "--count", "counts", type=int, multiple=True, metavar="N", help="Vectors of a set; repeatable (default: 300)."
)
@click.option("--reference", metavar="URI", help="Labelled case (.npz, …) or run to start from (default: the pool).")
@click.option(
    "--layer", metavar="NAME", help="Layer of the model that vectors replace (default: the hidden layer of the run)."
)
@radius_option
@boundary_option
@click.option("--pictures", is_flag=True, help="Decode some vectors to pictures; the pool must hold images.")
@seed_option("Seed of the draw.")
@out_option(help="Folder of the files (default: generated/ in the run).")
def generate(run: "Run", shares: tuple[str, ...], counts: tuple[int, ...], **options: Any) -> Answer:
    """Generate feature vectors and test the model's remaining layers on them."""
    from opacc_ray.extensions.characterize.generation import Wanted, generate_for

    wanted = [Wanted(_centroid_share(text), num) for text in shares or SHARES for num in counts or (300,)]
    regions = _regions(options.pop("radius"), options.pop("boundary"))
    document = generate_for(run, wanted, regions=regions, **options)
    return Answer(document, _generated(document))


def _centroid_share(text: str) -> float:
    centroid, boundary = pair_of(text, "--shares", "30-70")
    if min(centroid, boundary) < 0 or centroid + boundary != 100:
        raise SpecError(f"--shares {text}: give percentages that sum to 100, such as 30-70")
    return centroid / 100


def _generated(document: "Generation") -> "list[Line]":
    from opacc_ray.report.facts import Column, Table, facts, percent

    columns = [Column("centroid-boundary"), *(Column(name, "n") for name in ("vectors", "accuracy", "violations"))]
    rows = [(item.shares, str(item.count), percent(item.accuracy), percent(item.violations)) for item in document.sets]
    pictures = document.pictures
    decoder = pictures and (
        f"error {pictures.error:.3f} (mean image {pictures.baseline:.3f}) of {pictures.images} images; "
        f"decoded vectors are {pictures.distance:.3f} from the nearest real image"
    )
    judge = document.head if document.layer is None else f"{document.head} after {document.layer}"
    return [
        *facts(
            ("judge", f"{judge}, which agrees with the model on {percent(document.agreement, 2)} of the examples"),
            ("sources", f"{document.sources} examples of {document.source}, by {document.labels}"),
        ),
        Table(columns, rows),
        *facts(*(("remark", text) for text in document.remarks)),
        *facts(
            ("decoder", decoder),
            ("pictures", pictures and pictures.file),
            *(("wrote", item.file) for item in document.sets),
        ),
    ]
