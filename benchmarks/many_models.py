"""Several models by one set of labels: how precise each one is, and how often all differences are covered.

    python benchmarks/many_models.py CASE.npz [--budgets 100 200] [--repetitions 200] [--seed 0]

CASE has `correct` (M, N), what each of M models got right of the same N items, and nothing else is known of the items.
*Two at once* are all pairs of the models in turn, with the share of the other models that got an item right as a judge.
*All at once*: no model is left to learn from, so a model alone would be sampled at random; a fifth as many repetitions,
of which each has all differences. Printed is a Markdown table, row by row, and then each model by itself, with the
others as a judge, next to the least E of any unbiased method that sees them (`study/measures.py`).
"""

import argparse
from collections.abc import Sequence
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from audits import in_rounds, repeat
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.estimation.model_comparison import SeveralModels, compare_outcomes
from opacc_ray.extensions.study.measures import least_variance
from opacc_ray.parts.view import view_of
from opacc_ray.samplers.select import select

COLUMNS = (
    *("models", "design", "n", "E", "E, own labels", "E of differences", "covers", "all differences", "width"),
    *("best chosen", "P(best)"),
)
WAYS = ("two at once", "all at once")
ALONE = "one at a time"
DESIGNS = ("neyman, 4 rounds", "neyman", "srs")


class Trial(NamedTuple):
    """One audit of some models."""

    correct: NDArray[np.float64]  # (m, N)
    history: opacc.History
    budget: int
    seed: int


class Score(NamedTuple):
    """What came of it, in multiples of what a simple random sample would have."""

    error: float  # squared, mean over models
    error_alone: float  # with as many labels for each model
    of_differences: float
    covered: float  # share of the models
    all_covered: float
    width: float  # mean half-width of differences over 1.96 standard deviations of a simple random sample
    best: float  # whether the model with the highest estimate is the best
    probability: float  # stated that the best one is the best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", type=Path, metavar="CASE")
    parser.add_argument("--budgets", type=int, nargs="+", default=[100, 200])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(markdown.header(COLUMNS, texts=2))
    for way in WAYS:
        for design in DESIGNS:
            for budget in given.budgets:
                num = given.repetitions if way == WAYS[0] else given.repetitions // 5
                seeds = range(given.seed, given.seed + num)
                scores = list(repeat(partial(_audited, given.case, way, design, budget), seeds))
                print(markdown.row([way, design, str(budget), *_cells(scores)]), flush=True)
    for budget in given.budgets:
        print(f"\n{_by_itself(given.case, budget, range(given.seed, given.seed + given.repetitions))}", flush=True)


def _by_itself(case: Path, budget: int, seeds: Sequence[int]) -> str:
    """One model at a time beside its bound, in words; seeds go over the models in turn."""
    found = np.array(list(repeat(partial(_audited_alone, case, budget), seeds)))  # (repetitions, 2)
    models = range(len(_correct(case)))
    bound = np.mean([_bound(_trial(ALONE, _correct(case), budget, model)) for model in models])
    (error, covered), deviation = found.mean(axis=0), found[:, 0].std()
    return (
        f"One at a time, with the others as a judge, {DESIGNS[0]}, {budget} labels: mean E "
        f"{error:.2f} ± {deviation / np.sqrt(len(found)):.2f}, where the mean of the bounds is {bound:.2f}, and 95 % "
        f"intervals cover in {100 * covered:.1f} %. {len(found):,} repetitions."
    )


def _audited_alone(case: Path, budget: int, seed: int) -> tuple[float, bool]:
    """E of one model, and whether its interval held the truth."""
    trial = _trial(ALONE, _correct(case), budget, seed)
    [estimate], truth = audit(trial, DESIGNS[0]).models, float(trial.correct.mean())
    return (estimate.value - truth) ** 2 / _by_srs(trial), estimate.low <= truth <= estimate.high


def _bound(trial: Trial) -> float:
    """The least E, of the only model."""
    [outcome] = trial.correct
    pool = opacc.Pool(ids=[str(i) for i in range(len(outcome))])
    return least_variance(view_of(pool), outcome, [trial.budget], trial.history)[trial.budget] / _by_srs(trial)


def _by_srs(trial: Trial) -> float:
    """Variance of the only model's accuracy by a simple random sample."""
    return float(trial.correct.var()) * (1 / trial.budget - 1 / trial.correct.shape[1])


@cache
def _correct(case: Path) -> NDArray[np.float64]:
    """What each of M models got right, (M, N)."""
    return np.load(case)["correct"].astype(np.float64)


