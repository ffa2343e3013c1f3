"""Serve the labelling page of one run, or of all runs of an output, at an address until it is interrupted.

Whoever has its address may label, and can reach nothing else of the machine.

The address has a random token, without which every request is answered alike. Each person may have a token
of their own, which fixes their name; the main token is that of whoever runs the page, and shows the team. A browser
can only name an example, by its number in the order of choice, and a file of the page by its fixed name: never a path,
an id or a run. The page gets neither ids, which may reveal labels, nor paths, nor predictions; of a row, the columns
that ``manifest.show`` names, as text. Reasons why a picture cannot be shown, or the run cannot be read, go to the log.
Pictures are encoded anew, and nothing is loaded from elsewhere.

| request | answer |
|---|---|
| ``GET /TOKEN/`` | the page, with ``page.js`` and ``page.css``; of several runs the inbox, with a page at ``K/`` |
| ``GET /TOKEN/inbox``, ``inbox.json`` | all runs with their progress, and for the main token the team |
| ``GET /TOKEN/setup`` | classes, question and guide, whether examples are pictures, the annotator if it is fixed |
| ``POST /TOKEN/next`` | ``{annotator}`` → the example to label now, the progress, and the last answers |
| ``POST /TOKEN/answer`` | ``{annotator, number, label}`` (null: can't tell) → the same, once the answer is saved |
| ``POST /TOKEN/again`` | ``{annotator, number}`` → an example that they answered, to correct it |
| ``POST /TOKEN/undo`` | ``{annotator}`` → the last example again, with the answer that was withdrawn |
| ``POST /TOKEN/release`` | ``{annotator, tab}`` → nothing: a tab was closed, and its example goes to others |
| ``GET /TOKEN/image/N`` | a picture of example N; ``/whole`` with all its pixels |
| ``GET /TOKEN/example/C/N`` | a picture of the guide: the N-th of the C-th described class |

Some answers are not saved at first: those that would replace one that the annotator gave on another page, and unlikely
numbers. Their status is 409, with a question ``{ask, over, sure}``. Sent again with them, they are saved.
"""

import hashlib
import hmac
import json
import logging
import math
import os
import secrets
import signal
import socket
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from opacc_ray.errors import DataError, LabelError, OpaccError, SpecError, StorageError, counted
from opacc_ray.labels.desk import Desk, LabelSession, TakenError, UnsureError
from opacc_ray.labels.formats import checked_annotator
from opacc_ray.labels.shown_examples import Picture
from opacc_ray.lake.store_uris import open_store
from opacc_ray.registry import require
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.runs.series import names_of_runs

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import BaseRoute, Mount, Route, Router
    from starlette.types import Message, Receive, Scope, Send
except ImportError:
    require("the labelling page", "starlette", "uvicorn", "markdown_it")
    raise

log = logging.getLogger(__name__)

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


# -- requests -------------------------------------------------------------------------------------------------------

MAX_BODY, LONGEST_PATH = 16_384, 100  # most bytes of a request, and most characters of its path after the token

PAGE = Path(__file__).parent / "page"

NOT_SHOWN = (
    "This picture cannot be shown. Answer “can’t tell”, or ask the person who runs the page: its log has the reason."
)
NO_PAGE = "There is no page here. It has a new address whenever it is started again: ask the person who runs it."

NOT_READ = "The run cannot be used now. Try again, or ask the person who runs the page: its log has the reason."

HEADERS = {
    b"content-security-policy": b"default-src 'none'; img-src 'self' data:; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"cross-origin-resource-policy": b"same-origin",
}


