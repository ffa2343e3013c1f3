"""One disturbed audit: what happens to it and when is drawn by the seed; it is started again until it is done."""

import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from chaos.site import Site
from opacc_ray.audit.status import EXTRACTION
from opacc_ray.lake.store_uris import Store, open_store

DISTURBANCES = (
    "kill the driver",
    "SIGTERM to the driver",
    "kill an actor",
    "SIGTERM to an actor",
    "hang an actor",
    "lose a node",
    "a second driver",
    "damage a shard",
)

ENDINGS = {0, 1, 3, 4, 143, -signal.SIGKILL, -signal.SIGTERM}
"""Exit codes that a disturbed driver may have. 1 is Ray's, when the driver's own node is lost."""

DAMAGED = 5
"""And that of one which meets a shard that was damaged after it was written."""

STARTS = 8
"""Times a run is started before it counts as one that never ends."""

SECONDS = 120
"""That one start may take."""

LEFT = re.compile(r"\.opacc-tmp-")
"""What may stay behind, as docs/scale.md says: files that a killed process was writing."""


Moment = Callable[[Site, str, float], bool]
"""Whether something is to happen now to a run with this output, whose driver was started at a monotonic second."""


class Outcome(NamedTuple):
    """What became of one disturbed audit."""

    seed: int
    events: list[str]  # in their order
    faults: Counter[str]  # of the storage
    starts: int
    left: int  # objects that stayed behind
    seconds: float
    problem: str  # empty if it ended in the bytes of the undisturbed one


def content_of(store: Store) -> dict[str, bytes]:
    """All objects of a run by key, but for what may stay behind, and what depends on the clock."""
    kept = (entry.key for entry in store.list() if not LEFT.search(entry.key) and not entry.key.endswith(EXTRACTION))
    found = {key: store.read(key) for key in kept}
    return {key: _without_moment(key, data) for key, data in found.items()}


MOMENTS = {"spec.json": ("created", "git_commit", "sha256"), "log": ("at", "previous", "sha256")}
"""Keys of documents that hold a moment, or a digest of one, by the file or its folder."""


def _without_moment(key: str, data: bytes) -> bytes:
    folder, _, name = key.rpartition("/")
    kind = name if name in MOMENTS else folder.rpartition("/")[2]
    if kind not in MOMENTS:
        return data
    document = json.loads(data)
    for moment in MOMENTS[kind]:
        document.pop(moment, None)
    if kind == "spec.json":
        del document["spec"]["output"]
    return json.dumps(document).encode()


def undisturbed(site: Site) -> tuple[dict[str, bytes], float]:
    """The bytes of an audit that nothing happens to, and the seconds that it takes."""
    started = time.monotonic()
    driver = site.start(site.spec("s3://audits/calm/"))
    code = driver.wait(SECONDS)
    if code:
        raise RuntimeError(f"the undisturbed audit ended with {code}: {site.log}")
    seconds = time.monotonic() - started
    site.end()
    return content_of(open_store("s3://audits/calm")), seconds


def disturb(site: Site, seed: int, expected: dict[str, bytes], seconds: float) -> Outcome:
    """Run one audit with the disturbances of a seed, until it is done, and compare."""
    draw = random.Random(seed)
    kinds = [DISTURBANCES[seed % len(DISTURBANCES)], *draw.choices(DISTURBANCES, k=draw.randint(0, 2))]
    plan = [(_moment(draw, kind, seconds), kind) for kind in kinds]
    before, started, events = site.proxy.met.copy(), time.monotonic(), list[str]()
    site.proxy.draw(seed, draw.choice([0.0, 0.02, 0.08]))
    output = f"s3://audits/{seed}/"
    try:
        starts, problem = _until_done(site, output, plan, events, draw)
    finally:
        met = site.proxy.met.copy()
        site.proxy.draw(seed, 0.0)
    store = open_store(output)
    if not problem:
        problem = _difference(expected, content_of(store))
    left = sum(LEFT.search(entry.key) is not None for entry in store.list())
    outcome = Outcome(seed, events, met - before, starts, left, time.monotonic() - started, problem)
    site.end()
    for entry in store.list():
        store.delete(entry.key)
    return outcome


