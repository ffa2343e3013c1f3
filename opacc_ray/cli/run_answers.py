"""Answers of commands on runs: rounds, plans, jobs, lists, features, and the file of `opacc run --exit-file`."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from shlex import quote
from typing import Literal

from opacc_ray.audit.checks import RunPlan
from opacc_ray.audit.exported_case import ExportedCase
from opacc_ray.audit.exported_tables import ExportedTables
from opacc_ray.audit.exported_training import ExportedTraining
from opacc_ray.audit.retention import Retention
from opacc_ray.audit.run_log import RunLog
from opacc_ray.audit.sanity import predicted_by, warnings_now
from opacc_ray.audit.status import ListedRun, RemovedRun, RunList
from opacc_ray.audit.status import status as status_of
from opacc_ray.audit.submission import Ended, RunExit, Submission, ended_by
from opacc_ray.audit.verify import Verification
from opacc_ray.cli import texts
from opacc_ray.cli.command import Answer, ending
from opacc_ray.cli.texts import changed
from opacc_ray.errors import OpaccError, SpecError, counted
from opacc_ray.lake.store_uris import open_store, split
from opacc_ray.report.facts import (
    Column,
    Fact,
    Line,
    Table,
    count_text,
    duration,
    facts,
    noun,
    number,
    percent,
    stated,
    warned,
)
from opacc_ray.runs.feature_sets import FeatureSets, RemovedSet, StoredSet
from opacc_ray.runs.feature_store import find_changed
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import DrawnRound, Goal, GoalProgress

log = logging.getLogger(__name__)

# -- rounds ----------------------------------------------------------------------------------------------


def drawn(run: Run, goal: Goal | None = None, *, again: bool = False) -> Answer:
    """Return the newest round of a run, and the progress towards its goal, if it has one."""
    from opacc_ray.designs.grown import CARRIED  # which estimate does not go through

    selection = run.read_selection(run.rounds()[-1])
    notice = f"round {selection.round} was drawn already; label it" if again else selection.facts.get("notice")
    document = DrawnRound(
        run=run.uri,
        track=run.track,
        method=selection.method,
        round=selection.round,
        n=len(selection),
        labelled=len(run.read_chosen(selection.round).labelled_ids),
        carried_from=selection.facts.get(CARRIED, {}).get("run"),
        pool_size=selection.pool_size,
        manifests=run.manifests(selection.round),
        notice=notice,
        objects=find_changed([run], [selection.round]),
        predicted=predicted_by(run),
        warnings=warnings_now(run),
        reached=None if goal is None else goal.reached,
        labels_to_go=None if goal is None else goal.labels_to_go,
        goal=None if goal is None else _progress(goal),
    )
    return Answer(document, texts.drawn(document, status_of(run, with_warnings=False).step))


def reached(run: Run, goal: Goal) -> Answer:
    """Return a goal that is reached; nothing was drawn."""
    progress = _progress(goal)
    document = DrawnRound(run=run.uri, track=run.track, reached=True, labels_to_go=0, goal=progress)
    return Answer(document, texts.reached(progress, run.uri, run.track))


def _progress(goal: Goal) -> GoalProgress:
    return GoalProgress(**{name: getattr(goal, name) for name in GoalProgress.model_fields})


@contextmanager
def exit_file(uri: str | None) -> Iterator[Callable[[Run], None]]:
    """Write to ``uri`` how the block ended; the block passes the finished run to the function that it gets."""
    done: list[Run] = []
    try:
        yield done.append
        if uri is not None:
            waits_for = status_of(done[-1]).waits_for
            ended = ended_by(waits_for)
            _write(uri, RunExit(ended=ended, exit_code=0, run=done[-1].uri, waits_for=waits_for, error=None))
    except BaseException as error:
        if uri is not None:
            _write_failed(uri, error)
        raise


def _write_failed(uri: str, error: BaseException) -> None:
    message, code = ending(error)
    ended: Ended = "wrong spec" if isinstance(error, SpecError) else "failed"
    if isinstance(error, KeyboardInterrupt):
        ended = "interrupted"
    try:
        _write(uri, RunExit(ended=ended, exit_code=code, run=None, waits_for=None, error=message))
    except OpaccError as trouble:  # the error that ended the command matters more
        log.warning("the exit file could not be written: %s", trouble)


def _write(uri: str, left: RunExit) -> None:
    place, name = split(uri)
    open_store(place).write(name, left.to_bytes())


# -- what runs need, and what there is -------------------------------------------------------------------


def plan(document: RunPlan) -> list[Line]:
    """Describe what a run will need, and what that rests on."""
    pace, requests = document.pace, document.requests
    about, files = "about " * document.estimated, counted(document.files, "file")
    examples = f"{about}{counted(document.examples, 'example')} in {files}"
    actors = counted(document.actors, "actor")
    memory = f"at most {_bytes(document.memory_actor)} per actor, {_bytes(document.memory_driver)} for the driver"
    took = f"{1000 * pace.reading:.2g} ms to read, {1000 * pace.computing:.2g} ms to compute on {pace.device}"
    without = f"{', '.join(document.left_out)}, which compare with a reference" if document.left_out else None
    return [
        *facts(
            ("work", f"{counted(document.shards, 'shard')}: {examples}"),
            ("pool", document.pool_changes and f"{document.pool_changes}; only new and changed objects are read"),
            ("requests", f"{requests.list} lists, {requests.read} reads, {requests.write} writes"),
            ("bytes", f"{_bytes(document.bytes_read)} read, {_bytes(document.bytes_written)} of features written"),
            ("time", f"{_seconds(3600 * document.hours)} with {actors}, without start-up"),
            ("memory", memory),
            ("measured", f"{counted(pace.examples, 'example')} here: {took}"),
            ("without", without),
        )
    ]


def _bytes(size: int) -> str:
    """Format a number of bytes with at most four digits."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 10_000:
            return f"{size:.0f} {unit}"
        size = round(size / 1000)
    return f"{size} TB"


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def listed(found: RunList) -> list[Line]:
    """Describe runs in a table, then why runs failed or cannot be read."""
    numeric = ("accuracy", "interval", "labels")
    names = ("run", "state", "accuracy", "interval", "labels", "age")
    columns = [Column(name, "n" if name in numeric else "") for name in names]
    wrong = [item for item in found.runs if item.state in ("failed", "unreadable")]
    return [
        Table(columns, [_row(item) for item in found.runs]),
        *(Fact(item.state, f"{item.name}: {item.waits_for}", "error") for item in wrong),
    ]


