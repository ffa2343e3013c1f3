"""What data sets cover, for people: the page and the Markdown of a characterisation, and its section of a report."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from opacc_ray.audit.characterization_documents import Characterization, ClassCoverage, ModelCoverage, SetCoverage
from opacc_ray.report.coverage_figures import DIMENSIONS, box_plots, rows_of
from opacc_ray.report.markdown import escaped, table
from opacc_ray.report.rendering import style, template

MATRIX_CLASSES, MOST_PAIRS, MOST_ROWS = 12, 15, 30
"""Classes up to which pairs are a heat map, pairs that are listed of more, and classes of the table."""

FEW, MANY = 0.5, 2.0
"""EP of a class below or above which it is named."""

DIFFERS = 0.1
"""How far CP or BC differ from the reference, at least, where they are named."""

LEVEL = 0.05
"""Probability of naming a class by chance, over all classes: of CP and BC together, and of moved features."""


def page(document: Characterization) -> str:
    """Return the HTML of a characterisation: one file that needs no network and runs no script."""
    return template("characterization.html").render(document=document, style=style(), section=section(document))


def section(document: Characterization) -> Markup:
    """Return the part of a page that holds figures and tables."""
    return Markup(
        template("coverage.html").render(
            document=document,
            plots=box_plots(document.models),
            worries=[(model, worries(model)) for model in document.models],
            tables=[(model, item, _heat_map(item)) for model in document.models for item in model.sets],
            several=len(document.models) > 1,
            most_rows=MOST_ROWS,
            columns=_columns,
            cell=_cell,
            definition=_definition(document),
        )
    )


def worries(model: ModelCoverage) -> list[str]:
    """What stands out in a pool, in plain words; nothing does if the list is empty."""
    measured = model.sets[0]
    reference = next((item for item in model.sets if item.name == "reference"), None)
    said = []
    rare = [f"{item.name} ({item.ep:.2f})" for item in measured.classes if item.ep < FEW]
    often = [f"{item.name} ({item.ep:.2f})" for item in measured.classes if item.ep > MANY]
    if rare:
        said.append(f"Classes with less than half an equal share of the {measured.name}, by EP: {_some(rare)}.")
    if often:
        said.append(f"Classes with more than twice an equal share, by EP: {_some(often)}.")
    sure = [item.name for item in measured.classes if item.bc == 0 and item.examples]
    if sure:
        said.append(f"Classes without an example near a boundary (BC is 0), so none is tested: {_some(sure)}.")
    if reference:
        said += _differing(measured, reference)
    moved = [(item.name, item.moved) for item in measured.classes if item.moved and item.moved.p <= LEVEL]
    if moved:
        moved.sort(key=lambda pair: -pair[1].sd)
        named = [f"{name} ({one.sd:.2f} sd, p {one.p:.3f})" for name, one in moved]
        said.append(f"Features have moved from the reference, more than by chance: {_some(named)}.")
    return said


def summary(document: Characterization) -> str:
    """Return the Markdown; every text of others is escaped."""
    lines = ["# What the data sets cover", "", *_medians(document.models)]
    for model in document.models:
        lines += ["", f"## {escaped(model.name)}", "", *(f"- {escaped(text)}" for text in worries(model))]
        for item in model.sets:
            lines += ["", f"### {item.name}: {item.examples} examples, by {item.grouped_by}", ""]
            lines += _class_table(item)
            lines += [f"\n{escaped(remark)}." for remark in item.remarks]
    lines += ["", _definition(document), ""]
    return "\n".join(lines)


def _class_table(item: SetCoverage) -> list[str]:
    columns = _columns(item)
    rows: list[Sequence[str]] = [
        ("class", "examples", *(key.upper() if len(key) == 2 else key for key in columns)),
        ("---",) * (2 + len(columns)),
    ]
    rows += [(escaped(own.name), f"{own.examples}", *(_cell(own, key) for key in columns)) for own in item.classes]
    return table(rows)


def _differing(measured: SetCoverage, reference: SetCoverage) -> list[str]:
    """Classes whose CP or BC differs from the reference by more than DIFFERS, and more than by chance."""
    said = []
    for key, words in (("cp", "near their centroid (CP)"), ("bc", "near a boundary (BC)")):
        pairs = [
            (getattr(own, key), getattr(other, key), own, other)
            for own, other in zip(measured.classes, reference.classes, strict=True)
        ]
        known = [pair for pair in pairs if None not in pair[:2]]
        far = [
            f"{own.name} ({a:.2f}, not {b:.2f})"
            for a, b, own, other in known
            if abs(a - b) > DIFFERS and _by_chance(a, own.examples, b, other.examples) <= LEVEL / (2 * len(known))
        ]
        if far:
            said.append(f"Classes of which another share than in the reference is {words}: {_some(far)}.")
    return said


def _by_chance(a: float, n: int, b: float, k: int) -> float:
    """P value of Fisher's exact test that shares ``a`` of n and ``b`` of k examples are of one population."""
    from scipy.stats import fisher_exact

    x, y = round(a * n), round(b * k)
    return float(fisher_exact([[x, n - x], [y, k - y]])[1])


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _medians(models: Sequence[ModelCoverage]) -> list[str]:
    """Median and range over classes of each dimension, one row per model and set."""
    rows: list[Sequence[str]] = [("", *(dimension.key.upper() for dimension in DIMENSIONS)), ("---",) * 6]
    for model in models:
        for item in model.sets:
            alone = [model.model_copy(update={"sets": [item]})]
            cells = [rows_of(alone, dimension.key) for dimension in DIMENSIONS]
            name = escaped(f"{model.name}, {item.name}")
            rows.append((name, *(_range(found[0].values) if found else "–" for found in cells)))
    return table(rows)


