"""Documents as people read them on a terminal."""

from collections.abc import Sequence
from itertools import combinations
from shlex import quote

from opacc_ray.audit.checks import SpecChecks
from opacc_ray.audit.exported_case import ExportedCase
from opacc_ray.audit.exported_tables import ExportedTables
from opacc_ray.audit.label_budget import LabelBudget
from opacc_ray.audit.several_models import ComparedPair, ModelComparison
from opacc_ray.audit.status import RunStatus, TrackStatus
from opacc_ray.audit.submission import Submission
from opacc_ray.audit.verify import Verification
from opacc_ray.errors import counted
from opacc_ray.estimators.intervals import clipped
from opacc_ray.runs.estimate_documents import AccuracyEstimate, Basis, ChangedObjects, RoundCounts, StatedEstimate
from opacc_ray.runs.run_documents import DrawnRound, GoalProgress, Predicted


def drawn(document: DrawnRound) -> str:
    """A round that waits for labels."""
    lines = [
        f"run        {document.run}",
        *_track(document.track),
        *(predicted(document.predicted) if document.round == 1 else []),
        f"selected   {document.n} of {document.pool_size} examples by {document.method}",
        *(f"manifest   {uri}" for uri in document.manifests),
        *_labelled(document),
        f"next       label them, then: opacc labels import {quote(document.run)} FILE{_option(document.track)}",
        *([f"note       {document.notice}"] if document.notice else []),
        *changed(document.objects),
        *warned(document.warnings),
    ]
    if document.goal:
        lines += _ahead(document.goal)
    return "\n".join(lines)


def predicted(found: Predicted | None) -> list[str]:
    """What the model predicts of the pool."""
    return [f"predicted  {found}"] if found and str(found) else []


def warned(warnings: Sequence[str]) -> list[str]:
    """Reasons to doubt that the model is the one that is meant."""
    return [f"warning    {text}" for text in warnings]


def _track(name: str | None) -> list[str]:
    return [] if name is None else [f"track      {name}"]


def _option(track: str | None) -> str:
    return "" if track is None else f" --track {track}"


def _labelled(document: DrawnRound) -> list[str]:
    """Which examples need no label, and that their labels did not steer the draw."""
    if not document.labelled:
        return []
    return [
        f"labelled   {document.labelled} of its examples have a label already, and the manifests leave them out; "
        "labels of other tracks count, but no draw learns from them"
    ]


def checks(document: SpecChecks) -> str:
    """One line a check."""
    lines = [f"{item.name:10} {'ok' if item.ok else 'wrong':6} {item.found}" for item in document.checks]
    return "\n".join([*lines, *warned(document.warnings)])


def label_budget(document: LabelBudget) -> str:
    """How many labels a goal takes, and what that rests on."""
    goal = f"±{document.half_width:g}"
    if document.reached:
        lines = [f"reached    {goal} with {document.labels} labels; no more are needed"]
    else:
        rounds = ", ".join(map(str, document.sizes))
        lines = [
            f"goal       {goal} with about {document.total_labels} labels, the next rounds of {rounds}",
            *_rests_on(document),
            f"by SRS     {document.srs_labels} labels, if that is right",
        ]
    if document.method is not None:
        lines.append(
            f"by method  {document.method_labels} labels by {document.method} in one round, from the beginning"
        )
    if document.advice and not document.reached:
        lines.append(f"advice     {document.advice}")
    if document.picture:
        lines.append(f"picture    {document.picture}")
    return "\n".join(lines)


def _rests_on(document: LabelBudget) -> list[str]:
    if document.labels:
        return [f"rests on   {document.labels} labels, by which the estimate is {document.accuracy:.4f}"]
    return [
        f"rests on   the model's own word, by which the estimate is about {document.accuracy:.4f}",
        f"or         {document.worthless_labels} labels if it says nothing of where failures are, "
        f"{document.most_labels} whatever is true",
    ]


