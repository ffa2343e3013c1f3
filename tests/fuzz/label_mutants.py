"""Mutants of files of labels of each kind: bytes, encodings, truncations, quotes, sizes, keys, types."""

import json
import random
from collections.abc import Callable, Sequence

from fuzz.mutants import bytes_of, encoding_of

LARGEST = 5_000_000
"""Bytes of a mutant; what is beyond is cut off."""

TOKENS = [
    *(b'"', b"'", b'""', b"\x00", b"\r", b"\n", b"\xff", b"\xed\xa0\x80", b",", b";", b"\t", b"{", b"]", b"\\"),
    *(b"\xe2\x80\xae", b"\x1b[2J", b"=cmd|' /C calc'!A0", b"9" * 400, b"9" * 70_000),
]


def _repeated(line: bytes, times: int) -> bytes:
    return line * min(times, LARGEST // max(1, len(line)) + 1)


def _lines(data: bytes, rng: random.Random, change: Callable[[bytes], bytes]) -> bytes:
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    return b"\n".join([*lines[:place], change(lines[place]), *lines[place + 1 :]])


def _insert(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.choice(TOKENS) * rng.choice([1, 1, 1, 100]) + data[place:]


def _row(data: bytes, rng: random.Random) -> bytes:
    values: list[object] = [None, True, 7, 7.0, -0.0, 1e308, [], {}, ["cat"], {"a": 1}, "", "?", "x" * 5000, "\ud800"]
    values += ["7", "1e400", "-1", "NaN", "9999-12-31", "0001-01-01T00:00:00+23:59", 10**30, float("nan"), "unsure"]
    keys = ["id", "label", "annotator", "status", "run", "round", "labelled_at", "", "ID", "x" * 3000]
    row = json.dumps({rng.choice(keys): rng.choice(values) for _ in range(rng.randint(0, 7))}).encode()
    deep = rng.choice([b"[" * 100_000, b'{"id":' * 50_000, b'{"id": 1' + b"0" * 6000 + b"}"])
    return _lines(data, rng, lambda _: rng.choice([row, row, row, deep]))


def _cells(data: bytes, rng: random.Random) -> bytes:
    cells = [
        *(b"", b" ", b"cat", b"7", b"7.0", b"1e5", b"-1", b"99999999999999999999", b"9999-12-31", b"?", b"nan", b"'=1")
    ]

    def change(line: bytes) -> bytes:
        parts = line.split(b",")
        for _ in range(rng.randint(1, 3)):
            parts[rng.randrange(len(parts))] = rng.choice(cells)
        return b",".join(parts * rng.choice([1, 1, 1, 2, 500]))

    return _lines(data, rng, change)


MUTATIONS: Sequence[Callable[[bytes, random.Random], bytes]] = (
    lambda data, rng: bytes_of(rng, data),
    lambda data, rng: encoding_of(rng, data),
    _insert,
    _row,
    _cells,
    lambda data, rng: data[rng.randrange(len(data) + 1) :],
    lambda data, rng: b"\n".join(rng.sample(data.split(b"\n"), data.count(b"\n") + 1)),
    lambda data, rng: data * rng.choice([0, 2, 30]),
    lambda data, rng: _lines(data, rng, lambda line: _repeated(line, rng.choice([0, 2, 40_000]))),
    lambda data, rng: data.replace(b"\n", rng.choice([b"\r", b"\r\n", b"\n\n", b"", b"\x85", b"\xe2\x80\xa8"])),
    lambda data, rng: rng.randbytes(rng.choice([0, 1, 50, 100_000])),
)


def mutated(rng: random.Random, sound: Sequence[bytes]) -> bytes:
    """A mutant of one of some sound files, broken in one to three ways."""
    data = rng.choice(sound)
    for _ in range(rng.choice([1, 1, 2, 3])):
        data = rng.choice(MUTATIONS)(data, rng)[:LARGEST]
    return data


def sound_files(ids: Sequence[str]) -> list[bytes]:
    """One file of each kind, with all columns."""
    header = "id,label,annotator,status,run,round,labelled_at"
    rows = [f"{name},{i % 3},{'abc'[i % 3]},,,1,2024-01-{i + 1:02d}T00:00" for i, name in enumerate(ids)]
    objects = [dict(zip(header.split(","), row.split(","), strict=True)) for row in rows]
    return [
        "\n".join([header, *rows]).encode(),
        "\n".join(["id,label", *(f"{name},1" for name in ids)]).encode(),
        "\n".join(json.dumps(item) for item in objects).encode(),
        json.dumps([_task(name, str(i % 3)) for i, name in enumerate(ids)], indent=1).encode(),
        "\n".join(
            ["<annotations>", *(_image(name, str(i % 3)) for i, name in enumerate(ids)), "</annotations>"]
        ).encode(),
        "\n".join(json.dumps(_line(name, str(i % 3))) for i, name in enumerate(ids)).encode(),
    ]


def _task(id: str, label: str) -> dict[str, object]:
    """A task of Label Studio."""
    value = {"from_name": "label", "type": "choices", "value": {"choices": [label]}}
    return {"data": {"opacc_id": id}, "annotations": [{"completed_by": 1, "was_cancelled": False, "result": [value]}]}


def _image(id: str, label: str) -> str:
    """An image of CVAT."""
    return f'<image name="{id}"><tag label="{label}" source="manual"></tag></image>'


def _line(id: str, label: str) -> dict[str, object]:
    """A line of Ground Truth."""
    return {
        "source-ref": "s3://b/x",
        "opacc-id": id,
        "y": 0,
        "y-metadata": {"class-name": label, "human-annotated": "yes"},
    }
