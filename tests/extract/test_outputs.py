"""A model's output is read by the spec, and refused if it has another form."""

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax

from opacc_ray.errors import DataError
from opacc_ray.extract.inference import read_output
from opacc_ray.spec import ModelSpec

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 3, (40, 5)).astype(np.float32)
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
        (
            LOGITS,
            {"output": "logit"},
            r"shape \(40, 5\); model\.output: logit is one value .* set model\.output: logits",
        ),
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
