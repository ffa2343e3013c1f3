"""Who listens on this machine, and what it answers to a stranger."""

import http.client
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

import grpc

METHODS = (
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.InternalKVGcsService/InternalKVGet",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.ObjectManagerService/Push",
    "/ray.rpc.ReporterService/ReportOCMetrics",
)
"""One of each service of Ray's."""


RAYLET = "raylet/raylet"
"""In the command of a node's main process."""


class Listener(NamedTuple):
    host: str  # an address by which it is reached
    port: int
    interface: str  # that it listens on
    process: str


def family(pid: int) -> list[int]:
    """A process and all that come from it."""
    children = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _parent(path) == pid]
    return [pid, *(member for child in children for member in family(child))]


def command_of(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def running(name: str, pid: int) -> list[int]:
    """The processes below one whose commands hold a name."""
    return [own for own in family(pid) if name in command_of(own)]


def listeners(pids: list[int]) -> list[Listener]:
    """Where some processes listen over TCP."""
    owners = {inode: pid for pid in pids for inode in _sockets(pid)}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in owners:
                address, _, port = words[1].rpartition(":")
                interface = _readable(address)
                process = command_of(owners[words[9]])[:80]
                host = "127.0.0.1" if interface in ("0.0.0.0", "::", "::1") else interface
                found.append(Listener(host, int(port, 16), interface, process))
    return found


def http_status(listener: Listener, path: str) -> int | None:
    """What it answers to a GET; None if it does not speak HTTP."""
    connection = http.client.HTTPConnection(listener.host, listener.port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def grpc_codes(listener: Listener) -> dict[str, grpc.StatusCode]:
    """What it answers to an empty request of each of METHODS."""
    with grpc.insecure_channel(f"{listener.host}:{listener.port}") as channel:
        return {method: _code(channel, method) for method in METHODS}


def _code(channel: grpc.Channel, method: str) -> grpc.StatusCode:
    try:
        channel.unary_unary(method)(b"", timeout=60)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
        return code
    return grpc.StatusCode.OK


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def _sockets(pid: int) -> list[str]:
    found = []
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except OSError:
                continue
            if target.startswith("socket:["):
                found.append(target[8:-1])
    except OSError:
        pass
    return found


def _readable(address: str) -> str:
    words = [struct.pack("<I", int(address[i : i + 8], 16)) for i in range(0, len(address), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))
