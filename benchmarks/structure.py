"""How the package is cut: lines by package, and the files and functions that each command on one run goes through.

    python benchmarks/structure.py [--rows 2000] [--files COMMAND]

Makes a run of features (no Ray, no torch), takes it through ``run``, ``labels import``, ``estimate``, ``next``,
``status`` and ``report``, each in a process of its own, and prints Markdown tables. A file counts if a function of it
is called while the command runs; bodies of classes and modules do not count. ``--files estimate`` names the files of
one command. Modules with one importer and file names that occur twice are listed last.
"""

import argparse
import ast
import csv
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import markdown_table as markdown
import numpy as np

PACKAGE = Path(__file__).parents[1] / "opacc_ray"

SHORT = 60
"""Lines below which a module with one importer could go into it."""

COMMANDS = {
    "run": ["run", "spec.yaml"],
    "labels import": ["labels", "import", "RUN", "labels-1.csv"],
    "estimate": ["estimate", "RUN"],
    "next": ["next", "RUN", "--budget", "40"],
    "status": ["status", "RUN"],
    "report": ["report", "RUN"],
}
"""Arguments of each command, in the order in which they are measured."""


class Trace(NamedTuple):
    """What a command goes through."""

    files: list[str]
    functions: int
    moves: int  # calls from one file of the package to another


# -- tracing ---------------------------------------------------------------------------------------------------


def trace(arguments: list[str]) -> Trace:
    """Run a command in this process and record every call of a function of the package."""
    from opacc_ray.cli.main import main

    seen: set[CodeType] = set()
    moves = 0
    home = str(PACKAGE)

    def record(frame: FrameType, event: str, _: Any) -> None:
        nonlocal moves
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(home) or _is_body(code):
            return
        seen.add(code)
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        moves += caller.startswith(home) and caller != code.co_filename

    sys.setprofile(record)
    try:
        status = main(arguments)
    finally:
        sys.setprofile(None)
    if status not in (0, 7):
        raise SystemExit(f"opacc {' '.join(arguments)} ended with {status}")
    files = {str(Path(code.co_filename).relative_to(PACKAGE)) for code in seen}
    return Trace(sorted(files), len(seen), moves)


def _is_body(code: CodeType) -> bool:
    """Whether code is the body of a module or a class, which runs at import."""
    return code.co_name == "<module>" or not code.co_flags & 0x2  # CO_NEWLOCALS alone: a class body


def trace_commands(folder: Path, rows: int, names: list[str]) -> dict[str, Trace]:
    """Trace each command on a run of ``rows`` rows, in the order of an audit, up to the last of ``names``."""
    write_case(folder, rows)
    found: dict[str, Trace] = {}
    for name, arguments in COMMANDS.items():
        if names and set(names) <= found.keys():
            break
        run = next(folder.glob("runs/structure-*"), None)
        if name == "labels import" and run:
            answer(run / "rounds/1/predictions.parquet", folder / "labels-1.csv")
        given = [str(run) if part == "RUN" else part for part in arguments]
        code = "import json, sys; sys.path.insert(0, sys.argv[1]); import structure; "
        code += "print(json.dumps(structure.trace(json.loads(sys.argv[2]))), file=sys.stderr)"
        made = [sys.executable, "-c", code, str(Path(__file__).parent), json.dumps(given)]
        done = subprocess.run(made, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"opacc {' '.join(given)} failed:\n{done.stdout}{done.stderr}")
        found[name] = Trace(*json.loads(done.stderr.splitlines()[-1]))
    return found


