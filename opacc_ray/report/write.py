"""Make a report and write it: beside the estimate, or to another folder."""

from opacc_ray.labels.outcomes import Score
from opacc_ray.lake.store import write_files
from opacc_ray.report.documents import RunReport, WrittenReport
from opacc_ray.report.gather import gather
from opacc_ray.report.markdown import summary
from opacc_ray.report.page import page
from opacc_ray.runs.run import Run

PAGE, DOCUMENT, SUMMARY = "report.html", "report.json", "report.md"


def make_report(
    run: Run,
    out: str | None = None,
    *,
    level: float = 0.95,
    conflict: str | None = None,
    score: Score | None = None,
) -> tuple[WrittenReport, RunReport]:
    """Write the page, the document and the summary of a run.

    Parameters
    ----------
    out : URI of a folder; None: the prefix of the run, or of its track
    level, conflict, score : as :func:`opacc_ray.report.gather.gather`

    Returns
    -------
    (WrittenReport, RunReport)
        What was written where, and what it says.
    """
    report, pictures = gather(run, level=level, conflict=conflict, score=score)
    files = {
        PAGE: page(report, pictures).encode(),
        DOCUMENT: report.to_bytes(),
        SUMMARY: summary(report).encode(),
    }
    uris = write_files(run.results(out), files)
    return WrittenReport(run=run.uri, answer=report.answer, state=report.state, files=uris), report
