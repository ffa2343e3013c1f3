"""A real Label Studio: our tasks go in by its API, it shows our images, people's annotations come back and count.

It is large and pins other versions, so it lives in an environment of its own; OPACC_LABEL_STUDIO names its command:

    python3 -m venv ~/label-studio && ~/label-studio/bin/pip install label-studio==1.23.2
    export OPACC_LABEL_STUDIO=~/label-studio/bin/label-studio
    .venv/bin/pytest -s tests/labels/formats/test_label_studio_live.py
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from labelled_pages import CLASSES, grey, run_to_label
from shown_pool import graded_run, tagged_run, tags_of, text_run, truth_of

from opacc_ray.labels.annotator_agreement import measure_agreement
from opacc_ray.labels.formats.label_studio import UNSURE
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.labels.labelling_tasks import Wanted, write_tasks

COMMAND = os.environ.get("OPACC_LABEL_STUDIO")
PASSWORD = "labels-for-all-1"
SECONDS = 600
"""To start: it migrates a database first."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COMMAND, reason="OPACC_LABEL_STUDIO names no Label Studio: see the head of this file"),
]


class Annotator:
    """Somebody logged in at the server."""

    def __init__(self, server: str, email: str, path: str) -> None:
        import requests

        self.server, self.session = server, requests.Session()
        self.session.get(server + path, timeout=30)
        form = {"email": email, "password": PASSWORD, "csrfmiddlewaretoken": self.session.cookies["csrftoken"]}
        self.session.post(server + path, data=form, headers={"Referer": server}, timeout=30).raise_for_status()

    def call(self, method: str, path: str, **content: Any) -> Any:
        headers = {"X-CSRFToken": self.session.cookies.get("csrftoken", ""), "Referer": self.server}
        answer = self.session.request(method, self.server + path, headers=headers, timeout=60, **content)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer

    def annotate(self, task: int, *choices: str, skipped: bool = False) -> None:
        result = [
            {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [name]}}
            for name in choices
        ]
        self.give(task, result, skipped=skipped)

    def give(self, task: int, result: list[dict[str, Any]], *, skipped: bool = False) -> None:
        self.call("POST", f"/api/tasks/{task}/annotations/", json={"result": result, "was_cancelled": skipped})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder from which it serves local files."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[str]:
    import requests

    tmp_path = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "LABEL_STUDIO_BASE_DATA_DIR": str(tmp_path / "data"),
        "LABEL_STUDIO_USERNAME": "ann@example.org",
        "LABEL_STUDIO_PASSWORD": PASSWORD,
        "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED": "true",
        "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT": str(files),
        "COLLECT_ANALYTICS": "0",
    }
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | settings
    command = [str(COMMAND), "start", "--no-browser", "--port", str(port), "--internal-host", "127.0.0.1"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            address, end = f"http://127.0.0.1:{port}", time.monotonic() + SECONDS
            while True:
                assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
                assert time.monotonic() < end, "it does not start"
                try:
                    if requests.get(f"{address}/health", timeout=5).ok:
                        break
                except requests.RequestException:
                    time.sleep(1)
            yield address
        finally:
            process.terminate()
            process.wait(timeout=60)


def test_tasks_go_in_and_annotations_come_back(server: str, files: Path, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path / "home"), 12, CLASSES)
    written = write_tasks(run, Wanted("label-studio", str(files / "tasks"), images="copies"))
    ann = Annotator(server, "ann@example.org", "/user/login/")
    bob = Annotator(server, "bob@example.org", ann.call("GET", "/api/invite").json()["invite_url"])

    config = (files / "tasks" / "config-1.xml").read_text()
    project = ann.call("POST", "/api/projects", json={"title": "digits", "label_config": config}).json()["id"]
    storage = {"project": project, "path": str(files / "tasks" / "images"), "use_blob_urls": True}
    ann.call("POST", "/api/storages/localfiles", json=storage)
    with open(written.files[0], "rb") as tasks:
        upload = {"tasks.json": ("tasks.json", tasks, "application/json")}
        added = ann.call("POST", f"/api/projects/{project}/import", files=upload).json()
    assert (added["task_count"], added["prediction_count"]) == (12, 0)

    found = ann.call("GET", f"/api/tasks?project={project}&fields=all&page_size=100").json()["tasks"]
    number = {task["data"]["opacc_id"]: task["id"] for task in found}
    ids = list(run.read_selection(1).ids)
    for task in found:
        shown = ann.call("GET", task["data"]["image"]).content
        assert shown == grey(int(task["data"]["opacc_id"][:3]))
    for place, id in enumerate(ids[:10]):
        ann.annotate(number[id], CLASSES[place % 3])
    bob.annotate(number[ids[0]], CLASSES[0])
    bob.annotate(number[ids[1]], CLASSES[2])
    ann.annotate(number[ids[10]], skipped=True)
    bob.annotate(number[ids[11]], UNSURE)

    for kind, unsure in (("JSON_MIN", 1), ("CSV", 1), ("JSON", 2)):
        export = ann.call("GET", f"/api/projects/{project}/export?exportType={kind}&download_all_tasks=true").content
        imported = import_labels(run, f"export.{kind}", export, conflict="latest")
        assert (imported.labelled, imported.unsure) == (10, unsure)
    [only] = read_rounds(run)
    assert only.truth == tuple(CLASSES[2] if place == 1 else CLASSES[place % 3] for place in range(10))
    [pair] = measure_agreement(run).pairs
    assert (pair.examples, pair.agree) == (2, 1)


