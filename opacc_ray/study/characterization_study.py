"""The experiments of the fourth paper: what test sets cover, what that predicts, and accuracy on generated vectors.

S. Mani, A. Sankaran, S. Tamilselvam, A. Sethi, "Coverage Testing of Deep Learning Models using Dataset
Characterization", 2019, https://arxiv.org/abs/1911.07309. A case is a labelled set, next to its drifted copies:

    Figs 3 to 5   EP, CP, BC and PBC by label, and the covariate shift, of each class; clusters are the reference's, or
                  those of the case without a drift
    Table 2       accuracy of the classifier's head on generated vectors, by shares near centroid and boundary

The paper hopes that its measures tell how well a model will do. Three kinds of Spearman's rank correlation test that,
each with a 95 % bootstrap interval over what is ranked. There the measures are taken without labels, by prediction:

    pools     a measure, with the fall of the accuracy, over the drifted copies of a case
    classes   a measure of predicted classes, with their share of failures
    pairs     examples near the boundary of two classes, with how often one is taken for the other
"""

import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy import stats

from opacc_ray import __version__
from opacc_ray.datasets.class_coverage import Metrics, Regions, measure
from opacc_ray.datasets.classes import Clusters, Grouped, find_clusters
from opacc_ray.datasets.covariate_shift import Mixtures, measure_shift
from opacc_ray.datasets.generation import find_sources, generate
from opacc_ray.datasets.head import find_head
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.spec import load_spec
from opacc_ray.study.cases import Case, find_cases, read_case
from opacc_ray.study.seen_cases import FOLDER, Prepared, prepared, see_case
from opacc_ray.study.study_spec import Cases, CaseSpec
from opacc_ray.study.table import markdown, plain
from opacc_ray.svg import Scale, dot, figure, line, path, shortened_to, text

NAME = "characterization"
"""What `--as` calls these experiments."""

Values = NDArray[np.float64]

STRENGTHS = (0.25, 0.5, 0.75, 1.0)
OF_IMAGES = tuple(f"{kind}:{strength:g}" for kind in ("dark", "noise", "occlusion", "blur") for strength in STRENGTHS)
OF_LABELS = tuple(f"label_shift:{strength:g}" for strength in STRENGTHS)

SHARES, COUNTS, FEWEST, RESAMPLES = (0.0, 0.3, 0.5, 0.7, 1.0), (100, 300, 700, 1000), 5, 1000
"""Shares near the centroid and numbers of vectors, as in the paper; least number that is ranked; bootstrap samples."""

MEASURES = ("EP", "CP", "BC", "PBC", "shift")

Kind = Literal["pools", "classes", "pairs"]


