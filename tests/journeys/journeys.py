"""Three journeys of users, command by command, with the JSON that each prints and what it goes through.

A step is one `opacc` command in this process. ``python -m journeys.journeys`` in `tests/` writes the golden files anew.
With ``--sizes`` it prints instead, by a profile hook, how many files and functions of the package each command calls,
and how deep the calls go.
"""

import csv
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from functools import partial
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import yaml

import opacc_ray

HOME = Path(opacc_ray.__file__).parent
GOLDEN = Path(__file__).parent / "golden"

STATUS = (0, 7, 8)
"""Exit codes of commands that did their work: done, waits for labels, alert."""


class Size(NamedTuple):
    """What a command goes through in the package."""

    files: int
    functions: int
    depth: int


class Step(NamedTuple):
    """One command of a journey."""

    command: str
    answer: Any
    size: Size | None


Command = Callable[..., Step]
"""Runs one command, given its arguments."""


# -- the journeys ------------------------------------------------------------------------------------------------


def csv_journey(folder: Path, step: Command) -> Iterator[Step]:
    """A table of 600 predictions: two rounds, a metric, slices, and what people look at."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 600)
    confidence = np.round(np.sqrt(rng.random(600)), 4)
    wrong = rng.random(600) > confidence
    names = np.array(["cat", "dog", "owl"])
    predicted = names[(truth + wrong) % 3]
    known = {f"row-{row:03d}": str(name) for row, name in enumerate(names[truth])}
    region = np.array(["north", "south"])[rng.integers(0, 2, 600)]
    _write_csv(
        folder / "answers.csv", ("id", "prediction", "confidence", "region"), known, predicted, confidence, region
    )
    yield step("budget", "answers.csv", "--until", "±0.05")
    yield step("run", "answers.csv", "--budget", "60", "--slices", "region")
    run = _newest(folder / "audits")
    yield step("labels", "import", run, _answers(folder, run, 1, known))
    yield step("estimate", run, "--metric", "f1@owl", "--by", "region")
    yield step("next", run, "--budget", "40")
    yield step("labels", "import", run, _answers(folder, run, 2, known))
    yield step("estimate", run)
    yield step("compare", run, run)
    yield step("labels", "list", run)
    yield step("status", run)
    yield step("report", run)
    yield step("verify", run)


def image_journey(folder: Path, step: Command) -> Iterator[Step]:
    """A folder of pictures and a torch model, whose extraction runs in this process."""
    from small_fleet import write_fleet

    write_fleet(folder)
    spec = {
        "name": "pictures",
        "pool": {"uri": "shop", "format": "images"},
        "model": {"factory": "small_model:trained"},
        "transform": "small_pictures:to_input",
        "extract": {"batch_size": 15, "shard_size": 15, "actors": 1, "features": ["hidden", "output"]},
        "sample": {"method": "ces", "budget": 12, "initial": 4, "group": 2, "candidates": 20},
        "output": "audits",
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    known = {f"{i:03d}.png": str(i % 4) for i in range(60)}
    yield step("check", "spec.yaml")
    yield step("run", "spec.yaml")
    run = _newest(folder / "audits")
    yield step("labels", "import", run, _answers(folder, run, 1, known))
    yield step("estimate", run)
    yield step("report", run)
    yield step("runs", "list", "audits")


def fleet_journey(folder: Path, step: Command) -> Iterator[Step]:
    """Two models on two pools, before and after labels."""
    from small_fleet import write_fleet

    write_fleet(folder)
    yield step("fleet", "fleet.yaml")
    for run in sorted(path.parent for path in (folder / "audits").glob("*/spec.json")):
        size = 60 if "shop" in run.name else 45
        file = _answers(folder, str(run), 1, {f"{i:03d}.png": str(i % 4) for i in range(size)})
        yield step("labels", "import", str(run), file)
    yield step("fleet", "fleet.yaml")


JOURNEYS: dict[str, Callable[[Path, Command], Iterator[Step]]] = {
    "csv": csv_journey,
    "images": image_journey,
    "fleet": fleet_journey,
}


def never(command: str) -> bool:
    return False


def walk(name: str, folder: Path, is_sized: Callable[[str], bool] = never) -> list[Step]:
    """Walk a journey in an empty folder, and count what some of its commands go through, which takes long."""
    from extracting_here import extracting_here  # not above: the journey of a table works without Ray and torch

    with chdir(folder), extracting_here():
        return list(JOURNEYS[name](folder, partial(run_command, is_sized=is_sized)))


# -- one command -------------------------------------------------------------------------------------------------


def run_command(*arguments: str, is_sized: Callable[[str], bool] = never) -> Step:
    """Run one command; raises AssertionError if it fails."""
    from opacc_ray.cli.main import main

    printed = io.StringIO()
    with redirect_stdout(printed), counted(is_sized(arguments[0])) as sizes:
        status = main([*arguments, "--json"])
    assert status in STATUS, f"opacc {' '.join(arguments)} ended with {status}: {printed.getvalue()[:500]}"
    name = " ".join(part for part in arguments[:2] if re.fullmatch(r"[a-z]+", part))
    answer = masked(json.loads(printed.getvalue()), str(Path.cwd()))
    return Step(name, answer, next(iter(sizes), None))


@contextmanager
def counted(sized: bool) -> Iterator[list[Size]]:
    """Yield a list that has the size of what ran, once it ran."""
    functions: set[CodeType] = set()
    deepest, depth, home, found = 0, 0, str(HOME), []

    def record(frame: FrameType, event: str, _: Any) -> None:
        nonlocal deepest, depth
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(home) or not code.co_flags & CO_NEWLOCALS:
            return
        functions.add(code)
        depth += 1 if event == "call" else -1
        deepest = max(deepest, depth)

    sys.setprofile(record if sized else None)
    try:
        yield found
    finally:
        sys.setprofile(None)
    if sized:
        found.append(Size(len({code.co_filename for code in functions}), len(functions), deepest))


MASKS = [
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)?"), "TIME"),
    (re.compile(r"\b\d{8}T\d{6}(\d+)?Z?\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}(?:[0-9a-f]{8}|[0-9a-f]{56}|[0-9a-f]{32}|[0-9a-f]{4})?\b"), "DIGEST"),
]
"""What differs between two walks of the same journey, or with the version: times and digests."""

OF_THE_MACHINE = {
    "days",
    "seconds",
    "bytes",
    "memory",
    "hours",
    "megabytes",
    "version",
    "peak_memory",
    "elapsed",
    "requests",
}
"""Fields whose values are those of the machine or of the version."""


def masked(value: Any, folder: str) -> Any:
    """Return an answer without what differs between two walks: times, digests, folders, durations."""
    if isinstance(value, dict):
        kept = {key: "…" if OF_THE_MACHINE & {*key.split("_")} else masked(own, folder) for key, own in value.items()}
        return {masked(key, folder): own for key, own in kept.items()}
    if isinstance(value, list):
        return [masked(own, folder) for own in value]
    if isinstance(value, str):
        for pattern, name in MASKS:
            value = pattern.sub(name, value.replace(folder, "FOLDER"))
    return value


def differences(golden: Any, answer: Any, place: str = "") -> Iterator[str]:
    """Yield each place at which an answer differs from the golden one by more than 1e-12."""
    if isinstance(golden, dict) and isinstance(answer, dict):
        for key in sorted(golden.keys() | answer.keys()):
            yield from differences(golden.get(key), answer.get(key), f"{place}.{key}")
    elif isinstance(golden, list) and isinstance(answer, list) and len(golden) == len(answer):
        for number, pair in enumerate(zip(golden, answer, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif isinstance(golden, float) and isinstance(answer, int | float):
        if abs(golden - answer) > 1e-12 * max(1.0, abs(golden)):
            yield f"{place}: {golden!r} was expected, and is {answer!r}"
    elif golden != answer:
        yield f"{place}: {golden!r} was expected, and is {answer!r}"


def unlike_golden(name: str, steps: Sequence[Step]) -> list[str]:
    """Return each place at which the answers of a journey differ from the golden ones."""
    golden = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert [step.command for step in steps] == [own["command"] for own in golden]
    pairs = zip(golden, steps, strict=True)
    return [f"{own['command']}{text}" for own, step in pairs for text in differences(own["answer"], step.answer)]


def _newest(output: Path) -> str:
    [header] = output.glob("*/spec.json")
    return str(header.parent)


def _answers(folder: Path, run: str, number: int, known: dict[str, str]) -> str:
    """Write the labels of a round, as its manifest asks for them."""
    manifest = next(Path(run, "rounds", str(number)).rglob("manifest.csv"))
    with manifest.open(encoding="utf-8", newline="") as file:
        ids = [row["id"] for row in csv.DictReader(file)]
    path = folder / f"{Path(run).name}-{number}.csv"
    _write_csv(path, ("id", "label"), ids, [known[id] for id in ids])
    return path.name


def _write_csv(path: Path, header: tuple[str, ...], *columns: Any) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *zip(*columns, strict=True)])


def main() -> None:
    """Write the golden answers, or print the sizes of all steps as a Markdown table."""
    sized = "--sizes" in sys.argv
    if sized:
        print("| journey | command | files | functions | depth |\n|---|---|---:|---:|---:|")
    for name in JOURNEYS:
        with tempfile.TemporaryDirectory(prefix="journey-") as folder:
            steps = walk(name, Path(folder), lambda command: sized)
        if sized:
            print(*(f"| {name} | {own.command} | {' | '.join(map(str, own.size or ()))} |" for own in steps), sep="\n")
        else:
            GOLDEN.mkdir(exist_ok=True)
            content = [{"command": own.command, "answer": own.answer} for own in steps]
            text = json.dumps(content, indent=1, ensure_ascii=False)
            (GOLDEN / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
