"""Name the command to run next."""

from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

from opacc_ray.errors import counted
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.runs.run import Run


class Step(NamedTuple):
    """A command, and the reason for it."""

    why: str
    command: str


def command_of(run: Run, verb: str, *rest: str) -> str:
    """Return a command on a run and its track, as it can be pasted into a shell."""
    track = ["--track", quote(run.track)] if run.track else []
    return " ".join(["opacc", verb, quote(run.uri), *rest, *track])


def step_without_result(run: Run, rounds: Sequence[LabelledRound]) -> Step | None:
    """Return the step that a run needs before its result is complete; None if all rounds are answered."""
    missing = sum(len(item.missing) for item in rounds)
    if missing:
        what = f"Label the {counted(missing, 'example')} that wait." if missing > 1 else "Label the example that waits."
        return Step(what, labelling_command(run))
    if not any(item.labelled.any() for item in rounds):
        return Step('All answers are "can\'t tell". Draw more examples.', command_of(run, "next"))
    return None


def step_after_labels(run: Run, *, missing: int, stated: bool = False) -> list[str]:
    """Return the command to run next and its arguments, without the run.

    ``missing`` counts the labels that are missing; ``stated`` says whether an estimate uses all that are there.
    """
    if missing:
        return ["label"] if has_page(run) else ["labels import", "FILE"]
    goal = run.open_goal()
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
    pool = run.spec.pool
    several = isinstance(pool.columns.array, list) and len(pool.columns.array) > 1
    has_pictures = pool.columns.uri is not None if pool.holds_features else not several
    return has_pictures or bool(pool.columns.answer or read_log(run).show)


def no_page(run: Run) -> str:
    """Return why the labelling page shows nothing of a run, and what to do."""
    manifest = next((uri for uri in run.manifests(run.rounds()[-1]) if uri.endswith(".csv")), None)
    instead = f", or fill in a copy of {manifest} and import it" if manifest else ""
    return (
        "the labelling page has nothing to show: name columns of the pool to show, by --show for a CSV, or "
        f"manifest.show in the spec{instead}"
    )


def labelling_command(run: Run) -> str:
    """Return the command that opens the labelling page; without pictures or text, the one that imports labels."""
    return command_of(run, "label") if has_page(run) else command_of(run, "labels import", "FILE")
