"""Test the figures of a study: what is drawn, and that nothing is cut off."""

import itertools
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


def drawing(results: dict[str, Any], name: str = "errors") -> ET.Element:
    return ET.fromstring(plots.draw_study(results)[name])


def many(number: int, cases: int = 1) -> dict[str, Any]:
    """Made results of many methods, of which each next one has a greater error."""
    facts = {"drawn_from": None, "number": "accuracy", "binary": True, "shuffled": [], "truth": {"": 0.9}, "size": 900}
    facts |= {"accuracy": 0.9, "variance": 0.09, "bound": {"50": 0.5, "100": 0.5}}
    made = {"spec": {"budgets": [50, 100]}, "cases": [facts | {"case": f"case {i}"} for i in range(cases)], "cells": []}
    for i in range(cases):
        for j in range(number):
            value = (1 + j / 200) * (1 + 9 * i)  # lines end close to each other
            cell = {"case": f"case {i}", "method": f"method:{j}", "efficiency": value}
            made["cells"] += [cell | {"budget": n, "mse": value / 9 / n, "failures": n / 9 * value} for n in (50, 100)]
    return made


def names_of(drawn: ET.Element) -> list[tuple[str, float, float]]:
    """Names at the ends of lines, with their places in the panel."""
    shown = [item for item in drawn.iter(f"{SVG}text") if float(item.get("x", 0)) > plots.PLOT]
    return [(item.text or "", float(item.get("x", 0)), float(item.get("y", 0))) for item in shown]


