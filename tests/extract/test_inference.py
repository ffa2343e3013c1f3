"""The path of an example: inputs are stacked, functions of a batch run as models, outputs have the form of the spec."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from one_shard import extract, spec_of
from scipy.special import expit, softmax
from small_pictures import picture

from opacc_ray.errors import DataError
from opacc_ray.extract import inference
from opacc_ray.extract.inference import Batch, FunctionModel, read_output, transformed
from opacc_ray.extract.shards import read_shard
from opacc_ray.extract.torch_model import Model
from opacc_ray.lake.examples import Example
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import ModelSpec

BATCH = np.random.default_rng(0).random((5, 1, 8, 8), dtype=np.float32)


def of(function: str, **arguments: Any) -> FunctionModel:
    return FunctionModel(ModelSpec(function=f"numpy_model:{function}", arguments=arguments))


@pytest.mark.parametrize("function", ["both", "pair"])
def test_function_returns_the_outputs_of_the_module(function: str) -> None:
    found, expected = of(function)(BATCH), Model(ModelSpec(factory="small_model:network"), "cpu")(BATCH)
    assert np.allclose(found.hidden, expected.hidden, atol=1e-6)
    assert np.allclose(found.output, expected.output, atol=1e-6)
    assert found.output.dtype == np.float32


def test_rows_of_a_batch_of_two_are_no_pair() -> None:
    rows = [[[9.0, 0.0], [0.0, 9.0]], [[9.0, 0.0, 1.0], [0.0, 9.0, 1.0]]]
    for given in rows:
        found = of("answered", rows=given)(BATCH[:2])
        assert (found.hidden, found.output.tolist()) == (None, given)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "'numpy_model:faulty', given a batch of shape .* raised KeyError: 'no session' at .*:"),
        ("exit", "given a batch of shape .* raised SystemExit: 0 at .*:"),
        ("rows", r"output of model.function 'numpy_model:faulty' has shape \(1, 2\) for a batch of 5"),
        ("text", "is a str, not an array of numbers"),
        ("nothing", "for a batch of 5|not an array of numbers"),
        ("mapping", "returned a mapping with logits; give it an 'output'"),
    ],
)
def test_what_a_function_may_not_return_is_one_sentence(how: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        of("faulty", how=how)(BATCH)
    assert "\n" not in str(caught.value)


def features_of(folder: Path, function: str, **sections: Any) -> dict[str, np.ndarray]:
    """Extract ten pictures by a function of the user's; return their features."""
    spec = spec_of(folder, **{"model": {"function": f"numpy_model:{function}"}} | sections)
    open_store(spec.pool.uri).write_many((f"{i:03d}.png", picture(i)) for i in range(10))
    extract(spec, folder)
    names = [name for name in spec.features() if name != "prediction"]
    return read_shard(open_store(str(folder / "features-0")), "part-000000.parquet", names).columns


def test_an_output_alone_is_enough_where_no_hidden_layer_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the hidden layer is required, and the model returns its output alone"):
        features_of(tmp_path, "output_alone")
    found = features_of(tmp_path, "output_alone", extract={"features": ["output", "confidence"]})
    assert found["output"].shape == (10, 4)


