"""Write the generated pages of docs/ from models and dataclasses: ``python docs/write_pages.py``."""

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from write_schemas import all_meanings

from opacc_ray.cli.explanations import MethodEntry, list_methods, type_text
from opacc_ray.extensions.case_files import ALIASES
from opacc_ray.extensions.study.peers import PEERS
from opacc_ray.extensions.study.study_spec import StudySpec
from opacc_ray.lake.formats import FORMATS, find_format
from opacc_ray.spec import Spec

FOLDER = Path(__file__).parent

SPEC = """# Every key of a spec

*For those who write a spec.*

Written by `make docs-pages` from `opacc_ray/spec/`. `opacc spec` prints a spec to start from,
and `docs/schemas` has the JSON schema by which editors complete keys. A key that is not listed is refused, with the
nearest one that is.
"""
METHODS = """# Methods and their parameters

*For those who choose a method, or set its parameters.*

Written by `make docs-pages` from the modules in `opacc_ray/samplers/`, where each method's paper, equations and
deviations are. Parameters are given next to the method, as in
`sample: {method: css, budget: 100, allocation: [0.5, 0.25, 0.25]}`. `opacc run --like` and `opacc next` take them as
`--set allocation="[0.5, 0.25, 0.25]"`. `opacc methods METHOD` prints this page's part on a method.

`auxiliary` decides what a method needs: confidence, dsa, lsa, or for combined confidence and dsa; `layer` of ces and
deepreduce also does. dsa, lsa and some coverage compare with `reference`.
"""
STUDY = """# Every key of a study

*For those who compare methods on labelled data.*

Written by `make docs-pages` from `extensions/study/`. `opacc study STUDY.yaml` draws from labelled cases again and
again, each method at each budget, and reports the error of its estimates. Options and cases on the command line replace
keys; `jobs/study-comparison.yaml` and `jobs/study-neyman.yaml` are the studies of this documentation.

```yaml
cases:
  - cases/                                                  # every file in the folder
  - {path: digits.csv, columns: {prediction: said, label: truth}}
methods:
  - srs
  - neyman:rounds=4,floor=0.2                               # as on the command line
  - {method: neyman, rounds: [1, 1, 2], label: in three rounds}
  - lure                                                    # a method of others
budgets: [100, 200]
repetitions: 1000
output: study
```

The folder `study` then holds `results.json`, `table.md`, and the figures `figures/errors.svg` and
`figures/failures.svg`. A figure has a panel per case, all with the same axes. The legend begins with the method of the
least mean E over the cases; the first eight have colours, the same ones in every panel.
"""
FIELDS = """## Columns of a case

A case has a field where one of its columns has a name of that row, in upper or lower case, or the name that `columns`
gives. The first of `outcome`, `squared_error`, `label` and `target` that is there says how the model did.
"""
OTHERS = """## Methods of others

They are compared in studies alone, as their papers have them, in one round. They take the keys `method`,
`repetitions` and `label`.
"""


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    return {"spec.md": spec_page(), "methods.md": methods_page(), "study.md": study_page()}


def spec_page() -> str:
    return "\n".join([SPEC, *_tables(Spec, "sample"), *_formats()])


def _formats() -> list[str]:
    """Return what each format of pools supports, as its module declares it."""
    rows = []
    for name in FORMATS:
        format = find_format(name)
        title = inspect.getdoc(format).partition("\n\n")[0].replace("\n", " ").replace("``", "`")
        lists = (format.TRAITS.columns, format.TRAITS.needs, format.TRAITS.keys)
        rows.append((f"`{name}`", title, *(", ".join(f"`{key}`" for key in keys) for keys in lists)))
    head = ("format", "pools", "columns", "one of them is required", "further keys of the pool")
    return ["## Formats of pools\n", _table(head, rows)]


_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


class Key(NamedTuple):
    """One key, or a section of keys."""

    path: str  # dotted
    type: str
    required: bool
    default: Any
    meaning: str
    is_section: bool

    @property
    def depth(self) -> int:
        return self.path.count(".")


