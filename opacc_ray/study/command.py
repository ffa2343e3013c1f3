"""``opacc study``: options and a spec, if one is given, become a StudySpec; the table goes to the terminal."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from opacc_ray.errors import SpecError
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import read_yaml, validated
from opacc_ray.study.documents import StudyResults
from opacc_ray.study.experiment import Report, run_study
from opacc_ray.study.spec import StudySpec


def study(arguments: Sequence[str], options: Mapping[str, Any], progress: Report) -> tuple[StudyResults, str]:
    """Run the study that the command line describes; returns the results and what to print."""
    spec = read_options(arguments, options)
    results = run_study(spec, progress, shlex.join(["opacc", *sys.argv[1:]]))
    store = open_store(spec.output)
    return results, f"{store.read('table.md').decode()}\nresults    {store.uri}"


def read_options(arguments: Sequence[str], options: Mapping[str, Any]) -> StudySpec:
    """The study of some arguments, and of options by the keys of the spec, which they replace.

    Arguments that end in .yaml are specs, at most one; the others are cases and replace those of the spec. An option
    that is None or empty was not given.
    """
    specs = [item for item in arguments if item.endswith((".yaml", ".yml"))]
    cases = [item for item in arguments if item not in specs]
    if len(specs) > 1:
        raise SpecError(f"{' and '.join(specs)} are two specs; give one")
    source = specs[0] if specs else "opacc study"
    content = read_yaml(specs[0]) if specs else {}
    if isinstance(content, dict):
        given = {key: value for key, value in options.items() if value is not None and value != []}
        content = content | given | ({"cases": cases} if cases else {})
        for key, way in (("cases", "a file or folder"), ("methods", "--method ces"), ("budgets", "--budget 100")):
            if not content.get(key):
                raise SpecError(f"{source}: no {key} given; add {way}, or a spec with {key}")
    return validated(StudySpec, content, source)
