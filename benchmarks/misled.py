"""What `neyman` gains by a labelled reference, and what it pays where it is misled: E beside a simple random sample.

    python benchmarks/misled.py CASES… [--budget 100] [--repetitions 1000]

CASES are fully labelled classifications, `.npz`, `.csv` or `.parquet` files or folders of them. A reference is 2,000 of
a case's examples, the same ones in every repetition; what is audited are the others. Printed is a Markdown table. E is
the mean squared error over the variance of a simple random sample with as many labels.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from audits import in_rounds, label_rounds, repeat
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.extensions.study.cases import Source, find_cases, read_case
from opacc_ray.extensions.study.study_spec import CaseSpec
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.pool import Pool

REFERENCE = 2000
DESIGNS: dict[str, Callable[[int], list[int]]] = {"one round": lambda budget: [budget], "four rounds": in_rounds}
COLUMNS = ("what is known", *(f"{design}, {what}" for design in DESIGNS for what in ("mean E", "worst E", "covers")))


class Audited(NamedTuple):
    """What an audit starts from, and the truth."""

    view: View
    outcome: NDArray[np.float64]  # (N,)
    history: opacc.History = opacc.History()


class Labelled(NamedTuple):
    """A case in memory."""

    pool: Pool
    outcome: NDArray[np.float64]  # (N,)


class Score(NamedTuple):
    """What came of one audit."""

    error: float  # squared, over the variance of a simple random sample
    covered: bool


def main() -> None:
    given, sources = asked(__doc__, 1000)
    scores = list(repeat(partial(audit_all, sources, given.budget), range(given.repetitions)))
    measured = np.array(scores, dtype=np.float64).reshape(len(scores), len(AIDS), len(DESIGNS), len(sources), 2)
    print(markdown.header(COLUMNS))
    for aid, own in zip(AIDS, measured.swapaxes(0, 1), strict=True):
        print(markdown.row([aid, *(cell for design in own.swapaxes(0, 1) for cell in cells(design, sources))]))
    print(f"\n{given.budget} labels, {len(sources)} cases, {len(scores)} repetitions of each.")


def asked(description: str | None, repetitions: int, *flags: str) -> tuple[argparse.Namespace, tuple[Source, ...]]:
    """What the command line asks for, and those of its cases that have a confidence."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="CASES")
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=repetitions)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    sources = find_cases([CaseSpec(path=path) for path in given.cases])
    return given, tuple(source for source in sources if "confidence" in read_case(source).view.fields)


def audit_all(sources: tuple[Source, ...], budget: int, seed: int) -> list[Score]:
    """One audit of each aid, design and case, in this order."""
    return [
        audit(prepared(aid, source, sources), sizes(budget), seed)
        for aid in AIDS
        for sizes in DESIGNS.values()
        for source in sources
    ]


def audit(case: Audited, sizes: Sequence[int], seed: int) -> Score:
    """Draw, label and state."""
    labelled = label_rounds(case.view, case.outcome, "neyman", sizes, seed, case.history)
    found, truth = estimate_outcomes(*labelled, pool=case.view, history=case.history), float(case.outcome.mean())
    by_srs = case.outcome.var() * (1 / sum(sizes) - 1 / len(case.outcome))
    return Score((found.value - truth) ** 2 / by_srs, found.low <= truth <= found.high)


def cells(scores: NDArray[np.float64], sources: Sequence[Source]) -> list[str]:
    """Mean and worst E and the least coverage in percent, of one row and design: (repetitions, cases, 2)."""
    error = scores[..., 0].mean(axis=0)  # (cases,)
    deviation = scores[..., 0].std(axis=0, ddof=1) / np.sqrt(len(scores))
    worst = int(error.argmax())
    return [
        f"{error.mean():.2f} ± {np.sqrt((deviation**2).sum()) / len(error):.2f}",
        f"{error[worst]:.2f} ± {deviation[worst]:.2f} {sources[worst].name}",
        f"{100 * scores[..., 1].mean(axis=0).min():.1f}",
    ]


