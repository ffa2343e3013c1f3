"""How much damage to a run, and how many commands at once, end in a wrong number without a word: none should.

    python benchmarks/integrity.py --flips 1500 --mutations 500 --pairs 1000

Flips and mutations are those of `tests/mutations.py`, seeded: each is "named" (`opacc verify` names the file),
"refused" (in a sentence that names something else), "harmless" (all that the run says is as it was) or "silent". Pairs
of `opacc next` with different budgets start together, half of them in threads and half in processes, on a local folder
and on moto's S3 server, in turn. Of each pair one must draw the round, the other must fail with an error that says so,
and all files of the round must belong to one draw.
"""

import argparse
import itertools
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from audited_run import label, write_features, write_pool
from mutations import Damage

from opacc_ray.audit import accuracy, verbs
from opacc_ray.errors import LabelError
from opacc_ray.lake.store_uris import join
from opacc_ray.runs.run import Run

STATE: dict[str, Any] = {}
"""What a process that draws has: the barrier of its pair."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("flips", "mutations", "pairs", "seed"):
        arguments.add_argument(f"--{name}", type=int, default=0)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as home:
        if given.flips or given.mutations:
            damage = Damage(Path(home), given.seed)
            print("files", len(damage.content), "bytes", sum(map(len, damage.content.values())), flush=True)
            print("flips", given.flips, dict(damage.flips(given.flips)), flush=True)
            print("mutations", given.mutations, dict(damage.mutations(given.mutations)), flush=True)
    if given.pairs:
        print("pairs", given.pairs, dict(pairs(given.pairs)), flush=True)


def pairs(number: int) -> Counter[str]:
    """Outcomes of pairs of `next` at once."""
    found: Counter[str] = Counter()
    with ExitStack() as stack:
        places = homes(stack)
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(2)
        processes = stack.enter_context(
            ProcessPoolExecutor(2, mp_context=context, initializer=hold, initargs=(barrier,))
        )
        threads = stack.enter_context(ThreadPoolExecutor(2))
        STATE["barrier"] = threading.Barrier(2)
        turns = itertools.cycle(itertools.product(places, (("threads", threads), ("processes", processes))))
        runs = {place: make_run(*where).uri for place, where in places}
        for pair, ((place, (_, settings)), (kind, pool)) in zip(range(number), turns, strict=False):
            os.environ.update(settings)
            outcome = one_pair(Run.open(runs[place]), settings, pool, stated=pair % 60 < 6)
            found[outcome] += 1
            found[f"{place}, {kind}"] += 1
            if outcome != "one drew, one was told" or pair % 50 == 49:
                print(f"pair {pair}: {outcome}; so far {dict(found)}", flush=True)
    return found


def homes(stack: ExitStack) -> list[tuple[str, tuple[str, dict[str, str]]]]:
    """Where runs are made: name, URI, and the environment that leads there."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line a request
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    stack.callback(moto.stop)
    host, port = moto.get_host_and_port()
    settings = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    other = settings | dict.fromkeys(("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"), f"http://{host}:{port}")
    os.environ.update(other)
    boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="audits")
    return [
        ("folder", (join(folder, "local"), settings)),
        ("moto", ("s3://audits", other)),
    ]


def make_run(home: str, settings: dict[str, str]) -> Run:
    """A run whose first round is labelled."""
    os.environ.update(settings)
    write_pool(home)
    run, _ = write_features(home)
    label(run, verbs.select(run, "srs", 20, {}).ids)
    return run


def one_pair(run: Run, settings: dict[str, str], pool: Executor, stated: bool) -> str:
    """What becomes of two draws of the second round; with ``stated`` it is labelled. The run is then as before."""
    before = {entry.key: run.store.read(entry.key) for entry in run.store.list()}
    works = [pool.submit(draw, run.uri, budget, settings) for budget in (15, 16)]
    said = sorted(work.result(timeout=300) for work in works)
    chosen, drawn = run.read_selection(2), run.read_chosen(2)
    manifest = [json.loads(line)["id"] for line in run.folder(2).read("manifest.jsonl").splitlines()]
    if stated:  # the rest saves time
        label(run, chosen.ids)
        accuracy.estimate(run)
    for key in {entry.key for entry in run.store.list()} - before.keys():
        run.store.delete(key)
    for key, data in before.items():
        if run.store.read(key) != data:
            run.store.write(key, data)
    if not list(chosen.ids) == drawn.ids == manifest:
        return "a mixture"
    return "one drew, one was told" if said == ["drew", "told"] else " and ".join(said)


def hold(barrier: Any) -> None:
    """Give a process the barrier of its pair."""
    STATE["barrier"] = barrier


def draw(uri: str, budget: int, settings: dict[str, str]) -> str:
    os.environ.update(settings)
    STATE["barrier"].wait()
    try:
        verbs.next_round(Run.open(uri), budget)
    except LabelError as error:
        late = "round 2 of" in str(error) and "waits for" in str(error)  # it came after the other had ended
        return "told" if late or "drew round 2" in str(error) else str(error)
    return "drew"


if __name__ == "__main__":
    main()
