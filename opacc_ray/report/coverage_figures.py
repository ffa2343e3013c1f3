"""Box plots of what data sets cover: one figure per dimension, one row per model and data set, one ring per class."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from opacc_ray.audit.characterization_documents import ClassCoverage, ModelCoverage
from opacc_ray.svg import (
    WIDE,
    Scale,
    both_widths,
    decimals,
    dot,
    figure,
    line,
    name_at,
    path,
    shortened_to,
    text,
    ticks,
    whisker,
)


class Dimension(NamedTuple):
    """One of the measures."""

    key: str
    title: str
    meaning: str  # in plain words
    beside: str = ""  # what a difference from a reference means


DIMENSIONS = (
    Dimension(
        "ep",
        "Equivalence partitioning (EP)",
        "1 is an equal share of the examples; 0.5 half of one. Far from 1 the accuracy speaks mostly of some classes.",
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
        "Share of a class about which the model is not sure. Near 0: hardly a difficult example, and few failures "
        "can be met.",
        "Higher than in the reference: it is less sure than it was there.",
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
        "these sizes (the floor). Whether features have moved, the test by class says.",
    ),
)


class Row(NamedTuple):
    """A data set through the eyes of a model."""

    name: str
    values: list[float]  # of the classes, or pairs, that have one


def rows_of(models: Sequence[ModelCoverage], key: str) -> list[Row]:
    """The rows of a figure; those without a value are left out."""
    found = [
        Row(item.name if len(models) == 1 else f"{item.name}, {model.name}", list(_values(item.classes, key)))
        for model in models
        for item in model.sets
    ]
    return [row for row in found if row.values]


def box_plots(models: Sequence[ModelCoverage]) -> list[tuple[Dimension, str, Markup]]:
    """The figure of each dimension that has values, for wide pages and narrow ones, and what it tells."""
    found, has_reference = [], any(model.reference for model in models)
    for dimension in DIMENSIONS:
        rows = rows_of(models, dimension.key)
        if rows:
            both = both_widths(partial(_figure, dimension, rows))
            meaning = f"{dimension.meaning} {dimension.beside}" if has_reference else dimension.meaning
            found.append((dimension, meaning.rstrip(), both))
    return found


def _values(classes: Sequence[ClassCoverage], key: str) -> Iterator[float]:
    for item in classes:
        if key == "pbc":
            pairs = item.pbc
            if pairs is not None:
                yield from pairs.values()
                yield from [0.0] * (len(classes) - 1 - len(pairs))
        elif key == "shift":
            if item.shift is not None and item.shift_floor is not None:
                yield max(item.shift - item.shift_floor, 0.0)
        elif (value := getattr(item, key)) is not None:
            yield value


def _figure(dimension: Dimension, rows: Sequence[Row], width: float) -> Markup:
    is_wide = width == WIDE
    left, right = (200.0, width - 20.0) if is_wide else (14.0, width - 14.0)
    step, top = (34.0, 6.0) if is_wide else (46.0, 2.0)
    known = [value for row in rows for value in row.values]
    marks = ticks(0.0, max(*known, 0.02), 6 if is_wide else 4)
    x, bottom = Scale(marks[0], marks[-1], left, right), top + step * len(rows)
    parts = [line(x(mark), top, x(mark), bottom, "grid") for mark in marks]
    parts += [text(x(mark), bottom + 18, f"{mark:.{decimals(marks)}f}", "tick", "middle") for mark in marks]
    for place, row in enumerate(rows):
        y = top + step * place + (step / 2 if is_wide else step - 14)
        parts += _box(row.values, x, y)
        parts.append(text(0, y + 4 if is_wide else y - 15, shortened_to(row.name, 28), "name"))
    said = "; ".join(
        f"{row.name}: median {np.median(row.values):.3f}, from {min(row.values):.3f} to {max(row.values):.3f}"
        for row in rows
    )
    return figure(name_at(dimension.key, width), f"{dimension.title} by class", said, (width, bottom + 26), parts)


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
