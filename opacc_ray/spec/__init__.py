"""A job's specification: YAML in, validated objects out; one file per section.

Every key is declared once, with its default. A wrong key is refused with its full path, its value and the nearest key
that exists.
"""

from opacc_ray.spec.extract import PLACEMENT, ActorRange, CoverageSpec, ExtractSpec
from opacc_ray.spec.functions import load_function, see_modules
from opacc_ray.spec.model import ModelSpec
from opacc_ray.spec.modules import modules_of, sources_of, users_files
from opacc_ray.spec.pool import ColumnsSpec, PoolSpec, ReferenceSpec
from opacc_ray.spec.reading import MAX_NODES, MAX_TEXT, parse_yaml, read_yaml, validated
from opacc_ray.spec.whole import (
    LINK_FIELDS,
    SURPRISE,
    ConflictRule,
    LabelsSpec,
    ManifestSpec,
    SampleSpec,
    ScoreSpec,
    Spec,
    load_spec,
    parse_spec,
)

__all__ = [
    "LINK_FIELDS",
    "MAX_NODES",
    "MAX_TEXT",
    "PLACEMENT",
    "SURPRISE",
    "ActorRange",
    "ColumnsSpec",
    "ConflictRule",
    "CoverageSpec",
    "ExtractSpec",
    "LabelsSpec",
    "ManifestSpec",
    "ModelSpec",
    "PoolSpec",
    "ReferenceSpec",
    "SampleSpec",
    "ScoreSpec",
    "Spec",
    "load_function",
    "load_spec",
    "modules_of",
    "parse_spec",
    "parse_yaml",
    "read_yaml",
    "see_modules",
    "sources_of",
    "users_files",
    "validated",
]