def write_case(folder: Path, rows: int) -> None:
    """Write a table of features and the spec of an audit of it, whose seed is fixed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    confidence = np.sqrt(rng.random(rows))
    hidden = rng.normal(size=(rows, 8)).astype(np.float32)
    columns = {
        "id": [f"row-{row:05d}" for row in range(rows)],
        "predicted": rng.integers(0, 3, rows),
        "score": confidence,
        "hidden": list(hidden),
    }
    (folder / "pool").mkdir()
    pq.write_table(pa.table(columns), folder / "pool" / "rows.parquet")
    (folder / "spec.yaml").write_text(SPEC)


SPEC = """
name: structure
pool:
  uri: pool
  format: features
  columns: {id: id, prediction: predicted, confidence: score, hidden: hidden}
model: {classes: [cat, dog, owl]}
sample: {method: neyman, budget: 60}
output: runs
"""


def answer(chosen: Path, labels: Path) -> None:
    """Label the chosen examples: nine of ten predictions are right."""
    import pyarrow.parquet as pq

    table, names = pq.read_table(chosen), ["cat", "dog", "owl"]
    with labels.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "label"))
        for place, (name, code) in enumerate(zip(table["id"], table["prediction"], strict=True)):
            writer.writerow((name, names[(code.as_py() + (place % 10 == 0)) % 3]))


# -- counting --------------------------------------------------------------------------------------------------


def lines_by_package() -> dict[str, tuple[int, int]]:
    """Files and lines of each package, by name."""
    found: dict[str, list[int]] = defaultdict(list)
    for path in _modules():
        inside = path.relative_to(PACKAGE)
        name = inside.parts[0] if len(inside.parts) > 1 else "(top)"
        found[name].append(len(path.read_text().splitlines()))
    return {name: (len(lines), sum(lines)) for name, lines in sorted(found.items())}


def importers() -> Mapping[str, set[str]]:
    """The modules of the package that import each module, wherever in their text."""
    names = {path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in _modules()}
    known, found = set(names.values()), defaultdict(set)
    for path, own in names.items():
        for node in ast.walk(ast.parse(path.read_text())):
            for target in _imported(node):
                if target in known and target != own:
                    found[target].add(own)
    return found


def _imported(node: ast.AST) -> list[str]:
    """Every module that a statement may import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def one_importer() -> list[tuple[str, str, int]]:
    """Modules that one other module imports: the name, the importer, and the number of lines; the shortest first."""
    found = []
    for name, users in importers().items():
        path = PACKAGE.parent / Path(*name.split(".")).with_suffix(".py")
        if len(users) == 1 and path.is_file():
            found.append((name, next(iter(users)), len(path.read_text().splitlines())))
    return sorted(found, key=lambda item: (item[2], item[0]))


def repeated_names() -> dict[str, int]:
    """File names that occur more than once, and how often."""
    count = Counter(path.name for path in _modules() if not path.name.startswith("__"))
    return {name: num for name, num in count.most_common() if num > 1}


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]], texts: int = 1) -> str:
    return "\n".join([markdown.header(columns, texts), *(markdown.row(map(str, row)) for row in rows)])


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--files", choices=COMMANDS, help="name the files of this command instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces = trace_commands(Path(folder), given.rows, [given.files] if given.files else [])
    if given.files:
        print("\n".join(traces[given.files].files))
        return
    sizes = lines_by_package()
    files, lines = (sum(pair[i] for pair in sizes.values()) for i in (0, 1))
    print(_table(("package", "files", "lines"), [(name, *pair) for name, pair in sizes.items()]))
    print(f"\n{files} files, {lines} lines\n")
    rows = [(f"opacc {name}", len(own.files), own.functions, own.moves) for name, own in traces.items()]
    print(_table(("command", "files", "functions", "calls between files"), rows))
    single = one_importer()
    print(f"\n{len(single)} modules have one importer, {sum(size < SHORT for *_, size in single)} of them are short:\n")
    print(_table(("module", "importer", "lines"), [item for item in single if item[2] < SHORT], 2))
    repeated = repeated_names()
    print(f"\n{len(repeated)} file names occur more than once:\n")
    print(", ".join(f"{name} ×{num}" for name, num in repeated.items()))


if __name__ == "__main__":
    main()
