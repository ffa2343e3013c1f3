"""The queue of a fleet: isolated audits, features once, only what is missing, a clean end. Actors are left out."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from extracting_here import extracting_here
from small_fleet import SIZES, write_fleet
from waiting import LONG, until

from opacc_ray.audit import verbs
from opacc_ray.audit.extraction_stages import Stage
from opacc_ray.errors import DataError
from opacc_ray.extensions.fleet.fleet_spec import Fleet, load_fleet
from opacc_ray.extensions.fleet.queue import Ended, Turns, ended, work_through
from opacc_ray.samplers.base import unreported

pytestmark = pytest.mark.slow

NUM_SHARDS = sum(size // 15 for size in SIZES.values())
"""Of both pools."""


def work(fleet: Fleet, *, trial: bool = False) -> list[Ended]:
    return work_through(fleet, unreported, trial=trial)


def test_audits_of_one_model_on_one_pool_extract_it_once_though_they_run_at_the_same_time(tmp_path: Path) -> None:
    file = write_fleet(tmp_path)
    one = load_fleet(file).audits[0].spec.model_dump(include={"pool", "model"}, exclude_unset=True)
    common = {"name": "same", "audits": [one | {"name": f"a{k}", "seed": k} for k in range(4)], "concurrency": 4}
    fleet = load_fleet(write_fleet(tmp_path, **common, models=None, pools=None))
    with extracting_here() as made:
        done = work(fleet)
    assert len({item.run.uri for item in done if item.run}) == 4
    assert Counter(shard for _, _, shard in made) == {f"part-00000{k}": 1 for k in range(4)}


def test_one_that_fails_stops_no_other_and_the_next_run_does_only_that_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = load_fleet(write_fleet(tmp_path))
    whole, select = tmp_path / "trained.safetensors", verbs.select
    content = whole.read_bytes()

    def select_or_fail(run: object, *arguments: object, **options: object) -> object:
        if "random-field" in str(run.uri):
            raise ZeroDivisionError("a fault of the program")
        return select(run, *arguments, **options)

    monkeypatch.setattr(verbs, "select", select_or_fail)
    whole.write_bytes(b"no weights")
    with extracting_here() as made:
        first = work(fleet, trial=True)
        assert [item.run is not None for item in first] == [True, False, False, False]
        assert [item.failure.exit_code for item in first[1:]] == [1, 5, 5]
        assert first[1].failure.error == "unexpected ZeroDivisionError: a fault of the program"
        assert "is neither safetensors nor" in first[2].failure.error
        assert len(made) == NUM_SHARDS
        assert "weekly-trained-shop: failed: model.weights" in caplog.text
        monkeypatch.undo()
        whole.write_bytes(content)
    with extracting_here() as made:
        second = work(fleet)
        assert [item.failure for item in second] == [None] * 4
        assert first[0].run.uri == second[0].run.uri
        assert len(made) == NUM_SHARDS
    with extracting_here() as made:
        work(fleet)
    assert made == []


def test_code_that_exits_ends_its_own_audit_only(tmp_path: Path) -> None:
    [audit, *_] = load_fleet(write_fleet(tmp_path)).audits
    found = ended(audit, lambda: sys.exit(3))
    assert found.failure.error == "unexpected SystemExit: 3"
    with pytest.raises(KeyboardInterrupt):
        ended(audit, interrupt)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_at_most_so_many_audits_are_worked_on_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = load_fleet(write_fleet(tmp_path, concurrency=3))
    at_work, most, begun = 0, 0, 0
    lock, first_three = threading.Lock(), threading.Barrier(3)

    def counted(*_: object, **__: object) -> None:
        nonlocal at_work, most, begun
        with lock:
            at_work, begun = at_work + 1, begun + 1
            most, is_early = max(most, at_work), begun <= 3
        if is_early:
            first_three.wait(LONG)
        with lock:
            at_work -= 1
        raise DataError("nothing is done here")

    monkeypatch.setattr(verbs, "first_round", counted)
    with extracting_here():
        work(fleet)
    assert (most, begun) == (3, 4)


def test_an_interrupt_ends_all_audits_and_leaves_what_is_done(tmp_path: Path) -> None:
    fleet = load_fleet(write_fleet(tmp_path, concurrency=1))

    def interrupt(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    before = {*threading.enumerate()}
    with extracting_here() as made:
        with pytest.raises(KeyboardInterrupt):
            work_through(fleet, interrupt, trial=False)
        assert until(lambda: before.issuperset(threading.enumerate()))
        first = len(made)
        assert first < 2 * NUM_SHARDS
        assert all(item.failure is None for item in work(fleet))
        assert len(made) == 2 * NUM_SHARDS


def test_log_lines_begin_with_the_name_of_their_audit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise DataError("nothing is done here")

    fleet = load_fleet(write_fleet(tmp_path))
    monkeypatch.setattr(verbs, "first_round", refused)
    with extracting_here():
        work(fleet)
    for item in fleet.audits:
        [record] = [record for record in caplog.records if record.getMessage().startswith(f"{item.name}: failed")]
        assert record.fields == {"audit": item.name}  # what a line of JSON says, too


@pytest.mark.parametrize(
    ("actors", "shares", "together"),
    [(1, False, True), (1, True, False), ("auto", False, False)],
    ids=["other features", "the same features", "the whole cluster"],
)
def test_two_extract_together_unless_they_share_features_or_take_the_whole_cluster(
    tmp_path: Path, actors: object, shares: bool, together: bool
) -> None:
    file = write_fleet(tmp_path, spec={"extract": {"actors": actors}, "sample": {"method": "srs", "budget": 5}})
    one, _, other, _ = load_fleet(file).audits
    stages = [verbs.start(item.spec)[1] for item in (one, one if shares else other)]
    turns, inside = Turns(), threading.Barrier(2)
    met: list[bool] = []

    def extract(own: list[Stage]) -> None:
        with turns.turn(own):
            try:
                inside.wait(LONG if together else 0.3)
                met.append(True)
            except threading.BrokenBarrierError:
                met.append(False)

    at_once(lambda: extract(stages[0]), lambda: extract(stages[1]))
    assert met == [together] * 2


def at_once(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=item) for item in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
