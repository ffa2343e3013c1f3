"""What mutants are given to: commands as a user runs them, in folders of their own."""

import contextlib
import io
import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from golden_run import copy_golden_run, drawn_file, golden_run, replace_drawn
from PIL import Image
from written_run import PREDICTION, write_run

from fuzz import label_mutants, mutants
from opacc_ray.audit import accuracy, verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import OpaccError
from opacc_ray.labels import label_actions
from opacc_ray.selection import Selection

SECONDS = 10


class Outcome(NamedTuple):
    code: int  # exit code; 0 or that of an OpaccError
    message: str


class TookTooLong(BaseException):
    """More than the seconds that a mutant has."""


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TookTooLong after so many seconds of work, or a hundred times as many of waiting."""

    def stop(*_: object) -> None:
        raise TookTooLong

    for kind in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(kind, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(100 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


def command(*arguments: str) -> Outcome:
    """Run a command in this process; stderr is its message."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*arguments, "--json"])
    if code:
        assert json.loads(out.getvalue().splitlines()[-1]), "an error is no JSON"
    return Outcome(code, err.getvalue())


def spec(folder: Path, **changes: Any) -> dict[str, Any]:
    """A spec that `opacc check` accepts, if the pool is sound."""
    return {
        "name": "fuzz",
        "seed": 3,
        "pool": {"uri": str(folder / "pool"), "format": "images"},
        "model": {"factory": "small_model:network", "arguments": {}, "classes": ["a", "b", "c", "d"]},
        "extract": {"batch_size": 8, "shard_size": 10, "features": ["hidden", "confidence"], "actors": "auto"},
        "sample": {"method": "css", "budget": 1, "fractions": [0.5, 0.5], "allocation": [0.5, 0.5]},
        "output": str(folder / "runs"),
    } | changes


def of_a_spec(rng: random.Random, folder: Path) -> Outcome:
    write_image(folder / "pool" / "a.png")
    path = folder / "spec.yaml"
    path.write_bytes(mutants.document(rng, json.dumps(spec(folder)).encode()))
    return command("check", str(path))


def of_a_pool(rng: random.Random, folder: Path) -> Outcome:
    suffix = rng.choice(("png", "jpg", "npy", "npz"))
    pool = {"uri": str(folder / "pool"), "format": "images" if suffix in ("png", "jpg") else "npy"}
    path = folder / "pool" / f"a.{suffix}"
    write_image(path) if pool["format"] == "images" else write_array(path)
    mutate = {"png": mutants.png, "jpg": mutants.bytes_of, "npy": mutants.npy, "npz": mutants.npz}[suffix]
    path.write_bytes(mutate(rng, path.read_bytes()))
    (folder / "spec.yaml").write_text(json.dumps(spec(folder, pool=pool)))
    return command("check", str(folder / "spec.yaml"))


def of_a_run(rng: random.Random, folder: Path) -> Outcome:
    run = copy_golden_run(folder)
    if rng.random() < 0.5:
        (run / "spec.json").write_bytes(mutants.document(rng, (run / "spec.json").read_bytes()))
    else:  # with digests that match
        drawn = drawn_file(run, 1, "selection.json")
        replace_drawn(run, 1, drawn.name, mutants.document(rng, drawn.read_bytes()))
    before = {item: item.read_bytes() for item in run.rglob("*") if item.is_file()}
    found = command(rng.choice(("status", "estimate")), str(run))
    if found.code:
        assert {item: item.read_bytes() for item in run.rglob("*") if item.is_file()} == before, "something was written"
    return found


def of_a_selection(rng: random.Random, folder: Path) -> Outcome:
    source = drawn_file(golden_run(), 1, "selection.json")
    path = folder / "selection.json"
    path.write_bytes(mutants.document(rng, source.read_bytes()))
    try:
        Selection.load(path)
    except OpaccError as error:
        return Outcome(error.exit_code, str(error))
    return Outcome(0, "")


RULES = [[], ["--conflict", "majority"], ["--annotator", "ann", "--conflict", "latest"]]


def of_labels(rng: random.Random, folder: Path) -> Outcome:
    """Whatever is imported, the owner can correct it, and the run has an estimate."""
    run, path = write_run(folder, "mutated", PREDICTION), folder / "labels.csv"
    path.write_bytes(label_mutants.mutated(rng, label_mutants.sound_files(verbs.select(run, "srs", 20, {}).ids)))
    found = command("labels", "import", run.uri, str(path), *rng.choice(RULES))
    answers = [] if found.code else label_actions.list_answers(run).answers
    for item in answers:
        if item.state != "counts":
            label_actions.correct(run, item.id, "1", "the owner")
    if answers:
        label_actions.set_rule(run, "error")
        assert accuracy.estimate(run, partial=True).n > 0
    return found


TARGETS = {
    "specs": of_a_spec,
    "pool files": of_a_pool,
    "runs": of_a_run,
    "selections": of_a_selection,
    "labels": of_labels,
}


def write_image(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(path)


def write_array(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = np.zeros((3, 8, 8), np.float32)
    np.save(path, rows) if path.suffix == ".npy" else np.savez(path, x=rows, ids=["a", "b", "c"])
