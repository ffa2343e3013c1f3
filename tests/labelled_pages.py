"""Runs to label on a page, the page as a process, and the one browser that opens it."""

import io
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import audited_run
import numpy as np
import pytest
import uvicorn
from PIL import Image

from opacc_ray.audit import verbs
from opacc_ray.audit.stages import index_features
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.shards import FeatureShard, encode_shard
from opacc_ray.labels.page.serve import TOKEN, serve
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import join, open_store
from opacc_ray.runs.feature_store import write_listing
from opacc_ray.runs.identity import header_of
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

CLASSES = audited_run.CLASSES


def grey(value: int, size: tuple[int, int] = (30, 20)) -> bytes:
    """A picture of one grey."""
    sink = io.BytesIO()
    Image.new("L", size, value).save(sink, "PNG")
    return sink.getvalue()


def run_to_label(home: str, num: int, classes: list[str] | None = None, budget: int | None = None, **model: Any) -> Run:
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
        "output": home,
    }
    spec = parse_spec(content, "audit")
    plan = plan_shards(open_store(spec.pool.uri), "images", num)
    run = Run.create(join(home, "audit"), header_of(spec, plan, None))
    write_listing(run, plan)
    job = Extraction(spec, spec.pool, spec.features(), run.features)
    columns = {"hidden": np.ones((num, 2), np.float32), "output": np.ones((num, 3), np.float32)}
    is_regression = spec.model.task == "regression"
    columns["prediction"] = np.zeros(num, np.float32 if is_regression else np.int64)
    if not is_regression:
        columns["confidence"] = np.full(num, 0.9)
    uris = [f"{store.uri}/{key}" for key in keys]
    for shard in plan.shards:
        run.features.write(shard.file, encode_shard(FeatureShard(keys, uris, columns, [], own_ids=False)))
    index_features(job, plan)
    verbs.select(run, "srs", budget or num, {})
    return run


@contextmanager
def served(uri: str, *options: str, token: str | None = None) -> Iterator[str]:
    """The address of ``opacc label`` on a free port; it ends as Ctrl-C ends it, with exit code 0."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    if token:
        environment[TOKEN] = token
    command = [sys.executable, "-m", "opacc_ray", "label", uri, "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        address = re.search(r"http://\S+/", line)
        assert address, line + process.stderr.read()
        yield address[0]
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert "Traceback" not in err


@contextmanager
def served_here(run: Run | str, overlap: float | None = None, token: str | None = None) -> Iterator[str]:
    """The address of the same page, served by a thread: the command takes a second of CPU to start."""
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
        session = thread.submit(serve, run, "127.0.0.1", 0, addresses.put, overlap=overlap)
        try:
            yield addresses.get(timeout=60)
        finally:
            while not servers and not session.done():
                time.sleep(0.01)
            for server in servers:
                server.should_exit = True
            session.result(timeout=60)
            logging.getLogger("uvicorn.error").removeHandler(noting)
    assert faults == []
