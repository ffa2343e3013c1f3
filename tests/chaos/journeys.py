"""Journeys whose commands are killed at random moments and given again: they end in the bytes of an undisturbed one.

``PYTHONPATH=tests python -m chaos PLACE KILLS [SEED]``: so many kills of journeys in a folder, on an S3 server, or with
Ray (PLACE is folder, s3 or ray). A command is a process that is forked when all is imported: a kill
hits its work, not the imports. What stays behind is counted: unfinished files, processes, and files in memory.
"""

import io
import json
import os
import random
import re
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import yaml
from local_s3 import LocalS3
from small_pictures import picture

from opacc_ray.lake.store_uris import open_store

COMMANDS = (
    "run spec.yaml",
    "labels import RUN first.csv --only-selected",
    "next RUN --budget 10",
    "labels import RUN second.csv --only-selected",
    "estimate RUN",
    "report RUN",
    "export RUN --to OUTPUT/tables",
)
FINAL = "verify RUN"
"""Is given once, at the end, and must find nothing wrong."""

DONE = (0, 7, 8)
SECONDS = 600
"""That one command may take."""

PATIENCE = 300
"""Seconds in which processes must have ended after the last command."""

EXAMPLES = 120
TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z| UTC)?|\d{1,2} [A-Z][a-z]+ 20\d\d|\d\d:\d\d"
)
DIGESTS = re.compile(r"\b[0-9a-f]{16,64}\b")
"""Digests of what holds a time differ, too; those of all else are compared by the bytes that they are of."""

UNFINISHED = re.compile(r"\.opacc-tmp-")
MARK = "OPACC_JOURNEYS"
"""Variable by which processes that commands have started are found."""


class Place(NamedTuple):
    """Where journeys take place."""

    kind: str
    home: Path
    outputs: str  # a URI: each journey has a folder of it
    commands: tuple[str, ...]


class Outcome(NamedTuple):
    """What became of one journey."""

    seed: int
    kills: list[str]  # the commands that were killed
    problem: str  # empty if it ended in the undisturbed bytes
    files: int  # that stay unfinished
    temporary: int  # entries of its folder for temporary files
    processes: int
    memory: int  # files in /dev/shm that no process has open
    seconds: float


# -- one command -----------------------------------------------------------------------------------------------------


