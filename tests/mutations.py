"""Damage to the files of a run, seeded: bits that flip, and files that are cut, emptied, lost, mixed up or edited.

Each is noticed, or harmless: all that the run says is as it was. Anything else is silent, and a fault of the program.
"""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from audited_run import KEYS, label, write_features, write_pool

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.status import status
from opacc_ray.errors import OpaccError
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run

Rng = np.random.Generator


class Damage:
    """A run with two rounds, one of them closed, beside another run of the same pool.

    It is damaged and restored.
    """

    def __init__(self, home: Path, seed: int) -> None:
        write_pool(str(home))
        self.rng = np.random.default_rng(seed)
        make_run(str(home), "audit", 20)
        make_run(str(home), "other", 21)
        self.home, self.other = home / "audit", home / "other"
        self._use()  # states what it can, so that no reading below adds to the log
        self.content = {path: path.read_bytes() for path in sorted(self.home.rglob("*")) if path.is_file()}
        self.expected = self._use()
        self.without: dict[Path, Any] = {}
        for path in (path for path in self.content if path.name == "estimate.json"):
            path.unlink()
            self.without[path] = self._use()  # it is made of the rest, so to lose it harms nothing
            self.restore()

    def restore(self) -> None:
        for path in self.home.rglob("*"):
            if path.is_file() and path not in self.content:
                path.unlink()
        for path, data in self.content.items():
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)

    def outcome(self, path: Path, data: bytes | None) -> str:
        """What becomes of a file that is replaced, or lost: "named", "refused", "harmless" or "silent"."""
        path.unlink() if data is None else path.write_bytes(data)
        try:
            problems = [fault.problem for fault in verify(str(self.home)).faults]
            used = self._use()
        finally:
            self.restore()
        expected = self.without.get(path, self.expected) if data is None else self.expected
        if used not in (None, expected):
            return "silent"
        if any(path.name in problem or path.parent.name in problem for problem in problems):
            return "named"
        return "refused" if problems or used is None else "harmless"

    def _use(self) -> Any:
        try:
            return said_of(Run.open(str(self.home)))
        except OpaccError as error:
            return None if "\n" not in str(error) else "a message of several lines"

    def flips(self, number: int) -> Counter[str]:
        """Outcomes of single bits, each at any place of any file."""
        found: Counter[str] = Counter()
        paths = list(self.content)
        for _ in range(number):
            path = paths[self.rng.integers(len(paths))]
            data = bytearray(self.content[path])
            place = int(self.rng.integers(8 * len(data)))
            data[place // 8] ^= 1 << place % 8
            outcome = self.outcome(path, bytes(data))
            found[outcome] += 1
            self._report(outcome, f"bit {place} of {path.relative_to(self.home)}")
        return found

    def mutations(self, number: int) -> Counter[str]:
        """Outcomes of changes to whole files, of every kind."""
        found: Counter[str] = Counter()
        for path, kind, data in self._mutated(number):
            outcome = self.outcome(path, data)
            found[outcome] += 1
            self._report(outcome, f"{kind} of {path.relative_to(self.home)}")
        return found

    def _mutated(self, number: int) -> Iterator[tuple[Path, str, bytes | None]]:
        paths, done = list(self.content), 0
        while done < number:
            path = paths[self.rng.integers(len(paths))]
            kind = list(KINDS)[done % len(KINDS)]
            data = KINDS[kind](self, path)
            is_last_entry = data is None and path == max(own for own in paths if own.parent.name == "log")
            if data != self.content[path] and not is_last_entry:  # a log that ends earlier is not noticed by itself
                done += 1
                yield path, kind, data

    def _report(self, outcome: str, what: str) -> None:
        if outcome == "silent":
            print(f"silent: {what}")


def make_run(home: str, name: str, budget: int) -> Run:
    run, _ = write_features(home, name)
    label(run, verbs.select(run, "srs", budget, {}).ids)
    chosen = verbs.next_round(run, 10)
    label(run, chosen.ids[:7])
    verbs.close_round(run)
    accuracy.estimate(run)
    return run


def said_of(run: Run) -> Any:
    """All that a run says: its state, what it estimates, and its features."""
    state = status(run).to_dict()
    stated = accuracy.estimate(run).to_dict()
    with run_module.open_view(run, ["hidden", "output", "confidence"]) as view:
        features = [part.tolist() for part in view.map(_values)]
    predictions = run_module.find_predictions(run, KEYS)
    rounds = [run.read_selection(number).to_dict() for number in run.rounds()]
    return state, stated, features, predictions, rounds


def _values(part: Any) -> Any:
    return np.column_stack([part.hidden, part.output, part.confidence])


# -- kinds -----------------------------------------------------------------------------------------------


def truncate(own: Damage, path: Path) -> bytes:
    data = own.content[path]
    return data[: own.rng.integers(len(data))]


def swap(own: Damage, path: Path) -> bytes:
    """The content of another file of the run, of the same kind if there is one."""
    others = [other for other in own.content if other != path and other.suffix == path.suffix]
    return own.content[others[own.rng.integers(len(others))]]


def reverse(own: Damage, path: Path) -> bytes:
    """Rows, or lines, or bytes, in the other order."""
    data = own.content[path]
    if path.suffix == ".parquet":
        table = pq.read_table(io.BytesIO(data))
        return encoded(table.take(list(range(len(table)))[::-1]))
    if path.suffix == ".json":
        return json.dumps(reversed_lists(json.loads(data)), indent=1).encode()
    first, *lines = data.splitlines(keepends=True)
    return b"".join([first, *lines[::-1]])


def reversed_lists(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: reversed_lists(value) for key, value in content.items()}
    return [reversed_lists(value) for value in content[::-1]] if isinstance(content, list) else content


def replace(own: Damage, path: Path) -> bytes:
    """The same file of another run."""
    other = own.other / path.relative_to(own.home)
    if not other.exists():
        others = sorted(own.other.rglob(f"*{path.suffix}"))
        other = others[own.rng.integers(len(others))]
    return other.read_bytes()


def edit(own: Damage, path: Path) -> bytes:
    """One value that is another."""
    data = own.content[path]
    if path.suffix == ".parquet":
        return encoded(edited_table(pq.read_table(io.BytesIO(data)), own.rng))
    if path.suffix == ".json":
        content = json.loads(data)
        edit_json(content, own.rng)
        return json.dumps(content, indent=1).encode()
    words = data.split(b",")
    place = own.rng.integers(len(words))
    words[place] = words[(place + 1) % len(words)]
    return b",".join(words)


def edited_table(table: Any, rng: Rng) -> Any:
    """Two rows of one column change places."""
    place = int(rng.integers(table.num_columns))
    order = list(range(len(table)))
    order[0], order[-1] = order[-1], order[0]
    return table.set_column(place, table.schema.field(place), table.column(place).take(pa.array(order)))


def edit_json(content: Any, rng: Rng) -> None:
    """Change a number or a text somewhere below."""
    places = list(content) if isinstance(content, dict) else list(range(len(content)))
    rng.shuffle(places)
    for place in places:
        value = content[place]
        if isinstance(value, dict | list) and value:
            return edit_json(value, rng)
        if isinstance(value, int | float) and not isinstance(value, bool):
            content[place] = value * 100 + 1
            return None
        if isinstance(value, str):
            content[place] = value[1:] + value[:1] + "0"
            return None
    return None


def encoded(table: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


KINDS: dict[str, Callable[[Damage, Path], bytes | None]] = {
    "truncate": truncate,
    "empty": lambda own, path: b"",
    "delete": lambda own, path: None,
    "swap": swap,
    "reverse": reverse,
    "replace": replace,
    "edit": edit,
}
