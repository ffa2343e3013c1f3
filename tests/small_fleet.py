"""A fleet over folders of small pictures: models and pools of `small_model`, whose runs and truths are known."""

from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import save_file
from small_model import Net, network, trained
from small_pictures import picture

from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run

SIZES = {"shop": 60, "field": 45}
"""Pictures of each pool; picture i is of class i % 4, which the trained model knows."""

SPEC: dict[str, Any] = {
    "transform": "small_pictures:to_input",
    "extract": {"batch_size": 15, "shard_size": 15, "actors": 1},
    "sample": {"method": "srs", "budget": 30},
}
"""What the specs of all audits have."""


def write_fleet(home: Path, **changes: Any) -> Path:
    """Write pools that are not there, weights, and the file of two models on them; keywords replace its keys."""
    for name, size in SIZES.items():
        if not (home / name).exists():
            open_store(str(home / name)).write_many((f"{i:03d}.png", picture(i)) for i in range(size))
    for name, net in (("random", network()), ("trained", trained()), ("biased", biased())):
        save_file(net.state_dict(), home / f"{name}.safetensors")
    content: dict[str, Any] = {
        "name": "weekly",
        "output": str(home / "audits"),
        "spec": SPEC,
        "models": {name: model(home, name) for name in ("random", "trained")},
        "pools": {name: {"uri": str(home / name), "format": "images"} for name in SIZES},
    }
    file = home / "fleet.yaml"
    kept = {key: value for key, value in (content | changes).items() if value is not None}
    file.write_text(yaml.safe_dump(kept, sort_keys=False))
    return file


def biased() -> Net:
    """Predicts class 0 more often than the random one."""
    net = network()
    net.last.bias.data[0] += 1
    return net


def model(home: Path, name: str, factory: str = "network") -> dict[str, Any]:
    return {"factory": f"small_model:{factory}", "weights": str(home / f"{name}.safetensors")}


def label(run: Run, ids: Iterable[str] | None = None, wrong: float = 0.0) -> None:
    """Answer the examples, or all of the first round, as it is; for a share of the pool with another class."""
    asked = list(dict.fromkeys(run.read_selection(1).ids if ids is None else ids))
    rows = "".join(f"{id},{(int(id[:3]) + (int(id[:3]) * 7 % 100 < 100 * wrong)) % 4}\n" for id in asked)
    import_labels(run, "labels.csv", f"id,label\n{rows}".encode())


class Weeks:
    """A clock for runs that are made week after week, in a test of a second."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.week = week = [0]

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:
                return datetime(2026, 10, 5, 6, tzinfo=tz) + timedelta(weeks=week[0])

        patch.setattr(run_module, "datetime", Clock)

    def next(self) -> None:
        self.week[0] += 1
