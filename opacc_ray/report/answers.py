"""What an answer of a command tells people: facts and tables of its document, and the command to run next."""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations, groupby
from shlex import join, quote
from typing import TYPE_CHECKING

from opacc_ray.audit.status import status as status_of
from opacc_ray.audit.status import step_of, until_options
from opacc_ray.errors import OpaccError, counted
from opacc_ray.labels.formats import few, quoted
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.report import facts
from opacc_ray.runs.run_names import short_name

if TYPE_CHECKING:
    from opacc_ray.audit.checks import RunPlan, SpecChecks
    from opacc_ray.audit.comparison import ModelComparison
    from opacc_ray.audit.goals import LabelBudget
    from opacc_ray.audit.status import RunLog, RunStatus
    from opacc_ray.labels.desk import LabelSession
    from opacc_ray.labels.label_actions import AnswerList, ImportedLabels, WithdrawnLabels
    from opacc_ray.report.report_documents import WrittenReport
    from opacc_ray.runs import run_documents as documents
    from opacc_ray.runs.run import Run
    from opacc_ray.runs.run_documents import DrawnRound, GoalProgress

TELLING = 0.1
"""Half of the width that is proposed for a metric with too few labels to tell."""

ROUNDED = 0.0005
"""Amount by which a difference may be another one than that of the numbers."""


def next_step(command: str, run: str, *rest: str) -> facts.Fact:
    """Return the command to run next, as it can be pasted."""
    return facts.next_fact("opacc", command, short_name(run), *rest)


def number_of(goal: "GoalProgress | LabelBudget") -> str:
    """Return the number that a goal is about, and a space; nothing for the accuracy of the pool."""
    if goal.by is None:
        return "" if goal.metric == ACCURACY else f"{facts.metric_name(goal.metric)} "
    return f"{facts.metric_name(goal.metric)} by {goal.by} "


def round_done(goal: "GoalProgress") -> str:
    """Return what is known after a round, and what its goal still takes."""
    look, what = goal.looks[-1], number_of(goal)
    asked, half_width = (text.removesuffix(" points") for text in facts.points_apart(goal.half_width, look.half_width))
    known = f"round {look.round} done: {what}{facts.stated(goal, goal.metric).value}, {half_width}"
    if goal.reached:
        return f"{known}; that is enough for {asked}"
    return f"{known}; round {look.round + 1}: {goal.sizes[0]} more for {asked}"


# -- rounds ----------------------------------------------------------------------------------------------


def drawn(document: "DrawnRound") -> list[facts.Line]:
    """Describe a round, and the command to run next; where it imports labels, also how to make their file."""
    if document.goal and document.goal.reached:
        return _reached(document.goal, document.run)
    chosen = f"{facts.thousands(document.n)} of {counted(document.pool_size or 0, 'example')} by {document.method}"
    if document.carried_from:
        chosen += f", {facts.thousands(document.n - document.labelled)} of them to be labelled"
    lines = facts.facts(
        ("run", document.run),
        ("predicted", str(document.predicted or "") if document.round == 1 else None),
        ("selected", chosen),
        *(("manifest", uri) for uri in document.manifests),
    )
    if document.labelled:
        where = f", in {document.carried_from}" if document.carried_from else ""
        known = f"{counted(document.labelled, 'example')} already labelled{where}; not in the manifests"
        lines += facts.facts(("labelled", known))
    lines += [*facts.facts(("note", document.notice)), *changed(document.objects), *facts.warned(document.warnings)]
    if goal := document.goal:
        asked, reached = facts.points_apart(goal.half_width, goal.looks[-1].half_width)
        now = f"now {reached} with {counted(goal.looks[-1].labels, 'label')}"
        if goal.looks[-1].half_width <= goal.half_width < goal.looks[-1].cautious_half_width:
            now += f", and {facts.points(goal.looks[-1].cautious_half_width)} while so few failures are known"
        rounds = f"{counted(len(goal.sizes), 'round')}, {goal.total_labels} in all"
        more = f"about {counted(goal.labels_to_go, 'more label')} in {rounds}"
        lines += facts.facts(("goal", f"{number_of(goal)}{asked}; {now}{_in_slice(goal)}"), ("expected", more))
        lines.append(_detail("random", f"about {counted(goal.srs_labels, 'label')} by simple random sampling"))
        lines += _notes(goal)
    verb, *rest = document.step
    if verb == "labels import":
        file, what = _file_to_fill_in(document) if rest == ["FILE"] else (short_name(*rest), None)
        rest, lines = [file], [*lines, *facts.facts(("label", what))]
    return [*lines, next_step(verb, document.run, *rest)]


