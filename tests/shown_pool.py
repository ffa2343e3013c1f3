"""Pools of texts and rows to label, whose truth is known; stored features, so that no model runs."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from tables import parquet

from opacc_ray.audit import verbs
from opacc_ray.labels.desk import Desk
from opacc_ray.labels.web_app import Access, WebApp
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

CLASSES = ["ham", "spam"]
N = 60
EVIL = "=cmd|'/c calc'!A1 <img src=x onerror=alert(1)>"


def truth_of(id: str) -> str:
    return CLASSES[int(id.removeprefix("mail-")) % 3 == 0]


def table() -> pa.Table:
    """Mails: a subject, a text, and numbers; the model calls every fifth one by the wrong class."""
    rng = np.random.default_rng(7)
    ids = [f"mail-{i}" for i in range(N)]
    wrong = np.arange(N) % 5 == 0
    truth = [truth_of(id) for id in ids]
    return pa.table(
        {
            "id": ids,
            "subject": [EVIL if i % 2 else f"Subject {i}" for i in range(N)],
            "text": [f"{truth_of(id)}: first line\n" + "word " * (20 + i) for i, id in enumerate(ids)],
            "age": rng.integers(20, 70, N),
            "score": rng.random(N).astype(np.float32),
            "pred": [CLASSES[(CLASSES.index(own) + no) % 2] for own, no in zip(truth, wrong, strict=True)],
            "conf": np.where(wrong, 0.6, 0.95),
            "secret": ["never shown"] * N,
        }
    )


def spec_of(home: Path, show: list[str], **sections: Any) -> Any:
    columns = {"id": "id", "prediction": "pred", "confidence": "conf"}
    content = {
        "name": "mails",
        "pool": {"uri": str(home / "pool"), "format": "features", "columns": columns},
        "model": {"classes": CLASSES},
        "sample": {"method": "srs", "budget": 12},
        "manifest": {"show": show},
        "output": str(home / "out"),
    }
    return parse_spec(content | sections, "mails.yaml")


def text_run(home: Path, show: list[str], **sections: Any) -> Run:
    """A run over the mails, with one round of 12."""
    store = open_store(str(home / "pool"))
    if not store.list():
        store.write("mails.parquet", parquet(table()))
    return verbs.first_round(spec_of(home, show, **sections))


def served_app(run: Run) -> WebApp:
    """The page of a run for ann, with the token tttttttttttttttttttt."""
    desk = Desk(run)
    desk.prepare()
    return WebApp(lambda: [desk], Access("t" * 20, annotator="ann"))


def png(value: int) -> bytes:
    sink = io.BytesIO()
    Image.new("L", (30, 20), value).save(sink, "PNG")
    return sink.getvalue()


def answers(num: int = 400) -> tuple[pa.Table, np.ndarray]:
    """Questions with the answers of two models, and a confidence; and which answers of the first are right."""
    rng = np.random.default_rng(3)
    confidence = rng.random(num)
    right = rng.random(num) < confidence
    replies = [f"It is {i if ok else i + 1}." for i, ok in enumerate(right)]
    table = pa.table(
        {
            "id": [f"q{i}" for i in range(num)],
            "question": [f"What is {i} + 0?" for i in range(num)],
            "reply": replies,
            "rival": [f"It is {i}." for i in range(num)],
            "sure": confidence,
            "gold": ["secret gold"] * num,
        }
    )
    return table, right


def graded_run(home: Path, grades: Any, budget: int = 40, **sections: Any) -> Run:
    """A run over the answers, to be graded."""
    open_store(str(home / "pool")).write("answers.parquet", parquet(answers()[0]))
    columns: dict[str, Any] = {"id": "id", "answer": "reply", "confidence": "sure"}
    if grades == "preference":
        columns["answer"] = ["reply", "rival"]
    content = {
        "name": "answers",
        "pool": {"uri": str(home / "pool"), "format": "features", "columns": columns},
        "model": {"task": "grade", "grades": grades},
        "sample": {"budget": budget},
        "manifest": {"show": ["question"]},
        "output": str(home / "out"),
    }
    return verbs.first_round(parse_spec(content | sections, "answers.yaml"))


TAGS = ["cat", "dog", "owl"]


def tags_of(id: str) -> set[str]:
    """The classes of an example: those whose bit its number has."""
    return {name for place, name in enumerate(TAGS) if int(id.removeprefix("m")) >> place & 1}


def tagged_run(home: Path, budget: int, **sections: Any) -> Run:
    """A run over 200 examples with any number of classes; the model misses the owl of every fourth example."""
    ids = [f"m{i}" for i in range(200)]
    said = [tags_of(id) - ({"owl"} if i % 4 == 0 else set()) for i, id in enumerate(ids)]
    columns = {"id": ids, "text": [f"number {id}" for id in ids], "pred": [sorted(own) for own in said]}
    table = pa.table(columns | {"conf": [0.6 if i % 4 == 0 else 0.95 for i in range(200)]})
    open_store(str(home / "pool")).write("tags.parquet", parquet(table))
    content = {
        "name": "tags",
        "pool": {
            "uri": str(home / "pool"),
            "format": "features",
            "columns": {"id": "id", "prediction": "pred", "confidence": "conf"},
        },
        "model": {"task": "multilabel", "classes": TAGS},
        "sample": {"budget": budget},
        "manifest": {"show": ["text"]},
        "output": str(home / "out"),
    }
    return verbs.first_round(parse_spec(content | sections, "tags.yaml"))
