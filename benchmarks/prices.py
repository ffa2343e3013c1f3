"""What `neyman` gains and pays by its `price`: E by the variance given the designs.

    python benchmarks/prices.py CASES… [--budget 100] [--repetitions 20] [--prices 0.05 0.07 0.1]

CASES are fully labelled classifications, `.npz`, `.csv` or `.parquet` files or folders of them. They are audited as
they are, with outcomes or the confidence in random order, and with the confidence reversed. Of each design that is
drawn the variance is computed from the true outcomes (`bound_gap.py` says how), which needs few repetitions; what is
audited in earnest is in `misled.py`. Printed is a Markdown table.
"""

import argparse
from functools import cache, partial

import bound_gap
import markdown_table as markdown
import misled
import numpy as np
from bound_gap import Case, by_srs, case_of, draw_rounds, given_designs, taught
from numpy.typing import NDArray
from processes import repeat

from opacc_ray.samplers import neyman
from opacc_ray.study.cases import Source, find_cases
from opacc_ray.study.study_spec import CaseSpec

AS_IT_IS = "as it is"
AIDS = (
    AS_IT_IS,
    "outcomes in random order: no feature helps",
    "confidence in random order, no other feature",
    "confidence reversed",
)
COLUMNS = (
    "what is known",
    "price",
    *(f"{design}, {what}" for design in misled.DESIGNS for what in ("mean E", "worst E")),
)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("cases", nargs="+", metavar="CASES")
    found.add_argument("--budget", type=int, default=100)
    found.add_argument("--repetitions", type=int, default=20)
    found.add_argument("--prices", type=float, nargs="+", default=[0.05, 0.07, 0.1])
    return found


def main() -> None:
    given = parser().parse_args()
    sources = misled.classifications(find_cases([CaseSpec(path=path) for path in given.cases], {}, None))
    print(markdown.header(COLUMNS))
    for aid in AIDS:
        measured = list(
            repeat(partial(measure_all, aid, sources, given.budget, given.prices), range(given.repetitions))
        )
        for price, own in zip(given.prices, np.mean(measured, axis=0), strict=True):  # (designs, cases)
            print(
                markdown.row([aid, f"{price:g}", *(cell for design in own for cell in cells(design, sources))]),
                flush=True,
            )
    print(f"\n{given.budget} labels, {len(sources)} cases, {given.repetitions} repetitions.")


def measure_all(
    aid: str, sources: tuple[Source, ...], budget: int, prices: list[float], seed: int
) -> NDArray[np.float64]:
    """E given the designs of one audit each, (prices, designs, cases)."""
    return np.array(
        [
            [
                [measure(prepared(aid, own, sources), sizes(budget), price, seed) for own in sources]
                for sizes in misled.DESIGNS.values()
            ]
            for price in prices
        ]
    )


def measure(case: Case, sizes: list[int], price: float, seed: int) -> float:
    rounds = draw_rounds(case, sizes, seed, neyman.Parameters(price=price))
    return given_designs(case, rounds, taught(case, rounds)) / by_srs(case, sum(sizes))


@cache
def prepared(aid: str, source: Source, sources: tuple[Source, ...]) -> Case:
    if aid == AS_IT_IS:
        return bound_gap.prepared(source)
    audited = misled.prepared(aid, source, sources)
    return case_of(audited.view, audited.outcome)


def cells(error: NDArray[np.float64], sources: tuple[Source, ...]) -> list[str]:
    """Mean and worst E of (cases,)."""
    worst = int(error.argmax())
    return [f"{error.mean():.2f}", f"{error[worst]:.2f} {sources[worst].name}"]


if __name__ == "__main__":
    main()
