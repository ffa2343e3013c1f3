"""Answers of the commands that draw a round."""

from opacc_ray.audit.documents import DrawnRound
from opacc_ray.audit.pool_objects import find_changed
from opacc_ray.audit.run import Run
from opacc_ray.cli import texts
from opacc_ray.cli.command import Answer


def drawn(run: Run, labels_to_go: int | None = None) -> Answer:
    """The newest round of a run; ``labels_to_go`` is what the interval asked for takes, if one was."""
    selection = run.read_selection(run.rounds()[-1])
    document = DrawnRound(
        run=run.uri,
        method=selection.method,
        round=selection.round,
        n=len(selection),
        pool_size=selection.pool_size,
        manifests=run.manifests(selection.round),
        objects=find_changed(run, [selection.round]),
        reached=None if labels_to_go is None else False,
        labels_to_go=labels_to_go,
    )
    return Answer(document, texts.drawn(document))


def reached(run: Run, half_width: float) -> Answer:
    """The interval is as narrow as asked for, and nothing was drawn."""
    text = f"reached    the interval is ±{half_width:g} or narrower; no more labels are needed"
    return Answer(DrawnRound(run=run.uri, reached=True, labels_to_go=0), text)
