"""Sending a run to a cluster's job server, and what became of it.

The run is planned here, so that a wrong spec is refused before anything is sent, and its name is known: it is the name
of the job, so that sending the same spec and data twice is sending them once. What is sent is the spec, with absolute
paths and the digest of the weights, and the user's modules. How the job ended lies in OUTPUT/submissions/NAME/, where
the job writes it; the job server alone would say 1 for every failure.
"""

import logging
import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import yaml
from pydantic import Field

from opacc_ray.audit.progress import log_is_json
from opacc_ray.audit.resolution import Resolved, resolve
from opacc_ray.audit.status import status
from opacc_ray.documents import Document
from opacc_ray.errors import ClusterError, DataError, LabelsAwaited, OpaccError, SpecError, shown
from opacc_ray.lake.redaction import without_values
from opacc_ray.lake.storage import join, open_store, read_uri, split
from opacc_ray.runs.run import Run
from opacc_ray.spec import Spec, modules_of, users_files

if TYPE_CHECKING:
    from opacc_ray.cluster.jobs import Job, JobServer

Ended = Literal["done", "waits for labels", "wrong spec", "failed", "interrupted"]
"""How a job ended."""


class RunExit(Document):
    """How `opacc run` ended, kept in storage: a job server knows less of it."""

    format: Literal["opacc-run-exit/1"] = Field(default="opacc-run-exit/1", description="name and version of this form")
    ended: Ended = Field(description="done: nothing is missing; wrong spec: exit code 2; interrupted: run it again")
    exit_code: int = Field(description="that of `opacc run`; 0 also where labels are waited for")
    run: str | None = Field(description="URI of the run; null if there is none yet")
    waits_for: str | None = Field(description="what the run waits for, in words; null if it failed")
    error: str | None = Field(description="the sentence that it ended with; null if it did not fail")


class Submission(Document):
    """A job that was sent to a cluster, or found there, and how it ended."""

    format: Literal["opacc-submission/1"] = Field(
        default="opacc-submission/1", description="name and version of this form"
    )
    id: str = Field(description="submission id of the job: the name of its run, and -2, -3, … after a failure")
    run: str = Field(description="URI of the run")
    found: bool = Field(description="whether the job was there already, and nothing was sent")
    status: str = Field(description="what Ray says of it: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED")
    modules: list[str] = Field(description="files of code that were sent; none if the job was found")
    ended: Ended | None = Field(description="how it ended; null while it runs")
    exit_code: int | None = Field(description="that of `opacc run` in the job; null while it runs")
    waits_for: str | None = Field(
        description="what the run waits for now, in words; null while it runs, or if it failed"
    )
    error: str | None = Field(description="the sentence that the job ended with, if it failed")


log = logging.getLogger(__name__)

EXIT_FILE = "exit_file"
"""Key of a job's metadata: where it writes how it ended."""

SPEC = "spec.yaml"


class Order(NamedTuple):
    """What is asked of a submission."""

    environment: Sequence[str] = ()  # names of variables that the job is given
    modules: Sequence[str] = ()  # names of modules to send, which no import statement names
    address: str | None = None  # of the job server
    wait: bool = True  # until the job has ended


def submit(spec: Spec, order: Order, on_text: Callable[[str], None]) -> tuple[Submission, OpaccError | None]:
    """Send a run as a job, unless it is there already, and wait for its end.

    Parameters
    ----------
    spec : of the run
    order : how it is sent
    on_text : called with what the job prints

    Returns
    -------
    (Submission, OpaccError or None)
        What became of it; and the error that it ended with, or LabelsAwaited.

    Raises
    ------
    SpecError, StorageError, DataError
        The spec, the modules or the environment cannot be used. Nothing is sent then.
    ClusterError
        The job server cannot be reached, or does not take the job.
    """
    environment = _values(order.environment)
    planned = resolve(spec)
    files = users_files([*modules_of(spec), *order.modules], os.getcwd())
    from opacc_ray.cluster.jobs import JobServer

    server = JobServer(order.address, environment)
    name = planned.uri.rpartition("/")[2]
    job = server.newest(name)
    found = job is not None and _counts(job, planned.uri)
    if job is None or not found:
        job = _send(server, name, planned, files)
    log.info("%s %s", "found" if found else "sent", job.id)
    if order.wait and not job.has_ended:
        job = server.follow(job.id, on_text)
    return _state(job, planned.uri, found, [] if found else sorted(files), environment)


