"""Microsoft's emulator of Azure's blobs, where ``npm install --global azurite`` has put it on the path."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyarrow.fs import AzureFileSystem
from waiting import until

PROGRAM = shutil.which("azurite-blob")

PLACE = "abfss://lake@devstoreaccount1.dfs.core.windows.net"

_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of its one account, which its documentation states."""


@contextmanager
def azurite(folder: Path) -> Iterator[dict[str, str]]:
    """Run it with the container ``lake``, in memory, and yield the environment that leads to it."""
    assert PROGRAM is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--blobPort", str(port)]
    with subprocess.Popen([PROGRAM, *options], cwd=folder, stdout=subprocess.DEVNULL) as server:
        try:
            _await(port)
            place = {"authority": f"127.0.0.1:{port}", "scheme": "http"}
            places = {f"{kind}_storage_{name}": place[name] for kind in ("blob", "dfs") for name in place}
            AzureFileSystem("devstoreaccount1", account_key=_KEY, **places).create_dir("lake")
            yield {"AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}", "AZURE_STORAGE_ACCOUNT_KEY": _KEY}
        finally:
            server.terminate()


def _await(port: int) -> None:
    """Wait until the port answers."""

    def answers() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        return False

    if not until(answers):
        raise TimeoutError("azurite-blob does not answer")
