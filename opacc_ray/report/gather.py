"""The numbers of a report, gathered from a run: nothing is written, and the same run gives the same report."""

import json
import re
from collections.abc import Sequence

from opacc_ray.audit import history, results, sanity
from opacc_ray.audit.label_budget import width_course
from opacc_ray.errors import counted
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.labels.outcomes import Score
from opacc_ray.report import sentences
from opacc_ray.report.characterized import read_characterization
from opacc_ray.report.course import course_of
from opacc_ray.report.documents import ConfusionCell, DrawnBy, ExcludedExample, Gallery, LabelledValue, RunReport
from opacc_ray.report.mispredictions import mispredictions
from opacc_ray.report.pictures import Pictures, pictures_of
from opacc_ray.report.reliability import read_beliefs, reliability_of
from opacc_ray.runs.documents import ConfusionShares
from opacc_ray.runs.provenance import versions
from opacc_ray.runs.run import Run
from opacc_ray.samplers.select import find_method
from opacc_ray.selection import Selection

LISTED = 20
"""Excluded examples that are named; the others are counted."""

SHOWN_VALUES = 1000
"""Labels of a regression that are drawn."""


def gather(
    run: Run, *, level: float = 0.95, conflict: str | None = None, score: Score | None = None
) -> tuple[RunReport, Pictures]:
    """Return all that the page of a run says, and the pictures of its gallery.

    Labels may be missing: the report then says so.

    Parameters
    ----------
    level : confidence level of the intervals
    conflict, score : what to do where labels differ; what a regression's prediction is worth; None: as the run has it

    Raises
    ------
    LabelError
        No round is drawn yet, or labels are in conflict.
    DataError
        The features are not complete.
    """
    index = run.complete_features().index
    rounds = read_rounds(run, conflict=conflict, score=score)
    known = having_labels(rounds)
    stated = results.state(run, level=level, partial=True, conflict=conflict, score=score) if known else None
    beliefs = read_beliefs(run)
    wrong = mispredictions(known, beliefs) if known else None
    pictures = pictures_of(run, wrong.examples) if wrong else {}
    kept = history.read_record(run)
    report = RunReport(
        run=run.uri,
        track=run.track,
        name=run.spec.name,
        measure=rounds[0].measure,
        state="without labels" if not known else "partial" if any(item.missing for item in rounds) else "complete",
        answer=sentences.answer(stated, index.num_examples, rounds),
        worth=sentences.worth(stated) if stated else None,
        waits_for=_waits_for(rounds),
        warnings=stated.warnings if stated else sanity.warnings_of(run, ()),
        pool_size=index.num_examples,
        rounds=[item.counts() for item in rounds],
        drawn=[_drawn_by(item.selection) for item in rounds],
        history=kept.sources if kept else None,
        estimate=stated.model_copy(update={"confusion": None}) if stated else None,
        confusion=_cells(stated.confusion) if stated and stated.confusion else None,
        course=course_of(run, known, level),
        widths=width_course(run, level=level),
        reliability=reliability_of(run, known, beliefs, level) if beliefs else None,
        values=_values(known) if run.spec.model.task == "regression" else None,
        gallery=_with_notes(wrong, pictures) if wrong else None,
        excluded=[ExcludedExample(id=item.id, reason=item.reason) for item in index.bad[:LISTED]],
        num_excluded=len(index.bad),
        characterization=read_characterization(run),
        header=run.header,
        made_with=versions()["opacc_ray"],
    )
    return report, pictures


def _waits_for(rounds: Sequence[LabelledRound]) -> str | None:
    missing = sum(len(item.missing) for item in rounds)
    return counted(missing, "label") if missing else None


def _drawn_by(selection: Selection) -> DrawnBy:
    text = find_method(selection.method).__doc__ or selection.method
    title = " ".join(text.strip().split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return DrawnBy(
        round=selection.round,
        method=selection.method,
        title=re.sub(rf"^{selection.method}: ", "", title, flags=re.IGNORECASE),
        seed=selection.seed,
        parameters={name: json.dumps(value) for name, value in selection.parameters.items()},
        replicates=selection.design.num_replicates,
    )


def _values(known: Sequence[LabelledRound]) -> list[LabelledValue]:
    """Labels of a regression beside predictions, each example once."""
    found: dict[str, LabelledValue] = {}
    for item in known:
        for id, label, said, outcome in zip(item.known.ids, item.truth, item.predicted, item.outcome, strict=True):
            found[id] = LabelledValue(id=id, label=float(label), prediction=float(said), outcome=float(outcome))
    return list(found.values())[:SHOWN_VALUES]


def _cells(confusion: ConfusionShares) -> list[ConfusionCell]:
    """The cells that a label is in: of many classes most are empty."""
    names = confusion.classes
    found = [
        ConfusionCell(
            true=names[i],
            predicted=names[j],
            share=confusion.share[i][j],
            standard_error=confusion.standard_error[i][j],
            labels=num,
        )
        for i, row in enumerate(confusion.num)
        for j, num in enumerate(row)
        if num
    ]
    return sorted(found, key=lambda cell: (-cell.share, cell.true, cell.predicted))


def _with_notes(gallery: Gallery, pictures: Pictures) -> Gallery:
    """The gallery, where each example says why it has no picture."""
    notes = {id: found for id, found in pictures.items() if isinstance(found, str)}
    examples = [item.model_copy(update={"not_shown": notes.get(item.id)}) for item in gallery.examples]
    return gallery.model_copy(update={"examples": examples})
