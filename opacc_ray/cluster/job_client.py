"""Ray's client of a job server, for those who submit jobs: only this package imports Ray."""

from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

__all__ = ["AuthenticationError", "JobStatus", "JobSubmissionClient"]
