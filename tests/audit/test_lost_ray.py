"""A local Ray that is lost is replaced: for one run, and once for the runs of several threads."""

import contextlib
import threading
from collections.abc import Iterator

import pytest
from waiting import LONG

from opacc_ray.audit import extraction_stages
from opacc_ray.cluster import session
from opacc_ray.errors import LostRayError


@pytest.mark.parametrize(
    ("finished", "attempts"), [(0, 1 + extraction_stages.RESTARTS), (2, 3 + extraction_stages.RESTARTS)]
)
def test_a_run_gives_up_when_one_after_the_other_is_lost_and_no_shard_was_finished(
    finished: int, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def lost(_: object, __: object, made: list[int], *, has_ended: bool) -> None:
        tries.append(made)
        if len(tries) <= finished:
            made.append(0)
        raise LostRayError("the local Ray has ended")

    monkeypatch.setattr(extraction_stages, "_extract", lost)
    with pytest.raises(LostRayError):
        extraction_stages.extract([], lambda done, total: None)
    assert len(tries) == attempts


def test_threads_that_lose_the_cluster_they_share_get_one_other(monkeypatch: pytest.MonkeyPatch) -> None:
    started, used, both = [], [], threading.Barrier(2)

    @contextlib.contextmanager
    def cluster() -> Iterator[bool]:
        started.append(len(started))
        yield True

    def work(shared: session.Shared) -> None:
        with shared.used():
            with contextlib.suppress(LostRayError), session.connected():
                both.wait(LONG)
                raise LostRayError("the local Ray has ended")
            with session.connected():
                used.append(started[-1])

    monkeypatch.setattr(session.local, "is_joined", lambda: False)  # whatever other tests of this process have joined
    monkeypatch.setattr(session, "_cluster", cluster)
    monkeypatch.setattr(session, "TICK", 0.01)
    with session.Shared() as shared:
        threads = [threading.Thread(target=work, args=[shared]) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            shared.start_if_wanted()
    assert (started, used) == ([0, 1], [1, 1])