def execute(arguments: list[str], folder: str, log: str, temporary: str) -> None:
    """What the process of a command does."""
    os.chdir(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = temporary
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    from opacc_ray.cli.main import main

    sys.exit(main(arguments))


class Journey:
    """Gives the commands of one journey."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.output = place, f"{place.outputs}/{name}"
        self.folder = place.home / "work" / name
        self.folder.mkdir(parents=True)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        spec = yaml.safe_load((place.home / "spec.yaml").read_text())
        (self.folder / "spec.yaml").write_text(yaml.safe_dump({**spec, "output": self.output}))
        for name in ("first.csv", "second.csv"):
            shutil.copy(place.home / name, self.folder)

    def give(self, command: str, kill_after: float | None = None) -> int | None:
        """Give a command; returns its exit code, None if it was killed."""
        run = command.replace("OUTPUT", self.output)
        if "RUN" in run.split():
            names = {entry.key.split("/")[0] for entry in open_store(self.output).list()}
            run = run.replace("RUN", f"{self.output}/{next(iter(name for name in names if 'journey-' in name))}")
        arguments = (shlex.split(run), str(self.folder), str(self.folder / "log"), str(self.temporary))
        process = get_context("forkserver").Process(target=execute, args=arguments)
        process.start()
        process.join(kill_after if kill_after is not None else SECONDS)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
            if kill_after is None:
                raise TimeoutError(f"{command} took more than {SECONDS} s")
        process.close()
        return code

    def content(self) -> dict[str, list[bytes]]:
        """All objects that the journey has made, without times and what depends on them."""
        store, objects = open_store(self.output), dict[str, list[bytes]]()
        for entry in store.list():
            if not UNFINISHED.search(entry.key):
                key, data = DIGESTS.sub("H", entry.key), store.read(entry.key)
                objects.setdefault(key, []).append(self._without_times(entry.key, data))
        return {key: sorted(parts) for key, parts in objects.items()}

    def _without_times(self, key: str, data: bytes) -> bytes:
        if key.startswith("tables/") and key.endswith(".parquet"):
            data = json.dumps(pq.read_table(io.BytesIO(data)).to_pylist(), default=str, indent=0).encode()
        try:
            text = data.decode().replace(self.output, "OUTPUT").replace(str(self.folder), "FOLDER")
        except UnicodeDecodeError:
            return data
        return DIGESTS.sub("H", TIMES.sub("T", text)).encode()

    def unfinished(self) -> int:
        return sum(UNFINISHED.search(entry.key) is not None for entry in open_store(self.output).list())

    def remove(self) -> None:
        shutil.rmtree(self.folder)
        store = open_store(self.output)
        for entry in store.list():
            store.delete(entry.key)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


def undisturbed(place: Place, name: str) -> tuple[dict[str, list[bytes]], dict[str, float]]:
    """What an undisturbed journey ends in, and the seconds that each of its commands takes."""
    journey, seconds = Journey(place, name), dict[str, float]()
    for command in (*place.commands, FINAL):
        began = time.monotonic()
        if journey.give(command) not in DONE:
            raise RuntimeError(f"undisturbed, {command} failed: {journey.log}")
        seconds[command] = time.monotonic() - began
    content = journey.content()
    journey.remove()
    return content, seconds


def disturbed(
    place: Place, seed: int, expected: dict[str, list[bytes]], seconds: dict[str, float], before: set[int]
) -> Outcome:
    """Kill each command once or twice, each at a random moment, and give it again."""
    draw, began, kills = random.Random(seed), time.monotonic(), list[str]()
    journey, problem, memory = Journey(place, f"j{seed}"), "", _in_memory()
    for command in place.commands:
        for _ in range(draw.choice((1, 1, 1, 2))):
            if journey.give(command, draw.uniform(0, seconds[command])) is None:
                kills.append(command)
        code = journey.give(command)
        if code not in DONE:
            problem = f"{command} ended with {code}: {journey.log[-2000:]}"
            break
    if not problem and journey.give(FINAL) != 0:
        problem = f"{FINAL} found faults: {journey.log[-2000:]}"
    if not problem:
        problem = _difference(expected, journey.content())
    left = Outcome(
        seed=seed,
        kills=kills,
        problem=problem,
        files=journey.unfinished(),
        temporary=sum(1 for _ in journey.temporary.iterdir()),
        processes=_ended(before),
        memory=len((_in_memory() - memory - _open_files()) & _in_memory()),  # others' may have gone meanwhile
        seconds=time.monotonic() - began,
    )
    journey.remove()
    return left


def _difference(expected: dict[str, list[bytes]], found: dict[str, list[bytes]]) -> str:
    wrong = [f"missing {key}" for key in expected.keys() - found.keys()]
    wrong += [f"too much: {key}" for key in found.keys() - expected.keys()]
    for key in expected.keys() & found.keys():
        if expected[key] != found[key]:
            wrong.append(f"{key} differs ({len(expected[key])} and {len(found[key])} of it)")
    return ", ".join(wrong)


# -- what stays behind -------------------------------------------------------------------------------------------------


def _in_memory() -> set[str]:
    """Files in memory: others on this machine make some, too."""
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir() if path.is_file()} if folder.is_dir() else set()


def _open_files() -> set[str]:
    """Files in memory that a process of anyone has open or mapped."""
    found = set[str]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.update(re.findall(r"/dev/shm/([^\s/]+)", (process / "maps").read_text()))
            found.update(
                re.findall(r"/dev/shm/([^\s/]+)", " ".join(os.readlink(fd) for fd in (process / "fd").iterdir()))
            )
    return found


def _marked(mark: str) -> set[int]:
    """Processes that descend from this one."""
    found = set[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                found.add(int(process.name))
    return found


def _ended(before: set[int]) -> int:
    """Wait until the processes of a journey have ended; returns how many have not."""
    until = time.monotonic() + PATIENCE
    while (left := _marked(os.environ[MARK]) - before) and time.monotonic() < until:
        time.sleep(0.2)
    return len(left)


# -- places ------------------------------------------------------------------------------------------------------------


@contextmanager
def open_place(kind: str) -> Iterator[Place]:
    """Make a place; everything ends, and is deleted, with the block."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opacc-journeys-")))
        outputs = str(home / "outputs")
        if kind == "s3":
            server = stack.enter_context(LocalS3(home / "s3"))
            os.environ.update(server.environment())
            server.create_bucket("audits")
            outputs = "s3://audits"
        write_journey(home, kind, outputs)
        yield Place(kind, home, outputs, COMMANDS[:1] if kind == "ray" else COMMANDS)


