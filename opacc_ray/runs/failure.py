"""What made the last `opacc run` of a spec fail, kept as ``failure.json`` until a later one succeeds."""

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
    """Why the last `opacc run` of a spec failed."""

    remedy = "delete it"

    format: Literal["opacc-run-failure/1"] = Field(
        default="opacc-run-failure/1", description="name and version of this form"
    )
    at: str = Field(description="when: ISO 8601, UTC")
    error: str = Field(description="the sentence that it ended with")
    exit_code: int = Field(ge=1, description="that of `opacc run`")


def read_failure(run: Run) -> RunFailure | None:
    """Return why the last `opacc run` failed; None if it did not."""
    data = run.store.read_if_there(FAILURE)
    return None if data is None else RunFailure.from_bytes(data, run.store.uri_of(FAILURE))


def write_failure(run: Run, error: str, exit_code: int) -> None:
    """Keep why a run failed."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    run.store.write(FAILURE, RunFailure(at=at, error=redacted(error), exit_code=exit_code).to_bytes())


@contextmanager
def failure_kept(run: Run) -> Iterator[None]:
    """Keep the error that ends the block; once the block succeeds, remove that of an earlier one."""
    try:
        yield
    except Exception as error:
        known = isinstance(error, OpaccError)
        said = str(error) if known else f"unexpected {type(error).__name__}: {shortened(str(error))}"
        try:
            write_failure(run, said, error.exit_code if isinstance(error, OpaccError) else 1)
        except OpaccError as trouble:  # what ended the run matters more
            log.warning("why the run failed could not be written: %s", trouble)
        raise
    if run.store.exists(FAILURE):
        run.store.delete(FAILURE)