@cache
def prepared(aid: str, source: Source, sources: tuple[Source, ...]) -> Audited:
    """What an audit with this aid starts from."""
    another = sources[(sources.index(source) + 1) % len(sources)]
    return AIDS[aid](labelled(source), labelled(another).outcome)


@cache
def labelled(source: Source) -> Labelled:
    case = read_case(source)
    assert isinstance(case.view.parts, LocalParts)
    [pool] = case.view.parts.pools
    return Labelled(pool, case.outcome)


Aid = Callable[[Labelled, NDArray[np.float64]], Audited]
"""Of a case and the outcomes of another model."""


def with_reference(change: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]) -> Aid:
    """2,000 labelled examples, whose outcomes are changed; ``change`` also sees those of another model."""

    def aid(case: Labelled, other: NDArray[np.float64]) -> Audited:
        order = np.random.default_rng(0).permutation(case.pool.size)
        first, rest = order[:REFERENCE], order[REFERENCE:]
        said = change(case.outcome[first], np.resize(other, case.pool.size)[first])
        history = opacc.History(labelled=[{"pool": taken(case.pool, first), "outcomes": said}])
        return Audited(view_of(taken(case.pool, rest)), case.outcome[rest], history)

    return aid


def with_confidence(change: Callable[[NDArray[np.float64]], NDArray[np.float64]], *, alone: bool) -> Aid:
    """Another confidence, with the other features as they are or without any."""

    def aid(case: Labelled, _: NDArray[np.float64]) -> Audited:
        features = {} if alone else features_of(case.pool)
        assert case.pool.confidence is not None
        return Audited(view_of(Pool(**features | {"confidence": change(case.pool.confidence)})), case.outcome)

    return aid


def without_relation(case: Labelled, _: NDArray[np.float64]) -> Audited:
    return Audited(view_of(case.pool), mixed(case.outcome))


def mixed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.random.default_rng(0).permutation(values)


def reversed_order(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same numbers, the largest where the smallest was."""
    found = np.empty_like(values)
    order = np.argsort(values)
    found[order] = values[order[::-1]]
    return found


def constant(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.full_like(values, values.mean())


def uniform(least: float, most: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Random numbers, whose level is wrong for every model that is worth an audit."""
    return lambda own: np.random.default_rng(0).uniform(least, most, len(own))


AIDS: dict[str, Aid] = {
    "a labelled reference of 2,000": with_reference(lambda own, _: own),
    "that reference, outcomes in random order": with_reference(lambda own, _: mixed(own)),
    "that reference, outcomes reversed": with_reference(lambda own, _: 1 - own),
    "that reference, outcomes of another model": with_reference(lambda _, other: other),
    "outcomes in random order: no feature helps": without_relation,
    "confidence in random order, no other feature": with_confidence(mixed, alone=True),
    "confidence constant": with_confidence(constant, alone=False),
    "confidence constant, no other feature": with_confidence(constant, alone=True),
    "1 - confidence": with_confidence(lambda own: 1 - np.minimum(own, 1), alone=False),
    "1 - confidence, no other feature": with_confidence(lambda own: 1 - np.minimum(own, 1), alone=True),
    "a third of the confidence": with_confidence(lambda own: own / 3, alone=False),
    "a third of the confidence, no other feature": with_confidence(lambda own: own / 3, alone=True),
    "confidence at random, .05 to .3, no other feature": with_confidence(uniform(0.05, 0.3), alone=True),
    "confidence at random, .1 to .5, no other feature": with_confidence(uniform(0.1, 0.5), alone=True),
    "confidence reversed": with_confidence(reversed_order, alone=False),
    "confidence reversed, no other feature": with_confidence(reversed_order, alone=True),
}


def features_of(pool: Pool) -> dict[str, NDArray[np.float64]]:
    return {name: getattr(pool, name) for name in sorted(pool.fields)}


def taken(pool: Pool, rows: NDArray[np.int64]) -> Pool:
    """Some examples of a pool."""
    return Pool(**{name: values[rows] for name, values in features_of(pool).items()})


if __name__ == "__main__":
    main()
