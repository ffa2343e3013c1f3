"""Joining a Ray cluster, or starting a local one that nobody else can use: for one run, or for several threads."""

import contextlib
import logging
import signal
import sysconfig
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from types import FrameType, ModuleType
from typing import Self

import ray
from ray._private import ray_constants
from ray._private import utils as ray_utils
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.job_config import JobConfig

from opacc_ray.cluster import local
from opacc_ray.errors import ClusterError, shortened
from opacc_ray.lake.redaction import redacted

log = logging.getLogger(__name__)

TICK = 0.2
"""Seconds after which a thread that waits for a cluster looks whether its work is to end."""


@contextlib.contextmanager
def connected() -> Iterator[bool]:
    """Join the cluster that RAY_ADDRESS or an enclosing ``ray.init`` names, else start a local one and end it after.

    Workers of a local cluster inherit this process's environment and module path. On a cluster that is joined they
    use their own credentials: those of the driver are never sent, since Ray would show them to every user.

    Yields
    ------
    bool
        Whether the cluster is one that was started here.
    """
    shared = _SHARED.get()
    if shared is not None:
        yield shared.join()
    elif ray.is_initialized():
        yield False
    else:
        with _cluster() as is_ours:
            yield is_ours


class Shared:
    """One cluster for the runs of several threads; a context of the main thread, which ends it.

    It starts when the first run needs it. The main thread starts it, by calling :meth:`start_if_wanted` now and then:
    Ray takes the process's answer to SIGTERM, and only there can that be given back.
    """

    def __init__(self) -> None:
        self._until = contextlib.ExitStack()
        self._wanted, self._tried, self._ending = threading.Event(), threading.Event(), threading.Event()
        self._is_ours = False
        self._error: ClusterError | None = None

    def start_if_wanted(self) -> None:
        """Start or join the cluster if a thread needs it and that was not tried."""
        if not self._wanted.is_set() or self._tried.is_set():
            return
        try:
            self._is_ours = False if ray.is_initialized() else self._until.enter_context(_cluster())
        except ClusterError as error:
            self._error = error
        self._tried.set()

    def join(self) -> bool:
        """Wait for the cluster; returns whether it is one that was started here."""
        self._wanted.set()
        while not self._tried.wait(TICK):
            raise_if_ending()
        if self._error is not None:
            raise ClusterError(str(self._error))
        return self._is_ours

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let all that this thread does in the block use this cluster."""
        token = _SHARED.set(self)
        try:
            yield
        finally:
            _SHARED.reset(token)

    def end(self) -> None:
        """Let the work of all threads end as if each were interrupted: what is done is kept."""
        self._ending.set()

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._until.close()


_SHARED: ContextVar[Shared | None] = ContextVar("shared", default=None)
"""The cluster that this thread shares with others."""


def raise_if_ending() -> None:
    """Raise KeyboardInterrupt in a thread that shares a cluster, and whose work is to end: signals do not reach it."""
    shared = _SHARED.get()
    if shared is not None and shared.is_ending:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _cluster() -> Iterator[bool]:
    """Join or start a cluster, and leave or end it after; yields whether it was started here."""
    address = local.named_address()
    with contextlib.ExitStack() as until:
        if address == "local":
            place = until.enter_context(local.started())
            read_token()
        else:
            log.info("joining Ray at %s", redacted(address))
            place = address
        try:
            with _signals_held():
                job = _Job(_py_driver_sys_path=_own_folder())
                ray.init(address=place, job_config=job, log_to_driver=False, logging_level=logging.ERROR)
                until.callback(ray.shutdown)
        except (ConnectionError, RuntimeError, OSError) as error:
            raise ClusterError(f"no Ray cluster could be reached: {shortened(str(error))}") from None
        yield address == "local"


class _Job(JobConfig):  # type: ignore[misc]
    """A job whose workers do not look for modules in the driver's current folder, and beside its script, first of all.

    They would find what somebody left there instead of what is installed. Where the user's own modules are, the work
    itself says (see ``see_modules``). Ray leaves its module path alone for jobs that bring a folder of their own.
    """

    def _runtime_env_has_working_dir(self) -> bool:
        return True


def _own_folder() -> list[str]:
    """Where this package lies, if it is not installed: workers of a cluster that is joined would not find it."""
    folder = Path(__file__).resolve().parents[2]
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return [] if folder in installed else [str(folder)]


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Hold SIGTERM and Ctrl-C back until the block is done; a second one acts at once.

    An exception that a signal raises inside of ``ray.init`` ends the process with a trace. Ray would replace its answer
    to SIGTERM by such an exception, and until then by one of its C++ part, which writes a trace and may abort.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    came: list[int] = []

    def let_go() -> None:
        for number, answer in before.items():
            signal.signal(number, answer)

    def hold(number: int, frame: FrameType | None) -> None:
        if came:
            let_go()
            signal.raise_signal(number)
        came.append(number)

    with (
        _replaced(ray_utils, "set_sigterm_handler", lambda _: None),
        _replaced(ray_constants, "RAY_DISABLE_FAILURE_SIGNAL_HANDLER", True),
    ):
        for number in before:
            signal.signal(number, hold)
        try:
            yield
        finally:
            let_go()
    if came:
        signal.raise_signal(came[0])


@contextlib.contextmanager
def _replaced(place: ModuleType, name: str, value: object) -> Iterator[None]:
    """Let a module have another value under a name for the block; one that lacks the name does not read it."""
    own = getattr(place, name, value)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, own)


def read_token() -> None:
    """Let Ray in this process know the token of a cluster that was locked: see :func:`local.lock`."""
    Config.initialize("")  # Ray read its settings when it was imported
    AuthenticationTokenLoader.instance().reset_cache()
