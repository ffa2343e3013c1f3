"""Joining a Ray cluster, or starting a local one that only this user can use: for one run, or for several threads.

Ray is imported only where a cluster is joined: a local one must be locked before.
"""

import contextlib
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from opacc_ray.cluster import local
from opacc_ray.errors import ClusterError, LostRayError, OpaccError, redacted, shortened
from opacc_ray.registry import has_package, require
from opacc_ray.spec import ExtractSpec

log = logging.getLogger(__name__)

TICK = 0.2  # seconds between two checks whether a thread that waits for a cluster is to end its work
SKIPPED = "RAY_DEDUP_LOGS_SKIP_REGEX"
"""Variable with the lines that a driver's Ray does not print: else it prints the last log of each node that dies."""

CONNECTED_IN = 5.0  # seconds in which a cluster must answer: Ray itself would try for minutes


@contextlib.contextmanager
def connected() -> Iterator[bool]:
    """Join the cluster that RAY_ADDRESS or an enclosing ``ray.init`` names, else start a local one and end it after.

    Yields whether it was started here. Workers of a local cluster inherit this process's environment and module path.
    On a cluster that is joined they use their own credentials: those of the driver are never sent, since Ray would show
    them to every user.
    """
    shared = _SHARED.get()
    if shared is not None:
        with shared.joined() as is_ours:
            yield is_ours
    elif local.is_joined():
        yield False
    else:
        with _cluster() as is_ours:
            yield is_ours


class Shared(contextlib.ExitStack):
    """One cluster for the runs of several threads; a context of the main thread, which ends it.

    It starts when the first run needs it. The main thread starts it, by calling :meth:`start_if_wanted` now and then:
    Ray replaces the process's handler of SIGTERM, and only the main thread can restore it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._wanted, self._tried, self._ending = threading.Event(), threading.Event(), threading.Event()
        self._is_ours = False
        self._error: OpaccError | None = None
        self._users = 0
        self._lock = threading.Lock()

    def start_if_wanted(self) -> None:
        """Start or join the cluster if a thread needs it and that was not tried; again if it was lost and all left."""
        if not self._wanted.is_set() or self._tried.is_set() or self._users:
            return
        self.close()
        self._error = None
        try:
            self._is_ours = False if local.is_joined() else self.enter_context(_cluster())
        except OpaccError as error:
            self._error = error
        self._tried.set()

    @contextlib.contextmanager
    def joined(self) -> Iterator[bool]:
        """Wait for the cluster, and use it in the block; yield whether it was started here."""
        self._wanted.set()
        while not self._enter():
            self.raise_if_ending()
        try:
            yield self._is_ours
        except LostRayError:
            with self._lock:
                self._tried.clear()
            raise
        finally:
            with self._lock:
                self._users -= 1

    def _enter(self) -> bool:
        """Wait a while for the cluster, and become one of its users if it is there; return whether it is."""
        if not self._tried.wait(TICK):
            return False
        if self._error is not None:
            if isinstance(self._error, LostRayError):
                self._tried.clear()  # another one may start
            raise type(self._error)(str(self._error))
        with self._lock:
            self._users += self._tried.is_set()
            return self._tried.is_set()

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let all that this thread does in the block use this cluster."""
        token = _SHARED.set(self)
        try:
            yield
        finally:
            _SHARED.reset(token)

    def end(self) -> None:
        """End the work of all threads as if each were interrupted: finished work is kept."""
        self._ending.set()

    def raise_if_ending(self) -> None:
        if self._ending.is_set():
            raise KeyboardInterrupt


_SHARED: ContextVar[Shared | None] = ContextVar("shared", default=None)  # what this thread shares with others


START = 8.0
"""Seconds that a local Ray takes to start, and the first actor in it."""

ASSUMED_PACE = 8e-3
"""Seconds of an example, until a trial has measured them."""


def needs_ray(extract: ExtractSpec, examples: int, pace: float | None = None) -> bool:
    """Return whether actors extract so many examples, each of which takes ``pace`` seconds on one CPU.

    On n CPUs, they save the share 1 - 1/n of that work, and a local Ray takes :data:`START` for it.
    """
    if extract.executor != "auto":
        return extract.executor == "ray"
    if _SHARED.get() is not None or local.is_joined() or local.named_address() != "local":
        return True
    saved = examples * (pace or ASSUMED_PACE) * (1 - 1 / (os.cpu_count() or 1))
    return saved >= START and has_package("ray")


def raise_if_ending() -> None:
    """Raise KeyboardInterrupt in a thread that shares a cluster and is to end its work: signals do not reach it."""
    shared = _SHARED.get()
    if shared is not None:
        shared.raise_if_ending()


@contextlib.contextmanager
def _cluster() -> Iterator[bool]:
    """Join or start a cluster, and leave or end it after; yield whether it was started here."""
    require("work in several processes", "ray")
    address = local.named_address()
    is_ours = address == "local"
    os.environ.setdefault(SKIPPED, "^")
    with contextlib.ExitStack() as until:
        if is_ours:
            address = until.enter_context(local.started())
        else:
            log.info("joining Ray at %s", redacted(address))
            check_address(address)
        import ray  # after a local one was locked

        for name in ("actor_pool", "tasks"):  # now: a job's folder may be gone when they are needed
            import_module(f"opacc_ray.cluster.{name}")

        try:
            with _signals_held(), tempfile.TemporaryDirectory(prefix="opacc-") as empty:
                # Workers of a local one begin in an empty folder: they would else look for modules in the driver's
                # current folder first, and find what was left there instead of what is installed.
                own: dict[str, Any] = {"runtime_env": {"working_dir": empty}} if is_ours else {}
                until.callback(ray.shutdown)
                local.unless_lost(ray.init, address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, RuntimeError, OSError) as error:
            if is_ours:  # a process of it was killed meanwhile, or the machine is too busy: another one may do
                local.raise_if_lost()
                raise LostRayError(f"the local Ray could not be joined: {shortened(str(error))}") from None
            raise ClusterError(f"no Ray cluster could be reached: {shortened(str(error))}") from None
        yield is_ours


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Hold SIGTERM and Ctrl-C back until the block is done, and restore their handlers, which Ray replaces.

    An exception that a signal raises inside of ``ray.init`` ends the process with a trace.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.pthread_sigmask(signal.SIG_BLOCK, before)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, before)


def check_address(address: str) -> None:
    """Raise ClusterError if nothing listens at a host and port; Ray looks up other addresses, such as auto."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ClusterError(
            f"{redacted(address)} is no address ({error}); write http://HEAD:8265, or HOST:PORT"
        ) from None
    if host is None or port is None:
        return
    try:
        socket.create_connection((host, port), timeout=CONNECTED_IN).close()
    except OSError as error:
        raise ClusterError(
            f"nothing answers at {redacted(address)} ({error}); check the address and the network"
        ) from None


def job_client(address: str | None) -> Any:
    """Return Ray's client of a job server; None: the one that the environment names."""
    from ray.job_submission import JobSubmissionClient

    return JobSubmissionClient(address)


def unauthenticated() -> type[Exception]:
    """Return Ray's error for a missing or wrong token."""
    from ray.exceptions import AuthenticationError

    return AuthenticationError
