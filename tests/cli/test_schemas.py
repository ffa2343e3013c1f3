"""The JSON schemas of documents: current, complete, and valid for what is written."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from golden_run import copy_golden_run
from write_schemas import kinds, schemas

from opacc_ray.audit import accuracy
from opacc_ray.audit.status import status
from opacc_ray.runs.run import Run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", name="made")
def made_schemas() -> dict[str, bytes]:
    return schemas()


@pytest.mark.parametrize("name", ["opacc-spec.json", "opacc-fleet-spec.json"])
def test_committed_schemas_are_current(name: str, made: dict[str, bytes]) -> None:
    """Editors read them from the repository; `make docs-site` generates the others."""
    committed = (ROOT / "docs" / "schemas" / name).read_bytes()
    assert committed == made[name], "write them again: make docs-pages"


def test_every_kind_of_document_has_a_schema() -> None:
    """Also of modules that the command does not import: every class that declares a format is known."""
    texts = [path.read_text() for path in (ROOT / "opacc_ray").rglob("*.py")]
    form = re.compile(r'format: Literal\["(opacc-[a-z-]+/\d+)"\]')
    declared = {found for text in texts for found in form.findall(text)}
    assert declared == {kind.model_fields["format"].default for kind in kinds()}
    assert len(declared) > 40


def test_every_key_is_described(made: dict[str, bytes]) -> None:
    def undescribed(schema: dict, place: str) -> list[str]:
        found = [f"{place}.{name}" for name, item in schema.get("properties", {}).items() if "description" not in item]
        for name, part in schema.get("$defs", {}).items():
            found += undescribed(part, f"{place}.{name}")
        return found

    assert [item for name, data in made.items() for item in undescribed(json.loads(data), name)] == []


def test_documents_fit_their_schemas(made: dict[str, bytes], tmp_path: Path) -> None:
    run = Run.open(str(copy_golden_run(tmp_path)))
    index = run.read_index()
    assert index is not None
    for document in (run.header, index, accuracy.estimate(run), status(run)):
        name = document.format.replace("/", "-")
        jsonschema.validate(json.loads(document.to_bytes()), json.loads(made[f"{name}.json"]))
