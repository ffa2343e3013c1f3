"""The torch model: the recorded layer, safe loading, and errors that name their cause."""

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_model import Net, network

from opacc_ray.errors import DataError
from opacc_ray.extract.torch_model import Model
from opacc_ray.spec import CoverageSpec, ModelSpec

BATCH = np.random.default_rng(0).random((5, 1, 8, 8), dtype=np.float32)


class Convolutional(torch.nn.Module):
    """The classifier is registered before the layer that is called last but one, and there is dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = torch.nn.Linear(12, 3)
        self.neck = torch.nn.Linear(4, 12)
        self.convolution = torch.nn.Conv2d(1, 4, 3)
        self.dropout = torch.nn.Dropout(0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.dropout(self.neck(self.convolution(x).mean((2, 3)))))


def no_linear() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(1, 3, 8), torch.nn.Flatten())


def model(factory: str, **settings: object) -> Model:
    return Model(ModelSpec(factory=factory, **settings), "cpu")


def test_default_layer_is_the_input_of_the_linear_that_is_called_last() -> None:
    torch.manual_seed(0)
    wrapped = model(f"{__name__}:Convolutional")
    activations = wrapped(BATCH)
    assert activations.hidden.shape == (5, 12)
    expected = wrapped.module.classifier(torch.from_numpy(activations.hidden))  # dropout is off
    assert np.allclose(expected.detach().numpy(), activations.output)


def test_no_linear_asks_for_a_name() -> None:
    with pytest.raises(DataError, match=r"no Linear layer .* name one of its layers: 0, 1"):
        model(f"{__name__}:no_linear")
    assert model(f"{__name__}:no_linear", hidden_layer="0")(BATCH).hidden.shape == (5, 3)


class Wrapped(torch.nn.Module):
    """Returns what ``shape`` makes of the outputs (B, 4)."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.net, self.shape = network(), shape

    def forward(self, x: torch.Tensor) -> Any:
        output = self.net(x)
        return {
            "tuple": (output, output + 1),
            "dict": {"features": output + 1, "logits": output},
            "only": {"prediction": output},
            "object": SimpleNamespace(logits=output),
            "flat": output.flatten(),
            "number": output.sum(),
            "none": {"text": "no tensor"},
        }[self.shape]


