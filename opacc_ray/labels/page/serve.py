"""Serve the labelling page of one run, or of all runs of an output, at an address until it is interrupted."""

import hashlib
import hmac
import logging
import math
import os
import secrets
import signal
import socket
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from opacc_ray.documents import Document, format_field
from opacc_ray.errors import DataError, OpaccError, SpecError, counted
from opacc_ray.labels.label_rows import checked_annotator
from opacc_ray.labels.page.desk import Desk
from opacc_ray.lake.store_uris import open_store
from opacc_ray.registry import require
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.runs.series import names_of_runs

log = logging.getLogger(__name__)


class LabelSession(Document):
    """Answers that came in while the labelling page was served."""

    format: Literal["opacc-label-session/1"] = format_field("opacc-label-session/1")
    run: str = Field(description="URI of the run")
    saved: int = Field(ge=0, description="answers that this server saved, undone ones included")
    done: int = Field(ge=0, description="answers that are there now")
    total: int = Field(ge=0, description="answers that are needed: two for examples of the overlap, one for others")
    different: int = Field(ge=0, description="examples whose answers differ and that have no correction")


TOKEN = "OPACC_LABEL_TOKEN"  # environment variable for a token that stays the same from one start to the next

SHORTEST_TOKEN = 16

RESCAN = 30.0  # seconds between searches for new runs of an output

FAREWELL = 2.5  # seconds in which pages that wait, and ask every second, learn that nothing more is to label

SETTINGS: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "lifespan": "off",
    "ws": "none",
    "timeout_graceful_shutdown": 3,
}
"""Settings of uvicorn."""


def serve(
    place: Run | str,
    host: str,
    port: int,
    announce: Callable[[str], None],
    *,
    annotator: str | None = None,
    overlap: float | None = None,
    go_on: Callable[[], bool] | None = None,
    people: Sequence[str] = (),
    user_header: str | None = None,
    on_person: Callable[[str, str], None] = lambda name, address: None,
    on_done: Callable[[Desk], None] = lambda desk: None,
) -> LabelSession:
    """Serve the page until SIGINT; ``announce`` is called with its URL once it can be opened.

    Parameters
    ----------
    place : a run, or the URI of an output, whose runs with something to label have an inbox
    port : 0: any free one
    go_on : called by a thread whenever no answer is missing; it may draw another round of the run, and returns whether
        there is something to label. Once there is not, the page ends. None: it does not end by itself
    people : annotators who get an address of their own, which ``on_person`` is called with
    user_header : header in which a proxy that signs people in gives their name
    on_done : called once all examples of a run are answered

    Raises SpecError if packages are missing, the address cannot be used, the token is too short, or annotators would
    see nothing of the examples; LabelError if the run has no selection, or a name is invalid; and DataError if the rows
    of the pool cannot be shown, or an output has no run that waits for labels.
    """
    require("the labelling page", "starlette", "uvicorn", "markdown_it")
    import uvicorn

    from opacc_ray.labels.page.web_app import Access, WebApp

    if go_on is not None and not isinstance(place, str):
        place = Run.open(place.uri)  # another thread draws from the one that was given
    desks = WaitingRuns(place, overlap) if isinstance(place, str) else _only(place, overlap)
    token, names = _token(), [checked_annotator(name) for name in people]
    own = {_token_of(name, token): name for name in names}
    access = Access(token, own, None if annotator is None else checked_annotator(annotator), user_header)
    page = WebApp(desks, access, several=isinstance(place, str), on_done=on_done)
    with _bound(host, port) as opened:
        address = f"http://{_shown(host)}:{opened.getsockname()[1]}"
        for key, name in own.items():
            on_person(name, f"{address}/{key}/")
        announce(f"{address}/{token}/")
        server = uvicorn.Server(uvicorn.Config(page, **SETTINGS))
        rounds = None if go_on is None else _Rounds(server, desks()[0], go_on)
        try:
            server.run(sockets=[opened])
        except KeyboardInterrupt as end:
            if signal.SIGTERM in end.args:  # SIGTERM has its own exit code
                raise
        if rounds is not None:
            rounds.end()
    queues = [desk.queue for desk in desks()]
    progress = [queue.progress("") for queue in queues]
    return LabelSession(
        run=place if isinstance(place, str) else place.uri,
        saved=sum(queue.saved for queue in queues),
        done=sum(counts.done for counts in progress),
        total=sum(counts.total for counts in progress),
        different=sum(queue.num_different() for queue in queues),
    )