def _file_to_fill_in(document: "DrawnRound") -> tuple[str, str | None]:
    """Return a name for the file of labels, and how to make it: a copy, since a run may be in a bucket."""
    if not document.manifests:
        return "FILE", None
    manifest = next((uri for uri in document.manifests if uri.endswith(".csv")), document.manifests[0])
    suffix = manifest.rpartition(".")[2]
    file = f"labels-{document.round}.{suffix}"
    place = "column" if suffix == "csv" else "field"
    return file, f'copy {manifest} to {file} and fill in the {place} "label"'


def checks(document: "SpecChecks", spec: str) -> list[facts.Line]:
    """Describe what was checked, one line per check, and the run that may follow."""
    lines: list[facts.Line] = [
        facts.Fact(item.name, f"{'ok' if item.ok else 'wrong':7}{item.found}", "" if item.ok else "error")
        for item in document.checks
    ]
    lines += [*facts.warned(document.warnings), *(_plan(document.plan) if document.plan else [])]
    return [*lines, facts.next_fact("opacc run", spec)] if document.ok else lines


def _plan(document: "RunPlan") -> list[facts.Fact]:
    """Describe what a run will take."""
    pace, requests, half = document.pace, document.requests, document.bfloat16
    about, files = "about " * document.estimated, counted(document.files, "file")
    examples = f"{about}{counted(document.examples, 'example')} in {files}"
    actors = counted(document.actors, "actor")
    per_actor, driver = facts.size(document.memory_actor), facts.size(document.memory_driver)
    took = f"{1000 * pace.reading:.2g} ms to read, {1000 * pace.computing:.2g} ms to compute on {pace.device}"
    without = f"{', '.join(document.left_out)}, which compare with a reference" if document.left_out else None
    return facts.facts(
        ("work", f"{counted(document.shards, 'shard')}: {examples}"),
        ("pool", document.pool_changes and f"{document.pool_changes}; only new and changed objects are read"),
        ("requests", f"{requests.list} lists, {requests.read} reads, {requests.write} writes"),
        ("bytes", f"{facts.size(document.bytes_read)} read, {facts.size(document.bytes_written)} of features written"),
        ("time", f"{facts.seconds(3600 * document.hours)} with {actors}, without start-up"),
        ("memory", f"at most {per_actor} per actor, {driver} for the driver"),
        ("measured", took),
        (
            "bfloat16",
            half and f"{half.gain:.2g} × as fast; outputs change by up to {100 * half.change:.2g} % of the largest",
        ),
        ("without", without),
    )


def label_budget(document: "LabelBudget") -> list[facts.Line]:
    """Describe how many labels a goal needs, and what that rests on."""
    goal = number_of(document) + facts.points(document.half_width)
    if document.reached:
        lines = facts.facts(("reached", f"{goal} with {counted(document.labels, 'label')}; no more are needed"))
    else:
        rounds = ", ".join(map(str, document.sizes))
        how = f"now {document.labels}, then further rounds of" if document.labels else "in rounds of"
        needed = f"{goal} with about {counted(document.total_labels, 'label')}, {how} {rounds}"
        basis, others = _basis_of_budget(document)
        random = f"{counted(document.srs_labels, 'label')} by simple random sampling"
        lines = facts.facts(("goal", needed), ("based on", basis), ("or", others), ("random", random))
    if document.reached:
        return [*lines]
    ways = list[str]()
    if judges := document.judges:
        for way in filter(None, (judges.present, judges.complete, judges.without)):
            calls = f"{counted(way.calls, 'judge call')} and " if way.calls else ""
            ways.append(f"{calls}{counted(way.labels, 'label')}")
    return [*lines, *facts.facts(("judges", ", or ".join(ways)), ("advice", document.advice))]


