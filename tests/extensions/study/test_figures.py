"""Test the figures of a study: what is drawn, and that nothing is cut off."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_study import N, spec_of

from opacc_ray.extensions.study import experiment
from opacc_ray.extensions.study import study_figures as figures
from opacc_ray.extensions.study.measures import CaseFacts, CellMeasures, StudyResults
from opacc_ray.extensions.study.study_spec import StudySpec

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def results(cases: Path, tmp_path: Path, in_process: None) -> Callable[..., StudyResults]:
    """Run a study of one case in this process."""

    def run(**content: Any) -> StudyResults:
        given = {"methods": ["srs", "css"], "repetitions": 4} | content
        return experiment.run_study(spec_of(cases / "full.npz", tmp_path, **given))

    return run


def drawing(results: StudyResults, name: str = "errors") -> ET.Element:
    return ET.fromstring(figures.draw_study(results)[name])


def many(number: int, cases: int = 1) -> StudyResults:
    """Made results of many methods, of which each next one has a greater error."""
    facts = {"drawn_from": None, "number": "accuracy", "binary": True, "truth": {"": 0.9}, "size": 900}
    facts |= {"accuracy": 0.9, "variance": 0.09, "bound": {"50": 0.5, "100": 0.5}}
    made, cells = [CaseFacts.model_construct(**facts, case=f"case {i}") for i in range(cases)], list[CellMeasures]()
    for i in range(cases):
        for j in range(number):
            value = (1 + j / 200) * (1 + 9 * i)  # lines end close to each other
            cell = {"case": f"case {i}", "method": f"method:{j}", "efficiency": value}
            measures = [{"budget": n, "mse": value / 9 / n, "failures": n / 9 * value} for n in (50, 100)]
            cells += [CellMeasures.model_construct(**cell, **own) for own in measures]
    spec = StudySpec.model_construct(budgets=[50, 100])
    return StudyResults.model_construct(spec=spec, cases=made, cells=cells)


@pytest.mark.parametrize("budgets", [[30], [20, 40, 60], [5, 9, 200]])
def test_theory_and_bound_are_right_at_the_budgets(results: Callable[..., StudyResults], budgets: list[int]) -> None:
    found = results(budgets=budgets)
    [case] = found.cases
    (errors,), (failures,) = figures.panels_of(found)
    curves = {curve.name: dict(curve.points) for curve in errors.curves}
    theory = [100 * math.sqrt(case.variance * (1 / n - 1 / N)) for n in budgets]
    bound = [value * math.sqrt(case.bound[str(n)]) for value, n in zip(theory, budgets, strict=True)]
    assert [curves["SRS in theory"][n] for n in budgets] == pytest.approx(theory, rel=1e-9)
    assert [curves["bound"][n] for n in budgets] == pytest.approx(bound, rel=1e-9)
    expected = [n * (1 - case.accuracy) for n in budgets]
    assert [value for _, value in failures.curves[0].points] == pytest.approx(expected)


@pytest.mark.parametrize("methods", [["srs"], ["srs", "css", "sups", "rhcs"]])
@pytest.mark.parametrize("budgets", [[30], [50, 51], [4, 9, 200]])
def test_nothing_is_cut_off(results: Callable[..., StudyResults], methods: list[str], budgets: list[int]) -> None:
    drawn = drawing(results(methods=methods, budgets=budgets, repetitions=2))
    dots = [(float(item.get("cx", 0)), float(item.get("cy", 0))) for item in drawn.iter(f"{SVG}circle")]
    assert len(dots) == len(budgets) * (len(methods) + 2)  # and theory and bound
    for x, y in dots:
        assert 0 <= x <= figures.PLOT
        assert figures.TOP <= y <= figures.HEIGHT - figures.BOTTOM
    assert float(drawn.get("height", 0)) == figures.HEAD + figures.HEIGHT


@pytest.mark.parametrize("name", ["errors", "failures"])
@pytest.mark.parametrize("cases", [1, 8])
def test_a_legend_names_all_methods_and_the_best_have_colours(name: str, cases: int) -> None:
    drawn = drawing(many(25, cases), name)
    panels = drawn.findall(f"{SVG}g")
    assert len(panels) == cases
    legend = [item for item in drawn.findall(f"{SVG}text") if item.get("class") != "title"]
    theory = ["SRS in theory", *(["bound"] if name == "errors" else [])]
    assert [item.text for item in legend] == [*theory, *(f"method:{j}" for j in range(25))]
    assert sum(item.get("class") == "faint" for item in legend) == 17
    places = [float(item.get("y", 0)) for item in legend]
    assert max(places) < float(drawn.get("height", 0))
    ends = [float(item.get("x", 0)) + figures.CHARACTER * len(item.text or "") for item in legend]
    assert max(ends) <= float(drawn.get("width", 0))
    moves = [re.findall(r"[\d.]+", panel.get("transform", "")) for panel in panels]
    corners = {(float(x), float(y)) for x, y in moves}
    assert len(corners) == cases
    assert max(x for x, _ in corners) + figures.PLOT < min(float(item.get("x", 0)) for item in legend)
    assert max(y for _, y in corners) + figures.HEIGHT <= float(drawn.get("height", 0))
