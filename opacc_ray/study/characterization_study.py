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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy import stats

from opacc_ray import __version__
from opacc_ray.datasets.class_coverage import Metrics, Regions, measure
from opacc_ray.datasets.classes import Clusters, Grouped, find_clusters
from opacc_ray.datasets.covariate_shift import Mixtures, measure_shift
from opacc_ray.datasets.generation import find_sources, generate
from opacc_ray.datasets.head import find_head
from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.spec import load_spec
from opacc_ray.study.cases import Case, find_cases, read_case
from opacc_ray.study.characterization_results import (
    SHARES,
    CharacterizationResults,
    CharacterizedCase,
    Correlation,
    GeneratedAccuracy,
    Kind,
    draw,
    table_of,
)
from opacc_ray.study.seen_cases import FOLDER, Prepared, prepared, see_case
from opacc_ray.study.study_spec import Cases, CaseSpec, stem_of

NAME = "characterization"
"""What `--as` calls these experiments."""

Values = NDArray[np.float64]

STRENGTHS = (0.25, 0.5, 0.75, 1.0)
OF_IMAGES = tuple(f"{kind}:{strength:g}" for kind in ("dark", "noise", "occlusion", "blur") for strength in STRENGTHS)
OF_LABELS = tuple(f"label_shift:{strength:g}" for strength in STRENGTHS)

COUNTS, FEWEST, RESAMPLES = (100, 300, 700, 1000), 5, 1000
"""Numbers of vectors, as in the paper; least number that is ranked; bootstrap samples."""


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


class _Group(NamedTuple):
    """A case with its drifted copies, and what all are measured by."""

    base: Case
    cases: list[tuple[Prepared, Case]]  # the base first
    num_classes: int
    by_label: Clusters  # of the reference, or of the base
    by_prediction: Clusters
    reference: Grouped | None  # by label

    def measured(self, case: Case) -> Metrics:
        """Return the measures of a case by prediction."""
        return measure(Grouped(case.view, self.num_classes), Regions(), self.by_prediction)


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
    store.write("figures/measures.svg", draw([case for case in cases if case.drift is None]))
    store.write("table.md", table_of(results).encode())
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
        stems = {stem_of(model): model for model in spec.models}
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
    known = group.measured(group.base)
    seen = [_scores(case, group, known) for _, case in group.cases]
    drop = np.array([group.base.outcome.mean() - case.outcome.mean() for _, case in group.cases])
    found = [
        _ranked(name, "pools", measure, np.array([own[measure] for own in seen]), drop, seed)
        for measure in (seen[0] if len(seen) > 1 else ())
    ]
    kinds: tuple[tuple[Kind, tuple[dict[str, Values], Values]], ...] = (
        ("classes", _by_class(group, known)),
        ("pairs", _by_pair(group, known)),
    )
    for kind, (scores, failing) in kinds:
        found += [_ranked(name, kind, measure, own, failing, seed) for measure, own in scores.items()]
    return found


def _scores(case: Case, group: _Group, known: Metrics) -> dict[str, float]:
    """Return each measure of a pool as one number that should grow with the fall of its accuracy below ``known``."""
    found = known if case is group.base else group.measured(case)
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


def _by_class(group: _Group, found: Metrics) -> tuple[dict[str, Values], Values]:
    """Return measures of predicted classes, and their share of failures, (C,) each."""
    case = group.base
    said, confidence = case.view.column("prediction"), case.view.column("confidence")
    own = [said == i for i in range(group.num_classes)]
    failing = np.array([1 - case.outcome[rows].mean() if rows.any() else np.nan for rows in own])
    unsure = np.array([1 - confidence[rows].mean() if rows.any() else np.nan for rows in own])
    assert found.cp is not None
    assert found.bc is not None
    return {"EP": found.ep, "CP, falling": -found.cp, "BC": found.bc, "1 - confidence": unsure}, failing


def _by_pair(group: _Group, found: Metrics) -> tuple[dict[str, Values], Values]:
    """Return examples near each boundary, and how often the first class is said and the other true."""
    case, num = group.base, group.num_classes
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


def options_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of these experiments; raises SpecError for options that they do not take."""
    unused = [key for key, value in content.items() if key not in CharacterizationSpec.model_fields and value]
    if unused:
        raise SpecError(
            f"--as {NAME} does not take {', '.join(unused)}; it takes --model, --drift, --seed and --output"
        )
    return dict(content)
