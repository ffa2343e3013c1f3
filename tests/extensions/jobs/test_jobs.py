"""Audits of real digits as jobs of a real job server: submitted once, followed, with their exit codes."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from local_s3 import LocalS3
from ray_with_jobs import NEVER, RayWithJobs, run

from opacc_ray.extensions.demo import digits
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.decode import encode_png
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run

pytestmark = pytest.mark.slow

READERS = """
import os
import time
import numpy as np
from scanning import to_input

def wait_for(path):
    end = time.monotonic() + 900
    while path and not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.1)

WEIGHTS = np.random.default_rng(0).normal(size=(256, 10))

def scores(batch):
    if "SPOILED" in os.environ:
        print("spoiled by", os.environ["SPOILED"], flush=True)
        wait_for(os.environ.get("UNTIL"))
        raise RuntimeError(os.environ["SPOILED"] + " beside " + " ".join(sorted(os.listdir())))
    wait_for(os.environ.get("UNTIL"))
    hidden = batch.reshape(len(batch), -1)
    return hidden, hidden @ WEIGHTS
"""

SCANNING = """
import numpy as np

def to_input(image):
    return image[None].astype(np.float32) / 255
"""

AWS = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")

Opacc = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayWithJobs]:
    with RayWithJobs() as started:
        yield started


@pytest.fixture(scope="module")
def home(s3: LocalS3) -> str:
    """A bucket with 60 scans of digits, and for runs."""
    bucket = s3.create_bucket("digits")
    scans, _ = digits.load_scans()
    open_store(bucket).write_many((f"pool/scan-{i:05d}.png", encode_png(scan)) for i, scan in enumerate(scans[:60]))
    return bucket


@pytest.fixture
def folder(tmp_path: Path, home: str) -> Path:
    """A user's folder: a spec, two modules that it needs, and what no cluster is to see."""
    spec = {
        "name": "digits",
        "pool": {"uri": f"{home}/pool/", "format": "images"},
        "model": {"function": "readers:scores"},
        "transform": "readers:to_input",
        "extract": {"shard_size": 30, "actors": 1},
        "sample": {"method": "srs", "budget": 10},
        "output": home,
    }
    files = {"spec.yaml": json.dumps(spec), "readers.py": READERS, "scanning.py": SCANNING}
    for name, text in (files | {"diary.py": "", "diary.txt": "secret"}).items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def opacc(cluster: RayWithJobs, folder: Path) -> Opacc:
    """Runs `opacc` in the user's folder, as who may read the storage and knows the cluster's token."""
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}

    def call(
        *arguments: str, until: Mapping[str, Path] = NEVER, seconds: float = 900, **variables: str
    ) -> CompletedProcess[str]:
        own = [sys.executable, "-m", "opacc_ray", *arguments]
        return run(own, cluster.environment | aws | variables, folder, until, seconds)

    return call


@pytest.fixture
def submit(opacc: Opacc, cluster: RayWithJobs) -> Opacc:
    credentials = [f"--env={name}" for name in AWS if name in os.environ]

    def call(
        *arguments: str, until: Mapping[str, Path] = NEVER, seconds: float = 900, **variables: str
    ) -> CompletedProcess[str]:
        own = ["submit", "spec.yaml", "--json", "--address", cluster.address, *credentials, *arguments]
        return opacc(*own, until=until, seconds=seconds, **variables)

    return call


def first_of(done: CompletedProcess[str]) -> dict[str, Any]:
    """The answer of a command, which may be followed by its error."""
    return json.loads(done.stdout.splitlines()[0]) if done.stdout else {"error": done.stderr}


