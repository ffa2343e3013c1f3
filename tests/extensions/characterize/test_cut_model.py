"""A model cut at a layer: its maps, the rest of the network on them, and vectors at the layer that it judges."""

import io
import json
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_nets
import torch
from extracting_here import extracting_here
from PIL import Image
from restored import Restored
from small_nets import convolutional
from small_pictures import picture

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.cluster import tasks
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.characterize import cut_model, generation
from opacc_ray.extensions.characterize.cut_model import CutModel, check_cut, choose_examples
from opacc_ray.extensions.characterize.generation import why_not_cut
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
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


# -- vectors that the layers judge ----------------------------------------------------------------------------------

NUM = 120


@contextmanager
def spread_here(make: Callable[[str], Any], extract: Any, most: int) -> Iterator[Any]:
    """Calls in this process, with what would travel pickled."""
    assert (most, type(most)) == (23, int)  # whole blocks of 256 in 6,000 examples: more actors would have no work
    own = pickle.loads(pickle.dumps(make))("cpu")

    def ask(method: str, items: Sequence[Any]) -> list[Any]:
        return [pickle.loads(pickle.dumps(getattr(own, method)(item))) for item in pickle.loads(pickle.dumps(items))]

    yield ask


@pytest.fixture
def no_actors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in this process, and torch on one thread: on a busy machine small networks mostly wait for the others."""
    monkeypatch.setattr(tasks, "spread", spread_here)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with extracting_here():
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    """A pool of pictures, and a run of it."""
    folder = Restored(tmp_path_factory.mktemp("cut") / "home")
    with extracting_here():
        make_run(folder.home)
    folder.keep("run")
    return folder


@pytest.fixture
def run(prepared: Restored) -> Run:
    [place] = (prepared.restore("run") / "runs").glob("pictures-*")
    return Run.open(str(place))


def make_run(home: Path, **model: Any) -> Run:
    open_store(f"{home}/pool").write_many((f"{i:03d}.png", picture(i)) for i in range(NUM))
    content = {
        "name": "pictures",
        "pool": {"uri": f"{home}/pool", "format": "images"},
        "model": {"factory": "small_nets:convolutional", "hidden_layer": "second"} | model,
        "transform": "small_pictures:to_input",
        "extract": {"shard_size": 50, "batch_size": 16},
        "sample": {"method": "srs", "budget": 10},
        "output": f"{home}/runs",
    }
    return verbs.first_round(parse_spec(content, "pictures"))


def asked(run: Run, *options: str) -> Any:
    return main(["generate", run.uri, "--shares", "50-50", "--count", "40", "--json", *options])


@pytest.mark.usefixtures("no_actors")
@pytest.mark.slow
def test_the_models_own_layers_judge_whole_maps(
    run: Run, prepared: Restored, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_model, "MOST_NUMBERS", 110 * 108 + 5)
    assert asked(run, "--pictures") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["head"], found["layer"], found["shape"]) == ("rest of the network", "second", [3, 6, 6])
    assert (found["agreement"], found["labels"]) == (1.0, "prediction")
    assert (found["pictures"]["images"], found["sources"] <= 110) == (110, True)
    made, net = np.load(found["sets"][0]["file"]), convolutional()
    with torch.no_grad():
        pool = torch.from_numpy(
            np.stack([np.asarray(Image.open(f"{prepared.home}/pool/{i:03d}.png")) for i in range(NUM)])
        )
        maps = net.second(torch.relu(net.first(pool[:, None] / 255)))
        given = torch.from_numpy(made["hidden"]).reshape(-1, 3, 6, 6)
        output = net.last(torch.tanh(net.middle(torch.relu(given).flatten(1))))
    assert np.array_equal(made["predicted"], output.argmax(1).numpy())
    assert made["confidence"] == pytest.approx(output.softmax(1).max(1).values.numpy(), abs=1e-5)
    assert made["hidden"].min() < 0  # before the ReLU
    flat, label = maps.flatten(1).double().numpy(), net(pool[:, None] / 255).argmax(1).numpy()
    read = np.sort(np.random.default_rng(0).choice(NUM, 110, replace=False))  # made["source"] are places in the pool
    assert made["source"].max() > 110
    assert set(made["source"]) <= set(read)
    means = [flat[read][label[read] == i] for i in range(4)]
    centroid = np.stack([own.mean(0) if len(own) else flat[0] for own in means])
    start = flat[made["source"]]
    moved = start + made["step"][:, None] * (centroid[made["towards"]] - start)
    assert made["hidden"] == pytest.approx(moved, abs=1e-4)

    near, right = made["near_centroid"], (made["predicted"] == made["label"]) & ~made["violates"]
    stated = found["sets"][0]
    assert (stated["near_centroid"], stated["near_boundary"]) == (right[near].mean(), right[~near].mean())
    assert (stated["accuracy"], stated["violations"]) == (right.mean(), made["violates"].mean())
    assert stated["predicted"] == (made["predicted"] == made["label"]).mean()


@pytest.mark.usefixtures("no_actors")
@pytest.mark.slow
def test_another_run_of_the_model_gives_the_examples_that_vectors_start_from(
    run: Run, prepared: Restored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_run(tmp_path / "other")
    capsys.readouterr()
    assert asked(run, "--reference", other.uri, "--layer", "middle") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["layer"], found["shape"]) == (other.uri, "middle", [5])
    assert asked(run, "--pictures") == 0
    found = json.loads(capsys.readouterr().out)
    assert Image.open(found["pictures"]["file"]).format == "PNG"
    assert found["pictures"]["images"] == NUM
    assert found["pictures"]["error"] < 0.6 * found["pictures"]["baseline"]
    assert json.loads((Path(run.uri) / "generated" / "generation.json").read_text()) == found
    assert main(["generate", run.uri, "--shares", "100-0", "--count", "8"]) == 0
    said = capsys.readouterr().out
    assert "judge     rest of the network after second, which agrees with the model on 100 % of the examples" in said
    (prepared.home / "pool" / "new.png").write_bytes(picture(1))
    assert asked(run) == 5
    assert "has changed since it was listed for the run; run the spec again" in capsys.readouterr().err


@pytest.mark.usefixtures("no_actors")
def test_examples_of_a_model_with_other_classes_and_vectors_outside_of_their_region_are_refused(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named, other = (make_run(tmp_path / name, classes=[*name]) for name in ("abcd", "abdc"))
    capsys.readouterr()
    assert asked(named, "--reference", other.uri) == 5
    said = capsys.readouterr().err
    assert f"the classes of {other.uri} are not those of {named.uri}: they differ from class 2 on" in said
    monkeypatch.setattr(generation, "in_region", lambda made, *_: np.arange(len(made.label)) > 2)
    assert asked(run) == 5
    assert "3 of 40 vectors do not lie in their region" in capsys.readouterr().err
    assert not (Path(run.uri) / "generated").exists()


def test_examples_are_chosen_at_random_and_named_by_their_shard() -> None:
    assert (cut_model.MOST_EXAMPLES, cut_model.MOST_NUMBERS) == (6000, 2**27)  # docs/characterize.md

    class Three:
        sizes = (3, 0, 5)

        def ids(self, part: int) -> list[str]:
            return [f"{part}-{row}" for row in range(self.sizes[part])]

    shards: Any = ["a", "b", "c"]
    every, chosen = choose_examples(Three(), shards, 20, 0)  # type: ignore[arg-type]
    assert every.tolist() == list(range(8))
    assert chosen == [("a", ("0-0", "0-1", "0-2")), ("c", ("2-0", "2-1", "2-2", "2-3", "2-4"))]
    some = [choose_examples(Three(), shards, 4, seed) for seed in range(20)]  # type: ignore[arg-type]
    assert {tuple(index) for index, _ in some} > {tuple(some[0][0])}
    for index, parts in some:
        assert [id for _, ids in parts for id in ids] == [f"0-{i}" if i < 3 else f"2-{i - 3}" for i in index]


@pytest.mark.usefixtures("no_actors")
@pytest.mark.slow
def test_a_model_that_cannot_be_run_has_no_layer(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "case.npz", hidden=np.ones((4, 3)), prediction=np.arange(4))
    for option in (["--layer", "first"], ["--pictures"]):
        assert asked(run, *option, "--reference", f"{tmp_path}/case.npz") == 2
        said = capsys.readouterr().err
        assert f"{option[0]} needs the model's own layers, and {run.uri} cannot be cut: the reference is a" in said
    (tmp_path / "answers.csv").write_text("id,prediction\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
    content = {
        "name": "answers",
        "pool": {
            "uri": f"{tmp_path}/answers.csv",
            "format": "features",
            "columns": {"id": "id", "prediction": "prediction"},
        },
        "sample": {"method": "srs", "budget": 5},
        "output": f"{tmp_path}/runs",
    }
    answers = verbs.first_round(parse_spec(content, "answers"))
    assert why_not_cut(run, run) is None
    assert why_not_cut(answers, answers) == "its pool holds features, which the model does not run on"
    assert why_not_cut(run, answers) == f"the pool of {answers.uri} holds features, which the model does not run on"
    function = make_run(tmp_path / "function", factory=None, hidden_layer=None, function="small_nets:answer")
    assert why_not_cut(function, function) == "its model is no torch module of a factory"
    around = make_run(tmp_path / "around", factory="small_nets:residual", hidden_layer="middle")
    capsys.readouterr()
    assert asked(around) == 5
    assert "the outputs of the model depend on more than its layer 'middle', such as" in capsys.readouterr().err
    assert asked(run, "--layer", "nowhere") == 2
    assert "--layer nowhere: the model has no such layer; it has first, second" in capsys.readouterr().err
