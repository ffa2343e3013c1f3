"""The facts that `opacc compare` prints about two models or more."""

from itertools import combinations

from opacc_ray.audit.comparison import ModelComparison
from opacc_ray.cli.command import short_name
from opacc_ray.cli.texts import basis_facts, stated_fact
from opacc_ray.errors import counted
from opacc_ray.report.facts import Fact, Line, change, facts, in_a_line, level_text, noun, thousands
from opacc_ray.runs.estimate_documents import StatedEstimate

ROUNDED = 0.0005
"""Amount by which a difference may be another one than that of the numbers."""


def comparison(document: ModelComparison) -> list[Line]:
    """State the accuracy of models, their differences, and what these rest on."""
    listed = "the pools were listed differently; examples are matched by their ids alone"
    allowed = " and ".join(document.estimate_allows_for)
    wider = f"the interval of opacc estimate also allows for {allowed}, and these do not" if allowed else None
    note = facts(
        ("note", _by_design(document)),
        ("note", None if document.same_listing else listed),
        ("note", _taught(document)),
        ("note", wider),
    )
    lines = _several(document) if len(document.models) > 2 else _two(document)
    return [*lines, *note, *basis_facts(document, document.difference.reason, document.difference.n)]


def _by_design(document: ModelComparison) -> str | None:
    """Return why the difference is not what subtracting the numbers gives; None if it is."""
    value = {own.run: own.accuracy.value for own in document.models}
    apart = (abs(value[item.first] - value[item.second] - item.difference.value) for item in document.differences)
    if max(apart, default=0.0) < ROUNDED:
        return None
    return (
        "the difference is by the sampling design alone, and the numbers of the models also use predictions for what "
        "is not labelled: it is not what subtracting them gives"
    )


def _taught(document: ModelComparison) -> str | None:
    """Return the remark on labels that a model may have learned from."""
    if not document.taught:
        return None
    labels = counted(document.taught, "label was", "labels were")
    if document.fresh:
        means = "" if document.unlearned else ", and may be smaller on others"
        return (
            f"{labels} exported as training data before they were drawn, as often as by chance: the difference is that "
            f"on this pool, with the examples that a model learned{means}"
        )
    return (
        f"{labels} exported as training data, and a model that learned from them looks "
        "better here than on the pool; draw anew with opacc select RUN --track after, and compare on that track"
    )


def _two(document: ModelComparison) -> list[Line]:
    """State two models, their difference, and on how many labels each is better."""
    first, second = document.num_first_better, document.num_second_better
    neither = document.difference.n - first - second
    unlike = document.num_unlike
    differ = None if unlike is None else f"{thousands(unlike)} of {thousands(document.pool_size)} predictions differ"
    wins = f"the first on {counted(first, 'label')}, the other on {second}, neither on {neither}"
    best = f"the first, with probability {_probability(document.models[0].best)}" if document.models else None
    if unlike == 0:
        best = "neither: all predictions are equal"
    elif first == second == 0:
        best = "neither: the models are equal on all labels so far"
    return [
        stated_fact(noun(document.measure), document.first, document.measure, short_name(document.run)),
        stated_fact("other", document.second, document.measure, short_name(document.other)),
        _difference("difference", document.difference, document.measure),
        *_unlearned(document),
        *facts(("unlike", differ), ("better", wins), ("best", best)),
    ]


def _unlearned(document: ModelComparison) -> list[Line]:
    """State the difference on the examples that no model learned."""
    found, num = document.unlearned, document.num_unlearned
    if found is None or num is None:
        return []
    where = f"on the {thousands(num)} examples not exported as training data"
    return [Fact("not learned", in_a_line(change(found, document.measure), found.level, where), "result")]


def _several(document: ModelComparison) -> list[Line]:
    """State three models or more, numbered, and all their differences."""
    numbered = list(enumerate(document.models, start=1))
    lines: list[Line] = [
        stated_fact(f"model {place}", own.accuracy, document.measure, short_name(own.run)) for place, own in numbered
    ]
    for (a, b), pair in zip(combinations(range(1, len(numbered) + 1), 2), document.differences, strict=True):
        unlike = "" if pair.num_unlike is None else f", {counted(pair.num_unlike, 'prediction')} differ"
        lines.append(_difference(f"{a} - {b}", pair.difference, document.measure, unlike))
    likely = sorted(numbered, key=lambda item: -item[1].best)
    best = ", ".join(f"model {place} with probability {_probability(own.best)}" for place, own in likely)
    if all(pair.num_unlike == 0 for pair in document.differences):
        best = "none: all predictions are equal"
    together = f"all differences hold with {level_text(document.difference.level)} confidence"
    return [*lines, *facts(("best", best), ("together", together))]


def _difference(label: str, found: StatedEstimate, measure: str, more: str = "") -> Fact:
    sample = f"{counted(found.n, 'label')}{more}"
    return Fact(label, in_a_line(change(found, measure), found.level, sample), "result")


def _probability(value: float) -> str:
    if 0.001 <= value <= 0.999:
        return f"{value:.3f}"
    return "below 0.001" if value < 0.5 else "above 0.999"