def step_to_goal(document: "LabelBudget", is_table: bool, columns: str | None = None) -> list[facts.Fact]:
    """Return the command that goes on to the goal; for a file, with the columns that were read."""
    goal = until_options(document.half_width, document.metric, document.by)
    if not is_table:
        return [next_step("next", document.run, *goal)] if document.labels and not document.reached else []
    named = [f"--columns {quote(columns)}"] if columns is not None else []
    return [facts.next_fact("opacc audit", quote(document.run), *named, "--budget", str(document.sizes[0]), *goal)]


def _basis_of_budget(document: "LabelBudget") -> tuple[str, str]:
    """Return what a forecast of labels is based on, and the labels if that is wrong."""
    value, most = facts.percent(document.accuracy), document.most_labels
    useless = f"{document.worthless_labels} labels if the confidence is useless" + (f", {most} at most" if most else "")
    if document.if_predicted_labels is not None:
        useless += f", {document.if_predicted_labels} if it is right about the examples without a label"
    if document.labels:
        return f"{counted(document.labels, 'label')}, which estimate {value}", ""
    if document.basis == "guess":
        what = "accuracy" if document.metric == ACCURACY else facts.metric_name(document.metric)
        return f"a rough guess of {value} {what}; there is no confidence", f"{most} labels at most" if most else ""
    if document.basis == "judges":
        return f"what the judges say, which predicts {value}", useless.replace("the confidence is", "the judges are")
    if document.basis == "history":
        return f"labels of the history, which predict {value}", useless.replace("the confidence", "the history")
    return f"the model's confidence, corrected for usual overconfidence, which predicts {value}", useless


def _reached(goal: "GoalProgress", run: str) -> list[facts.Line]:
    """Describe a goal that is reached, and the interval to state."""
    labels, rounds = counted(goal.looks[-1].labels, "label"), counted(len(goal.looks), "round")
    reached = f"{number_of(goal)}{facts.points(goal.half_width)} with {labels} in {rounds}{_in_slice(goal)}"
    estimate = facts.in_a_line(facts.stated(goal), goal.level, "valid although you stopped at it")
    lines = [*facts.facts(("reached", reached)), facts.Fact("estimate", estimate, "result")]
    return [*lines, *_notes(goal), next_step("report", run)]


def _notes(goal: "GoalProgress") -> list[facts.Fact]:
    found = [("note", goal.advice), ("note", goal.reason)]
    if goal.earlier_goals:
        last = goal.earlier_goals[-1]
        before = last if isinstance(last, str) else facts.points(last)
        anytime = "state the interval of `opacc estimate` that is valid at any time"
        found.append(("note", f"the goal was {before} before; if the labels made you change it, {anytime}"))
    return facts.facts(*found)


def _in_slice(goal: "GoalProgress") -> str:
    """Return which slice the numbers of a goal are of."""
    return f" in {goal.slice}, which has the widest interval" if goal.slice and "=" not in (goal.by or "") else ""


# -- states ----------------------------------------------------------------------------------------------


def status(document: "RunStatus") -> list[facts.Line]:
    """Describe what is done, what the run waits for, and the command to run next."""
    examples = None
    if document.examples is not None:
        excluded = f", {facts.thousands(document.excluded or 0)} excluded" if document.excluded else ""
        examples = f"{facts.thousands(document.examples)}{excluded}"
    shards = f"{document.shards.done} of {counted(document.shards.total, 'shard')}"
    pairs = ("run", document.run), ("features", shards), ("extracted", document.extraction), ("examples", examples)
    lines: list[facts.Line] = [*facts.facts(*pairs, ("pool", document.pool_changes))]
    if document.failure:
        lines.append(facts.Fact("failed", f"{document.failure.at}: {document.failure.error}", "error"))
    lines += [*facts.facts(("predicted", str(document.predicted or ""))), *facts.warned(document.warnings)]
    if document.rounds:
        lines.append(facts.round_table(document.rounds))
    if estimate := document.estimate:
        labelled = sum(item.labelled for item in document.rounds)
        news = f"{counted(labelled, 'label')} now" if labelled != estimate.n else "labels, rounds or score changed"
        age = f"{facts.GAP}old: {news}" if document.estimate_is_current is False else ""
        if estimate.lead in estimate.metrics:
            lines += metric_lines(estimate.lead, estimate.metrics[estimate.lead], estimate)
        lines += [_result(estimate, f"{_sample(estimate)}{age}"), *_measure(estimate)]
    lines += facts.facts(("waits for", document.waits_for))
    if not document.step:
        return [*lines, facts.next_fact("opacc run SPEC.yaml")]
    return [*lines, next_step(document.step[0], document.run, *document.step[1:])]


