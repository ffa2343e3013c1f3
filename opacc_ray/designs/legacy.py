"""Selections of format 1 (version 0.1.0), which held their design as columns and facts without a name.

Which of them were there told designs apart. They become the content of a named design, which is then read and checked
as any other.
"""

from typing import Any, NamedTuple

CES = "CES chooses groups by optimisation, so no design-based variance exists"


class Old(NamedTuple):
    """A selection, or one of its replicates, as format 1 had it."""

    method: str
    parameters: dict[str, Any]
    pool_size: int
    num: int
    columns: dict[str, list[Any]]  # per example
    facts: dict[str, Any]


def design_of(old: Old) -> dict[str, Any]:
    """What ``Design.to_json`` gives for the same design."""
    columns, facts = old.columns, old.facts
    if "replicate" in columns:
        return _replicates(old)
    if "stratum" in columns:
        return {"type": "stratified", "sizes": facts["stratum_size"]} | columns
    if "group_probability" in columns:
        return {"type": "Rao-Hartley-Cochran"} | _facts(old, "least_probability") | columns
    if "num_before" in columns:
        return {"type": "step by step"} | _facts(old, "population", "least_probability") | columns
    if "draw_probability" in columns:
        return {"type": "Hansen-Hurwitz"} | _facts(old, "population", "least_probability") | columns
    if "inclusion_probability" in columns:
        population = old.pool_size - len(facts["labelled_before"])
        known = _facts(old, "predicted_failures", "num_drawn", "labelled_before")
        return {"type": "inclusion probability", "population": population} | known | columns
    sample = {"num": old.num, "population": old.pool_size}
    if old.method in ("ces", "deepreduce"):
        return {"type": "purposive", "why": _why(old)} | sample | columns
    return {"type": "simple random", "replacement": bool(old.parameters.get("replacement"))} | sample


def facts_beside(old: Old) -> dict[str, Any]:
    """The facts that no design holds."""
    stated = {name: item for name, item in old.facts.items() if name in ("kl", "requirements", "requirements_unmet")}
    inner = old.facts.get("replicate_facts", [])
    own = [facts_beside(old._replace(facts=facts)) for facts in inner]
    return stated | ({"replicates": own} if any(own) else {})


def _replicates(old: Old) -> dict[str, Any]:
    number, sizes = old.columns["replicate"], old.facts["replicate_size"]
    columns = {name: values for name, values in old.columns.items() if name != "replicate"}
    designs = []
    for r, size in enumerate(sizes):
        places = [k for k, own in enumerate(number) if own == r]
        part = {name: [values[k] for k in places] for name, values in columns.items()}
        own = old._replace(pool_size=size, num=len(places), columns=part, facts=old.facts["replicate_facts"][r])
        designs.append({name: item for name, item in design_of(own).items() if name not in columns})
    return {"type": "replicates", "sizes": sizes, "designs": designs, "replicate": number} | columns


def _facts(old: Old, *names: str) -> dict[str, Any]:
    return {name: old.facts[name] for name in names}


def _why(old: Old) -> str:
    if old.method == "ces":
        return CES
    unmet, kl = old.facts["requirements_unmet"], old.facts["kl"]
    if not unmet:
        return f"DeepReduce chooses without chance (KL to the pool {kl:.2g}), so no design-based variance exists"
    return (
        f"the budget ended DeepReduce with {unmet} of {old.facts['requirements']} coverage requirements unmet, before "
        "it looked at the distribution of outputs: the sample does not resemble the pool"
    )
