"""A run's prefix that an attacker wrote: one sentence and exit code 5, no traceback, no memory, no time.

The attacker knows the format, so all digests match.
"""

import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden_run import copy_golden_run, drawn_file, edit_document, replace_drawn

from opacc_ray.cli.main import main

HUGE = 10**12
DEEP = b"[" * 200_000 + b"]" * 200_000


def edited(file: str, change: Callable[[Any], object]) -> Callable[[Path], None]:
    def edit(home: Path) -> None:
        if file != SELECTION:
            edit_document(home / file, lambda content: change(content) and None)
            return
        content = json.loads(drawn_file(home, 1, file).read_bytes())
        change(content)
        replace_drawn(home, 1, SELECTION, json.dumps(content).encode())

    return edit


def drawn(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda home: replace_drawn(home, 1, SELECTION, change(drawn_file(home, 1, SELECTION).read_bytes()))


SELECTION, INDEX = "selection.json", "features/index.json"
EDITS: dict[str, Callable[[Path], object]] = {
    "deep selection": drawn(lambda data: DEEP),
    "deep header": lambda home: (home / "spec.json").write_bytes(DEEP),
    "deep estimate": lambda home: (home / "estimate.json").write_bytes(DEEP),
    "deep facts": drawn(lambda data: data.replace(b'"facts": {', b'"facts": {"a": ' + DEEP + b", ")),
    "list for the design": edited(SELECTION, lambda content: content.update(design=[1, 2])),
    "list for the features": edited(INDEX, lambda content: content.update(features=["hidden"])),
    "list for the header": lambda home: (home / "spec.json").write_bytes(b"[]"),
    "pool of 10**12": edited(SELECTION, lambda content: content.update(pool_size=HUGE)),
    "index of 10**12": edited(
        INDEX,
        lambda content: (
            content["shards"][0].update(examples=HUGE),
            content.update(num_examples=HUGE + sum(shard["examples"] for shard in content["shards"][1:])),
        ),
    ),
    "number as text": edited(INDEX, lambda content: content.update(num_examples=str(content["num_examples"]))),
    "shards as text": edited("spec.json", lambda content: content["pool"].update(num_shards="3")),
    "file that lies elsewhere": edited(INDEX, lambda content: content["shards"][0].update(file="../../spec.json")),
    "shard of two numbers": edited(INDEX, lambda content: content["shards"][1].update(content["shards"][0])),
    "width": edited(INDEX, lambda content: content["features"].update(hidden=HUGE)),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return copy_golden_run(tmp_path)


@pytest.mark.parametrize("kind", EDITS)
def test_edited_run_is_refused_in_a_sentence(kind: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    EDITS[kind](home)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    codes = {}
    for arguments in (["verify"], ["status"], ["estimate"], ["next", "--budget", "10"]):
        capsys.readouterr()
        codes[arguments[0]] = main([arguments[0], str(home), *arguments[1:]])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert all(len(line) < 1000 for line in [*out.splitlines(), *err.splitlines()])
        if arguments[0] != "verify" and codes[arguments[0]]:
            assert (codes[arguments[0]], len(err.splitlines())) == (5, 1), err
    assert codes["verify"] == 5
    assert codes["next"] == (0 if kind == "deep estimate" else 5)  # which it does not read
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB
    assert time.process_time() - started < 20
