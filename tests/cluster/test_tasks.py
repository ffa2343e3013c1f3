"""Work on a real Ray: how many actors, tasks, copies of an object; workers that die, and errors as they were raised."""

import os
import pickle
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import LONG

from opacc_ray.cluster import tasks
from opacc_ray.cluster.tasks import Needs, place
from opacc_ray.errors import ClusterError, DataError
from opacc_ray.extract.extraction import Extraction
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import ExtractSpec, parse_spec


@pytest.mark.usefixtures("ray_cluster")
def test_task_whose_worker_dies_is_retried(tmp_path: Path) -> None:
    item = str(tmp_path / "seen")
    assert list(tasks.map_tasks(_die_once, [item])) == [(item, "done")]


@pytest.mark.usefixtures("ray_cluster")
def test_error_of_the_function_is_unchanged() -> None:
    with pytest.raises(DataError) as caught:
        list(tasks.map_tasks(_refuse, ["y"]))
    assert str(caught.value) == "y cannot be used"


@pytest.mark.usefixtures("ray_cluster")
def test_relative_paths_in_a_task_mean_the_folder_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vocabulary").write_text("a b c")
    monkeypatch.chdir(tmp_path)
    assert list(tasks.map_tasks(_read, ["vocabulary"])) == [("vocabulary", "a b c")]


def _read(path: str) -> str:
    return Path(path).read_text()


def _die_once(path: str) -> str:
    if not os.path.exists(path):
        Path(path).touch()
        os._exit(1)
    return "done"


def _refuse(item: str) -> None:
    raise DataError(f"{item} cannot be used")


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("moment", ["made", "asked"])
def test_any_error_of_a_worker_is_one_sentence_without_rays_frames(moment: str) -> None:
    import ray

    class Broken:
        def __init__(self) -> None:
            if moment == "made":
                self.ask()

        def ask(self) -> None:
            raise RuntimeError("Error(s) in loading:\n\tthe reason is here")

    with pytest.raises(ray.exceptions.RayError) as caught:
        ray.get(ray.remote(num_cpus=0)(Broken).remote().ask.remote())
    error = tasks.cause_of(caught.value)
    assert isinstance(error, ClusterError)
    assert str(error).endswith("failed: RuntimeError: Error(s) in loading: the reason is here")
    assert "\x1b" not in error.details
    assert "in ask" in error.details


