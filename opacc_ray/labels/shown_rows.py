"""What annotators get of a round: the examples that wait, and the columns that ``manifest.show`` names, as texts.

One form serves the page, the tasks of all tools and the manifests. Values become texts as people write them: numbers
in their shortest form, lists and structs as JSON, a list of chat messages as ``role: content``. Control characters are
replaced. A column is long if one of its texts is: then it is shown as a paragraph, otherwise as a line of a table.

Rows are read from the pool when they are needed, from the files that held them when the pool was listed, and from the
same version of a table. A row whose file changed since then is not shown, because it may be another row now.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from opacc_ray.errors import DataError, SpecError
from opacc_ray.labels.example_files import has_pictures
from opacc_ray.labels.label_log import LabelLog, read_log
from opacc_ray.labels.label_rows import Context, few, is_swapped, quoted
from opacc_ray.lake.examples import Batch, Columns, Plan, Rules, ids_of
from opacc_ray.lake.pools import plan_shards, read_rows
from opacc_ray.runs.run import Chosen, Run
from opacc_ray.spec import PoolSpec, Spec, open_pool, rules_of

Shown = Mapping[str, str]
"""Column → text, in the order in which columns are shown."""

ANSWERS = ("answer", "answer A", "answer B")
"""Titles of the model's answer, or of two."""

LONG = 60  # characters above which a text is a paragraph

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")


def read_shown(run: Run, rounds: Iterable[Chosen], show: Sequence[str]) -> dict[str, Shown]:
    """Return what annotators see of each chosen example of some rounds, by id; empty without columns.

    That is the columns ``show``, and in an audit of grades the model's answer; two answers in the order of the id.

    Raises DataError if a row is not in the pool any more, or its file changed since the pool was listed; SpecError if a
    column holds bytes.
    """
    columns = tuple(dict.fromkeys([*show, *(run.spec.pool.columns.answer or ())]))
    if not columns:
        return {}
    tags: dict[str, tuple[str | None, str | None]] = {}  # id -> its object when the pool was listed, and the tag
    for chosen in rounds:
        tags |= dict(zip(chosen.ids, zip(chosen.objects, chosen.tags, strict=True), strict=True))
    pool, rules = run.spec.pool, rules_of(run.spec.pool)
    version = re.search(r"\d+$", run.header.pool.version or "")
    if version and rules.timestamp is None:
        rules = rules._replace(version=int(version[0]))
    plan = _plan(run.spec, rules, columns)
    now = {entry.key: entry.tag for entry in plan.entries}
    for id, (key, tag) in tags.items():
        if key is not None and tag is not None and now.get(key, tag) != tag:
            raise DataError(
                f"{quoted(id)} cannot be shown: {open_pool(pool).uri_of(key)} changed since the pool was listed; "
                "restore the file"
            )
    keys = {key for key, _ in tags.values()}
    found = {
        id: shown
        for batch in _batches(pool, plan, rules, columns, None if None in keys else {key for key in keys if key})
        for id, shown in _shown_of(batch, pool, columns)
        if id in tags
    }
    lost = [id for id in tags if id not in found]
    if lost:
        names = few([quoted(id) for id in lost], most=2)
        raise DataError(f"{pool.uri} has no row of {names} any more; restore the pool")
    return {id: _with_answers(own, show, run.spec.pool.columns.answer or (), id) for id, own in found.items()}


def _with_answers(row: Shown, show: Sequence[str], answers: Sequence[str], id: str) -> Shown:
    """Return the shown columns of a row, and then its answers without the names of their models."""
    order = answers[::-1] if len(answers) == 2 and is_swapped(id) else answers
    titles = ANSWERS[1:] if len(answers) == 2 else ANSWERS
    return {name: row[name] for name in show} | {title: row[name] for title, name in zip(titles, order, strict=False)}


def try_shown(spec: Spec) -> str:
    """Return the names of the shown columns; raises DataError or SpecError unless the first rows can be shown."""
    pool, rules = spec.pool, rules_of(spec.pool)
    columns = [*spec.manifest.show, *(pool.columns.answer or ())]
    if columns:
        plan = _plan(spec, rules, columns)
        for batch in islice(_batches(pool, plan._replace(shards=plan.shards[:1]), rules, columns), 1):
            for _ in _shown_of(batch, pool, columns):
                break
    return ", ".join(columns)


def long_columns(rows: Iterable[Shown]) -> frozenset[str]:
    """Return the columns that are shown as paragraphs: those with a text of several lines or many characters."""
    return frozenset(name for row in rows for name, text in row.items() if len(text) > LONG or "\n" in text)


def _plan(spec: Spec, rules: Rules, columns: Sequence[str]) -> Plan:
    """Plan the shards of the pool; raises DataError if it lacks a column."""
    checked = rules._replace(slices=tuple(dict.fromkeys([*rules.slices, *columns])))
    return plan_shards(open_pool(spec.pool), spec.pool.format, spec.extract.shard_size, rules=checked)


