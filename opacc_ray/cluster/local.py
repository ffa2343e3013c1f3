"""A local Ray in processes of its own, which can start while the command does other work. Ray is not imported here.

Ray takes seconds to start, and a run has work before it needs one: a trial of the model, say. Who runs one audit opens
:func:`ahead`; what finds that actors will be needed calls :func:`begin`; what needs them takes :func:`started`.
"""

import contextlib
import logging
import os
import secrets
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextvars import ContextVar

from opacc_ray.errors import ClusterError

log = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds in which the processes must have ended, and their folder is removed."""


def named_address() -> str:
    """The address of the cluster that the environment names; `local` where it names none."""
    return os.environ.get("RAY_ADDRESS") or "local"


def lock() -> None:
    """Let nobody into a Ray that this process starts, whose ports listen on all interfaces: Ray's token mode.

    The token is random, and in this process's environment alone, which its workers inherit.
    """
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)


class LocalRay:
    """A Ray that only this process, and those that it starts, can use.

    It ends with :meth:`end`, or when this process dies, however that happens. Workers inherit this process's
    environment and module path as they are now.
    """

    def __init__(self) -> None:
        log.info("starting a local Ray")
        lock()
        self._lost = ""
        self._log = tempfile.TemporaryFile(prefix="opacc-ray-", suffix=".log")  # noqa: SIM115 (closed at its end)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "opacc_ray.cluster.head"],  # -P: not from the current folder
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for this process, which then ends it
        )

    def address(self) -> str:
        """Wait until it has started, and return where; raises ClusterError if it could not."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"ray at "):
                return line.split()[-1].decode()
        text = os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace").strip()
        raise ClusterError(f"no local Ray could be started: {text.splitlines()[-1] if text else 'it said nothing'}")

    def lost(self) -> str:
        """Which process of Ray has ended, so that no work is done any more; empty if none has."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 0)
        if ready and not self._lost:
            self._lost = self._process.stdout.readline().decode().strip() or "process"
        return self._lost

    def end(self, *, wait: bool = True) -> None:
        """End its processes; those that are still starting end by themselves in a moment."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if wait:
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process.stdout.close()
        self._log.close()


class _Ahead:
    """The Ray that was started ahead, until it is taken."""

    ray: LocalRay | None = None


_AHEAD: ContextVar[_Ahead | None] = ContextVar("ahead", default=None)


@contextlib.contextmanager
def ahead() -> Iterator[None]:
    """Let :func:`begin` start a Ray in the block; it ends with the block if nobody took it."""
    if _AHEAD.get() is not None:
        yield
        return
    own = _Ahead()
    token = _AHEAD.set(own)
    try:
        yield
    finally:
        _AHEAD.reset(token)
        if own.ray is not None:
            own.ray.end(wait=False)


def begin() -> None:
    """Start a Ray that will be needed, and do not wait for it.

    Nothing happens outside :func:`ahead`, or if a cluster is named or joined already.
    """
    own = _AHEAD.get()
    if own is None or own.ray is not None or named_address() != "local":
        return
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        own.ray = LocalRay()


@contextlib.contextmanager
def started() -> Iterator[str]:
    """The address of the Ray that was started ahead, or of one that starts now; it ends with the block."""
    own = _AHEAD.get() or _Ahead()
    found, own.ray = own.ray or LocalRay(), None
    try:
        address = found.address()
        _USED.append(found)
        yield address
    finally:
        if found in _USED:
            _USED.remove(found)
        found.end()


_USED: list[LocalRay] = []
"""Those that threads of this process use now."""


def raise_if_lost() -> None:
    """Raise ClusterError if a local Ray that is used now has lost a process: to wait for its work would take minutes.

    Calls to Ray wait for a minute then, and end this process.
    """
    for ray in list(_USED):
        if name := ray.lost():
            raise ClusterError(
                f"the local Ray has ended, because its {name} was killed or failed; often memory runs out. Finished "
                "shards are kept: run the same command again"
            )
