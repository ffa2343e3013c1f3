"""Sets of features in words."""

from opacc_ray.runs.feature_sets import FeatureSets, RemovedSet, StoredSet


def sets(found: FeatureSets) -> str:
    """Some lines a set."""
    lines = [line for item in found.sets for line in _lines(item)]
    lines += [f"note       the header of {name} cannot be read: what it uses is not known" for name in found.unread]
    return "\n".join(lines) or f"no features are shared in {found.output}"


def removed(done: RemovedSet) -> str:
    """What was removed, and what of the runs that used it."""
    chosen = done.removed
    text = f"removed    {chosen.digest}: {_size(chosen)}"
    return f"{text}; to extract it again, run the spec of {', '.join(chosen.runs)}" if chosen.runs else text


def _lines(item: StoredSet) -> list[str]:
    examples = "not complete" if item.examples is None else f"{item.examples} examples"
    weights = f" with weights {item.weights[:16]}" if item.weights else ""
    return [
        f"set        {item.digest}: {examples}, {_size(item)}",
        f"  pool     {item.pool or 'not known'}",
        f"  model    {item.model or 'not known'}{weights}",
        f"  features {', '.join(item.features) or 'none is complete'}",
        f"  runs     {', '.join(item.runs) or 'none'}",
    ]


def _size(item: StoredSet) -> str:
    return f"{item.bytes / 1e6:.1f} MB"
