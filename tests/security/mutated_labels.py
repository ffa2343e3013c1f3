"""Mutated files of labels, seeded: `python tests/security/mutated_labels.py 2000` imports them and counts.

Each mutation breaks one sound file in one to three ways: bytes, encodings, truncations, quotes, sizes, keys, types.
Nothing but "imported" (exit code 0) and "refused" (2, 5 or 6) may come out, in `SECONDS`, with a sentence and no
traceback; memory is limited to `MEMORY` while the mutations are imported.
"""

import contextlib
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

SECONDS, MEMORY = 10, 1 << 30
ALLOWED = {0, 2, 5, 6}
SEED = 9

Mutation = Callable[[bytes, random.Random], bytes]


LARGEST = 5_000_000
"""Bytes of a mutated file; what is beyond is cut off."""


def _repeated(line: bytes, times: int) -> bytes:
    return line * min(times, LARGEST // max(1, len(line)) + 1)


def _lines(data: bytes, rng: random.Random, change: Callable[[bytes], bytes]) -> bytes:
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    return b"\n".join([*lines[:place], change(lines[place]), *lines[place + 1 :]])


def _flip(data: bytes, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 5, 50])):
        if found:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _insert(data: bytes, rng: random.Random) -> bytes:
    pieces = [
        b'"',
        b"'",
        b'""',
        b"\x00",
        b"\r",
        b"\n",
        b"\xff",
        b"\xfe\xff",
        b"\xed\xa0\x80",
        b",",
        b";",
        b"\t",
        b"{",
        b"]",
    ]
    pieces += [b"\\", b"\xe2\x80\xae", b"\x1b[2J", b"=cmd|' /C calc'!A0", b"9" * rng.choice([20, 400, 5000, 70_000])]
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.choice(pieces) * rng.choice([1, 1, 1, 100]) + data[place:]


def _encode(data: bytes, rng: random.Random) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(rng.choice(["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7", "cp500"]), "replace")


def _row(data: bytes, rng: random.Random) -> bytes:
    values: list[object] = [None, True, 7, 7.0, -0.0, 1e308, [], {}, ["cat"], {"a": 1}, "", "?", "x" * 5000, "\ud800"]
    values += ["7", "1e400", "-1", "NaN", "9999-12-31", "0001-01-01T00:00:00+23:59", 10**30, float("nan"), "unsure"]
    keys = ["id", "label", "annotator", "status", "run", "round", "labelled_at", "", "ID", "x" * 3000]
    row = json.dumps({rng.choice(keys): rng.choice(values) for _ in range(rng.randint(0, 7))}).encode()
    deep = rng.choice([b"[" * 100_000, b'{"id":' * 50_000, b'{"id": 1' + b"0" * 6000 + b"}"])
    return _lines(data, rng, lambda _: rng.choice([row, row, row, deep]))


def _cells(data: bytes, rng: random.Random) -> bytes:
    cells = [
        b"",
        b" ",
        b"cat",
        b"7",
        b"7.0",
        b"1e5",
        b"-1",
        b"99999999999999999999",
        b"9999-12-31",
        b"?",
        b"nan",
        b"'=1",
    ]

    def change(line: bytes) -> bytes:
        parts = line.split(b",")
        for _ in range(rng.randint(1, 3)):
            parts[rng.randrange(len(parts))] = rng.choice(cells)
        return b",".join(parts * rng.choice([1, 1, 1, 2, 500]))

    return _lines(data, rng, change)


MUTATIONS: Sequence[Mutation] = (
    _flip,
    _insert,
    _encode,
    _row,
    _cells,
    lambda data, rng: data[: rng.randrange(len(data) + 1)],
    lambda data, rng: data[rng.randrange(len(data) + 1) :],
    lambda data, rng: b"\n".join(rng.sample(data.split(b"\n"), data.count(b"\n") + 1)),
    lambda data, rng: data * rng.choice([0, 2, 30]),
    lambda data, rng: _lines(data, rng, lambda line: _repeated(line, rng.choice([0, 2, 40_000]))),
    lambda data, rng: data.replace(b"\n", rng.choice([b"\r", b"\r\n", b"\n\n", b"", b"\x85", b"\xe2\x80\xa8"])),
    lambda data, rng: rng.randbytes(rng.choice([0, 1, 50, 100_000])),
)


def mutated(sound: Sequence[bytes], number: int) -> bytes:
    """The mutation of a number: always the same."""
    rng = random.Random(f"{SEED}-{number}")
    data = rng.choice(sound)
    for _ in range(rng.choice([1, 1, 2, 3])):
        data = rng.choice(MUTATIONS)(data, rng)[:LARGEST]
    return data


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Let this process have `MEMORY` more than it has; whatever it had as its limit comes back."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def outcome(uri: str, path: Path, more: Sequence[str] = ()) -> str:
    """``imported`` or ``refused``, or what is wrong with how the command ended."""
    from opacc_ray.cli.main import main

    def hang(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    said = io.StringIO()
    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(["labels", "import", uri, str(path), *more])
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    text = said.getvalue()
    if code not in ALLOWED or "Traceback" in text or len(text) > 5000:
        return f"exit code {code}: {text[:2000]}"
    return "refused" if code else "imported"


def run_mutations(uri: str, sound: Sequence[bytes], numbers: Sequence[int], folder: Path) -> Counter[str]:
    """Import mutations into a run, alternately with other options; counts what came out."""
    found: Counter[str] = Counter()
    path = folder / "mutated.csv"
    with limited():
        for number in numbers:
            path.write_bytes(mutated(sound, number))
            more = [[], ["--conflict", "majority"], ["--annotator", "ann", "--conflict", "latest"]][number % 3]
            result = outcome(uri, path, more)
            found[result if result in ("imported", "refused") else f"mutation {number}: {result}"] += 1
    return found


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


AT_A_TIME = 50
"""Files that are imported into one run, which reads those before again at each import."""


def _main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from written_run import PREDICTION, write_run

    from opacc_ray.audit import verbs

    number, found = int(sys.argv[1]), Counter[str]()
    with tempfile.TemporaryDirectory() as home:
        for start in range(0, number, AT_A_TIME):
            run = write_run(Path(home), f"mutated-{start}", PREDICTION)
            chosen = verbs.select(run, "srs", 20, {})
            numbers = range(start, min(number, start + AT_A_TIME))
            found += run_mutations(run.uri, sound_files(chosen.ids), numbers, Path(home))
            print(f"{numbers.stop} of {number}", file=sys.stderr, flush=True)
    print(
        f"{sum(found.values())} mutated files of labels: {found.pop('imported', 0)} imported, "
        f"{found.pop('refused', 0)} refused in one sentence, {sum(found.values())} failed"
    )
    print("\n".join(found))
    os._exit(bool(found))


if __name__ == "__main__":
    _main()
