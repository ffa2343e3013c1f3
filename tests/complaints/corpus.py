"""What people report of tools like this one, as rows of data: input, command, right outcome.

``PYTHONPATH=tests python -m complaints.corpus --table`` prints all rows with their outcomes, as Markdown.

A row of ``rows/KIND.yaml`` has

- ``source``: project and number of the public thread, or where else it was met; ``symptom``: what went wrong there;
- ``files``: name -> content. A text is a Jinja template. A mapping makes another kind of file: see `KINDS`. A name
  that begins with ``s3://`` is an object of the bucket ``lake``, on a server that is there for this row alone;
- ``commands``: what follows ``opacc``, in order, in the folder of the files. RUN is the newest run. Some are made
  here: ``answer FILE EXPRESSION`` writes a label file, with an expression of ``id``, ``number`` (the digits of the
  id) and the columns of ``pool.csv``, and ``label EXPRESSION`` imports it, too; ``python FILE`` runs a script;
  ``remove FILE`` and ``rename FILE NAME`` are done to files and folders, ``mode FILE 555`` sets the rights of all;
- ``faults``: of the S3 server: see `s3_proxies.FailingDoor`;
- ``outcome``: of the last command. ``exit`` (default 0), ``says`` and ``silent``: what its output has, and has not;
  ``json``: a path of its answer -> a condition of ``x``; ``written``: a pattern of files -> texts that each has, or has
  not if they begin with "not ". Earlier commands must end well: 0, 7 (waits for labels) or 8;
- ``variants``: further files, commands, faults and outcomes, each a mapping of what differs;
- ``test``: instead of files, commands and outcome, the test that tries it (``FILE::NAME`` below ``tests/``);
- ``before``: what opacc did when the row was first tried: right, mended (it was not), refused, elsewhere (not ours).
"""

import csv
import importlib
import io
import json
import logging
import os
import re
import runpy
import shlex
import shutil
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import yaml
from extracting_here import extracting_here
from jinja2 import Environment, StrictUndefined
from PIL import Image

from opacc_ray.cli.main import main
from opacc_ray.errors import OpaccError
from opacc_ray.lake.s3_store import client_for

TESTS = Path(__file__).parents[1]
ROWS = Path(__file__).parent / "rows"
VERDICTS = ("right", "mended", "refused", "elsewhere")
TEMPLATES = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)

Row = dict[str, Any]


def predictions(number: int, classes: tuple[str, ...] = ("cat", "dog"), ids: str = "e%03d", sep: str = ",") -> str:
    """A table of predictions, as text: confidences from .6 to .98, classes in turn."""
    lines = [["id", "prediction", "confidence"]]
    lines += [[ids % i, classes[i % len(classes)], f"{0.6 + 0.02 * (i % 20):.2f}"] for i in range(number)]
    return "".join(sep.join(line) + "\n" for line in lines)


TEMPLATES.globals["predictions"] = predictions


def rows() -> Iterator[tuple[str, Row]]:
    """Yield each complaint, and each of its variants, with a name: its kind, and its source."""
    for path in sorted(ROWS.glob("*.yaml")):
        for row in yaml.safe_load(path.read_text()):
            name = f"{path.stem}: {row['symptom']}"
            yield name, row
            for number, variant in enumerate(row.get("variants", ()), start=1):
                yield f"{name}, variant {number}", _varied(row, variant)


def _varied(row: Row, variant: Row) -> Row:
    """A row with the files of a variant added or replaced, and its other keys replaced."""
    files = {**row.get("files", {}), **variant.get("files", {})}
    return {key: value for key, value in row.items() if key != "variants"} | variant | {"files": files}


# -- files ---------------------------------------------------------------------------------------------------------


def _table(text: str, types: dict[str, str]) -> pa.Table:
    """Return a CSV with a header as a table; ``types`` name types of Arrow, such as float16 or decimal128(5, 3)."""
    arrow = {name: eval(f"pa.{kind}" if "(" in kind else f"pa.{kind}()", {"pa": pa}) for name, kind in types.items()}
    read = {name: kind for name, kind in arrow.items() if not pa.types.is_float16(kind)}
    options = pc.ConvertOptions(column_types=read, strings_can_be_null=True, null_values=[""])
    table = pc.read_csv(io.BytesIO(text.encode()), convert_options=options)
    for name, kind in arrow.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(kind))
    return table


def _parquet(path: Path, text: str, types: dict[str, str] | None = None, **options: Any) -> None:
    pq.write_table(_table(TEMPLATES.from_string(text).render(), types or {}), path, **options)


