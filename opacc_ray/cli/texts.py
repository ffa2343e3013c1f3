"""The facts that commands print about rounds, goals, results and comparisons."""

from collections.abc import Sequence
from shlex import quote

from opacc_ray.audit.checks import SpecChecks
from opacc_ray.audit.judge_budget import Way
from opacc_ray.audit.label_budget import LabelBudget
from opacc_ray.audit.status import RunStatus, TrackStatus
from opacc_ray.cli.command import short_name
from opacc_ray.cli.terminal import NEXT
from opacc_ray.errors import counted
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.report.facts import (
    GAP,
    Fact,
    Line,
    changed_texts,
    digits_for,
    ends,
    facts,
    in_a_line,
    noun,
    percent,
    points,
    points_apart,
    round_table,
    stated,
    thousands,
    warned,
)
from opacc_ray.report.stated_numbers import judge_table, metric_lines, metric_name, number_of, slice_lines
from opacc_ray.runs.estimate_documents import AccuracyEstimate, Basis, ChangedObjects, StatedEstimate
from opacc_ray.runs.run_documents import DrawnRound, GoalProgress


def next_step(command: str, run: str, *rest: str, track: str | None = None) -> Fact:
    """Return the command to run next, as it can be pasted."""
    options = ["--track", track] if track else []
    return Fact(NEXT, " ".join(["opacc", command, short_name(run), *rest, *options]))


# -- rounds ----------------------------------------------------------------------------------------------


def drawn(document: DrawnRound, step: Sequence[str]) -> list[Line]:
    """Describe a round, and the command to run next; where it imports labels, also how to make their file."""
    chosen = f"{thousands(document.n)} of {counted(document.pool_size or 0, 'example')} by {document.method}"
    if document.carried_from:
        chosen += f", {thousands(document.n - document.labelled)} of them to be labelled"
    lines = facts(
        ("run", document.run),
        ("track", document.track),
        ("predicted", str(document.predicted or "") if document.round == 1 else None),
        ("selected", chosen),
        *(("manifest", uri) for uri in document.manifests),
    )
    if document.labelled:
        where = f"in {document.carried_from}" if document.carried_from else "on another track"
        known = f"{counted(document.labelled, 'example')} already labelled, {where}; not in the manifests"
        lines += facts(("labelled", known))
        if document.carried_from is None:
            lines.append(_detail("", "the draw did not use these labels"))
    lines += [*facts(("note", document.notice)), *changed(document.objects), *warned(document.warnings)]
    if goal := document.goal:
        asked, reached = points_apart(goal.half_width, goal.looks[-1].half_width)
        now = f"now {reached} with {counted(goal.looks[-1].labels, 'label')}"
        if goal.looks[-1].half_width <= goal.half_width < goal.looks[-1].cautious_half_width:
            now += f", and {points(goal.looks[-1].cautious_half_width)} while so few failures are known"
        rounds = f"{counted(len(goal.sizes), 'round')}, {goal.total_labels} in all"
        more = f"about {counted(goal.labels_to_go, 'more label')} in {rounds}"
        lines += facts(("goal", f"{number_of(goal)}{asked}; {now}{_in_slice(goal)}"), ("expected", more))
        lines.append(_detail("random", f"about {counted(goal.srs_labels, 'label')} by simple random sampling"))
        lines += _notes(goal)
    if step[0] == "labels import":
        file, what = _file_to_fill_in(document)
        step, lines = [step[0], file], [*lines, *facts(("label", what))]
    return [*lines, next_step(step[0], document.run, *step[1:], track=document.track)]


def _file_to_fill_in(document: DrawnRound) -> tuple[str, str | None]:
    """Return a name for the file of labels, and how to make it: a manifest itself must not change."""
    if not document.manifests:
        return "FILE", None
    manifest = next((uri for uri in document.manifests if uri.endswith(".csv")), document.manifests[0])
    suffix = manifest.rpartition(".")[2]
    file = f"labels-{document.round}.{suffix}"
    place = "column" if suffix == "csv" else "field"
    return file, f'copy {manifest} to {file} and fill in the {place} "label"'


