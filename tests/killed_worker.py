"""A worker that is killed at one shard, once."""

import os
import signal
from pathlib import Path

from opacc_ray.cluster import actor_pool


def killed_once(marker: Path) -> type[actor_pool.Worker]:
    """A worker that SIGKILL ends at shard 5, unless the file ``marker`` says that it has: it is written before."""

    class Victim(actor_pool.Worker):
        def extract(self, shard):
            if shard.number == 5 and not marker.exists():
                marker.write_text("died")
                os.kill(os.getpid(), signal.SIGKILL)
            return super().extract(shard)

    return Victim
