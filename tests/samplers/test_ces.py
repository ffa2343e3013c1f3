"""CES: equal to a plain transcription of Algorithm 1, whatever the pool, the parts and the threads."""

import itertools
import re

import numpy as np
import pytest
from oracles import ces as reference

import opacc_ray as opacc
from opacc_ray.neurons.sections import Histogram, equal_width, part_codes, relative_entropy
from opacc_ray.parts import loops
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS, Task, ces
from opacc_ray.samplers.base import NO_PREVIOUS
from opacc_ray.samplers.select import select

FEW = {"initial": 6, "group": 3, "candidates": 12}


def _pools() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(90, 5))
    return {
        "normal": normal,
        "half zeros": np.maximum(normal, 0),
        "few values, many ties": rng.integers(0, 3, size=(90, 4)),
        "every example twice": np.repeat(rng.integers(0, 6, size=(45, 3)), 2, axis=0),
        "constant neurons": normal * [1, 0, 0, 1, 0],
        "equal neurons": normal[:, [0, 0, 1, 0]],
        "one neuron": normal[:, :1],
        "huge and tiny": normal * [1e38, 1e-44, 1, 1e-3, 1e30],
    }


def _reference(values: np.ndarray, budget: int | None, seed: int, **parameters) -> list[int]:
    return reference.select(values.astype(np.float32), budget, np.random.default_rng([seed, 1]), **parameters)


def _cut(pool: Pool, bounds: list[int]) -> View:
    return View(
        LocalParts([Pool(pool.ids[low:high], pool.hidden[low:high]) for low, high in itertools.pairwise(bounds)])
    )


