"""Judges on LLMBar: width and coverage of intervals by neyman and by the methods of others, from the same judges.

    git clone https://github.com/princeton-nlp/LLMBar
    python benchmarks/judges.py LLMBar/Dataset/LLMBar [--repetitions 300]

LLMBar (Z. Zeng et al., "Evaluating Large Language Models at Evaluating Instruction Following", ICLR 2024) has 419
instructions with two outputs. People say which one follows the instruction, and 65 ways to ask a language model say
which one it prefers. Audited are the 7,542 answers of ChatGPT-0301 and PaLM 2, by 18 ways to ask: an answer is right if
it is the people's. A judge is a way to ask another model: it calls an answer right if it prefers the same output, half
right if its preference depends on the order of the two.

Methods of others (`extensions/study/peers.py`) get the judge's score as confidence, of several judges the mean.
*multi-ppi++* is PPI++ with a least-squares weight for each judge, and Student's quantile. *sample* is the mean of a
simple random sample with Wilson's interval. neyman draws four rounds of 10, 20, 30 and 40 %.

*partly*: the judge has judged 2,000 answers drawn at random. *part alone*: such a part, drawn anew in each repetition,
is audited by neyman as a pool with ``sample_of``. *LLaMA 2*: a weak judge. *useless*: the first judge's
scores in random order.

Printed is a Markdown table: mean width of 95 % intervals, the share that contain the truth, in percent, and E, the mean
squared error over that of a simple random sample of the same size. A second table compares with *valid*, the narrowest
other method that covers in 94 % or more, and with *bound*: what an oracle does that knows the share of right answers
among those that the judges score alike, and draws by it (Godambe and Joshi's bound of the variance). No unbiased design
has a smaller error, and its interval knows that error. *at 94 %* is the width of neyman's intervals if all were scaled
until they cover in exactly 94 %, over that of *valid*.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.estimation.intervals import wilson
from opacc_ray.extensions.study.f_measures import PeerEstimate
from opacc_ray.extensions.study.peers import PEERS, Question

Array = NDArray[np.float64]

LEVEL, ROUNDS, JUDGED = 0.95, (0.1, 0.3, 0.6, 1.0), 2000
OTHERS = ("ppi++", "strat-ppi", "cross-ppi", "active", "active-refit", "active-robust")
AUDITED = ("ChatGPT-0301", "PaLM2")
THREE = ("GPT-4/Metrics_Reference", "GPT-4/Rating", "GPT-4/Reference")
WEAK = "LLaMA2/Vanilla"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="LLMBar/Dataset/LLMBar")
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--labels", type=int, nargs="+", default=[50, 100, 200])
    given = parser.parse_args()
    right, judges = read(given.folder)
    print(markdown.header(["judges", "method", *(f"{name}, {n}" for n in given.labels for name in COLUMNS)], texts=2))
    best = list[str]()
    title_of = ["judges", "labels", "narrowest valid", *COMPARED]
    for title, chosen in scenarios(judges).items():
        rows = {
            name: [measure(own, right, n, given.repetitions) for n in given.labels] for name, own in methods(chosen)
        }
        for name, found in rows.items():
            cells = [text for own in found for text in (f"{own[0]:.3f}", f"{100 * own[1]:.1f}", f"{own[2]:.2f}")]
            print(markdown.row([title, name, *cells]), flush=True)
        best += [
            markdown.row(
                [title, str(n), *compared(rows, place, oracle_error(right, chosen, n), srs_variance(right, n))]
            )
            for place, n in enumerate(given.labels)
        ]
    found = [measure(part_alone(judges[THREE[0]]), right, n, given.repetitions) for n in given.labels]
    cells = [text for own in found for text in (f"{own[0]:.3f}", f"{100 * own[1]:.1f}", f"{own[2]:.2f}")]
    print(markdown.row(["GPT-4, part alone", "neyman", *cells]), flush=True)
    print(f"\n{right.mean():.1%} of {len(right):,} answers are right; {given.repetitions} repetitions.\n")
    print(markdown.header(title_of, texts=1))
    print("\n".join(best))


COLUMNS = ("width", "covers", "E")
LEAST_COVER = 0.94


class Measured(NamedTuple):
    width: float
    covers: float
    E: float
    at_least: float  # width if all intervals were scaled until they cover in LEAST_COVER


COMPARED = ("neyman / valid", "at 94 %", "bound / valid", "error of neyman / bound")
NORMAL = 1.959964


def compared(rows: dict[str, list[Measured]], place: int, oracle: float, srs: float) -> list[str]:
    """Return the narrowest other method that covers in 94 % or more, and neyman and the oracle next to it."""
    valid = {
        name: own[place].width for name, own in rows.items() if name != "neyman" and own[place].covers >= LEAST_COVER
    }
    name = min(valid, key=valid.__getitem__)
    own, least = rows["neyman"][place], valid[name]
    ratios = own.width / least, own.at_least / least, 2 * NORMAL * oracle / least, (own.E * srs) ** 0.5 / oracle
    return [name, *(f"{ratio:.2f}" for ratio in ratios)]


def oracle_error(right: Array, judges: dict[str, Array], num: int) -> float:
    """Return the least standard error of an unbiased design that knows the share right by what the judges say."""
    table = np.column_stack([np.where(np.isnan(own), -1, own) for own in judges.values()])
    _, cell = np.unique(table, axis=0, return_inverse=True)
    share = (np.bincount(cell, right) / np.bincount(cell))[cell]
    spread = np.sqrt(share * (1 - share))
    return float((spread.mean() ** 2 / num - (spread**2).mean() / len(right)) ** 0.5)


def srs_variance(right: Array, num: int) -> float:
    """Return the variance of the mean of a simple random sample."""
    return float(right.var(ddof=1) * (1 / num - 1 / len(right)))


def filled_in(score: Array) -> Array:
    """Return scores with the mean where the judge has not judged."""
    return np.where(np.isnan(score), np.nanmean(score), score)


# -- data ------------------------------------------------------------------------------------------------


def read(folder: Path) -> tuple[Array, dict[str, Array]]:
    """Return the outcome of each audited answer (N,), and the scores (N,) of each judge."""
    files = sorted(folder.glob("**/evaluators/*/*/result.json"))
    verdicts = dict[str, list[tuple[str, str]]]()
    gold = dict[str, list[str]]()
    for file in files:
        name, rows = f"{file.parent.parent.name}/{file.parent.name}", json.loads(file.read_text())
        last = [row["results"][-1] for row in rows]
        verdicts.setdefault(name, []).extend(
            (str(own["swap = False"]["winner"]), str(own["swap = True"]["winner"]))
            if isinstance(own["swap = False"], dict)
            else (str(own["swap = False"]), str(own["swap = True"]))
            for own in last
        )
        gold.setdefault(name, []).extend(str(row["label"]) for row in rows)
    audited = [name for name in verdicts if name.split("/")[0] in AUDITED]
    said = np.array([first for name in audited for first, _ in verdicts[name]])
    truth = np.array([label for name in audited for label in gold[name]])
    judges = {}
    for name in (*THREE, WEAK):
        pairs = np.array(verdicts[name] * len(audited))
        judges[name] = (pairs == said[:, None]).mean(axis=1)
    return (said == truth).astype(np.float64), judges


def scenarios(judges: dict[str, Array]) -> dict[str, dict[str, Array]]:
    rng = np.random.default_rng(0)
    strong = judges[THREE[0]]
    partly = np.full(len(strong), np.nan)
    there = rng.choice(len(strong), JUDGED, replace=False)
    partly[there] = strong[there]
    return {
        "GPT-4": {"a": strong},
        "GPT-4 in three ways": {name: judges[name] for name in THREE},
        "GPT-4, partly": {"a": partly},
        "LLaMA 2": {"a": judges[WEAK]},
        "useless": {"a": rng.permutation(strong)},
    }


# -- methods ---------------------------------------------------------------------------------------------

Method = Callable[[Array, int, np.random.Generator], PeerEstimate]


def methods(judges: dict[str, Array]) -> list[tuple[str, Method]]:
    """Return the methods that can use some judges; where one has judged only a part, the others take its mean there."""
    table = np.column_stack([filled_in(own) for own in judges.values()])
    confidence = table.mean(axis=1)

    def peer(name: str) -> Method:
        return lambda right, num, rng: PEERS[name].estimate(Question(confidence, right), num, rng, LEVEL)

    def several(right: Array, num: int, rng: np.random.Generator) -> PeerEstimate:
        return multi_ppi(table, right, num, rng)

    pool = opacc.Pool([str(place) for place in range(len(table))], judges=judges)
    found = [("sample", sample), *((name, peer(name)) for name in OTHERS), ("multi-ppi++", several)]
    return [*found, ("neyman", lambda right, num, rng: neyman(pool, right, num, rng))]


def sample(right: Array, num: int, rng: np.random.Generator) -> PeerEstimate:
    index = rng.choice(len(right), num, replace=False)
    value = float(right[index].mean())
    return PeerEstimate(value, *wilson(value, num / (1 - num / len(right)), LEVEL), index)


def multi_ppi(table: Array, right: Array, num: int, rng: np.random.Generator) -> PeerEstimate:
    from scipy.stats import t

    index = rng.choice(len(right), num, replace=False)
    design = np.column_stack([np.ones(len(table)), table])
    slope = np.linalg.lstsq(design[index], right[index], rcond=None)[0]
    predicted = design @ slope
    error = right[index] - predicted[index]
    degrees = num - design.shape[1]
    spread = float(error @ error) / degrees / num + float(predicted.var()) / len(right)
    value = float(predicted.mean() + error.mean())
    half = float(t.ppf((1 + LEVEL) / 2, degrees)) * spread**0.5
    return PeerEstimate(value, value - half, value + half, index)


def neyman(
    pool: opacc.Pool, right: Array, num: int, rng: np.random.Generator, sample_of: int | None = None
) -> PeerEstimate:
    ends = np.rint(np.array([0.0, *ROUNDS]) * num).astype(int)
    rounds = list[opacc.Labelled]()
    for size in np.diff(ends).tolist():
        chosen = opacc.select(pool, "neyman", size, int(rng.integers(2**31)), previous=rounds)
        rounds.append(opacc.Labelled(chosen, outcomes=right[chosen.index]))
    found = opacc.estimate(rounds, level=LEVEL, pool=pool, sample_of=sample_of)
    return PeerEstimate(found.value, found.low, found.high, np.concatenate([own.selection.index for own in rounds]))


def part_alone(score: Array) -> Method:
    """Return an audit of a random part of the answers, which alone are judged, for all of them."""

    def audit(right: Array, num: int, rng: np.random.Generator) -> PeerEstimate:
        part = np.sort(rng.choice(len(right), JUDGED, replace=False))
        pool = opacc.Pool([str(place) for place in part], judges={"a": score[part]})
        return neyman(pool, right[part], num, rng, sample_of=len(right))

    return audit


def measure(method: Method, right: Array, num: int, repetitions: int) -> Measured:
    """Return mean width, coverage and E, and the width of intervals that cover just often enough."""
    true = float(right.mean())
    found = [method(right, num, np.random.default_rng([num, seed])) for seed in range(repetitions)]
    width = np.array([min(own.high, 1.0) - max(own.low, 0.0) for own in found])
    covered = [own.low <= true <= own.high for own in found]
    error = np.array([own.value - true for own in found])
    arm = np.array([max(own.value - own.low if own.value > true else own.high - own.value, 1e-9) for own in found])
    at_least = float(np.quantile(np.abs(error) / arm, LEAST_COVER) * width.mean())
    return Measured(
        float(width.mean()), float(np.mean(covered)), float((error**2).mean() / srs_variance(right, num)), at_least
    )


if __name__ == "__main__":
    main()
