"""Functions of a batch as models: valid return values, and errors for others."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_model import network
from small_pictures import picture

from opacc_ray.errors import DataError
from opacc_ray.extract.extraction import Extraction, Extractor
from opacc_ray.extract.inference import FunctionModel
from opacc_ray.extract.shards import read_table
from opacc_ray.extract.torch_model import Model
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import ModelSpec, Spec, parse_spec, plan_pool

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
        (
            "raise",
            "model.function 'numpy_model:faulty', given a batch of shape .* raised KeyError: 'no session' at .*:",
        ),
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


def spec_of(folder: Path, function: str, **sections: Any) -> Spec:
    content: dict[str, Any] = {
        "name": "one",
        "pool": {"uri": str(folder / "pool"), "format": "images"},
        "model": {"function": f"numpy_model:{function}"},
        "extract": {"batch_size": 4},
        "sample": {"method": "srs", "budget": 2},
        "output": str(folder / "runs"),
    }
    return parse_spec(content | sections, "spec")


def extract(spec: Spec, folder: Path) -> dict[str, np.ndarray]:
    open_store(spec.pool.uri).write_many((f"{i:03d}.png", picture(i)) for i in range(10))
    target = open_store(str(folder / "features"))
    job = Extraction(spec, spec.pool, spec.features(), target)
    [shard] = plan_pool(spec.pool, spec.extract).shards
    Extractor(job).extract(shard)
    names = [name for name in spec.features() if name != "prediction"]
    table = read_table(target, shard.file, names, None, None)
    return {name: to_numpy(table[name]) for name in names}


def test_features_of_a_function_are_those_of_the_module(tmp_path: Path) -> None:
    found = extract(spec_of(tmp_path / "a", "both"), tmp_path / "a")
    module = spec_of(tmp_path / "b", "both", model={"factory": "small_model:network"})
    expected = extract(module, tmp_path / "b")
    assert all(np.allclose(found[name], expected[name], atol=1e-6) for name in ("hidden", "output", "confidence"))
    assert network().last.out_features == found["output"].shape[1]


def test_an_output_alone_is_enough_where_no_hidden_layer_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the hidden layer is required, and the model returns its output alone"):
        extract(spec_of(tmp_path, "output_alone"), tmp_path)
    spec = spec_of(tmp_path, "output_alone", extract={"features": ["output", "confidence"]})
    assert extract(spec, tmp_path)["output"].shape == (10, 4)


@pytest.mark.processes
def test_torch_is_not_imported_for_a_function(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.extraction import Extractor
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import parse_spec, plan_pool
import numpy as np, io
folder = {str(tmp_path)!r}
sink = io.BytesIO()
np.save(sink, np.ones((7, 5), np.float32))
open_store(folder + "/pool").write("a.npy", sink.getvalue())
spec = parse_spec({{"name": "a", "pool": {{"uri": folder + "/pool", "format": "npy"}}, "output": folder,
    "model": {{"function": "numpy_model:constant"}}, "sample": {{"method": "srs", "budget": 1}}}}, "spec")
job = Extraction(spec, spec.pool, spec.features(), open_store(folder + "/features"))
report = Extractor(job).extract(plan_pool(spec.pool, spec.extract).shards[0])
print(report.num_examples, {{"torch", "pandas"}} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.stdout.split() == ["7", "set()"], done.stderr