class CharacterizationSpec(BaseModel):
    """What `opacc study --as characterization` is asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cases: Cases = Field(min_length=1, description="labelled sets with hidden, output and prediction")
    models: list[str] = Field(
        default=[], description="specs of audits: cases are then .npz files with images x and label"
    )
    drifts: list[str] | None = Field(
        default=None, description="default: four kinds of images with models, label shift else"
    )
    reference: str | None = Field(default=None, description="training data with the columns of a case; default: none")
    shift: bool = Field(default=True, description="whether to measure the covariate shift from the reference")
    seed: int = Field(default=0, ge=0, description="of drifts, vectors and bootstrap samples")
    output: str = Field(default="study", description="folder or prefix of the results")
    paper: str = Field(default=NAME, description="name of these experiments")


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


class _Group(NamedTuple):
    """A case with its drifted copies, and what all are measured by."""

    base: Case
    cases: list[tuple[Prepared, Case]]  # the base first
    num_classes: int
    by_label: Clusters  # of the reference, or of the base
    by_prediction: Clusters
    reference: Grouped | None  # by label


def characterize_cases(spec: CharacterizationSpec, command: str | None = None) -> CharacterizationResults:
    """Measure the cases, write results.json, table.md and figures, and return the results.

    Raises SpecError or DataError for a case without labels, or features that are missing.
    """
    store = open_store(spec.output)
    drifts = spec.drifts if spec.drifts is not None else [*(OF_IMAGES if spec.models else ()), *OF_LABELS]
    made = prepared(spec.cases, spec.models, drifts, spec.seed, store)
    groups = [_group(own, spec, store) for own in _by_base(made).values()]
    cases, correlations, generated = [], [], []
    for group in groups:
        cases += [_characterized(one, case, group, spec) for one, case in group.cases]
        correlations += _correlations(group, spec.seed)
        generated += _generated(group, spec.seed)
    results = CharacterizationResults(
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        cases=cases,
        correlations=correlations,
        generated=generated,
    )
    store.write("figures/measures.svg", _draw([case for case in cases if case.drift is None]))
    store.write("table.md", _table(results).encode())
    store.write("results.json", results.to_bytes())
    return results


def _by_base(made: Sequence[Prepared]) -> dict[str, list[Prepared]]:
    found: dict[str, list[Prepared]] = {}
    for own in made:
        found.setdefault(own.base or own.case.path, []).append(own)
    return found


def _group(made: Sequence[Prepared], spec: CharacterizationSpec, store: Store) -> _Group:
    cases = [(own, read_case(find_cases([own.case], {}, None)[0])) for own in made]
    base = cases[0][1]
    for _, case in cases:
        if case.truth is None:
            raise DataError(f"case {case.source.name} has no classes to group by: give prediction and label")
        case.view.need(("hidden", "output", "confidence"), NAME)
    num = len(base.classes)
    reference = _reference(made[0], base, spec, store)
    known = Grouped(base.view, num, base.truth) if reference is None else Grouped(reference.view, num, reference.truth)
    return _Group(
        base, cases, num, find_clusters(known), find_clusters(Grouped(known.view, num)), known if reference else None
    )


def _reference(made: Prepared, base: Case, spec: CharacterizationSpec, store: Store) -> Case | None:
    """Return the reference as the model of a case sees it."""
    uri = made.case.reference or spec.reference
    if uri is None:
        return None
    if spec.models:
        stems = {model.rpartition("/")[2].rpartition(".")[0]: model for model in spec.models}
        model = next((name for name in stems if len(stems) == 1 or str(made.base).endswith(f"-{name}")), "")
        uri = see_case(uri, load_spec(stems[model]), model, store.uri_of(f"{FOLDER}/reference-{model}.npz"))
    found = read_case(find_cases([CaseSpec(path=uri, name="reference")], {}, None)[0])
    if found.truth is None or found.truth.max() >= len(base.classes):
        raise DataError(f"the reference {uri} needs labels of the {len(base.classes)} classes of {base.source.name}")
    return found


def _characterized(made: Prepared, case: Case, group: _Group, spec: CharacterizationSpec) -> CharacterizedCase:
    data = Grouped(case.view, group.num_classes, case.truth)
    found = measure(data, Regions(), group.by_label)
    assert found.cp is not None
    assert found.bc is not None
    assert found.pbc is not None
    pairs = found.pbc[~np.eye(group.num_classes, dtype=bool)]
    values: dict[str, Any] = {"EP": found.ep, "CP": found.cp, "BC": found.bc, "PBC": pairs}
    if spec.shift and group.reference is not None and made.drift is None:
        shifts = measure_shift(group.reference, data, Mixtures(seed=spec.seed))
        values["shift"] = [np.nan if own.value is None else own.value for own in shifts]
    return CharacterizedCase(
        case=case.source.name,
        base=group.base.source.name,
        drift=made.drift,
        size=len(case.outcome),
        accuracy=float(case.outcome.mean()),
        measures={
            name: [None if np.isnan(one) else float(one) for one in np.asarray(own).tolist()]
            for name, own in values.items()
        },
    )


# -- correlations ------------------------------------------------------------------------------------------


def _correlations(group: _Group, seed: int) -> list[Correlation]:
    name = group.base.source.name
    seen = [_scores(case, group) for _, case in group.cases]
    drop = np.array([group.base.outcome.mean() - case.outcome.mean() for _, case in group.cases])
    found = [
        _ranked(name, "pools", measure, np.array([own[measure] for own in seen]), drop, seed)
        for measure in (seen[0] if len(seen) > 1 else ())
    ]
    kinds: tuple[tuple[Kind, tuple[dict[str, Values], Values]], ...] = (
        ("classes", _by_class(group)),
        ("pairs", _by_pair(group)),
    )
    for kind, (scores, failing) in kinds:
        found += [_ranked(name, kind, measure, own, failing, seed) for measure, own in scores.items()]
    return found


def _measured(case: Case, group: _Group) -> Metrics:
    return measure(Grouped(case.view, group.num_classes), Regions(), group.by_prediction)


def _scores(case: Case, group: _Group) -> dict[str, float]:
    """Return each measure of a pool as one number that should grow with the fall of its accuracy."""
    found, known = _measured(case, group), _measured(group.base, group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a mean of no class
        mean = {key: np.nanmean(getattr(found, key)) - np.nanmean(getattr(known, key)) for key in ("cp", "bc")}
        return {
            "EP: mean distance": float(np.abs(found.ep - known.ep).mean()),
            "CP: fall of the mean": -float(mean["cp"]),
            "BC: rise of the mean": float(mean["bc"]),
            "PBC: rise of the largest": float(np.nanmax(_pbc(found)) - np.nanmax(_pbc(known))),
            "confidence: fall of the mean": float(
                group.base.view.column("confidence").mean() - case.view.column("confidence").mean()
            ),
        }


def _pbc(found: Metrics) -> Values:
    assert found.pbc is not None
    return found.pbc


def _by_class(group: _Group) -> tuple[dict[str, Values], Values]:
    """Return measures of predicted classes, and their share of failures, (C,) each."""
    case, found = group.base, _measured(group.base, group)
    said, confidence = case.view.column("prediction"), case.view.column("confidence")
    own = [said == i for i in range(group.num_classes)]
    failing = np.array([1 - case.outcome[rows].mean() if rows.any() else np.nan for rows in own])
    unsure = np.array([1 - confidence[rows].mean() if rows.any() else np.nan for rows in own])
    assert found.cp is not None
    assert found.bc is not None
    return {"EP": found.ep, "CP, falling": -found.cp, "BC": found.bc, "1 - confidence": unsure}, failing


def _by_pair(group: _Group) -> tuple[dict[str, Values], Values]:
    """Return examples near each boundary, and how often the first class is said and the other true."""
    case, found, num = group.base, _measured(group.base, group), group.num_classes
    said, pairs = case.view.column("prediction").astype(np.int64), ~np.eye(num, dtype=bool)
    assert case.truth is not None
    assert found.pbc is not None
    taken = np.bincount(said * num + case.truth, minlength=num * num).reshape(num, num) / len(said)
    near = np.nan_to_num(found.pbc) * found.num[:, None]
    return {"PBC": near[pairs]}, taken[pairs]


def _ranked(base: str, kind: Kind, measure: str, score: Values, failing: Values, seed: int) -> Correlation:
    known = np.isfinite(score) & np.isfinite(failing)
    score, failing = score[known], failing[known]
    rho, ends = None, (None, None)
    if len(score) >= FEWEST and np.ptp(score) > 0 and np.ptp(failing) > 0:
        rng = np.random.default_rng(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.ConstantInputWarning)  # a sample of equal ones, which is left out
            rows = rng.integers(0, len(score), (RESAMPLES, len(score)))
            again = [stats.spearmanr(score[own], failing[own]).statistic for own in rows]
        rho = float(stats.spearmanr(score, failing).statistic)
        ends = tuple(np.nanquantile(again, [0.025, 0.975]).tolist())
    return Correlation(base=base, kind=kind, measure=measure, rho=rho, low=ends[0], high=ends[1], ranked=len(score))


# -- generated vectors -------------------------------------------------------------------------------------


def _generated(group: _Group, seed: int) -> list[GeneratedAccuracy]:
    rng, regions, num = np.random.default_rng(seed), Regions(), group.num_classes
    head = find_head(Grouped(group.base.view, num), seed=seed)
    data = Grouped(group.base.view, num, group.base.truth)
    clusters = find_clusters(data)
    sources = find_sources(data, head, clusters, regions, rng)
    found = []
    for count in COUNTS:
        made = [generate(sources, head, clusters, regions, share, count, rng) for share in SHARES]
        found.append(
            GeneratedAccuracy(
                base=group.base.source.name,
                count=count,
                accuracy=[float(own.correct.mean()) for own in made],
                violations=float(np.mean([own.violates.mean() for own in made])),
            )
        )
    return found


# -- tables and figure -------------------------------------------------------------------------------------

PUBLISHED = {
    "fashion-lenet5": {100: (8.7, 32.8, 48.4, 63.0, 86.5), 300: (9.6, 32.5, 47.8, 63.9, 86.7),
                       700: (10.4, 32.4, 47.6, 63.1, 86.2), 1000: (9.9, 32.7, 48.2, 63.2, 86.1)},
}  # fmt: skip
"""Table 2 by the name of a case: percent right, for a LeNet on Fashion-MNIST of other weights and its layer."""


def _table(results: CharacterizationResults) -> str:
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


def _draw(cases: Sequence[CharacterizedCase]) -> bytes:
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
    return f"{drawn}\n".replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).encode()


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


def options_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of these experiments; raises SpecError for options that they do not take."""
    unused = [key for key, value in content.items() if key not in CharacterizationSpec.model_fields and value]
    if unused:
        raise SpecError(
            f"--as {NAME} does not take {', '.join(unused)}; it takes --model, --drift, --seed and --output"
        )
    return dict(content)
