"""How many actors a spec gets, and that what travels to them is small."""

import pickle
from typing import Any

import pytest

from opacc_ray.cluster.extraction import Placement, place
from opacc_ray.errors import ClusterError
from opacc_ray.extract.extractor import Extraction
from opacc_ray.lake.storage import open_store
from opacc_ray.spec import ExtractSpec, parse_spec

pytestmark = pytest.mark.usefixtures("ray_cluster")  # of 2 CPU


@pytest.mark.parametrize(
    ("extract", "num_shards", "expected"),
    [
        ({}, 12, Placement(2, 0.0, 1)),
        ({}, 1, Placement(1, 0.0, 1)),
        ({"threads_per_actor": 2}, 12, Placement(1, 0.0, 2)),
        ({"actors": 1}, 12, Placement(1, 0.0, 1)),
        ({"actors": 9, "autoscaling": True}, 5, Placement(5, 0.0, 1)),
    ],
)
def test_actors_fit_the_cluster_and_the_shards(extract: dict[str, Any], num_shards: int, expected: Placement) -> None:
    assert place(ExtractSpec(**extract), num_shards) == expected


@pytest.mark.parametrize("extract", [{"actors": 3}, {"threads_per_actor": 3}, {"gpus_per_actor": 1}])
def test_more_than_there_is_is_refused(extract: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match=r"the spec asks for .* and the cluster has 0 GPU and 2 CPU in all; lower"):
        place(ExtractSpec(**extract), 12)


def test_work_that_travels_to_actors_is_small() -> None:
    content = {
        "name": "x",
        "pool": {"uri": "s3://lake/pool", "format": "images"},
        "model": {"factory": "user:network"},
        "sample": {"method": "css", "budget": 10},
        "output": "s3://lake/audits",
    }
    spec = parse_spec(content, "spec")
    job = Extraction(spec, spec.pool, spec.features(), open_store("s3://lake/audits/x/features"))
    assert len(pickle.dumps(job)) < 10_000
