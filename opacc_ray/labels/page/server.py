"""The server of the labelling page. Whoever knows its address may label; nothing else of the machine can be reached.

The address holds a random token, without which every request is answered alike: not found. What a browser may name is
an example's number in the order of choice and a file of the page by its fixed name: never a path, an id or a run. The
page is told neither ids, which may say what an example is, nor paths, nor anything of the model: why a picture cannot
be shown, or the run not be read, goes to the log. Pictures are written anew from their pixels, and the page may load
nothing from elsewhere.

| request | answer |
|---|---|
| ``GET /TOKEN/`` | the page; ``page.js``, ``page.css`` beside it |
| ``GET /TOKEN/setup`` | classes, kind of label, name of the run, the annotator if they are fixed |
| ``POST /TOKEN/next`` | ``{annotator}`` → the example to label now, and how far all are |
| ``POST /TOKEN/answer`` | ``{annotator, number, label}`` (null: can't tell) → the same, once the answer is kept |
| ``POST /TOKEN/undo`` | ``{annotator}`` → the last example again, with the answer that was withdrawn |
| ``GET /TOKEN/image/N`` | a view of example N; ``/whole`` all its pixels |

An answer that would replace one which its author gave on another page, or that is an unlikely number, is not kept: its
status is 409, with a question ``{ask, over, sure}``. Sent again with ``over`` and ``sure``, it is meant.
"""

import json
import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from opacc_ray.errors import DataError, LabelError, OpaccError, StorageError
from opacc_ray.labels.page.book import Book, Given, TakenError, UnsureError
from opacc_ray.labels.page.views import Views
from opacc_ray.labels.rows import checked_annotator
from opacc_ray.labels.tasks import context_of
from opacc_ray.runs.run import Run

log = logging.getLogger(__name__)

MAX_BODY = 16_384
"""Bytes of a request."""

LONGEST_PATH = 100
"""Characters behind the token; no number of an example is longer."""

FILES = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}

NOT_SHOWN = (
    "This picture cannot be shown. Leave it out as “can’t tell”, or ask whoever serves the page: its log says why."
)
NOT_READ = "The run cannot be read or written now. Try again, or ask whoever serves the page: its log says why."

HEADERS = {
    b"content-security-policy": b"default-src 'none'; img-src 'self' data:; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"cross-origin-resource-policy": b"same-origin",
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Page:
    """The ASGI application: checks the token, then answers."""

    def __init__(self, run: Run, book: Book, token: str, annotator: str | None = None) -> None:
        self._run, self._book, self._token, self._annotator = run, book, token, annotator
        self._views = Views(run)
        self._logged: set[str] = set()
        routes = [Route(f"/{name}", self._file(*place), methods=["GET"]) for name, place in FILES.items()]
        routes += [
            Route("/setup", self._setup, methods=["GET"]),
            Route("/next", self._next, methods=["POST"]),
            Route("/answer", self._answer, methods=["POST"]),
            Route("/undo", self._undo, methods=["POST"]),
            Route("/image/{number:int}", self._image, methods=["GET"]),
            Route("/image/{number:int}/whole", self._whole, methods=["GET"]),
        ]
        self._app = Starlette(routes=routes)
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # a lifespan, for which there is nothing to do; no web socket is taken
            return
        given, _, rest = scope["path"].removeprefix("/").partition("/")

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", [])
                named = {name for name, _ in own}
                message["headers"] = [*own, *((name, text) for name, text in HEADERS.items() if name not in named)]
            await send(message)

        known = secrets.compare_digest(given.encode(errors="replace"), self._token.encode())
        if not known or len(rest) > LONGEST_PATH:
            await PlainTextResponse("not found", 404)(scope, receive, send_guarded)
            return
        inner = dict(scope, path=f"/{rest}", raw_path=None, root_path="")
        await self._app(inner, receive, send_guarded)

    def _file(self, name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
        content = files("opacc_ray.labels.page").joinpath(name).read_bytes()

        async def answer(request: Request) -> Response:
            return Response(content, media_type=kind)

        return answer

    async def _setup(self, request: Request) -> Response:
        context = context_of(self._run)
        return JSONResponse(
            {"run": self._run.name, "task": context.task, "classes": context.classes, "annotator": self._annotator}
        )

    async def _next(self, request: Request) -> Response:
        return await self._do(request, lambda name, asked: self._state(name))

    async def _answer(self, request: Request) -> Response:
        return await self._do(request, self._save)

    async def _undo(self, request: Request) -> Response:
        def work(name: str, asked: dict[str, Any]) -> dict[str, Any]:
            undone = self._book.undo(name)
            return self._state(name, undone[1] if undone else None)

        return await self._do(request, work)

    def _save(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        number, label = asked.get("number"), asked.get("label")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self._book.ids):
            raise LabelError("there is no such example")
        if label is not None and not (isinstance(label, str) and label.strip()):
            raise LabelError("give a label")
        over, sure = (asked.get(key) for key in ("over", "sure"))
        text = None if label is None else label.strip()
        kept = self._book.save(name, number, text, over=over, sure=sure)
        return self._state(name) | {"saved": {"label": kept.label}}

    def _state(self, name: str, undone: Given | None = None) -> dict[str, Any]:
        """What the page shows an annotator now."""
        self._book.look()
        number = self._book.next(name)
        if number is None:
            self._book.look(now=True)
            number = self._book.next(name)
        return {
            "number": number,
            "upcoming": None if number is None else self._book.after(name, number),
            "progress": self._book.progress(name)._asdict(),
            "different": self._book.num_different() if number is None else 0,
            "undone": None if undone is None else {"label": undone.label},
        }

    async def _do(self, request: Request, work: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Response:
        """Answer a request of the page; what is wrong is said in a sentence, with a status for who can fix it."""
        try:
            asked = await _body(request)
            name = self._annotator or checked_annotator(asked.get("annotator"))
            return JSONResponse(await run_in_threadpool(work, name, asked))
        except TakenError as error:
            state = await run_in_threadpool(self._state, name)
            return JSONResponse(state | {"note": str(error)})
        except UnsureError as error:
            return JSONResponse({"ask": str(error), "over": error.over, "sure": error.sure}, 409)
        except OpaccError as error:
            if isinstance(error, LabelError):
                return JSONResponse({"error": str(error)}, 400)
            self._log(error)
            return JSONResponse({"error": NOT_READ}, 503 if isinstance(error, StorageError) else 500)

    def _log(self, error: OpaccError) -> None:
        """Say once what went wrong to whoever serves the page; it may name ids and paths."""
        if str(error) not in self._logged:
            self._logged.add(str(error))
            log.warning("%s", error)

    async def _image(self, request: Request) -> Response:
        return await self._picture(request, whole=False)

    async def _whole(self, request: Request) -> Response:
        return await self._picture(request, whole=True)

    async def _picture(self, request: Request, *, whole: bool) -> Response:
        number = request.path_params["number"]
        if number >= len(self._book.ids):
            return PlainTextResponse("not found", 404)
        try:
            picture = await run_in_threadpool(self._views.picture, self._book.ids[number], whole=whole)
        except (DataError, StorageError) as error:
            self._log(error)
            return PlainTextResponse(NOT_SHOWN, 503 if isinstance(error, StorageError) else 422)
        return Response(picture.data, media_type=picture.kind, headers={"cache-control": "private, max-age=600"})


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request; raises LabelError for anything else."""
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
