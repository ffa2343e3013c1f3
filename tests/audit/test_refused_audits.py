"""What an audit on a real S3 server and a real Ray refuses, or leaves out and counts."""

import pytest
from extracting_here import extracting_here
from picture_audits import labels_for, run_spec
from small_pictures import picture

from opacc_ray.audit import accuracy
from opacc_ray.cluster import actor_pool
from opacc_ray.errors import ClusterError, DataError, OpaccError
from opacc_ray.labels import label_actions
from opacc_ray.lake.store_uris import open_store

pytestmark = pytest.mark.usefixtures("ray_cluster")


def refused(content: dict, error: type[OpaccError], message: str) -> None:
    """The run fails with one sentence, and leaves no index, selection or half of a file."""
    with pytest.raises(error, match=message) as caught:
        run_spec(content)
    assert "\n" not in str(caught.value)
    keys = [entry.key for entry in open_store(content["output"]).list()] if "nowhere" not in content["output"] else []
    assert not [key for key in keys if "index.json" in key or "rounds/" in key]


def test_an_actor_for_which_the_cluster_has_no_room(spec) -> None:
    refused(spec(extract={"gpus_per_actor": 1}), ClusterError, "needs 1 GPU .* has 0 GPU")


def test_actor_that_never_starts_is_told(spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_pool, "START_SECONDS", 1.0)
    extract = {"gpus_per_actor": 1, "autoscaling": True}
    refused(spec(extract=extract), ClusterError, "no actor with 1 GPU .* within 1 s")


@pytest.fixture
def damaged(bucket: str) -> str:
    store = open_store(f"{bucket}/damaged")
    store.write_many((f"{i:03d}.png", picture(i)) for i in range(60))
    store.write("031.png", b"\x89PNG no more")
    return store.uri


def test_images_that_do_not_decode_or_give_nan_are_excluded_and_counted(spec, damaged: str) -> None:
    content = spec(pool={"uri": damaged, "format": "images"}, extract={"shard_size": 10, "on_bad_item": "exclude"})
    content["model"] |= {"factory": "small_model:broken_network"}
    with extracting_here():
        run = run_spec(content)
    index = run.read_index()
    assert index is not None
    assert index.num_examples == 58
    assert [item.id for item in index.bad] == ["031.png", "033.png"]
    label_actions.import_labels(run, "labels.csv", labels_for(run))
    result = accuracy.estimate(run).to_dict()
    assert (result["pool_size"], result["excluded"]) == (58, 2)


def test_nan_in_the_features_is_named(spec) -> None:
    content = spec(model={"function": "numpy_model:broken"})
    refused(content, DataError, r"example '033\.png' .* NaN or infinity in output")
