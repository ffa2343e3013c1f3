"""Runs to label on a page, the page as a process, and the one browser that opens it."""

import io
import logging
import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import audited_run
import numpy as np
import pytest
import uvicorn
from PIL import Image
from stored_run import store_run
from waiting import LONG

from opacc_ray.audit import verbs
from opacc_ray.extract.shards import FeatureShard
from opacc_ray.labels.web_app import TOKEN, serve
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import join, open_store
from opacc_ray.runs.run import Run, write_listing
from opacc_ray.spec import parse_spec

CLASSES = audited_run.CLASSES


def grey(value: int, size: tuple[int, int] = (30, 20)) -> bytes:
    """A picture of one grey."""
    sink = io.BytesIO()
    Image.new("L", size, value).save(sink, "PNG")
    return sink.getvalue()


def run_to_label(
    home: str,
    num: int,
    classes: list[str] | None = None,
    budget: int | None = None,
    error_scale: float | None = None,
    **model: Any,
) -> Run:
    """A run whose round is the whole pool, or ``budget`` of it: ``num`` pictures, the grey of number i is i mod 256."""
    keys = [f"{i:0{max(3, len(str(num - 1)))}d}.png" for i in range(num)]
    store = open_store(join(home, "pool"))
    store.write_many((key, grey(i % 256)) for i, key in enumerate(keys))
    content = {
        "name": "audit",
        "pool": {"uri": join(home, "pool"), "format": "images"},
        "model": {"factory": "user:network", "classes": classes} | model,
        "extract": {"shard_size": num},
        "sample": {"method": "srs", "budget": num},
        "score": {"error_scale": error_scale},
        "output": home,
    }
    spec = parse_spec(content, "audit")
    plan = plan_shards(open_store(spec.pool.uri), "images", num)
    columns = {"hidden": np.ones((num, 2), np.float32), "output": np.ones((num, 3), np.float32)}
    is_regression = spec.model.task == "regression"
    columns["prediction"] = np.zeros(num, np.float32 if is_regression else np.int64)
    if not is_regression:
        columns["confidence"] = np.full(num, 1 / 3)  # follows from the outputs, as opacc verify checks
    uris = [f"{store.uri}/{key}" for key in keys]
    run = store_run(join(home, "audit"), spec, plan, [FeatureShard(keys, uris, columns, [], own_ids=False)])
    write_listing(run, plan)
    verbs.select(run, "srs", budget or num, {})
    return run


@contextmanager
def served_here(run: Run | str, token: str | None = None, annotator: str | None = None) -> Iterator[str]:
    """The address of the page, served by a thread: the command takes a second of CPU to start."""
    servers: list[uvicorn.Server] = []
    faults: list[str] = []
    addresses: queue.Queue[str] = queue.Queue()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            faults.append(self.format(record))

    class Noted(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            logging.getLogger("uvicorn.error").addHandler(noting)
            servers.append(self)

    noting = Noting(logging.ERROR)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as thread:
        patch.setattr(uvicorn, "Server", Noted)
        if token:
            patch.setenv(TOKEN, token)
        session = thread.submit(serve, run, "127.0.0.1", 0, addresses.put, annotator=annotator)
        try:
            yield addresses.get(timeout=LONG)
        finally:
            while not servers and not session.done():
                time.sleep(0.01)
            for server in servers:
                server.should_exit = True
            session.result(timeout=LONG)
            logging.getLogger("uvicorn.error").removeHandler(noting)
    assert faults == []


# -- people at a page ----------------------------------------------------------------------------------------

SIZES = {"desktop": (1280, 800), "phone": (390, 844), "zoomed": (640, 400), "turned": (844, 390)}
"""Windows in pixels of CSS; a window of 1280 × 800 at 200 % is the third."""


def wait(page: Any, other_than: object = None) -> str | None:
    """Wait for an example, another one than that; returns its number, or None at the end."""
    shown = "#stage[aria-busy=false]" + (f":not([data-number='{other_than}'])" if other_than is not None else "")
    page.wait_for_selector(f"#work:not([hidden]) {shown}, #end:not([hidden])")
    return None if page.locator("#end").is_visible() else str(page.get_attribute("#stage", "data-number"))


class Person:
    """Somebody at a page who uses only the keyboard; the page asks for nothing from elsewhere."""

    def __init__(
        self,
        browser: Any,
        address: str,
        name: str | None,
        size: str = "desktop",
        scheme: str = "light",
        *,
        bypass_csp: bool = False,
    ) -> None:
        width, height = SIZES[size]
        self.page = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
            bypass_csp=bypass_csp,
        ).new_page()
        self.page.set_default_timeout(1000 * LONG)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        self.page.on("request", lambda request: self._check(request.url, address))
        self.page.goto(address)
        if name is not None:
            self.page.wait_for_selector("#namefield:focus")
            self.keys(*name, "Enter")

    def _check(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:", "about:")):
            self.faults.append(f"asked for {url}")

    def keys(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    @property
    def is_done(self) -> bool:
        return bool(self.page.locator("#end").is_visible())

    def wait(self, other_than: int | None = None) -> int | None:
        """Wait for an example, another one than that; returns its number, or None at the end."""
        number = wait(self.page, other_than)
        return None if number is None else int(number)

    def answer(self, *keys: str) -> int | None:
        """Answer what is shown; returns the number that follows."""
        before = self.wait()
        self.keys(*keys)
        return self.wait(other_than=before)

    def says(self) -> str:
        return str(self.page.text_content("#message"))
