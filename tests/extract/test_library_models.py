"""Models of libraries, from local files without a network."""

from pathlib import Path

import numpy as np
import pytest

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract.torch_model import Model
from opacc_ray.spec import ModelSpec, parse_spec

BATCH = np.random.default_rng(0).random((2, 3, 32, 32), dtype=np.float32)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small residual network as the transformers library saves one."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    config = ResNetConfig(num_labels=5, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    ResNetForImageClassification(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_published_model_has_its_weights(published: Path) -> None:
    from transformers import ResNetForImageClassification

    found = Model(ModelSpec(factory=f"hf:{published}"), "cpu")(BATCH)
    assert (found.output.shape, found.hidden.shape) == ((2, 5), (2, 16))
    library = ResNetForImageClassification.from_pretrained(published).eval()
    import torch

    with torch.inference_mode():
        assert np.allclose(found.output, library(torch.from_numpy(BATCH)).logits.numpy(), atol=1e-5)


@pytest.mark.slow
def test_own_weights_go_into_the_published_architecture(published: Path) -> None:
    weights = str(published / "model.safetensors")
    with_weights = Model(ModelSpec(factory=f"hf:{published}", weights=weights), "cpu")
    expected = Model(ModelSpec(factory=f"hf:{published}"), "cpu")
    assert np.array_equal(with_weights(BATCH).output, expected(BATCH).output)


@pytest.mark.slow
def test_a_name_that_is_not_there_is_one_sentence(published: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"model.factory 'hf:.*none' cannot be made .*; check its name") as caught:
        Model(ModelSpec(factory=f"hf:{tmp_path}/none"), "cpu")
    assert "\n" not in str(caught.value)


def content(**model: object) -> dict[str, object]:
    return {
        "name": "a",
        "pool": {"uri": "x", "format": "images"},
        "model": model,
        "sample": {"method": "srs", "budget": 1},
        "output": "y",
    }


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({}, "key 'model.factory' is missing; add it, or audit stored predictions"),
        ({"factory": "a:b", "function": "c:d"}, "factory and function both name a model; remove one"),
        ({"program": "m.pt2"}, "a program is code with your permissions; set trust: true"),
        ({"program": "m.pt2", "trust": True, "hidden_layer": "fc"}, "hidden_layer is only supported for a factory"),
        ({"function": "a:b", "weights": "w"}, "weights is only supported for a factory; a function has its own"),
        ({"function": "no colon"}, "model.function: write module:function"),
    ],
)
def test_specs_of_models_say_what_does_not_go_together(model: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_spec(content(**model), "spec")


def test_coverage_needs_a_module() -> None:
    with pytest.raises(SpecError, match="coverage needs the layers of a module, and a function has none"):
        parse_spec(content(function="a:b") | {"extract": {"features": ["coverage"]}}, "spec")
