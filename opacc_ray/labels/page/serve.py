"""Serve the labelling page at an address until it is interrupted."""

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from opacc_ray.errors import SpecError
from opacc_ray.labels.label_documents import LabelSession
from opacc_ray.labels.label_rows import checked_annotator
from opacc_ray.labels.page.label_queue import LabelQueue
from opacc_ray.runs.run import Run

TOKEN = "OPACC_LABEL_TOKEN"  # environment variable for a token that stays the same from one start to the next

SHORTEST_TOKEN = 16

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
    run: Run,
    host: str,
    port: int,
    announce: Callable[[str], None],
    *,
    annotator: str | None = None,
    overlap: float | None = None,
    until_done: bool = False,
) -> LabelSession:
    """Serve the page until SIGINT; ``announce`` is called with its URL once it can be opened. Port 0: any free one.

    With ``until_done`` it ends once no answer is missing.

    Raises SpecError if packages are missing, the address cannot be used, or the token is too short; LabelError if the
    run has no selection, or the annotator's name is invalid; and DataError if the rows of the pool cannot be shown.
    """
    try:
        import uvicorn

        from opacc_ray.labels.page.web_app import WebApp
    except ImportError as error:
        raise SpecError(f"opacc label needs {error.name}: pip install 'opacc_ray[page]'") from None
    run.drawn_rounds()
    queue, token = LabelQueue(run, overlap), _token()
    page = WebApp(run, queue, token, None if annotator is None else checked_annotator(annotator))
    with _bound(host, port) as opened:
        shown = f"[{host}]" if ":" in host else host
        announce(f"http://{shown}:{opened.getsockname()[1]}/{token}/")
        server = uvicorn.Server(uvicorn.Config(page, **SETTINGS))
        if until_done:
            threading.Thread(target=_end_when_done, args=(server, queue), daemon=True).start()
        try:
            server.run(sockets=[opened])
        except KeyboardInterrupt as end:
            if signal.SIGTERM in end.args:  # SIGTERM has its own exit code
                raise
    progress = queue.progress("")
    return LabelSession(
        run=run.uri, saved=queue.saved, done=progress.done, total=progress.total, different=queue.num_different()
    )


def _end_when_done(server: Any, queue: LabelQueue) -> None:
    """End a server a moment after the last answer, so that the browser has shown it as saved."""
    while (progress := queue.progress("")).done < progress.total:
        time.sleep(0.5)
    time.sleep(1)
    server.should_exit = True


def _token() -> str:
    given = os.environ.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(24)
    if len(given) < SHORTEST_TOKEN or not given.replace("-", "").replace("_", "").isalnum() or not given.isascii():
        raise SpecError(f"{TOKEN} must be at least {SHORTEST_TOKEN} random letters, digits, '-' and '_'")
    return given


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