def _image(
    path: Path,
    mode: str,
    size: list[int],
    value: Any,
    orientation: int = 1,
    bits: int = 8,
    frames: int = 1,
    cut: int = 0,
) -> None:
    """A picture of one value; further frames are of other values; ``cut`` bytes are missing at its end."""
    if bits == 16:
        picture = Image.fromarray(np.full(size[::-1], value, np.uint16))
    else:
        picture = Image.new(mode, tuple(size), tuple(value) if isinstance(value, list) else value)
    exif = Image.Exif()
    exif[0x0112] = orientation
    others = [Image.new(mode, tuple(size), i) for i in range(1, frames)]
    picture.save(
        path,
        **({"exif": exif} if orientation > 1 else {}),
        **({"save_all": True, "append_images": others} if others else {}),
    )
    path.write_bytes(path.read_bytes()[: -cut or None])


def _tar(path: Path, members: dict[str, str]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))


def _encoded(path: Path, text: str, encoding: str) -> None:
    path.write_bytes(TEMPLATES.from_string(text).render().encode(encoding))


def _hole(path: Path, size: int) -> None:
    """A file of zeros that takes no place on the disk."""
    with path.open("wb") as file:
        file.truncate(size)


KINDS: dict[str, Callable[..., None]] = {
    "parquet": _parquet,
    "image": _image,
    "tar": _tar,
    "encoded": _encoded,
    "hole": _hole,
}
"""Kind of a file -> what writes it, from the other keys of its mapping."""


BUCKET = "s3://lake"


def write_files(folder: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(TEMPLATES.from_string(content).render())
        else:
            [(kind, arguments)] = content.items()
            KINDS[kind](path, **arguments)


# -- commands --------------------------------------------------------------------------------------------------------


def newest_run() -> str:
    runs = sorted(Path("audits").glob("*/spec.json"), key=lambda path: path.stat().st_mtime_ns)
    return str(runs[-1].parent) if runs else "RUN"


def answer(file: str, expression: str) -> None:
    """Fill in a copy of the newest manifest."""
    manifest = max(Path("audits").glob("*/rounds/*/*/manifest.csv"), key=lambda path: path.stat().st_mtime_ns)
    selected = _read(manifest)
    pool = {row.get("id"): row for row in (_read(Path("pool.csv")) if Path("pool.csv").exists() else [])}
    with Path(file).open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["id", "label"])
        for example in selected:
            digits = re.sub(r"\D", "", example["id"])
            names = {**pool.get(example["id"], {}), "id": example["id"], "number": int(digits) if digits else 0}
            writer.writerow([example["id"], eval(expression, names)])


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as lines:
        return list(csv.DictReader(lines))


def execute(command: str) -> tuple[int, str]:
    """Run one command: exit code, and all that it printed."""
    if command.startswith("answer "):
        answer(*command.split(maxsplit=2)[1:])
        return 0, ""
    if command.startswith("label "):
        answer("answers.csv", command.removeprefix("label "))
        command = "labels import RUN answers.csv"
    name, *rest = shlex.split(command)
    rest = [newest_run() if part == "RUN" else part for part in rest]
    if name in DEEDS:
        DEEDS[name](*rest)
        return 0, ""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        status = _script(*rest) if name == "python" else main([name, *rest])
    return status, printed.getvalue()


def _script(file: str) -> int:
    """Run a script of a user, for whom an error of opacc is a sentence."""
    importlib.invalidate_caches()  # as in a process of its own
    try:
        runpy.run_path(file)
    except OpaccError as error:
        print(error)
        return error.exit_code
    return 0


def _remove(name: str) -> None:
    path = Path(name)
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _mode(name: str, mode: str) -> None:
    for path in (Path(name), *Path(name).rglob("*")):
        path.chmod(int(mode, 8) if path.is_dir() else int(mode, 8) & 0o666)


DEEDS: dict[str, Callable[..., None]] = {
    "remove": _remove,
    "rename": lambda name, other: Path(name).rename(other),
    "mode": _mode,
}
"""What is done to files between commands."""


@cache
def _server() -> tuple[str, Any]:
    """A server of S3 for all rows, and the door before it, which fails as a row says: to the end of this process."""
    from moto.server import ThreadedMotoServer
    from s3_proxies import FailingDoor

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    return endpoint, FailingDoor(endpoint, []).__enter__()


