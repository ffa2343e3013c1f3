"""One object that is created once, where the server has no operation for it: writers agree on its content first.

Servers that honour conditional writes, and file systems with hard links, create an object once by themselves. Others
only write, read and list. On those, writers of the same key agree by the adopt-commit protocol (Gafni, "Round-by-round
fault detectors", PODC 1998), level by level:

1. Write a proposal, then list the proposals of the level. Sure are those who see none but their own.
2. Write what was proposed, and whether one is sure; then list these votes. If all are sure, their content is decided.
   If one is, its content is proposed at the next level. If none is, the content with the least digest is.

Two writers cannot both be sure of different contents, since the later of two proposals is listed after both. Whoever
decides has been sure, and its vote is seen by all who go on. So at most one content is ever decided, whenever writers
come, pause or die; nobody waits for anyone, and no clock is read. What is needed of the server: an object that has been
written is in every listing that starts later.

    KEY.claims/001-proposal/DIGEST-WRITER   holds the content
    KEY.claims/001-vote/DIGEST-WRITER-sure  empty; or ends in -unsure
"""

import hashlib
import uuid
from itertools import count
from typing import Any, Protocol


class Objects(Protocol):
    """What a server does at least."""

    def exists(self, key: str) -> bool: ...
    def read(self, key: str) -> bytes: ...
    def write(self, key: str, data: bytes) -> None: ...
    def list(self, prefix: str) -> list[Any]:
        """The objects whose keys begin so, each with its ``key``."""


def agree(store: Objects, key: str, data: bytes) -> bytes:
    """Return the content of ``key``: that which is there, else the one that its writers agree on, now written."""
    if store.exists(key):
        return store.read(key)
    writer, decided = uuid.uuid4().hex, False
    for level in count(1):
        data, decided = _one_level(store, f"{key}.claims/{level:03d}", writer, data)
        if decided:
            break
    store.write(key, data)
    return data


def _one_level(store: Objects, place: str, writer: str, data: bytes) -> tuple[bytes, bool]:
    """The content to go on with, and whether it is decided."""
    own = hashlib.sha256(data).hexdigest()
    store.write(f"{place}-proposal/{own}-{writer}", data)
    sure = {digest for digest, _ in _names(store, f"{place}-proposal/")} == {own}
    store.write(f"{place}-vote/{own}-{writer}-{'sure' if sure else 'unsure'}", b"")
    votes = _names(store, f"{place}-vote/")
    trusted = {digest for digest, key in votes if key.endswith("-sure")}  # of one content at most
    chosen = min(trusted or {digest for digest, _ in votes})
    decided = all(key.endswith("-sure") for _, key in votes)
    return data if chosen == own else store.read(_proposal(store, place, chosen)), decided


def _proposal(store: Objects, place: str, digest: str) -> str:
    return next(key for found, key in _names(store, f"{place}-proposal/") if found == digest)


def _names(store: Objects, prefix: str) -> list[tuple[str, str]]:
    """(digest, key) of each claim."""
    keys = [entry.key for entry in store.list(prefix)]
    return [(key.removeprefix(prefix).partition("-")[0], key) for key in keys]
