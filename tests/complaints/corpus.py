"""What people report of tools like this one, as rows of data: input, command, right outcome.

A row of ``rows/KIND.yaml`` has

- ``source``: project and number of the public thread, or where else it was met; ``symptom``: what went wrong there;
- ``files``: name -> content. A text is a Jinja template. A mapping makes another kind of file: see `KINDS`;
- ``commands``: what follows ``opacc``, in order, in the folder of the files. RUN is the newest run. Two are made
  here: ``answer FILE EXPRESSION`` writes a label file, with an expression of ``id``, ``number`` (the digits of the
  id) and the columns of ``pool.csv``, and ``label EXPRESSION`` imports it, too;
- ``outcome``: of the last command. ``exit`` (default 0), ``says`` and ``silent``: what its output has, and has not;
  ``json``: a path of its answer -> a condition of ``x``. Earlier commands must end well: 0, 7 (waits for labels) or 8;
- ``before``: what opacc did when the row was first tried: right, mended (it was not), refused, elsewhere (not ours).
"""

import csv
import io
import json
import re
import shlex
import tarfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import yaml
from extracting_here import extracting_here
from jinja2 import Environment, StrictUndefined
from PIL import Image

from opacc_ray.cli.main import main

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
    """Yield each complaint with a name: its kind, and its source."""
    for path in sorted(ROWS.glob("*.yaml")):
        for row in yaml.safe_load(path.read_text()):
            yield f"{path.stem}: {row['source']}: {row['symptom']}"[:120], row


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


def _image(path: Path, mode: str, size: list[int], value: Any, orientation: int = 1, bits: int = 8) -> None:
    if bits == 16:
        picture = Image.fromarray(np.full(size[::-1], value, np.uint16))
    else:
        picture = Image.new(mode, tuple(size), tuple(value) if isinstance(value, list) else value)
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture.save(path, **({"exif": exif} if orientation > 1 else {}))


def _tar(path: Path, members: dict[str, str]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))


def _encoded(path: Path, text: str, encoding: str) -> None:
    path.write_bytes(TEMPLATES.from_string(text).render().encode(encoding))


KINDS: dict[str, Callable[..., None]] = {"parquet": _parquet, "image": _image, "tar": _tar, "encoded": _encoded}
"""Kind of a file -> what writes it, from the other keys of its mapping."""


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
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        status = main([name, *(newest_run() if part == "RUN" else part for part in rest)])
    return status, printed.getvalue()


def complaints(row: Row, folder: Path) -> list[str]:
    """Try a row in an empty folder, and return what is not as it should be."""
    write_files(folder, row.get("files", {}))
    outcome = row["outcome"]
    with chdir(folder), extracting_here():
        *earlier, last = row["commands"]
        for command in earlier:
            status, text = execute(command)
            if status not in (0, 7, 8):
                return [f"{command} ended with {status}: {text}"]
        status, text = execute(last)
    wrong = [] if status == outcome.get("exit", 0) else [f"it ended with {status}"]
    wrong += [f"it does not say {part!r}" for part in outcome.get("says", []) if part not in text]
    wrong += [f"it says {part!r}" for part in outcome.get("silent", []) if part in text]
    wrong += [] if "Traceback" not in text else ["a traceback"]
    for path, condition in outcome.get("json", {}).items():
        try:
            x: Any = json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))
            for key in path.split("."):
                x = x[int(key)] if isinstance(x, list) else x[key]
        except (StopIteration, ValueError, KeyError, IndexError, TypeError) as error:
            wrong.append(f"{path} is not in the answer ({error!r})")
            continue
        if not eval(condition, {"x": x}):
            wrong.append(f"{path} is {x}, not {condition}")
    return [*wrong, text] if wrong else []