def reached(goal: GoalProgress) -> str:
    """The interval is narrow enough: what to state."""
    lines = [
        f"reached    ±{goal.half_width:g} with {goal.looks[-1].labels} labels in {counted(len(goal.looks), 'round')}; "
        "no more labels are needed",
        f"estimate   {clipped(goal):.4f}, {100 * goal.level:g}% interval {goal.low:.4f} to {goal.high:.4f}, "
        "which holds though you stop because it is narrow",
    ]
    return "\n".join([*lines, *_notes(goal)])


def _ahead(goal: GoalProgress) -> list[str]:
    """How near a goal is, and what it takes."""
    now, rounds = goal.looks[-1], len(goal.sizes)
    return [
        f"goal       ±{goal.half_width:g}; it is ±{now.half_width:.2g} with {now.labels} labels",
        f"expected   about {goal.labels_to_go} more labels in {rounds} round{'s' * (rounds > 1)}, "
        f"{goal.total_labels} in all; a simple random sample takes about {goal.srs_labels}",
        *_notes(goal),
    ]


def _notes(goal: GoalProgress) -> list[str]:
    notes = [goal.advice, goal.reason]
    if goal.earlier_goals:
        notes.append(
            f"the goal was ±{goal.earlier_goals[-1]:g} before; if it was changed for what the labels show, state the "
            "interval of `opacc estimate` that holds at any time"
        )
    return [f"note       {text}" for text in notes if text]


def status(document: RunStatus) -> str:
    """What is done and what the run waits for."""
    lines = [
        f"run        {document.run}",
        f"features   {document.shards.done} of {document.shards.total} shards",
    ]
    if document.examples is not None:
        lines.append(f"examples   {document.examples}, {document.excluded} excluded")
    lines += [f"failed     {document.failure.at}: {document.failure.error}"] if document.failure else []
    lines += [*predicted(document.predicted), *warned(document.warnings)]
    lines += [*_track(document.track), *_along(document, document.run)]
    for other in document.others:
        lines += [f"track      {other.track or 'the first one'}", *_along(other, document.run)]
    return "\n".join(lines)


def submission(document: Submission) -> str:
    """A job that was sent or found, and how it ended."""
    how = "was there already" if document.found else f"was sent with {counted(len(document.modules), 'file')} of code"
    lines = [f"job        {document.id} {how}", f"run        {document.run}"]
    if document.ended is None:
        return "\n".join([*lines, "ended      not yet; the same command follows it, `ray job stop` stops it"])
    lines.append(f"ended      {document.ended}")
    return "\n".join(lines + ([f"waits for  {document.waits_for}"] if document.waits_for else []))


def _along(document: TrackStatus, run: str) -> list[str]:
    """What is done along one track, and what it waits for."""
    lines = [
        f"round {item.round}    {item.method}: {item.labelled} of {item.budget} labelled, {item.missing} missing, "
        f"{item.unsure} can't tell, {item.given_up} given up"
        for item in document.rounds
    ]
    if document.estimate:
        lines.append(f"{_name(document.estimate)} {accuracy(document.estimate)}{_age(document, run)}")
        lines += _measure(document.estimate)
    return [*lines, f"waits for  {document.waits_for}"]


def _age(document: TrackStatus, run: str) -> str:
    if document.estimate is None or document.estimate_is_current is not False:
        return ""
    labelled = sum(item.labelled for item in document.rounds)
    came = (
        f"{labelled} labels are in now"
        if labelled != document.estimate.n
        else "answers, rounds or the score have changed since"
    )
    partial = " --partial" if any(item.missing and item.labelled for item in document.rounds) else ""
    return f"; this is old: {came}, so state it anew with opacc estimate {quote(run)}{_option(document.track)}{partial}"


def verification(document: Verification) -> str:
    """What is wrong with a run, or that nothing is."""
    lines = [f"run        {document.run}", f"checked    {document.checked} files"]
    lines += [*(f"fault      {fault.problem}" for fault in document.faults), *changed(document.objects)]
    return "\n".join(
        [*lines, "sound      nothing is wrong" if document.sound else f"faults     {len(document.faults)}"]
    )


