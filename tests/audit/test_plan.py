"""What `opacc plan` says beforehand is what a run then takes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from counting_proxy import CountingProxy

from opacc_ray.audit.checks import RunPlan, actor_bytes, plan_run
from opacc_ray.cli import run_answers
from opacc_ray.cli.terminal import terminal_text
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.errors import SpecError
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.extractor import Extractor
from opacc_ray.extract.machine import resident_bytes
from opacc_ray.extract.trial import measure_pace
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import Spec, parse_spec, plan_pool


def spec_of(spec: Callable[..., dict[str, Any]], folder: Path) -> Spec:
    """The small pool with a model that takes 0.25 s a batch of 8."""
    content = spec(sample={"method": "srs", "budget": 10})
    content["model"] |= {"factory": "small_model:noted_network", "arguments": {"folder": str(folder), "seconds": 0.25}}
    return parse_spec(content, "spec")


def test_a_plan_says_what_a_run_takes(
    spec: Callable[..., dict[str, Any]], tmp_path: Path, s3: LocalS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = spec_of(spec, tmp_path)
    with CountingProxy(s3.endpoint) as counted:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, counted.endpoint)
        planned = plan_run(asked, "spec.yaml", actors=1)
        counted.reset()
        target = open_store(f"{asked.output}/features")
        shards = plan_pool(asked.pool, asked.extract).shards
        extractor = Extractor(Extraction(asked, asked.pool, asked.features(), target))
        extractor.prepare()
        begun = time.monotonic()
        for shard in shards:
            extractor.extract(shard)
        seconds = time.monotonic() - begun
    written = [entry.size for entry in target.list()]
    assert (planned.shards, planned.files, planned.examples, planned.estimated) == (12, 120, 120, False)
    reads = sum(num for (method, path), num in counted.requests.items() if method == "GET" and ".png" in path)
    assert planned.requests.read == reads == 120
    assert planned.requests.write >= sum(num for (method, _), num in counted.requests.items() if method == "PUT") == 12
    bytes_of_pool = sum(entry.size for entry in open_store(asked.pool.uri).list())
    assert planned.bytes_read == bytes_of_pool <= counted.total(r"\.png$")
    assert planned.bytes_written == pytest.approx(sum(written), rel=0.2)
    assert seconds / 3 < 3600 * planned.hours < 2 * seconds
    assert resident_bytes() <= planned.memory_actor


def test_more_actors_take_less_time_up_to_one_a_shard(spec: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    asked = spec_of(spec, tmp_path)
    plans = [plan_run(asked, "spec.yaml", actors, num_batches=1) for actors in (1, 4, 99)]
    assert [plan.actors for plan in plans] == [1, 4, 12]
    assert plans[0].hours > 2 * plans[1].hours > 2 * plans[2].hours


def test_memory_of_an_actor_grows_with_images_and_batches(spec: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    asked = spec_of(spec, tmp_path)
    job = Extraction(asked, asked.pool, asked.features(), open_store(asked.output))
    pace = measure_pace(job, plan_pool(asked.pool, asked.extract).shards, 2)
    assert (pace.example_bytes, pace.input_bytes) == (64, 256)
    large = pace._replace(example_bytes=48_000_000)
    assert actor_bytes(asked, large, 1) - actor_bytes(asked, pace, 1) == 2 * 2 * 2 * (48_000_000 - 64)
    assert actor_bytes(asked, pace, 2) > actor_bytes(asked, pace, 1) + (64 << 20)


def test_nothing_is_written(spec: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    asked = spec_of(spec, tmp_path)
    plan_run(asked, "spec.yaml", num_batches=1)
    assert open_store(asked.output).list() == []


def test_a_pool_of_features_has_nothing_to_plan(spec: Callable[..., dict[str, Any]]) -> None:
    columns = {"id": "id", "confidence": "score", "prediction": "class"}
    content = spec(pool={"uri": "s3://scans/table", "format": "features", "columns": columns})
    del content["model"]
    with pytest.raises(SpecError, match=r"spec.yaml: the pool contains features, so nothing is extracted"):
        plan_run(parse_spec(content | {"sample": {"method": "css", "budget": 9}}, "spec"), "spec.yaml")


def test_a_plan_reads_on_a_terminal() -> None:
    content = {
        "spec": "s.yaml",
        "files": 200_000,
        "shards": 200,
        "examples": 200_000,
        "estimated": False,
        "requests": {"list": 201, "read": 200_000, "write": 202},
        "bytes_read": 30_000_000_000,
        "bytes_written": 900_000_000,
        "actors": 4,
        "hours": 2.5,
        "memory_actor": 1_500_000_000,
        "memory_driver": 400_000_000,
        "pace": {"examples": 256, "reading": 0.004, "reading_cpu": 0.002, "computing": 0.03, "device": "cpu"},
        "left_out": ["dsa"],
    }
    said = terminal_text(run_answers.plan(RunPlan(**content))).splitlines()
    assert said == [
        "work      200 shards: 200,000 examples in 200,000 files",
        "requests  201 lists, 200000 reads, 202 writes",
        "bytes     30 GB read, 900 MB of features written",
        "time      2.5 hours with 4 actors, without start-up",
        "memory    at most 1500 MB per actor, 400 MB for the driver",
        "measured  256 examples here: 4 ms to read, 30 ms to compute on cpu",
        "without   dsa, which compare with a reference",
    ]
