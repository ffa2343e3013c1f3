"""Decide from a report: is the goal met, what supports that, what to do next, and what the labels prove wrong."""

import math
from collections.abc import Iterator, Sequence
from shlex import quote

from scipy.stats import norm

from opacc_ray.audit.goals import look_for_goal, read_target
from opacc_ray.audit.status import command_of, step_of
from opacc_ray.errors import DataError, LabelError, counted
from opacc_ray.estimation.constants import BY_CHANCE
from opacc_ray.estimation.intervals import clipped, level_of_each
from opacc_ray.metrics.metric import ACCURACY, FEWEST, parse_metric
from opacc_ray.report import sentences
from opacc_ray.report.facts import digits_for, ends, noun, number, percent, sentence, thousands
from opacc_ray.report.report_documents import (
    Check,
    CheckState,
    ConfusionCell,
    Finding,
    NextStep,
    PreviousAudit,
    RunReport,
    Verdict,
)
from opacc_ray.report.sentences import (
    CONFIDENCE,
    metric_name,
    number_of_parts,
    parts_name,
    stated_number,
    stated_together,
)
from opacc_ray.runs.estimate_documents import AccuracyEstimate, SliceTable, StatedEstimate
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import runs_of
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH
from opacc_ray.spec.steps import Least

MOST_FINDINGS = 5

NEARLY_ALL = 0.8
"""Share of the examples without a label from which a forecast says that it is nearly the whole pool."""


def decided(run: Run, report: RunReport, goal: Least | None) -> RunReport:
    """Return a report with its verdict, checks, findings, next step and the audit before."""
    verdict = _verdict(run, report.estimate, goal)
    if verdict and report.estimate:
        heading, detail = sentences.verdict(verdict, report.measure, report.estimate)
        verdict = verdict.model_copy(update={"heading": heading, "detail": detail})
    report = report.model_copy(update={"verdict": verdict, "previous": _previous(run)})
    checks = [_sampling(report), _labels(report), _pool(report), _model(report)]
    report = report.model_copy(update={"checks": checks, "findings": findings(report)})
    return report.model_copy(update={"no_findings": sentences.no_findings(report), "next": _next_step(run, report)})


# -- verdict and next step -------------------------------------------------------------------------------


def _verdict(run: Run, estimate: AccuracyEstimate | None, goal: Least | None) -> Verdict | None:
    """Return whether the goal is met; if that is open, how many labels decide it."""
    if estimate is None or goal is None:
        return None
    own = stated_number(estimate, goal.metric)
    assert own is not None
    met = meets(own, goal.share)
    found = Verdict(goal=goal.share, metric=goal.metric, met=met)
    if met is not None:
        return found
    half_width = max(_floor(abs(clipped(own) - goal.share)), 0.5 / estimate.pool_size)
    try:
        ahead = look_for_goal(run, half_width, read_target(goal.metric), level=estimate.level)
    except LabelError:  # no round is complete
        return found
    return found.model_copy(update={"labels_to_go": max(ahead.labels_to_go, 1), "half_width": half_width})


def meets(estimate: StatedEstimate, goal: float) -> bool | None:
    """Return whether an interval is above a goal, or below it; None if it contains the goal."""
    return True if estimate.low >= goal else False if estimate.high < goal else None


def _floor(value: float) -> float:
    """Return a positive number rounded down to two digits."""
    step = 10.0 ** (math.floor(math.log10(max(value, 1e-9))) - 1)
    return round(math.floor(value / step + 1e-9) * step, 12)


def _next_step(run: Run, report: RunReport) -> NextStep:
    """Return what to do next, by the labels, then by the verdict."""
    step = command_of(run, *step_of(run, report.rounds, stated=True))
    missing = sum(item.missing for item in report.rounds)
    if missing:
        what = f"Label the {counted(missing, 'example')} that wait." if missing > 1 else "Label the example that waits."
        return NextStep(why=what, command=step)
    if report.estimate is None:
        return NextStep(why='All answers are "can\'t tell". Draw more examples.', command=step)
    failed = next((item for item in report.checks if item.name == "labels" and item.state == "failed"), None)
    verdict = report.verdict
    if failed:
        return NextStep(
            why="Find out where annotators differ, and correct these labels.",
            command=command_of(run, "labels list"),
        )
    if verdict is None and run.newest_goal(reached=False) is not None:
        why = "Draw and label more: the goal of `opacc next --until` is not reached."
        return NextStep(why=why, command=step)
    if verdict is None:
        return _name_a_goal(run, report.estimate)
    if verdict.met is None:
        more, left = counted(sentences.rounded(verdict.labels_to_go or 1), "more label"), sentences.unlabelled(report)
        half_width = verdict.half_width or 0.01
        why = f"Draw and label about {more}; stop once the interval is ±{100 * half_width:g} points."
        if verdict.labels_to_go and verdict.labels_to_go >= NEARLY_ALL * left:
            why += f" That is nearly the whole pool, of which {thousands(left)} have no label."
        until = f"{half_width:g}" if verdict.metric == ACCURACY else f"'{verdict.metric} ±{half_width:g}'"
        return NextStep(why=why, command=command_of(run, "next", "--until", until))
    if verdict.met:
        why = "Nothing is left to do. Audit again when the pool or the model changes; compare over time with:"
        return NextStep(why=why, command=f"opacc history {run.spec.name} --output {run.spec.output}")
    why = "Improve the model, starting with the findings. Then compare it by the same labels, as NEW_RUN:"
    return NextStep(why=why, command=command_of(run, "compare", "NEW_RUN"))


