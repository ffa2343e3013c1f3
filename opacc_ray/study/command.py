"""``opacc study``: options and a spec, if one is given, become a StudySpec; the table goes to the terminal."""

import argparse
import shlex
import sys
from collections.abc import Callable
from typing import Any

from opacc_ray.errors import SpecError
from opacc_ray.lake.storage import open_store
from opacc_ray.spec import read_yaml, validated
from opacc_ray.study.experiment import run_study
from opacc_ray.study.spec import StudySpec

OPTIONS = {
    "method": "methods",
    "budget": "budgets",
    "repetitions": "repetitions",
    "seed": "seed",
    "level": "level",
    "error_scale": "error_scale",
    "shuffle": "shuffle",
    "workers": "workers",
    "output": "output",
}
"""Option of the command line -> key of the spec, which it replaces."""


def study(options: argparse.Namespace, progress: Callable[[int, int], None]) -> tuple[dict[str, Any], str]:
    """Run the study that the command line describes; returns the results and what to print."""
    spec = read_options(options)
    results = run_study(spec, progress, shlex.join(["opacc", *sys.argv[1:]]))
    store = open_store(spec.output)
    return results, f"{store.read('table.md').decode()}\nresults    {store.uri}"


def read_options(options: argparse.Namespace) -> StudySpec:
    """Arguments that end in .yaml are specs, at most one; the others are cases and replace those of the spec."""
    specs = [item for item in options.cases if item.endswith((".yaml", ".yml"))]
    cases = [item for item in options.cases if item not in specs]
    if len(specs) > 1:
        raise SpecError(f"{' and '.join(specs)} are two specs; give one")
    source = specs[0] if specs else "opacc study"
    content = read_yaml(specs[0]) if specs else {}
    if isinstance(content, dict):
        given = {key: getattr(options, name) for name, key in OPTIONS.items() if getattr(options, name) is not None}
        content = content | given | ({"cases": cases} if cases else {})
        for key, way in (("cases", "a file or folder"), ("methods", "--method ces"), ("budgets", "--budget 100")):
            if not content.get(key):
                raise SpecError(f"{source}: no {key} given; add {way}, or a spec with {key}")
    return validated(StudySpec, content, source)
