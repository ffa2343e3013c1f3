"""Write the JSON schemas of all documents and specs: python docs/write_schemas.py FOLDER."""

import ast
import inspect
import json
import sys
import textwrap
from collections import ChainMap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

from pydantic import BaseModel

import opacc_ray
from opacc_ray.documents import Document, Part, Section
from opacc_ray.extensions.fleet.fleet_spec import FleetSpec
from opacc_ray.extensions.study.study_spec import StudySpec
from opacc_ray.spec import Spec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def kinds() -> list[type[Document]]:
    """Return every class of documents of the package, by format."""
    for module in walk_packages(opacc_ray.__path__, "opacc_ray."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    ours = (kind for kind in parts(Document) if kind.__module__.startswith("opacc_ray."))
    declared = {str(kind.model_fields["format"].default): kind for kind in ours}
    return [declared[form] for form in sorted(declared) if "/" in form]


def meanings(kind: type[BaseModel]) -> dict[str, str]:
    """Return the meaning of the keys of a document: the comments at its fields, or above them."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines, found = source.splitlines(), dict[str, str]()
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            after = lines[(node.end_lineno or 0) - 1].encode()[node.end_col_offset :].decode()
            above = list[str]()
            for line in reversed(lines[: node.lineno - 1]):
                if not line.strip().startswith("#"):
                    break
                above.insert(0, line.strip())
            found[node.target.id] = " ".join(text.strip(" #") for text in ([after] if "#" in after else above))
    return {name: text for name, text in found.items() if text}


def all_meanings(kind: type[BaseModel]) -> dict[str, str]:
    """Return the meanings of all keys of a document or a section, also of those that it has from another one."""
    bases = (base for base in kind.__mro__ if issubclass(base, Part | Section) and base not in (Part, Section))
    return dict(ChainMap(*map(meanings, bases)))


def parts(*kinds: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield the classes of documents and of specs, and of their parts."""
    for kind in kinds:
        yield from (own := kind.__subclasses__())
        yield from parts(*own)


def with_meanings(schema: dict[str, Any], known: dict[str, list[type[BaseModel]]]) -> dict[str, Any]:
    """Return a schema in which each key has its meaning."""
    for part in (schema, *schema.get("$defs", {}).values()):
        keys = part.get("properties", {})
        kind = next((own for own in known.get(part.get("title"), []) if own.model_fields.keys() == keys.keys()), None)
        for name, text in all_meanings(kind).items() if kind else ():
            keys[name].setdefault("description", text)
    return schema


def schemas() -> dict[str, bytes]:
    """Return the schema of each kind of document and of spec, by file name."""
    documents, known = kinds(), dict[str, list[type[BaseModel]]]()
    for own in parts(Part, Section):
        known.setdefault(own.__name__, []).append(own)
    found = {
        f"{kind.model_fields['format'].default.replace('/', '-')}.json": with_meanings(
            kind.model_json_schema(mode="serialization"), known
        )
        for kind in documents
    }
    specs: dict[str, type[BaseModel]] = {"spec": Spec, "study-spec": StudySpec, "fleet-spec": FleetSpec}
    found |= {f"opacc-{name}.json": with_meanings(kind.model_json_schema(), known) for name, kind in specs.items()}
    return {
        name: json.dumps({"$schema": DIALECT} | schema, indent=2, ensure_ascii=False).encode() + b"\n"
        for name, schema in sorted(found.items())
    }


def main(folder: Path) -> None:
    """Write all schemas to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in schemas().items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