def checks(document: SpecChecks, spec: str) -> list[Line]:
    """Describe what was checked, one line per check, and the run that may follow."""
    lines: list[Line] = [
        Fact(item.name, f"{'ok' if item.ok else 'wrong':7}{item.found}", "" if item.ok else "error")
        for item in document.checks
    ]
    lines += warned(document.warnings)
    return [*lines, Fact(NEXT, f"opacc run {spec}")] if all(item.ok for item in document.checks) else lines


def label_budget(document: LabelBudget) -> list[Line]:
    """Describe how many labels a goal needs, and what that rests on."""
    goal = number_of(document) + points(document.half_width)
    if document.reached:
        lines = facts(("reached", f"{goal} with {counted(document.labels, 'label')}; no more are needed"))
    else:
        rounds = ", ".join(map(str, document.sizes))
        how = f"now {document.labels}, then further rounds of" if document.labels else "in rounds of"
        needed = f"{goal} with about {counted(document.total_labels, 'label')}, {how} {rounds}"
        basis, others = _basis_of_budget(document)
        random = f"{counted(document.srs_labels, 'label')} by simple random sampling"
        lines = facts(("goal", needed), ("based on", basis), ("or", others), ("random", random))
    if document.method is not None:
        one = f"{counted(document.method_labels or 0, 'label')} by {document.method} in one round, from the beginning"
        lines += facts(("method", one))
    lines += facts(("judges", _of_judges(document)))
    advice = None if document.reached else document.advice
    return [*lines, *facts(("advice", advice), ("picture", document.picture))]


def step_to_goal(document: LabelBudget, is_table: bool, **options: str | None) -> list[Fact]:
    """Return the command that goes on to the goal; for a file, with the options that read it."""
    from opacc_ray.audit.next_step import until_options  # which estimate does not go through

    goal = until_options(document.half_width, document.metric, document.by)
    if not is_table:
        return [next_step("next", document.run, *goal)] if document.labels and not document.reached else []
    named = [f"--{name} {quote(value)}" for name, value in options.items() if value is not None]
    words = ["opacc audit", quote(document.run), *named, "--budget", str(document.sizes[0]), *goal]
    return [Fact(NEXT, " ".join(words))]


def _of_judges(document: LabelBudget) -> str | None:
    """Return the ways to a goal with judges and without them; None without judges."""
    if document.judges is None or document.reached:
        return None
    ways = (document.judges.present, document.judges.complete, document.judges.without)
    return ", or ".join(_way(own) for own in ways if own is not None)


def _way(own: Way) -> str:
    calls = f"{counted(own.calls, 'judge call')} and " if own.calls else ""
    cost = "" if own.cost is None else f" ({thousands(round(own.cost))})"
    return f"{calls}{counted(own.labels, 'label')}{cost}"


def _basis_of_budget(document: LabelBudget) -> tuple[str, str]:
    """Return what a forecast of labels is based on, and the labels if that is wrong."""
    value, most = percent(document.accuracy), document.most_labels
    useless = f"{document.worthless_labels} labels if the confidence is useless" + (f", {most} at most" if most else "")
    if document.if_predicted_labels is not None:
        useless += f", {document.if_predicted_labels} if it is right about the examples without a label"
    if document.labels:
        return f"{counted(document.labels, 'label')}, which estimate {value}", ""
    if document.basis == "guess":
        what = "accuracy" if document.metric == ACCURACY else metric_name(document.metric)
        return f"a rough guess of {value} {what}; there is no confidence", f"{most} labels at most" if most else ""
    if document.basis == "judges":
        return f"what the judges say, which predicts {value}", useless.replace("the confidence is", "the judges are")
    if document.basis == "history":
        return f"labels of the history, which predict {value}", useless.replace("the confidence", "the history")
    return f"the model's confidence, corrected for usual overconfidence, which predicts {value}", useless


def reached(goal: GoalProgress, run: str, track: str | None) -> list[Line]:
    """Describe a goal that is reached, and the interval to state."""
    labels, rounds = counted(goal.looks[-1].labels, "label"), counted(len(goal.looks), "round")
    return [
        *facts(("reached", f"{number_of(goal)}{points(goal.half_width)} with {labels} in {rounds}{_in_slice(goal)}")),
        Fact("estimate", in_a_line(stated(goal), goal.level, "valid although you stopped at it"), "result"),
        *_notes(goal),
        next_step("report", run, track=track),
    ]


