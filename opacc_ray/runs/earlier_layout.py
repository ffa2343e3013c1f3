"""Runs of version 0.2.0, which had no log: what happened to them, as their files say.

    rounds/1/draw-1.json                     draws; draw-2.json replaced it
    rounds/1/closed.json, goal.json          a closing, the last answer of `opacc next --until`
    labels/TIME-DIGEST.json                  imports, corrections, withdrawals, rules, each written before its file
    labels/FILE.kept                         a file of labels that was written
    estimate.json                            the last estimate

The first command that changes such a run writes all of this to a log.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from opacc_ray.errors import DataError
from opacc_ray.lake.store_uris import Store
from opacc_ray.runs.commit_log import Happening, digest_of
from opacc_ray.runs.estimate_documents import AccuracyEstimate, Stated
from opacc_ray.runs.run_documents import ClosedRound, Draw, Goal

_ROUND = re.compile(r"(?P<folder>(?:tracks/(?P<track>[^/]+)/)?rounds/(?P<round>\d+)/)(?P<name>.+)")
_DRAW = re.compile(r"draw-(\d+)\.json")


def happened_before(store: Store, created: str) -> list[Happening]:
    """Return what happened to a run without a log, in its order; raises DataError if a file is lost or damaged."""
    keys = [entry.key for place in ("rounds/", "tracks/", "labels/") for entry in store.list(place)]
    rounds = [match for key in keys if (match := _ROUND.fullmatch(key))]
    found = [*_draws(store, rounds, created), *_labels(store, keys, created), *_decisions(store, rounds, created)]
    tracks = dict.fromkeys(match["track"] for match in rounds)
    return [*found, *(own for track in tracks for own in _estimate(store, track, created))]


def _draws(store: Store, rounds: Sequence[re.Match[str]], created: str) -> Iterator[Happening]:
    places = {(match["track"] or "", int(match["round"])): match for match in rounds}
    for track, number in sorted(places):
        folder = places[track, number]["folder"]
        there = [match["name"] for match in rounds if match["folder"] == folder]
        drawn = [int(name[1]) for own in there if (name := _DRAW.fullmatch(own))]
        num = max(drawn, default=int("selection.json" in there))  # copied last: a draw was there
        for key in (f"{folder}draw-{k}.json" for k in range(1, num + 1)):
            data = store.read_if_there(key)
            if data is None:
                raise DataError(f"{store.uri_of(key)} is lost; restore it from a backup")
            draw = Draw.from_bytes(data, store.uri_of(key))
            files = {f"{folder}{draw.folder}/{name}": file.sha256 for name, file in draw.files.items()}
            yield Happening([draw], track or None, number, files, created)


def _labels(store: Store, keys: Sequence[str], created: str) -> Iterator[Happening]:
    files = {key.rpartition("/")[2]: key for key in keys if re.search(r"rounds/\d+/labels/[^/]+$", key)}
    named = sorted(key for key in keys if re.fullmatch(r"labels/[^/]+\.json", key))
    actions = [_action(store, key, data) for key, data in zip(named, store.read_many(named), strict=True)]
    unnamed = sorted(files.keys() - {action.get("file") for action in actions})
    for name in unnamed:
        yield _import({"format": "opacc-label-action/1", "action": "import", "at": created, "file": name}, files[name])
    for action in actions:
        name = str(action.get("file"))
        if action["action"] not in ("import", "correct"):
            yield Happening([action], at=action["at"])
        elif name in files:
            yield _import(action, files[name])
        elif f"labels/{name}.kept" in keys:  # it was written and is lost
            yield _import(action, store.read(f"labels/{name}.kept").decode(errors="replace").strip())


def _action(store: Store, key: str, data: bytes) -> dict[str, Any]:
    if not key.endswith(f"-{digest_of(data)[:12]}.json"):
        raise DataError(f"{store.uri_of(key)} was changed since it was written: its name is not its digest; restore it")
    action: dict[str, Any] = json.loads(data)
    return action


def _import(action: Mapping[str, Any], key: str) -> Happening:
    place, digest = _ROUND.fullmatch(key), str(action["file"]).partition(".")[0]
    track, number = (place["track"], int(place["round"])) if place else (None, None)
    return Happening([action], track, number, {key: digest}, action["at"])


def _decisions(store: Store, rounds: Sequence[re.Match[str]], created: str) -> Iterator[Happening]:
    for match in rounds:
        kinds: dict[str, type[ClosedRound] | type[Goal]] = {"closed.json": ClosedRound, "goal.json": Goal}
        if match["name"] in kinds:
            document = kinds[match["name"]].from_bytes(store.read(match[0]), store.uri_of(match[0]))
            yield Happening([document], match["track"], int(match["round"]), at=created)


def _estimate(store: Store, track: str | None, created: str) -> Iterator[Happening]:
    folder = f"tracks/{track}/" if track else ""
    data = store.read_if_there(f"{folder}estimate.json")
    if data is not None:
        digest, value = digest_of(data), None
        with suppress(DataError):  # it is named where the estimate is read
            value = AccuracyEstimate.from_bytes(data, "").value
        yield Happening([Stated(value=value)], track, None, {f"{folder}estimates/{digest[:16]}.json": digest}, created)
