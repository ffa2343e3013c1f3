"""A signal during ray.init is handled after it, and a local Ray that ends meanwhile is one that was lost."""

import contextlib
import os
import subprocess
import sys

import pytest

from opacc_ray.cluster import local, session
from opacc_ray.errors import LostRayError

CONNECT = """
import signal, sys, tempfile
from opacc_ray.cli.command import end_on_sigterm
from opacc_ray.cluster import session

def disturb(place, name):
    work, calls = getattr(place, name), []

    def disturbed(*given, **options):
        if not calls:
            calls.append(name)
            signal.raise_signal(signal.Signals[sys.argv[1]])  # held: Ray connects all the same
            print("held")
        return work(*given, **options)

    setattr(place, name, disturbed)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
end_on_sigterm()
with session.local.started() as address:
    import ray

    session.local.started = lambda: session.contextlib.nullcontext(address)
    disturb(*{"before": (tempfile, "TemporaryDirectory"), "within": (signal, "signal")}[sys.argv[2]])  # Ray calls it
    try:
        with session.connected():
            print("connected")
    except KeyboardInterrupt:
        print("interrupted, and", "still there" if ray.is_initialized() else "gone")
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "within"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_waits_until_ray_has_connected(name: str, moment: str) -> None:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    command = [sys.executable, "-c", CONNECT, name, moment]
    done = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "held\ninterrupted, and gone\n"), done.stderr
    assert f"{name} received" not in done.stderr  # no trace of Ray's


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
