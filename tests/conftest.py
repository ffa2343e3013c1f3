"""Fixtures that several test modules share."""

import os
import secrets
from collections.abc import Iterator

import pytest

from opacc_ray.local_s3 import LocalS3

ISOLATED = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "3",
}


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalS3]:
    """A real S3 server. From here on, the environment leads to it and to no account of the developer's."""
    with LocalS3(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in (ISOLATED | server.environment()).items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def bucket(s3: LocalS3) -> str:
    """The URI of a fresh, empty bucket on the real S3 server."""
    return s3.create_bucket(f"bucket-{secrets.token_hex(4)}")