def run_log(document: "RunLog") -> list[facts.Line]:
    """Return the entries of a log as a table, those that say the same in one row; and the digest of the newest."""
    columns = [facts.Column("entry", "n"), facts.Column("time"), facts.Column("round", "n"), facts.Column("what")]
    rows = list[tuple[str, ...]]()
    for (of_round, what), same in groupby(document.entries, lambda own: (own.round, own.what)):
        first, *others = same
        places = f"{first.number}–{others[-1].number}" if others else str(first.number)
        times = f"{what}, {1 + len(others)} times" if others else what
        rows.append((places, first.at[:19].replace("T", " "), str(of_round or ""), times))
    if not document.entries:
        return ["nothing happened to this run yet"]
    return [
        facts.Table(columns, rows),
        facts.Fact("head", f"{document.head}, the digest of entry {document.entries[-1].number} and all before it"),
    ]


# -- labels: files, answers, annotators -------------------------------------------------------------------


def imported(document: "ImportedLabels", run: "Run") -> list[facts.Line]:
    """Describe an imported file, the rounds after it, and the command to run next."""
    step = step_of(run, document.rounds)
    if step == ["label"]:  # whoever imports one file will import the next one
        step = ["labels import", "FILE"]
    names = [f"{quoted(name)} is {quoted(id)}" for name, id in document.names.items()]
    lines: list[facts.Line] = [_taken(document), facts.round_table(document.rounds, method=False)]
    lines += facts.facts(("names", few(names, most=2)))
    if document.left_out:
        lines += facts.facts(("left out", f"{counted(document.left_out, 'row')} of other examples"))
    if document.unknown:
        lines += facts.facts(("not in pool", f"{counted(document.unknown, 'row')}, left out"))
    lines += facts.warned(document.notes)
    if num := document.num_overruled:
        texts = [
            f"{quoted(item.id)}: {quoted(item.label)} of {_who(item.annotator)} ({item.place}) by "
            f"{_label(item.by_label)} of {_who(item.by_annotator)}"
            for item in document.overruled[:5]
        ]
        more = f", and {num - len(texts)} more: see `opacc labels list`" if num > len(texts) else ""
        lines += facts.facts(("overruled", f"{counted(num, 'answer')}: {'; '.join(texts)}{more}"))
    return [*lines, next_step(step[0], run.uri, *step[1:])]


def _taken(document: "ImportedLabels") -> facts.Fact:
    name, labels = document.file.rpartition("/")[2], counted(document.labels, "label")
    if document.again:
        return facts.Fact(name, f"nothing new: imported before, {labels}{_for(document.answers)}")
    unsure = f", {document.cant_tell} can't tell" if document.cant_tell else ""
    who = f" ({few([_who(name) for name in document.annotators])})" if document.annotators else ""
    blank = document.rows - document.labels - document.cant_tell
    rows = f", {counted(document.rows, 'row')}" if blank else ""
    if not document.labels + document.cant_tell:
        return facts.Fact(
            name, f'no label taken: the column "label" of {counted(document.rows, "row")} is empty', "result"
        )
    places = "" if len(document.answers) == 1 else _for(document.answers)
    return facts.Fact(name, f"{labels} taken{who}{unsure}{rows}{places}", "result")


