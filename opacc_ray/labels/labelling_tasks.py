"""Labelling tasks of a round: what a tool gets, how its images are sent, and which annotator labels which example."""

import hashlib
import logging
import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from shlex import quote
from typing import NamedTuple

from opacc_ray.errors import LabelError, SpecError, counted
from opacc_ray.labels.example_files import THUMBNAIL, ExampleFiles, has_pictures, thumbnail
from opacc_ray.labels.formats.label_formats import FORMATS, link_to
from opacc_ray.labels.label_documents import AnnotatorShare, LabellingTasks
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.label_rows import Context, FormatName, Task, Way
from opacc_ray.labels.shown_rows import ANSWERS, Shown, long_columns, read_shown
from opacc_ray.lake.store import write_files
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs.feature_store import find_changed
from opacc_ray.runs.run import Run

log = logging.getLogger(__name__)

LONGEST_LINK = timedelta(days=7)  # longest lifetime of a signed link in the S3 API


class Wanted(NamedTuple):
    """Options of the tasks."""

    tool: FormatName
    folder: str
    round: int | None = None  # None: the newest
    images: Way | None = None  # None: links if the pool is in S3 and the tool accepts them, else the tool's next
    lifetime: timedelta = LONGEST_LINK  # of links
    annotators: tuple[str, ...] = ()  # without names, all annotators label the same tasks
    overlap: float | None = None  # None: that of the run's spec


def write_tasks(run: Run, wanted: Wanted) -> LabellingTasks:
    """Write the tasks of a round, in one folder per annotator; they never have the model's predictions.

    File names end in track and round. A file with other content is never replaced: it may have labels.

    Raises SpecError if the tool or its way for images is unknown, or annotators and overlap do not fit together;
    LabelError if there is no such round, or a file of the same name has other content; DataError or StorageError if an
    image cannot be read, or has no link.
    """
    if wanted.tool not in FORMATS:
        raise SpecError(f"--to {wanted.tool} is unknown: use one of {', '.join(FORMATS)}")
    rounds = run.drawn_rounds()
    tool, number = FORMATS[wanted.tool], rounds[-1] if wanted.round is None else wanted.round
    if number not in rounds:
        raise LabelError(f"{run.title} has no round {number}; it has rounds 1 to {rounds[-1]}")
    ids = waiting_ids(run, number)
    twice = _doubled(run, ids, wanted)
    dealt = deal(ids, wanted.annotators, twice) if wanted.annotators else {"": ids}
    shown, context = rows_to_show(run, [number])
    if wanted.tool not in ("csv", "jsonl"):  # whoever gets ids may look them up
        refuse_invisible(run, context, wanted.tool)
    way = _way(run, wanted, context)
    store, files = open_store(wanted.folder), ExampleFiles(run, [number])
    images = _images(run, number, ids, way, wanted, files, store) if way else {}
    tasks = {
        id: Task(id, images.get(id), run.name, number, order, shown=shown.get(id, {}))
        for order, id in enumerate(ids, start=1)
    }
    contents = {
        f"{_folder_of(name)}{_with_round(file, run.track, number)}": data
        for name, own in dealt.items()
        for file, data in tool.write([tasks[id] for id in own], context).items()
    }
    refuse_other_files(store, contents, f"opacc labels import {quote(run.uri)}")
    if way == "copies":
        _copy(files, images.keys(), store)
    return LabellingTasks(
        run=run.uri,
        round=number,
        tool=wanted.tool,
        folder=store.uri,
        files=write_files(store, contents),
        examples=len(ids),
        images=way,
        columns=list(context.columns),
        links_end=(datetime.now(UTC) + wanted.lifetime).isoformat(timespec="seconds") if way == "links" else None,
        twice=len(twice),
        annotators=[AnnotatorShare(annotator=name, examples=len(own)) for name, own in dealt.items() if name],
        objects=find_changed([run], [number]),
    )


def refuse_other_files(store: Store, contents: Mapping[str, bytes], importing: str | None = None) -> None:
    """Raise LabelError if writing would replace a file with other content.

    ``importing`` is the command that imports labels from such files; None if they never have labels.
    """
    for key, data in contents.items():
        if store.read_if_there(key) not in (None, data):
            uri = store.uri_of(key)
            filled = f"; if it has labels, import them with `{importing} {quote(uri)}`" if importing else ""
            raise LabelError(
                f"{uri} already exists with other content and was not replaced{filled}; write to another folder, or "
                "move the file away"
            )


def _with_round(file: str, track: str | None, number: int) -> str:
    """Add track and round to a file name: manifest-2.csv, tasks-srs-200-1.json."""
    path = PurePosixPath(file)
    return "-".join(filter(None, [path.stem, track, str(number)])) + path.suffix


def waiting_ids(run: Run, number: int) -> list[str]:
    """Return the examples of a round that need a label, each once, in the order of choice.

    Examples that had a label when they were chosen, or were given up when the round was closed, need none.
    """
    left_out = run.read_chosen(number).labelled_ids.union(run.read_closed(number) or ())
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


def refuse_invisible(run: Run, context: Context, tool: FormatName | None = None) -> None:
    """Raise SpecError if annotators would see nothing of an example, or not the answer that they judge."""
    if not context.has_pictures and not context.columns:
        raise SpecError(
            f"annotators would see nothing: the rows of {run.spec.pool.uri} are no pictures, and manifest.show names "
            "no column; run a CSV again with --show COLUMN, or write manifest: {show: [COLUMN, ...]} into the spec "
            "and run it again: draws and labels are kept"
        )
    if not context.has_pictures or not context.columns or not getattr(FORMATS.get(tool or ""), "PICTURES_ALONE", False):
        return
    if context.task == "grade":
        others = "use --to label-studio or --to csv, or `opacc label`"
        raise SpecError(f"{tool} shows pictures alone, so nobody would see the answers to judge: {others}")
    names = ", ".join(context.columns)
    log.warning("%s shows the pictures alone, without %s; label-studio and `opacc label` show both", tool, names)