def test_a_job_is_sent_once_followed_and_known_by_how_it_ended(
    submit: Opacc, cluster: RayWithJobs, folder: Path, home: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    followed = tmp_path_factory.mktemp("jobs") / "followed"  # the job waits until the second command makes this file
    variables = {"SPOILED": "a spoiler", "UNTIL": str(followed)}
    detached = submit("--env=SPOILED", "--env=UNTIL", "--detach", **variables)
    assert (detached.returncode, first_of(detached)["ended"], first_of(detached)["found"]) == (0, None, False)
    spoiled = submit("--env=SPOILED", "--env=UNTIL", until={"spoiled by": followed}, **variables)
    answer = first_of(spoiled)
    assert (spoiled.returncode, answer["ended"], answer["exit_code"]) == (5, "failed", 5), spoiled.stderr
    assert (answer["found"], answer["id"]) == (True, first_of(detached)["id"])
    beside = re.search("'readers:scores'.* raised RuntimeError: [$]SPOILED beside (.*) at ", answer["error"])
    assert beside, answer["error"]
    assert set(beside[1].split()) - {"__pycache__"} == {"readers.py", "scanning.py", "spec.yaml"}

    sent = submit()
    answer = first_of(sent)
    assert (sent.returncode, answer["ended"], answer["exit_code"]) == (7, "waits for labels", 0), sent.stderr
    assert (answer["found"], answer["waits_for"]) == (False, "10 labels")
    assert answer["id"] == f"{first_of(spoiled)['id']}-2"  # one that failed is sent again
    assert answer["modules"] == ["readers.py", "scanning.py"]
    assert "extract: 2 of 2 shards" in sent.stderr

    audit = Run.open(answer["run"])
    rows = "".join(f"{name},0\n" for name in audit.read_chosen(1).ids)
    import_labels(audit, "labels.csv", f"id,label\n{rows}".encode())
    labelled = submit()  # of a job that ended before them
    found = first_of(labelled)
    assert (labelled.returncode, found["ended"]) == (0, "done"), labelled.stderr
    assert (found["found"], found["id"]) == (True, answer["id"])

    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    shown = "".join(done.stdout + done.stderr for done in (spoiled, sent, labelled))
    assert "spoiled by $SPOILED" in spoiled.stderr
    assert "a spoiler" not in shown
    kept = b"".join(open_store(home).read(entry.key) for entry in open_store(home).list("submissions/"))
    assert secret not in shown
    assert secret.encode() not in kept


def test_a_job_whose_sender_is_killed_at_any_moment_runs_once(
    submit: Opacc, cluster: RayWithJobs, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = json.loads((folder / "spec.yaml").read_text())
    (folder / "spec.yaml").write_text(json.dumps(spec | {"name": "killed"}))
    followed = tmp_path_factory.mktemp("jobs") / "followed"  # the job waits until the last command makes this file
    for tries in range(16):
        killed = submit("--env=UNTIL", seconds=1.5**tries, UNTIL=str(followed))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        if "found killed" in killed.stderr:  # what another one had sent before it was killed
            break
    sent = submit("--env=UNTIL", until={"": followed}, UNTIL=str(followed))
    answer = first_of(sent)
    assert (sent.returncode, answer["ended"], answer["exit_code"]) == (7, "waits for labels", 0), sent.stderr
    assert answer["found"]
    again = first_of(submit())
    assert (again["id"], again["run"], again["found"]) == (answer["id"], answer["run"], True)
    assert answer["id"] == answer["run"].rpartition("/")[2]  # without the number of a second one


def test_a_cluster_without_opacc_is_the_reason_of_a_job_that_cannot_start(submit: Opacc, folder: Path) -> None:
    shim = folder / "bin" / "python"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    shim.chmod(0o755)
    spec = json.loads((folder / "spec.yaml").read_text())
    (folder / "spec.yaml").write_text(json.dumps(spec | {"name": "unable"}))
    done = submit("--env=PATH", PATH=os.pathsep.join([str(shim.parent), os.environ["PATH"]]))
    error = first_of(done)["error"]
    assert done.returncode == 4
    assert "the Python of the cluster has no opacc_ray; install it" in error
    assert "or add --module opacc_ray, and submit again" in error


def test_a_token_of_another_cluster_is_one_sentence(submit: Opacc) -> None:
    done = submit(RAY_AUTH_TOKEN="0" * 64)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
    assert "it requires its token; set RAY_AUTH_MODE=token" in json.loads(done.stdout)["error"]