def _for(answers: Mapping[int, int]) -> str:
    """Return which rounds some labels answer, with the number of each if there are several."""
    if len(answers) == 1:
        return f", for round {min(answers)}"
    texts = [f"{num} for round {number}" for number, num in answers.items()]
    return f": {few(texts, most=10)}" if texts else ""


def withdrawn(document: "WithdrawnLabels") -> list[facts.Line]:
    """Describe labels that were withdrawn, and the rounds after it."""
    name = f"{document.source} (kept as {document.file})" if document.source else document.file
    what = quoted(document.id) if document.id is not None else str(name)
    later = [*map(str, document.drawn_later)]
    kept = f"round{'s' * (len(later) > 1)} {few(later, most=10)} used them to choose examples; the choice stays"
    unread = f"the rounds cannot be counted yet: {document.unread}"
    unsure = f", {document.cant_tell} can't tell," if document.cant_tell else ""
    labels = f"{counted(document.labels - document.cant_tell, 'label')}{unsure} of {what}{_for(document.answers)}"
    return [
        *facts.facts(("withdrawn", f"{labels}; kept in the log, ignored from now on")),
        *([facts.round_table(document.rounds, method=False)] if document.rounds else []),
        *facts.facts(("later", kept if later else None), ("rounds", unread if document.unread is not None else None)),
    ]


def label_list(document: "AnswerList") -> list[facts.Line]:
    """Describe every answer in a table, and the rule for labels that differ."""
    names = "example", "label", "annotator", "time", "state", "from"
    rows = [
        (
            quoted(item.id),
            _label(item.label),
            _who(item.annotator),
            (item.labelled_at or item.imported_at or "")[:16].replace("T", " "),
            item.state + " (correction)" * item.correction,
            item.place + (f" ({item.source})" if item.source else ""),
        )
        for item in document.answers
    ]
    return [
        facts.Table([facts.Column(name) for name in names], rows),
        f"{counted(len(rows), 'answer')}; rule for labels that differ: {document.conflict}",
    ]


def session(document: "LabelSession", run: "Run | None") -> list[facts.Line]:
    """Describe the answers that the labelling page saved, and the command to run next; None: it served an output."""
    name = short_name(document.run) if run else "RUN of each run"
    see = f"see opacc labels list {name}, and opacc labels correct"
    differ = f"{counted(document.different, 'example')} have answers that differ: {see}"
    saved = f"{counted(document.saved, 'answer')}; {document.done} of {document.total} done"
    return [
        *facts.facts(("saved", saved)),
        *facts.warned([differ] if document.different else []),
        after(run) if run else next_step("label" if document.done < document.total else "runs list", document.run),
    ]


def after(run: "Run") -> facts.Fact:
    """Return the command to run next, as the run is now."""
    step = status_of(run, with_warnings=False).step
    return next_step(step[0], run.uri, *step[1:])


def carried_to(run: "Run", id: str, verb: str, *rest: str) -> Sequence[facts.Line]:
    """Name the later runs that carry a label, and the commands that change it there as well."""
    from opacc_ray.audit.carried_labels import carried_to as later_runs  # which labels list does not go through

    try:
        later = later_runs(run, id)
    except OpaccError as error:
        return facts.warned([f"which later runs carry the label is not known: {error}"])
    if not later:
        return []
    told = f"{counted(len(later), 'later run')} {'carries' if len(later) == 1 else 'carry'} the label as it was"
    steps = [facts.next_fact("opacc labels", verb, short_name(own.uri), join(rest)) for own in later]
    return [facts.Fact("note", f"{told}; {verb} it there as well"), *steps]


def _who(annotator: str | None) -> str:
    """Return the name of an annotator, in quotes where it could be taken for something else."""
    if annotator is None:
        return "unknown"
    is_plain = annotator != "unknown" and re.fullmatch(r"[\w.@+ -]{1,60}", annotator)
    return annotator if is_plain else quoted(annotator)


def _label(text: str | None) -> str:
    return "can't tell" if text is None else quoted(text)


# -- results ---------------------------------------------------------------------------------------------


