"""The site has all pages, and their links lead to what it has; `make docs-site` builds it."""

import importlib.util
import re
from posixpath import dirname, join, normpath
from types import ModuleType

from infra_files import INFRA

ROOT = INFRA.parent


def loaded() -> ModuleType:
    """The hook, as MkDocs loads it."""
    found = importlib.util.spec_from_file_location("site_pages", INFRA / "site_pages.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


SITE = loaded()
PAGES = {place: ROOT / name for name, place in SITE.PAGES.items()}
PAGES |= {path.relative_to(ROOT / "docs").as_posix(): path for path in (ROOT / "docs").rglob("*.md")}
THERE = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*") if path.is_file()}
THERE |= {*PAGES, "api.md", *(f"{name}/index.md" for name in SITE.LISTS), *(f"files/{path}" for path in SITE.copied())}
THERE |= {SITE.place_of(folder) for folder in SITE.folders()}


def test_links_lead_to_what_the_site_has() -> None:
    for place, page in PAGES.items():
        text = SITE.relinked(page.read_text(), place)
        links = [normpath(join(dirname(place), link[1])) for link in SITE.LINK.finditer(text)]
        assert [link for link in links if link not in THERE] == [], place


def test_pictures_of_the_readme_are_on_the_site() -> None:
    text = SITE.relinked(PAGES["index.md"].read_text(), "index.md")
    pictures = [found[2] for found in SITE.SOURCE.finditer(text)]
    assert len(pictures) >= 6
    assert [name for name in pictures if name not in THERE] == []


def test_what_is_copied_is_a_file() -> None:
    assert [path for path in SITE.copied() if not (ROOT / path).is_file()] == []


def test_folder_of_code_is_a_list_of_its_files() -> None:
    assert SITE.place_of("opacc_ray/study/peers") == "files/opacc_ray/study/peers/index.md"
    assert "opacc_ray/study/peers" in SITE.folders()
    assert "opacc_ray/study/peers/ppi.py" in SITE.copied()


def test_navigation_names_pages_that_exist_and_each_once() -> None:
    named = re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    assert set(named) - THERE == set()
    assert len(named) == len(set(named))


def test_page_that_is_not_named_is_listed() -> None:
    config = {"nav": [{"Start": ["guide.md"]}]}
    SITE.on_config(config)
    listed = config["nav"][1]["More"]
    assert "jobs.md" in listed
    assert "guide.md" not in listed


def test_reference_has_all_public_names() -> None:
    import opacc_ray

    found = re.findall(r"^::: opacc_ray\.[\w.]+\.(\w+)$", SITE.reference(), re.MULTILINE)
    assert found == opacc_ray.__all__
