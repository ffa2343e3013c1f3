"""Generated histories of a run: several people at once, and a checker that judges what they were told.

``PYTHONPATH=tests python -m histories 2000`` checks as many in folders, ``histories 300 1000`` from seed 1000 on. Each
person has a run of their own and does random commands; some are killed before or after a write. The checker knows
what each command returned, and asks of the log at the end:

- every label of an import that was acknowledged is there, unless somebody withdrew it;
- no closing gives up an example that had a label in an earlier entry;
- a command that returned wrote what it said, and one that raised an error wrote nothing.
"""

import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from audited_run import CLASSES, KEYS, TRUTH, write_features, write_pool

from opacc_ray.audit import accuracy, verbs
from opacc_ray.errors import OpaccError
from opacc_ray.extensions.evidence.evidence import seal
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.labels import label_actions
from opacc_ray.labels.label_actions import AnswerList, ImportedLabels, WithdrawnLabels
from opacc_ray.labels.label_log import LabelAction, read_log
from opacc_ray.labels.labelled_rounds import read_labelled
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import FOLDER, ClosedRound, Draw

PEOPLE, COMMANDS = 3, 4

KINDS = ("import", "close", "next", "correct", "withdraw", "estimate", "rule", "seal")
WEIGHTS = (6, 3, 3, 2, 1, 1, 1, 1)
"""Commands, and how often each is drawn."""


class KilledError(BaseException):
    """The process ends here."""


class Done(NamedTuple):
    """A command, and how it ended."""

    name: str
    ids: list[str]  # of an import
    result: Any  # what it returned, or the error
    entries: list[str]  # keys of the log that it created


class Person(threading.local):
    """What the current thread does."""

    kill_at = 0  # writes until it is killed; 0: never
    after = False  # whether that write still happens
    created: tuple[str, ...] = ()
    ids: list[str] | None = None  # that it imports


person = Person()


@contextmanager
def watched(kind: type) -> Iterator[None]:
    """Count the writes of every store of a kind, kill where asked, and note the entries of logs."""
    write, create = kind.write, kind._create

    def counted(own: Callable[..., Any]) -> Callable[..., Any]:
        def called(store: Any, key: str, data: bytes) -> Any:
            person.kill_at -= 1
            if person.kill_at == 0 and not person.after:
                raise KilledError
            found = own(store, key, data)
            is_log = key.startswith(FOLDER)
            if is_log and (
                found or own is write or (found is False and store.read(key) == data)
            ):  # its answer was lost
                person.created = (*person.created, key)
            if person.kill_at == 0:
                raise KilledError
            return found

        return called

    kind.write, kind._create = counted(write), counted(create)
    try:
        yield
    finally:
        kind.write, kind._create = write, create


def commands(rng: random.Random, name: str) -> Iterator[tuple[str, Callable[[Run], Any]]]:
    """Yield random commands of a person."""
    for turn in range(COMMANDS):
        kind = rng.choices(KINDS, WEIGHTS)[0]
        share, seed = rng.random(), rng.random()

        def command(run: Run, kind: str = kind, turn: int = turn, share: float = share, seed: float = seed) -> Any:
            own = random.Random(seed)
            ids = [id for number in run.rounds() for id in run.read_selection(number).ids]
            some = own.sample(ids, max(1, int(share * len(ids))))
            if kind == "import":
                rows = "".join(f"{id},{CLASSES[TRUTH[KEYS.index(id)]]},{name}\n" for id in some)
                data = f"id,label,annotator\n{rows}".encode()
                person.ids = some
                return label_actions.import_labels(run, f"{name}-{turn}.csv", data, conflict="majority")
            if kind == "close":
                return verbs.close_round(run)
            if kind == "next":
                return verbs.next_round(run, own.randint(3, 9), close=share < 0.7)
            if kind == "correct":
                return label_actions.correct(run, some[0], CLASSES[0], name)
            if kind == "withdraw":
                return label_actions.withdraw(run, some[0])
            if kind == "rule":
                return label_actions.set_rule(run, "latest" if share < 0.5 else "majority")
            if kind == "seal":
                return seal(run, promised_by=name)
            return accuracy.estimate(run, partial=True)

        yield kind, command


