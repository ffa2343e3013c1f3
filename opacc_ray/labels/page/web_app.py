"""Web server of the labelling page: whoever has its address may label, and can reach nothing else of the machine.

The address has a random token, without which every request is answered alike: not found. A browser can only name
an example, by its number in the order of choice, and a file of the page by its fixed name: never a path, an id or a
run. The page gets neither ids, which may reveal labels, nor paths, nor predictions; of a row, the columns that
``manifest.show`` names, as text. Reasons why a picture cannot be
shown, or the run cannot be read, go to the log. Pictures are encoded anew, and nothing is loaded from elsewhere.

| request | answer |
|---|---|
| ``GET /TOKEN/`` | the page, with ``page.js`` and ``page.css`` |
| ``GET /TOKEN/setup`` | classes, kind of label, whether examples are pictures, the annotator if it is fixed |
| ``POST /TOKEN/next`` | ``{annotator}`` → the example to label now, and the progress |
| ``POST /TOKEN/answer`` | ``{annotator, number, label}`` (null: can't tell) → the same, once the answer is saved |
| ``POST /TOKEN/undo`` | ``{annotator}`` → the last example again, with the answer that was withdrawn |
| ``GET /TOKEN/image/N`` | a picture of example N; ``/whole`` with all its pixels |

Some answers are not saved at first: those that would replace one that the annotator gave on another page, and unlikely
numbers. Their status is 409, with a question ``{ask, over, sure}``. Sent again with them, they are saved.
"""

import json
import logging
import secrets
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from opacc_ray.errors import DataError, LabelError, OpaccError, StorageError
from opacc_ray.labels.example_files import PictureCache
from opacc_ray.labels.label_rows import as_shown, checked_annotator
from opacc_ray.labels.labelling_tasks import refuse_invisible, rows_to_show
from opacc_ray.labels.page.label_queue import Given, LabelQueue, TakenError, UnsureError
from opacc_ray.runs.run import Run

log = logging.getLogger(__name__)

MAX_BODY, LONGEST_PATH = 16_384, 100  # most bytes of a request, and most characters of its path after the token

FILES = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}

NOT_SHOWN = (
    "This picture cannot be shown. Answer “can’t tell”, or ask the person who runs the page: its log has the reason."
)
NOT_READ = "The run cannot be used now. Try again, or ask the person who runs the page: its log has the reason."

HEADERS = {
    b"content-security-policy": b"default-src 'none'; img-src 'self' data:; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"cross-origin-resource-policy": b"same-origin",
}


class WebApp:
    """ASGI application of the page, which checks the token before anything else."""

    def __init__(self, run: Run, queue: LabelQueue, token: str, annotator: str | None = None) -> None:
        self._run, self._queue, self._token, self._annotator = run, queue, token, annotator
        self._pictures = PictureCache(run)
        self._rows, self._context = rows_to_show(run, run.rounds())
        refuse_invisible(run, self._context)
        self._logged: set[str] = set()
        folder = files(__package__)
        routes = [
            *(
                Route(f"/{path}", partial(_page_file, folder.joinpath(name).read_bytes(), kind), methods=["GET"])
                for path, (name, kind) in FILES.items()
            ),
            Route("/setup", self._setup, methods=["GET"]),
            Route("/next", partial(self._do, lambda name, asked: self._state(name)), methods=["POST"]),
            Route("/answer", partial(self._do, self._save), methods=["POST"]),
            Route("/undo", partial(self._do, self._undo), methods=["POST"]),
            Route("/image/{number:int}", self._picture, methods=["GET"]),
            Route("/image/{number:int}/whole", self._picture, methods=["GET"]),
        ]
        self._app = Starlette(routes=routes)
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

        known = secrets.compare_digest(given.encode(errors="replace"), self._token.encode())
        if not known or len(rest) > LONGEST_PATH:
            await PlainTextResponse("not found", 404)(scope, receive, send_guarded)
            return
        await self._app(dict(scope, path=f"/{rest}", raw_path=None, root_path=""), receive, send_guarded)

    async def _setup(self, request: Request) -> Response:
        context = self._context
        setup: dict[str, Any] = {"run": self._run.name, "task": context.task, "classes": context.classes}
        setup |= {"pictures": context.has_pictures, "long": sorted(context.long)}
        return JSONResponse(setup | {"annotator": self._annotator})

    def _undo(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        undone = self._queue.undo(name)
        return self._state(name) | {"undone": undone and {"label": self._as_shown(*undone)}}

    def _save(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        number, label = asked.get("number"), asked.get("label")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self._queue.ids):
            raise LabelError("there is no such example")
        if label is not None and not (isinstance(label, str) and label.strip()):
            raise LabelError("give a label")
        text = None if label is None else label.strip()
        kept = self._queue.save(name, number, text, over=asked.get("over"), sure=asked.get("sure"))
        return self._state(name) | {"saved": {"label": self._as_shown(number, kept)}}

    def _as_shown(self, number: int, given: Given) -> str | None:
        return as_shown(given.label, self._run.spec.model, self._queue.ids[number])

    def _state(self, name: str) -> dict[str, Any]:
        self._queue.look()
        number = self._queue.next(name)
        if number is None:
            self._queue.look(now=True)
            number = self._queue.next(name)
        return {
            "number": number,
            "row": [] if number is None else self._row(self._queue.ids[number]),
            "upcoming": None if number is None else self._queue.after(name, number),
            "progress": self._queue.progress(name)._asdict(),
            "different": self._queue.num_different() if number is None else 0,
            "undone": None,
        }

    def _row(self, id: str) -> list[tuple[str, str]]:
        """Return the shown columns of an example with their texts."""
        if self._context.columns and id not in self._rows:  # chosen by a round drawn since
            self._rows, self._context = rows_to_show(self._run, self._run.rounds())
        return list(self._rows.get(id, {}).items())

    async def _do(self, work: Callable[[str, dict[str, Any]], dict[str, Any]], request: Request) -> Response:
        """Answer a request of the page; an error has one sentence, and a status for who can fix it."""
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
        """Log an error once, for the person who runs the page; it may name ids and paths."""
        if str(error) not in self._logged:
            self._logged.add(str(error))
            log.warning("%s", error)

    async def _picture(self, request: Request) -> Response:
        number, whole = request.path_params["number"], request.scope["path"].endswith("/whole")
        if number >= len(self._queue.ids):
            return PlainTextResponse("not found", 404)
        try:
            picture = await run_in_threadpool(self._pictures.picture, self._queue.ids[number], whole=whole)
        except (DataError, StorageError) as error:
            self._log(error)
            return PlainTextResponse(NOT_SHOWN, 503 if isinstance(error, StorageError) else 422)
        return Response(picture.data, media_type=picture.kind, headers={"cache-control": "private, max-age=600"})


async def _page_file(content: bytes, kind: str, request: Request) -> Response:
    return Response(content, media_type=kind)


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
