"""Jobs on a cluster's job server: sent once, found again, followed.

A job is a folder of files and a command, which run on the cluster whether or not whoever sent them waits. Its id is its
name, so that sending twice is sending once: a job of that name that runs, or succeeded, is found. After one that failed
the next is sent as NAME-2, NAME-3, …, since Ray gives no id a second time.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from opacc_ray.cluster.session import check_address
from opacc_ray.errors import ClusterError, SpecError, shortened
from opacc_ray.lake.redaction import redacted, without_values

ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
"""Variables that name the cluster, in the order in which Ray reads them."""

_LOGGERS = ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk")
"""Loggers of Ray's client, which says how it goes about its work."""

LOOK = 0.5
"""Seconds between two looks at a job."""

RECONNECTS = 5
"""Times that a broken connection to a job's log is made again before the log is given up, and the job waited for."""

LAST_LINES, MOST_SHOWN = 3, 600
"""Lines, and characters, of a job's log that an error shows."""

log = logging.getLogger(__name__)

OnText = Callable[[str], None]
"""Called with what a job has printed since the last call."""


class Job(NamedTuple):
    """A job as its server knows it."""

    id: str
    status: str  # PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED
    exit_code: int | None  # of its command, once that has ended
    message: str  # what Ray says of it
    metadata: Mapping[str, str]

    @property
    def has_ended(self) -> bool:
        return JobStatus(self.status).is_terminal()

    @property
    def last_lines(self) -> str:
        """The end of what Ray says of it, which quotes the end of its log: there is the reason of a failure.

        Ray's own line on how the job began, which may come last of all, is left out.
        """
        found = (" ".join(line.split()) for line in self.message.splitlines())
        lines = [line for line in found if line and "Running entrypoint for job " not in line]
        whole = " / ".join(lines[-LAST_LINES:])
        return whole if len(whole) <= MOST_SHOWN else f"...{whole[3 - MOST_SHOWN :]}"

    @property
    def lacks_opacc(self) -> bool:
        """Whether its command could not begin, since the cluster's Python has no opacc_ray."""
        return re.search(r"No module named '?opacc_ray'?\s*$", self.message, re.MULTILINE) is not None


class JobServer:
    """The job server of the cluster at an address, or else of the one that RAY_ADDRESS names.

    Parameters
    ----------
    address : of its dashboard
    environment : variables that jobs and their workers are given; Ray keeps them with the job. Their values are in no
        text that this class hands on

    Raises
    ------
    SpecError
        Neither names a cluster: none is looked for, since it could be somebody else's.
    ClusterError
        It cannot be reached, or refuses the token.
    """

    def __init__(self, address: str | None = None, environment: Mapping[str, str] | None = None) -> None:
        named = address or next((found for name in ADDRESSES if (found := os.environ.get(name))), None)
        if named is None:
            raise SpecError(
                "no cluster is named; give --address http://HEAD:8265, the address of its dashboard, or set RAY_ADDRESS"
            )
        check_address(named)
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._environment = dict(environment or {})
        with self._said(f"no job server could be reached at {redacted(named)}"), _named_by_environment(address):
            self._client = JobSubmissionClient(address)

    def newest(self, name: str) -> Job | None:
        """The job that was last sent under a name."""
        with self._said("the job server did not list its jobs"):
            found = self._client.list_jobs()
        sent = {attempt: job for job in found if (attempt := _attempt(job, name))}
        return self._job(sent[max(sent)]) if sent else None

    def find(self, id: str) -> Job:
        """A job that was sent."""
        with self._said(f"the job server lost sight of {id}"):
            return self._job(self._client.get_job_info(id))

    def send(self, name: str, command: str, folder: Path, metadata: Mapping[str, str]) -> Job:
        """Start a job, after all that were sent under its name.

        Parameters
        ----------
        name : of the job
        command : for a shell, in the folder
        folder : its files, all of which are sent
        metadata : kept with the job, for all to read
        """
        before = self.newest(name)
        id = name if before is None else f"{name}-{1 + _number(before.id, name)}"
        shipped = {"working_dir": str(folder), "env_vars": self._environment}
        with self._said(f"the job server did not take {id}"):
            try:
                self._client.submit_job(
                    entrypoint=command, submission_id=id, runtime_env=shipped, metadata=dict(metadata)
                )
            except (RuntimeError, ValueError) as error:
                if "already exists" not in str(error):  # somebody sent the same at the same time
                    raise
            return self._job(self._client.get_job_info(id))

    def follow(self, id: str, on_text: OnText) -> Job:
        """Wait until a job has ended, and hand on what it prints meanwhile."""
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
            except (OSError, RuntimeError):  # a proxy or a node that went; the job goes on
                breaks += 1
                time.sleep(LOOK)
        else:
            log.warning("the job's log breaks off again and again; the job is waited for without it")
        while not (job := self.find(id)).has_ended:
            time.sleep(LOOK)
        return job

    @contextmanager
    def _said(self, what: str) -> Iterator[None]:
        """Turn what Ray's client raises into one sentence, without the values that were sent."""
        try:
            yield
        except AuthenticationError as error:
            raise ClusterError(
                f"{what}: it asks for its token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH "
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
def _named_by_environment(address: str | None) -> Iterator[None]:
    """Let an address that was given count: Ray prefers those of the environment."""
    before = {name: os.environ.pop(name) for name in ADDRESSES if address and name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def _number(id: str, name: str) -> int:
    return int(id.removeprefix(name).removeprefix("-") or 1)


def _attempt(job: JobDetails, name: str) -> int:
    """How many jobs were sent under a name up to this one; 0 if its name is another."""
    id = job.submission_id or ""
    return _number(id, name) if re.fullmatch(rf"{re.escape(name)}(-[1-9]\d{{0,5}})?", id) else 0
