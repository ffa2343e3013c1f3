"""What each constant of the estimates is worth: E, cover and width of the accuracy and of classes without it.

    python benchmarks/ablation.py CASES… [--budget 100] [--repetitions 100]
    python benchmarks/ablation.py CASES… --draw [--budget 100] [--repetitions 5]      # the constants of the draw

CASES are fully labelled classifications, `.npz`, `.csv` or `.parquet` files or folders of them. Every audit is drawn
once, by `neyman` in four rounds, and estimated with each set of constants, so rows are paired. E is the mean squared
error over the variance of a simple random sample; of classes it is that of the accuracy by predicted class. ± is the
standard error of the difference in E from the first row. Printed is a Markdown table.

With --draw it is the variance that the draws have by their design, before any label is drawn, of the estimate by
rounds, over that of a simple random sample: every round has (1/N²) Σ (f - p)² (1/π - 1), with the true failures f. So
few repetitions tell constants apart. Rare are cases with less than RARE failures.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import markdown_table as markdown
import numpy as np
from audits import in_rounds, label_rounds, repeat
from misled import DESIGNS, Audited, asked, labelled, prepared
from numpy.typing import NDArray

from opacc_ray.estimation import constants
from opacc_ray.estimation.estimate import KnownPool, numbers_of
from opacc_ray.estimation.sample import Rounds, join
from opacc_ray.extensions.study.cases import Source
from opacc_ray.metrics.metric import Metric
from opacc_ray.parts.view import view_of
from opacc_ray.samplers import neyman, parse_parameters
from opacc_ray.samplers.base import Previous, Task
from opacc_ray.samplers.neyman import sampling

VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "predicted variance unused": {"PRIOR_LABELS": 0},
    "no least predicted variance": {"LEAST_SHARE": 0},
    "predicted variance counts twice": {"PRIOR_LABELS": 40},
    "predicted variance always trusted": {"AGREEMENT_LIMIT": 1e9, "FIT_LIMIT": 1e9},
    "agreement over all labels unused": {"FIT_LIMIT": 1e9},
    "value not moved": {"MOST_MOVED": 0},
    "value moved further": {"MOST_MOVED": 0.75},
    "contradicted value kept": {"PRIOR_ALONE": 1e9},
    "fit always trusted": {"UNTRUSTED": -1, "TRUSTED": 0},
}
OF_THE_DRAW: dict[str, tuple[dict[str, Any], dict[str, float]]] = {  # parameters and constants
    "as it is": ({}, {}),
    "price 7 %": ({"price": 0.07}, {}),
    "price 40 %": ({"price": 0.4}, {}),
    "floor 5 %": ({"floor": 0.05}, {}),
    "floor 20 %": ({"floor": 0.2}, {}),
    "no least share of classes": ({}, {"LEAST_OF_CLASS": 0.0}),
}
RARE = 0.05
MISLED = "confidence reversed, no other feature"
MOST_CLASSES = 20
COLUMNS = ("constants", "E", "±", "covers", "least", "width", "E of classes", "covers", "least", "width")


def main() -> None:
    given, sources = asked(__doc__, 100, "--draw")
    if given.draw:
        print_draws(sources, given.budget, given.repetitions)
        return
    audited = list(repeat(partial(audit_all, sources, given.budget), range(given.repetitions)))
    found = [np.array(case) for case in zip(*audited, strict=True)]  # of each: (repetitions, variants, 1 + classes, 3)
    print(markdown.header(COLUMNS))
    for place, name in enumerate(VARIANTS):
        print(markdown.row([name, *cells(found, place)]))
    print(f"\n{given.budget} labels, {len(sources)} cases, {given.repetitions} repetitions of each.")


def audit_all(sources: tuple[Source, ...], budget: int, seed: int) -> list[NDArray[np.float64]]:
    """One audit of each case, estimated with each set of constants."""
    return [np.array(list(estimates(source, budget, seed))) for source in sources]


def estimates(source: Source, budget: int, seed: int) -> Iterator[list[tuple[float, bool, float]]]:
    """Squared error over the variance of a simple random sample, whether the truth is covered, and the width."""
    pool, outcome = labelled(source)
    view, (names, codes) = view_of(pool), np.unique(pool.prediction, return_inverse=True)
    audit = label_rounds(view, outcome, "neyman", in_rounds(budget), seed)
    known = KnownPool(view, codes, [f"{name:g}" for name in names])
    for changed in VARIANTS.values():
        with mock.patch.dict(vars(constants), changed):
            numbers = numbers_of(known, join(*audit))
            stated = [(numbers.estimate(Metric("accuracy"), 0.95), outcome)]
            if len(names) <= MOST_CLASSES:
                by_class = numbers.by(Metric("accuracy"), "prediction", 0.95)
                stated += [(own, outcome[codes == c]) for c, own in enumerate(by_class.values())]
        yield [measured(*own, budget / len(outcome)) for own in stated]


def measured(found: Any, outcome: NDArray[np.float64], share: float) -> tuple[float, bool, float]:
    truth = float(outcome.mean())
    by_random = max(truth * (1 - truth), 1e-4) * (1 - share) / (share * len(outcome))
    held = found.low - 1e-9 <= truth <= found.high + 1e-9
    return (found.value - truth) ** 2 / by_random, held, found.high - found.low


def cells(found: list[NDArray[np.float64]], place: int) -> list[str]:
    """The numbers of one row."""
    texts = []
    for columns in (slice(0, 1), slice(1, None)):
        own = [case[:, :, columns] for case in found if case[:, :, columns].size]
        error, covers, width = (np.concatenate([c[:, place, :, k].mean(axis=0) for c in own]) for k in range(3))
        texts.append(f"{error.mean():.3f}")
        if columns.start == 0:
            apart = [(c[:, place, 0, 0] - c[:, 0, 0, 0]).std() / np.sqrt(len(c)) for c in own]
            texts.append(f"{np.sqrt(np.square(apart).sum()) / len(apart):.3f}")
        texts += [f"{100 * covers.mean():.1f}", f"{100 * covers.min():.0f}", f"{width.mean():.4f}"]
    return texts


# -- the draw -----------------------------------------------------------------------------------------------------


def print_draws(sources: tuple[Source, ...], budget: int, repetitions: int) -> None:
    drawn = list(repeat(partial(draw_all, sources, budget), range(repetitions)))
    found = np.mean(drawn, axis=0)  # (variants, 2, designs, cases)
    rare = np.array([labelled(source).outcome.mean() > 1 - RARE for source in sources])
    columns = {"all": (0, rare | ~rare), "rare": (0, rare), MISLED: (1, rare | ~rare)}
    print(markdown.header(("constants", *(f"{name}, {design}" for name in columns for design in DESIGNS))))
    for name, own in zip(OF_THE_DRAW, found, strict=True):
        means = [own[k, :, cases].mean(axis=0) for k, cases in columns.values()]
        print(markdown.row([name, *(f"{value:.3f}" for pair in means for value in pair)]))
    print(f"\n{budget} labels, {len(sources)} cases, {rare.sum()} of them rare, {repetitions} repetitions of each.")


def draw_all(sources: tuple[Source, ...], budget: int, seed: int) -> NDArray[np.float64]:
    """The expected E of each set of constants, right and misled, each design and case."""
    right = [Audited(view_of(labelled(own).pool), labelled(own).outcome) for own in sources]
    cases, found = (right, [prepared(MISLED, own, sources) for own in sources]), []
    for parameters, changed in OF_THE_DRAW.values():
        with mock.patch.dict(vars(sampling), changed):
            found.append(
                [
                    [[expected(case, sizes(budget), seed, parameters) for case in own] for sizes in DESIGNS.values()]
                    for own in cases
                ]
            )
    return np.array(found)


def expected(case: Audited, sizes: list[int], seed: int, parameters: dict[str, Any]) -> float:
    """The variance of the estimate by rounds that these draws have, over that of a simple random sample."""
    view, outcome = case.view, case.outcome
    audit = label_rounds(view, outcome, "neyman", sizes, seed, **parameters)
    rounds, variance = Rounds(audit.rounds), 0.0
    for selection, part in zip(rounds.selections, rounds.parts, strict=True):
        before = rounds.index[part.before]
        given = parse_parameters("neyman", selection.parameters)
        plan = neyman.plan(view, Task(len(selection), given, Previous.of(before, outcome[before])))
        error = 1 - outcome[plan.free] - plan.failure[0]
        variance += (part.weight / view.size) ** 2 * float(error**2 @ (1 / plan.probability - 1))
    return variance / float(outcome.var() * (1 / sum(sizes) - 1 / view.size))


if __name__ == "__main__":
    main()
