"""Metrics of runs for Prometheus, exported by the cluster's nodes.

A driver ends with its run, while people label for days. So one small actor of the cluster, the board, keeps the metrics
beyond the jobs: each keeps its last value until the next run reports another one, or the cluster ends. Ray drops a
gauge that was not set within its last two reports, so the board sets all of them regularly. Only a cluster that is
joined has a board (RAY_ADDRESS, which every job has). Its nodes add ``ray_`` to the names. A failure here never ends a
run.
"""

import logging
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util import metrics
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from opacc_ray.cluster.session import check_address, connected
from opacc_ray.errors import ClusterError, shortened

log = logging.getLogger(__name__)

GAUGES = {
    "opacc_shards": "shards that the run extracts in all",
    "opacc_shards_done": "shards whose features are there",
    "opacc_labels_awaited": "labels that the newest round of the run waits for",
    "opacc_estimate": "the last estimate of the accuracy, or of the score of a regression",
    "opacc_interval_low": "lower end of the interval of that estimate",
    "opacc_interval_high": "upper end of that interval",
    "opacc_interval_width": "width of that interval",
}
COUNTERS = {
    "opacc_examples": "examples that were extracted",
    "opacc_feature_bytes": "bytes of features that were written",
}

BOARD = "opacc-metrics-2"  # name of the actor; it changes with the actor's methods, since old jobs may find a new actor
REPEAT = 1.0  # seconds between two settings of the gauges: Ray's shortest interval between reports
PATIENCE = 20.0  # seconds in which the board must start and take the last metrics of a run


class Board:
    """Actor with the metrics of all runs of a cluster."""

    def __init__(self) -> None:
        self._gauges = {name: metrics.Gauge(name, text, ("run",)) for name, text in GAUGES.items()}
        self._counters = {name: metrics.Counter(name, text, ("run",)) for name, text in COUNTERS.items()}
        self._counted: Counter[tuple[str, str]] = Counter()  # by driver and metric
        self._values: dict[tuple[str, str], float] = {}  # of each gauge, by metric and run
        threading.Thread(target=self._keep_setting, daemon=True).start()

    def put(self, run: str, gauges: Mapping[str, float], totals: Mapping[str, int], driver: str) -> None:
        """Set gauges of a run, and raise its counters to a driver's totals."""
        self._values |= {(name, run): value for name, value in gauges.items()}
        self._set_gauges()
        for name, total in totals.items():
            new = total - self._counted[driver, name]
            if new > 0:
                self._counters[name].inc(new, {"run": run})
                self._counted[driver, name] = total

    def _set_gauges(self) -> None:
        for (name, run), value in self._values.copy().items():
            self._gauges[name].set(value, {"run": run})

    def _keep_setting(self) -> None:
        while True:
            time.sleep(REPEAT)
            self._set_gauges()


class Metrics:
    """The metrics of one run; without a cluster or a board, nothing is exported."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._board: Any = None
        self._driver = secrets.token_hex(4)
        self._gauges: dict[str, float] = {}
        self._totals: Counter[str] = Counter()
        self.is_on = os.environ.get("RAY_ADDRESS", "local") != "local"  # whether they are exported

    def shards(self, done: int, total: int | None) -> None:
        """Report how many shards are finished."""
        self._gauges |= {"opacc_shards_done": done} | ({} if total is None else {"opacc_shards": total})
        self._try(self._put)

    def extracted(self, examples: int, size: int) -> None:
        """Count a shard that was extracted, with a file of ``size`` bytes."""
        self._totals += Counter(opacc_examples=examples, opacc_feature_bytes=size)
        self._try(self._put)

    def state(self, labels_awaited: int, stated: tuple[float, float, float] | None) -> None:
        """Report the state of a run at the end of its driver, and wait for the board.

        ``stated`` is the last estimate, and low and high of its interval; None if there is none.
        """
        self._gauges |= {"opacc_labels_awaited": labels_awaited}
        if stated is not None:
            value, low, high = stated
            self._gauges |= {"opacc_estimate": value, "opacc_interval_low": low, "opacc_interval_high": high}
            self._gauges |= {"opacc_interval_width": high - low}
        self._try(self._put_last)

    def _put_last(self) -> None:
        check_address(os.environ["RAY_ADDRESS"])
        self._board = None  # of a connection that has ended since, perhaps too early
        with connected():
            ray.get(self._put(), timeout=PATIENCE)

    def _put(self) -> Any:
        """Send all metrics to the board, including those that an earlier one has lost."""
        if not ray.is_initialized():
            return None
        self._board = self._board or _board()
        return self._board.put.remote(self._run, self._gauges, dict(self._totals), self._driver)

    def _try(self, report: Callable[[], Any]) -> None:
        if not self.is_on:
            return
        try:
            report()
        except (RayError, GetTimeoutError, ClusterError, ValueError, RuntimeError) as error:
            self.is_on = False
            log.warning("metrics are not exported: %s", shortened(str(error)))


def _board() -> Any:
    """Return the board of this cluster, on the driver's node, without the credentials of the job."""
    context = ray.get_runtime_context()
    given = context.runtime_env.get("env_vars") or {}
    own = ray.remote(Board).options(
        name=BOARD,
        namespace="opacc",
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=-1,
        scheduling_strategy=NodeAffinitySchedulingStrategy(context.get_node_id(), soft=True),
        runtime_env={"env_vars": dict.fromkeys(given, "")},
    )
    return own.remote()
