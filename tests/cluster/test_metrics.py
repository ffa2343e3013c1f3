"""Metrics never delay or end a run; test_jobs.py tests their values."""

import logging
import time

import pytest
from ray_with_jobs import free_ports

from opacc_ray.cluster.metrics import Metrics


def test_cluster_that_does_not_answer_costs_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    [port] = free_ports(1)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    caplog.set_level(logging.WARNING, "opacc_ray")
    metrics, begun = Metrics("run"), time.monotonic()
    metrics.shards(0, 1)
    metrics.state(3, (0.9, 0.8, 0.95))
    assert time.monotonic() - begun < 60  # Ray itself looks for minutes
    assert not metrics.is_on
    [record] = caplog.records
    assert f"metrics are not exported: nothing answers at 127.0.0.1:{port}" in record.getMessage()


@pytest.mark.parametrize("address", [None, "local"])
def test_no_cluster_no_metrics(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    metrics = Metrics("run")
    assert not metrics.is_on
    metrics.extracted(10, 1000)
    metrics.state(0, None)
