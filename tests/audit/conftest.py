"""One audit of pictures that several modules start from."""

import pytest
from picture_audits import copied, run_spec
from small_spec import small_spec

from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.runs.run import Run


@pytest.fixture(scope="session")
def finished(ray_cluster: None, scans: str, s3: LocalS3) -> Run:
    """A run by two actors that waits for its labels. Not to be changed: `run` is a copy to work on."""
    two = {"batch_size": 8, "shard_size": 10, "actors": 2}
    return run_spec(small_spec(scans, s3.create_bucket("finished"), extract=two))


@pytest.fixture
def run(finished: Run, bucket: str) -> Run:
    """A copy of that run, in a bucket of its own."""
    return copied(finished, bucket)
