"""Columns of features: batches joined, and rows that are not finite."""

import numpy as np
import pytest

from opacc_ray.errors import DataError
from opacc_ray.extract.shards import joined, not_finite


def test_not_finite_names_rows_and_the_first_feature_of_each() -> None:
    nan, inf = np.nan, np.inf
    columns = {"confidence": np.array([1, 0.5, nan]), "output": np.array([[1, 2], [3, inf], [nan, 4]])}
    assert list(not_finite(columns).items()) == [(1, "output"), (2, "confidence")]
    assert not_finite({"prediction": np.ones(2, int), "coverage": np.ones((2, 3), np.uint8)}) == {}


def test_batches_are_joined_if_they_are_alike() -> None:
    def batch(rows: int, width: int) -> dict[str, np.ndarray]:
        return {"output": np.ones((rows, width)), "prediction": np.ones(rows)}

    assert {name: found.shape for name, found in joined([batch(2, 3), batch(4, 3)]).items()} == {
        "output": (6, 3),
        "prediction": (6,),
    }
    assert joined([]) == {}
    with pytest.raises(DataError, match="output has 3 values for some examples and 4 for others; let the model"):
        joined([batch(2, 4), batch(2, 3)])
    with pytest.raises(DataError, match="output has no value for any example; let the model"):
        joined([batch(2, 0)])
