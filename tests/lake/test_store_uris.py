"""URIs: what opens, what is refused, and what is imported for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opacc_ray.errors import StorageError
from opacc_ray.lake.store_uris import join, open_store, split


def test_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("s3://lake/").uri == "s3://lake"
    assert open_store("s3://lake//a/b#1//").uri == "s3://lake/a/b#1"
    assert open_store("runs/").uri == open_store("./runs").uri == f"{tmp_path}/runs"
    assert open_store(f"file://{tmp_path}/a%20b").uri == f"{tmp_path}/a b"
    assert open_store((tmp_path / "50% off").as_uri()).uri == f"{tmp_path}/50% off"
    assert open_store("~/runs").uri == os.path.expanduser("~/runs")
    assert join("s3://lake/", "a/", "/b.json") == "s3://lake/a/b.json"
    assert join("/", "a") == "/a"
    assert join(f"file://{tmp_path}/x", "50% off") == f"{tmp_path}/x/50% off"
    assert split("s3://lake/models/a.bin") == ("s3://lake/models", "a.bin")
    assert split("s3://lake/a.bin") == ("s3://lake", "a.bin")
    assert split("a.bin") == (str(tmp_path), "a.bin")
    assert split("/a.bin") == ("/", "a.bin")


@pytest.mark.parametrize("uri", ["s3://", "s3:///a", "https://host/a", "file://host/a"])
def test_uris_that_cannot_be_opened(uri: str) -> None:
    with pytest.raises(StorageError, match="s3://bucket/prefix"):
        open_store(uri)


@pytest.mark.parametrize("uri", ["s3://lake", "s3://lake/", "/"])
def test_uris_that_name_no_object(uri: str) -> None:
    with pytest.raises(StorageError, match="is not the URI of an object"):
        split(uri)


@pytest.mark.processes
def test_folders_need_no_boto3(tmp_path: Path) -> None:
    script = (
        "import sys; from opacc_ray.lake.store_uris import open_store; store = open_store(sys.argv[1]);"
        "store.write('a', b'x'); store.list(); open_store('s3://lake').store('a');"
        "assert not {'boto3', 'botocore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def test_path_with_a_null_character_is_refused() -> None:
    with pytest.raises(StorageError, match="contains a null character"):
        open_store("a\0b")
