"""Write docs/spec.md and docs/methods.md from the models and dataclasses: ``python docs/write_pages.py``."""

import json
import sys
from pathlib import Path
from typing import Any

from opacc_ray.cli.method_list import MethodEntry, list_methods
from opacc_ray.cli.spec_keys import Key, keys_of

FOLDER = Path(__file__).parent

SPEC = """# Every key of a spec

Written by `make docs` from `opacc_ray/spec/`. `opacc spec --template METHOD` prints a spec with these comments, and
`opacc schemas FOLDER` the JSON schema by which editors complete keys. A key that is not listed is refused, with the
nearest one that is.
"""
METHODS = """# Methods and their parameters

Written by `make docs` from the modules in `opacc_ray/samplers/`, where each method's paper, equations and deviations
are. Parameters stand beside the method in `sample: {method: css, budget: 100, allocation: [0.5, 0.25, 0.25]}`; `opacc
select` and `opacc next` take them as `--set allocation="[0.5, 0.25, 0.25]"`. `opacc methods METHOD` prints this, too.

`auxiliary` decides what a method needs: confidence, dsa, lsa, or for combined confidence and dsa; `layer` of ces and
deepreduce does, too. dsa, lsa and some coverage compare with `reference`.
"""


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    return {"spec.md": spec_page(), "methods.md": methods_page()}


def spec_page() -> str:
    keys = [*keys_of()]
    top = [key for key in keys if key.depth == 0]
    parts = [SPEC, _table(("key", "type", "default", "meaning"), map(_row, top))]
    for section in (key for key in keys if key.is_section):
        inside = [key for key in keys if key.path.rpartition(".")[0] == section.path]
        more = ", and the method's own parameters: see [methods](methods.md)" if section.path == "sample" else ""
        parts.append(f"## {section.path}\n\n{_sentence(section.meaning + more)}\n")
        parts.append(_table(("key", "type", "default", "meaning"), map(_row, inside)))
    return "\n".join(parts)


def methods_page() -> str:
    return "\n".join([METHODS, *(_method(item) for item in list_methods().methods)])


def _method(entry: MethodEntry) -> str:
    budget = "a budget, or stops by itself" if entry.stops_itself else "a budget"
    needs = ", ".join([*entry.needs, budget])
    lines = [f"## {entry.name}\n", f"{_sentence(entry.title)} Needs {needs}."]
    if entry.optional:
        lines[-1] += f" Reads {', '.join(entry.optional)} where they are there."
    rows = [(f"`{item.name}`", item.type, _value(item.default), item.meaning) for item in entry.parameters]
    return "\n".join([*lines, "", _table(("parameter", "type", "default", "meaning"), rows) if rows else ""])


def _row(key: Key) -> tuple[str, ...]:
    default = "**required**" if key.required else "" if key.is_section else _value(key.default)
    return f"`{key.path.rpartition('.')[2]}`", key.type, default, key.meaning


def _value(value: Any) -> str:
    return "" if value is None else f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _table(head: tuple[str, ...], rows: Any) -> str:
    cells = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells) + "\n"


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
        print(f"wrote {FOLDER / name}", file=sys.stderr)
