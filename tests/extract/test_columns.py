"""Columns of features: rows that are not finite."""

import numpy as np

from opacc_ray.extract.columns import not_finite


def test_not_finite_names_rows_and_the_first_feature_of_each() -> None:
    nan, inf = np.nan, np.inf
    columns = {"confidence": np.array([1, 0.5, nan]), "output": np.array([[1, 2], [3, inf], [nan, 4]])}
    assert list(not_finite(columns).items()) == [(1, "output"), (2, "confidence")]
    assert not_finite({"prediction": np.ones(2, int), "coverage": np.ones((2, 3), np.uint8)}) == {}
