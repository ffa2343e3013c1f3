"""Decide from a report: is the goal met, what supports that, what to do next, and what the labels prove wrong."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from shlex import quote

from opacc_ray.audit.goals import look_for_goal, read_target
from opacc_ray.audit.status import command_of, step_of
from opacc_ray.errors import DataError, LabelError, counted
from opacc_ray.estimation.constants import BY_CHANCE
from opacc_ray.estimation.intervals import clipped, level_of_each, normal_quantile
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.metrics.metric import ACCURACY, FEWEST, parse_metric
from opacc_ray.report import facts
from opacc_ray.report import report_documents as documents
from opacc_ray.report.report_documents import RunReport
from opacc_ray.runs.estimate_documents import AccuracyEstimate, SliceTable, StatedEstimate
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import Population, runs_of
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH
from opacc_ray.spec.spec_sections import Least

MOST_FINDINGS = 5

NEARLY_ALL = 0.8
"""Share of the examples without a label from which a forecast says that it is nearly the whole pool."""


def decided(run: Run, report: RunReport, goal: Least | None) -> RunReport:
    """Return a report with its verdict, checks, findings, next step and the audit before."""
    checks = [_sampling(report), _labels(report), _pool(report), _model(report)]
    update = {"verdict": _verdict(run, report, goal), "checks": checks, "findings": findings(report), "no_findings": ""}
    if report.estimate is not None:
        parts = "class, slice or confusion" if report.tables else "part of the pool"
        update["no_findings"] = f"No {parts} stands out from {counted(report.estimate.n, 'label')}."
    report = report.model_copy(update=update | {"previous": _previous(run)})
    return report.model_copy(update={"next": _next_step(run, report)})


# -- verdict and next step -------------------------------------------------------------------------------


def _verdict(run: Run, report: RunReport, goal: Least | None) -> documents.Verdict | None:
    """Return whether the goal is met, also in words; if that is open, how many labels decide it."""
    estimate = report.estimate
    if estimate is None or goal is None:
        return None
    stated = facts.stated_number(estimate, goal.metric)
    assert stated is not None
    measure = facts.measure_of(goal.metric, report.measure)
    least = facts.number(goal.share, measure).replace(".0 ", " ")
    least += "" if goal.metric == ACCURACY else f" {facts.metric_name(goal.metric)}"
    met, interval = meets(stated, goal.share), facts.stated(stated, measure).interval
    verdict = documents.Verdict(goal=goal.share, metric=goal.metric, met=met)
    if met is not None:
        detail = f"The interval, {interval}, is {'above' if met else 'below'} the goal."
        heading = f"{'Meets' if met else 'Does not meet'} {least}"
        return verdict.model_copy(update={"heading": heading, "detail": detail})
    update: dict[str, object] = {"heading": f"Cannot tell yet whether it meets {least}", "detail": f"{interval}."}
    distance = abs(clipped(stated) - goal.share)
    step = 10.0 ** (math.floor(math.log10(max(distance, 1e-9))) - 1)  # rounded down to two digits
    half_width = max(round(math.floor(distance / step + 1e-9) * step, 12), 0.5 / estimate.pool_size)
    with suppress(LabelError):  # no round is complete
        ahead = look_for_goal(run, half_width, read_target(goal.metric), level=estimate.level)
        labels = max(ahead.labels_to_go, 1)
        update |= {"labels_to_go": labels, "half_width": half_width}
        decide = counted(rounded(labels), "more label decides", "more labels decide")
        update["detail"] = f"{interval}; about {decide}."
    return verdict.model_copy(update=update)


def meets(estimate: StatedEstimate, goal: float) -> bool | None:
    """Return whether an interval is above a goal, or below it; None if it contains the goal."""
    return True if estimate.low >= goal else False if estimate.high < goal else None


def _next_step(run: Run, report: RunReport) -> documents.NextStep:
    """Return what to do next, by the labels, then by the verdict."""
    step = command_of(run, *step_of(run, report.rounds, stated=True))
    missing = sum(item.missing for item in report.rounds)
    if missing:
        what = f"Label the {counted(missing, 'example')} that wait." if missing > 1 else "Label the example that waits."
        return documents.NextStep(why=what, command=step)
    if report.estimate is None:
        return documents.NextStep(why='All answers are "can\'t tell". Draw more examples.', command=step)
    failed = next((item for item in report.checks if item.name == "labels" and item.state == "failed"), None)
    verdict = report.verdict
    if failed:
        why = "Find out where annotators differ, and correct these labels."
        return documents.NextStep(why=why, command=command_of(run, "labels list"))
    if verdict is None and run.newest_goal(reached=False) is not None:
        why = "Draw and label more: the goal of `opacc next --until` is not reached."
        return documents.NextStep(why=why, command=step)
    if verdict is None:
        return _name_a_goal(run, report.estimate)
    if verdict.met is None:
        more, half_width = counted(rounded(verdict.labels_to_go or 1), "more label"), verdict.half_width or 0.01
        left = max(report.pool_size - sum(item.labelled + item.unsure for item in report.rounds), 0)
        why = f"Draw and label about {more}; stop once the interval is ±{100 * half_width:g} points."
        if verdict.labels_to_go and verdict.labels_to_go >= NEARLY_ALL * left:
            why += f" That is nearly the whole pool, of which {facts.thousands(left)} have no label."
        until = f"{half_width:g}" if verdict.metric == ACCURACY else f"'{verdict.metric} ±{half_width:g}'"
        return documents.NextStep(why=why, command=command_of(run, "next", "--until", until))
    if verdict.met:
        why = "Nothing is left to do. Audit again when the pool or the model changes; compare over time with:"
        return documents.NextStep(why=why, command=f"opacc history {run.spec.name} --output {run.spec.output}")
    why = "Improve the model, starting with the findings. Then compare it by the same labels, as NEW_RUN:"
    return documents.NextStep(why=why, command=command_of(run, "compare", "NEW_RUN"))


def _name_a_goal(run: Run, estimate: AccuracyEstimate) -> documents.NextStep:
    """Return how to name a goal; the example is the last multiple of 5 % that the estimate reaches."""
    lead, own = estimate.lead, facts.stated_number(estimate, estimate.lead)
    if own is None or not parse_metric(lead).is_best_high:
        lead, own = ACCURACY, estimate
    share = f"{min(max(math.floor(20 * clipped(own) + 1e-9) / 20, 0.05), 0.95):g}"
    name = facts.noun(estimate.measure) if lead == ACCURACY else facts.metric_name(lead)
    return documents.NextStep(
        why=f"Name the least {name} that the model needs, and the report states whether it is met.",
        command=command_of(run, "report", "--goal", share if lead == ACCURACY else quote(f"{lead} {share}")),
    )


def _previous(run: Run) -> documents.PreviousAudit | None:
    """Return the last run of the same name and population before this one that has an estimate."""
    own, created = Population.of(run.spec), run.header.created or ""
    earlier, _ = runs_of(run.spec.output, run.spec.name)
    for other in reversed(earlier):
        if (other.header.created or "") >= created or Population.of(other.spec) != own:
            continue
        with suppress(DataError):
            if found := other.read_estimate():
                return documents.PreviousAudit(
                    run=other.uri,
                    created=other.header.created,
                    value=clipped(found),
                    low=found.low,
                    high=found.high,
                    same_model=other.header.model.sha256 == run.header.model.sha256,
                )
    return None


def rounded(count: int) -> int:
    """Return a forecast count with two digits."""
    return int(float(f"{count:.2g}"))


# -- the result ------------------------------------------------------------------------------------------


def answer(estimate: AccuracyEstimate | None, pool_size: int, rounds: Sequence[LabelledRound]) -> str:
    """Return the result in one sentence."""
    if estimate is None:
        asked, unsure = sum(len(item.missing) for item in rounds), sum(len(item.unsure) for item in rounds)
        if unsure and not asked:
            return f'There is no label: all {counted(unsure, "answer")} are "can\'t tell".'
        return f"There is no label yet: {facts.thousands(asked)} of {counted(pool_size, 'example')} wait for one."
    own = facts.stated_number(estimate, estimate.lead)
    if estimate.lead != ACCURACY and own is not None:
        texts, accuracy = facts.stated(own, estimate.lead), facts.stated(estimate, estimate.measure)
        between = f"between {texts.interval.replace(' to ', ' and ')} with {facts.level_text(own.level)} confidence"
        return (
            f"The {facts.metric_name(estimate.lead)} over the {counted(pool_size, 'example')} is about {texts.value}: "
            f"{between}, from {counted(own.n, 'label')}. The {facts.noun(estimate.measure)} is about {accuracy.value} "
            f"({accuracy.interval})."
        )
    digits = facts.digits_for(estimate.low, estimate.high)
    numbers = clipped(estimate), estimate.low, estimate.high
    value, low, high = (facts.number(item, estimate.measure, digits) for item in numbers)
    is_known = estimate.low == estimate.high
    value = value if is_known else f"about {value}"
    confidence = f"{facts.level_text(estimate.level)} confidence{'' if estimate.design_based else ' under assumptions'}"
    pool = counted(pool_size, "example")
    if estimate.measure == "accuracy":
        result = f"The model is right on {value} of the {pool}"
    elif estimate.measure.startswith("share in which "):
        result = f"In {value} of the {pool}, {estimate.measure.removeprefix('share in which ')}"
    elif facts.is_share(estimate.measure):
        what = "predictions" if estimate.measure.startswith("share within") else "answers"
        result = f"On the {pool}, {value} of the model's {what} are {estimate.measure.removeprefix('share ')}"
    else:
        result = f"The model scores {value} on average over the {pool} ({estimate.measure})"
    if is_known:
        return f"{result}: every one of them is labelled."
    return f"{result}: between {low} and {high} with {confidence}, from {counted(estimate.n, 'label')}."


def worth(estimate: AccuracyEstimate) -> str | None:
    """Return how many random labels would be as precise; None if that is unknown, or errors of labels matter more."""
    effective, n = estimate.srs.effective_size, estimate.srs.n
    if effective is None or "label noise" in estimate.allows_for:
        return None
    labels, worth = counted(n, "label"), facts.thousands(effective)
    if effective > 1.05 * n:
        return f"These {labels} are worth {worth}: they are as precise as {worth} labels chosen at random."
    if effective < 0.95 * n:
        return (
            f"These {labels} are worth only {worth}: they are as precise as {worth} labels chosen at random. The "
            "method lost precision here, and a simple random sample would have been more precise."
        )
    return f"These {labels} are about as precise as {labels} chosen at random."


# -- what a result rests on ------------------------------------------------------------------------------


def _sampling(report: RunReport) -> documents.Check:
    """Check that the sample is random, and that the interval assumes nothing else."""
    estimate = report.estimate
    own = estimate and facts.stated_number(estimate, estimate.lead)
    methods = ", ".join(dict.fromkeys(item.method for item in report.rounds))
    asked = counted(sum(item.budget for item in report.rounds), "example")
    rounds = f" in {len(report.rounds)} rounds" if len(report.rounds) > 1 else ""
    state: documents.CheckState = "ok"
    text = f"{asked} drawn at random by {methods}{rounds}."
    if not all(item.is_random for item in report.drawn):
        state, text = "failed", f"{asked} chosen by {methods}{rounds}: no random sample, so no interval is certain."
    elif own and not own.design_based:
        state, reason = "warning", facts.sentence(own.reason or "not known")
        text += f" The interval rests on more than that: {reason}"
    elif estimate:
        text += " The interval assumes nothing about model or data."
    if estimate and estimate.goal:
        of = "" if estimate.goal_of == ACCURACY else f" of {estimate.goal_of}"
        text += f" Sampling stopped at ±{100 * estimate.goal:g} points{of}, and the interval allows for that."
    if (tried := report.attempts) and (len(tried.runs) > 1 or tried.removed):
        text += f" {facts.sentence(str(tried))}"
    return documents.Check(name="sampling", state=state, text=text)


def _labels(report: RunReport) -> documents.Check:
    """Check that no label is missing, and that annotators agree."""
    labelled, asked, missing, unsure, given_up = (
        sum(getattr(item, name) for item in report.rounds)
        for name in ("labelled", "budget", "missing", "unsure", "given_up")
    )
    counts = {"missing": missing, "given up": given_up, '"can\'t tell"': unsure}
    parts = [f"{facts.thousands(labelled)} of {facts.thousands(asked)} labelled"]
    parts += [f"{facts.thousands(count)} {what}" for what, count in counts.items() if count]
    state: documents.CheckState = "warning" if missing or unsure or given_up else "ok"
    noise, agreement = report.estimate.label_noise if report.estimate else None, ""
    if noise:
        agreement = f" Two people differ on {noise.differ} of {noise.examples} examples ({facts.agreement(noise)})."
        if noise.alpha is not None and noise.alpha <= BY_CHANCE and noise.differ > 1:
            state, agreement = "failed", f"{agreement} That is no better than chance."
        elif report.estimate and "label noise" in report.estimate.allows_for:
            state, agreement = "warning", f"{agreement} The interval allows for such errors."
    elif labelled:
        state = "warning"
        agreement = " Errors of labels are not measured: label some twice (`opacc label --overlap 0.2`)."
    return documents.Check(name="labels", state=state, text=f"{', '.join(parts)}.{agreement}")


def _pool(report: RunReport) -> documents.Check:
    """Check that the pool is as it was when the model read it, and that all of it was read."""
    objects = report.estimate.objects if report.estimate else None
    examples, left_out = counted(report.pool_size, "example"), list[str]()
    if report.num_excluded:
        left_out.append(f"{counted(report.num_excluded, 'example')} could not be read; the result is for the others.")
    where = "in the pool's folder"
    for kind in report.header.pool.ignored:
        files = counted(kind.num_files, f"other file {where} was", f"other files {where} were")
        left_out.append(f"{files} not read: {kind.kind}, such as {kind.first[0]}.")
    state: documents.CheckState = "warning" if left_out else "ok"
    text = f"{examples}; none of the chosen ones changed since the model read it."
    if objects is None:
        text = f"{examples}."
    elif objects.changed or objects.lost:
        state, text = "failed", facts.sentence(facts.changed_objects(objects))
    elif objects.reason or objects.unknown:
        state, reason = "warning", objects.reason or "there is no record of their files"
        text = f"{examples}; whether they changed is not known: {reason}."
    elif objects.version:
        state, text = "warning", f"{examples}; the table is at {objects.version} now."
    return documents.Check(name="pool", state=state, text=" ".join([text, *left_out]))


def _model(report: RunReport) -> documents.Check:
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
        text, state = f"{facts.sentence(report.warnings[0])} {text}", "warning"
        text += f" {counted(more, 'more warning')} below." if more else ""
    return documents.Check(name="model", state=state, text=text)  # type: ignore[arg-type]


# -- findings --------------------------------------------------------------------------------------------


def findings(report: RunReport) -> list[documents.Finding]:
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
    found += _frequent_confusions(report, estimate)
    belief = report.reliability
    found = sorted(found, key=lambda item: -item.impact)
    if belief and belief.mean_confidence > estimate.high:
        impact = belief.mean_confidence - clipped(estimate)
        found.insert(MOST_FINDINGS - 1, documents.Finding(text=claim(belief, estimate), impact=impact))
    return found[:MOST_FINDINGS]


def _weak_parts(estimate: AccuracyEstimate, table: SliceTable, measure: str) -> Iterator[documents.Finding]:
    for name, part in table.slices.items():
        if part.tells and part.high_together < estimate.low:
            found, size = facts.stated_together(part, measure), part.size / estimate.pool_size
            digits = facts.digits_for(estimate.low, estimate.high)
            whole = facts.number(clipped(estimate), measure, digits)
            what = f"{_part_text(table.by, name)}: {facts.number_of_parts(table.by, ACCURACY, measure)}"
            text = f"{what} {found.value} ({found.interval}); whole pool {whole}. "
            text += f"Covers {facts.percent(size, 0)} of the pool, by {counted(part.n, 'label')}."
            yield documents.Finding(text=text, impact=size * (clipped(estimate) - clipped(part)))


def _part_text(by: str, name: str) -> str:
    """Return a part of the pool in words."""
    words = {BY_PREDICTION: f"Predicted as {name!r}", BY_TRUTH: f"Labelled as {name!r}"}
    words[facts.CONFIDENCE] = f"Confidence {name}"
    return words.get(by) or f"{facts.parts_name(by)} {name}"


def _frequent_confusions(report: RunReport, estimate: AccuracyEstimate) -> Iterator[documents.Finding]:
    wrong = [cell for cell in report.confusion or [] if cell.true != cell.predicted]
    z = normal_quantile(level_of_each(estimate.level, len(wrong)))
    for cell in wrong:
        low, high = (cell.share + sign * z * cell.standard_error for sign in (-1, 1))
        if cell.labels >= FEWEST and low > 0:
            text = f"{cell.true!r} predicted as {cell.predicted!r}: {facts.percent(cell.share)} of the pool "
            text += f"({facts.ends(low, high)}), by {counted(cell.labels, 'label')}."
            yield documents.Finding(text=text, impact=cell.share)


def claim(reliability: documents.Reliability, estimate: AccuracyEstimate) -> str:
    """Compare the model's mean confidence with its accuracy."""
    confidence, accuracy = reliability.mean_confidence, clipped(estimate)
    found = "the mean confidence is within the interval"
    if not estimate.low <= confidence <= estimate.high:
        kind, points = "over" if confidence > accuracy else "under", 100 * abs(confidence - accuracy)
        found = f"it is {kind}confident by about {points:.1f} points"
    means = f"{facts.percent(confidence)}, its accuracy about {facts.percent(accuracy)}"
    return f"The model's mean confidence over the pool is {means}: {found}."
