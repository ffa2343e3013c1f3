"""Name the command to run next."""

from collections.abc import Sequence
from shlex import quote

from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.labels.label_log import read_log
from opacc_ray.runs.estimate_documents import RoundCounts
from opacc_ray.runs.run import Run


def command_of(run: Run, verb: str, *rest: str) -> str:
    """Return a command on a run and its track, as it can be pasted into a shell."""
    track = ["--track", quote(run.track)] if run.track else []
    return " ".join(["opacc", verb, quote(run.uri), *rest, *track])


def step_of(run: Run, rounds: Sequence[RoundCounts], *, stated: bool = False) -> list[str]:
    """Return the command to run next on a track and its arguments, without the run.

    ``stated`` says whether an estimate uses all labels that are there.
    """
    if any(item.missing for item in rounds):
        return ["label"] if has_page(run) else ["labels import", "FILE"]
    if not any(item.labelled for item in rounds):
        return ["next"]
    goal = run.newest_goal(reached=False)
    if goal is not None:
        return ["next", *until_options(goal.half_width, goal.metric, goal.by)]
    return ["report" if stated else "estimate"]


def until_options(half_width: float, metric: str = ACCURACY, by: str | None = None) -> list[str]:
    """Return the options that state a goal, for a shell."""
    width = f"±{half_width:g}"
    return [
        "--until",
        width if metric == ACCURACY else quote(f"{metric} {width}"),
        *(["--by", quote(by)] if by else []),
    ]


def has_page(run: Run) -> bool:
    """Return whether the labelling page can show the examples of a run: pictures, answers or columns of rows."""
    from opacc_ray.labels.example_files import may_have_pictures  # decoders, which few commands need

    return bool(run.spec.pool.columns.answer or read_log(run).show) or may_have_pictures(run)


def no_page(run: Run) -> str:
    """Return why the labelling page shows nothing of a run, and what to do."""
    manifest = next((uri for uri in run.manifests(run.rounds()[-1]) if uri.endswith(".csv")), None)
    instead = f", or fill in a copy of {manifest} and import it" if manifest else ""
    return (
        "the labelling page has nothing to show: name columns of the pool to show, by --show for a CSV, or "
        f"manifest.show in the spec{instead}"
    )
