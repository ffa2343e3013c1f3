"""Answers of the commands that draw a round."""

from opacc_ray.audit.sanity import predicted_by, warnings_now
from opacc_ray.cli import texts
from opacc_ray.cli.command import Answer
from opacc_ray.runs.pool_objects import find_changed
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import DrawnRound, Goal, GoalProgress


def drawn(run: Run, goal: Goal | None = None) -> Answer:
    """The newest round of a run, and how near the goal is that it was drawn for, if there is one."""
    selection = run.read_selection(run.rounds()[-1])
    document = DrawnRound(
        run=run.uri,
        track=run.track,
        method=selection.method,
        round=selection.round,
        n=len(selection),
        labelled=len(run.read_chosen(selection.round).labelled_ids),
        pool_size=selection.pool_size,
        manifests=run.manifests(selection.round),
        notice=selection.facts.get("notice"),
        objects=find_changed([run], [selection.round]),
        predicted=predicted_by(run),
        warnings=warnings_now(run),
        reached=None if goal is None else goal.reached,
        labels_to_go=None if goal is None else goal.labels_to_go,
        goal=None if goal is None else _progress(goal),
    )
    return Answer(document, texts.drawn(document))


def reached(run: Run, goal: Goal) -> Answer:
    """The interval is as narrow as asked for, and nothing was drawn."""
    progress = _progress(goal)
    return Answer(
        DrawnRound(run=run.uri, track=run.track, reached=True, labels_to_go=0, goal=progress), texts.reached(progress)
    )


def _progress(goal: Goal) -> GoalProgress:
    return GoalProgress(**{name: getattr(goal, name) for name in GoalProgress.model_fields})
