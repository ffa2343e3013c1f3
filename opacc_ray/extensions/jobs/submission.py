"""Submit a run to the job server of a Ray cluster, follow it, and report its result.

The run is resolved here, so that a wrong spec is refused before submission. The job has the name of the run, so
submitting the same spec and data again is idempotent. The job gets the spec, with absolute paths and the digest of the
weights, and the user's modules. It writes its exit status to OUTPUT/submissions/NAME/, because the job server reports
the code 1 for every failure.

A job is a folder of files and a command, which run on the cluster without the submitter. Its id is its name, so a job
of that name that runs, or succeeded, is found. The job after a failed one is NAME-2, NAME-3, …, since Ray accepts no id
twice.
"""

import asyncio
import logging
import os
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from opacc_ray.audit.progress import LOG
from opacc_ray.audit.status import ended_by, status
from opacc_ray.audit.verbs import Resolved, resolve
from opacc_ray.cluster import session
from opacc_ray.documents import Document
from opacc_ray.errors import (
    ClusterError,
    DataError,
    LabelsAwaited,
    OpaccError,
    SpecError,
    redacted,
    shortened,
    shown,
    without_colours,
    without_values,
)
from opacc_ray.lake.store_uris import join, open_store, read_uri, split
from opacc_ray.registry import require
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Ended, RunExit
from opacc_ray.spec import Spec, modules_of, users_files
from opacc_ray.spec.table_spec import as_yaml

log = logging.getLogger(__name__)

ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # variables that name the cluster, as Ray reads them

_LOGGERS = ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk")
"""Loggers of Ray's client, which report its progress."""

POLL_EVERY = 0.5  # seconds between two requests for a job's status
RECONNECTS = 5  # reconnections to a job's log, after which only its status is polled
LAST_LINES, MOST_SHOWN = 3, 600  # lines and characters of a job's log in an error

OnText = Callable[[str], None]  # called with the output of a job since the last call

EXIT_FILE = "exit_file"
"""Key in a job's metadata: the URI of its exit status."""


class Submission(Document):
    """A submitted or existing job on a cluster, with its result."""

    format: Literal["opacc-submission/1"] = "opacc-submission/1"
    id: str  # submission id of the job: the name of its run, and -2, -3, … after a failure
    run: str  # URI of the run
    found: bool  # whether the job existed already, so that nothing was submitted
    status: str  # status from Ray: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED
    modules: list[str]  # files of code that were submitted; empty if the job existed
    ended: Ended | None  # result; null while the job runs
    exit_code: int | None  # exit code of `opacc run` in the job; null while it runs
    waits_for: str | None  # the next thing to do, in words; null while the job runs, or if it failed
    error: str | None  # error message of the job; null if it did not fail


# -- the job server -------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """State of a job on its server."""

    id: str
    status: str  # PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED
    exit_code: int | None  # of its command, once that has ended
    message: str  # of Ray
    metadata: Mapping[str, str]

    @property
    def has_ended(self) -> bool:
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED")

    @property
    def last_lines(self) -> str:
        """The end of Ray's message, which quotes the end of the log and so the reason of a failure.

        Ray's own line about the start of the job, which may be the last one, is left out.
        """
        found = (" ".join(line.split()) for line in without_colours(self.message).splitlines())
        whole = " / ".join([line for line in found if line and "Running entrypoint for job " not in line][-LAST_LINES:])
        return whole if len(whole) <= MOST_SHOWN else f"...{whole[3 - MOST_SHOWN :]}"

    @property
    def lacks_opacc(self) -> bool:
        """Whether its command could not start because the cluster's Python has no opacc_ray."""
        return re.search(r"No module named '?opacc_ray'?\s*$", self.message, re.MULTILINE) is not None


