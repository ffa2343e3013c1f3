"""Markdown as elements and texts: what a chat shows, and no element that loads, links or runs anything."""

import json

import pytest

from opacc_ray.labels.page.desk import TAGS, Element, tree


def elements(parts: list[Element]) -> list[str]:
    return [tag for part in parts if isinstance(part, list) for tag in (part[0], *elements(part[2:]))]


def text_of(parts: list[Element]) -> str:
    return "".join(part if isinstance(part, str) else text_of(part[2:]) for part in parts)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold** and *thin*", [["p", {}, ["strong", {}, "bold"], " and ", ["em", {}, "thin"]]]),
        ("one\ntwo", [["p", {}, "one", ["br", {}], "two"]]),
        ("# Title", [["h3", {}, "Title"]]),
        ("3. c\n4. d", [["ol", {"start": 3}, ["li", {}, "c"], ["li", {}, "d"]]]),
        ("- a\n  - b", [["ul", {}, ["li", {}, "a", ["ul", {}, ["li", {}, "b"]]]]]),
        ("```python\nx = '<b>'\n```", [["pre", {}, "x = '<b>'\n"]]),
        ("2 * 3 * 4 and snake_case_name", [["p", {}, "2 * 3 * 4 and snake_case_name"]]),
        ("", []),
    ],
)
def test_a_text_becomes_what_a_chat_shows(text: str, shown: list[Element]) -> None:
    assert tree(text, below=2, breaks=True) == shown


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b onclick=alert(1)>b</b>",
        "[a](javascript:alert(1))",
        "[a](https://example.org)",
        "![a](https://example.org/track.png)",
        "<https://example.org>",
        "[a]\n\n[a]: https://example.org",
    ],
)
def test_html_links_and_images_stay_the_text_that_they_are(text: str) -> None:
    found = tree(text, below=2)
    assert set(elements(found)) <= {"p"}
    assert text_of(found) == text.replace("\n\n", "")


@pytest.mark.parametrize("text", ["> " * 50 + "x", "- " * 50 + "x\n\nafter", "1. " * 9 + "x", "> - " * 5 + "**x**"])
def test_no_text_is_lost_however_deep_it_is(text: str) -> None:
    found = tree(text, below=2)
    assert "x" in text_of(found)
    assert "after" not in text or "after" in text_of(found)


def test_nothing_but_known_tags_and_numbers_of_lists_reaches_the_browser() -> None:
    text = "*" * 1000 + "[" * 1000 + "\n\n1. a\n\n   b\n\n---\n`c` ~~d~~ &lt;e&gt; \\*f\\*"
    found = tree(text, below=2)
    assert set(elements(found)) <= TAGS
    assert json.loads(json.dumps(found)) == found
    assert text_of(found).endswith("c d <e> *f*")
