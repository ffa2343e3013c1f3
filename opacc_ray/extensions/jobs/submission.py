"""Submit a run to the job server of a Ray cluster, and report its result.

The run is resolved here, so that a wrong spec is refused before submission. The job has the name of the run, so
submitting the same spec and data again is idempotent. The job gets the spec, with absolute paths and the digest of the
weights, and the user's modules. It writes its exit status to OUTPUT/submissions/NAME/, because the job server reports
the code 1 for every failure.
"""

import logging
import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from opacc_ray.audit.progress import LOG
from opacc_ray.audit.stages import Resolved, resolve
from opacc_ray.audit.status import ended_by, status
from opacc_ray.documents import Document, format_field
from opacc_ray.errors import ClusterError, DataError, LabelsAwaited, OpaccError, SpecError, shown, without_values
from opacc_ray.lake.store_uris import join, open_store, read_uri, split
from opacc_ray.registry import require
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Ended, RunExit
from opacc_ray.spec import Spec, modules_of, users_files
from opacc_ray.spec.table_spec import as_yaml

if TYPE_CHECKING:
    from opacc_ray.extensions.jobs.job_server import Job, JobServer


class Submission(Document):
    """A submitted or existing job on a cluster, with its result."""

    format: Literal["opacc-submission/1"] = format_field("opacc-submission/1")
    id: str = Field(description="submission id of the job: the name of its run, and -2, -3, … after a failure")
    run: str = Field(description="URI of the run")
    found: bool = Field(description="whether the job existed already, so that nothing was submitted")
    status: str = Field(description="status from Ray: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED")
    modules: list[str] = Field(description="files of code that were submitted; empty if the job existed")
    ended: Ended | None = Field(description="result; null while the job runs")
    exit_code: int | None = Field(description="exit code of `opacc run` in the job; null while it runs")
    waits_for: str | None = Field(
        description="the next thing to do, in words; null while the job runs, or if it failed"
    )
    error: str | None = Field(description="error message of the job; null if it did not fail")


log = logging.getLogger(__name__)

EXIT_FILE = "exit_file"
"""Key in a job's metadata: the URI of its exit status."""


def submit(
    spec: Spec,
    on_text: Callable[[str], None],
    *,
    environment: Sequence[str] = (),
    modules: Sequence[str] = (),
    address: str | None = None,
    wait: bool = True,
) -> tuple[Submission, OpaccError | None]:
    """Submit a run as a job, unless the job exists, and wait for its end; ``on_text`` gets the output of the job.

    Parameters
    ----------
    environment : names of environment variables for the job
    modules : names of further modules, which no import statement names
    address : of the job server; None: as the environment says
    wait : whether to wait for the end of the job

    Returns the result, and the error of the job, or LabelsAwaited.

    Raises
    ------
    SpecError, StorageError, DataError
        Spec, modules or environment are not valid. Nothing is submitted in this case.
    ClusterError
        The job server is not reachable, or refuses the job.
    """
    require("a job", "ray")
    values = _values(environment)
    planned = resolve(spec)
    files = users_files([*modules_of(spec), *modules], os.getcwd())
    from opacc_ray.extensions.jobs.job_server import JobServer

    server = JobServer(address, values)
    name = planned.uri.rpartition("/")[2]
    job = server.newest(name)
    found = job is not None and _counts(job, planned.uri)
    if job is None or not found:
        job = _send(server, name, planned, files)
    log.info("%s %s", "found" if found else "submitted", job.id)
    if wait and not job.has_ended:
        job = server.follow(job.id, on_text)
    return _state(job, planned.uri, found, [] if found else sorted(files), values)


def _values(names: Sequence[str]) -> dict[str, str]:
    """Return the values of the environment variables for the job."""
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise SpecError(
                f"--env {shown(name.partition('=')[0])}: give only the name of a variable; its value comes from your "
                "environment"
            )
        if name not in os.environ:
            raise SpecError(f"--env {name}: the environment has no {name}; set it, or remove --env")
    return {name: os.environ[name] for name in names}


def _counts(job: "Job", planned: str) -> bool:
    """Whether a job need not be submitted again: it runs, or it succeeded and its run still exists.

    The run may have another name than the resolved one, because its digest has versions of libraries on the cluster.
    """
    if not job.has_ended:
        return True
    if job.status != "SUCCEEDED":
        return False
    with suppress(DataError):
        run = Run.open(_read_exit(job, planned).run or planned)
        return bool(run.rounds()) and run.read_index() is not None
    return False


def _send(server: "JobServer", name: str, planned: Resolved, files: Mapping[str, Path]) -> "Job":
    note = join(planned.spec.output, "submissions", name, f"{secrets.token_hex(4)}.json")
    with tempfile.TemporaryDirectory(prefix="opacc-") as folder:
        Path(folder, "spec.yaml").write_text(as_yaml(planned.spec), encoding="utf-8")
        for inside, file in files.items():
            Path(folder, inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, Path(folder, inside))
        form = f"{LOG}=json " if os.environ.get(LOG) == "json" else ""
        command = f"{form}python -m opacc_ray run spec.yaml --exit-file {shlex.quote(note)}"
        return server.send(name, command, Path(folder), {EXIT_FILE: note, "run": planned.uri})


def _state(
    job: "Job", run: str, found: bool, modules: list[str], environment: Mapping[str, str]
) -> tuple[Submission, OpaccError | None]:
    """Return the result of a job from its exit status, run and server; errors have no values of variables."""
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


def _read_exit(job: "Job", run: str) -> RunExit:
    """Read the exit status of a job, or derive it from its server if the job was killed."""
    note = job.metadata.get(EXIT_FILE)
    if note is not None:
        place, name = split(note)
        if open_store(place).exists(name):
            return RunExit.from_bytes(read_uri(note), note)
    if job.status == "SUCCEEDED":
        return RunExit(ended="done", exit_code=0, run=run, waits_for=None, error=None)
    ended: Ended = "interrupted" if job.status == "STOPPED" else "failed"
    return RunExit(ended=ended, exit_code=ClusterError.exit_code, run=None, waits_for=None, error=_explain_end(job))


def _explain_end(job: "Job") -> str:
    """Explain the end of a job without exit status."""
    if job.lacks_opacc:
        return (
            "the Python of the cluster has no opacc_ray; install it in the image or environment of its nodes, or "
            "add --module opacc_ray, and submit again"
        )
    code = "" if job.exit_code is None else f" with code {job.exit_code}"
    return (
        f"the job was ended{code} before it wrote its exit status ({job.status}); its log ends with: {job.last_lines}; "
        f"`ray job logs {job.id}` shows all of it"
    )