def points_of(drawn: ET.Element, kind: str) -> list[list[tuple[float, float]]]:
    """Points of each path of a class."""
    paths = [item.get("d", "") for item in drawn.iter(f"{SVG}path") if kind in item.get("class", "").split()]
    return [[(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", d)] for d in paths]


@pytest.mark.parametrize("budgets", [[30], [20, 40, 60], [5, 9, 200]])
def test_theory_and_bound_are_right_at_the_budgets(results: Callable[..., dict[str, Any]], budgets: list[int]) -> None:
    found = results(budgets=budgets)
    case = found["cases"][0]
    (errors,), (failures,) = plots.panels_of(found)
    curves = {curve.name: dict(curve.points) for curve in errors.curves}
    theory = [100 * math.sqrt(case["variance"] * (1 / n - 1 / N)) for n in budgets]
    bound = [value * math.sqrt(case["bound"][str(n)]) for value, n in zip(theory, budgets, strict=True)]
    assert [curves["SRS in theory"][n] for n in budgets] == pytest.approx(theory, rel=1e-9)
    assert [curves["bound"][n] for n in budgets] == pytest.approx(bound, rel=1e-9)
    expected = [n * (1 - case["accuracy"]) for n in budgets]
    assert [value for _, value in failures.curves[0].points] == pytest.approx(expected)


@pytest.mark.parametrize("budgets", [[30], [20, 40, 60]])
def test_lines_of_theory_span_the_panel(results: Callable[..., dict[str, Any]], budgets: list[int]) -> None:
    found = results(budgets=budgets)
    for name, kind in (("errors", "srs"), ("errors", "bound"), ("failures", "srs")):
        drawn_line, _ = points_of(drawing(found, name), kind)  # and the sample at its name
        assert drawn_line[-1][0] - drawn_line[0][0] > 0.9 * plots.PLOT


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
    assert float(drawn.get("height", 0)) == plots.HEAD + plots.HEIGHT
    width, height = plots.PLOT + plots.LEADER, plots.HEIGHT
    points = [point for item in ("srs", "bound", "m0") for line in points_of(drawn, item) for point in line]
    points += [(float(item.get("cx", 0)), float(item.get("cy", 0))) for item in drawn.iter(f"{SVG}circle")]
    assert len(points) > 2 * len(methods)
    for x, y in points:
        assert 0 <= x <= width - 3
        assert plots.TOP - plots.RADIUS <= y <= height - plots.BOTTOM + plots.RADIUS


def test_every_method_has_its_own_line_with_its_name(results: Callable[..., dict[str, Any]]) -> None:
    drawn = drawing(results(methods=["srs", "css", "ssrs"]))
    assert sorted(name for name, _, _ in names_of(drawn)) == sorted(["srs", "css", "ssrs", "SRS in theory", "bound"])
    assert all(len(points_of(drawn, f"m{rank}")) == 1 for rank in range(3))


@pytest.mark.parametrize("name", ["errors", "failures"])
@pytest.mark.parametrize("cases", [1, 8])
def test_the_best_of_many_methods_are_named_without_overlap_and_the_others_together(name: str, cases: int) -> None:
    drawn = drawing(many(25, cases), name)
    panels = drawn.findall(f"{SVG}g")
    assert len(panels) == cases
    theory = {"SRS in theory"} | ({"bound"} if name == "errors" else set())
    for panel in panels:
        found = names_of(panel)
        assert {shown for shown, _, _ in found} == {f"method:{j}" for j in range(8)} | theory | {"17 others"}
        heights = sorted(y for _, _, y in found)
        assert min(b - a for a, b in itertools.pairwise(heights)) >= plots.LINE - 0.11  # rounded to a tenth
        assert heights[0] >= plots.TOP
        assert heights[-1] <= plots.HEIGHT - plots.BOTTOM + 4
        assert len(points_of(panel, "faint")) == 17 + 1
    moves = [re.findall(r"[\d.]+", panel.get("transform", "")) for panel in panels]
    corners = [(float(x), float(y)) for x, y in moves]
    assert len(set(corners)) == cases
    longest = max(len(shown) for shown, _, _ in names_of(drawn)) * plots.CHARACTER
    assert max(x for x, _ in corners) + plots.PLOT + plots.LEADER + longest <= float(drawn.get("width", 0))
    assert max(y for _, y in corners) + plots.HEIGHT <= float(drawn.get("height", 0))


def test_other_methods_are_seen_with_a_single_number_of_labels() -> None:
    made = many(25)
    made["spec"]["budgets"] = [50]
    dashes = points_of(drawing(made), "faint")
    assert len(dashes) == 17 + 1
    assert all(end[0] - start[0] == pytest.approx(2 * plots.RADIUS) for start, end in dashes[:17])


def test_cases_have_the_same_axes() -> None:
    """Equal labels and errors of two cases are at equal places of their panels."""
    made = many(3, 2)
    for cell in made["cells"]:
        cell["mse"] = 0.001 if cell["method"] == "method:1" else cell["mse"]
    first, second = drawing(made).findall(f"{SVG}g")
    assert points_of(first, "m1") == points_of(second, "m1")
    ((_, above), (_, below)), ((_, high), (_, low)) = points_of(first, "m0")[0], points_of(second, "m0")[0]
    assert plots.TOP < high < low < above < below  # errors ten times as large fit as well


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([50, 50], [45, 55]),
        ([80, 20], [80, 20]),
        ([20, 21, 60], [15.5, 25.5, 60]),
        ([1, 0, 2], [10, 0, 20]),
        ([99, 100], [90, 100]),
    ],
)
def test_names_move_apart_from_their_middle_and_keep_their_order(wanted: list[float], expected: list[float]) -> None:
    assert plots.spread(wanted, 10, 0, 100) == pytest.approx(expected)


def test_a_control_is_marked_in_its_title(results: Callable[..., dict[str, Any]]) -> None:
    plain, control = ("".join(drawing(results(**content)).itertext()) for content in ({}, {"shuffle": ["confidence"]}))
    assert "random order" not in plain
    assert "; confidence in random order" in control


def test_same_results_have_the_same_bytes(results: Callable[..., dict[str, Any]]) -> None:
    found = results()
    assert plots.draw_study(found) == plots.draw_study(found)


def test_a_case_without_a_possible_method_has_a_figure(
    cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "_run", run_here)
    results_of(spec_of(cases, tmp_path, methods=["ces:candidates=10"], repetitions=2))
    drawn = ET.fromstring((tmp_path / "figures" / "errors.svg").read_bytes())
    assert "SRS in theory" in "".join(drawn.itertext())
