"""The page of a fleet: one HTML file that needs no network and runs no script. Every text of others is escaped."""

from importlib.resources import files
from typing import Any

from opacc_ray.fleet import sentences
from opacc_ray.fleet.documents import AuditSummary, FleetSummary
from opacc_ray.fleet.figures import over_time, standings
from opacc_ray.report.rendering import style, template

TEMPLATES = files("opacc_ray.fleet") / "templates"


def page(summary: FleetSummary) -> str:
    """Return the HTML of a summary."""
    courses = [(item.name, over_time(item.history, f"course-{n}")) for n, item in enumerate(summary.audits)]
    return str(
        template("summary.html", TEMPLATES).render(
            summary=summary,
            rows=[_row(item) for item in summary.audits],
            raised=sentences.raised_texts(summary),
            failed=[
                (item.name, item.failure.error, sentences.failed_text(item.failure))
                for item in summary.audits
                if item.failure is not None
            ],
            notes=sentences.notes_of(summary),
            waiting=[
                (sentences.label_of(item), part, f"{part.missing:,}", sentences.duration(part.days))
                for item in summary.audits
                for part in item.waiting
            ],
            standings=standings(summary),
            courses=[(name, drawn) for name, drawn in courses if drawn is not None],
            least=sorted(
                {check.limit for item in summary.audits for check in item.alerts if check.kind == "min_accuracy"}
            ),
            own_limits=sentences.own_limits(summary),
            apart=sentences.apart_texts(summary),
            style=style(),
            percent=lambda share: f"{100 * share:g}%",
        )
    )


def _row(item: AuditSummary) -> dict[str, Any]:
    """An audit as a row of the table."""
    point = item.last
    value, between = sentences.stated_text(point) if point else ("–", "")
    change, range_of_change, _ = (
        sentences.change_text(item.change, point.measure) if point and item.change else ("–", "", "")
    )
    checks = [sentences.check_text(check) for check in item.alerts]
    alarms = ["failed"] * (item.failure is not None) + ["alert"] * ("alert" in checks)
    return {
        "name": sentences.label_of(item),
        "significant": bool(item.change and item.change.significant),
        "value": value,
        "between": between,
        "labels": f"{point.n:,}" if point else "–",
        "change": change.removesuffix(" points"),
        "range": range_of_change,
        "how": sentences.significance(item.change) if item.change else "",
        "alarm": ", ".join(alarms),
        "no_alarm": next((word for word in ("not decided", "no alert") if word in checks), ""),
    }
