"""The experiments of papers: what `opacc study --as NAME` runs on labelled cases, and the tables that it reports.

A preset is the content of a study's spec; keys of a spec and options of the command line replace its keys.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NamedTuple

from opacc_ray.errors import SpecError
from opacc_ray.study import paper_tables as tables

Content = dict[str, Any]


class Paper(NamedTuple):
    """A paper whose experiments are a preset."""

    title: str
    content: Content  # of the spec
    tables: tuple[Callable[[Content], str], ...]  # results.json -> a section of table.md
    curves: bool = False  # whether it shows failures by auxiliary variable


_CES = {"method": "ces", "objective": "cross_entropy", "label": "CES"}
_DEEPEST = [
    {"method": "deepest", "auxiliary": name, "label": f"DeepEST {short}"}
    for name, short in (("confidence", "CS"), ("dsa", "DSA"), ("lsa", "LSA"), ("combined", "C"))
]
_ONCE = {"method": "deepreduce", "repetitions": 1}
_VARIANTS = (
    {"label": "Variant1", "coverage": False},
    {"label": "Variant2", "layer": "hidden", "budget": "as DeepReduce"},
    {"label": "Variant3", "division": "equal_width", "budget": "as DeepReduce"},
    {"label": "Variant4", "heuristic": "random", "budget": "as DeepReduce", "repetitions": 50},
)

PAPERS = {
    "ces": Paper(
        'Li et al., "Boosting Operational DNN Testing Efficiency through Conditioning", ESEC/FSE 2019',
        {
            "methods": [{"method": "srs", "label": "SRS"}, {"method": "css", "label": "CSS"}, _CES],
            "budgets": list(range(35, 181, 5)),
            "repetitions": 50,
        },
        (tables.mean_efficiency,),
    ),
    "ces-small-pools": Paper(
        'Li et al., "Boosting Operational DNN Testing Efficiency through Conditioning", ESEC/FSE 2019, Table 3',
        {
            "methods": [
                {"method": "srs", "label": "SRS"},
                {"method": "ces", "objective": "kl", "initial": 5, "label": "CES"},
            ],
            "budgets": list(range(15, 61, 5)),
            "repetitions": 50,
            "subpools": {"size": 300, "number": 30},
        },
        (tables.mean_efficiency_of_pools,),
    ),
    "deepest": Paper(
        'Guerriero, Pietrantuono, Russo, "Operation is the Hardest Teacher", ICSE 2021',
        {
            "methods": [{"method": "srs", "label": "SRS"}, {"method": "ces", "label": "CES"}, *_DEEPEST],
            "budgets": [50, 100, 200, 400, 800],
            "repetitions": 30,
        },
        (tables.failures, tables.pairs, tables.wins, tables.mean_estimates),
        curves=True,
    ),
    "deepreduce": Paper(
        'Zhou et al., "Cost-Effective Testing of a Deep Learning Model through Input Reduction", ISSRE 2020',
        {
            "methods": [
                _ONCE | {"label": "DeepReduce", "budget": "itself"},
                _CES | {"budget": "as DeepReduce"},
                {"method": "srs", "label": "RANDOM", "budget": "as DeepReduce"},
                _CES | {"label": "CES_kl", "stop_at_kl": 0.001, "budget": "itself", "repetitions": 5},
                {
                    **{"method": "deepreduce", "coverage": False, "heuristic": "random", "label": "RANDOM_kl"},
                    **{"budget": "itself", "repetitions": 5},
                },
                *(_ONCE | {"budget": "itself"} | variant for variant in _VARIANTS),
                *(_ONCE | {"alpha": a, "label": f"α = {a}", "budget": "itself"} for a in (0.05, 0.01, 0.005)),
            ],
            "coverage": "nc:0.5",
            "divergence": True,
            "repetitions": 50,
        },
        (tables.reductions, tables.wilcoxon),
    ),
    "icse2024": Paper(
        'Guerriero, Pietrantuono, Russo, "DeepSample", ICSE 2024',
        {
            "methods": [
                {"method": "srs", "label": "SRS"},
                *(
                    {"method": method, "auxiliary": auxiliary, "label": f"{method} {auxiliary}"}
                    for method in ("sups", "rhcs", "ssrs", "gbs", "two_ups", "deepest")
                    for auxiliary in ("confidence", "dsa", "lsa")
                ),
            ],
            "budgets": [50, 100, 200, 400, 800],
            "repetitions": 30,
        },
        (tables.mean_efficiency, tables.failures, tables.wins),
    ),
}
"""Name -> paper."""


def find_paper(name: str | None) -> Paper | None:
    """Return a paper by name; None if no name is given, SpecError if it is unknown."""
    if name is None or name in PAPERS:
        return PAPERS.get(name or "")
    near = get_close_matches(name, PAPERS, 1)
    raise SpecError(f"--as {name}: " + (f"did you mean {near[0]}?" if near else f"give one of {', '.join(PAPERS)}"))


def report_paper(results: Content) -> str:
    """Return the sections of table.md for the paper of a study; empty if it has none."""
    paper = find_paper(results["spec"]["paper"])
    if paper is None:
        return ""
    sections = (section(results) for section in paper.tables)
    return "\n\n".join([f"# {paper.title}", *filter(None, sections)]) + "\n\n"
