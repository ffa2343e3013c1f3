"""Round ticks, and elements whose texts cannot leave them."""

import xml.etree.ElementTree as ET

import pytest

from opacc_ray.svg import Scale, decimals, figure, line, shortened_to, text, ticks, whisker


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (0.83, 0.924, 6, [0.82, 0.84, 0.86, 0.88, 0.9, 0.92, 0.94]),
        (0.0, 1.0, 6, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 200, 5, [0, 50, 100, 150, 200]),
        (-3.2, 4.1, 6, [-4, -2, 0, 2, 4, 6]),
        (1e-6, 3e-6, 4, [1e-6, 2e-6, 3e-6]),
    ],
)
def test_ticks_are_round_and_enclose(low: float, high: float, most: int, expected: list[float]) -> None:
    found = ticks(low, high, max(most, len(expected)))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("value", [0.0, 0.9, 1.0, -5.0, 1e9])
def test_ticks_of_one_value_still_make_an_axis(value: float) -> None:
    found = ticks(value, value, 5)
    assert found[0] <= value <= found[-1]
    assert found[0] < found[-1]


def test_decimals_say_each_tick_exactly() -> None:
    assert [decimals([0, 50]), decimals([82.5, 85.0]), decimals([0.25, 0.5])] == [0, 1, 2]


def test_a_scale_stays_inside_of_its_axis() -> None:
    scale = Scale(0.5, 1.0, 100, 200)
    assert [scale(0.5), scale(0.75), scale(2.0), scale(-1.0)] == [100, 150, 200, 100]


def test_texts_are_text_and_the_figure_names_itself() -> None:
    hostile = "</text><script>alert(1)</script>\"'&"
    drawn = figure("a", hostile, hostile, (100, 50), [text(1, 2, hostile), line(0, 0, 1.26, -0.01, "grid")])
    root = ET.fromstring(drawn)
    assert [item.tag for item in root] == ["title", "desc", "text", "line"]
    assert [item.text for item in root][:3] == [hostile] * 3
    assert root.attrib["aria-labelledby"].split() == [root[0].attrib["id"], root[1].attrib["id"]]
    assert (root[3].attrib["x2"], root[3].attrib["y2"]) == ("1.3", "0")


def test_an_interval_has_caps_across_its_direction() -> None:
    drawn = ET.fromstring(f"<g>{whisker((10, 5), (20, 5), 'bar')}</g>")
    assert [(e.attrib["x1"], e.attrib["y1"], e.attrib["x2"], e.attrib["y2"]) for e in drawn] == [
        ("10", "5", "20", "5"),
        ("10", "1", "10", "9"),
        ("20", "1", "20", "9"),
    ]


def test_long_names_end_in_an_ellipsis() -> None:
    assert [shortened_to("owl", 3), shortened_to("owls", 3)] == ["owl", "ow…"]
