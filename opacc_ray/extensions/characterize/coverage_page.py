"""What data sets cover: the page of a characterisation, its section of a report, and box plots.

A box plot has one row per model and data set, and one ring per class.

The section shows the last characterisation of the run.
"""

from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from opacc_ray.errors import counted
from opacc_ray.extensions.characterize.characterization import (
    DOCUMENT,
    Characterization,
    ClassCoverage,
    ModelCoverage,
    SetCoverage,
)
from opacc_ray.lake.store import write_files
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report.facts import Column, Table, percent
from opacc_ray.report.figures import row_chart
from opacc_ray.report.page import style, template
from opacc_ray.runs.run import Run
from opacc_ray.svg import WIDE, Scale, both_widths, decimals, dot, line, path, shortened_to, ticks, whisker

OF_SETS = "characterized"
"""Folder in the current one for the characterisation of sets without a run."""

PAGE = "characterization.html"

TEMPLATES = files("opacc_ray.extensions.characterize") / "templates"

MOST_PAIRS, MOST_ROWS = 15, 30
"""Pairs of classes, and classes, in the tables."""

FEW, MANY = 0.5, 2.0
"""EP of a class below or above which it is named."""

DIFFERS = 0.1
"""How far CP or BC differ from the reference, at least, where they are named."""

LEVEL = 0.05
"""Probability of naming a class by chance, over all classes: of CP and BC together, and of moved features."""


def write_characterization(document: Characterization, run: Run | None = None, out: str | None = None) -> list[str]:
    """Write the document and the page to the folder ``out``, and return their URIs.

    By default they go next to the estimate of ``run``, or to characterized/ in the current folder without a run.
    """
    folder = open_store(out or OF_SETS) if run is None or out is not None else run.results()
    return write_files(folder, {DOCUMENT: document.to_bytes(), PAGE: page(document).encode()})


def page(document: Characterization) -> str:
    """Return the HTML of a characterisation: one file that needs no network and runs no script."""
    return template("characterization.html", TEMPLATES).render(
        document=document, style=style(), section=section(document)
    )


def section(document: Characterization) -> Markup:
    """Return the part of a page that holds figures and tables."""
    sets = [(model, item) for model in document.models for item in model.sets]
    return Markup(
        template("coverage.html", TEMPLATES).render(
            document=document,
            plots=box_plots(document.models),
            worries=[(model, remarks_on(model)) for model in document.models],
            sets=[
                (model, item, class_table(item, MOST_ROWS), _pairs(item), neuron_coverage(model, item))
                for model, item in sets
            ],
            several=len(document.models) > 1,
            most_rows=MOST_ROWS,
            definition=_definition(document),
        )
    )


def remarks_on(model: ModelCoverage) -> list[str]:
    """Return what stands out in a pool, in sentences."""
    measured = model.sets[0]
    reference = next((item for item in model.sets if item.name == "reference"), None)
    rare = [f"{item.name} ({item.ep:.2f})" for item in measured.classes if item.ep < FEW]
    often = [f"{item.name} ({item.ep:.2f})" for item in measured.classes if item.ep > MANY]
    sure = [item.name for item in measured.classes if item.bc == 0 and item.examples]
    moved = [(item.name, item.moved) for item in measured.classes if item.moved and item.moved.p <= LEVEL]
    moved.sort(key=lambda pair: -pair[1].sd)
    named = [f"{name} ({one.sd:.2f} sd, p {one.p:.3f})" for name, one in moved]
    found = [
        (f"Classes with less than half an equal share of the {measured.name}, by EP", rare),
        ("Classes with more than twice an equal share, by EP", often),
        ("Classes without an example near a boundary (BC is 0), so no boundary of theirs is tested", sure),
        *(_differing(measured, reference) if reference else []),
        ("Classes whose features moved from the reference, more than by chance", named),
    ]
    listed = [(text, ", ".join(names[:8]), len(names) - 8) for text, names in found if names]
    return [f"{text}: {names}{f' and {more} more' if more > 0 else ''}." for text, names, more in listed]