def _moment(draw: random.Random, kind: str, seconds: float) -> Moment:
    """Any time of a run for what may happen at any; else while shards are worked on."""
    if draw.random() < 0.3 and kind in ("kill the driver", "SIGTERM to the driver", "lose a node", "a second driver"):
        at = draw.uniform(0, seconds)
        return lambda site, output, since: time.monotonic() - since >= at
    num_shards, late = draw.randint(int(kind == "damage a shard"), 10), draw.uniform(0, 0.4)

    def come(site: Site, output: str, since: float) -> bool:
        if site.num_shards(output) < num_shards or not site.actors():
            return False
        time.sleep(late)
        return True

    return come


def _until_done(
    site: Site, output: str, plan: list[tuple[Moment, str]], events: list[str], draw: random.Random
) -> tuple[int, str]:
    """Start the audit again and again; returns how often, and what is wrong."""
    for starts in range(1, STARTS + 1):
        driver, since, before = site.start(site.spec(output)), time.monotonic(), len(events)
        while driver.poll() is None:
            if plan and plan[0][0](site, output, since):
                what = plan.pop(0)[1]
                events.append(what if ACTIONS[what](site, output, draw) else f"{what}: too late")
            if time.monotonic() - since > SECONDS:
                return starts, f"a start took more than {SECONDS} s"
            time.sleep(0.02)
        codes = {other.wait(SECONDS) for other in site.drivers}
        site.drivers.clear()
        odd = codes - ENDINGS - ({DAMAGED} if "damage a shard" in events else set())
        if odd:
            return starts, f"exit codes {sorted(odd)}"
        if driver.returncode == 0 and "damage a shard" not in events[before:]:
            return starts, ""
    return STARTS, "it was started so often and is not done"


def _difference(expected: dict[str, bytes], found: dict[str, bytes]) -> str:
    if expected.keys() != found.keys():
        return f"missing: {sorted(expected.keys() - found.keys())}, too much: {sorted(found.keys() - expected.keys())}"
    return ", ".join(f"{key} differs" for key in expected if expected[key] != found[key])


Action = Callable[[Site, str, random.Random], bool]
"""Does something to a run with this output; returns whether there was something to do it to."""


def _signal_driver(number: int) -> Action:
    def act(site: Site, output: str, draw: random.Random) -> bool:
        os.kill(site.drivers[-1].pid, number)
        return True

    return act


def _signal_actor(number: int) -> Action:
    def act(site: Site, output: str, draw: random.Random) -> bool:
        pids = site.actors()
        with suppress(ProcessLookupError):
            if pids:
                os.kill(draw.choice(sorted(pids)), number)
        return bool(pids)

    return act


def _lose_node(site: Site, output: str, draw: random.Random) -> bool:
    """One node disappears at once, with all its processes; another one comes."""
    node = draw.choice(sorted(site.cluster.worker_nodes, key=lambda node: node.unique_id))
    site.cluster.remove_node(node, allow_graceful=False)
    site.add_node()
    return True


def _second_driver(site: Site, output: str, draw: random.Random) -> bool:
    first = site.drivers[-1]
    site.start(site.home / "spec.yaml")
    site.drivers.remove(first)
    site.drivers.append(first)  # the one that is waited for
    return True


def _damage(site: Site, output: str, draw: random.Random) -> bool:
    """Cut a finished shard of features in half, or flip one of its bits."""
    store = open_store(output)
    shards = [entry.key for entry in store.list() if re.search(r"/part-\d+\.parquet$", entry.key)]
    if shards:
        key = draw.choice(shards)
        data = bytearray(store.read(key))
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        store.write(key, bytes(data) if draw.random() < 0.5 else bytes(data[: len(data) // 2]))
    return bool(shards)


ACTIONS: dict[str, Action] = {
    "kill the driver": _signal_driver(signal.SIGKILL),
    "SIGTERM to the driver": _signal_driver(signal.SIGTERM),
    "kill an actor": _signal_actor(signal.SIGKILL),
    "SIGTERM to an actor": _signal_actor(signal.SIGTERM),
    "hang an actor": _signal_actor(signal.SIGSTOP),
    "lose a node": _lose_node,
    "a second driver": _second_driver,
    "damage a shard": _damage,
}
