"""Documents as people read them."""

from pathlib import Path
from typing import Any

import pytest

from opacc_ray.cli.main import main
from opacc_ray.report.facts import change, points_apart, stated
from opacc_ray.runs.run_documents import StatedEstimate


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0123, ("100 %", "90.0 to 100")), (0.8998, ("90.0 %", "90.0 to 100")), (0.95, ("95.0 %", "90.0 to 100"))],
)
def test_accuracy_stays_in_its_interval(value: float, text: tuple[str, str]) -> None:
    assert stated(estimate(value)) == text


def test_difference_has_a_sign_unless_it_rounds_to_zero() -> None:
    assert change(estimate(0.1, low=-0.05, high=0.2)) == ("+10.0 points", "-5.0 to +20.0")
    assert change(estimate(0.0, low=0.0, high=0.0)) == ("0.0 points", "0.0 to 0.0")
    assert change(estimate(-0.0004, low=-0.1006, high=0.1)) == ("0.0 points", "-10.1 to +10.0")
    assert change(estimate(0.0004, low=-0.1, high=0.1), "mean cost") == ("0.000", "-0.100 to +0.100")
    assert change(estimate(0.1, low=-0.05, high=0.2), "mean score") == ("+10.0 points", "-5.0 to +20.0")
    assert change(estimate(0.1, low=-0.05, high=0.2), "kappa") == ("+0.100", "-0.050 to +0.200")


@pytest.mark.parametrize(
    ("goal", "now", "shown"),
    [
        (0.02, 0.034, ("±2 points", "±3.4 points")),
        (0.02, 0.020004, ("±2 points", "±2.0004 points")),
        (0.1, 0.10004, ("±10 points", "±10.004 points")),
        (0.02, 0.02, ("±2 points", "±2 points")),
    ],
)
def test_half_widths_that_round_alike_have_more_digits(goal: float, now: float, shown: tuple[str, str]) -> None:
    assert points_apart(goal, now) == shown


def estimate(value: float, **ends: Any) -> StatedEstimate:
    settled = {"low": 0.9, "high": 1.0} | ends
    return StatedEstimate(
        value=value,
        standard_error=0.02,
        level=0.95,
        method="Wilson",
        n=50,
        design_based=True,
        reason=None,
        **settled,
    )


def test_a_budget_of_a_file_ends_with_the_command_that_reads_it_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i},{i % 2},0.8,{int(i % 3 > 0)}\n" for i in range(300))
    Path("own.csv").write_text(f"sku,guess,sure,gpt\n{rows}")
    read_by = ["--columns", "id=sku,prediction=guess,confidence=sure,judges=gpt"]
    assert main(["budget", "own.csv", "--until", "0.1", *read_by]) == 0
    *_, step = capsys.readouterr().out.splitlines()
    words = step.removeprefix("next: opacc ").split()
    assert words[:4] == ["audit", "own.csv", *read_by]
    assert (words[4], words[6:]) == ("--budget", ["--until", "±0.1"])