def estimate(document: "documents.AccuracyEstimate", step: Sequence[str] = ("report",)) -> list[facts.Line]:
    """State the accuracy, what the labels are worth, what limits the result, and the command to run next."""
    measure, digits = document.measure, facts.digits_for(document.low, document.high)

    def between(low: float, high: float) -> str:
        return facts.ends(low, high, measure, digits)

    srs, sequence, own = document.srs, document.sequence, document.by_design
    worth = f"worth {counted(round(srs.effective_size), 'random label')}; " if srs.effective_size else ""
    pending = f"; {sequence.reason}" if sequence.reason else ""
    at_any_time = f"valid at any time: {between(sequence.low, sequence.high)}{pending}"
    allowing = f", allows for {' and '.join(document.allows_for)}" if document.allows_for else ""
    metrics = {name: metric_lines(name, found, document) for name, found in document.metrics.items()}
    lines: list[facts.Line] = [*metrics.pop(document.lead, ()), _result(document, _sample(document))]
    lines += facts.facts(("", f"{worth}{at_any_time}"))
    lines.append(_detail("interval", f"{document.method}{allowing}"))
    if own and document.allows_for:
        lines.append(_detail("by design", f"{between(own.low, own.high)} by the sampling design alone"))
    lines.append(_detail("random", f"{between(srs.low, srs.high)} with {counted(srs.n, 'random label')}"))
    if noise := document.label_noise:
        shared = f"on {counted(noise.examples, 'example')} with two opinions"
        lines += facts.facts(("agreement", f"{facts.agreement(noise)}, {shared}"))
        errors = f"if labels err as annotators differ: on {noise.differ} of {noise.examples} examples"
        lines.append(_detail("noise", f"{between(noise.low, noise.high)} {errors}"))
    if document.assisted:
        lines.append(stated_fact("assisted", document.assisted, measure))
    if document.mean_cost:
        lines.append(stated_fact("mean cost", document.mean_cost, "mean cost"))
    for metric in metrics.values():
        lines += [line for line in metric if line not in lines]  # some have the same note
    if document.goal and document.goal_of not in (ACCURACY, *document.metrics):
        lines += facts.facts(("goal", f"{document.goal_of}, stopped at {facts.points(document.goal)}"))
    if document.judges:
        lines.append(facts.judge_table(document.judges))
    for table in document.by_slice:
        lines += slice_lines(table, measure)
    lines += facts.facts(*(("note", text) for text in document.notes))
    lines += basis_facts(document, document.reason, document.n) + facts.warned(document.warnings)
    return [*lines, next_step(step[0], document.run, *step[1:])]


def metric_lines(
    name: str, found: "documents.StatedMetric", estimate: "documents.AccuracyEstimate"
) -> list[facts.Line]:
    """Return a metric of an estimate in a line, what else is known of it, and its reason unless that is of all."""
    stop = f", stopped at {facts.points(estimate.goal)}" if estimate.goal and estimate.goal_of == name else ""
    notes = [f"{counted(found.n, 'label')}{stop}", *([] if facts.part_tells(found, name) else [facts.TOO_FEW])]
    own = facts.Fact(facts.metric_name(name), facts.in_a_line(facts.stated(found, name), found.level, *notes), "result")
    reason = found.reason if found.reason != estimate.reason else None
    return [own, *facts.facts(("", facts.if_predicted_text(name, found)), ("note", reason))]


def slice_lines(table: "documents.SliceTable", measure: str) -> list[facts.Line]:
    """Return a title, the slices with the lowest numbers, how many more there are, and what contradicts predictions."""
    rows, more = facts.slice_table(table, measure, facts.MOST_ROWS)
    others = [f"… and {facts.thousands(more)} more (--json has all)"] if more else []
    said = [(name, facts.contradiction(part)) for name, part in facts.lowest_first(table)]
    notes = facts.facts(*(("note", text and f"{name}: {text}") for name, text in said))[: facts.MOST_ROWS]
    return [facts.slices_title(table, measure), rows, *others, *notes]