def neuron_coverage(model: ModelCoverage, item: SetCoverage) -> str | None:
    """Return the neuron coverage of a data set in words, compared with the first one; None if it has none."""
    pool = model.sets[0].requirements
    if item.requirements is None or not pool:
        return None
    name = f"neuron coverage {model.criterion}" if model.criterion else "neuron coverage"
    if item is model.sets[0]:
        return f"{name}: {counted(item.requirements, 'requirement')} met"
    share = f"{percent(item.requirements / pool)} of those that the {model.sets[0].name} meets"
    return f"{name}: {counted(item.requirements, 'requirement')} met, {share}"


def class_table(item: SetCoverage, most: int | None = None) -> Table:
    """Return the measures of the first classes of a data set; measures without any value have no column."""
    measures = ("ep", "cp", "bc", "shift", "moved")
    keys = [key for key in measures if any(getattr(own, key) is not None for own in item.classes)]
    names = ("examples", *(key.upper() if len(key) == 2 else key for key in keys))
    rows = [
        (shortened_to(own.name, 40), str(own.examples), *(_cell(own, key) for key in keys))
        for own in item.classes[:most]
    ]
    return Table((Column("class"), *(Column(name, "n") for name in names)), rows)


def _differing(measured: SetCoverage, reference: SetCoverage) -> list[tuple[str, list[str]]]:
    """Return classes whose CP or BC differs from the reference by more than DIFFERS, and more than by chance."""
    found, both = [], list(zip(measured.classes, reference.classes, strict=True))
    for key, place in (("cp", "their centroid (CP)"), ("bc", "a boundary (BC)")):
        pairs = [(getattr(own, key), getattr(other, key), own, other) for own, other in both]
        known = [pair for pair in pairs if None not in pair[:2]]
        far = [
            f"{own.name} ({a:.2f}, not {b:.2f})"
            for a, b, own, other in known
            if abs(a - b) > DIFFERS and _by_chance(a, own.examples, b, other.examples) <= LEVEL / (2 * len(known))
        ]
        found.append((f"Classes with another share near {place} than in the reference", far))
    return found


def _by_chance(a: float, n: int, b: float, k: int) -> float:
    """P value of Fisher's exact test that shares ``a`` of n and ``b`` of k examples are of one population."""
    from scipy.stats import fisher_exact

    x, y = round(a * n), round(b * k)
    return float(fisher_exact([[x, n - x], [y, k - y]])[1])


def _cell(own: ClassCoverage, key: str) -> str:
    value = getattr(own, key)
    if value is None:
        return "–"
    if key == "moved":
        return f"{value.sd:.2f} sd (p {value.p:.3f})"
    return f"{value:.3f} (floor {own.shift_floor:.3f})" if key == "shift" else f"{value:.3f}"


def _pairs(item: SetCoverage) -> Table | None:
    """Return the largest PBC; None where it is not known."""
    pairs = [(own.name, other, share) for own in item.classes for other, share in (own.pbc or {}).items()]
    pairs.sort(key=lambda pair: -pair[2])
    columns = Column("class"), Column("other class"), Column("PBC", "n")
    rows = [(shortened_to(a, 40), shortened_to(b, 40), f"{share:.3f}") for a, b, share in pairs[:MOST_PAIRS]]
    return Table(columns, rows) if rows else None


def _definition(document: Characterization) -> str:
    low, high = document.boundary
    return (
        f"Near the centroid: within {document.radius:g} of the largest distance of the class. "
        f"Near a boundary: with a confidence in [{low:g}, {high:g}]. None of these is an accuracy."
    )


class Dimension(NamedTuple):
    """A measure of coverage."""

    key: str
    title: str
    meaning: str  # in plain English
    difference: str = ""  # what a difference from a reference means


