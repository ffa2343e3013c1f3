"""The templates of pages: every text of others is escaped."""

from importlib.resources import files
from typing import Any

from markupsafe import Markup

from opacc_ray.report import sentences
from opacc_ray.report.svg import shortened_to

TEMPLATES = files("opacc_ray.report") / "templates"


def template(name: str) -> Any:
    """The template of a file."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"short": shortened_to, "sentence": sentences.sentence}
    return environment.from_string((TEMPLATES / name).read_text(encoding="utf-8"))


def style() -> Markup:
    """The style of every page."""
    return Markup((TEMPLATES / "page.css").read_text(encoding="utf-8"))