def write_journey(home: Path, kind: str, outputs: str) -> None:
    """Write the pool, the spec and two files of labels."""
    spec = _pictures(home) if kind == "ray" else _table(home, outputs)
    (home / "spec.yaml").write_text(yaml.safe_dump({"name": "journey", **spec, "output": outputs}))
    truth = [f"{_id(kind, i)},{'dog' if i % 4 else 'cat'}\n" for i in range(EXAMPLES)]
    (home / "first.csv").write_text("id,label\n" + "".join(truth))
    (home / "second.csv").write_text("id,label\n" + "".join(reversed(truth)))


def _id(kind: str, number: int) -> str:
    return f"{number:03d}.png" if kind == "ray" else f"e{number:03d}"


def _table(home: Path, outputs: str) -> dict[str, Any]:
    rows = [f"e{i:03d},{'dog' if i % 3 else 'cat'},{0.6 + 0.02 * (i % 20):.2f}\n" for i in range(EXAMPLES)]
    store = open_store(outputs if outputs.startswith("s3://") else str(home))
    store.write("pool/pool.csv", ("id,prediction,confidence\n" + "".join(rows)).encode())
    columns = {name: name for name in ("id", "prediction", "confidence")}
    pool = {"uri": f"{store.uri}/pool/pool.csv", "format": "features", "columns": columns}
    sample = {"method": "neyman", "budget": 20}
    return {"pool": pool, "model": {"classes": ["cat", "dog"]}, "sample": sample}


def _pictures(home: Path) -> dict[str, Any]:
    for i in range(24):
        path = home / "pool" / f"{i:03d}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(picture(i))
    return {
        "pool": {"uri": str(home / "pool"), "format": "images"},
        "model": {"function": "numpy_model:trained"},
        "extract": {"batch_size": 2, "shard_size": 4, "actors": 1},
        "sample": {"method": "srs", "budget": 4},
    }


def campaign(kind: str, kills: int, first: int = 0) -> int:
    """Disturb journeys until there were so many kills, and print what was met."""
    os.environ[MARK] = secrets.token_hex(8)
    get_context("forkserver").set_forkserver_preload(["chaos.warm"])
    done, began = list[Outcome](), time.monotonic()
    with open_place(kind) as place:
        expected, _ = undisturbed(place, "calm")  # the server of forks starts with it
        again, seconds = undisturbed(place, "calm-again")
        if problem := _difference(expected, again):
            raise RuntimeError(f"two undisturbed journeys differ: {problem}")
        before = _marked(os.environ[MARK])
        while sum(len(outcome.kills) for outcome in done) < kills:
            done.append(disturbed(place, first + len(done), expected, seconds, before))
            print(json.dumps(done[-1]._asdict()), file=sys.stderr, flush=True)
    sound = sum(not outcome.problem for outcome in done)
    left = [f"{sum(getattr(outcome, name) for outcome in done)} {name}" for name in Outcome._fields[3:7]]
    print(
        f"{kind}: {sum(len(outcome.kills) for outcome in done)} kills in {len(done)} journeys, {sound} of which ended"
    )
    print(
        f"in the {sum(map(len, expected.values()))} undisturbed objects; {(time.monotonic() - began) / 60:.0f} minutes"
    )
    print(f"left behind: {', '.join(left)}")
    return int(sound < len(done))
