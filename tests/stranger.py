"""What another user of this machine gets from processes and their files: run as that user, in a process of its own."""

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

NOBODY = 65534


def as_nobody(attempts: Callable[[], list[str]]) -> list[str]:
    """Return what attempts of user `nobody` got, each in words; only root can call it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            found = attempts()
        except BaseException as error:
            found = [f"the attempt itself failed: {error!r}"]
        os.write(writer, "\n".join(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said.splitlines()


def got_from(pids: Sequence[int], folder: Path, sockets: Sequence[Path], secret: str) -> list[str]:
    """Return what a process gets: names of files, connections to sockets, a secret of other processes."""
    found = []
    for place in (folder, *sockets):
        for verb, act in (("listed", os.listdir), ("renamed", lambda path: os.rename(path, f"{path}_old"))):
            try:
                act(place)
                found.append(f"{verb} {place}")
            except OSError:
                pass
    for place in sockets:
        with socket.socket(socket.AF_UNIX) as link:
            if link.connect_ex(str(place)) == 0:
                found.append(f"connected to {place}")
    for pid in pids:
        for name in ("environ", "mem", "fd"):
            try:
                place = Path(f"/proc/{pid}/{name}")
                content = place.read_bytes() if name == "environ" else str(list(place.iterdir())).encode()
                found.append(f"read {place}{', with the secret' * (secret.encode() in content)}")
            except OSError:
                pass
    return found
