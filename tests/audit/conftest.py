"""One audit of pictures that several modules start from."""

import pytest
from extracting_here import extracting_here
from local_s3 import LocalS3
from picture_audits import copied, run_spec
from small_spec import small_spec

from opacc_ray.runs.run import Run


@pytest.fixture(scope="session")
def finished(scans: str, s3: LocalS3) -> Run:
    """A run that waits for its labels. Not to be changed: `run` is a copy to work on."""
    with extracting_here():
        return run_spec(small_spec(scans, s3.create_bucket("finished")))


@pytest.fixture
def run(finished: Run, bucket: str) -> Run:
    """A copy of that run, in a bucket of its own."""
    return copied(finished, bucket)