def _row(item: ListedRun) -> tuple[str, ...]:
    estimate = item.estimate
    texts = stated(estimate, item.measure) if estimate and item.measure else ("", "")
    return item.name, item.state, *texts, count_text(item.labels), "" if item.days is None else duration(item.days)


def removed_run(done: RemovedRun) -> list[Line]:
    """Describe what of a run was removed, and what was kept."""
    labels = f", {counted(done.label_files, 'file')} of labels among them" if done.label_files else ""
    watched = f"it was the first labelled run of {done.reference_of}: `opacc watch` compares with the next one now"
    kept = None
    if done.features and done.used_by:
        kept = f"features {done.features}, which {', '.join(done.used_by)} use"
    elif done.features:
        command = f"opacc features remove {quote(done.run.rpartition('/')[0])} {done.features}"
        kept = f"features {done.features}, which no other run uses; to delete them: {command}"
    return [
        *facts(
            ("removed", f"{done.run}: {counted(done.files, 'file')}, {_megabytes(done.bytes)}{labels}"),
            *(("kept", f"{uri}, which is no file of a run") for uri in done.kept),
            ("kept", kept),
        ),
        *warned([watched] if done.reference_of else []),
    ]


def expired(found: Retention) -> list[Line]:
    """Describe what the retention of an output deletes."""
    verb = "deleted" if found.deleted else "expired"
    lines: list[Line] = [
        Fact(verb, f"{item.run}: unchanged for {duration(item.days)}, {counted(item.labels, 'file')} of labels")
        for item in found.runs
    ]
    lines += facts(*((verb, f"features {digest}") for digest in found.features))
    lines += [Fact("kept", f"{uri} cannot be read, so all features are kept", "warning") for uri in found.unread]
    lines += warned(found.notes)
    if not found.runs and not found.features:
        return [*lines, f"nothing in {found.output} is older than {found.days:g} days and replaced by a newer run"]
    if not found.deleted:
        lines.append(Fact("next:", f"opacc runs expire {quote(found.output)} --days {found.days:g} --force"))
    return lines