def keys_of(kind: type[BaseModel] = Spec, prefix: str = "") -> Iterator[Key]:
    """Yield every key, each section before its keys, in the order of declaration."""
    meanings = all_meanings(kind)
    for name, info in kind.model_fields.items():
        section = _section_of(info.annotation)
        default = None if info.is_required() or section else _default(info)
        sections = "list of sections" if get_origin(info.annotation) is list else "section"
        written = sections if section else type_text(info.annotation) + _bounds(info)
        yield Key(f"{prefix}{name}", written, info.is_required(), default, meanings.get(name, ""), bool(section))
        if section:
            yield from keys_of(section, f"{prefix}{name}.")


def _section_of(kind: Any) -> type[BaseModel] | None:
    """Return the model of a section, also of an optional one; None for a key that may be a plain value."""
    kinds = [part for part in (get_args(kind) or (kind,)) if part is not NoneType]
    only = kinds[0] if len(kinds) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _default(info: FieldInfo) -> Any:
    value = info.get_default(call_default_factory=True)
    return None if value is PydanticUndefined else value


def _bounds(info: FieldInfo) -> str:
    """Return the bounds of a number, such as ``≥ 1``."""
    found = [
        f"{sign} {getattr(item, name):g}"
        for item in info.metadata
        for name, sign in _BOUNDS.items()
        if abs(getattr(item, name, None) or 0) < 2**53 and getattr(item, name, None) is not None
    ]
    return f", {' and '.join(found)}" if found else ""


def _tables(kind: type[BaseModel], of_methods: str) -> list[str]:
    """Tables of the keys of a model and its sections; ``of_methods`` also takes the parameters of a method."""
    keys = [*keys_of(kind)]
    head = ("key", "type", "default", "meaning")
    of_pool = {key.meaning for key in keys if key.path.startswith("pool.")}
    parts = [_table(head, (_row(key) for key in keys if key.depth == 0))]
    for section in (key for key in keys if key.is_section):
        inside = [key for key in keys if key.path.rpartition(".")[0] == section.path]
        if section.path.startswith("reference"):  # most of its keys are those of the pool
            inside = [key for key in inside if key.meaning not in of_pool]
        if not inside:
            continue
        more = ": see [methods](methods.md)" if section.path == of_methods else ""
        more += ". It takes the other keys of `pool` as well" if section.path == "reference" else ""
        parts.append(f"## {section.path}\n\n{_sentence(section.meaning + more)}\n")
        parts.append(_table(head, map(_row, inside)))
    return parts


def methods_page() -> str:
    return "\n".join([METHODS, *(_method(item) for item in list_methods().methods)])


def study_page() -> str:
    fields = [(f"`{field}`", ", ".join(names)) for field, names in ALIASES.items()]
    peers = [(f"`{name}`", _first_paragraph(peer.estimate)) for name, peer in PEERS.items()]
    tables = _tables(StudySpec, "methods")
    return "\n".join(
        [STUDY, *tables, FIELDS, _table(("field", "columns"), fields), OTHERS, _table(("method", "paper"), peers)]
    )


def _first_paragraph(function: Any) -> str:
    """What the docstring of a function begins with."""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def _method(entry: MethodEntry) -> str:
    budget = "a budget, or stops by itself" if entry.stops_itself else "a budget"
    needs = ", ".join([*entry.needs, budget])
    lines = [f"## {entry.name}\n", f"{_sentence(entry.title)} Needs {needs}."]
    if entry.optional:
        lines[-1] += f" Reads {', '.join(entry.optional)} where they are there."
    rows = [(f"`{item.name}`", item.type, _value(item.default), item.meaning) for item in entry.parameters]
    table = _table(("parameter", "type", "default", "meaning"), rows) if rows else ""
    presets = [f"`{name}` ({_preset(own)})" for name, own in entry.presets.items()]
    return "\n".join([*lines, "", table, *([f"Presets: {', '.join(presets)}.\n"] if presets else [])])


def _preset(own: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {json.dumps(value)}" for name, value in own.items()) or "the defaults"


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
