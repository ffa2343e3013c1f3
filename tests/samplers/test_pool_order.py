"""A pool that comes back in another order than at `select` is refused, whether it has ids or not."""

from pathlib import Path

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import DataError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.samplers.select import content_of

N = 1000
RNG = np.random.default_rng(8)
CONFIDENCE = RNG.uniform(0.3, 1, N)
OUTCOME = (RNG.random(N) < CONFIDENCE).astype(float)
HIDDEN = RNG.normal(size=(N, 20)).astype(np.float32)
ORDER = RNG.permutation(N)
MESSAGE = "has the same values of .* in another order: give the examples in the order used in select, or give both"


def pool(order: np.ndarray | slice = slice(None), *names: str) -> opacc.Pool:
    features: dict[str, np.ndarray] = {"confidence": CONFIDENCE, "prediction": np.arange(N) % 3, "hidden": HIDDEN}
    return opacc.Pool(**{name: features[name][order] for name in names or ("confidence", "prediction")})


@pytest.fixture
def selection(tmp_path: Path) -> opacc.Selection:
    """As it comes back from its file."""
    opacc.select(pool(), "neyman", 60, seed=1, combine="labels").save(tmp_path / "selection.json")
    return opacc.Selection.load(tmp_path / "selection.json")


@pytest.mark.parametrize("order", [ORDER, np.arange(N)[::-1], np.roll(np.arange(N), 1)])
@pytest.mark.parametrize("names", [("confidence",), ("confidence", "prediction"), ("confidence", "hidden")])
def test_another_order_is_refused_by_estimate(
    selection: opacc.Selection, order: np.ndarray, names: tuple[str, ...]
) -> None:
    outcome = OUTCOME[selection.index]
    estimate_outcomes(selection, outcome, pool=pool(slice(None), *names))
    with pytest.raises(DataError, match=f"the pool {MESSAGE}"):
        estimate_outcomes(selection, outcome, pool=pool(order, *names))


def test_a_prediction_in_another_order_is_refused() -> None:
    chosen = opacc.select(pool(), "srs", 60)
    estimate_outcomes(chosen, OUTCOME[chosen.index], prediction=CONFIDENCE)
    estimate_outcomes(chosen, OUTCOME[chosen.index], prediction=1 - CONFIDENCE)
    with pytest.raises(DataError, match=f"the prediction {MESSAGE}"):
        estimate_outcomes(chosen, OUTCOME[chosen.index], prediction=CONFIDENCE[ORDER])


def test_a_pool_of_layers_alone_is_known_by_them() -> None:
    chosen = opacc.select(pool(slice(None), "hidden"), "ces", 40)
    estimate_outcomes(chosen, OUTCOME[chosen.index], pool=pool(slice(None), "hidden"))
    with pytest.raises(DataError, match=MESSAGE):
        estimate_outcomes(chosen, OUTCOME[chosen.index], pool=pool(ORDER, "hidden"))


def test_the_same_numbers_in_another_type_and_cut_are_the_same_pool(tmp_path: Path) -> None:
    single = opacc.Pool(confidence=CONFIDENCE.astype(np.float32))
    double = opacc.Pool(confidence=CONFIDENCE.astype(np.float32).astype(np.float64))
    parts = [opacc.Pool(confidence=part) for part in np.array_split(single.confidence, 7)]  # type: ignore[arg-type]
    contents = [content_of(view) for view in (view_of(single), view_of(double), View(LocalParts(parts)))]
    assert contents[0] == contents[1] == contents[2]
    chosen = opacc.select(single, "srs", 30)
    chosen.save(tmp_path / "one.json")
    again = opacc.Selection.load(tmp_path / "one.json")
    assert again.contents == chosen.contents
    with pytest.raises(DataError, match=MESSAGE):
        estimate_outcomes(again, OUTCOME[again.index], pool=opacc.Pool(confidence=single.confidence[::-1]))  # type: ignore[index]


@pytest.mark.parametrize("contents", [3, [1], [{"confidence": ["a"]}], {"confidence": "ab"}])
def test_damaged_digests_are_refused(selection: opacc.Selection, contents: object) -> None:
    with pytest.raises(DataError, match="contents is"):
        opacc.Selection.from_dict(selection.to_dict() | {"contents": contents})
