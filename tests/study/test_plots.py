"""Figures of a study, as matplotlib has them before they are encoded, and a study without any."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from small_study import N, results_of, run_here, spec_of

from opacc_ray.study import experiment, plots


class TestFigures:
    """As matplotlib has them, before they are encoded."""

    @pytest.fixture
    def figure(self, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Figure]:
        monkeypatch.setattr(experiment, "_run", run_here)
        figures: list[Figure] = []
        monkeypatch.setattr(plots, "_encode", lambda figure, suffix: (figures.append(figure), b"")[1])

        def draw(**content: Any) -> Figure:
            self.results = results_of(spec_of(cases / "full.npz", tmp_path, **({"methods": ["srs", "css"]} | content)))
            figures[-1].draw_without_rendering()
            return figures[-1]

        return draw

    @pytest.mark.parametrize("budgets", [[30], [20, 40, 60], [5, 9, 200]])
    def test_theory_and_bound_are_drawn_and_right_at_the_budgets(
        self, figure: Callable[..., Figure], budgets: list[int]
    ) -> None:
        errors, found = figure(budgets=budgets).axes
        case = self.results["cases"][0]
        theory = [100 * math.sqrt(case["variance"] * (1 / n - 1 / N)) for n in budgets]
        bound = [value * math.sqrt(case["bound"][str(n)]) for value, n in zip(theory, budgets, strict=True)]
        assert self.drawn(errors, "SRS in theory", budgets) == pytest.approx(theory, rel=1e-9)
        assert self.drawn(errors, "bound", budgets) == pytest.approx(bound, rel=1e-9)
        expected = [n * (1 - case["accuracy"]) for n in budgets]
        assert self.drawn(found, found.lines[0].get_label(), budgets) == pytest.approx(expected)

    @staticmethod
    def drawn(axes: Axes, label: object, budgets: list[int]) -> list[float]:
        """Height at each budget of a line that spans a fifth of the panel, at least."""
        line = next(line for line in axes.lines if line.get_label() == label)
        x, y = line.get_data()
        pixels = line.get_transform().transform(np.column_stack([x, y]))
        assert np.ptp(pixels[:, 0]) > 0.2 * axes.bbox.width
        if len(budgets) == 1:
            assert pixels[:, 0].min() < axes.transData.transform((budgets[0], 0))[0] < pixels[:, 0].max()
            return [y[0]] if len(set(y)) == 1 else []
        return [float(y[list(x).index(n)]) for n in budgets]

    @pytest.mark.parametrize("methods", [["srs"], ["srs", "css"]])
    @pytest.mark.parametrize("budgets", [[30], [50, 51], [20, 40, 60], [3, 9, 200]])
    def test_no_marker_is_cut_off(self, figure: Callable[..., Figure], methods: list[str], budgets: list[int]) -> None:
        drawn = figure(methods=methods, budgets=budgets)
        for axes in drawn.axes:
            for line in axes.lines:
                radius = line.get_markersize() / 2 * drawn.dpi / 72 if line.get_marker() != "None" else 0
                x, y = line.get_transform().transform(np.column_stack(line.get_data())).T
                assert axes.bbox.x0 <= x.min() - radius
                assert x.max() + radius <= axes.bbox.x1
                assert y.max() + 1.5 * radius <= axes.bbox.y1
                assert y.min() - radius >= axes.bbox.y0 or not line.get_clip_on()

    def test_a_control_says_so_in_its_title(self, figure: Callable[..., Figure]) -> None:
        assert "random order" not in figure().get_suptitle()
        control = figure(shuffle=["confidence"])
        assert control.get_suptitle().endswith("; confidence in random order)")
        box = control._suptitle.get_window_extent()  # type: ignore[attr-defined]
        assert box.x1 < control.bbox.x1

    def test_a_case_without_a_possible_method_has_one_too(
        self, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(experiment, "_run", run_here)
        results_of(spec_of(cases, tmp_path, methods=["ces:candidates=10"], repetitions=2))
        assert (tmp_path / "figures" / "table.png").read_bytes().startswith(b"\x89PNG")


def test_figures_are_left_out_without_matplotlib(
    cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opacc_ray.study.plots", None)
    monkeypatch.setattr(experiment, "_run", run_here)
    results_of(spec_of(cases / "full.npz", tmp_path, repetitions=2))
    assert (tmp_path / "table.md").exists()
    assert not (tmp_path / "figures").exists()
    assert "pip install 'opacc_ray[report]'" in caplog.text
