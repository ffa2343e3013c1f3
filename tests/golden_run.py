"""A run with two rounds, labels and an estimate, to copy and to damage.

``python -m golden_documents`` in `tests/` writes it anew.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opacc_ray.documents import sealed
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Commit, Draw, digest_of

HOME = Path(__file__).parent / "golden_documents" / "run"
"""The folder of the run; its name is that of the run."""

EXPECTED = HOME.with_name("expected.json")
"""What is stated of the run next."""

NUM, CLASSES = 120, ["cat", "dog", "owl"]
RNG = np.random.default_rng(3)
CONFIDENCE = np.round(RNG.uniform(0.4, 1, NUM), 4)
TRUTH = RNG.integers(0, 3, NUM)
PREDICTION = np.where(RNG.random(NUM) < CONFIDENCE, TRUTH, (TRUTH + 1) % 3)
HIDDEN = np.round(RNG.normal(size=(NUM, 4)) + TRUTH[:, None], 3).astype(np.float32)
IDS = [f"row-{row:03d}" for row in range(NUM)]


def golden_run() -> Path:
    """Return the folder of the run."""
    [found] = HOME.iterdir()
    return found


def copy_golden_run(folder: Path) -> Path:
    """Copy the run to a folder; returns where it is."""
    return Path(shutil.copytree(golden_run(), folder / golden_run().name))


def write_labels(path: Path, ids: list[str]) -> None:
    """Write the true class of some examples as a file of labels."""
    rows = "".join(f"{name},{CLASSES[TRUTH[IDS.index(name)]]}\n" for name in ids)
    path.write_text(f"id,label\n{rows}")


# -- edits by somebody who knows the format --------------------------------------------------------------------


def edit_document(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the content of a JSON file, and its own digest if it has one."""
    content = json.loads(path.read_bytes())
    changed = change(content)
    content = content if changed is None else changed
    is_sealed = isinstance(content, dict) and "sha256" in content
    path.write_text(json.dumps(sealed(content) if is_sealed else content))


def drawn_file(home: Path, number: int, name: str) -> Path:
    """Return a file of the draw of a round."""
    return Path(Run.open(str(home)).folder(number).uri, name)


def replace_drawn(home: Path, number: int, name: str, data: bytes) -> None:
    """Replace a file that was drawn in a round, with digests that match."""
    folder = drawn_file(home, number, name).parents[1]

    def change(commit: dict[str, Any]) -> None:
        if commit["round"] != number or not (drawn := [own for own in commit["content"] if "folder" in own]):
            return
        draw = Draw.from_dict(drawn[0], "the log")
        files = {key: (folder / draw.folder / key).read_bytes() for key in draw.files} | {name: data}
        new = Draw.of(files, draw.run, draw.features)
        (folder / new.folder).mkdir(exist_ok=True)
        for key, content in files.items():
            (folder / new.folder / key).write_bytes(content)
        commit["content"] = [new.to_dict()]
        commit["files"] = {f"rounds/{number}/{new.folder}/{key}": file.sha256 for key, file in new.files.items()}

    edit_log(home, change)


def edit_log(home: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the entries of a log, whose digests match again then."""
    run = Run.open(str(home))
    previous = None
    for commit in run.commits:
        content = commit.to_dict()
        change(content)
        data = Commit.model_validate(content | {"previous": previous, "sha256": None}).to_bytes()
        previous = digest_of(data)
        (home / "log" / f"{commit.number:08d}.json").write_bytes(data)
