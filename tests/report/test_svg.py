"""Round ticks, and elements whose texts cannot leave them."""

import xml.etree.ElementTree as ET

import pytest

from opacc_ray.svg import figure, line, text, ticks


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


def test_texts_are_text_and_the_figure_names_itself() -> None:
    hostile = "</text><script>alert(1)</script>\"'&"
    drawn = figure("a", hostile, hostile, (100, 50), [text(1, 2, hostile), line(0, 0, 1.26, -0.01, "grid")])
    root = ET.fromstring(drawn)
    assert [item.tag for item in root] == ["title", "desc", "text", "line"]
    assert [item.text for item in root][:3] == [hostile] * 3
    assert root.attrib["aria-labelledby"].split() == [root[0].attrib["id"], root[1].attrib["id"]]
    assert (root[3].attrib["x2"], root[3].attrib["y2"]) == ("1.3", "0")
