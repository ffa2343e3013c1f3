"""Ray's errors: which mean lost work, and which a lack of memory."""

import pytest
from ray import ObjectRef
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    OwnerDiedError,
    RayTaskError,
    TaskCancelledError,
    WorkerCrashedError,
)

from opacc_ray.cluster.tasks import LOST, ran_out_of_memory

REFERENCE = ObjectRef.from_random().hex()


@pytest.mark.parametrize(
    "error",
    [
        ActorDiedError(),
        ActorUnavailableError("gone", None),
        NodeDiedError("gone"),
        ObjectLostError(REFERENCE, None, ""),
        OutOfMemoryError("the node runs low on memory"),
        OwnerDiedError(REFERENCE, None, ""),
        WorkerCrashedError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_lost_work_is_distinguished_from_failed_work(error: Exception) -> None:
    assert isinstance(error, LOST)


@pytest.mark.parametrize("error", [TaskCancelledError(), RayTaskError("f", "trace", KeyError("x")), ValueError("x")])
def test_work_that_failed_by_itself_is_not_lost(error: Exception) -> None:
    assert not isinstance(error, LOST)
    assert not ran_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [OutOfMemoryError("x"), MemoryError("x"), RayTaskError("f", "trace", MemoryError("x")).as_instanceof_cause()],
)
def test_lack_of_memory_is_recognised(error: Exception) -> None:
    assert ran_out_of_memory(error)
