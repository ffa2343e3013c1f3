"""What of a run is counted where Prometheus reads, if it runs on a cluster that is joined."""

import os

from opacc_ray.audit.status import status
from opacc_ray.extract.shards import ShardReport
from opacc_ray.runs.run import Run


class RunMetrics:
    """Metrics of one run. Ray is imported only where a cluster is named."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._metrics = None
        if os.environ.get("RAY_ADDRESS"):
            from opacc_ray.cluster.metrics import Metrics

            self._metrics = Metrics(run.name)

    def shards(self, done: int, total: int | None) -> None:
        """Say how many shards of the run are finished."""
        if self._metrics:
            self._metrics.shards(done, total)

    def extracted(self, report: ShardReport) -> None:
        """Count a shard that was extracted."""
        if self._metrics:
            self._metrics.extracted(report.num_examples, report.size)

    def state(self) -> None:
        """Say how the run stands along its first track: labels that it waits for, and the last estimate."""
        if self._metrics and self._metrics.is_on:
            found = status(self._run)
            stated = found.estimate
            missing = sum(item.missing for item in found.rounds)
            self._metrics.state(missing, None if stated is None else (stated.value, stated.low, stated.high))
