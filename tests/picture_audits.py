"""Audits of the tests' pictures: how one is run, what it leaves, and what people who label it return."""

from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from small_model import trained
from small_pictures import picture

from opacc_ray.audit import verbs
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


def write_scans(home: Path, pool: int, train: range = range(0)) -> None:
    """Write what `small_spec` reads: pictures, those of the training data, and the weights of a trained model."""
    store = open_store(str(home))
    store.write_many((f"pool/{i:03d}.png", picture(i)) for i in range(pool))
    store.write_many((f"train/{i:03d}.png", picture(i)) for i in train)
    save_file(trained().state_dict(), home / "model.safetensors")


def run_spec(content: dict[str, Any]) -> Run:
    return verbs.first_round(parse_spec(content, "spec"))


def copied(run: Run, home: str) -> Run:
    """The same run in another bucket, or in a folder, to work on."""
    store = open_store(run.spec.output)
    keys = [entry.key for entry in store.list()]
    open_store(home).write_many(zip(keys, store.read_many(keys), strict=True))
    return Run.open(f"{home}/{run.name}")


def features_of(run: Run) -> dict[str, bytes]:
    """What was extracted into a run's set, without what says what model it is of and what its processes had loaded."""
    beside = ("derived/", "set.json", "loaded-")
    keys = [entry.key for entry in run.features.list() if not entry.key.startswith(beside)]
    return {key: run.features.read(key) for key in keys}


def labels_for(run: Run, wrong: int = 4) -> bytes:
    """What a careful annotator returns: the model is wrong on the first ``wrong`` chosen examples."""
    chosen = run.read_chosen(1)
    rows = [
        f"{name},{(prediction + (i < wrong)) % 4}"
        for i, (name, prediction) in enumerate(zip(chosen.ids, chosen.predictions, strict=True))
    ]
    return "\n".join(["id,label", *rows]).encode()


def answer(run: Run, number: int) -> bytes:
    """Labels of a round: the model is wrong on every picture whose number ends in 7."""
    chosen = run.read_chosen(number)
    rows = [
        f"{name},{(prediction + name.endswith('7.png')) % 4}"
        for name, prediction in dict(zip(chosen.ids, chosen.predictions, strict=True)).items()
    ]
    return "\n".join(["id,label", *rows]).encode()