def doubled(ids: Sequence[str], share: float, run: str) -> frozenset[str]:
    """Return the ids that two annotators label: a simple random sample with that share of the ids.

    It depends on digests of the run and each id alone, so every command returns the same examples, and a larger share
    includes those of a smaller one.
    """
    ranked = sorted(dict.fromkeys(ids), key=lambda id: hashlib.sha256(f"{run}\0{id}".encode()).digest())
    return frozenset(ranked[: round(share * len(ranked))])


def deal(ids: Sequence[str], annotators: Sequence[str], twice: frozenset[str]) -> dict[str, list[str]]:
    """Assign ids to annotators, in their order: those in ``twice`` to two annotators, the others to one."""
    dealt: dict[str, list[str]] = {name: [] for name in annotators}
    num = len(annotators)
    for i, id in enumerate(ids):
        dealt[annotators[i % num]].append(id)
        if id in twice:
            distance = 1 + (i // num) % (num - 1)  # so that all pairs of annotators share examples
            dealt[annotators[(i + distance) % num]].append(id)
    return dealt


def _doubled(run: Run, ids: Sequence[str], wanted: Wanted) -> frozenset[str]:
    names = wanted.annotators
    if len(set(map(_folder_of, names))) < len(names):
        raise SpecError(f"--annotators {','.join(names)} has a name twice: give different names")
    share = read_log(run).overlap if wanted.overlap is None else wanted.overlap
    if share and len(names) < 2:
        raise SpecError(
            f"an overlap of {share:g} assigns examples to two annotators: name them with --annotators ann,bob, or give "
            "--overlap 0"
        )
    return doubled(ids, share, run.name)


def _way(run: Run, wanted: Wanted, context: Context) -> Way | None:
    ways: tuple[Way, ...] = FORMATS[wanted.tool].IMAGES
    if not timedelta() < wanted.lifetime <= LONGEST_LINK:
        raise SpecError(f"links can be valid for at most {LONGEST_LINK.days} days: give --days between 0 and 7")
    if not context.has_pictures and (wanted.images or "addresses") != "addresses":
        raise SpecError(f"--images {wanted.images}: the rows of {run.spec.pool.uri} are no pictures; remove it")
    if not context.has_pictures and wanted.images is None:
        return "addresses" if "addresses" in ways and wanted.tool != "ground-truth" else None
    if wanted.images is None:
        in_s3 = run.spec.pool.uri.startswith("s3://") and run.spec.pool.format == "images"
        return next(way for way in ways if way != "links" or in_s3)
    if wanted.images not in ways:
        raise SpecError(f"--images {wanted.images} is not supported for {wanted.tool}: use {' or '.join(ways)}")
    return wanted.images


def _images(
    run: Run, number: int, ids: Sequence[str], way: Way, wanted: Wanted, files: ExampleFiles, store: Store
) -> dict[str, str | None]:
    """Return what shows each example: a link, a picture, or the place of a copy."""
    if way == "addresses":
        template = run.spec.manifest.link
        return {id: link_to(files.uris[id], template, id=id, run=run.name, round=number) for id in ids}
    if way == "links":
        seconds = int(wanted.lifetime.total_seconds())
        return {id: files.link(id, seconds) for id in ids}
    if way == "thumbnails":
        pictures = {id: thumbnail(files.picture(id, THUMBNAIL)) for id in files.in_pool_order(ids)}
        return {id: f"data:{item.kind};base64,{b64encode(item.data).decode()}" for id, item in pictures.items()}
    before = getattr(FORMATS[wanted.tool], "COPIES", "images/").replace("{folder}", store.uri.rpartition("/")[2])
    return {id: before + files.name_of_copy(id) for id in ids}


def _copy(files: ExampleFiles, ids: Collection[str], store: Store) -> None:
    """Write the files of examples to images/, and warn about other files there."""
    others = copy_examples(files, ids, store, "images/")
    if others:
        log.warning(
            "%s/images has %s from another round or run, such as %s: send only those of this one, or write each round "
            "to its own folder",
            store.uri,
            counted(len(others), "image"),
            min(others).removeprefix("images/"),
        )


def copy_examples(files: ExampleFiles, ids: Collection[str], store: Store, folder: str) -> set[str]:
    """Write the files of examples to a folder, and return the keys of other files there.

    Raises LabelError if a file of the same name has other content.
    """
    there, names = {entry.key for entry in store.list(folder)}, set()
    for id in files.in_pool_order(ids):
        name, data = files.copy(id)
        key = f"{folder}{name}"
        names.add(key)
        if key in there:
            refuse_other_files(store, {key: data})
        else:
            store.write(key, data)
    return there - names


def _folder_of(annotator: str) -> str:
    """Return the folder of an annotator's tasks; a name must not lead out of it."""
    text = annotator.strip()
    if annotator and not re.fullmatch(r"[\w@+][\w@+. -]{0,99}", text):
        raise SpecError(f"--annotators {annotator!r}: use letters, digits, '.', '_', '-', '@' and '+' in names")
    return f"{text}/" if text else ""