class _Rounds(threading.Thread):
    """Goes on with a run while its page is served; ends the server once there is nothing more to label."""

    def __init__(self, server: Any, desk: Desk, go_on: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self._server, self._desk, self._go_on = server, desk, go_on
        self._ended = threading.Event()
        self._error: BaseException | None = None
        desk.goes_on = True
        self.start()

    def run(self) -> None:
        try:
            while not self._ended.wait(0.5):
                self._desk.queue.look()  # others may import labels, too
                if self._desk.queue.is_done() and not self._has_more():
                    self._desk.goes_on = False
                    self._ended.wait(FAREWELL)
                    return
        except BaseException as error:
            self._error = error
        finally:
            self._server.should_exit = True

    def _has_more(self) -> bool:
        drawn = self._go_on()
        self._desk.queue.look(now=True)
        return drawn and not self._desk.queue.is_done()

    def end(self) -> None:
        """Wait for a draw that has begun; raise its error."""
        self._ended.set()
        self.join()
        if self._error is not None:
            raise self._error


def _only(run: Run, overlap: float | None) -> Callable[[], list[Desk]]:
    run.drawn_rounds()
    desk = Desk(run, overlap)
    desk.prepare()
    return lambda: [desk]


def holds_runs(uri: str) -> bool:
    """Return whether a URI is that of an output with runs, and not of a run."""
    store = open_store(uri)
    return not store.exists(HEADER) and bool(names_of_runs(store))


class WaitingRuns:
    """The runs of an output that wait for labels, searched again every `RESCAN` seconds; each keeps its place.

    Raises DataError if there is none when it starts.
    """

    def __init__(self, output: str, overlap: float | None) -> None:
        self._store, self._overlap = open_store(output), overlap
        self._lock = threading.Lock()
        self._desks: dict[str, Desk] = {}
        self._failed: dict[str, str] = {}  # name of a run that cannot be served -> why
        self._seen: dict[str, int] = {}  # name -> entries of its log when it was looked at
        self._searched = -math.inf
        if not self():
            failed = f", and {counted(len(self._failed), 'run')} cannot be labelled here, as said above"
            what = f"no run under {self._store.uri} waits for labels{failed if self._failed else ''}"
            raise DataError(f"{what}; draw some with `opacc run`")

    def __call__(self) -> list[Desk]:
        with self._lock:
            if time.monotonic() - self._searched > RESCAN:
                for name in names_of_runs(self._store):
                    self._look_at(name)
                self._searched = time.monotonic()
            return list(self._desks.values())

    def _look_at(self, name: str) -> None:
        """Add a run that has something to label; one that cannot be served is left out with a warning."""
        try:
            run = Run.open(self._store.store(name).uri)
            entries = len(run.commits)
            if name in self._desks or self._seen.get(name) == entries:
                return
            self._seen[name] = entries
            if run.rounds():
                desk = Desk(run, self._overlap)
                if not desk.queue.is_done():
                    desk.prepare()
                    self._desks[name] = desk
        except OpaccError as error:
            if self._failed.get(name) != str(error):
                log.warning("%s cannot be labelled here: %s", name, error)
            self._failed[name] = str(error)


def _token() -> str:
    given = os.environ.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(24)
    if len(given) < SHORTEST_TOKEN or not given.replace("-", "").replace("_", "").isalnum() or not given.isascii():
        raise SpecError(f"{TOKEN} must be at least {SHORTEST_TOKEN} random letters, digits, '-' and '_'")
    return given


def _token_of(name: str, token: str) -> str:
    """Return the token of a person, which follows from the main one, and from which that does not follow."""
    return urlsafe_b64encode(hmac.digest(token.encode(), name.encode(), hashlib.sha256)[:24]).decode()


def _shown(host: str) -> str:
    """Return the host of an address that others can open."""
    if host in ("0.0.0.0", "::"):
        return socket.getfqdn()
    return f"[{host}]" if ":" in host else host


def _bound(host: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen()  # before the address is announced, so that it can be opened at once
    except (OSError, OverflowError) as error:
        opened.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise SpecError(
            f"{host}:{port} cannot be used ({reason}): give another --host or --port, or --port 0 for any free port"
        ) from None
    return opened