@pytest.mark.processes
def test_torch_is_not_imported_for_a_function(tmp_path: Path) -> None:
    open_store(str(tmp_path)).write("pool/000.png", picture(0))
    code = f"""
import sys
from pathlib import Path
from one_shard import extract, spec_of
folder = Path({str(tmp_path)!r})
report = extract(spec_of(folder, model={{"function": "numpy_model:constant"}}), folder)
print(report.num_examples, {{"torch", "pandas"}} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.stdout.split() == ["1", "set()"], done.stderr


PIXELS = np.random.default_rng(0).random((8, 9, 3), dtype=np.float32)

INPUTS = {
    "rows": PIXELS,
    "grey": PIXELS[None, :, :, 0],
    "channels first": np.moveaxis(PIXELS, -1, 0),
    "one channel": np.moveaxis(PIXELS[:, :, :1], -1, 0),
    "Fortran": np.asfortranarray(PIXELS[0]),
    "every other": PIXELS[::2, ::2, 0],
    "a vector": PIXELS[0, :, 0],
    "a number": np.ones((), dtype=np.float32),
}


def example(number: int, bytes_: int = 8) -> Example:
    return Example(f"e{number}", f"s3://x/e{number}", np.zeros(bytes_, dtype=np.uint8))


@pytest.mark.parametrize("value", INPUTS.values(), ids=list(INPUTS))
@pytest.mark.parametrize("first_bytes", [1, 1 << 30], ids=["growing", "at once"])
def test_inputs_are_those_that_numpy_stacks(
    value: NDArray[np.float32], first_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "_FIRST_BYTES", first_bytes)
    batch, values = Batch(6), [value + number for number in range(5)]
    for number, own in enumerate(values):
        assert not batch.is_full
        batch.add(example(number, 10 - number), own)
    expected = np.stack([own if own.shape else np.float32(own) for own in values])
    np.testing.assert_array_equal(batch.inputs, expected)
    if value.size > 1:
        assert batch.inputs.strides == np.stack([value] * 5).strides
    assert (batch.ids[-1], batch.uris[-1], batch.largest) == ("e4", "s3://x/e4", 10)
    batch.add(example(5), value)
    assert batch.is_full


def test_an_input_of_another_shape_is_named() -> None:
    batch = Batch(4)
    batch.add(example(0), np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match=r"example 'e1' has shape \(3, 2\) and 'e0' \(2, 3\); set transform"):
        batch.add(example(1), np.zeros((3, 2), np.float32))


@pytest.mark.parametrize("error", [KeyError("mean"), SystemExit(0)])
def test_a_transform_that_raises_is_named_with_its_example(error: BaseException) -> None:
    def transform(array: NDArray[np.uint8]) -> None:
        raise error

    name = type(error).__name__
    with pytest.raises(DataError, match=rf"transform, given example 'e1' of shape \(8,\) .*, raised {name}"):
        transformed(transform, example(1))


LOGITS = np.random.default_rng(0).normal(0, 3, (40, 5)).astype(np.float32)

SHARES = softmax(LOGITS, axis=1).astype(np.float32)


def read(values: np.ndarray, precision: str = "float32", **settings: Any) -> dict[str, np.ndarray]:
    return read_output(values, ModelSpec.model_construct(**settings), precision)


def test_logits_and_their_softmax_say_the_same() -> None:
    scores = read(LOGITS)
    shares = read(SHARES, output="probabilities")
    assert np.array_equal(scores["prediction"], shares["prediction"])
    assert np.allclose(scores["confidence"], shares["confidence"], atol=1e-6)
    assert np.array_equal(scores["output"], LOGITS)


@pytest.mark.parametrize("threshold", [0.5, 0.2])
def test_binary_model_has_two_classes(threshold: float) -> None:
    z = LOGITS[:, :1]
    p = expit(z[:, 0].astype(float))
    by_score = read(z, output="logit", threshold=threshold)
    by_share = read(p[:, None].astype(np.float32), output="probability", threshold=threshold)
    for found in (by_score, by_share):
        assert found["prediction"].tolist() == (p >= threshold).astype(int).tolist()
        assert np.allclose(found["confidence"], np.where(p >= threshold, p, 1 - p), atol=1e-6)
        assert found["output"].shape == (40, 2)
    assert np.allclose(softmax(by_score["output"], axis=1), by_share["output"], atol=1e-6)


def test_regression_is_its_one_value() -> None:
    found = read(LOGITS[:, :1], task="regression")
    assert found["prediction"].tolist() == LOGITS[:, 0].tolist()
    assert "confidence" not in found


@pytest.mark.parametrize(
    ("output", "settings", "message"),
    [
        (LOGITS, {"task": "regression"}, r"shape \(40, 5\); a regression needs one value"),
        (LOGITS[:, :1], {}, r"shape \(40, 1\); .* set model\.output: logit, or probability"),
        (LOGITS, {"output": "logit"}, r"shape \(40, 5\); .* set model\.output: logits"),
        (LOGITS, {"output": "probabilities"}, r"is probabilities, and a row .* sums to .* set model\.output: logits"),
        (SHARES, {"output": "logits"}, r"shares that sum to 1; set model\.output: probabilities"),
        (LOGITS[:, :1], {"output": "probability"}, r"is no probability; set model\.output: logit"),
    ],
)
def test_output_of_another_form_is_refused(output: np.ndarray, settings: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(output, **settings)


def test_half_precision_may_miss_the_sum_by_more() -> None:
    rough = (SHARES * 1.01).astype(np.float32)
    with pytest.raises(DataError, match=r"sums to 1\.01"):
        read(rough, output="probabilities")
    read(rough, output="probabilities", precision="bfloat16")