def step_after(run: "Run", document: "documents.AccuracyEstimate", metrics: Sequence[str]) -> list[str]:
    """Return the command to run after an estimate that was asked for some metrics, and its arguments."""
    asked = (name for name in metrics if name in document.metrics)
    vague = next((name for name in asked if not facts.part_tells(document.metrics[name], name)), None)
    if document.missing or run.newest_goal(reached=False) is not None:
        return step_of(run, document.rounds, stated=True)
    return ["next", *until_options(TELLING, vague)] if vague else ["report"]


def _sample(document: "documents.AccuracyEstimate") -> str:
    """Return the labels of an estimate, their rounds, and the goal that ended sampling."""
    rounds = [item for item in document.rounds if item.labelled]
    several = f" in {len(rounds)} rounds" if len(rounds) > 1 else ""
    goal = f", stopped at {facts.points(document.goal)}" if document.goal and document.goal_of == ACCURACY else ""
    missing = sum(item.missing for item in rounds)
    if missing and document.n == sum(item.labelled for item in rounds):
        return f"{facts.thousands(document.n)} of {counted(document.n + missing, 'label')}{several}{goal}"
    return f"{counted(document.n, 'label')}{several}{goal}"


def _result(document: "documents.AccuracyEstimate", sample: str) -> facts.Fact:
    return stated_fact(facts.noun(document.measure), document, document.measure, sample)


def stated_fact(label: str, found: "documents.StatedEstimate", measure: str, sample: str | None = None) -> facts.Fact:
    texts = facts.stated(found, measure)
    return facts.Fact(label, facts.in_a_line(texts, found.level, sample or counted(found.n, "label")), "result")


def basis_facts(document: "documents.Basis", reason: str | None, n: int) -> list[facts.Fact]:
    """Describe what a result of ``n`` labels covers, what it leaves out, and why it is not design-based."""
    lines = [*_measure(document), _detail("pool", counted(document.pool_size, "example"))]
    if document.excluded:
        lines += facts.facts(("left out", f"{counted(document.excluded, 'example')} that could not be read"))
    if document.unsure:
        lines += facts.facts(("left out", f'{counted(document.unsure, "example")} with the answer "can\'t tell"'))
    given_up = [f"{counted(item.given_up, 'label')} of round {item.round}" for item in document.rounds if item.given_up]
    lines += facts.facts(("given up", ", ".join(given_up)))
    for item in document.rounds:
        counts = sum(other.labelled for other in document.rounds if other.round <= item.round) <= n
        if item.missing and not (item.labelled and counts):
            missing = f"{'' if item.labelled else 'all of '}its {counted(item.missing, 'label')}"
            lines += facts.facts(("left out", f"round {item.round}, which waits for {missing}"))
    return [*lines, *facts.facts(("note", reason)), *changed(document.objects)]


def _measure(document: "documents.Basis") -> list[facts.Fact]:
    if document.measure == "accuracy":
        return []
    clipped = f"; {counted(document.clipped, 'label')} beyond the error scale score 0" if document.clipped else ""
    return facts.facts(("measure", f"{document.measure}{clipped}"))


def changed(objects: "documents.ChangedObjects | None") -> list[facts.Fact]:
    """Describe which objects of the pool changed since the model read them."""
    if objects is None:
        return []
    if objects.reason:
        return facts.warned([f"whether objects of the pool changed since extraction is not known: {objects.reason}"])
    version = (
        f"the pool's table is at {objects.version} now; this run keeps the version that it was made with; the same "
        "spec makes a run with the new one if its files differ"
    )
    return facts.warned(filter(None, [version if objects.version else "", facts.changed_objects(objects)]))


def _detail(label: str, text: str) -> facts.Fact:
    return facts.Fact(label, text, detail=True)


def report(document: "WrittenReport") -> list[facts.Line]:
    """Describe what the page shows first: verdict, result, what is not sound, and where the model fails; its files."""
    files = zip(("page", "document", "summary"), document.files, strict=True)
    return [*concluded(document), *facts.facts(*files), *step_of_report(document)]


