"""One function over many items, in tasks of one CPU."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from opacc_ray.cluster.failures import cause_of
from opacc_ray.errors import ClusterError, shortened

TASK_RETRIES = 3
"""Times a task is tried again whose worker died."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_tasks(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[tuple[Item, Result]]:
    """Run ``function(item)`` for every item in tasks of one CPU, ``workers`` at a time (default: all CPUs there are).

    Yields each item with its result as it finishes, in any order. A task whose worker dies is tried again.

    Raises
    ------
    ClusterError
        The worker of an item, which is named, died again and again.
    OpaccError
        What the function itself raised.
    """
    at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    remote = ray.remote(function).options(num_cpus=1, max_retries=TASK_RETRIES)
    waiting = iter(items)
    flying: dict[Any, Item] = {}
    try:
        while True:
            for item in islice(waiting, at_once - len(flying)):
                flying[remote.remote(item)] = item
            if not flying:
                return
            (reference,), _ = ray.wait(list(flying), num_returns=1)
            item = flying.pop(reference)
            try:
                result = ray.get(reference)
            except RayTaskError as error:
                raise cause_of(error) from None
            except RayError as error:
                raise ClusterError(
                    f"{item}: the worker died {TASK_RETRIES + 1} times: {shortened(str(error))}"
                ) from None
            yield item, result
    finally:
        for reference in flying:
            ray.cancel(reference)
