"""The specification of an audit: validated sections from YAML.

Every key is declared once, with its default. The error for a wrong key has its full path, its value and the nearest
valid key.
"""

from opacc_ray.spec.audit_spec import SURPRISE, Spec, load_spec, parse_spec
from opacc_ray.spec.pool_spec import PoolSpec, ReferenceSpec, open_pool, plan_pool, rules_of
from opacc_ray.spec.spec_sections import (
    PLACEMENT,
    ConflictRule,
    CoverageSpec,
    ExtractSpec,
    Guidance,
    LabelsSpec,
    ModelSpec,
    ScoreSpec,
)
from opacc_ray.spec.user_modules import load_function, modules_of, see_modules, sources_of, users_files
from opacc_ray.spec.validation import parse_yaml, read_yaml, validated

__all__ = [
    "PLACEMENT",
    "SURPRISE",
    "ConflictRule",
    "CoverageSpec",
    "ExtractSpec",
    "Guidance",
    "LabelsSpec",
    "ModelSpec",
    "PoolSpec",
    "ReferenceSpec",
    "ScoreSpec",
    "Spec",
    "load_function",
    "load_spec",
    "modules_of",
    "open_pool",
    "parse_spec",
    "parse_yaml",
    "plan_pool",
    "read_yaml",
    "rules_of",
    "see_modules",
    "sources_of",
    "users_files",
    "validated",
]