def concluded(document: "WrittenReport") -> list[facts.Fact]:
    """Describe verdict, result, what is not sound, and where the model fails."""
    verdict = document.verdict
    decision = verdict and f"{verdict.heading}: {verdict.detail}"
    lines = facts.facts(("verdict", decision), ("answer", document.answer))
    lines += [facts.Fact(item.name, item.text, "warning") for item in document.checks if item.state != "ok"]
    fails = [item.text for item in document.findings] or [document.no_findings]
    return [*lines, *facts.facts(*(("fails", text) for text in fails))]


def step_of_report(document: "WrittenReport") -> list[facts.Fact]:
    """Return the next command of a report, with the short name of its run, if there is one."""
    step = document.next
    return [facts.next_fact(step.command.replace(quote(document.run), short_name(document.run)))] if step else []


# -- comparisons -----------------------------------------------------------------------------------------


def comparison(document: "ModelComparison") -> list[facts.Line]:
    """State the accuracy of models, their differences, and what these rest on."""
    first = document.differences[0].difference
    listed = "the pools were listed differently; examples are matched by their ids alone"
    allowed = " and ".join(document.estimate_allows_for)
    wider = f"the interval of opacc estimate also allows for {allowed}, and these do not" if allowed else None
    notes = _by_design(document), None if document.same_listing else listed, _taught(document), wider
    noted = facts.facts(*(("note", text) for text in notes))
    return [*_compared(document), *noted, *basis_facts(document, first.reason, first.n)]


def _by_design(document: "ModelComparison") -> str | None:
    """Return why the difference is not what subtracting the numbers gives; None if it is."""
    value = {own.run: own.accuracy.value for own in document.models}
    apart = (abs(value[item.first] - value[item.second] - item.difference.value) for item in document.differences)
    if max(apart, default=0.0) < ROUNDED:
        return None
    return (
        "the difference is by the sampling design alone, and the numbers of the models also use predictions for what "
        "is not labelled: it is not what subtracting them gives"
    )


def _taught(document: "ModelComparison") -> str | None:
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
        f"better here than on the pool; draw anew with opacc run --like {short_name(document.run)} --seed 1, and "
        "compare on that run"
    )


def _compared(document: "ModelComparison") -> list[facts.Line]:
    """State the models, numbered, and all their differences: which is better on how many labels."""
    numbered = list(enumerate(document.models, start=1))
    lines: list[facts.Line] = [
        stated_fact(f"model {place}", own.accuracy, document.measure, short_name(own.run)) for place, own in numbered
    ]
    for (a, b), pair in zip(combinations(range(1, len(numbered) + 1), 2), document.differences, strict=True):
        sample = counted(pair.difference.n, "label")
        unlike = [] if pair.num_unlike is None else [f"{counted(pair.num_unlike, 'prediction')} differ"]
        wins = f"better on {pair.num_first_better}, worse on {pair.num_second_better}"
        change_of = facts.change(pair.difference, document.measure)
        text = facts.in_a_line(change_of, pair.difference.level, ", ".join([sample, *unlike, wins]))
        lines.append(facts.Fact(f"{a} - {b}", text, "result"))
    found, num = document.unlearned, document.num_unlearned
    if found is not None and num is not None:
        where = f"on the {facts.thousands(num)} examples not exported as training data"
        text = facts.in_a_line(facts.change(found, document.measure), found.level, where)
        lines.append(facts.Fact("not learned", text, "result"))
    together = f"all differences hold with {facts.level_text(document.differences[0].difference.level)} confidence"
    return [*lines, *facts.facts(("best", _best(document)), ("together", together if len(numbered) > 2 else None))]


def _best(document: "ModelComparison") -> str:
    """Return the models in the order of their probability to be the best."""
    if all(pair.num_unlike == 0 for pair in document.differences):
        return "none: all predictions are equal"
    if not any(pair.num_first_better + pair.num_second_better for pair in document.differences):
        return "none: the models are equal on all labels so far"
    likely = sorted(enumerate(document.models, start=1), key=lambda item: -item[1].best)
    return ", ".join(f"model {place} {_probability(own.best)}" for place, own in likely)


def _probability(value: float) -> str:
    if 0.001 <= value <= 0.999:
        return f"with probability {value:.3f}"
    return f"with probability {'below 0.001' if value < 0.5 else 'above 0.999'}"