def _values(names: Sequence[str]) -> dict[str, str]:
    """Values of the variables, which the job is given."""
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise SpecError(
                f"--env {shown(name.partition('=')[0])}: give the name of a variable alone; its value is that of your "
                "environment"
            )
        if name not in os.environ:
            raise SpecError(f"--env {name}: the environment has no {name}; set it, or leave it out")
    return {name: os.environ[name] for name in names}


def _counts(job: "Job", planned: str) -> bool:
    """Whether a job need not be sent again: it runs, or succeeded and its run is still there.

    The run may have another name than was planned here, as the versions of libraries on the cluster are in its digest.
    """
    if not job.has_ended:
        return True
    if job.status != "SUCCEEDED":
        return False
    try:
        run = _read_exit(job, planned).run or planned
        return bool(Run.open(run).rounds()) and Run.open(run).read_index() is not None
    except DataError:
        return False


def _send(server: "JobServer", name: str, planned: Resolved, files: Mapping[str, Path]) -> "Job":
    note = join(planned.spec.output, "submissions", name, f"{secrets.token_hex(4)}.json")
    with tempfile.TemporaryDirectory(prefix="opacc-") as folder:
        Path(folder, SPEC).write_text(as_yaml(planned.spec), encoding="utf-8")
        for inside, file in files.items():
            Path(folder, inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, Path(folder, inside))
        command = f"python -m opacc_ray run {SPEC} --exit-file {shlex.quote(note)}"
        command += " --log json" if log_is_json() else ""
        return server.send(name, command, Path(folder), {EXIT_FILE: note, "run": planned.uri})


def as_yaml(spec: Spec) -> str:
    """A spec as a file that reads as the same spec; keys that were left out keep being left out."""
    return yaml.safe_dump(spec.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True)


def _state(
    job: "Job", run: str, found: bool, modules: list[str], environment: Mapping[str, str]
) -> tuple[Submission, OpaccError | None]:
    """What became of a job, by what it wrote, by its run and by its server; its error without values of variables."""
    ended: Ended | None = None
    failure: OpaccError | None = None
    code = waits_for = error = None
    if job.has_ended:
        left = _read_exit(job, run)
        run, ended, code = left.run or run, left.ended, left.exit_code
        error = None if left.error is None else without_values(left.error, environment)
        if code == 0:
            waits_for = status(Run.open(run)).waits_for
            ended = ended_by(waits_for)
            failure = LabelsAwaited(f"{run} waits for {waits_for}") if ended != "done" else None
        else:
            failure = OpaccError(f"{job.id}: {error}")
            failure.exit_code = code
    return (
        Submission(
            id=job.id,
            run=run,
            found=found,
            status=job.status,
            modules=modules,
            ended=ended,
            exit_code=code,
            waits_for=waits_for,
            error=error,
        ),
        failure,
    )


def ended_by(waits_for: str) -> Ended:
    """How a run that has not failed ended, by what it waits for."""
    return "done" if waits_for.startswith("nothing") else "waits for labels"


def _read_exit(job: "Job", run: str) -> RunExit:
    """What a job wrote when it ended, or what its server says if it was ended before it could."""
    note = job.metadata.get(EXIT_FILE)
    if note is not None:
        place, name = split(note)
        if open_store(place).exists(name):
            return RunExit.from_bytes(read_uri(note), note)
    if job.status == "SUCCEEDED":
        return RunExit(ended="done", exit_code=0, run=run, waits_for=None, error=None)
    return RunExit(
        ended="interrupted" if job.status == "STOPPED" else "failed",
        exit_code=ClusterError.exit_code,
        run=None,
        waits_for=None,
        error=_unsaid(job),
    )


def _unsaid(job: "Job") -> str:
    """Why a job was ended that wrote nothing itself."""
    if job.lacks_opacc:
        return (
            "the Python of the cluster has no opacc_ray; install it in the image or environment of its nodes, or send "
            "it along with --module opacc_ray, and submit again"
        )
    code = "" if job.exit_code is None else f" with code {job.exit_code}"
    return (
        f"the job was ended{code} before it could say why ({job.status}); its log ends with: {job.last_lines}; "
        f"`ray job logs {job.id}` shows all of it"
    )
