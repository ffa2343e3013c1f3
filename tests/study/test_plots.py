"""Test the figures of a study: what is drawn, and that nothing is cut off."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_study import N, results_of, run_here, spec_of

from opacc_ray.study import experiment, plots

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def results(cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run a study of one case in this process."""
    monkeypatch.setattr(experiment, "_run", run_here)

    def run(**content: Any) -> dict[str, Any]:
        given = {"methods": ["srs", "css"], "repetitions": 4} | content
        return results_of(spec_of(cases / "full.npz", tmp_path, **given))

    return run


def drawing(results: dict[str, Any]) -> ET.Element:
    return ET.fromstring(plots.draw_case(results, results["cases"][0]["case"]))


def points_of(drawn: ET.Element, kind: str) -> list[list[tuple[float, float]]]:
    """Points of each path of a class."""
    paths = [item.get("d", "") for item in drawn.iter(f"{SVG}path") if kind in item.get("class", "").split()]
    return [[(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", d)] for d in paths]


@pytest.mark.parametrize("budgets", [[30], [20, 40, 60], [5, 9, 200]])
def test_theory_and_bound_are_right_at_the_budgets(results: Callable[..., dict[str, Any]], budgets: list[int]) -> None:
    found = results(budgets=budgets)
    case = found["cases"][0]
    errors, failures = plots.panels_of(found, case)
    curves = {curve.name: dict(curve.points) for curve in errors.curves}
    theory = [100 * math.sqrt(case["variance"] * (1 / n - 1 / N)) for n in budgets]
    bound = [value * math.sqrt(case["bound"][str(n)]) for value, n in zip(theory, budgets, strict=True)]
    assert [curves["SRS in theory"][n] for n in budgets] == pytest.approx(theory, rel=1e-9)
    assert [curves["bound"][n] for n in budgets] == pytest.approx(bound, rel=1e-9)
    expected = [n * (1 - case["accuracy"]) for n in budgets]
    assert [value for _, value in failures.curves[0].points] == pytest.approx(expected)


@pytest.mark.parametrize("budgets", [[30], [20, 40, 60]])
def test_lines_of_theory_span_the_panel(results: Callable[..., dict[str, Any]], budgets: list[int]) -> None:
    drawn = drawing(results(budgets=budgets))
    for kind, panels in (("srs", 2), ("bound", 1)):
        lines = points_of(drawn, kind)[:panels]
        assert len(lines) == panels
        for line in lines:
            assert line[-1][0] - line[0][0] > 0.8 * plots.PANEL


def test_markers_are_at_the_measured_errors(results: Callable[..., dict[str, Any]]) -> None:
    """On linear axes heights are proportional to errors, from 0 at the bottom."""
    found = results(methods=["srs"], budgets=[30, 60])
    line = points_of(drawing(found), "m0")[0]
    bottom = plots.HEIGHT - plots.BOTTOM
    heights = [bottom - y for _, y in line]
    errors = [math.sqrt(cell["mse"]) for cell in found["cells"]]
    assert heights[0] / heights[1] == pytest.approx(errors[0] / errors[1], rel=0.01)


@pytest.mark.parametrize("methods", [["srs"], ["srs", "css", "sups", "rhcs"]])
@pytest.mark.parametrize("budgets", [[30], [50, 51], [20, 40, 60], [4, 9, 200]])
def test_nothing_is_cut_off(results: Callable[..., dict[str, Any]], methods: list[str], budgets: list[int]) -> None:
    drawn = drawing(results(methods=methods, budgets=budgets, repetitions=2))
    width, height = float(drawn.get("width", 0)), float(drawn.get("height", 0))
    points = [point for item in ("srs", "bound", "marker") for line in points_of(drawn, item) for point in line]
    points += [(float(item.get("cx", 0)), float(item.get("cy", 0))) for item in drawn.iter(f"{SVG}circle")]
    assert len(points) > 2 * len(methods)
    for x, y in points:
        assert plots.RADIUS <= x <= width - plots.RADIUS
        assert plots.TOP - 2 * plots.RADIUS <= y <= height - plots.RADIUS


def test_every_method_has_its_own_line_and_legend(results: Callable[..., dict[str, Any]]) -> None:
    drawn = drawing(results(methods=["srs", "css", "ssrs"]))
    texts = [item.text for item in drawn.iter(f"{SVG}text")]
    assert [texts.count(name) for name in ("srs", "css", "ssrs", "SRS in theory", "bound")] == [1] * 5
    assert all(len(points_of(drawn, f"m{place}")) == 3 for place in range(3))  # two panels and the legend


def test_a_control_is_marked_in_its_title(results: Callable[..., dict[str, Any]]) -> None:
    plain, control = ("".join(drawing(results(**content)).itertext()) for content in ({}, {"shuffle": ["confidence"]}))
    assert "random order" not in plain
    assert "; confidence in random order" in control


def test_same_results_have_the_same_bytes(results: Callable[..., dict[str, Any]]) -> None:
    found = results()
    assert plots.draw_case(found, "full") == plots.draw_case(found, "full")


def test_a_case_without_a_possible_method_has_a_figure(
    cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "_run", run_here)
    results_of(spec_of(cases, tmp_path, methods=["ces:candidates=10"], repetitions=2))
    drawn = ET.fromstring((tmp_path / "figures" / "table.svg").read_bytes())
    assert "SRS in theory" in "".join(drawn.itertext())
