"""Measure and write documents of docs/results, and copy their tables to the pages that quote them.

    python benchmarks/write_results.py NAME [ARGUMENTS of the script that measures it]
    python benchmarks/write_results.py all CASES        # every document of one commit on one machine, one after another
    python benchmarks/write_results.py --copy           # copy tables to the pages, measure nothing

CASES is a folder that benchmarks/make_cases.py wrote.

    NAME        measured by                             arguments
    methods     study_tables.py, `opacc study`          CASES… [--repetitions R]: fully labelled .npz, .csv, .parquet
    neyman      study_tables.py, a study of its own     as before
    clusters    clusters.py                             [--repetitions R]
    ces         study_tables.py ces                     CASES… with hidden layers [--repetitions R]
    models      many_models.py                          CASE.npz with `correct` (models, N)
    gpu         gpu.py                                  [--images N] [--batch N] [--pool N], on a machine with a GPU
    driver      driver_memory.py                        [EXAMPLES×NEURONS:METHODS…]
    listing     listing.py                              [--objects N] [--files N] [--rows N] [--tries N]

The script's own docstring says what it takes. Nothing is written if it fails.
"""

import argparse
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import documents

import opacc_ray

ALL = {
    "methods": "{cases} --repetitions 200",
    "neyman": "{cases} --repetitions 200",
    "ces": "{cases}/digits_field.npz {cases}/fashion.npz {cases}/fashion_swapped.npz --repetitions 300",
    "clusters": "",
    "driver": "10000000×64:ces,deepest,neyman,estimate",
    "listing": "",
}
"""Documents that `all` writes, with their arguments; the others need other data."""

REGRESSION = "digits_angle"
"""The case without a confidence."""

PACKAGES = ("numpy", "scipy", "numba", "torch", "ray")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--copy", action="store_true", help="copy the tables to the pages, measure nothing")
    found.add_argument("--root", type=Path, default=documents.ROOT, help="folder whose pages are written")
    found.add_argument("--note", help="a sentence on how it was measured, such as what else the machine did")
    found.add_argument("name", nargs="?", choices=[*documents.SCRIPTS, "all"], metavar="NAME")
    found.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")
    return found


def main() -> None:
    given = parser().parse_args()
    if given.name is None and not given.copy:
        parser().error(f"give a NAME of {', '.join(documents.SCRIPTS)}, or all, or --copy")
    if given.name == "all":
        if len(given.arguments) != 1:
            parser().error("give the folder that benchmarks/make_cases.py wrote: all CASES")
        cases = Path(given.arguments[0])
        files = sorted(cases.iterdir())
        confident = " ".join(str(path) for path in files if path.stem != REGRESSION)
        for name, arguments in ALL.items():
            filled = arguments.format(cases=cases, files=" ".join(map(str, files)), confident=confident)
            write(name, filled.split(), given)
    elif given.name is not None:
        write(given.name, given.arguments, given)
    for page in documents.copy_blocks(given.root):
        print(f"copied tables to {page}", file=sys.stderr)


def write(name: str, arguments: list[str], given: argparse.Namespace) -> None:
    """Measure one document and write it."""
    content = measure(name, arguments)
    target = documents.path_of(name, given.root)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["python", "benchmarks/write_results.py", name, *arguments])
    old = target.read_text() if target.exists() else ""
    target.write_text(documents.render(old, name, command, stamp(given.note), content))
    print(f"wrote {target}", file=sys.stderr)


def measure(name: str, arguments: list[str]) -> str:
    """What the document's script prints, which is shown as it comes."""
    script, *first = documents.SCRIPTS[name]
    command = [sys.executable, str(Path(__file__).with_name(script)), *first, *arguments]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", file=sys.stderr)
            lines.append(line)
    if process.returncode:
        sys.exit(f"{script} ended with {process.returncode}; nothing was written")
    return "".join(lines)


def stamp(note: str | None) -> str:
    """When, on what kind of machine, and by which versions it was measured."""
    own = f"opacc_ray {opacc_ray.__version__}{commit()}"
    versions = ", ".join([own, *(f"{name} {version(name)}" for name in PACKAGES)])
    day = datetime.now(UTC).date().isoformat()
    words = f"Written {day} on {machine()}, by Python {platform.python_version()}, {versions}."
    return f"{words} {note}" if note else words


def commit() -> str:
    """The commit of the clone, in brackets; nothing outside of a clone."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=documents.ROOT, capture_output=True, text=True)
    return f" ({done.stdout.strip()})" if not done.returncode else ""


def machine() -> str:
    """Kind of machine: system, processor, cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{f' of {model}' if model else ''}"


if __name__ == "__main__":
    main()