def _name_a_goal(run: Run, estimate: AccuracyEstimate) -> NextStep:
    """Return how to name a goal; the example is the last multiple of 5 % that the estimate reaches."""
    lead, own = estimate.lead, stated_number(estimate, estimate.lead)
    if own is None or not parse_metric(lead).is_best_high:
        lead, own = ACCURACY, estimate
    share = f"{min(max(math.floor(20 * clipped(own) + 1e-9) / 20, 0.05), 0.95):g}"
    name = noun(estimate.measure) if lead == ACCURACY else metric_name(lead)
    return NextStep(
        why=f"Name the least {name} that the model needs, and the report states whether it is met.",
        command=command_of(run, "report", "--goal", share if lead == ACCURACY else quote(f"{lead} {share}")),
    )


def _previous(run: Run) -> PreviousAudit | None:
    """Return the last run of the same name and population before this one that has an estimate."""
    own, created = Population.of(run.spec), run.header.created or ""
    earlier, _ = runs_of(run.spec.output, run.spec.name)
    for other in reversed(earlier):
        if (other.header.created or "") >= created or Population.of(other.spec) != own:
            continue
        try:
            found = other.read_estimate()
        except DataError:
            continue
        if found is not None:
            return PreviousAudit(
                run=other.uri,
                created=other.header.created,
                value=clipped(found),
                low=found.low,
                high=found.high,
                same_model=other.header.model.sha256 == run.header.model.sha256,
            )
    return None


# -- what a result rests on ------------------------------------------------------------------------------


def _sampling(report: RunReport) -> Check:
    """Check that the sample is random, and that the interval assumes nothing else."""
    estimate = report.estimate
    own = estimate and stated_number(estimate, estimate.lead)
    methods = ", ".join(dict.fromkeys(item.method for item in report.rounds))
    asked = counted(sum(item.budget for item in report.rounds), "example")
    rounds = f" in {len(report.rounds)} rounds" if len(report.rounds) > 1 else ""
    state: CheckState = "ok"
    text = f"{asked} drawn at random by {methods}{rounds}."
    if not all(item.is_random for item in report.drawn):
        state, text = "failed", f"{asked} chosen by {methods}{rounds}: no random sample, so no interval is certain."
    elif own and not own.design_based:
        state, reason = "warning", sentence(own.reason or "not known")
        text += f" The interval rests on more than that: {reason}"
    elif estimate:
        text += " The interval assumes nothing about model or data."
    if estimate and estimate.goal:
        of = "" if estimate.goal_of == ACCURACY else f" of {estimate.goal_of}"
        text += f" Sampling stopped at ±{100 * estimate.goal:g} points{of}, and the interval allows for that."
    if (tried := report.attempts) and (len(tried.runs) > 1 or tried.removed):
        text += f" {sentence(str(tried))}"
    return Check(name="sampling", state=state, text=text)


def _labels(report: RunReport) -> Check:
    """Check that no label is missing, and that annotators agree."""
    labelled, asked, missing, unsure, given_up = (
        sum(getattr(item, name) for item in report.rounds)
        for name in ("labelled", "budget", "missing", "unsure", "given_up")
    )
    parts = [f"{thousands(labelled)} of {thousands(asked)} labelled"]
    parts += [f"{thousands(count)} {what}" for count, what in ((missing, "missing"), (given_up, "given up")) if count]
    parts += [f'{thousands(unsure)} "can\'t tell"'] if unsure else []
    state: CheckState = "warning" if missing or unsure or given_up else "ok"
    noise, agreement = report.estimate.label_noise if report.estimate else None, ""
    if noise:
        agreement = f" Two people differ on {noise.differ} of {noise.examples} examples ({sentences.agreement(noise)})."
        if noise.alpha is not None and noise.alpha <= BY_CHANCE and noise.differ > 1:
            state, agreement = "failed", f"{agreement} That is no better than chance."
        elif report.estimate and "label noise" in report.estimate.allows_for:
            state, agreement = "warning", f"{agreement} The interval allows for such errors."
    elif labelled:
        state = "warning"
        agreement = " Errors of labels are not measured: label some twice (`opacc label --overlap 0.2`)."
    return Check(name="labels", state=state, text=f"{', '.join(parts)}.{agreement}")


