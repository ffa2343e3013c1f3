"""Where the numbers of a report come from: names, digests and versions."""

from opacc_ray.report.documents import RunReport

UNKNOWN = "not known"


def origin_of(report: RunReport) -> list[tuple[str, str]]:
    """Return (what, its name or digest), for people who repeat the audit."""
    header = report.header
    model = header.spec.model
    rows = [
        ("Run", report.run),
        *([("Track", report.track)] if report.track else []),
        ("Digest of the run", header.digest or UNKNOWN),
        ("Pool", f"{header.spec.pool.uri} ({header.spec.pool.format})"),
        *([("Filter", header.spec.pool.filter)] if header.spec.pool.filter else []),
        *([("Split", header.spec.pool.split)] if header.spec.pool.split else []),
        ("Digest of its listing", header.pool.digest or UNKNOWN),
        ("Model", model.factory or model.program or model.function or "none: the pool brings its features"),
        *([("Weights", model.weights or "made by the factory")] if model.factory else []),
        ("Digest of the weights", header.model.sha256 or UNKNOWN),
        ("Labels", report.estimate.labels_digest if report.estimate else "none yet"),
        ("Commit", header.git_commit or UNKNOWN),
        ("Made", header.created or UNKNOWN),
        ("Versions", ", ".join(f"{name} {number}" for name, number in header.versions.items()) or UNKNOWN),
    ]
    return rows
