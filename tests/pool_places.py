"""Fixtures for pools in storage: ``store`` is a folder and a bucket of a real S3 server, ``folder`` the first alone."""

from pathlib import Path

import pytest

from opacc_ray.lake.store_uris import Store, open_store


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(f"{tmp_path}/pool" if request.param == "folder" else request.getfixturevalue("bucket"))


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    (tmp_path / "pool").mkdir()
    return open_store(f"{tmp_path}/pool")
