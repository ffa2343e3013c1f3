"""Labels that are exported as training data. They are remembered: they cannot judge the model that learned them.

    id, uri, label, prediction, outcome, weight

``weight`` is the number of examples of the pool that the label stands for in the estimate. A model that is trained with
these weights sees failures as often as the pool has them; without weights it sees them as often as they were drawn.
"""

import csv
import io
from collections.abc import Sequence

from opacc_ray.errors import LabelError, SpecError, counted
from opacc_ray.labels import labelled_rounds
from opacc_ray.labels.formats import spreadsheet_safe
from opacc_ray.labels.label_actions import ExportedLabels
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.lake.store_uris import write_object
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Draw, Happening, Taught

COLUMNS = ("id", "uri", "label", "prediction", "outcome", "weight")


def export_failures(run: Run, file: str) -> ExportedLabels:
    """Write the labelled mispredictions of a run as a CSV file; see :func:`export_training`."""
    return export_training(run, file, only_failures=True)


def export_training(run: Run, file: str, *, only_failures: bool = False) -> ExportedLabels:
    """Write all labelled examples of a run as a CSV file, or ``only_failures``.

    The ids are kept in the log of the run, so that :func:`taught_ids` finds them. Raises SpecError if ``file`` has
    another suffix; LabelError if there is no such example, or labels are in conflict.
    """
    if not file.lower().endswith(".csv"):
        raise SpecError(f"{file}: training data are a CSV file; give a name such as training.csv")
    known = labelled_rounds.read_known(run)
    rows = _rows(run, known, only_failures=only_failures)
    if not rows:
        labels = counted(sum(len(item.truth) for item in known), "label")
        raise LabelError(f"none of the {labels} of {run.uri} is a misprediction; give --to training for the others")
    sink = io.StringIO()
    table = csv.writer(sink, lineterminator="\n")
    table.writerows([COLUMNS, *([spreadsheet_safe(text) for text in row] for row in rows)])
    written = write_object(file, sink.getvalue().encode())
    taught = Taught(ids=[row[0] for row in rows])
    run.log.append(lambda commits: Happening([taught]))
    notes = [
        f"{sum(float(row[4]) < 1 for row in rows)} of them are mispredicted",
        "train on them, audit the new model on a fresh draw, and compare both (docs/guide.md)",
    ]
    tool = "failures" if only_failures else "training"
    return ExportedLabels(run=run.uri, tool=tool, to=written, examples=len(rows), notes=notes)


def taught_ids(runs: Sequence[Run]) -> set[str]:
    """Return the ids of examples that were exported as training data from one of the runs."""
    return {id for run in runs for commit in run.commits for item in commit.documents(Taught) for id in item.ids}


def drawn_after_export(run: Run, others: Sequence[Run]) -> bool:
    """Return whether all rounds of a run were drawn after the last export of training data.

    False if neither the run nor one of the others exported any.
    """
    own = [commit.number for commit in run.commits for _ in commit.documents(Taught)]
    theirs = [commit.at for other in others for commit in other.commits for _ in commit.documents(Taught)]
    drawn = [run.logged(Draw, number)[-1][0] for number in run.rounds()]
    if not own and not theirs:
        return False
    return all(commit.number > max(own, default=0) and commit.at >= max(theirs, default="") for commit in drawn)


def _rows(run: Run, known: Sequence[LabelledRound], *, only_failures: bool) -> list[list[str]]:
    """Return a row of COLUMNS for each example once, in the order of the rounds."""
    weight, size, found = (
        labelled_rounds.weights_of(known),
        run.read_selection(known[0].number).pool_size,
        dict[str, list[str]](),
    )
    for item in known:
        chosen = run.read_chosen(item.number)
        uris = dict(zip(chosen.ids, chosen.uris, strict=True))
        answers = zip(item.known.ids, item.truth, item.predicted, item.outcome.tolist(), strict=True)
        for id, truth, predicted, outcome in answers:
            if outcome < 1 or not only_failures:
                stands_for = f"{weight[id] * size:.6g}" if id in weight else ""
                found[id] = [id, uris.get(id, ""), truth, predicted, f"{outcome:g}", stands_for]
    return list(found.values())
