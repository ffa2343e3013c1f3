"""The head that is recovered, and vectors that lie where they are asked to, in asked numbers, judged by the rules."""

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from features_run import write_features

from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.characterize import generation
from opacc_ray.extensions.characterize.classes import Clusters, Grouped, Regions, find_clusters
from opacc_ray.extensions.characterize.generation import (
    STEPS,
    Head,
    Sources,
    Vectors,
    find_head,
    find_sources,
    generate,
    in_region,
)
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.pool import Pool

RNG = np.random.default_rng(0)
WEIGHT, BIAS = RNG.normal(size=(6, 4)) + 2 * np.eye(6, 4), RNG.normal(size=4) / 4


def features(num: int, seed: int = 1) -> dict[str, np.ndarray]:
    """A hidden layer after a ReLU, one neuron of it dead, and outputs that are linear in it."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 4, num)
    hidden = np.maximum(1.5 * np.eye(6)[:4][label] + rng.normal(size=(num, 6)), 0).astype(np.float32)
    hidden[:, 5] = 0
    output = (hidden @ WEIGHT + BIAS).astype(np.float32)
    confidence = 1 / np.exp(output - output.max(1, keepdims=True)).sum(1)
    said = {"prediction": output.argmax(1), "confidence": confidence.astype(np.float64)}
    return {"hidden": hidden, "output": output, "label": label} | said


def grouped(num: int, *, labelled: bool = False) -> Grouped:
    columns = features(num)
    label = columns.pop("label")
    half = num // 2
    parts = [Pool(**{key: v[cut] for key, v in columns.items()}) for cut in (slice(0, half), slice(half, None))]
    return Grouped(View(LocalParts(parts)), 4, label if labelled else None)


def head_of(data: Grouped) -> Head:
    return find_head(data.view, data.num_classes, seed=0)


def test_the_last_layer_is_recovered_from_features_alone() -> None:
    columns = features(2000)
    found = head_of(grouped(2000))
    assert found.agreement == 1
    expected = np.exp(columns["output"].astype(float))
    expected /= expected.sum(1, keepdims=True)
    assert found.probabilities(columns["hidden"]) == pytest.approx(expected, abs=1e-5)
    pool = Pool(hidden=columns["hidden"], output=expected, prediction=columns["prediction"])
    found = find_head(view_of(pool), 4, probabilities=True, seed=0)
    assert found.probabilities(columns["hidden"]) == pytest.approx(expected, abs=1e-5)


def test_dependent_neurons_share_their_weight_and_outputs_of_other_classes_are_not_linear() -> None:
    columns = features(2000)
    columns["hidden"][:, 5] = 3 * columns["hidden"][:, 4]
    pool = Pool(**{name: columns[name] for name in ("hidden", "output", "prediction")})
    found = find_head(view_of(pool), 4, seed=0)
    assert found.weight[5] == pytest.approx(3 * found.weight[4], rel=1e-3)
    pool.output = np.zeros((2000, 4))  # a model that is always as unsure is linear as well
    find_head(view_of(pool), 4, seed=0)
    for output in (np.column_stack([columns["output"], columns["output"][:, :1]]), columns["output"] ** 3, None):
        pool.output = output
        with pytest.raises(DataError, match="its outputs are not stored or not linear in its hidden layer"):
            find_head(view_of(pool), 4, seed=0)


@pytest.mark.parametrize(("noise", "linear"), [(0.8e-3, True), (1.2e-3, False)])
def test_outputs_are_linear_by_their_spread_not_by_their_mean(noise: float, linear: bool) -> None:
    """A thousandth of the spread may be unexplained, whatever the bias."""
    columns, rng = features(2000), np.random.default_rng(0)
    centred = columns["output"] - columns["output"].mean(axis=1, keepdims=True)
    least = centred.std(axis=0).min() / np.sqrt(1 - 1 / 4)  # noise loses a quarter by the mean over classes
    output = columns["output"] + np.float64([9, -9, 9, -9])
    output = output + noise * least * rng.normal(size=output.shape)
    pool = Pool(hidden=columns["hidden"], output=output, prediction=columns["prediction"])
    with nullcontext() if linear else pytest.raises(DataError, match="not linear"):
        find_head(view_of(pool), 4, seed=0)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_every_vector_lies_in_its_region_and_shares_and_classes_are_as_asked(share: float) -> None:
    data, regions = grouped(3000, labelled=True), Regions(high=0.6)
    head, clusters = head_of(data), find_clusters(data)
    sources = find_sources(data, head, clusters, regions, np.random.default_rng(1))
    made = generate(sources, head, clusters, regions, share, 200, np.random.default_rng(2))
    assert made.near_centroid.sum() == 200 * share
    assert np.abs(np.bincount(made.label, minlength=4) - 50).max() <= 1
    assert in_region(made, clusters, regions).all()
    near = made.near_centroid
    away = np.linalg.norm(made.hidden - clusters.centroid[made.label], axis=1)
    within = away[near] / (0.5 * clusters.reach[made.label[near]])
    assert (within <= 1).all()
    assert share == 0 or (within.min() < 0.2 and within.max() > 0.8)  # anywhere within the radius
    assert (head.probabilities(made.hidden[~near]).max(axis=1) <= 0.6).all()
    assert made.hidden.min() >= 0  # as a ReLU leaves it
    assert np.array_equal(made.label, data.classes()[made.source])
    assert (made.step != 0).all()


def test_accuracy_falls_towards_the_boundaries() -> None:
    data, regions = grouped(3000, labelled=True), Regions()
    head, clusters = head_of(data), find_clusters(data)
    rng = np.random.default_rng(5)
    sources = find_sources(data, head, clusters, regions, rng)
    right = [
        generate(sources, head, clusters, regions, share, 1000, rng).correct.mean() for share in (0, 0.3, 0.5, 0.7, 1)
    ]
    assert right == sorted(right)
    assert right[-1] - right[0] > 0.3


def test_a_head_that_breaks_the_rules_is_found_out() -> None:
    """Two classes on a line: the head sees class 1 on the left, where class 0 is."""
    hidden = np.array([[-1.0], [-0.2], [0.2], [1.0]], dtype=np.float32)
    data = Grouped(view_of(Pool(hidden=hidden, prediction=[0, 0, 1, 1])), 2)
    clusters, regions = find_clusters(data), Regions()
    sources = Sources(np.arange(4), hidden, np.array([0, 0, 1, 1]), np.array([], dtype=np.int64), False)
    upright = Head(np.array([[-1.0, 1.0]]), np.zeros(2), 1.0)
    reversed_ = upright._replace(weight=-upright.weight)
    kept = generate(sources, upright, clusters, regions, 0.5, 40, np.random.default_rng(0))
    broken = generate(sources, reversed_, clusters, regions, 0.5, 40, np.random.default_rng(0))
    assert kept.violates.mean() < 0.5 < broken.violates.mean()
    assert not broken.correct[broken.near_centroid].any()


def on_a_line(slopes: list[float], starts: list[float]) -> Head:
    """Outputs start + slope · h of one neuron h."""
    return Head(np.array([slopes]), np.array(starts), 1.0)


def from_zero(centroids: list[float]) -> tuple[Sources, Clusters]:
    """Examples of class 0 at h = 0, and clusters with a reach of 1 around the centroids of the classes."""
    sources = Sources(
        np.arange(3), np.zeros((3, 1), np.float32), np.zeros(3, np.int64), np.array([], dtype=np.int64), False
    )
    num = len(centroids)
    return sources, Clusters(np.full(num, 9), np.array(centroids)[:, None], np.ones(num))


@pytest.mark.parametrize(("slope", "breaks"), [(1.0, True), (-1.0, False)])
def test_towards_its_centroid_a_class_that_was_wrongly_predicted_must_not_rise(slope: float, breaks: bool) -> None:
    """Class 1 is predicted, wrongly. Class 0 gains by the move; class 1 gains as well, from class 2, or loses."""
    sources, clusters = from_zero([1.0, 5.0, 9.0])
    head = on_a_line([1.0, slope, -5.0], [0.0, 0.5, 0.4])
    made = generate(sources, head, clusters, Regions(), 1.0, 50, np.random.default_rng(0))
    before, after = (head.probabilities(rows) for rows in (np.zeros((50, 1)), made.hidden))
    assert (after[:, 0] > before[:, 0]).all()
    assert (before.argmax(axis=1) == 1).all()
    assert (made.violates == breaks).all()


def test_towards_another_centroid_its_class_must_not_fall() -> None:
    """Towards class 1 both class 0 and class 1 lose, to class 2."""
    sources, clusters = from_zero([0.0, 1.0, 9.0])
    head = on_a_line([-1.0, -0.5, 4.0], [1.0, 0.9, -1.0])
    made = generate(sources, head, clusters, Regions(high=1.0), 0.0, 200, np.random.default_rng(0))
    assert (made.towards == 1).all()
    forward = made.step > 0
    assert 0 < forward.sum() < 200
    change = head.probabilities(made.hidden) - head.probabilities(np.zeros((1, 1)))
    assert (change[forward, :2] < 0).all()
    assert made.violates[forward].all()
    right = ((change[:, 0] >= 0) & (change[:, 1] <= 0)) | forward
    assert (made.violates[~forward] == ~right[~forward]).all()


def test_a_class_without_examples_has_no_centroid_to_move_to() -> None:
    """Class 1 is the strongest other one, and the judge knows no example of it."""
    sources, clusters = from_zero([0.0, np.nan, 1.0, 9.0])
    head = on_a_line([-1.0, 0.0, 1.0, -9.0], [0.5, 0.4, 0.3, 0.0])
    made = generate(sources, head, clusters, Regions(), 0.0, 20, np.random.default_rng(0))
    assert (made.towards == 2).all()


def test_the_radius_of_a_class_is_lessened_by_the_rounding_of_its_own_features() -> None:
    clusters = Clusters(np.full(2, 9), np.array([[2.0, 0.0], [0.0, -1e7]]), np.ones(2))
    assert generation.inner_radius(clusters, Regions()) == pytest.approx([0.5, 0.5 - 10], abs=1e-5)


def test_an_example_near_a_boundary_is_moved_half_of_the_way_at_most_and_another_further() -> None:
    sources, clusters = from_zero([-1.0, 1.0])
    head = on_a_line([-1.0, 1.0], [0.2, 0.0])
    near = generate(sources, head, clusters, Regions(high=1.0), 0.0, 2000, np.random.default_rng(0))
    assert (near.step.min(), near.step.max()) == (-0.5, 0.5)
    far = generate(sources, head, clusters, Regions(low=0.7, high=1.0), 0.0, 400, np.random.default_rng(0))
    assert far.step.max() > 0.9
    certain = on_a_line([-1.0, 1.0], [2.2, 0.0])  # 0.90 at first, and 0.7 after two thirds of the way
    assert generate(sources, certain, clusters, Regions(), 0.0, 50, np.random.default_rng(0)).step.min() > 0.6


class Counting:
    """A judge that counts the vectors that it gets."""

    def __init__(self, head: Head) -> None:
        self.head, self.rows = head, 0

    def probabilities(self, hidden: np.ndarray) -> np.ndarray:
        self.rows += len(hidden)
        return self.head.probabilities(hidden)


def test_no_more_lines_are_judged_than_vectors_need_and_all_if_one_alone_leads_into_the_region() -> None:
    start = np.full((50, 1), -40.0, np.float32)  # so far that even at its end the class is certain
    start[17] = 0
    none = np.array([], dtype=np.int64)
    sources = Sources(np.arange(50), start, np.zeros(50, np.int64), none, False)
    clusters = Clusters(np.full(2, 9), np.array([[-30.0], [-20.0]]), np.ones(2))
    judge = Counting(on_a_line([-1.0, 1.0], [0.0, 0.0]))
    for seed in range(5):
        made = generate(sources, judge, clusters, Regions(), 0.0, 2, np.random.default_rng(seed))
        assert (made.source == 17).all()
        assert (made.confidence <= 0.7).all()
    near = sources._replace(hidden=np.zeros((50, 1), np.float32))
    judge.rows = 0
    made = generate(near, judge, clusters, Regions(), 0.0, 2, np.random.default_rng(0))
    assert judge.rows == 2 + 2 * len(STEPS) + 2 + 2  # both lines, their starts, and the vectors before and after
    assert len(set(made.source)) <= 2


def test_vectors_are_judged_in_blocks_of_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, clusters = from_zero([-1.0, 1.0])
    head = on_a_line([-1.0, 1.0], [0.2, 0.0])
    whole = generate(sources, head, clusters, Regions(high=1.0), 0.0, 9, np.random.default_rng(3))
    sizes = []

    class Noting:
        def probabilities(self, hidden: np.ndarray) -> np.ndarray:
            sizes.append(len(hidden))
            return head.probabilities(hidden)

    monkeypatch.setattr(generation, "AT_ONCE", 7)
    found = generate(sources, Noting(), clusters, Regions(high=1.0), 0.0, 9, np.random.default_rng(3))
    assert max(sizes[1:-2]) == 7
    assert np.array_equal(found.step, whole.step)


def test_a_region_that_no_line_leads_to_is_refused_with_its_class() -> None:
    sources, clusters = from_zero([-1.0, 1.0])
    head = on_a_line([-1.0, 1.0], [0.2, 0.0])
    with pytest.raises(DataError, match=r"no example of class 0 can be moved to a confidence in the range .* widen"):
        generate(sources, head, clusters, Regions(low=0.98, high=0.99), 0.0, 3, np.random.default_rng(0))


def test_a_change_below_the_rounding_of_a_network_breaks_no_rule() -> None:
    """The wrongly predicted class gains by less than 1e-5, or by more."""
    before = np.array([[0.3, 0.5, 0.2]])
    for change, breaks in [(0.9e-5, False), (1.1e-5, True)]:
        after = before + np.array([0.1, change, -0.1 - change])
        zeros, near = np.zeros(1, np.int64), np.ones(1, bool)
        assert generation._violations(before, after, zeros, zeros, near, np.ones(1))[0] == breaks
        less = before + np.array([-change, 0, change])
        assert generation._violations(before, less, zeros, zeros, near, np.ones(1))[0] == breaks
        for ahead in (1.0, -1.0):
            for moved in ([ahead * change, 0.0, 0.0], [0.0, -ahead * change, 0.0]):
                after = before + np.array(moved)
                found = generation._violations(before, after, zeros, zeros + 1, ~near, np.full(1, ahead))
                assert found[0] == breaks


def test_a_vector_at_the_edge_of_its_region_is_inside_up_to_rounding() -> None:
    clusters = Clusters(np.full(2, 9), np.zeros((2, 1)), np.ones(2))
    for confidence, inside in [
        (0.2 - 0.9e-5, True),
        (0.2 - 1.1e-5, False),
        (0.7 + 0.9e-5, True),
        (0.7 + 1.1e-5, False),
    ]:
        one = np.zeros(1, np.int64)
        made = Vectors(np.zeros((1, 1), np.float32), one, one > 0, one, one, one * 0.5, one, one + confidence, one > 0)
        assert in_region(made, clusters, Regions(low=0.2))[0] == inside
        near = made._replace(near_centroid=one == 0, hidden=np.full((1, 1), 0.5, np.float32))
        assert in_region(near, clusters, Regions(low=0.2))[0]
        assert not in_region(near._replace(hidden=np.full((1, 1), 0.51, np.float32)), clusters, Regions(low=0.2))[0]


def unbounded(num: int, seed: int) -> dict[str, np.ndarray]:
    """A layer without a ReLU: most features are above 0, some examples have one below."""
    rng = np.random.default_rng(seed)
    hidden = (1.4 + 1.2 * np.eye(6)[rng.integers(0, 4, num)] + 0.8 * rng.normal(size=(num, 6))).astype(np.float32)
    output = ((hidden - 1.4) @ WEIGHT).astype(np.float32)
    return {"hidden": hidden, "output": output, "prediction": output.argmax(1)}


@pytest.mark.slow
def test_vectors_of_a_layer_without_relu_stay_on_their_lines_whichever_examples_are_picked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = unbounded(3000, 1)
    run = write_features(f"{tmp_path}/signed-00000001", columns)
    centroid = np.array([columns["hidden"][columns["prediction"] == i].astype(float).mean(axis=0) for i in range(4)])
    below = 0
    for seed in range(12):
        shares = ["--shares", "0-100", "--shares", "100-0"]
        assert main(["generate", run.uri, *shares, "--count", "8", "--seed", f"{seed}", "--json"]) == 0
        for one in json.loads(capsys.readouterr().out)["sets"]:
            made = np.load(one["file"])
            start = columns["hidden"][made["source"]].astype(float)
            expected = start + made["step"][:, None] * (centroid[made["towards"]] - start)
            assert made["hidden"] == pytest.approx(expected, abs=1e-5)
            below += (expected < 0).sum()
    assert below > 0


def test_one_predicted_class_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = features(300)
    columns.pop("label")
    output = columns["output"] / 20 + np.float32([1, 0, 0, 0])  # never sure, and always of the first class
    assert (output.argmax(axis=1) == 0).all()
    same = columns | {"prediction": output.argmax(axis=1), "output": output}
    run = write_features(f"{tmp_path}/same-00000001", same, ["a", "b", "c", "d"])
    assert main(["generate", run.uri]) == 5
    said = capsys.readouterr().err
    assert (
        "all 300 examples belong to one class, but vectors are generated between classes; give a labelled --reference"
        in said
    )
    assert not (Path(run.uri) / "generated").exists()


def test_a_class_of_equal_examples_is_left_out_and_one_far_from_boundaries_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = features(1500)
    label, hidden = columns.pop("label"), columns["hidden"]
    hidden[label == 1] = hidden[label == 1][0]
    hidden[label == 3] = np.abs(hidden[label == 3]) + np.array([0, 0, 0, 30, 0, 0])
    columns["output"] = (hidden @ WEIGHT + BIAS).astype(np.float32)
    columns["prediction"] = columns["output"].argmax(1)
    columns["output"] = np.column_stack([columns["output"], np.full(1500, -50)]).astype(np.float32)  # never e
    run = write_features(f"{tmp_path}/equal-00000001", columns, ["a", "b", "c", "d", "e"])
    np.savez(tmp_path / "test.npz", **columns, label=label)
    asked = ["--shares", "100-0", "--reference", f"{tmp_path}/test.npz", "--json"]
    assert main(["generate", run.uri, *asked]) == 0
    said = json.loads(capsys.readouterr().out)["remarks"]
    assert "there is no vector for b, e, which has fewer than two different examples" in said
    assert "no example is near a boundary of d: those of least confidence are used instead" in said


def test_vectors_start_from_400_examples_near_a_boundary_at_most_or_the_20_of_least_confidence() -> None:
    """Class 0 has 900 examples near the boundary, class 1 has 30, and class 2 is far from all."""
    hidden = np.concatenate([np.linspace(0, 1, 900), np.linspace(0, 1, 30), np.linspace(5, 9, 50)])[:, None]
    label = np.repeat([0, 1, 2], [900, 30, 50])
    data = Grouped(view_of(Pool(hidden=hidden.astype(np.float32), prediction=label)), 3, label)
    head = on_a_line([0.0, 0.0, 3.0], [0.0, 0.0, -9.0])
    found = find_sources(data, head, find_clusters(data), Regions(), np.random.default_rng(0))
    assert np.bincount(found.label).tolist() == [400, 30, 20]
    assert found.far.tolist() == [2]
    assert sorted(found.example[found.label == 2]) == list(range(930, 950))  # the lowest h
    assert len(set(found.example.tolist())) == 450
    assert np.array_equal(found.hidden, hidden[found.example].astype(np.float32))
    assert found.rectified
    assert np.array_equal(np.round(100 * STEPS).astype(int), [*range(-50, 0), *range(1, 101)])


def test_of_equally_uncertain_examples_the_first_are_taken_and_without_different_ones_there_are_none() -> None:
    """The judge is certain of class 1 up to the last bit."""
    hidden = np.concatenate([np.linspace(0, 1, 40), np.linspace(500, 900, 50)])[:, None].astype(np.float32)
    label, head = np.repeat([0, 1], [40, 50]), on_a_line([0.0, 3.0], [0.0, -9.0])
    data = Grouped(view_of(Pool(hidden=hidden, prediction=label)), 2, label)
    found = find_sources(data, head, find_clusters(data), Regions(), np.random.default_rng(0))
    assert sorted(found.example[found.label == 1]) == list(range(40, 60))
    equal = Grouped(view_of(Pool(hidden=label[:, None].astype(np.float32), prediction=label)), 2, label)
    with pytest.raises(DataError, match=r"no class has two different examples, so no vectors .* a larger --reference"):
        find_sources(equal, head, find_clusters(equal), Regions(), np.random.default_rng(0))


@pytest.mark.parametrize(("least", "rectified"), [(0.0, True), (-0.1, False)])
def test_a_layer_is_rectified_if_no_part_has_a_negative_feature(least: float, rectified: bool) -> None:
    rows = np.arange(8, dtype=np.float32)[:, None]
    parts = [Pool(hidden=rows, prediction=np.arange(8) % 2), Pool(hidden=rows + least, prediction=np.arange(8) % 2)]
    data = Grouped(View(LocalParts(parts)), 2)
    head = on_a_line([0.0, 0.1], [0.0, 0.0])
    assert find_sources(data, head, find_clusters(data), Regions(), np.random.default_rng(0)).rectified == rectified


def test_a_class_with_one_example_is_left_out() -> None:
    columns = features(300)
    label = np.where(columns["label"] == 3, 2, columns["label"])
    label[7] = 3
    pool = view_of(Pool(hidden=columns["hidden"], output=columns["output"], prediction=columns["prediction"]))
    data = Grouped(pool, 4, label)
    head, clusters = find_head(pool, 4, seed=0), find_clusters(data)
    sources = find_sources(data, head, clusters, Regions(), np.random.default_rng(0))
    assert set(sources.label.tolist()) == {0, 1, 2}
    label = np.where(np.arange(300) == 7, 1, 0)  # one class, and one example of another to move towards
    data = Grouped(pool, 4, label)
    sources = find_sources(data, head, find_clusters(data), Regions(), np.random.default_rng(0))
    assert set(sources.label.tolist()) == {0}


def test_fewer_than_one_vector_is_refused() -> None:
    data = grouped(200)
    head = head_of(data)
    clusters = find_clusters(data)
    sources = find_sources(data, head, clusters, Regions(), np.random.default_rng(0))
    with pytest.raises(SpecError, match=r"0 vectors with a share of 0\.5"):
        generate(sources, head, clusters, Regions(), 0.5, 0, np.random.default_rng(0))
    assert len(generate(sources, head, clusters, Regions(), 0.5, 1, np.random.default_rng(0)).label) == 1


def test_the_command_writes_vectors_and_states_accuracy_by_share_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = features(1500)
    label = columns.pop("label")
    run = write_features(f"{tmp_path}/generated-00000001", columns, ["a", "b", "c", "d"])
    np.savez(tmp_path / "test.npz", **columns, label=label)
    asked = ["--shares", "0-100", "--shares", "100-0", "--count", "60", "--count", "200"]
    assert main(["generate", run.uri, *asked, "--reference", f"{tmp_path}/test.npz", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["head"], found["agreement"], found["labels"]) == ("last layer", 1.0, "label")
    assert [(item["shares"], item["count"]) for item in found["sets"]] == [
        ("0-100", 60),
        ("0-100", 200),
        ("100-0", 60),
        ("100-0", 200),
    ]
    boundary, centroid = found["sets"][1], found["sets"][3]
    assert boundary["accuracy"] < centroid["accuracy"]
    assert (boundary["near_centroid"], centroid["near_boundary"]) == (None, None)
    vectors = np.load(centroid["file"])
    assert vectors["hidden"].shape == (200, 6)
    assert (vectors["predicted"] == vectors["label"]).mean() == centroid["predicted"]
    assert main(["generate", run.uri, "--shares", "30-60"]) == 2
    assert "--shares 30-60: give percentages that sum to 100" in capsys.readouterr().err
    by_prediction = "the class of a vector is the prediction for its source example, which may be wrong"
    assert by_prediction not in found["remarks"]
    np.savez(tmp_path / "narrow.npz", **columns | {"hidden": columns["hidden"][:, :5]}, label=label)
    assert main(["generate", run.uri, *asked, "--reference", f"{tmp_path}/narrow.npz"]) == 5
    said = capsys.readouterr().err
    assert f"the hidden layer has 6 neurons in {run.uri} and 5 in {tmp_path}/narrow.npz; give a reference" in said
    share = np.exp(columns["output"]) / np.exp(columns["output"]).sum(axis=1, keepdims=True)
    other = columns | {"output": share}
    run = write_features(f"{tmp_path}/share-00000001", other, ["a", "b", "c", "d"], model={"output": "probabilities"})
    assert main(["generate", run.uri, "--shares", "100-0", "--count", "60", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["agreement"], by_prediction in found["remarks"]) == (1.0, True)
    angle = write_features(f"{tmp_path}/angle-00000001", {"prediction": np.arange(30.0)}, task="regression")
    assert main(["generate", angle.uri]) == 2
    assert "audits a regression model, but vectors are generated between classes" in capsys.readouterr().err