ROWS: dict[str, tuple[Any, Any]] = {
    "text": (lambda home: text_run(home, ["subject", "text", "age"]), lambda id: [truth_of(id)]),
    "table": (lambda home: text_run(home, ["age", "score"]), lambda id: [truth_of(id)]),
    "answers": (lambda home: graded_run(home, None, 12), lambda id: ["right" if len(id) % 2 else "partly"]),
    "several classes": (lambda home: tagged_run(home, 12), lambda id: sorted(tags_of(id)) or ["none"]),
}
"""A run of rows, and the choices of each id."""


@pytest.mark.parametrize("kind", list(ROWS))
def test_rows_go_in_as_texts_and_tables_and_come_back(server: str, tmp_path: Path, kind: str) -> None:
    make, choices_of = ROWS[kind]
    run = make(tmp_path)
    written = write_tasks(run, Wanted("label-studio", str(tmp_path / "tasks")))
    ann = Annotator(server, "ann@example.org", "/user/login/")
    config = (tmp_path / "tasks" / "config-1.xml").read_text()
    project = ann.call("POST", "/api/projects", json={"title": kind, "label_config": config}).json()["id"]
    with open(written.files[0], "rb") as tasks:
        upload = {"tasks.json": ("tasks.json", tasks, "application/json")}
        assert ann.call("POST", f"/api/projects/{project}/import", files=upload).json()["task_count"] == 12
    found = ann.call("GET", f"/api/tasks?project={project}&fields=all&page_size=100").json()["tasks"]
    control = ElementTree.fromstring(config).find("Choices")
    assert control is not None
    names = {"from_name": control.get("name"), "to_name": control.get("toName"), "type": "choices"}
    for task in found:
        ann.give(task["id"], [names | {"value": {"choices": choices_of(task["data"]["opacc_id"])}}])
    for form in ("JSON_MIN", "CSV", "JSON"):
        export = ann.call("GET", f"/api/projects/{project}/export?exportType={form}&download_all_tasks=true").content
        assert import_labels(run, f"export.{form}", export, conflict="latest").labelled == 12
    [only] = read_rounds(run)
    assert [text.split("|") for text in only.truth] == [choices_of(id) for id in only.known.ids]
