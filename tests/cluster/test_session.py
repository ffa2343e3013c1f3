"""Joining a cluster: a signal during ray.init is handled after it; a Ray that ends meanwhile, and wrong addresses."""

import contextlib
import os
import subprocess
import sys

import pytest
from waiting import LONG

from opacc_ray.cluster import local, session
from opacc_ray.cluster.session import check_address
from opacc_ray.errors import ClusterError, LostRayError

CONNECT = """
import signal, tempfile
from opacc_ray.cli.command import end_on_sigterm
from opacc_ray.cluster import session

def disturb(place, name, number):
    work, calls = getattr(place, name), []

    def disturbed(*given, **options):
        if not calls:
            calls.append(name)
            signal.raise_signal(number)  # held: Ray connects all the same
            print("held")
        return work(*given, **options)

    setattr(place, name, disturbed)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
with session.local.started() as address:
    import ray

    session.local.started = lambda: session.contextlib.nullcontext(address)
    for number in (signal.SIGTERM, signal.SIGINT):
        for place, name in ((tempfile, "TemporaryDirectory"), (signal, "signal")):  # before Ray connects, and by it
            end_on_sigterm()  # which is for the first one
            disturb(place, name, number)
            try:
                with session.connected():
                    print("connected")
            except KeyboardInterrupt:
                print("interrupted, and", "still there" if ray.is_initialized() else "gone")
"""


@pytest.mark.slow
def test_a_signal_waits_until_ray_has_connected() -> None:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run([sys.executable, "-c", CONNECT], env=plain, capture_output=True, text=True, timeout=2 * LONG)
    assert (done.returncode, done.stdout) == (0, "held\ninterrupted, and gone\n" * 4), done.stderr
    assert " received" not in done.stderr  # no trace of Ray's


@pytest.mark.parametrize(
    ("lost", "said"),
    [("raylet", "has ended, because its raylet was killed"), ("", "could not be joined: Failed to connect")],
)
def test_a_local_ray_that_cannot_be_joined_is_lost(lost: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    class Ended:
        def lost(self) -> str:
            return lost

    def init(**options: object) -> None:
        raise RuntimeError("Failed to connect to Ray cluster at 127.0.0.1:1")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(local, "started", lambda: contextlib.nullcontext("127.0.0.1:1"))
    monkeypatch.setattr(local, "_USED", [Ended()])
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(LostRayError, match=said), session._cluster():
        pass


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://user:hidden@127.0.0.1:1", "nothing answers at http://***@127.0.0.1:1 "),
        ("127.0.0.1:http", "127.0.0.1:http is no address"),
    ],
)
def test_address_that_leads_nowhere_is_refused(address: str, message: str) -> None:
    with pytest.raises(ClusterError) as error:
        check_address(address)
    assert str(error.value).startswith(message)
    assert "hidden" not in str(error.value)
