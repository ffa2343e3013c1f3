"""The facts that commands print about plans, jobs, lists of runs, sets of features, and what was written."""

from shlex import quote

from opacc_ray.audit.checks import RunPlan
from opacc_ray.audit.exported_case import ExportedCase
from opacc_ray.audit.exported_tables import ExportedTables
from opacc_ray.audit.status import ListedRun, RemovedRun, RunList
from opacc_ray.audit.submission import Submission
from opacc_ray.audit.verify import Verification
from opacc_ray.cli.layout import Line
from opacc_ray.cli.texts import changed
from opacc_ray.errors import counted
from opacc_ray.report import numbers
from opacc_ray.report.facts import Column, Fact, Table, count_text, facts
from opacc_ray.report.numbers import duration, noun, percent
from opacc_ray.runs.feature_sets import FeatureSets, RemovedSet, StoredSet


def plan(document: RunPlan) -> list[Line]:
    """Describe what a run will need, and what that rests on."""
    pace, requests = document.pace, document.requests
    examples = (
        f"{'about ' * document.estimated}{counted(document.examples, 'example')} in {counted(document.files, 'file')}"
    )
    took = f"{_milliseconds(pace.reading)} to read, {_milliseconds(pace.computing)} to compute on {pace.device}"
    without = f"{', '.join(document.left_out)}, which compare with a reference" if document.left_out else None
    return [
        *facts(
            ("work", f"{counted(document.shards, 'shard')}: {examples}"),
            ("requests", f"{requests.list} lists, {requests.read} reads, {requests.write} writes"),
            ("bytes", f"{_bytes(document.bytes_read)} read, {_bytes(document.bytes_written)} of features written"),
            ("time", f"{_seconds(3600 * document.hours)} with {counted(document.actors, 'actor')}, without start-up"),
            (
                "memory",
                f"at most {_bytes(document.memory_actor)} per actor, {_bytes(document.memory_driver)} for the driver",
            ),
            ("measured", f"{counted(pace.examples, 'example')} here: {took}"),
            ("without", without),
        )
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms"


def _bytes(number: int) -> str:
    """Format a number of bytes with at most four digits."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 10_000:
            return f"{number:.0f} {unit}"
        number = round(number / 1000)
    return f"{number} TB"


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def listed(found: RunList) -> list[Line]:
    """Describe runs in a table, then why runs failed or cannot be read."""
    columns = [
        Column("run"),
        Column("state"),
        Column("accuracy", "n"),
        Column("interval", "n"),
        Column("labels", "n"),
        Column("age"),
    ]
    wrong = [
        Fact(item.state, f"{item.name}: {item.waits_for}", "error")
        for item in found.runs
        if item.state in ("failed", "unreadable")
    ]
    return [Table(columns, [_row(item) for item in found.runs]), *wrong]


def _row(item: ListedRun) -> tuple[str, ...]:
    estimate = item.estimate
    stated = numbers.stated(estimate, item.measure) if estimate and item.measure else ("", "")
    return item.name, item.state, *stated, count_text(item.labels), "" if item.days is None else duration(item.days)


def removed_run(done: RemovedRun) -> list[Line]:
    """Describe what of a run was removed, and what was kept."""
    labels = f", {counted(done.label_files, 'file')} of labels among them" if done.label_files else ""
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
        )
    ]


def feature_sets(found: FeatureSets) -> list[Line]:
    """Describe sets of features, some lines each."""
    lines: list[Line] = [line for item in found.sets for line in _set(item)]
    lines += facts(
        *(("note", f"the header of {name} cannot be read: what it uses is not known") for name in found.unread)
    )
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


def verification(document: Verification) -> list[Line]:
    """Describe what is wrong with a run, or that nothing is."""
    lines = facts(("run", document.run), ("checked", counted(document.checked, "file")))
    lines += [Fact("fault", fault.problem, "error") for fault in document.faults] + changed(document.objects)
    sound = ("sound", "nothing is wrong") if document.sound else ("faults", len(document.faults))
    return [*lines, *facts(sound)]


def tables(document: ExportedTables) -> list[Line]:
    """Describe the tables of a run in a lake."""
    rows = [(name, counted(count, "row")) for name, count in document.rows.items()]
    return [*facts(("to", document.to), *rows, ("dictionary", document.dictionary))]


def exported(document: ExportedCase) -> list[Line]:
    """Describe a case that was written, and the part of the pool that it holds."""
    examples = f"{document.examples} of {document.pool_size}, the whole pool"
    if document.examples < document.pool_size:
        examples = (
            f"{document.examples} of {document.pool_size}, {percent(document.examples / document.pool_size)} of the "
            "pool. They are not a random sample, so a study of them does not show the pool. "
            f'{document.unlabelled} have no label, {document.unsure} got "can\'t tell"'
        )
    value = f"{numbers.number(document.value, document.measure)} of these examples"
    columns = ", ".join(document.columns)
    lines = facts(
        ("case", document.file), ("examples", examples), ("columns", columns), (noun(document.measure), value)
    )
    return [*lines, *changed(document.objects)]