@pytest.mark.parametrize("shape", ["tuple", "dict", "only", "object"])
def test_output_is_found_in_what_models_return(shape: str) -> None:
    expected = model("small_model:network")(BATCH)
    found = model(f"{__name__}:Wrapped", arguments={"shape": shape})(BATCH)
    assert np.array_equal(found.output, expected.output)
    assert np.array_equal(found.hidden, expected.hidden)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("flat", r"output has shape \(20,\) for a batch of 5: return one row per example"),
        ("number", r"output has shape \(\) for a batch of 5"),
        ("none", "returned a dict without a tensor of outputs"),
    ],
)
def test_output_that_is_not_one_row_per_example_is_refused(shape: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        model(f"{__name__}:Wrapped", arguments={"shape": shape})(BATCH)


def raises() -> torch.nn.Module:
    raise KeyError("no such checkpoint")


def test_factory_that_raises_is_named_with_its_line() -> None:
    with pytest.raises(
        DataError, match=r"raises' raised KeyError: 'no such checkpoint' at .*test_model\.py:\d+;"
    ) as found:
        model(f"{__name__}:raises")
    assert "Traceback" in found.value.details
    with pytest.raises(DataError, match=r"raised TypeError: .* missing 1 required .*'shape'; its arguments are those"):
        model(f"{__name__}:Wrapped")
    with pytest.raises(DataError, match=r"returned a str, not a torch\.nn\.Module"):
        model("os:getcwd")


def test_layer_that_is_never_called() -> None:
    wrapped = model(f"{__name__}:Unused", hidden_layer="idle")
    with pytest.raises(DataError, match="was not called"):
        wrapped(BATCH)


class Unused(Net):
    def __init__(self) -> None:
        super().__init__()
        self.idle = torch.nn.Linear(1, 1)


class Odd(torch.nn.Module):
    """A part that works in place, one that gives a tuple, and sequences of neurons, such as transformers have."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 6)
        self.relu = torch.nn.ReLU(inplace=True)
        self.embed = torch.nn.Conv2d(1, 7, 4, stride=4)
        self.token = torch.nn.Linear(7, 5)
        self.recurrent = torch.nn.LSTM(5, 2, batch_first=True)
        self.last = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.recurrent(self.token(self.embed(x).flatten(2).mT))
        return self.last(self.relu(self.first(x.flatten(1))))


@pytest.mark.parametrize(
    ("factory", "layers", "message"),
    [
        ("Odd", ["last", "fc9"], "no layer 'fc9'; it has first, relu, embed, token, recurrent, last"),
        ("Odd", None, "the layer 'recurrent' returns a tuple, not a tensor"),
        ("Unused", ["first", "idle"], "the layer 'idle' was not called"),
        ("plain", None, "no layer with weights; name some of its layers: 0, 1, 2"),
    ],
)
def test_layers_that_cannot_be_covered_are_refused(factory: str, layers: list[str] | None, message: str) -> None:
    with pytest.raises(DataError, match=f"^extract.coverage.layers: .*{message}"):
        Model(ModelSpec(factory=f"{__name__}:{factory}"), "cpu", coverage=CoverageSpec(layers=layers))(BATCH)


def plain() -> torch.nn.Module:
    """The last layer has no weights that anyone could train; nor has any other."""
    sequence = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Identity(), torch.nn.Linear(64, 4))
    del sequence[2].weight, sequence[2].bias
    return sequence


def test_nothing_in_a_file_of_weights_is_run(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "owned"), "w"))

    (tmp_path / "net.pt").write_bytes(pickle.dumps(Attack()))
    torch.save({"x": Attack()}, tmp_path / "zip.pt")
    for name in ("net.pt", "zip.pt"):
        with pytest.raises(DataError, match="neither safetensors nor a plain state dict"):
            model("small_model:network", weights=str(tmp_path / name))
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.ones(3)], "holds a list that is no state dict of tensors"),
        (torch.nn.Linear(2, 2).state_dict(), r"does not fit the module of small_model:network.*first\.weight"),
    ],
)
def test_weights_of_no_module_or_another_are_refused(content: Any, message: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "net.pt")
    with pytest.raises(DataError, match=message):
        model("small_model:network", weights=str(tmp_path / "net.pt"))


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.net."])
def test_common_prefix_of_keys_is_removed_and_noted(prefix: str, tmp_path: Path) -> None:
    weights = Net().state_dict()
    torch.save({f"{prefix}{key}": value for key, value in weights.items()}, tmp_path / "net.pt")
    loaded = model("small_model:network", weights=str(tmp_path / "net.pt"))
    assert torch.equal(loaded.module.last.weight, weights["last.weight"])
    assert loaded.note == f"the weights were read without the prefix {prefix!r} that all of their keys have"
    torch.save(weights, tmp_path / "net.pt")
    assert model("small_model:network", weights=str(tmp_path / "net.pt")).note is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_agrees_with_cpu() -> None:
    on_gpu = Model(ModelSpec(factory="small_model:network"), "cuda")(BATCH)
    on_cpu = Model(ModelSpec(factory="small_model:network"), "cpu")(BATCH)
    assert np.allclose(on_gpu.output, on_cpu.output, atol=1e-5)
    assert np.allclose(on_gpu.hidden, on_cpu.hidden, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_keeps_what_it_was_given_before_it_is_waited_for() -> None:
    """Batches in one memory, which is used again at once, as those of readers are."""
    net = Model(ModelSpec(factory="small_model:network"), "cuda")
    batches = np.random.default_rng(0).random((50, 512, 1, 8, 8), dtype=np.float32)
    memory, waiting, outputs = np.empty_like(batches[0]), list[Any](), list[Any]()
    for batch in batches:
        memory[:] = batch
        waiting.append(net.start(memory))
        if len(waiting) > 1:
            outputs.append(waiting.pop(0)())
    outputs.append(waiting.pop()())
    for batch, (found, seconds) in zip(batches, outputs, strict=True):
        np.testing.assert_array_equal(found.output, net(batch).output)
        assert seconds > 0


class Returning(torch.nn.Module):
    """A network that also returns its hidden layer, in some form."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.net = network()
        self.form = form

    def forward(self, x: torch.Tensor) -> Any:
        hidden = torch.relu(self.net.first(x.flatten(1)))
        output = self.net.last(hidden)
        if self.form == "pair":
            return hidden, output
        return {"hidden": hidden, "logits": output} if self.form == "mapping" else output


def saved(path: Path, form: str) -> str:
    """A program: exported with a batch of any size, or traced."""
    net, example = Returning(form).eval(), torch.from_numpy(BATCH[:3])
    if path.suffix == ".pt2":
        size = torch.export.Dim("batch")
        torch.export.save(torch.export.export(net, (example,), dynamic_shapes={"x": {0: size}}), str(path))
    else:
        torch.jit.trace(net, example, strict=False).save(str(path))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["pair", "mapping", "output"])
@pytest.mark.parametrize("suffix", ["pt2", "pt"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_program_returns_the_outputs_of_its_module(tmp_path: Path, suffix: str, form: str) -> None:
    place = saved(tmp_path / f"net.{suffix}", form)
    found, expected = Model(ModelSpec(program=place, trust=True), "cpu")(BATCH), model("small_model:network")(BATCH)
    assert np.allclose(found.output, expected.output, atol=1e-6)
    if form == "output":
        assert found.hidden is None
    else:
        assert np.allclose(found.hidden, expected.hidden, atol=1e-6)


@pytest.mark.slow  # torch.export takes a second or two to import
@pytest.mark.parametrize(
    ("sha256", "message"),
    [
        (None, r"model.program: .*net\.pt2 is neither TorchScript nor"),
        ("0" * 64, r"model.sha256: .*net\.pt2 has digest .*, and the spec expects 00"),
    ],
)
def test_a_program_that_is_none_or_another_one_is_refused(sha256: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"no program")
    with pytest.raises(DataError, match=message) as caught:
        Model(ModelSpec(program=str(tmp_path / "net.pt2"), trust=True, sha256=sha256), "cpu")
    assert "\n" not in str(caught.value)