@pytest.mark.parametrize("objective", ces.OBJECTIVES)
@pytest.mark.parametrize("kind", _pools())
class TestEqualsThePlainTranscription:
    def test_selection(self, kind: str, objective: str) -> None:
        values = _pools()[kind]
        chosen = opacc.select(Pool(hidden=values), "ces", 31, seed=7, objective=objective, **FEW)
        assert chosen.index.tolist() == _reference(values, 31, 7, objective=objective, **FEW)

    def test_parts_and_threads(self, kind: str, objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
        pool = Pool([str(i) for i in range(90)], _pools()[kind])
        whole = opacc.select(pool, "ces", 31, seed=7, objective=objective, **FEW)
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        monkeypatch.setattr(loops, "_VALUES_PER_THREAD", 1)
        for bounds in ([0, 90], [0, 1, 40, 41, 90]):
            cut = opacc.select(_cut(pool, bounds), "ces", 31, seed=7, objective=objective, **FEW)
            assert cut.to_dict() == whole.to_dict()


@pytest.mark.parametrize(
    "parameters",
    [
        {"sections": 2},
        {"sections": 255},
        {"group": 1},
        {"group": 7},  # of 90 free examples: a repeat within a group is likely
        {"candidates": 1},
        {"initial": 31},
        {"objective": "cross_entropy", "smoothing": 1e-13},
        {"objective": "cross_entropy", "smoothing": 0.5},
        {"stop_at_kl": 0.8},
    ],
)
def test_parameters_as_in_the_plain_transcription(parameters) -> None:
    values = _pools()["half zeros"]
    chosen = opacc.select(Pool(hidden=values), "ces", 31, seed=3, **FEW | parameters)
    assert chosen.index.tolist() == _reference(values, 31, 3, **FEW | parameters)


def test_the_defaults_as_in_the_plain_transcription() -> None:
    values = np.maximum(np.random.default_rng(5).normal(size=(400, 6)), 0)
    assert opacc.select(Pool(hidden=values), "ces", 42, seed=1).index.tolist() == _reference(values, 42, 1)


@pytest.mark.parametrize("layer", [("hidden", "output"), ["hidden", "output"]])
def test_two_layers_are_one_wide_layer(layer) -> None:
    values = _pools()["normal"]
    task = Task(24, ces.Parameters(layer=layer, **FEW), NO_PREVIOUS)
    apart, wide = Pool(hidden=values[:, :3], output=values[:, 3:]), Pool(hidden=values)
    assert METHODS["ces"].needs(task.parameters) == ("hidden", "output")
    rng = np.random.default_rng([4, 1])
    assert np.array_equal(
        ces.draw(view_of(apart), task, rng).chosen, opacc.select(wide, "ces", 24, seed=4, **FEW).index
    )


def test_the_output_layer_alone() -> None:
    values = _pools()["normal"]
    chosen = opacc.select(Pool(hidden=values[::-1], output=values), "ces", 24, layer="output", **FEW)
    assert chosen.index.tolist() == _reference(values, 24, 0, **FEW)


class TestLaterRounds:
    def test_examples_labelled_before_belong_to_the_sample(self) -> None:
        values, pool = _pools()["half zeros"], Pool(hidden=_pools()["half zeros"])
        first = opacc.select(pool, "ces", 4, seed=1, **FEW | {"initial": 4})
        second = select(pool, "ces", 11, seed=1, previous=[(first, np.ones(4))], **FEW)
        before = tuple(sorted(first.index.tolist()))
        rng = np.random.default_rng([1, 2])
        assert second.index.tolist() == reference.select(values.astype(np.float32), 11, rng, previous=before, **FEW)


def _objective(pool: Histogram, counts: np.ndarray, parameters: ces.Parameters) -> float:
    return ces._phi(counts, pool.share, int(counts[0].sum()), parameters).sum() / len(counts)


@pytest.mark.parametrize(
    ("objective", "by_hand"),
    [
        ("squared", (0 + 1 / 3**2 + 1 / 3**2 + 0) / 2),
        ("cross_entropy", -(np.log(2.5 / 5.5) * 2 / 3 + np.log(0.5 / 5.5) / 3 + np.log(4.5 / 5.5)) / 2),
        ("kl", (0 + 0 + np.log(3) / 2 + 0) / 2),
    ],
)
def test_hand_worked_objectives(objective: str, by_hand: float) -> None:
    pool = Histogram((), np.array([[3, 2, 1], [6, 0, 0]]))
    sample = np.array([[2, 0, 2], [4, 0, 0]])
    parameters = ces.Parameters(objective=objective, smoothing=0.5)
    assert _objective(pool, sample, parameters) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.slow
def test_estimates_vary_less_than_random_ones_and_have_no_bias() -> None:
    rng = np.random.default_rng(11)
    hidden = np.maximum(rng.normal(size=(800, 4)), 0)
    outcome = (rng.random(800) < np.where(hidden[:, 0] > 0.5, 0.4, 0.95)).astype(float)
    pool, n = Pool(hidden=hidden), 60
    error = [outcome[opacc.select(pool, "ces", n, seed=seed).index].mean() - outcome.mean() for seed in range(300)]
    random = outcome.var(ddof=1) * (1 / n - 1 / 800)  # variance of SRS
    assert np.mean(np.square(error)) < 0.85 * random
    assert abs(np.mean(error)) < 0.2 * random**0.5


class TestStopAtKL:
    def test_ends_at_the_first_group_below_alpha(self) -> None:
        values = np.maximum(np.random.default_rng(4).normal(size=(300, 4)), 0)
        pool = Pool(hidden=values)
        histogram = equal_width(view_of(pool), ["hidden"], 5)
        codes = view_of(pool).take(part_codes, np.arange(300), histogram.sections)
        longest = opacc.select(pool, "ces", 200, seed=2, sections=5).index
        sizes = range(30, 201, 5)
        kl = [relative_entropy(histogram.share, ces._count(codes[longest[:n]], 5)) for n in sizes]
        least = 2 + int(np.argmin(kl[2:9]))
        for alpha, place in [(kl[least], None), (np.nextafter(kl[least], 1), least), (0.3, None)]:
            place = place or next(k for k, value in enumerate(kl) if value < alpha)
            chosen = opacc.select(pool, "ces", seed=2, sections=5, stop_at_kl=float(alpha))
            assert np.array_equal(chosen.index, longest[: sizes[place]])
            assert chosen.facts["kl"] == kl[place] < alpha
        assert chosen.index.tolist() == _reference(values, None, 2, stop_at_kl=0.3, sections=5)

    def test_refuses_to_choose_all_that_is_left(self) -> None:
        message = r"stop_at_kl=1e-09 is only reached with all 90 unlabelled examples of the pool; .* or give a budget$"
        with pytest.raises(opacc.OpaccError, match=message):
            opacc.select(Pool(hidden=_pools()["normal"]), "ces", stop_at_kl=1e-9, **FEW)

    def test_says_that_earlier_rounds_reach_it_already(self) -> None:
        pool = Pool(hidden=_pools()["normal"])
        first = opacc.select(pool, "ces", 40)
        with pytest.raises(opacc.OpaccError, match="the 40 labelled examples already reach stop_at_kl=99"):
            select(pool, "ces", stop_at_kl=99.0, previous=[(first, np.ones(40))])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sections": 1}, "sections=1: give 2 to 255 sections"),
        ({"sections": 256}, "sections=256: give 2 to 255 sections"),
        ({"initial": 0}, "initial=0: give at least 1"),
        ({"group": 0}, "group=0: give at least 1"),
        ({"group": 256}, "group=256: give at most 255"),
        ({"candidates": 0}, "candidates=0: give at least 1"),
        ({"objective": "entropy"}, "objective='entropy': choose one of cross_entropy, kl, squared"),
        ({"smoothing": 0.0}, "smoothing=0.0: give a number above 0"),
        ({"smoothing": float("nan")}, "smoothing=nan: give a number above 0"),
        ({"layer": "conv1"}, "layer='conv1': give hidden, output, confidence, dsa or lsa, or a list of several"),
        (
            {"layer": ["dsa", "dsa"]},
            r"layer=\('dsa', 'dsa'\): give hidden, output, confidence, dsa or lsa, or a list of",
        ),
        ({"layer": []}, r"layer=\(\): give hidden, output, confidence"),
        ({"layer": 3}, r"layer=3: give hidden, output, confidence"),
        ({"stop_at_kl": 0.0}, "stop_at_kl=0.0: give a number above 0"),
        ({"stop_at_kl": float("nan")}, "stop_at_kl=nan: give a number above 0"),
        ({"stop_at_kl": "0.1"}, "stop_at_kl='0.1': give a number above 0"),
    ],
)
def test_refuses_parameters_in_one_sentence(parameters, message: str) -> None:
    with pytest.raises(opacc.OpaccError, match=f"^{message}") as caught:
        ces.Parameters(**parameters)
    assert not re.search(r"[.!?]\s", str(caught.value))


@pytest.mark.parametrize(
    ("pool", "given", "message"),
    [
        (Pool(confidence=np.ones(50)), {"budget": 40}, "method 'ces' needs hidden of every example"),
        (Pool(hidden=np.eye(50)), {"budget": 40, "layer": "output"}, "method 'ces' needs output of every example"),
        (Pool(hidden=np.eye(50)), {"budget": 29}, "budget=29 is below initial=30"),
        (Pool(hidden=np.eye(20)), {"stop_at_kl": 0.1}, "initial=30 uses all 20 unlabelled examples"),
        (Pool(hidden=np.eye(30)), {"stop_at_kl": 0.1}, "initial=30 uses all 30 unlabelled examples"),
        (Pool(hidden=np.ones((50, 3))), {"budget": 40}, "every neuron of hidden is constant"),
        (Pool(hidden=np.diag([1] * 49 + [np.nan])), {"budget": 40}, "hidden of example '49' holds NaN"),
    ],
)
def test_refuses_what_cannot_be_done_in_one_sentence(pool: Pool, given, message: str) -> None:
    with pytest.raises(opacc.OpaccError, match=f"^{message}") as caught:
        opacc.select(pool, "ces", **given)
    assert not re.search(r"[.!?]\s", str(caught.value))