def estimate(document: AccuracyEstimate) -> str:
    """The accuracy, what else the labels say, and what it rests on."""
    plain, sequence = document.srs, document.sequence
    worth = f"; these are worth {plain.effective_size:.0f} of its labels" if plain.effective_size else ""
    pending = f"; {sequence.reason}" if sequence.reason else ""
    own, others = document.by_design, " and ".join(document.allows_for)
    lines = [
        f"{_name(document)} {accuracy(document)}",
        *([f"by design  {own.low:.4f} to {own.high:.4f}, which does not allow for {others}"] if own and others else []),
        f"by SRS     {plain.low:.4f} to {plain.high:.4f} with as many labels{worth}",
        f"any time   {sequence.low:.4f} to {sequence.high:.4f}, which holds however often you look{pending}",
    ]
    if document.assisted:
        lines.append(f"assisted   {accuracy(document.assisted)}")
    if document.mean_cost:
        lines.append(f"mean cost  {accuracy(document.mean_cost)}")
    if noise := document.label_noise:
        lines.append(
            f"noise      {noise.low:.4f} to {noise.high:.4f} if annotators err as they differ: on {noise.differ} of "
            f"{noise.examples} examples with two opinions"
        )
    lines += [f"note       {text}" for text in document.notes]
    return "\n".join([*lines, *_basis(document, document.reason, document.n), *warned(document.warnings)])


def comparison(document: ModelComparison) -> str:
    """Models, their differences, and what these rest on."""
    basis = _basis(document, document.difference.reason, document.difference.n)
    if len(document.models) > 2:
        return "\n".join([*_several(document), *_listed(document), *basis])
    first, second = document.num_first_better, document.num_second_better
    neither = document.difference.n - first - second
    lines = [
        f"{_name(document)} {accuracy(document.first)} of {document.run}",
        f"other      {accuracy(document.second)} of {document.other}",
        f"difference {accuracy(document.difference, '+.4f')}",
        *_unlike(document),
        f"better     the first on {first} labels, the other on {second}, neither on {neither}",
    ]
    if document.models:
        lines.append(f"best       the first with probability {_probability(document.models[0].best)}")
    return "\n".join([*lines, *_listed(document), *basis])


def _several(document: ModelComparison) -> list[str]:
    """Three models or more, numbered, and all their differences."""
    numbered = list(enumerate(document.models, start=1))
    pairs = zip(combinations(range(1, len(numbered) + 1), 2), document.differences, strict=True)
    likely = sorted(numbered, key=lambda item: -item[1].best)
    return [
        *(f"model {number:<4} {accuracy(own.accuracy)} of {own.run}" for number, own in numbered),
        *(f"{f'{a} - {b}':10} {accuracy(pair.difference, '+.4f')}{_of_all(pair)}" for (a, b), pair in pairs),
        "best       "
        + ", ".join(f"model {number} with probability {_probability(own.best)}" for number, own in likely),
        f"together   all differences hold with {100 * document.difference.level:g}%",
    ]


def _unlike(document: ModelComparison) -> list[str]:
    if document.num_unlike is None:
        return []
    return [f"unlike     on {document.num_unlike} of {document.pool_size} examples the two say different things"]


def _of_all(pair: ComparedPair) -> str:
    return "" if pair.num_unlike is None else f"; unlike on {counted(pair.num_unlike, 'example')}"


def _listed(document: ModelComparison) -> list[str]:
    if document.same_listing:
        return []
    which = "two pools" if len(document.models) <= 2 else "pools"
    return [f"note       the {which} were listed differently; examples are matched by their ids alone"]


def _probability(value: float) -> str:
    if 0.001 <= value <= 0.999:
        return f"{value:.3f}"
    return "below 0.001" if value < 0.5 else "above 0.999"


