"""The JSON schemas of `docs/schemas`: current, complete, and true of what is written."""

import json
from pathlib import Path

import jsonschema
import pytest
from golden_run import copy_golden_run

from opacc_ray.audit import results
from opacc_ray.audit.status import status
from opacc_ray.cli.document_kinds import KINDS, schemas
from opacc_ray.cli.main import main
from opacc_ray.documents import Document, SealedDocument
from opacc_ray.runs.run import Run

ROOT = Path(__file__).parents[2]


def test_committed_schemas_are_current() -> None:
    committed = {path.name: path.read_bytes() for path in (ROOT / "docs" / "schemas").iterdir()}
    assert committed == schemas(), "write them again: opacc schemas docs/schemas"


def test_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schemas", str(tmp_path), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert sorted(Path(uri).name for uri in written["files"]) == sorted(schemas())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == schemas()


def test_every_kind_of_document_has_a_schema() -> None:

    def kinds(base: type[Document]) -> set[type[Document]]:
        return set(base.__subclasses__()).union(*(kinds(kind) for kind in base.__subclasses__()))

    ours = {kind for kind in kinds(Document) - {SealedDocument} if kind.__module__.startswith("opacc_ray.")}
    assert ours == set(KINDS)


def test_every_key_is_described() -> None:
    def undescribed(schema: dict, place: str) -> list[str]:
        found = [f"{place}.{name}" for name, item in schema.get("properties", {}).items() if "description" not in item]
        for name, part in schema.get("$defs", {}).items():
            found += undescribed(part, f"{place}.{name}")
        return found

    documents = {name: json.loads(data) for name, data in schemas().items() if "spec" not in name}
    ours = [item for name, schema in documents.items() for item in undescribed(schema, name)]
    assert [item for item in ours if "Spec." not in item] == []


def test_documents_fit_their_schemas(tmp_path: Path) -> None:
    run = Run.open(str(copy_golden_run(tmp_path)))
    index = run.read_index()
    assert index is not None
    for document in (run.header, index, results.estimate(run), status(run)):
        name = document.format.replace("/", "-")
        jsonschema.validate(json.loads(document.to_bytes()), json.loads(schemas()[f"{name}.json"]))
