"""What extracts: actors of Ray, or one process of the command. Both write the same bytes; a run states which it was."""

import re
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from extracting_here import extracting_here
from picture_audits import features_of, run_spec

from opacc_ray.audit import extraction_stages, verbs
from opacc_ray.audit.status import ExtractionWork, status
from opacc_ray.cluster import local, session
from opacc_ray.extract import trial
from opacc_ray.extract.readers import most_ready, num_readers
from opacc_ray.extract.shards import Spent
from opacc_ray.extract.user_code import EndedError
from opacc_ray.report import answers
from opacc_ray.runs.run import Run
from opacc_ray.spec import ExtractSpec, parse_spec

LOCAL = {"batch_size": 8, "shard_size": 10, "executor": "local"}


@pytest.mark.parametrize("readers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_one_process_writes_the_bytes_of_actors(
    spec: Callable[..., dict[str, Any]], finished: Run, readers: int
) -> None:
    run = run_spec(spec(extract=LOCAL | {"readers": readers}))
    assert features_of(run) == features_of(finished)
    work = status(run).extraction
    assert work is not None
    assert (work.executor, work.processes, work.readers, work.shards) == ("local", 1, readers, 12)
    assert 0 < work.busy < 1
    assert work.ready is not None
    assert 0 <= work.ready <= most_ready(readers)
    assert work.read_rate
    assert re.search(r"reading limits; queue \d of [16]; \S+ MB/s", str(answers.status(status(run))))


def test_the_work_of_a_process_is_the_sum_over_its_stages() -> None:
    stages = [Spent("a", 1, 9.0, 10.0, 2.0, 3, 30.0), Spent("a", 1, 1.0, 10.0, 0.0, 1, 10.0)]
    work = ExtractionWork.of("ray", stages)
    assert work is not None
    assert (work.processes, work.shards, work.busy, work.ready, work.read_rate) == (1, 4, 0.5, 1.0, 2.0)


@pytest.mark.parametrize(
    ("extract", "examples", "pace", "expected"),
    [
        ({"executor": "ray"}, 1, 1e-9, True),
        ({"executor": "local"}, 10**9, 1.0, False),
        ({}, 1333, None, False),
        ({}, 1334, None, True),
        ({}, 10666, 1e-3, False),
        ({}, 10667, 1e-3, True),
    ],
)
def test_four_cpus_that_save_less_than_a_start_need_no_ray(
    extract: dict[str, Any], examples: int, pace: float | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(local, "is_joined", lambda: False)  # whatever other tests of this process have joined
    assert session.needs_ray(ExtractSpec(**extract), examples, pace) is expected
    monkeypatch.setattr(session, "has_package", lambda name: False)
    assert session.needs_ray(ExtractSpec(**extract), examples, pace) is (extract.get("executor") == "ray")
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert session.needs_ray(ExtractSpec(**extract), examples, pace) is (extract.get("executor") != "local")


def test_one_cpu_has_nothing_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr(local, "is_joined", lambda: False)
    assert not session.needs_ray(ExtractSpec(), 10**9, 1.0)


def test_readers_start_only_for_a_second_of_work() -> None:
    numbers = [num_readers(ExtractSpec(), 4, has_gpu=False, work=work) for work in (0.99, 1.0)]
    assert numbers == [0, 3]
    assert num_readers(ExtractSpec(readers=2), 4, has_gpu=False, work=0.1) == 2


def test_a_trial_that_predicts_less_starts_none(
    spec: Callable[..., dict[str, Any]], finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    ticks = count()
    monkeypatch.setattr(trial, "time", SimpleNamespace(monotonic=lambda: 1e-6 * next(ticks)))  # as an idle machine does
    run = verbs.first_round(parse_spec(spec(extract=LOCAL), "spec"), trial=True)
    assert features_of(run) == features_of(finished)
    work = status(run).extraction
    assert work is not None
    assert (work.executor, work.readers) == ("local", 0)


@pytest.mark.parametrize("executor", ["auto", "local"])
def test_actors_go_on_when_the_process_ends_unless_the_spec_forbids_it(
    spec: Callable[..., dict[str, Any]], finished: Run, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    def ended(*_: object) -> None:
        raise EndedError("the user's code (model or transform) was killed")

    monkeypatch.setattr(extraction_stages, "extract_here", ended)
    with extracting_here() as made:
        monkeypatch.setattr(session, "needs_ray", lambda *_: False)
        if executor == "local":
            with pytest.raises(EndedError, match="was killed"):
                run_spec(spec(extract=LOCAL))
            assert not made
        else:
            assert features_of(run_spec(spec())) == features_of(finished)