class JobServer:
    """The job server of the cluster whose dashboard has this address, or else of the one in RAY_ADDRESS.

    Ray stores ``environment``, variables for jobs and their workers, with the job. No text from this class holds their
    values.

    Raises SpecError if neither names a cluster: none is searched for, since it could belong to another user. Raises
    ClusterError if it cannot be reached, or refuses the token.
    """

    def __init__(self, address: str | None = None, environment: Mapping[str, str] | None = None) -> None:
        named = address or next((found for name in ADDRESSES if (found := os.environ.get(name))), None)
        if named is None:
            raise SpecError(
                "no cluster is named; give --address http://HEAD:8265, the address of its dashboard, or set RAY_ADDRESS"
            )
        session.check_address(named)
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._environment = dict(environment or {})
        with self._named_errors(f"no job server could be reached at {redacted(named)}"), _without_addresses(address):
            self._client = session.job_client(address)

    def newest(self, name: str) -> Job | None:
        """Return the last job that was submitted under a name."""
        with self._named_errors("the job server did not list its jobs"):
            found = self._client.list_jobs()
        attempts = {number: job for job in found if (number := _attempt(job.submission_id or "", name))}
        return self._job(attempts[max(attempts)]) if attempts else None

    def find(self, id: str) -> Job:
        """Return a job by its id."""
        with self._named_errors(f"the job server does not know {id}"):
            return self._job(self._client.get_job_info(id))

    def send(self, name: str, command: str, folder: Path, metadata: Mapping[str, str]) -> Job:
        """Submit a shell command, to run in a copy of the folder, as a job with the next free id of its name.

        The metadata are stored with the job, readable for everyone.
        """
        before = self.newest(name)
        id = name if before is None else f"{name}-{1 + _attempt(before.id, name)}"
        runtime_env = {"working_dir": str(folder), "env_vars": self._environment}
        with self._named_errors(f"the job server did not take {id}"):
            try:
                self._client.submit_job(
                    entrypoint=command, submission_id=id, runtime_env=runtime_env, metadata=dict(metadata)
                )
            except (RuntimeError, ValueError) as error:
                if "already exists" not in str(error):  # the same was submitted at the same time
                    raise
            return self._job(self._client.get_job_info(id))

    def follow(self, id: str, on_text: OnText) -> Job:
        """Wait until a job has ended, and pass its output on meanwhile."""
        printed = breaks = 0

        async def read_on() -> None:
            nonlocal printed
            seen = 0
            async for text in self._client.tail_job_logs(id):  # from its beginning, each time
                new = text[max(0, printed - seen) :]
                seen += len(text)
                printed = max(printed, seen)
                if new:
                    on_text(without_values(new, self._environment))

        while breaks <= RECONNECTS:
            try:
                asyncio.run(read_on())
                break  # the log ends with the job
            except (OSError, RuntimeError):  # a proxy or a node is gone; the job continues
                breaks += 1
                time.sleep(POLL_EVERY)
        else:
            log.warning("the connection to the job's log failed %d times; its output is no longer shown", breaks)
        while not (job := self.find(id)).has_ended:
            time.sleep(POLL_EVERY)
        return job

    @contextmanager
    def _named_errors(self, what: str) -> Iterator[None]:
        """Convert errors of Ray's client to one sentence, without the values of the environment."""
        try:
            yield
        except session.unauthenticated() as error:
            raise ClusterError(
                f"{what}: it requires its token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH "
                f"({self._plain(error)[:100]})"
            ) from None
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise ClusterError(f"{what}: {self._plain(error)}") from None

    def _plain(self, error: Exception) -> str:
        return redacted(shortened(without_values(str(error), self._environment)))

    def _job(self, found: Any) -> Job:
        status = getattr(found.status, "value", found.status)
        message = without_values(found.message or "", self._environment)
        return Job(found.submission_id, status, found.driver_exit_code, message, found.metadata or {})


@contextmanager
def _without_addresses(address: str | None) -> Iterator[None]:
    """Remove the addresses from the environment, which Ray would prefer to a given one."""
    before = {name: os.environ.pop(name) for name in ADDRESSES if address and name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def _attempt(id: str, name: str) -> int:
    """Return the number of a job among those of a name, from 1; 0 if it has another name."""
    found = re.fullmatch(rf"{re.escape(name)}(?:-([1-9]\d{{0,5}}))?", id)
    return int(found[1] or 1) if found else 0


# -- submission -----------------------------------------------------------------------------------------------


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


def _counts(job: Job, planned: str) -> bool:
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


def _send(server: JobServer, name: str, planned: Resolved, files: Mapping[str, Path]) -> Job:
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
    job: Job, run: str, found: bool, modules: list[str], environment: Mapping[str, str]
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


def _read_exit(job: Job, run: str) -> RunExit:
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


def _explain_end(job: Job) -> str:
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