def _batches(
    pool: PoolSpec, plan: Plan, rules: Rules, columns: Sequence[str], keys: set[str] | None = None
) -> Iterator[Batch]:
    """Yield ids and shown columns of the shards that hold some of the files; None: of all shards."""
    wanted = rules._replace(columns=Columns(id=rules.columns.id, features=(("shown", tuple(columns)),)), slices=())
    for shard in plan.shards:
        if keys is None or keys & set(shard.keys):
            yield from read_rows(open_pool(pool), pool.format, shard, wanted)


def _shown_of(batch: Batch, pool: PoolSpec, columns: Sequence[str]) -> Iterator[tuple[str, Shown]]:
    names = ids_of(batch, rules_of(pool).columns.id)
    texts = [_texts(batch.columns[name], name) for name in columns]
    for row, id in enumerate(names):
        if isinstance(id, str):
            yield id, {name: own[row] for name, own in zip(columns, texts, strict=True)}


def _texts(column: Any, name: str) -> list[str]:
    """Return the values of a column as texts, empty for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    kind = whole.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        raise SpecError(f"manifest.show names {name!r}, which holds bytes; name columns of text or numbers")
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return ["" if value is None else _clean(_structured(value)) for value in whole.to_pylist()]
    return [_clean(text or "") for text in pc.cast(whole, pa.string()).to_pylist()]


def _structured(value: Any) -> str:
    """Return a list or a struct as JSON; chat messages as their roles and contents."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        pairs = [(item.get("role", item.get("from")), item.get("content", item.get("value"))) for item in value]
        if all(isinstance(role, str) and isinstance(content, str) for role, content in pairs):
            return "\n\n".join(f"{role}: {content}" for role, content in pairs)
    return json.dumps(value, ensure_ascii=False, default=str)


def _clean(text: str) -> str:
    return CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


# -- a round for annotators ----------------------------------------------------------------------------------------


def waiting_ids(run: Run, number: int, log: LabelLog) -> list[str]:
    """Return the examples of a round that need a label by the ``log`` of the run, each once, in the order of choice.

    Examples that had a label when they were chosen, were answered in another run, or were given up when the round was
    closed, need none.
    """
    answered = {row.id for file in log.returned if file.action.from_run for row in file.standing()}
    left_out = answered.union(run.read_chosen(number).labelled_ids, run.read_closed(number) or ())
    return [id for id in dict.fromkeys(run.read_selection(number).ids) if id not in left_out]


def context_of(run: Run) -> Context:
    """Return the class names, or the indexes of classes without names, as labels may use them."""
    model, num = run.spec.model, run.num_classes
    names = model.classes or model.outcomes or (map(str, range(num)) if num else None)
    classes = ("A", "tie", "B") if model.prefers else tuple(names) if names and not model.reads_numbers else None
    return Context(classes, model.task, tuple(model.counts or ()))


def rows_to_show(run: Run, numbers: Sequence[int]) -> tuple[dict[str, Shown], Context]:
    """Return what annotators see of the rows of some rounds, by id, and the context with these columns.

    The first round decides which columns are paragraphs, so that one project of a tool fits all rounds.
    """
    first = min(run.rounds(), default=1)
    log = read_log(run)
    shown = read_shown(run, list(map(run.read_chosen, dict.fromkeys([first, *numbers]))), log.show)
    own = [shown[id] for id in run.read_chosen(first).ids] if shown else [{}]
    long = long_columns(own) | (frozenset(ANSWERS) & own[0].keys() if run.spec.model.task == "grade" else frozenset())
    context = context_of(run)
    return shown, replace(
        context,
        has_pictures=has_pictures(run),
        columns=tuple(own[0]),
        long=long,
        question=log.guidance.question or _usual_question(context),
    )


def _usual_question(context: Context) -> str:
    """Return what annotators are asked if the spec has no question of its own."""
    if context.task == "grade":
        if "right" in (grades := context.classes or ()):
            return "Is the answer right?"
        return "Which answer is better?" if "tie" in grades else "How good is the answer?"
    questions = {"multilabel": "Which classes apply?", "regression": "Which value is right?"}
    return questions.get(
        context.task, f"How many: {', '.join(context.counts)}?" if context.counts else "Which class is it?"
    )


def refuse_invisible(run: Run, context: Context) -> None:
    """Raise SpecError if annotators would see nothing of an example."""
    if not context.has_pictures and not context.columns:
        raise SpecError(
            f"annotators would see nothing: the rows of {run.spec.pool.uri} are no pictures, and manifest.show names "
            "no column; run a CSV again with --show COLUMN, or write manifest: {show: [COLUMN, ...]} into the spec "
            "and run it again: draws and labels are kept"
        )


def doubled(ids: Sequence[str], share: float, run: str) -> frozenset[str]:
    """Return the ids that two annotators label: a simple random sample with that share of the ids.

    It depends on digests of the run and each id alone, so every command returns the same examples, and a larger share
    includes those of a smaller one.
    """
    ranked = sorted(dict.fromkeys(ids), key=lambda id: hashlib.sha256(f"{run}\0{id}".encode()).digest())
    return frozenset(ranked[: round(share * len(ranked))])