@contextmanager
def storage(row: Row) -> Iterator[None]:
    """Lead S3 to a server with an empty bucket, behind the faults of a row, if it has objects."""
    objects = {name: text for name, text in row.get("files", {}).items() if name.startswith(BUCKET)}
    if not objects:
        yield
        return
    endpoint, door = _server()
    urlopen(Request(f"{endpoint}/moto-api/reset", method="POST")).close()
    urlopen(Request(f"{endpoint}/lake", method="PUT")).close()
    account = {"AWS_ACCESS_KEY_ID": "A" * 20, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    account |= {"AWS_ENDPOINT_URL_S3": door.endpoint, "AWS_ENDPOINT_URL": door.endpoint, "AWS_MAX_ATTEMPTS": "3"}
    account |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    with patch.dict(os.environ, account):
        for name, text in objects.items():
            body = TEMPLATES.from_string(text).render().encode()
            client_for().put_object(Bucket="lake", Key=name.removeprefix(f"{BUCKET}/"), Body=body)
        door.rules[:] = [{"times": -1, **rule} for rule in row.get("faults", ())]
        try:
            yield
        finally:
            door.rules.clear()


SECRET = "secret-key-of-nobody-0123456789"
"""Must be in no output and in no file of any row."""


def complaints(row: Row, folder: Path) -> list[str]:
    """Try a row in an empty folder, and return what is not as it should be."""
    local = {name: content for name, content in row.get("files", {}).items() if not name.startswith(BUCKET)}
    write_files(folder, local)
    outcome = row["outcome"]
    with storage(row), chdir(folder), extracting_here():
        *earlier, last = row["commands"]
        for command in earlier:
            status, text = execute(command)
            if status not in (0, 7, 8):
                return [f"{command} ended with {status}: {text}"]
        status, text = execute(last)
    wrong = [] if status == outcome.get("exit", 0) else [f"it ended with {status}"]
    wrong += [f"it does not say {part!r}" for part in outcome.get("says", []) if part not in text]
    wrong += [f"it says {part!r}" for part in [*outcome.get("silent", []), "Traceback", SECRET] if part in text]
    wrong += _wrong_answer(outcome.get("json", {}), text) + _wrong_files(outcome.get("written", {}), folder)
    return [*wrong, text] if wrong else []


def _wrong_answer(conditions: dict[str, str], text: str) -> list[str]:
    wrong = []
    for path, condition in conditions.items():
        try:
            x: Any = json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))
            for key in path.split("."):
                x = x[int(key)] if isinstance(x, list) else x[key]
        except (StopIteration, ValueError, KeyError, IndexError, TypeError) as error:
            wrong.append(f"{path} is not in the answer ({error!r})")
            continue
        if not eval(condition, {"x": x}):
            wrong.append(f"{path} is {x}, not {condition}")
    return wrong


def _wrong_files(written: dict[str, list[str]], folder: Path) -> list[str]:
    wrong = []
    for pattern, parts in written.items():
        paths = sorted(folder.glob(pattern))
        wrong += [] if paths else [f"no file {pattern}"]
        for path in paths:
            text = path.read_text(errors="replace")
            for part in parts:
                unwanted = part.removeprefix("not ") if part.startswith("not ") else None
                if (unwanted or part) in text if unwanted else part not in text:
                    wrong.append(f"{path.name} has {unwanted!r}" if unwanted else f"{path.name} has no {part!r}")
    return wrong


def has_test(row: Row) -> bool:
    """Whether the test that a row names exists."""
    file, name = row["test"].split("::")
    path = TESTS / file
    return path.is_file() and f"def {name}(" in path.read_text()


# -- the table -------------------------------------------------------------------------------------------------------


OUTCOMES = {"right": "right", "mended": "mended", "refused": "refused with the reason", "elsewhere": "not ours"}


def table() -> Iterator[str]:
    """Yield the lines of two tables, in Markdown: the rows by kind and outcome, and each row."""
    kinds = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(ROWS.glob("*.yaml"))}
    yield f"| kind | rows | {' | '.join(OUTCOMES.values())} | variants | tried by another test |"
    yield f"|---|{'---:|' * (len(OUTCOMES) + 3)}"
    for kind, of_kind in [*kinds.items(), ("all", [*chain(*kinds.values())])]:
        counts = Counter(row["before"] for row in of_kind)
        variants, tests = sum(len(row.get("variants", ())) for row in of_kind), sum("test" in row for row in of_kind)
        numbers = [len(of_kind), *(counts[outcome] for outcome in OUTCOMES), variants, tests]
        yield f"| {kind} | {' | '.join(map(str, numbers))} |"
    yield ""
    yield "| kind | source | what went wrong | here |"
    yield "|---|---|---|---|"
    for kind, of_kind in kinds.items():
        for row in of_kind:
            yield f"| {kind} | {row['source']} | {row['symptom']} | {OUTCOMES[row['before']]} |"


if __name__ == "__main__" and "--table" in sys.argv:
    print(*table(), sep="\n")
