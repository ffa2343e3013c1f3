"""Who said what when: every answer to the examples of a run, and whether it counts."""

from collections.abc import Callable, Iterator, Sequence

from opacc_ray.errors import LabelError
from opacc_ray.labels.documents import Answered, AnswerList
from opacc_ray.labels.joining import winning
from opacc_ray.labels.labelled_rounds import canonical_form, ids_of, read_tracks
from opacc_ray.labels.log import LabelLog, Returned, read_log
from opacc_ray.labels.messages import quoted
from opacc_ray.labels.rows import Label
from opacc_ray.runs.run import Run


def list_answers(run: Run, id: str | None = None) -> AnswerList:
    """Say who said what when, of all examples or of one; withdrawn and overruled answers included.

    Raises
    ------
    LabelError
        The example was not selected.
    """
    log = read_log(run)
    chosen = chosen_ids(run)
    if id is not None and id not in chosen:
        raise LabelError(f"{quoted(id)} was not selected in {run.uri}; `opacc labels list` without --id has the ids")
    return AnswerList(run=run.uri, conflict=log.conflict, answers=answers_of(run, log, id))


def chosen_ids(run: Run) -> set[str]:
    """The ids of all rounds of all tracks."""
    return set(ids_of(read_tracks(run)))


def answers_of(run: Run, log: LabelLog, id: str | None) -> list[Answered]:
    """The answers to all examples, or to one, withdrawn and overruled ones included."""
    read = canonical_form(run)
    by_id: dict[str, list[tuple[Returned, Label, Label | None]]] = {}
    for file in log.returned:
        for row in file.labels():
            if row.status != "blank" and id in (None, row.id):
                by_id.setdefault(row.id, []).append((file, row, _canonical(row, read)))
    return [item for given in by_id.values() for item in _states(given, log.conflict)]


def _canonical(row: Label, read: Callable[[str, str], str]) -> Label | None:
    """The answer with its label in canonical form; None if it is no label."""
    if row.label is None:
        return row
    try:
        return row._replace(label=read(row.id, row.label))
    except LabelError:
        return None


def _states(given: Sequence[tuple[Returned, Label, Label | None]], conflict: str) -> Iterator[Answered]:
    """The answers to one example, each with whether it counts."""
    standing = [label for file, row, label in given if label is not None and file.is_standing(row.id)]
    texts: list[str | None] = [*winning(standing, conflict)] or [None]
    rank = max((row.correction for row in standing), default=0)
    for file, row, label in given:
        state = "overruled"
        if not file.is_standing(row.id):
            state = "withdrawn"
        elif label is None:
            state = "no label"
        elif label.correction == rank and label.label in texts:
            state = "counts" if len(texts) == 1 else "in conflict"
        yield Answered.model_validate(
            {
                "id": row.id,
                "label": row.label,
                "annotator": row.annotator,
                "labelled_at": row.labelled_at,
                "imported_at": file.at,
                "file": file.name,
                "source": file.source,
                "place": row.place,
                "correction": file.is_correction,
                "state": state,
            }
        )
