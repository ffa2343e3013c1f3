"""The console of a fleet: a cell for each audit, with what is most urgent, on axes that all share.

In a real browser its page fits, requests nothing, and has no axe violation.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from real_browser import SIZES, assert_accessible, assert_fits, needs_browser, opened

from opacc_ray.extensions.fleet.accuracy_history import HistoryPoint
from opacc_ray.extensions.fleet.alerts import AlertCheck, rule_of
from opacc_ray.extensions.fleet.fleet_spec import AlertLimits, AlertSpec
from opacc_ray.extensions.fleet.fleet_summary import (
    AuditGoal,
    AuditSummary,
    Change,
    FleetSummary,
    WaitingRun,
    problems_of,
)
from opacc_ray.extensions.fleet.queue import AuditFailure
from opacc_ray.extensions.fleet.summary_page import console, limit_of, page, states_of
from opacc_ray.runs.run_documents import StatedEstimate
from opacc_ray.runs.series import Population


def point(value: float, half_width: float = 0.02, day: int = 1) -> HistoryPoint:
    return HistoryPoint(
        **{"run": f"s3://a/r-{day}", "made": f"2026-11-{day:02d}T00:00:00+00:00", "level": 0.95, "n": 100},
        **{"value": value, "low": value - half_width, "high": value + half_width, "pool_size": 500, "pool": "x"},
        **{"measure": "accuracy", "methods": ["neyman"], "model": None, "design_based": True},
        population=Population.named(name="photos", pool="x", task="classification", classes=None, format="npy"),
    )


def check(value: float | None, limit: float = 0.9, *, raised: bool = False) -> AlertCheck:
    bounds = {"value": value, "low": value, "high": value}
    return AlertCheck(kind="min", limit=limit, level=0.99, raised=raised, reason=None, **bounds)


def watched(drop: float | None) -> AlertCheck:
    return check(drop, 0.0).model_copy(update={"kind": "watch"})


def accuracy(least: float) -> AuditGoal:
    return AuditGoal(metric="accuracy", least=least, number=None)


GOAL = accuracy(0.9)


def recall(value: float) -> AuditGoal:
    bounds = {"value": value, "standard_error": 0.01, "low": value - 0.02, "high": value + 0.02, "level": 0.95}
    number = StatedEstimate(**bounds, method="two totals", n=50, design_based=True, reason=None)
    return AuditGoal(metric="recall@defect", least=0.9, number=number)


def audit(name: str = "a", **fields: Any) -> AuditSummary:
    return AuditSummary(**{"name": name, "model": None, "pool": None} | fields)


def fleet(audits: list[AuditSummary]) -> FleetSummary:
    made = {"made": "2026-11-25T00:00:00+00:00", "answer": "All is said.", "made_with": "0"}
    summary = FleetSummary(name="weekly", folder="/out/fleets/weekly", audits=audits, rule=None, **made)
    return summary.model_copy(update={"problems": problems_of(summary)})


FAILED = AuditFailure(error="no disk", exit_code=5, at="2026-11-24T23:00:00+00:00")
WAITING = WaitingRun(run="s3://a/r-9", round=2, missing=40, since="2026-11-20T00:00:00+00:00", days=5)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "none"),
        ({"waiting": [WAITING]}, "waiting"),
        ({"history": [point(0.95)]}, "stated"),
        ({"history": [point(0.95)], "goal": GOAL}, "met"),
        ({"history": [point(0.91)], "goal": GOAL}, "open"),
        ({"history": [point(0.85)], "goal": GOAL}, "missed"),
        ({"history": [point(0.95)], "goal": recall(0.6)}, "missed"),
        ({"history": [point(0.85)], "goal": recall(0.95)}, "met"),
        ({"history": [point(0.95)], "alerts": [check(0.95)]}, "met"),
        ({"history": [point(0.95)], "alerts": [check(None)]}, "open"),
        ({"history": [point(0.95)], "alerts": [watched(0.01)]}, "quiet"),
        ({"history": [point(0.95)], "alerts": [watched(None)]}, "open"),
        ({"history": [point(0.95)], "goal": GOAL, "alerts": [watched(0.01)]}, "met"),
        ({"history": [point(0.85)], "alerts": [check(0.85, raised=True)], "waiting": [WAITING]}, "alert"),
        ({"history": [point(0.85)], "alerts": [check(0.85, raised=True)], "failure": FAILED}, "failed"),
    ],
)
def test_the_state_of_an_audit_is_what_is_most_urgent(fields: dict[str, Any], state: str) -> None:
    assert states_of(audit(**fields))[0] == state


def test_a_cell_states_the_number_of_its_goal() -> None:
    [cell] = console(fleet([audit(history=[point(0.95)], goal=recall(0.6))]))["cells"]
    assert (cell["value"], cell["interval"]) == ("60.0 %", "58.0 to 62.0 recall of defect")


def test_the_limit_of_an_alert_comes_before_the_goal_of_the_spec() -> None:
    assert limit_of(audit(goal=accuracy(0.8), alerts=[check(None, 0.9)])) == 0.9
    assert limit_of(audit(goal=accuracy(0.8))) == 0.8
    assert limit_of(audit()) is None


def test_models_by_pools_are_a_matrix_and_other_fleets_a_list() -> None:
    named = [audit(f"{m}{p}", model=m, pool=p, history=[point(0.95)]) for m, p in (("x", "1"), ("x", "2"), ("y", "2"))]
    found = console(fleet(named))
    assert found["pools"] == ["1", "2"]
    assert [(model, [cell and cell["name"] for cell in cells]) for model, cells in found["models"]] == [
        ("x", ["x1", "x2"]),
        ("y", [None, "y2"]),
    ]
    assert console(fleet([*named, audit("own")]))["models"] == []
    assert [cell["name"] for cell in console(fleet([*named, audit("own")]))["cells"]] == ["x1", "x2", "y2", "own"]


def test_all_courses_share_both_axes_and_have_the_limit() -> None:
    first = audit("first", goal=accuracy(0.7), history=[point(0.95, day=1), point(0.95, day=11)])
    second = audit("second", history=[point(0.8, day=11), point(0.8, day=21)])
    one, other = (cell["course"] for cell in console(fleet([first, second]))["cells"])
    dots = [[tuple(map(float, own)) for own in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)]
            for drawn in (one, other)]  # fmt: skip
    assert [x for x, _ in dots[0]] == [5, 66]
    assert [x for x, _ in dots[1]] == [66, 127]
    assert dots[0][0][1] < dots[1][0][1]  # higher
    assert (one.count('class="edge"'), other.count('class="edge"')) == (1, 0)


def test_an_audit_that_failed_while_an_alert_is_raised_shows_and_counts_both() -> None:
    both = audit("both", history=[point(0.8)], alerts=[check(0.8, raised=True)], failure=FAILED)
    found = console(fleet([both, audit("other", history=[point(0.95)])]))
    assert found["cells"][0]["words"] == "failed, alert"
    assert [(state, num) for state, _, _, num in found["counts"]] == [("failed", 1), ("alert", 1), ("stated", 1)]
    drawn = page(fleet([both]))
    assert '<li class="cell failed alert">' in drawn
    assert "<td>FAILED, ALERT</td>" in drawn


@pytest.mark.slow
@needs_browser
def test_forty_audits_fit_on_one_screen(browser: Any, tmp_path: Path) -> None:
    audits = [
        audit(f"m{m}-p{p}", model=f"model-{m}", pool=f"camera-{p}", report="r.html", waiting=[WAITING],
              history=[point(0.9 + 0.001 * m, day=day) for day in (1, 8, 15)], alerts=[check(0.9)])
        for m in range(5) for p in range(8)
    ]  # fmt: skip
    (tmp_path / "summary.html").write_text(page(fleet(audits)))
    with opened(browser, (tmp_path / "summary.html").as_uri(), "desktop", "light") as (shown, _, _):
        boxes = shown.locator(".cell").evaluate_all("all => all.map(one => one.getBoundingClientRect().toJSON())")
        assert len(boxes) == 40
        assert max(box["bottom"] for box in boxes) <= 800
        assert max(box["right"] for box in boxes) <= 1280
    with opened(browser, (tmp_path / "summary.html").as_uri(), "phone", "light") as (shown, _, _):
        assert (
            shown.locator(".cell").evaluate_all("all => Math.max(...all.map(one => one.getBoundingClientRect().right))")
            < 390
        )
        assert shown.locator(".cell .pool").first.inner_text() == "camera-0"  # columns have no heads there


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fleet with an alert, a change, labels that are waited for, and a failure with a long name."""
    long = "a-model-with-a-very-long-name-and-no-place-to-break-it"
    rule = rule_of(AlertSpec(min={"accuracy": 0.9}, max_drop={"accuracy": 0.01}), [AlertLimits(min={"accuracy": 0.9})])
    bounds = {"value": -0.1, "standard_error": 0.02, "low": -0.14, "high": -0.06, "level": 0.95, "n": 100}
    stated = {"method": "two", "design_based": True, "reason": None}
    change = Change(before="s3://a/r-1", how="paired", significant=True, **bounds, **stated)
    failed = FAILED.model_copy(update={"error": f"model.weights: {'x' * 300} is no file of weights"})
    summary = fleet(
        [
            audit("trained-shop", model="trained", pool="shop", report="r.html", waiting=[WAITING], change=change,
                  history=[point(0.9 - 0.1 * k, day=8 * k + 1) for k in range(3)], alerts=[check(0.7, raised=True)]),
            audit(f"{long}-shop", model=long, pool="shop", failure=failed),
        ]
    )  # fmt: skip
    file = tmp_path_factory.mktemp("browser") / "summary.html"
    file.write_text(page(summary.model_copy(update={"rule": rule})))
    return file.as_uri()


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_asks_for_nothing_and_has_no_violation(browser: Any, address: str, size: str, scheme: str) -> None:
    with opened(browser, address, size, scheme) as (shown, asked, faults):
        assert asked == [address]
        assert faults == []
        assert_fits(shown, size)
        text = shown.inner_text("main")
        assert all(word in text for word in ("Alert.", "Failed at ", "40 to label", "failed", "An alert is raised"))
        assert_accessible(shown, 20)