def _audited(case: Path, way: str, design: str, budget: int, seed: int) -> Score:
    return score(_trial(way, _correct(case), budget, seed), design)


def _trial(way: str, correct: NDArray[np.float64], budget: int, seed: int) -> Trial:
    if way == "all at once":
        return Trial(correct, opacc.History(), budget, seed)
    if way == ALONE:
        model = seed % len(correct)
        return Trial(correct[[model]], _judged_by_others(correct, (model,)), budget, seed)
    pairs = list(combinations(range(len(correct)), 2))
    pair = pairs[seed % len(pairs)]
    return Trial(correct[list(pair)], _judged_by_others(correct, pair), budget, seed)


def _judged_by_others(correct: NDArray[np.float64], models: Sequence[int]) -> opacc.History:
    """The share of the other models that got each item right."""
    return opacc.History(judges={"others": np.delete(correct, models, axis=0).mean(axis=0)})


def score(trial: Trial, design: str) -> Score:
    """Audit all models at once, and each by itself."""
    found = audit(trial, design)
    truth = trial.correct.mean(axis=1)
    left = (1 - trial.budget / trial.correct.shape[1]) / trial.budget
    errors = np.array([own.value for own in found.models]) - truth
    by_srs = truth * (1 - truth) * left
    pairs = [(item.first, item.second) for item in found.differences]
    true = np.array([truth[a] - truth[b] for a, b in pairs])
    stated = [item.difference for item in found.differences]
    spread = np.array([(trial.correct[a] - trial.correct[b]).var() * left for a, b in pairs])
    covered = [own.low <= value <= own.high for own, value in zip(stated, true, strict=True)]
    half_widths = np.array([(own.high - own.low) / 2 for own in stated])
    values = np.array([own.value for own in found.models])
    best = int(truth.argmax())
    alone = (
        errors**2 if design == "srs" else _alone(trial, design) if len(errors) == 2 else np.full(len(errors), np.nan)
    )
    return Score(
        float((errors**2 / by_srs).mean()),
        float((alone / by_srs).mean()),
        float(((np.array([own.value for own in stated]) - true) ** 2 / spread).mean()),
        float(np.mean([own.low <= value <= own.high for own, value in zip(found.models, truth, strict=True)])),
        float(all(covered)),
        float((half_widths / (1.96 * np.sqrt(spread))).mean()),
        float(values.argmax() == best),
        found.best[best],
    )


def _alone(trial: Trial, design: str) -> NDArray[np.float64]:
    """Squared error of each model with all labels to itself, (m,)."""
    return np.array([(_value(trial._replace(correct=row[None]), design) - row.mean()) ** 2 for row in trial.correct])


def _value(trial: Trial, design: str) -> float:
    return audit(trial, design).models[0].value


def audit(trial: Trial, design: str) -> SeveralModels:
    """Draw for all models of a trial, and compare them."""
    pools = [opacc.Pool(ids=[str(i) for i in range(trial.correct.shape[1])])] * len(trial.correct)
    if design == "srs":
        chosen = opacc.select(pools[0], "srs", trial.budget, trial.seed)
        return compare_outcomes(chosen, trial.correct[:, chosen.index])
    views = [view_of(pool) for pool in pools]
    rounds: list[opacc.Selection] = []
    outcomes: list[NDArray[np.float64]] = []
    for size in _sizes(trial.budget, design):
        previous = [(s, y if len(views) > 1 else y[0]) for s, y in zip(rounds, outcomes, strict=True)]
        drawn = select(views, "neyman", size, trial.seed, previous=previous, history=trial.history)
        rounds.append(drawn)
        outcomes.append(trial.correct[:, drawn.index])
    return compare_outcomes(rounds, outcomes, pools=views, history=trial.history)


def _sizes(budget: int, design: str) -> Sequence[int]:
    return in_rounds(budget) if "rounds" in design else [budget]


def _cells(scores: Sequence[Score]) -> list[str]:
    mean = Score(*np.mean(scores, axis=0).tolist())
    return [
        *("–" if np.isnan(x) else f"{x:.2f}" for x in (mean.error, mean.error_alone, mean.of_differences)),
        *(f"{100 * value:.1f}" for value in (mean.covered, mean.all_covered)),
        f"{mean.width:.2f}",
        f"{100 * mean.best:.0f}",
        f"{mean.probability:.2f}",
    ]


if __name__ == "__main__":
    main()
