"""``PYTHONPATH=tests python -m chaos.growth``: a node comes while an audit runs, and another one goes."""

import sys
import time
from collections.abc import Callable

from chaos.site import Site, open_site


def main() -> int:
    with open_site(nodes=1) as site:
        first = next(iter(site.cluster.worker_nodes))
        driver = site.start(site.spec("s3://audits/growth/", seconds=1.0))
        _wait(site, lambda: len(site.actors()) == 1)
        site.add_node()
        _wait(site, lambda: len(site.actors()) == 2)
        site.cluster.remove_node(first, allow_graceful=False)
        code = driver.wait(120)
        print(site.log)
    return code


def _wait(site: Site, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        if time.monotonic() > deadline or site.drivers[0].poll() is not None:
            raise TimeoutError(site.log)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