DIMENSIONS = (
    Dimension(
        "ep",
        "Equivalence partitioning (EP)",
        "1 is an equal share of the examples; 0.5 half of one. Far from 1 the accuracy depends mostly on some classes.",
    ),
    Dimension(
        "cp",
        "Centroid positioning (CP)",
        "Share of a class near its centroid: of examples that look typical.",
        "Lower than in the reference: the examples look less typical than those the model was trained on.",
    ),
    Dimension(
        "bc",
        "Boundary conditioning (BC)",
        "Share of a class with low confidence. Near 0: hardly any difficult example, so few failures can be found.",
        "Higher than in the reference: the model is less confident here.",
    ),
    Dimension(
        "pbc",
        "Pairwise boundary conditioning (PBC)",
        "Share of a class near the boundary to one other class, for each pair. Pairs at 0 are not tested at all.",
    ),
    Dimension(
        "shift",
        "Covariate shift",
        "Jensen-Shannon divergence from the reference along five main directions, above what chance gives for sets of "
        "these sizes (the floor). The test by class tells whether features moved.",
    ),
)


def box_plots(models: Sequence[ModelCoverage]) -> list[tuple[Dimension, str, Markup]]:
    """Return the figure of each dimension that has values, for wide pages and narrow ones, and what it tells."""
    plots, has_reference = [], any(model.reference for model in models)
    for dimension in DIMENSIONS:
        values = [(model, item.name, _values(item.classes, dimension.key)) for model in models for item in model.sets]
        rows = [
            (name if len(models) == 1 else f"{name}, {model.name}", numbers)
            for model, name, numbers in values
            if numbers
        ]
        meaning = f"{dimension.meaning} {dimension.difference}" if has_reference else dimension.meaning
        if rows:
            plots.append((dimension, meaning.rstrip(), both_widths(partial(_figure, dimension, rows))))
    return plots


def _values(classes: Sequence[ClassCoverage], key: str) -> list[float]:
    """Return the values of all classes, or of all pairs; classes without one are left out."""
    if key == "pbc":
        pairs = [item.pbc for item in classes if item.pbc is not None]
        return [value for own in pairs for value in [*own.values(), *[0.0] * (len(classes) - 1 - len(own))]]
    if key == "shift":
        shifts = [(item.shift, item.shift_floor) for item in classes]
        return [max(shift - floor, 0.0) for shift, floor in shifts if shift is not None and floor is not None]
    return [getattr(item, key) for item in classes if getattr(item, key) is not None]


def _figure(dimension: Dimension, rows: Sequence[tuple[str, list[float]]], width: float) -> Markup:
    """Return the box plots of data sets, by name, with the values of their classes."""
    marks = ticks(0.0, max(0.02, *(max(values) for _, values in rows)), 6 if width == WIDE else 4)
    labels = [f"{mark:.{decimals(marks)}f}" for mark in marks]
    description = "; ".join(
        f"{name}: median {np.median(values):.3f}, from {min(values):.3f} to {max(values):.3f}" for name, values in rows
    )
    texts, names = (dimension.key, f"{dimension.title} by class", description), [(name, "") for name, _ in rows]
    return row_chart(texts, width, marks, labels, names, lambda place, x, y: _box(rows[place][1], x, y))


def _box(values: Sequence[float], x: Scale, y: float) -> list[Markup]:
    """From the least to the largest value, a box around the middle half, a line at the median, a ring for each."""
    low, first, middle, third, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    corners = [(x(first), y - 8), (x(third), y - 8), (x(third), y + 8), (x(first), y + 8)]
    rings = [dot(x(value), y, 2.5, "mark srs") for value in sorted(set(values))]
    return [
        whisker((x(low), y), (x(high), y), "bar srs", 5),
        *rings,
        path(corners, "bar own", closed=True),
        line(x(middle), y - 8, x(middle), y + 8, "bar own"),
    ]


TITLE = "What the pool covers"


def read(run: Run) -> Characterization | None:
    """Return the characterisation next to the estimate of a run; None if there is none."""
    store = run.results()
    if not store.exists(DOCUMENT):
        return None
    return Characterization.from_bytes(store.read(DOCUMENT), store.uri_of(DOCUMENT))


def html(document: dict[str, Any]) -> Markup:
    """Return figures and tables of a characterisation, given as JSON."""
    return section(Characterization.from_dict(document, "the section characterization of the report"))
