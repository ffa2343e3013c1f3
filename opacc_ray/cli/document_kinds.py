"""All kinds of documents, and their JSON schemas. Importing a module with documents registers them."""

# ruff: noqa: F401

import json
from typing import Literal

from pydantic import BaseModel, Field

from opacc_ray import documents
from opacc_ray.audit import (
    characterization_documents,
    checks,
    comparison,
    evidence_documents,
    exported_case,
    exported_tables,
    exported_training,
    label_budget,
    regress,
    retention,
    run_log,
    status,
    submission,
    suites,
    verify,
)
from opacc_ray.cli import explanations
from opacc_ray.demo import demo_documents
from opacc_ray.documents import Document, format_field
from opacc_ray.extract import feature_set
from opacc_ray.fleet import exposition, fleet_documents, watched_audit
from opacc_ray.fleet.fleet_spec import FleetSpec
from opacc_ray.labels import label_documents
from opacc_ray.labels.page import serve
from opacc_ray.lake.store import write_files
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report import report_documents
from opacc_ray.runs import estimate_documents, feature_sets, run_documents
from opacc_ray.spec import Spec
from opacc_ray.study import characterization_results
from opacc_ray.study import drift as drift_documents
from opacc_ray.study import measures as study_documents
from opacc_ray.study.study_spec import StudySpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class WrittenSchemas(Document):
    """The files of `opacc schemas`."""

    format: Literal["opacc-schemas/1"] = format_field("opacc-schemas/1")
    files: list[str] = Field(description="URIs of the schemas")


def kinds() -> list[type[Document]]:
    """Return every class of documents of this package, by format."""
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


def write_schemas(folder: str) -> WrittenSchemas:
    """Write all schemas to a folder or prefix."""
    return WrittenSchemas(files=write_files(open_store(folder), schemas()))