@dataclass(frozen=True)
class Access:
    """Who may use the page, and by which name."""

    token: str  # of whoever runs the page
    people: Mapping[str, str] = field(default_factory=dict)  # token -> name of an annotator
    annotator: str | None = None  # the only name, if it is fixed
    header: str | None = None  # header in which a proxy gives the name of who signed in

    def knows(self, token: str) -> bool:
        """Return whether a token is valid, in a time that does not depend on it."""
        data = token.encode(errors="replace")
        same = [secrets.compare_digest(data, known.encode()) for known in (self.token, *self.people)]
        return any(same)

    def name(self, token: str, request: Request) -> str | None:
        """Return the name that is fixed for a request; None if its annotator gives it."""
        signed_in = request.headers.get(self.header) if self.header else None
        if self.header and not signed_in:
            raise LabelError("you are not signed in: open the address through the proxy")
        return signed_in or self.people.get(token) or self.annotator


class WebApp:
    """ASGI application of the page, which checks the token before anything else.

    ``desks`` returns the runs to label, each always at the same place; of a single run there is no inbox in front.
    """

    def __init__(
        self,
        desks: Callable[[], list[Desk]],
        access: Access,
        *,
        several: bool = False,
        on_done: Callable[[Desk], None] = lambda desk: None,
    ) -> None:
        self._desks, self._access, self._several, self._on_done = desks, access, several, on_done
        self._logged: set[str] = set()
        self._finished: set[str] = set()
        inbox = [_file("inbox", "inbox.html"), _file("inbox.js"), Route("/inbox.json", self._inbox, methods=["GET"])]
        routes: list[BaseRoute] = [
            *inbox,
            *(_file("", "page.html"), _file("page.js"), _file("page.css")),
            Route("/setup", self._setup, methods=["GET"]),
            Route("/next", partial(self._do, lambda desk, name, asked: desk.state(name)), methods=["POST"]),
            Route("/answer", partial(self._do, lambda desk, name, asked: desk.save(name, asked)), methods=["POST"]),
            Route("/again", partial(self._do, lambda desk, name, asked: desk.again(name, asked)), methods=["POST"]),
            Route("/undo", partial(self._do, lambda desk, name, asked: desk.undo(name)), methods=["POST"]),
            Route("/release", self._release, methods=["POST"]),
            Route("/image/{number:int}", self._image, methods=["GET"]),
            Route("/image/{number:int}/whole", self._image, methods=["GET"]),
            Route("/example/{index:int}/{picture:int}", self._example, methods=["GET"]),
        ]
        if several:
            routes = [_file("", "inbox.html"), *inbox, _file("page.css"), _below("/{place:int}", routes)]
        handlers = {ClientDisconnect: _left, OpaccError: self._refuse}
        self._app = Starlette(routes=[_below("/{token}", routes)], exception_handlers=handlers)
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan events need no action, and web sockets are refused
            return
        given, _, rest = scope["path"].removeprefix("/").partition("/")

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", [])
                named = {name for name, _ in own}
                message["headers"] = [*own, *((name, text) for name, text in HEADERS.items() if name not in named)]
            await send(message)

        is_known = self._access.knows(given) and len(rest) <= LONGEST_PATH
        answer = self._app if is_known else PlainTextResponse(NO_PAGE, 404)
        await answer(scope, receive, send_guarded)

    async def _desk(self, request: Request) -> Desk:
        desks, place = await run_in_threadpool(self._desks), request.path_params.get("place", 0)
        if place >= len(desks):
            raise HTTPException(404, NO_PAGE)
        return desks[place]

    def _name(self, request: Request) -> str | None:
        return self._access.name(request.path_params["token"], request)

    async def _setup(self, request: Request) -> Response:
        desk = await self._desk(request)
        return JSONResponse(desk.setup() | {"annotator": self._name(request), "inbox": self._several})

    async def _inbox(self, request: Request) -> Response:
        """Return all runs with their progress; to whoever runs the page the people, too."""
        may_see_team = request.path_params["token"] == self._access.token and not self._access.header

        def found() -> dict[str, Any]:
            name, desks = self._name(request), self._desks()
            entries = [
                desk.entry(name) | {"place": place if self._several else None} for place, desk in enumerate(desks)
            ]
            team = [{"run": desk.name} | desk.team() for desk in desks] if may_see_team else None
            return {"name": name, "runs": entries, "team": team}

        return JSONResponse(await run_in_threadpool(found))

    async def _asked(self, request: Request) -> tuple[Desk, str, dict[str, Any]]:
        """Return what a request of the page is about: a run, an annotator, and its JSON object."""
        desk, asked = await self._desk(request), await _body(request)
        return desk, checked_annotator(self._name(request) or asked.get("annotator")), asked

    async def _do(self, work: Callable[[Desk, str, dict[str, Any]], dict[str, Any]], request: Request) -> Response:
        desk, name, asked = await self._asked(request)
        desk.queue.note_tab(name, asked.get("tab"))
        try:
            state = await run_in_threadpool(work, desk, name, asked)
        except TakenError as error:
            return JSONResponse(await run_in_threadpool(desk.state, name) | {"note": str(error)})
        self._tell_if_done(desk, state)
        return JSONResponse(state)

    async def _release(self, request: Request) -> Response:
        desk, name, asked = await self._asked(request)
        desk.queue.release(name, asked.get("tab"))
        return Response(status_code=204)

    async def _refuse(self, request: Request, error: Exception) -> Response:
        """Answer an error by one sentence, and a status for who can fix it: the annotator, or whoever runs the page."""
        if isinstance(error, UnsureError):
            return JSONResponse({"ask": str(error), "over": error.over, "sure": error.sure}, 409)
        if isinstance(error, LabelError):
            return JSONResponse({"error": str(error)}, 400)
        self._log(error)
        return JSONResponse({"error": NOT_READ}, 503 if isinstance(error, StorageError) else 500)

    def _tell_if_done(self, desk: Desk, state: Mapping[str, Any]) -> None:
        """Tell whoever runs the page, once, that all examples of a run are answered."""
        progress, key = state["progress"], f"{desk.name} {state['progress']['total']}"
        if "saved" in state and progress["done"] == progress["total"] and key not in self._finished:
            self._finished.add(key)
            self._on_done(desk)

    def _log(self, error: Exception) -> None:
        """Log an error once, for the person who runs the page; it may name ids and paths."""
        if str(error) not in self._logged:
            self._logged.add(str(error))
            log.warning("%s", error)

    async def _image(self, request: Request) -> Response:
        desk, number = await self._desk(request), request.path_params["number"]
        whole = request.scope["path"].endswith("/whole")
        if number >= len(desk.queue.ids):
            raise HTTPException(404, NO_PAGE)
        return await self._picture(partial(desk.picture, number, whole=whole))

    async def _example(self, request: Request) -> Response:
        desk = await self._desk(request)
        asked = request.path_params
        return await self._picture(partial(desk.example_of_class, asked["index"], asked["picture"]))

    async def _picture(self, read: Callable[[], Picture]) -> Response:
        try:
            picture = await run_in_threadpool(read)
        except (DataError, StorageError) as error:
            self._log(error)
            return PlainTextResponse(NOT_SHOWN, 503 if isinstance(error, StorageError) else 422)
        return Response(picture.data, media_type=picture.kind, headers={"cache-control": "private, max-age=600"})


async def _left(request: Request, error: Exception) -> Response:
    """Answer nobody: the browser was closed while it sent a request, and nothing of it was done."""
    return Response(status_code=400)


def _file(path: str, name: str | None = None) -> BaseRoute:
    """Return the route to a file of the page."""

    async def answer(request: Request) -> Response:
        return FileResponse(PAGE / (name or path))

    return Route(f"/{path}", answer, methods=["GET"])


def _below(path: str, routes: list[BaseRoute]) -> BaseRoute:
    return Mount(path, app=Router(routes, redirect_slashes=False))


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request; raises LabelError for anything else."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MAX_BODY:
            raise LabelError(f"a request has at most {MAX_BODY} bytes")
    try:
        asked = json.loads(content)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise LabelError("a request must be a JSON object")
    return asked