def _notes(goal: GoalProgress) -> list[Fact]:
    found = [("note", goal.advice), ("note", goal.reason)]
    if goal.earlier_goals:
        last = goal.earlier_goals[-1]
        before = (
            f"the goal was {last if isinstance(last, str) else points(last)} before; if the labels made you change it"
        )
        found.append(("note", f"{before}, state the interval of `opacc estimate` that is valid at any time"))
    return facts(*found)


def _in_slice(goal: GoalProgress) -> str:
    """Return which slice the numbers of a goal are of."""
    return f" in {goal.slice}, which has the widest interval" if goal.slice and "=" not in (goal.by or "") else ""


# -- states ----------------------------------------------------------------------------------------------


def status(document: RunStatus) -> list[Line]:
    """Describe what is done, what the run waits for, and the command to run next."""
    examples = None
    if document.examples is not None:
        excluded = f", {thousands(document.excluded or 0)} excluded" if document.excluded else ""
        examples = f"{thousands(document.examples)}{excluded}"
    shards = f"{document.shards.done} of {counted(document.shards.total, 'shard')}"
    lines: list[Line] = [*facts(("run", document.run), ("features", shards), ("examples", examples))]
    lines += [*facts(("pool", document.pool_changes))]
    if document.failure:
        lines.append(Fact("failed", f"{document.failure.at}: {document.failure.error}", "error"))
    lines += [*facts(("predicted", str(document.predicted or ""))), *warned(document.warnings)]
    lines += [*facts(("track", document.track)), *_along(document)]
    for other in document.others:
        lines += [*facts(("track", other.track or "main")), *_along(other)]
    tracks: list[TrackStatus] = [document, *document.others]
    if document.shards.done < document.shards.total or not any(item.rounds for item in tracks):
        return [*lines, Fact(NEXT, "opacc run SPEC.yaml")]
    steps = [(item.step, item.track) for item in tracks if item.step]
    step, track = next((own for own in steps if own[0] != ["report"]), steps[0])
    return [*lines, next_step(step[0], document.run, *step[1:], track=None if step == ["labels list"] else track)]


def _along(document: TrackStatus) -> list[Line]:
    """Describe one track: a table of its rounds, its estimate, and what it waits for."""
    lines: list[Line] = [round_table(document.rounds)] if document.rounds else []
    if estimate := document.estimate:
        labelled = sum(item.labelled for item in document.rounds)
        news = f"{counted(labelled, 'label')} now" if labelled != estimate.n else "labels, rounds or score changed"
        age = f"{GAP}old: {news}" if document.estimate_is_current is False else ""
        lines += [_result(estimate, f"{_sample(estimate)}{age}"), *_measure(estimate)]
    return [*lines, *facts(("waits for", document.waits_for))]


# -- results ---------------------------------------------------------------------------------------------


def estimate(document: AccuracyEstimate, step: Sequence[str] = ("report",)) -> list[Line]:
    """State the accuracy, what the labels are worth, what limits the result, and the command to run next."""
    measure, digits = document.measure, digits_for(document.low, document.high)

    def between(low: float, high: float) -> str:
        return ends(low, high, measure, digits)

    srs, sequence, own = document.srs, document.sequence, document.by_design
    worth = f"worth {counted(round(srs.effective_size), 'random label')}; " if srs.effective_size else ""
    pending = f"; {sequence.reason}" if sequence.reason else ""
    at_any_time = f"valid at any time: {between(sequence.low, sequence.high)}{pending}"
    allowing = f", allows for {' and '.join(document.allows_for)}" if document.allows_for else ""
    lines: list[Line] = [_result(document, _sample(document)), *facts(("", f"{worth}{at_any_time}"))]
    lines.append(_detail("interval", f"{document.interval}{allowing}"))
    if own and document.allows_for:
        lines.append(_detail("by design", f"{between(own.low, own.high)} by the sampling design alone"))
    lines.append(_detail("random", f"{between(srs.low, srs.high)} with {counted(srs.n, 'random label')}"))
    if noise := document.label_noise:
        errors = f"if labels err as annotators differ: on {noise.differ} of {noise.examples} examples with two opinions"
        lines.append(_detail("noise", f"{between(noise.low, noise.high)} {errors}"))
    if document.assisted:
        lines.append(stated_fact("assisted", document.assisted, measure))
    if document.mean_cost:
        lines.append(stated_fact("mean cost", document.mean_cost, "mean cost"))
    for name, found in document.metrics.items():
        lines += metric_lines(name, found, document.reason)
    if document.judges:
        lines.append(judge_table(document.judges))
    for table in document.by_slice:
        lines += slice_lines(table, measure)
    lines += facts(*(("note", text) for text in document.notes))
    lines += basis_facts(document, document.reason, document.n) + warned(document.warnings)
    return [*lines, next_step(step[0], document.run, *step[1:], track=document.track)]


