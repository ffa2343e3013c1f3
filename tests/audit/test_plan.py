"""What `opacc check --plan` says beforehand is what a run then takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_model
from local_s3 import LocalS3
from s3_proxies import CountingProxy

from opacc_ray.audit import checks
from opacc_ray.audit.checks import actor_bytes, check, plan_run
from opacc_ray.cli.command import terminal_text
from opacc_ray.errors import SpecError
from opacc_ray.extract import trial
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.extractor import Extractor
from opacc_ray.extract.inference import Feed
from opacc_ray.extract.machine import resident_bytes
from opacc_ray.extract.trial import measure_pace
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report import answers
from opacc_ray.spec import Spec, parse_spec, plan_pool


class Clock:
    """Seconds that pass while the model sleeps, and not otherwise: those of a machine that does nothing else."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(trial, "time", clock)
    monkeypatch.setattr(small_model, "time", clock)
    return clock


def spec_of(spec: Callable[..., dict[str, Any]], folder: Path, seconds: float = 0.25) -> Spec:
    """The small pool with a model that takes some seconds a batch of 8."""
    content = spec(sample={"method": "srs", "budget": 10})
    content["model"] |= {
        "factory": "small_model:noted_network",
        "arguments": {"folder": str(folder), "seconds": seconds},
    }
    return parse_spec(content, "spec")


def test_a_plan_says_what_a_run_takes(
    spec: Callable[..., dict[str, Any]], tmp_path: Path, s3: LocalS3, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = spec_of(spec, tmp_path)
    with CountingProxy(s3.endpoint) as counted:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, counted.endpoint)
        planned = plan_run(asked, plan_pool(asked.pool, asked.extract), actors=1)
        counted.reset()
        target = open_store(f"{asked.output}/features")
        shards = plan_pool(asked.pool, asked.extract).shards
        extractor = Extractor(Extraction(asked, asked.pool, asked.features(), target))
        extractor.prepare()
        begun = clock.now
        for shard in shards:
            extractor.extract(shard)
        seconds = clock.now - begun
    written = [entry.size for entry in target.list("part-")]
    assert (planned.shards, planned.files, planned.examples, planned.estimated) == (12, 120, 120, False)
    reads = sum(num for (method, path), num in counted.requests.items() if method == "GET" and ".png" in path)
    assert planned.requests.read == reads == 120
    # A file for each shard, and the record of what the actor had loaded.
    assert planned.requests.write >= sum(num for (method, _), num in counted.requests.items() if method == "PUT") == 13
    bytes_of_pool = sum(entry.size for entry in open_store(asked.pool.uri).list())
    assert planned.bytes_read == bytes_of_pool <= counted.total(r"\.png$")
    assert planned.bytes_written == pytest.approx(sum(written), rel=0.2)
    assert 3600 * planned.hours == pytest.approx(seconds)
    assert resident_bytes() <= planned.memory_actor


def test_more_actors_take_less_time_up_to_one_a_shard(
    spec: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "BATCHES", 1)
    asked = spec_of(spec, tmp_path)
    pool = plan_pool(asked.pool, asked.extract)
    plans = [plan_run(asked, pool, actors=actors) for actors in (1, 4, 99)]
    assert [plan.actors for plan in plans] == [1, 4, 12]
    assert plans[0].hours == pytest.approx(4 * plans[1].hours) == pytest.approx(12 * plans[2].hours)


def test_memory_of_an_actor_grows_with_images_and_batches(spec: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    asked = spec_of(spec, tmp_path, seconds=0)
    job = Extraction(asked, asked.pool, asked.features(), open_store(asked.output))
    pace = measure_pace(job, plan_pool(asked.pool, asked.extract).shards, 2)
    assert (pace.example_bytes, pace.input_bytes) == (64, 256)
    large = pace._replace(example_bytes=48_000_000)
    for readers in (1, 2):  # each of which holds an example at most four times
        more = actor_bytes(asked, large, readers) - actor_bytes(asked, pace, readers)
        assert more == 4 * readers * (48_000_000 - 64)
    assert actor_bytes(asked, pace, 2) > actor_bytes(asked, pace, 1) + (64 << 20)


def test_bfloat16_is_advised_with_its_gain_and_the_change_of_outputs(
    spec: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "BATCHES", 1)
    monkeypatch.setattr(trial, "RUNNING", 0.01)
    fast = {"factory": "small_model:faster_in_half", "arguments": {"seconds": 0.2}}
    content = spec(sample={"method": "srs", "budget": 10})
    asked = parse_spec(content | {"model": content["model"] | fast}, "spec")
    made, _ = check(asked, "spec.yaml", forecast=True)
    assert made.plan is not None
    half = made.plan.bfloat16
    assert half is not None
    outputs = []
    for precision in ("float32", "bfloat16"):
        own = asked.model_copy(update={"extract": asked.extract.model_copy(update={"precision": precision})})
        feed = Feed(own, own.pool)
        outputs.append(feed.run(next(feed.read(plan_pool(own.pool, own.extract).shards[0], []))).output)
    assert half.gain == pytest.approx(20)
    assert half.change == pytest.approx(np.abs(outputs[1] - outputs[0]).max() / np.abs(outputs[0]).max(), rel=1e-5)
    assert 0 < half.change < 0.02
    line = f"{half.gain:.2g} × as fast; outputs change by up to {100 * half.change:.2g} % of the largest"
    assert line in terminal_text(answers.checks(made, "spec.yaml"))


@pytest.mark.parametrize(("seconds", "precision"), [(-0.2, "float32"), (0.2, "bfloat16"), (float("nan"), "float32")])
def test_bfloat16_is_not_advised_where_it_is_slower_or_used_or_fails(
    spec: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, seconds: float, precision: str
) -> None:
    monkeypatch.setattr(checks, "BATCHES", 1)
    monkeypatch.setattr(trial, "RUNNING", 0.01)
    content = spec(sample={"method": "srs", "budget": 10})
    content["model"] |= {"factory": "small_model:faster_in_half", "arguments": {"seconds": seconds}}
    content["extract"] = content.get("extract", {}) | {"precision": precision}
    asked = parse_spec(content, "spec")
    assert plan_run(asked, plan_pool(asked.pool, asked.extract)).bfloat16 is None


def test_nothing_is_written(spec: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    asked = spec_of(spec, tmp_path, seconds=0)
    made, failure = check(asked, "spec.yaml", forecast=True, actors=3)
    assert (failure, made.checks[-1].name) == (None, "plan")
    assert made.plan is not None
    assert (made.plan.actors, made.plan.pace.examples) == (3, 20)
    assert open_store(asked.output).list() == []
    lines = terminal_text(answers.checks(made, "spec.yaml")).splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("work", "requests", "bytes", "time", "memory"))] == [
        *("work", "requests", "bytes", "time", "memory")
    ]


def test_a_pool_of_features_has_nothing_to_plan(spec: Callable[..., dict[str, Any]]) -> None:
    columns = {"id": "id", "confidence": "score", "prediction": "class"}
    content = spec(pool={"uri": "s3://scans/table", "format": "features", "columns": columns})
    del content["model"]
    with pytest.raises(SpecError, match=r"spec.yaml: the pool contains features.*remove --plan"):
        check(parse_spec(content | {"sample": {"method": "css", "budget": 9}}, "spec"), "spec.yaml", forecast=True)
