"""Seeded mutants of documents and files: keys, types, encodings, truncations, sizes."""

import json
import random
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -(10**400), 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", " ", "\x00", "a\x00b", "\x1b[31m", "x" * 5000),
    *("auto", "nan", "é", "𝒳", "../..", "/", "~", "a:b", "=cmd()", "-"),
    *([], {}, [[]], [None], [1, "a"], {"": 0}, {"a": {"b": []}}, [0] * 3000, ["x"] * 300),
]
TOKENS = [
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3(", b"\t", b"[" * 400, b"{" * 400, b"9" * 6000, b"1e999", b"NaN"),
    *(b"&a [*a]", b"<<: ", b"!!python/name:os.system ", b"? ", b"- ", b"%YAML 9.9\n", b"---\n", b"*x", b"|2\n"),
    b'"\\ud800"',
]
DTYPES = [
    *("<f4", "|u1", "<U99999999", "|O", "|V1500000000", "|S1500000000"),
    *("<M8[ns]", "<c16", "?", "x", "[('a','<f4')]"),
]
SHAPES = [
    *("(5000000, 0)", "(10**12,)", "(1000000000000, 8, 8)", "(-1, 8)", "()"),
    *("(3, 8, 8)", "'a'", "(2**63, 2)", "(1.5,)"),
]


def bytes_of(rng: random.Random, data: bytes) -> bytes:
    """Bytes changed somewhere, most often near the beginning."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(min(len(out), rng.choice((32, 200, len(out) + 1)))) if out else 0
        change = rng.randrange(7)
        if change == 0 and out:
            out[place] ^= 1 << rng.randrange(8)
        elif change == 1:
            del out[place:]
        elif change == 2:
            out[place:place] = rng.choice(TOKENS)
        elif change == 3:
            out[place : place + 4] = struct.pack(rng.choice("<>") + "I", rng.choice((0, 2**16, 2**31 - 1, 2**32 - 1)))
        elif change == 4:
            del out[place : place + rng.randrange(1, 40)]
        elif change == 5:
            out += out[place:]
        else:
            out[place : place + 8] = rng.randbytes(8)
    return bytes(out)


def encoding_of(rng: random.Random, data: bytes) -> bytes:
    """A text in another encoding."""
    text = data.decode("utf-8", "replace")
    return text.encode(rng.choice(("utf-16", "utf-32", "utf-8-sig", "cp037")), "replace")


def value_of(rng: random.Random, content: Any) -> Any:
    """JSON with one key or value changed, at any depth."""
    if isinstance(content, dict) and content and rng.random() < 0.85:
        key = rng.choice(list(content))
        change = rng.randrange(6)
        if change == 0:
            return {name: item for name, item in content.items() if name != key}
        if change == 1:
            return content | {rng.choice([key + "s", key.upper(), "", "x" * 3000, "\x1b[2J"]): rng.choice(VALUES)}
        return content | {key: value_of(rng, content[key])}
    if isinstance(content, list) and content and rng.random() < 0.7:
        place = rng.randrange(len(content))
        return [*content[:place], value_of(rng, content[place]), *content[place + rng.randrange(2) :]]
    return rng.choice(VALUES)


def document(rng: random.Random, data: bytes) -> bytes:
    """A mutant of a JSON or YAML document that is JSON."""
    kind = rng.random()
    if kind < 0.6:
        content = json.loads(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            content = value_of(rng, content) if isinstance(content, dict) else content
        return json.dumps(content, ensure_ascii=rng.random() < 0.5).encode("utf-8", "replace")
    return encoding_of(rng, data) if kind < 0.65 else bytes_of(rng, data)


def npy(rng: random.Random, data: bytes) -> bytes:
    """A mutant of an .npy file: of its header's words, or of its bytes."""
    if rng.random() < 0.5:
        return bytes_of(rng, data)
    words = f"{{'descr': '{rng.choice(DTYPES)}', 'fortran_order': False, 'shape': {rng.choice(SHAPES)}, }}"
    header = words.ljust(rng.choice((60, 117, 20_000))).encode() + b"\n"
    version = rng.choice((b"\x01\x00", b"\x02\x00", b"\x09\x00"))
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", min(len(header), 65_535))
    return b"\x93NUMPY" + version + length + header + data[128:]


def npz(rng: random.Random, data: bytes) -> bytes:
    """A mutant of an .npz archive: of its bytes, of a member, or one that expands a thousandfold."""
    if rng.random() < 0.5:
        return bytes_of(rng, data)
    sink = BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in rng.sample(["x.npy", "ids.npy", "y.npy", "../z.npy", "x"], 2):
            member = BytesIO()
            np.save(member, np.zeros((rng.choice((2, 3)), 8, 8), np.float32))
            content = npy(rng, member.getvalue())
            archive.writestr(name, content + bytes(rng.choice((0, 0, 3 << 29 >> 4))))
    return sink.getvalue()


def png(rng: random.Random, data: bytes) -> bytes:
    """A mutant of a PNG: of its bytes, or of the size in its header, with a checksum that fits."""
    if rng.random() < 0.5:
        return bytes_of(rng, data)
    from zlib import crc32

    size = rng.choice((0, 1, 5_000, 13_370, 2**31 - 1))
    head = b"IHDR" + struct.pack(
        ">IIBBBBB", size, rng.choice((1, size)), rng.choice((1, 8, 16)), rng.choice((0, 2, 3, 6)), 0, 0, 0
    )
    return data[:12] + head + struct.pack(">I", crc32(head)) + data[33:]


Mutation = Callable[[random.Random, bytes], bytes]