def _range(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.3f} ({ordered[0]:.3f} – {ordered[-1]:.3f})"


def _columns(item: SetCoverage) -> list[str]:
    """Measures that at least one class has a value of."""
    keys = ("ep", "cp", "bc", "shift", "moved")
    return [key for key in keys if any(getattr(own, key) is not None for own in item.classes)]


def _cell(own: ClassCoverage, key: str) -> str:
    value = getattr(own, key)
    if value is None:
        return "–"
    if key == "moved":
        return f"{value.sd:.2f} sd (p {value.p:.3f})"
    return f"{value:.3f} (floor {own.shift_floor:.3f})" if key == "shift" else f"{value:.3f}"


def _heat_map(item: SetCoverage) -> dict[str, Any] | None:
    """Cells of PBC with their texts and how strong their colour is; of many classes the largest pairs."""
    pairs = [
        (own.name, other, share) for own in item.classes if own.pbc is not None for other, share in own.pbc.items()
    ]
    if not pairs:
        return None
    largest = max(share for _, _, share in pairs)
    names = [own.name for own in item.classes]
    if len(names) > MATRIX_CLASSES:
        return {"pairs": sorted(pairs, key=lambda pair: -pair[2])[:MOST_PAIRS], "rows": []}
    known = {(own, other): share for own, other, share in pairs}
    rows = [(own, [_colour(own, other, known.get((own, other), 0.0), largest) for other in names]) for own in names]
    return {"names": names, "rows": rows, "pairs": []}


def _colour(own: str, other: str, share: float, largest: float) -> dict[str, Any]:
    if own == other:
        return {"kind": "", "weight": 0.0, "text": "·"}
    return {"kind": "wrong" if share else "", "weight": share / largest, "text": f"{share:.3f}"}


def _definition(document: Characterization) -> str:
    low, high = document.boundary
    return (
        f"Near the centroid: within {document.radius:g} of the largest distance of the class. "
        f"Near a boundary: with a confidence in [{low:g}, {high:g}]. None of these is an accuracy."
    )
