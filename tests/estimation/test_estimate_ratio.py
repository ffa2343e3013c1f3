"""Ratios of totals: their definition on labelled pools, unbiased to first order, covered, and refused where wrong."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.samplers.select import select


def images(seed: int, size: int = 800) -> tuple[opacc.Pool, dict[str, dict[str, float]]]:
    """Objects and hits of images, which are alike within an image."""
    rng = np.random.default_rng(seed)
    objects, quality = rng.poisson(rng.gamma(1.5, 2.5, size)), rng.beta(6, 1, size)
    tp = rng.binomial(objects, quality)
    fp = rng.poisson(0.5, size)
    ids = [f"i{k}" for k in range(size)]
    counts = {id: {"tp": t, "fn": o - t, "fp": f} for id, o, t, f in zip(ids, objects, tp, fp, strict=True)}
    return opacc.Pool(ids=ids, confidence=np.clip(quality, 0.01, 0.99)), counts


F1 = ({"tp": 2}, {"tp": 2, "fp": 1, "fn": 1})


def exact(counts: dict[str, dict[str, float]], top: dict[str, float], bottom: dict[str, float]) -> float:
    sums = [sum(k * row[name] for row in counts.values() for name, k in side.items()) for side in (top, bottom)]
    return sums[0] / sums[1]


@pytest.mark.parametrize(
    ("ratio", "top", "bottom"),
    [
        ("tp / (tp + fn)", {"tp": 1}, {"tp": 1, "fn": 1}),
        ("2 tp/(2*tp+fp+fn)", {"tp": 2}, {"tp": 2, "fp": 1, "fn": 1}),
        ("fp / tp", {"fp": 1}, {"tp": 1}),
    ],
)
def test_with_all_labels_it_is_the_ratio_itself(ratio: str, top: dict, bottom: dict) -> None:
    pool, counts = images(1, 60)
    found = opacc.estimate_ratio(opacc.select(pool, "srs", 60), counts, ratio)
    assert (found.value, found.low, found.high) == pytest.approx([exact(counts, top, bottom)] * 3)
    assert found.n == 60


@pytest.mark.slow
def test_over_all_samples_it_is_nearly_unbiased_and_so_is_its_variance() -> None:
    pool, counts = images(2, 14)
    values, variances = [], []
    base = opacc.select(pool, "srs", 10)
    kept = {own: getattr(base, own) for own in ("method", "parameters", "seed", "pool_size", "design")}
    for chosen in combinations(range(14), 10):
        own = opacc.Selection(index=np.array(chosen), ids=tuple(f"i{k}" for k in chosen), **kept)
        found = opacc.estimate_ratio(own, counts, "tp / (tp + fn)")
        values.append(found.value)
        variances.append(found.standard_error**2)
    assert np.mean(values) == pytest.approx(exact(counts, {"tp": 1}, {"tp": 1, "fn": 1}), abs=0.2 * np.std(values))
    assert np.mean(variances) == pytest.approx(np.var(values), rel=0.3)


@pytest.mark.parametrize("method", ["srs", "neyman"])
@pytest.mark.parametrize("ratio", ["tp / (tp + fn)", "2 tp / (2 tp + fp + fn)"])
def test_the_interval_covers(method: str, ratio: str) -> None:
    pool, counts = images(3)
    true = exact(counts, *(({"tp": 1}, {"tp": 1, "fn": 1}) if "2" not in ratio else F1))
    found = [opacc.estimate_ratio(opacc.select(pool, method, 50, seed), counts, ratio) for seed in range(60)]
    assert np.mean([one.low <= true <= one.high for one in found]) >= 0.93
    assert all(one.low <= one.value <= one.high and one.design_based for one in found)


def test_a_ratio_to_few_says_so() -> None:
    pool, counts = images(3)
    found = opacc.estimate_ratio(opacc.select(pool, "srs", 30), counts, "fn / fp")
    assert "little is counted below the line" in found.reason
    assert not found.design_based


def test_a_file_has_the_counts_and_rounds_are_combined(tmp_path: Path) -> None:
    pool, counts = images(5, 200)
    file = tmp_path / "counts.csv"
    file.write_text("id,tp,fp,fn\n" + "".join(f"{id},{c['tp']},{c['fp']},{c['fn']}\n" for id, c in counts.items()))
    first = opacc.select(pool, "srs", 40)
    second = select(pool, "srs", 40, previous=[(first, np.ones(40))])
    by_file = opacc.estimate_ratio([first, second], file, "tp / (tp + fp)")
    assert by_file == opacc.estimate_ratio([first, second], counts, "tp / (tp + fp)")
    assert by_file.n == 80


@pytest.mark.parametrize(
    ("ratio", "change", "kind", "told"),
    [
        ("tp", {}, SpecError, "give two sums of names"),
        ("tp / (tp - fn)", {}, SpecError, "is no sum of names"),
        ("tp / words", {}, LabelError, 'has no count "words"; it has tp, fn, fp'),
        ("tp / (tp + fn)", {"tp": -1}, LabelError, "has tp=-1; give a number of at least 0"),
        ("tp / (tp + fn)", {"tp": "x"}, LabelError, 'has tp="x"'),
        ("tp / none", {"none": 0}, LabelError, "all counts below the line are 0"),
    ],
)
def test_what_cannot_be_counted_is_refused(ratio: str, change: dict, kind: type[Exception], told: str) -> None:
    pool, counts = images(6, 30)
    chosen = opacc.select(pool, "srs", 5)
    with pytest.raises(kind) as caught:
        opacc.estimate_ratio(chosen, {id: row | change for id, row in counts.items()}, ratio)
    assert told in str(caught.value)


def test_examples_without_counts_are_named(tmp_path: Path) -> None:
    pool, counts = images(7, 30)
    chosen = opacc.select(pool, "srs", 5)
    with pytest.raises(LabelError, match="1 chosen example without counts"):
        opacc.estimate_ratio(chosen, {id: counts[id] for id in chosen.ids[1:]}, "tp / (tp + fn)")
    (tmp_path / "a.csv").write_text("name,tp\nx,1\n")
    with pytest.raises(LabelError, match="has no column id; it has name, tp"):
        opacc.estimate_ratio(chosen, tmp_path / "a.csv", "tp / tp")