def play(uri: str, seed: int, people: int = PEOPLE) -> list[Done]:
    """Let people work on a run at once; returns all that they did."""
    rng, done, lock = random.Random(seed), list[Done](), threading.Lock()
    plans = [(list(commands(rng, f"p{i}")), rng.random()) for i in range(people)]
    start = threading.Barrier(people)

    def work(plan: list[tuple[str, Callable[[Run], Any]]], seed: float) -> None:
        own = random.Random(seed)
        run = Run.open(uri)
        start.wait()
        for kind, command in plan:
            person.kill_at, person.after = (own.randint(1, 6), own.random() < 0.5) if own.random() < 0.3 else (0, False)
            person.created, person.ids = (), None
            try:
                result = command(run)
            except OpaccError as error:
                result = error
            except KilledError as error:
                result, run = error, Run.open(uri)  # another process goes on
            person.kill_at = 0
            with lock:
                done.append(Done(kind, person.ids or [], result, list(person.created)))

    threads = [threading.Thread(target=work, args=plan) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def problems(uri: str, done: list[Done]) -> list[str]:
    """Return what was lost, or said wrongly."""
    run = Run.open(uri)
    return [*_unsound(run), *_lost(run, done), *_given_up(run), *_said(done)]


def _unsound(run: Run) -> Iterator[str]:
    yield from (
        fault.problem for fault in verify(run.uri).faults if "estimate.json is not the newest" not in fault.problem
    )


def _lost(run: Run, done: list[Done]) -> Iterator[str]:
    """Yield acknowledged labels that do not count."""
    actions = [action for commit in run.commits for action in commit.documents(LabelAction)]
    there = {(label.annotator, label.id) for label in read_log(run).labels()}
    withdrawn = {id for action in actions if action.action == "withdraw" for id in action.ids}
    for item in done:
        if isinstance(item.result, ImportedLabels):
            who = item.result.file.partition("-")[0]
            lost = [id for id in item.ids if (who, id) not in there and id not in withdrawn]
            if lost:
                yield f"{item.result.file}: {len(lost)} labels were acknowledged and are not there"


def _given_up(run: Run) -> Iterator[str]:
    """Yield closings of examples that had a label."""
    for commit in run.commits:
        for closed in commit.documents(ClosedRound):
            before = read_labelled(run.at(run.commits[: commit.number - 1]))
            if lost := before & set(closed.given_up):
                yield f"entry {commit.number} gives up {len(lost)} examples with a label"


def _said(done: list[Done]) -> Iterator[str]:
    """Yield commands whose answer is not what they wrote."""
    for item in done:
        if isinstance(item.result, OpaccError) and item.entries:
            yield f"{item.name} raised {item.result} and wrote {item.entries}"
        if isinstance(item.result, KilledError) and len(item.entries) > 1:
            yield f"{item.name} was killed and wrote {item.entries}"
        is_import = isinstance(item.result, ImportedLabels) and not item.result.again
        changes = is_import or isinstance(item.result, AnswerList | LabelAction | WithdrawnLabels)
        if changes and len(item.entries) != 1:
            yield f"{item.name} returned and wrote {item.entries}"


def begin(home: str) -> Run:
    """Return a run with its first round."""
    write_pool(home)
    run, _ = write_features(home)
    verbs.select(run, "srs", 20, {})
    return run


def check(home: str, seed: int, people: int = PEOPLE) -> tuple[list[str], list[Done]]:
    """Play one history at a place; returns the problems that it has, and what was done."""
    run = begin(home)
    with watched(type(run.store)):
        done = play(run.uri, seed, people)
    assert any(isinstance(draw, Draw) for _, draw in run.logged(Draw))
    return problems(run.uri, done), done


def campaign(number: int, first: int = 0) -> int:
    """Check histories in folders, from a seed on; returns the number of problems."""
    wrong, ended = 0, Counter[str]()
    with tempfile.TemporaryDirectory() as home:
        for seed in range(first, first + number):
            found, done = check(f"{home}/{seed}", seed)
            ended.update(type(item.result).__name__ if is_error(item) else "returned" for item in done)
            for problem in found:
                print(f"history {seed}: {problem}", flush=True)
            wrong += len(found)
    print(f"{number} histories, {wrong} problems; commands: {dict(ended)}", flush=True)
    return wrong


def is_error(item: Done) -> bool:
    """Return whether a command raised an error or was killed."""
    return isinstance(item.result, OpaccError | KilledError)


if __name__ == "__main__":
    sys.exit(min(campaign(*map(int, sys.argv[1:])), 1))
