"""Store the error of the last `opacc run` in ``failure.json`` until a later one succeeds."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from opacc_ray.documents import Document
from opacc_ray.errors import OpaccError, shortened
from opacc_ray.lake.redaction import redacted
from opacc_ray.runs.run import Run

log = logging.getLogger(__name__)

FAILURE = "failure.json"


class RunFailure(Document):
    """Error of the last `opacc run`."""

    remedy = "delete it"

    format: Literal["opacc-run-failure/1"] = Field(
        default="opacc-run-failure/1", description="name and version of this form"
    )
    at: str = Field(description="time: ISO 8601, UTC")
    error: str = Field(description="error message")
    exit_code: int = Field(ge=1, description="exit code of `opacc run`")


def read_failure(run: Run) -> RunFailure | None:
    """Read the error of the last `opacc run`; None if it succeeded."""
    data = run.store.read_if_there(FAILURE)
    return None if data is None else RunFailure.from_bytes(data, run.store.uri_of(FAILURE))


def write_failure(run: Run, error: str, exit_code: int) -> None:
    """Write the error of a run."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    run.store.write(FAILURE, RunFailure(at=at, error=redacted(error), exit_code=exit_code).to_bytes())


@contextmanager
def failure_kept(run: Run) -> Iterator[None]:
    """Store an error of the block; once the block succeeds, remove an earlier error."""
    try:
        yield
    except Exception as error:
        known = isinstance(error, OpaccError)
        said = str(error) if known else f"unexpected {type(error).__name__}: {shortened(str(error))}"
        try:
            write_failure(run, said, error.exit_code if isinstance(error, OpaccError) else 1)
        except OpaccError as trouble:  # the first error matters more
            log.warning("the error of the run could not be stored: %s", trouble)
        raise
    if run.store.exists(FAILURE):
        run.store.delete(FAILURE)
