"""Columns of features: what is computed, and files that give back what was written."""

import numpy as np
import pytest

from opacc_ray.errors import DataError
from opacc_ray.extract.shards import (
    FeatureShard,
    decode_shard,
    encode_shard,
    not_finite,
    widths,
)
from opacc_ray.lake.sources import BadItem

RNG = np.random.default_rng(0)


def test_shard_comes_back_as_it_was() -> None:
    columns = {
        "hidden": RNG.normal(size=(3, 5)).astype(np.float32),
        "confidence": RNG.random(3),
        "prediction": np.array([4, 0, 9]),
    }
    shard = FeatureShard(["a", "b, c", "ü\n"], ["s3://x/a", "y", "z"], columns, [BadItem("d", "no image")])
    found = decode_shard(encode_shard(shard), list(columns), "here")
    assert (found.ids, found.uris, found.bad) == (shard.ids, shard.uris, shard.bad)
    for name, values in columns.items():
        assert np.array_equal(found.columns[name], values)
        assert found.columns[name].dtype == values.dtype
    assert encode_shard(shard) == encode_shard(found)


def test_only_the_named_features_are_read() -> None:
    columns = {"hidden": np.ones((1, 2), np.float32), "prediction": np.array([1])}
    data = encode_shard(FeatureShard(["a"], ["b"], columns, []))
    assert list(decode_shard(data, ["prediction"], "here").columns) == ["prediction"]


def test_widths_come_with_the_schema() -> None:
    columns = {"hidden": np.ones((0, 5), np.float32), "prediction": np.array([], dtype=np.int64)}
    assert widths(encode_shard(FeatureShard([], [], columns, []))) == {
        "hidden": 5,
        "prediction": 1,
    }
    assert widths(encode_shard(FeatureShard([], [], {}, []))) == {}


def test_damaged_file_is_named() -> None:
    with pytest.raises(DataError, match=r"part-7\.parquet is not a shard of features"):
        decode_shard(b"PAR1 and no more", [], "part-7.parquet")


def test_not_finite_names_rows_and_the_first_feature_of_each() -> None:
    nan, inf = np.nan, np.inf
    columns = {"confidence": np.array([1, 0.5, nan]), "output": np.array([[1, 2], [3, inf], [nan, 4]])}
    assert list(not_finite(columns).items()) == [(1, "output"), (2, "confidence")]
    assert not_finite({"prediction": np.ones(2, int), "coverage": np.ones((2, 3), np.uint8)}) == {}
