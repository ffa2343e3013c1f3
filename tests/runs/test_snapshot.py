"""A place as it was at one moment."""

import pytest

from opacc_ray.errors import StorageError
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.draws import Snapshot


def test_what_comes_or_changes_later_is_not_seen(store_uri: str) -> None:
    store = open_store(store_uri)
    store.write("rounds/1/a.json", b"first")
    store.write("rounds/10/b.json", b"b")
    now = Snapshot(store, {place: store.list(place) for place in ("rounds/", "labels/")})
    assert now.store("rounds/1").read("a.json") == now.read("rounds/1/a.json") == b"first"
    store.write("rounds/1/a.json", b"second")
    store.write("rounds/1/c.json", b"")
    store.write("labels/d.json", b"")
    store.write("other/e.json", b"")
    folder = now.store("rounds").store("1")
    assert folder.read("a.json") == now.read("rounds/1/a.json") == b"first"
    assert folder.uri == store.store("rounds/1").uri
    assert [entry.key for entry in folder.list()] == ["a.json"]
    assert [entry.key for entry in now.list("rounds/1")] == ["rounds/1/a.json", "rounds/10/b.json"]
    assert not now.list("labels/")
    assert not folder.exists("c.json")
    assert folder.entry("c.json") is None
    assert now.exists("rounds/10/b.json")
    assert now.exists("other/e.json")  # of a folder that was not listed
    assert [entry.key for entry in now.store("other").list()] == ["e.json"]


def test_nothing_is_written_to_it(store_uri: str) -> None:
    now = Snapshot(open_store(store_uri), {"rounds/": []})
    with pytest.raises(StorageError, match=r"rounds/1/a\.json cannot be written"):
        now.write("rounds/1/a.json", b"")
    assert not now.list("rounds/")


@pytest.fixture(params=["local", "s3"])
def store_uri(request: pytest.FixtureRequest) -> str:
    where = request.getfixturevalue("tmp_path" if request.param == "local" else "bucket")
    return f"{where}/place"
