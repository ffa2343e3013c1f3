"""All kinds of documents, and their JSON schemas."""

import json
from typing import Any, Literal

from pydantic import BaseModel, Field

from opacc_ray.audit.budget_documents import LabelBudget
from opacc_ray.audit.characterization_documents import Characterization
from opacc_ray.audit.checks import SpecChecks
from opacc_ray.audit.comparison_documents import ModelComparison
from opacc_ray.audit.export import ExportedCase
from opacc_ray.audit.generation_documents import Generation
from opacc_ray.audit.history_documents import KeptHistory
from opacc_ray.audit.plan import RunPlan
from opacc_ray.audit.run_list import RemovedRun, RunList
from opacc_ray.audit.state_documents import RunExit, RunStatus, Submission, Verification
from opacc_ray.audit.tables import ExportedTables
from opacc_ray.cli.method_list import MethodList
from opacc_ray.cli.spec_keys import SpecTemplate
from opacc_ray.demo.documents import DemoResult
from opacc_ray.documents import Document
from opacc_ray.extract.feature_set import FeatureSetDescription
from opacc_ray.extract.index import Index
from opacc_ray.fleet.fleet_documents import AccuracyHistory, AlertNotice, AuditOutcome, DeliveredAlerts, FleetSummary
from opacc_ray.fleet.fleet_spec import FleetSpec
from opacc_ray.labels.documents import (
    AnswerList,
    ExportedLabels,
    ImportedLabels,
    LabelAction,
    LabelAgreement,
    LabellingTasks,
    WithdrawnLabels,
)
from opacc_ray.labels.page.serving import LabelSession
from opacc_ray.lake.storage import open_store
from opacc_ray.lake.store import write_files
from opacc_ray.report.report_documents import RunReport, WrittenCharacterization, WrittenReport
from opacc_ray.runs.documents import (
    AccuracyEstimate,
    ClosedRound,
    Draw,
    DrawnRound,
    Goal,
    RunHeader,
)
from opacc_ray.runs.failure import RunFailure
from opacc_ray.runs.feature_sets import FeatureSets, RemovedSet
from opacc_ray.runs.sanity_documents import ModelSanity
from opacc_ray.spec import Spec
from opacc_ray.study.documents import StudyResults
from opacc_ray.study.spec import StudySpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class WrittenSchemas(Document):
    """The files of `opacc schemas`."""

    format: Literal["opacc-schemas/1"] = Field(default="opacc-schemas/1", description="name and version of this form")
    files: list[str] = Field(description="URIs of the schemas")


KINDS: tuple[type[Document], ...] = (
    SpecChecks,
    RunPlan,
    RunHeader,
    KeptHistory,
    Draw,
    FeatureSetDescription,
    Index,
    FeatureSets,
    RemovedSet,
    ModelSanity,
    DrawnRound,
    Goal,
    LabelBudget,
    ImportedLabels,
    LabelAction,
    WithdrawnLabels,
    AnswerList,
    ExportedLabels,
    LabelAgreement,
    LabellingTasks,
    LabelSession,
    ClosedRound,
    AccuracyEstimate,
    ModelComparison,
    RunReport,
    WrittenReport,
    Characterization,
    WrittenCharacterization,
    Generation,
    FleetSummary,
    AlertNotice,
    AuditOutcome,
    DeliveredAlerts,
    AccuracyHistory,
    RunStatus,
    RunFailure,
    RunList,
    RemovedRun,
    RunExit,
    Submission,
    Verification,
    ExportedCase,
    ExportedTables,
    StudyResults,
    DemoResult,
    MethodList,
    SpecTemplate,
    WrittenSchemas,
)


def schemas() -> dict[str, bytes]:
    """Return the schema of each document and each kind of spec, by file name."""
    found = {_file_name(kind): kind.model_json_schema(mode="serialization") for kind in KINDS}
    asked: dict[str, type[BaseModel]] = {"spec": Spec, "study-spec": StudySpec, "fleet-spec": FleetSpec}
    found |= {f"opacc-{name}.json": kind.model_json_schema() for name, kind in asked.items()}
    return {name: _encode(schema) for name, schema in sorted(found.items())}


def write_schemas(folder: str) -> WrittenSchemas:
    """Write :func:`schemas` to a folder or prefix."""
    return WrittenSchemas(files=write_files(open_store(folder), schemas()))


def _file_name(kind: type[Document]) -> str:
    return f"{kind.model_fields['format'].default.replace('/', '-')}.json"


def _encode(schema: dict[str, Any]) -> bytes:
    return json.dumps({"$schema": DIALECT} | schema, indent=2, ensure_ascii=False).encode() + b"\n"