def node(cpus: float, gpus: float = 0, alive: bool = True, **labels: str) -> dict[str, Any]:
    """A node as Ray describes it."""
    return {"Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus}, "Labels": labels}


@pytest.mark.usefixtures("ray_cluster")  # of 2 CPU
@pytest.mark.parametrize(
    ("extract", "num_shards", "expected"),
    [
        ({}, 12, (2, 12)),
        ({}, 1, (1, 1)),
        ({"threads_per_actor": 2}, 12, (1, 12)),
        ({"threads_per_actor": 3, "autoscaling": True}, 12, (1, 12)),
        ({"actors": 1}, 12, (1, 1)),
        ({"actors": 5}, 12, (2, 5)),
        ({"actors": 5, "autoscaling": True}, 12, (5, 5)),
        ({"actors": 9, "autoscaling": True}, 5, (5, 5)),
    ],
)
def test_actors_fit_the_cluster_and_the_shards(
    extract: dict[str, Any], num_shards: int, expected: tuple[int, int]
) -> None:
    found = place(ExtractSpec(**extract), num_shards)
    assert (found.actors, found.most) == expected


@pytest.mark.parametrize(
    ("extract", "nodes", "remote"),
    [
        ({}, [node(16, 2), node(64)], 0),
        ({"remote_readers": "auto"}, [node(16, 2), node(64), node(9)], 36),  # 73 CPUs for two actors
        ({"remote_readers": 8}, [node(16, 2), node(64)], 8),
        ({"remote_readers": 8}, [node(16, 2), node(4), node(3, alive=False)], 2),
        ({"remote_readers": 8}, [node(16, 2), node(8, 1)], 0),
        ({"remote_readers": "auto", "gpus_per_actor": 0}, [node(16, 2), node(64)], 0),
        ({"remote_readers": "auto"}, [node(16, 1), node(200)], 64),
    ],
)
def test_nodes_without_a_gpu_read_for_those_with_one(
    extract: dict[str, Any], nodes: list[Any], remote: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    assert place(ExtractSpec(**extract), 1000).remote_readers == remote


@pytest.mark.parametrize(
    ("extract", "nodes", "actors", "readers", "in_flight"),
    [
        ({}, [node(16)], 16, 0, 2),
        ({}, [node(64, 4)], 4, 15, 6),
        ({"gpus_per_actor": 0.25}, [node(16, 1)], 4, 3, 3),
        ({"gpus_per_actor": 0}, [node(16, 1)], 16, 0, 2),
        ({"gpus_per_actor": 0.5}, [node(16, 2)], 4, 3, 3),
        ({"actors": 2}, [node(64, 4)], 2, 15, 6),
        ({"actors": 1}, [node(2)], 1, 1, 2),
        ({"actors": 1}, [node(64)], 1, 4, 3),
        ({"actors": 2, "threads_per_actor": 2}, [node(8), node(4)], 2, 2, 2),
        ({}, [node(64, 4), node(8, 1)], 5, 7, 4),
        ({}, [node(200, 1)], 1, 64, 18),
        ({"readers": 2}, [node(16)], 16, 2, 2),
        ({"readers": 0}, [node(64, 4)], 4, 0, 2),
    ],
)
def test_what_actors_get_of_the_nodes(
    extract: dict[str, Any],
    nodes: list[Any],
    actors: int,
    readers: int,
    in_flight: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table of docs/scale.md, and further cases."""
    monkeypatch.setattr(tasks.ray, "nodes", lambda: nodes)
    found = place(ExtractSpec(batch_size=256, shard_size=1024, **extract), 1000)
    assert (found.actors, found.readers, found.in_flight) == (actors, readers, in_flight)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    "extract",
    [
        {"threads_per_actor": 3},
        {"gpus_per_actor": 1},
        {"node_labels": {"region": "eu"}},
    ],
)
def test_an_actor_for_which_no_node_has_room_is_refused(extract: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match=r"an actor needs .* the cluster has 0 GPU and 2 CPU in all: lower"):
        place(ExtractSpec(**extract), 12)


def test_an_actor_lives_on_one_node() -> None:
    assert Needs(cpus=2).room([node(3), node(3)]) == 2
    assert Needs(cpus=1, gpus=0.5).room([node(3, gpus=1), node(9)]) == 2
    assert Needs(cpus=1).room([node(3), node(4, alive=False)]) == 3


def test_actors_go_to_nodes_with_their_accelerator() -> None:
    key = "ray.io/accelerator-type"
    needs = Needs(1, 1.0, {key: "H100"})
    assert needs.room([node(8, 4, **{key: "A100"}), node(8, 2, **{key: "H100"}), node(8)]) == 2
    assert needs.options() == {"num_cpus": 1, "num_gpus": 1.0, "label_selector": {key: "H100"}}


@pytest.mark.parametrize(("wanted", "room"), [("eu", 1), ("!eu", 6), ("in(eu,us)", 3), ("!in(eu,us)", 4)])
def test_actors_go_to_nodes_with_their_labels(wanted: str, room: int) -> None:
    nodes = [node(1, region="eu"), node(2, region="us"), node(4)]
    assert Needs(cpus=1, labels={"region": wanted}).room(nodes) == room


class Placed:
    def seven(self) -> int:
        return 7


@pytest.mark.usefixtures("ray_cluster")
def test_ray_reads_the_labels_as_the_room_is_counted() -> None:
    import ray

    nodes = ray.nodes()
    identity = nodes[0]["Labels"]["ray.io/node-id"]
    actors = []
    for wanted in (identity, f"in({identity},other)", "!other", "!in(other,others)"):
        needs = Needs(cpus=1, labels={"ray.io/node-id": wanted})
        assert needs.room(nodes) == 2
        placed = ray.remote(num_cpus=0)(Placed).options(label_selector=needs.options()["label_selector"])
        actors.append(placed.remote())
    assert ray.get([actor.seven.remote() for actor in actors], timeout=LONG) == [7] * 4
    for actor in actors:
        ray.kill(actor)


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


class Adder:
    """Adds a number, and refuses one below 0; the copy that first sees 7 dies of it."""

    def __init__(self, folder: str, device: str) -> None:
        self.folder, self.device = folder, device

    def add(self, number: int) -> tuple[str, int, int]:
        time.sleep(0.2)
        if number < 0:
            raise DataError(f"{number} is below 0")
        mark = Path(self.folder, "died")
        if number == 7 and not mark.exists():
            mark.touch()
            os._exit(1)
        return self.device, os.getpid(), number + 1


@pytest.mark.usefixtures("ray_cluster")
def test_copies_answer_in_order_restart_when_one_dies_and_pass_errors_on(tmp_path: Path) -> None:
    with tasks.spread(partial(Adder, str(tmp_path)), ExtractSpec(actors=2), 2) as ask:
        found = ask("add", [3, 7, 5, 6])
        assert [number for _, _, number in found] == [4, 8, 6, 7]
        assert {device for device, _, _ in found} == {"cpu"}
        assert len({process for _, process, _ in found}) >= 2
        with pytest.raises(DataError, match="-1 is below 0"):
            ask("add", [1, -1])
