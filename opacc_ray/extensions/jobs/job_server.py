"""Jobs on a cluster's job server: submit, find, follow.

A job is a folder of files and a command, which run on the cluster without the submitter. Its id is its name, so
submission is idempotent: a job of that name that runs, or succeeded, is found. The job after a failed one is NAME-2,
NAME-3, …, since Ray accepts no id twice.
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

from opacc_ray.cluster.job_client import AuthenticationError, JobStatus, JobSubmissionClient
from opacc_ray.cluster.session import check_address
from opacc_ray.errors import ClusterError, SpecError, redacted, shortened, without_colours, without_values

ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # variables that name the cluster, as Ray reads them

_LOGGERS = ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk")
"""Loggers of Ray's client, which report its progress."""

POLL_EVERY = 0.5  # seconds between two requests for a job's status
RECONNECTS = 5  # reconnections to a job's log, after which only its status is polled
LAST_LINES, MOST_SHOWN = 3, 600  # lines and characters of a job's log in an error

log = logging.getLogger(__name__)

OnText = Callable[[str], None]  # called with the output of a job since the last call


class Job(NamedTuple):
    """State of a job on its server."""

    id: str
    status: str  # PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED
    exit_code: int | None  # of its command, once that has ended
    message: str  # of Ray
    metadata: Mapping[str, str]

    @property
    def has_ended(self) -> bool:
        return JobStatus(self.status).is_terminal()

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
        check_address(named)
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._environment = dict(environment or {})
        with self._named_errors(f"no job server could be reached at {redacted(named)}"), _without_addresses(address):
            self._client = JobSubmissionClient(address)

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
        except AuthenticationError as error:
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
