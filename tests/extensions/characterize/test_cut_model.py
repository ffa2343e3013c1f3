"""A model cut at a layer: its maps, the rest of the network on them, and layers that do not determine the outputs."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_nets
import torch

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.characterize.cut_model import CutModel, check_cut
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import Spec, parse_spec, plan_pool

IMAGES = np.random.default_rng(3).integers(0, 256, (11, 8, 8), dtype=np.uint8)
INPUTS = IMAGES[:, None].astype(np.float32) / 255


def spec_of(factory: str = "small_nets:convolutional", home: str = "nowhere", **model: Any) -> Spec:
    content = {
        "name": "cut",
        "pool": {"uri": home, "format": "npy"},
        "model": {"factory": factory, **model},
        "extract": {"batch_size": 4},
        "sample": {"method": "srs", "budget": 5},
        "output": "nowhere",
    }
    return parse_spec(content, "cut")


def by_hand(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maps of the second convolution, before its ReLU, and the outputs."""
    net = small_nets.convolutional()
    with torch.no_grad():
        given = torch.from_numpy(inputs)
        return net.second(torch.relu(net.first(given))).numpy(), net(given).numpy()


def test_the_maps_of_a_convolution_are_whole_and_the_rest_of_the_network_gives_the_outputs_of_the_model() -> None:
    maps, output = by_hand(INPUTS)
    model = CutModel(spec_of(), "second")
    assert model.run(INPUTS) == pytest.approx(output, abs=1e-6)
    found, shape = model.maps()
    assert shape == maps.shape[1:] == (3, 6, 6)
    assert found == pytest.approx(maps.reshape(11, -1), abs=1e-6)  # the ReLU after it works in place
    assert found.min() < 0
    other = np.zeros_like(INPUTS)
    kept = found.copy()
    assert model.run(other, found) == pytest.approx(output, abs=1e-6)
    assert np.array_equal(found, kept)
    assert np.abs(model.run(other) - output).max() > 0.01


def test_without_a_layer_what_the_last_linear_layer_gets_is_replaced() -> None:
    model = CutModel(spec_of(), None)

    def num_hooks() -> int:
        return sum(len(part._forward_pre_hooks) for part in model._model.module.modules())

    before = num_hooks()
    output = model.run(INPUTS)
    maps, shape = model.maps()
    net = small_nets.convolutional()
    assert shape == (5,)
    assert maps @ net.last.weight.detach().numpy().T + net.last.bias.detach().numpy() == pytest.approx(output, abs=1e-5)
    assert model.run(np.zeros_like(INPUTS), maps) == pytest.approx(output, abs=1e-6)
    assert num_hooks() == before + 1  # those of the search are gone
    deep = CutModel(spec_of("small_nets:deep"), None)
    output = deep.run(INPUTS)
    assert deep.maps()[1] == (5,)
    assert deep.run(np.zeros_like(INPUTS), deep.maps()[0]) == pytest.approx(output, abs=1e-6)
    named = CutModel(spec_of(hidden_layer="second"), None)
    named.run(INPUTS)
    assert named.maps()[1] == (3, 6, 6)


@pytest.mark.parametrize(
    ("factory", "layer", "fits"),
    [
        ("small_nets:convolutional", "second", True),
        ("small_nets:residual", "middle", False),  # the input goes around it
        ("small_nets:residual", "block", True),
        ("small_nets:random", "first", False),
    ],
)
def test_a_layer_that_does_not_determine_the_outputs_is_refused(factory: str, layer: str, fits: bool) -> None:
    model = CutModel(spec_of(factory), layer)
    output = model.run(INPUTS)
    rest = model.run(np.repeat(INPUTS[:1], 11, axis=0), model.maps()[0])
    if fits:
        check_cut(output, rest, layer)
        return
    with pytest.raises(DataError, match=f"depend on more than its layer '{layer}', such as a connection around it"):
        check_cut(output, rest, layer)


def test_outputs_may_differ_by_rounding_alone() -> None:
    output = np.array([[0.0, 2.0], [2.0, 0.0]], dtype=np.float32)  # of standard deviation 1
    check_cut(output, output + np.float32(0.9e-3), None)
    check_cut(np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32), None)  # a model of constant outputs
    for other in (output + np.float32(1.1e-3), output * np.float32(np.nan)):
        with pytest.raises(DataError, match="depend on more than what its last Linear layer gets"):
            check_cut(output, other, None)


def test_layers_that_are_not_there_not_called_or_no_tensors_are_refused() -> None:
    with pytest.raises(SpecError, match="--layer third: the model has no such layer; it has first, second, "):
        CutModel(spec_of(), "third")
    model = CutModel(spec_of(), "idle")
    model.run(INPUTS)
    with pytest.raises(DataError, match="the model does not call the layer 'idle'; name one that it calls"):
        model.maps()
    with pytest.raises(DataError, match="the layer 'recurrent' returns a tuple, not a tensor; name one of its parts"):
        CutModel(spec_of("small_nets:recurrent"), "recurrent").run(INPUTS)


def test_modules_of_the_user_are_found_in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets_of_a_user.py").write_text("from small_nets import residual\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    network = CutModel(spec_of("nets_of_a_user:residual"), "block", str(tmp_path))
    assert network.rest((np.zeros((11, 64), np.float32), INPUTS[:1])).shape == (11, 4)


def test_a_network_records_chosen_examples_judges_maps(tmp_path: Path) -> None:
    sink = io.BytesIO()
    np.save(sink, IMAGES)
    open_store(f"{tmp_path}/pool").write("rows.npy", sink.getvalue())
    spec = spec_of(home=f"{tmp_path}/pool")
    network = CutModel(spec, "second", str(tmp_path))
    shard = plan_pool(spec.pool, spec.extract).shards[0]
    rows = [9, 2, 3, 4, 10, 0]  # more than a batch
    found = network.record((spec.pool, shard, tuple(f"rows.npy:{row}" for row in rows)))
    maps, output = by_hand(INPUTS[rows])
    assert np.array_equal(np.stack(found.arrays), IMAGES[rows])
    assert found.shape == (3, 6, 6)
    assert found.maps == pytest.approx(maps.reshape(6, -1), abs=1e-6)
    assert found.output == pytest.approx(output, abs=1e-6)
    assert np.array_equal(found.inputs, INPUTS[[9]])
    assert network.rest((found.maps, found.inputs)) == pytest.approx(output, abs=1e-6)
    with pytest.raises(DataError, match=r"example 'rows\.npy:77' of .* cannot be read now; restore it"):
        network.record((spec.pool, shard, ("rows.npy:1", "rows.npy:77")))