def feature_sets(found: FeatureSets) -> list[Line]:
    """Describe sets of features, some lines each."""
    unread = [("note", f"the header of {name} cannot be read: what it uses is not known") for name in found.unread]
    lines: list[Line] = [*(line for item in found.sets for line in _set(item)), *facts(*unread)]
    return lines or [f"no features are shared in {found.output}"]


def removed_set(done: RemovedSet) -> list[Line]:
    """Describe the set of features that was removed, and the runs that used it."""
    again = f"; to extract it again, run the spec of {', '.join(done.removed.runs)}" if done.removed.runs else ""
    return [*facts(("removed", f"{done.removed.digest}: {_megabytes(done.removed.bytes)}{again}"))]


def _set(item: StoredSet) -> list[Fact]:
    examples = "not complete" if item.examples is None else counted(item.examples, "example")
    weights = f" with weights {item.weights[:16]}" if item.weights else ""
    return facts(
        ("set", f"{item.digest}: {examples}, {_megabytes(item.bytes)}"),
        ("  pool", item.pool or "not known"),
        ("  model", f"{item.model or 'not known'}{weights}"),
        ("  features", ", ".join(item.features) or "none is complete"),
        ("  runs", ", ".join(item.runs) or "none"),
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def submission(document: Submission) -> list[Line]:
    """Describe a job that was sent or found, and how it ended."""
    how = "was sent before" if document.found else f"sent with {counted(len(document.modules), 'file')} of code"
    ended = document.ended or "not yet; the same command follows it, `ray job stop` stops it"
    waits_for = document.waits_for if document.ended else None
    return [*facts(("job", f"{document.id} {how}"), ("run", document.run), ("ended", ended), ("waits for", waits_for))]


def logged(found: RunLog) -> list[Line]:
    """Return the entries of a log as a table, those that say the same in one row; and the digest of the newest."""
    kinds: dict[str, Literal["", "n"]] = {"entry": "n", "time": "", "round": "n", "track": "", "what": ""}
    columns = [Column(name, kind) for name, kind in kinds.items()]
    rows = list[tuple[str, ...]]()
    for (of_round, track, what), same in groupby(found.entries, lambda own: (own.round, own.track, own.what)):
        first, *others = same
        places = f"{first.number}–{others[-1].number}" if others else str(first.number)
        times = f"{what}, {1 + len(others)} times" if others else what
        rows.append((places, first.at[:19].replace("T", " "), str(of_round or ""), track or "", times))
    if not found.entries:
        return ["nothing happened to this run yet"]
    return [
        Table(columns, rows),
        Fact("head", f"{found.head}, the digest of entry {found.entries[-1].number} and all before it"),
    ]


def verification(document: Verification) -> list[Line]:
    """Describe what is wrong with a run, or that nothing is."""
    lines = facts(("run", document.run), ("checked", counted(document.checked, "file")))
    lines += [Fact("fault", fault.problem, "error") for fault in document.faults] + changed(document.objects)
    sound = ("sound", "nothing is wrong") if document.sound else ("faults", len(document.faults))
    return [*lines, *facts(sound)]


def tables(document: ExportedTables) -> list[Line]:
    """Describe the tables of a run in a lake."""
    rows = [(name, counted(count, "row")) for name, count in document.rows.items()]
    return [*facts(("to", document.to), *rows, ("dictionary", document.dictionary), ("views", document.views))]


def training(document: ExportedTraining) -> list[Line]:
    """Describe training data that were written, and how to measure what they gain."""
    what = f"{counted(document.examples, 'example')}, {document.failures} of them mispredicted"
    step = "train on it, audit the new model on a fresh draw, and compare both (docs/guide.md)"
    return [*facts(("wrote", document.file), ("examples", what), ("then", step))]


def exported(document: ExportedCase) -> list[Line]:
    """Describe a case that was written, and the part of the pool that it holds."""
    of_pool = "the whole pool"
    if document.examples < document.pool_size:
        of_pool = (
            f"{percent(document.examples / document.pool_size)} of the pool. They are not a random sample, so a study "
            f"of them does not show the pool. {document.unlabelled:,} have no label, "
            f'{document.unsure} got "can\'t tell"'
        )
    value = f"{number(document.value, document.measure)} of these examples"
    return [
        *facts(
            ("case", document.file),
            ("examples", f"{document.examples:,} of {document.pool_size:,}, {of_pool}"),
            ("columns", ", ".join(document.columns)),
            (noun(document.measure), value),
        ),
        *changed(document.objects),
    ]
