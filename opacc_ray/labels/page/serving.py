"""Run the labelling page until it is interrupted: its address, its socket, its end."""

import os
import secrets
import signal
import socket
from collections.abc import Callable
from typing import Literal, NamedTuple

from pydantic import Field

from opacc_ray.documents import Document
from opacc_ray.errors import DataError, SpecError
from opacc_ray.labels.example_files import NO_PICTURES
from opacc_ray.labels.page.book import Book
from opacc_ray.labels.rows import checked_annotator
from opacc_ray.runs.run import Run

TOKEN = "OPACC_LABEL_TOKEN"
"""Environment variable by which the token stays the same from one start to the next."""

SHORTEST_TOKEN = 16


class LabelSession(Document):
    """What came in while the labelling page was served."""

    format: Literal["opacc-label-session/1"] = Field(
        default="opacc-label-session/1", description="name and version of this form"
    )
    run: str = Field(description="URI of the run")
    saved: int = Field(ge=0, description="answers that this server saved, undone ones included")
    done: int = Field(ge=0, description="opinions that are there now")
    total: int = Field(ge=0, description="opinions that are wanted: two for examples of the overlap, one for others")
    different: int = Field(ge=0, description="examples whose answers differ and that nobody has corrected")


class Address(NamedTuple):
    """Where the page is to be served; port 0: any that is free."""

    host: str = "127.0.0.1"
    port: int = 8765


def serve(
    run: Run,
    address: Address,
    announce: Callable[[str], None],
    *,
    annotator: str | None = None,
    overlap: float | None = None,
) -> LabelSession:
    """Serve the page until SIGINT; ``announce`` is called with its address once it can be opened.

    Raises
    ------
    SpecError
        The packages are missing, the address cannot be had, or the token is too short.
    LabelError
        The run has no selection, or the name is none.
    DataError
        The pool holds nothing that a page could show.
    """
    try:
        import uvicorn

        from opacc_ray.labels.page.server import Page
    except ImportError as error:
        raise SpecError(f"opacc label needs {error.name}: pip install 'opacc_ray[page]'") from None
    run.drawn_rounds()
    if run.spec.pool.holds_features:
        raise DataError(f"{run.spec.pool.uri} cannot be labelled on a page: {NO_PICTURES}")
    book, token = Book(run, overlap), _token()
    page = Page(run, book, token, None if annotator is None else checked_annotator(annotator))
    with _bound(address) as opened:
        host = f"[{address.host}]" if ":" in address.host else address.host
        announce(f"http://{host}:{opened.getsockname()[1]}/{token}/")
        settings = uvicorn.Config(
            page,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=3,
        )
        try:
            uvicorn.Server(settings).run(sockets=[opened])
        except KeyboardInterrupt as end:
            if signal.SIGTERM in end.args:  # which has its own exit code
                raise
    progress = book.progress("")
    return LabelSession(
        run=run.uri, saved=book.saved, done=progress.done, total=progress.total, different=book.num_different()
    )


def _token() -> str:
    given = os.environ.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(24)
    if len(given) < SHORTEST_TOKEN or not given.replace("-", "").replace("_", "").isalnum() or not given.isascii():
        raise SpecError(f"{TOKEN} must be {SHORTEST_TOKEN} letters, digits, '-' and '_' or more, which nobody guesses")
    return given


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    opened = socket.socket(family)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((address.host, address.port))
        opened.listen()  # before the address is announced: whoever opens it at once waits a moment
    except (OSError, OverflowError) as error:
        opened.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise SpecError(
            f"{address.host}:{address.port} cannot be served ({reason}): give another --host or --port, or --port 0 "
            "for any that is free"
        ) from None
    return opened
