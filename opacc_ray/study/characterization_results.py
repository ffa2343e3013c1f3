"""Results of the characterization experiments: the document, its tables and its figure."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from markupsafe import Markup
from pydantic import Field

from opacc_ray.documents import Document, Part, format_field
from opacc_ray.study.table import markdown, plain
from opacc_ray.svg import Scale, alone, dot, figure, line, path, shortened_to, text

SHARES = (0.0, 0.3, 0.5, 0.7, 1.0)
"""Shares of generated vectors near the centroid, as in the paper."""

MEASURES = ("EP", "CP", "BC", "PBC", "shift")

Kind = Literal["pools", "classes", "pairs"]


class CharacterizedCase(Part):
    """A case with its measures by class."""

    case: str = Field(description="its name")
    base: str = Field(description="name of the case without a drift")
    drift: str | None = Field(description="KIND:STRENGTH; null: none")
    size: int = Field(ge=1, description="number of examples")
    accuracy: float = Field(ge=0, le=1, description="share that the model gets right")
    measures: dict[str, list[float | None]] = Field(
        description="EP, CP, BC and shift of each class and PBC of each ordered pair, by label; null: unknown"
    )


class Correlation(Part):
    """A rank correlation."""

    base: str = Field(description="name of the case without a drift")
    kind: Kind = Field(description="what is ranked: drifted pools, classes, or pairs of classes")
    measure: str = Field(description="measure that is compared with failures")
    rho: float | None = Field(ge=-1, le=1, description="Spearman's; null: fewer than five are ranked, or all are equal")
    low: float | None = Field(description="lower end of its 95 % bootstrap interval")
    high: float | None = Field(description="upper end")
    ranked: int = Field(ge=0, description="how many are ranked")


class GeneratedAccuracy(Part):
    """Accuracy on generated vectors."""

    base: str = Field(description="name of the case that vectors start from")
    count: int = Field(ge=1, description="number of vectors")
    accuracy: list[float] = Field(description="by the share near centroids: 0, 30, 50, 70 and 100 %")
    violations: float = Field(ge=0, le=1, description="share of moves that break a rule of the paper")


class CharacterizationResults(Document):
    """Coverage of cases, what it predicts, and accuracy on generated vectors."""

    format: Literal["opacc-characterization-study/1"] = format_field("opacc-characterization-study/1")
    command: str | None = Field(description="the command, if it was one")
    created: str = Field(description="when it ended: ISO 8601, UTC")
    version: str = Field(description="version of opacc_ray")
    cases: list[CharacterizedCase] = Field(description="every case, those without a drift first in their group")
    correlations: list[Correlation] = Field(description="of measures with failures")
    generated: list[GeneratedAccuracy] = Field(description="accuracy on generated vectors")


PUBLISHED = {
    "fashion-lenet5": {100: (8.7, 32.8, 48.4, 63.0, 86.5), 300: (9.6, 32.5, 47.8, 63.9, 86.7),
                       700: (10.4, 32.4, 47.6, 63.1, 86.2), 1000: (9.9, 32.7, 48.2, 63.2, 86.1)},
}  # fmt: skip
"""Table 2 by the name of a case: percent right, for a LeNet on Fashion-MNIST of other weights and its layer."""


def table_of(results: CharacterizationResults) -> str:
    """Return the tables as Markdown, next to the published figures where a case is theirs."""
    title = '# Mani et al., "Coverage Testing of Deep Learning Models using Dataset Characterization", 2019'
    head = f"{title}\n\nopacc_ray {results.version}."
    parts = [head, *([f"    {results.command}"] if results.command else [])]
    shown = [name for name in MEASURES if any(name in case.measures for case in results.cases)]
    rows = [
        [
            plain(case.case),
            f"{case.size:,}",
            f"{case.accuracy:.4f}",
            *(_span(case.measures.get(name)) for name in shown),
        ]
        for case in results.cases
    ]
    title = "## What the sets cover: median over classes, or pairs (least – largest) (Figs 3 to 5)"
    parts += [title, markdown(["case", "examples", "accuracy", *shown], rows)]
    titles: dict[Kind, str] = {
        "pools": "## Does a measure rank the fall of the accuracy over drifted pools?",
        "classes": "## Does it rank the failures of predicted classes?",
        "pairs": "## Does it rank what is taken for what?",
    }
    bases = list(dict.fromkeys(case.base for case in results.cases))
    for kind, title in titles.items():
        own = {(one.measure, one.base): one for one in results.correlations if one.kind == kind}
        if own:
            names = list(dict.fromkeys(measure for measure, _ in own))
            rows = [[name, *(_rho(own.get((name, base))) for base in bases)] for name in names]
            parts += [
                title,
                "Spearman's rank correlation [95 % bootstrap interval].",
                markdown(["measure", *map(plain, bases)], rows),
            ]
    rows = []
    for made in results.generated:
        said = PUBLISHED.get(made.base, {}).get(made.count, [None] * len(SHARES))
        cells = [
            f"{100 * a:.1f}" + (f" ({b:.1f})" if b is not None else "")
            for a, b in zip(made.accuracy, said, strict=True)
        ]
        rows.append([plain(made.base), str(made.count), *cells, f"{100 * made.violations:.1f}"])
    columns = ["case", "vectors", *(f"{100 * share:.0f}-{100 - 100 * share:.0f}" for share in SHARES), "violations"]
    title = (
        "## Percent right on generated vectors, by shares near centroid and boundary (Table 2; in brackets: published)"
    )
    return "\n\n".join([*parts, title, markdown(columns, rows)]) + "\n"


def _span(values: Sequence[float | None] | None) -> str:
    known = [value for value in values or () if value is not None]
    return f"{np.median(known):.3f} ({min(known):.3f} – {max(known):.3f})" if known else "–"


def _rho(found: Correlation | None) -> str:
    if found is None or found.rho is None:
        return "–"
    return f"{found.rho:.2f} [{found.low:.2f}, {found.high:.2f}]"


STYLE = (
    "text{font:12px sans-serif;fill:#333}.case{font-size:14px;font-weight:bold}.small{font-size:11px}"
    ".grid{stroke:#ebebeb}.axis{stroke:#999}.box{fill:#cfe3f1;stroke:#0072B2}.mid{stroke:#0072B2;stroke-width:2}"
    ".one{fill:none;stroke:#D55E00}"
)
LEFT, PANEL, ROW, TOP = 170.0, 190.0, 26.0, 56.0
"""Pixels: names of cases, width of a panel, height of a row, and space above the rows."""


def draw(cases: Sequence[CharacterizedCase]) -> bytes:
    """Draw box plots: a panel per measure, a row per case, the quartiles over classes as a box, a ring per class."""
    shown = [name for name in MEASURES if any(name in case.measures for case in cases)]
    height = TOP + ROW * len(cases) + 34
    parts = [
        Markup("<style>{}</style>").format(Markup(STYLE)),
        Markup('<rect width="100%" height="100%" fill="#fff"/>'),
    ]
    parts += [text(8, 20, "What the sets cover, by class", "case")]
    parts += [text(8, TOP + ROW * (row + 0.65), shortened_to(case.case, 24)) for row, case in enumerate(cases)]
    for place, name in enumerate(shown):
        values = [[value for value in case.measures.get(name, []) if value is not None] for case in cases]
        parts += _panel(name, values, LEFT + place * PANEL)
    drawn = figure("measures", "measures by class", ", ".join(shown), (LEFT + PANEL * len(shown) + 10, height), parts)
    return alone(drawn).encode()


def _panel(name: str, values: Sequence[Sequence[float]], left: float) -> list[Markup]:
    top, bottom = TOP, TOP + ROW * len(values)
    most = max([1.0, *(value for own in values for value in own)])
    x = Scale(0, most, left, left + PANEL - 30)
    marks = (0, most / 2, most)
    parts = [line(x(mark), top, x(mark), bottom, "grid") for mark in marks]
    parts += [text(x(mark), bottom + 16, f"{mark:.2g}", "small", "middle") for mark in marks]
    parts += [text(left, top - 10, name), line(left, bottom, left + PANEL - 30, bottom, "axis")]
    for row, own in enumerate(values):
        y = top + ROW * (row + 0.5)
        if own:
            low, mid, high = (x(float(end)) for end in np.quantile(own, [0.25, 0.5, 0.75]))
            corners = [(low, y - 7), (high, y - 7), (high, y + 7), (low, y + 7)]
            parts += [path(corners, "box", closed=True), line(mid, y - 7, mid, y + 7, "mid")]
            parts += [dot(x(value), y, 2.5, "one") for value in own]
    return parts