def tables(document: ExportedTables) -> str:
    """The tables of a run in a lake."""
    lines = [f"to         {document.to}"]
    lines += [f"{name:<11}{rows} rows" for name, rows in document.rows.items()]
    return "\n".join([*lines, f"dictionary {document.dictionary}"])


def exported(document: ExportedCase) -> str:
    """A case that was written, and what of the pool it is."""
    examples = f"examples   {document.examples} of {document.pool_size}"
    if document.examples < document.pool_size:
        share = document.examples / document.pool_size
        examples += (
            f", {share:.1%} of the pool: those that have a label, as they were chosen, so a study of them says "
            f"little of the pool; {document.unlabelled} have none, and of {document.unsure} nobody could tell"
        )
    else:
        examples += ", the whole pool"
    lines = [f"case       {document.file}", examples, f"columns    {', '.join(document.columns)}"]
    return "\n".join([*lines, f"{_name(document)} {document.value:.4f} of these examples", *changed(document.objects)])


def _basis(document: Basis, reason: str | None, n: int) -> list[str]:
    """What a result of ``n`` labels is of, what it leaves out, and why it is not design-based."""
    lines = [*_track(document.track), *_measure(document), f"pool       {counted(document.pool_size, 'example')}"]
    if document.excluded:
        lines[-1] += f"; {document.excluded} more could not be read and are not counted"
    if document.unsure:
        lines.append(f"left out   {counted(document.unsure, 'example')} that annotators could not tell")
    given_up = _given_up(document.rounds)
    if given_up:
        lines.append(f"given up   {given_up}")
    for item in document.rounds:
        counts = sum(other.labelled for other in document.rounds if other.round <= item.round) <= n
        if item.missing and not (item.labelled and counts):
            all_of = "" if item.labelled else "all of "
            lines.append(f"left out   round {item.round}, which waits for {all_of}its {counted(item.missing, 'label')}")
    if reason:
        lines.append(f"note       {reason}")
    return [*lines, *changed(document.objects)]


def changed(objects: ChangedObjects | None) -> list[str]:
    """Which objects of the pool are not those that the model saw."""
    if objects is None:
        return []
    if objects.reason:
        return [f"warning    whether objects of the pool changed since extraction is not known: {objects.reason}"]
    lines = []
    if objects.version:
        lines.append(
            f"warning    the pool's table is at {objects.version} now; this run goes on with the version that it was "
            "made of, and the same spec would make a run of the new one"
        )
    if not (objects.changed or objects.lost):
        return lines
    names = ", ".join(objects.first)
    return [
        *lines,
        f"warning    {objects.changed} objects of chosen examples changed since the model saw them, and {objects.lost} "
        f"are gone, such as {names}; their labels may be of other examples",
    ]


def _name(document: Basis | ExportedCase) -> str:
    """What a result is called: the score of a regression is no accuracy."""
    return "accuracy  " if document.measure == "accuracy" else "score     "


def _measure(document: Basis) -> list[str]:
    """What the score of a regression is."""
    if document.measure == "accuracy":
        return []
    clipped = f"; {document.clipped} labels lie further off and score 0" if document.clipped else ""
    return [f"measure    {document.measure}{clipped}"]


def _given_up(rounds: Sequence[RoundCounts]) -> str:
    return ", ".join(f"{counted(item.given_up, 'label')} of round {item.round}" for item in rounds if item.given_up)


def accuracy(stated: StatedEstimate, form: str = ".4f") -> str:
    """A value cut to its interval."""
    return interval(stated.model_copy(update={"value": clipped(stated)}), form)


def interval(stated: StatedEstimate, form: str = ".4f") -> str:
    """A value with its interval."""
    value, low, high = (f"{number:{form}}" for number in (stated.value, stated.low, stated.high))
    return (
        f"{value}, {100 * stated.level:g}% interval {low} to {high} ({stated.interval}, {counted(stated.n, 'label')})"
    )