def _sample(document: AccuracyEstimate) -> str:
    """Return the labels of an estimate, their rounds, and the goal that ended sampling."""
    rounds = [item for item in document.rounds if item.labelled]
    several = f" in {len(rounds)} rounds" if len(rounds) > 1 else ""
    goal = f", stopped at {points(document.goal)}" if document.goal else ""
    missing = sum(item.missing for item in rounds)
    if missing and document.n == sum(item.labelled for item in rounds):
        return f"{thousands(document.n)} of {counted(document.n + missing, 'label')}{several}{goal}"
    return f"{counted(document.n, 'label')}{several}{goal}"


def _result(document: AccuracyEstimate, sample: str) -> Fact:
    return stated_fact(noun(document.measure), document, document.measure, sample)


def stated_fact(label: str, found: StatedEstimate, measure: str, sample: str | None = None) -> Fact:
    texts = stated(found, measure)
    return Fact(label, in_a_line(texts, found.level, sample or counted(found.n, "label")), "result")


def basis_facts(document: Basis, reason: str | None, n: int) -> list[Fact]:
    """Describe what a result of ``n`` labels covers, what it leaves out, and why it is not design-based."""
    excluded = f"{counted(document.excluded, 'example')} that could not be read"
    unsure = f'{counted(document.unsure, "example")} with the answer "can\'t tell"'
    given_up = [f"{counted(item.given_up, 'label')} of round {item.round}" for item in document.rounds if item.given_up]
    lines = [
        *facts(("track", document.track)),
        *_measure(document),
        _detail("pool", counted(document.pool_size, "example")),
        *facts(
            ("left out", excluded if document.excluded else None),
            ("left out", unsure if document.unsure else None),
            ("given up", ", ".join(given_up)),
        ),
    ]
    for item in document.rounds:
        counts = sum(other.labelled for other in document.rounds if other.round <= item.round) <= n
        if item.missing and not (item.labelled and counts):
            missing = f"{'' if item.labelled else 'all of '}its {counted(item.missing, 'label')}"
            lines += facts(("left out", f"round {item.round}, which waits for {missing}"))
    return [*lines, *facts(("note", reason)), *changed(document.objects)]


def _measure(document: Basis) -> list[Fact]:
    if document.measure == "accuracy":
        return []
    clipped = f"; {counted(document.clipped, 'label')} beyond the error scale score 0" if document.clipped else ""
    return facts(("measure", f"{document.measure}{clipped}"))


def changed(objects: ChangedObjects | None) -> list[Fact]:
    """Describe which objects of the pool changed since the model read them."""
    if objects is None:
        return []
    if objects.reason:
        return warned([f"whether objects of the pool changed since extraction is not known: {objects.reason}"])
    found = []
    if objects.version:
        found.append(
            f"the pool's table is at {objects.version} now; this run keeps the version that it was made with; the "
            "same spec makes a run with the new one if its files differ"
        )
    texts = changed_texts(objects)
    if texts:
        found.append(
            f"{' and '.join(texts)}, such as {', '.join(objects.first)}; their labels may be of other examples"
        )
    return warned(found)


def _detail(label: str, text: str) -> Fact:
    return Fact(label, text, detail=True)