def _pool(report: RunReport) -> Check:
    """Check that the pool is as it was when the model read it, and that all of it was read."""
    objects = report.estimate.objects if report.estimate else None
    examples, left_out = counted(report.pool_size, "example"), sentences.not_read(report)
    state: CheckState = "warning" if left_out else "ok"
    text = f"{examples}; none of the chosen ones changed since the model read it."
    if objects is None:
        text = f"{examples}."
    elif objects.changed or objects.lost:
        state, text = "failed", sentence(sentences.changed_objects(objects))
    elif objects.reason or objects.unknown:
        state, reason = "warning", objects.reason or "there is no record of their files"
        text = f"{examples}; whether they changed is not known: {reason}."
    elif objects.version:
        state, text = "warning", f"{examples}; the table is at {objects.version} now."
    return Check(name="pool", state=state, text=" ".join([text, *left_out]))


def _model(report: RunReport) -> Check:
    """Check that this is probably the intended model."""
    header, model = report.header, report.header.spec.model
    digest, state = header.model.sha256, "ok"
    code = f", code {header.code_digest[:12]}" if header.code_digest else ""
    text = f"Weights {digest[:12]}{code}." if digest else "The spec names no weights, so their digest is not known."
    if header.spec.pool.holds_features:
        text = "The pool holds the model's answers; no model was run."
    elif not digest and not model.program:
        state = "warning"
    if report.warnings:
        more = len(report.warnings) - 1
        text, state = f"{sentence(report.warnings[0])} {text}", "warning"
        text += f" {counted(more, 'more warning')} below." if more else ""
    return Check(name="model", state=state, text=text)  # type: ignore[arg-type]


# -- findings --------------------------------------------------------------------------------------------


def findings(report: RunReport) -> list[Finding]:
    """Return the weaknesses that the labels prove, those that cost most of the pool first, overconfidence last.

    A slice, class or bin is one if its interval that holds for its whole table at once is below the interval of the
    pool; a confusion if its share is above 0 at the level of all confusions together.
    """
    estimate = report.estimate
    if estimate is None:
        return []
    tables = [*report.tables, *(table for table in estimate.by_slice if table.metric == ACCURACY)]
    known = {table.by: table for table in tables}  # classes that were asked for are there already
    found = [item for table in known.values() for item in _weak_parts(estimate, table, report.measure)]
    found += _frequent_confusions(estimate, report.confusion or [])
    belief = report.reliability
    found = sorted(found, key=lambda item: -item.impact)
    if belief and belief.mean_confidence > estimate.high:
        impact = belief.mean_confidence - clipped(estimate)
        found.insert(MOST_FINDINGS - 1, Finding(text=sentences.claim(belief, estimate), impact=impact))
    return found[:MOST_FINDINGS]


def _weak_parts(estimate: AccuracyEstimate, table: SliceTable, measure: str) -> Iterator[Finding]:
    for name, part in table.slices.items():
        if part.tells and part.high_together < estimate.low:
            found, size = stated_together(part, measure), part.size / estimate.pool_size
            digits = digits_for(estimate.low, estimate.high)
            whole = number(clipped(estimate), measure, digits)
            what = f"{_part_text(table.by, name)}: {number_of_parts(table.by, ACCURACY, measure)}"
            text = f"{what} {found.value} ({found.interval}); whole pool {whole}. "
            text += f"Covers {percent(size, 0)} of the pool, by {counted(part.n, 'label')}."
            yield Finding(text=text, impact=size * (clipped(estimate) - clipped(part)))


def _part_text(by: str, name: str) -> str:
    """Return a part of the pool in words."""
    words = {BY_PREDICTION: "Predicted as", BY_TRUTH: "Labelled as", CONFIDENCE: "Confidence"}
    return f"{words[by]} {name if by == CONFIDENCE else repr(name)}" if by in words else f"{parts_name(by)} {name}"


def _frequent_confusions(estimate: AccuracyEstimate, cells: Sequence[ConfusionCell]) -> Iterator[Finding]:
    wrong = [cell for cell in cells if cell.true != cell.predicted]
    z = float(norm.ppf(0.5 + level_of_each(estimate.level, len(wrong)) / 2))
    for cell in wrong:
        low, high = (cell.share + sign * z * cell.standard_error for sign in (-1, 1))
        if cell.labels >= FEWEST and low > 0:
            text = f"{cell.true!r} predicted as {cell.predicted!r}: {percent(cell.share)} of the pool "
            text += f"({ends(low, high)}), by {counted(cell.labels, 'label')}."
            yield Finding(text=text, impact=cell.share)
