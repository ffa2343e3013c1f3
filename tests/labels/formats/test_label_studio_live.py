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

import pytest
from labelled_pages import CLASSES, grey, run_to_label

from opacc_ray.labels.actions import import_labels
from opacc_ray.labels.agreement import agreement
from opacc_ray.labels.formats.label_studio import UNSURE
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.labels.tasks import Wanted, write_tasks

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
        self.call("POST", f"/api/tasks/{task}/annotations/", json={"result": result, "was_cancelled": skipped})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The folder from which it serves local files."""
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def server(tmp_path: Path, files: Path) -> Iterator[str]:
    import requests

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
    [pair] = agreement(run).pairs
    assert (pair.examples, pair.agree) == (2, 1)
