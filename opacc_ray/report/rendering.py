"""The templates of pages: every text of others is escaped."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from markupsafe import Markup

from opacc_ray.report import sentences
from opacc_ray.svg import shortened_to

TEMPLATES = files("opacc_ray.report") / "templates"


def template(name: str, folder: Traversable = TEMPLATES) -> Any:
    """The template of a file; one that names a value which is not there does not render."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.loader = FunctionLoader(_shared)
    environment.filters |= {"short": shortened_to, "sentence": sentences.sentence}
    return environment.from_string((folder / name).read_text(encoding="utf-8"))


def _shared(name: str) -> str:
    """The text of a template of this room, which those of others extend: base.html is what all pages are."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def style(*names: str) -> Markup:
    """The style sheets of every page, or those named: figure.css suits a figure that is a file of its own."""
    sheets = map(_shared, names or ("figure.css", "page.css"))
    return Markup("\n").join(map(Markup, sheets))
