"""Write the JSON schemas of all documents and specs: python docs/write_schemas.py FOLDER."""

import json
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from pydantic import BaseModel

import opacc_ray
from opacc_ray import documents
from opacc_ray.documents import Document
from opacc_ray.extensions.fleet.fleet_spec import FleetSpec
from opacc_ray.extensions.study.study_spec import StudySpec
from opacc_ray.spec import Spec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def kinds() -> list[type[Document]]:
    """Return every class of documents of the package, by format; importing a module registers its documents."""
    for module in walk_packages(opacc_ray.__path__, "opacc_ray."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return [kind for _, kind in sorted(documents.KINDS.items()) if kind.__module__.startswith("opacc_ray.")]


def schemas() -> dict[str, bytes]:
    """Return the schema of each kind of document and of spec, by file name."""
    found = {
        f"{kind.model_fields['format'].default.replace('/', '-')}.json": kind.model_json_schema(mode="serialization")
        for kind in kinds()
    }
    specs: dict[str, type[BaseModel]] = {"spec": Spec, "study-spec": StudySpec, "fleet-spec": FleetSpec}
    found |= {f"opacc-{name}.json": kind.model_json_schema() for name, kind in specs.items()}
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
