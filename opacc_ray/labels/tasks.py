"""What a labelling tool is given of a round: its tasks, its configuration, and the images in a way that it can show."""

import base64
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from shlex import quote
from typing import NamedTuple

from opacc_ray.errors import LabelError, SpecError, counted
from opacc_ray.labels.documents import AnnotatorShare, LabellingTasks
from opacc_ray.labels.example_files import ExampleFiles
from opacc_ray.labels.formats.manifest import link_to
from opacc_ray.labels.formats.tools import TOOLS, Tool, Way
from opacc_ray.labels.log import read_log
from opacc_ray.labels.overlap import deal, doubled
from opacc_ray.labels.pictures import THUMBNAIL, thumbnail
from opacc_ray.labels.rows import Context, Task
from opacc_ray.lake.storage import Store, open_store
from opacc_ray.lake.store import write_files
from opacc_ray.runs.pool_objects import find_changed
from opacc_ray.runs.run import Run

log = logging.getLogger(__name__)

LONGEST_LINK = timedelta(days=7)
"""For how long a link to an object can be signed, by the S3 API."""


class Wanted(NamedTuple):
    """What is asked of the tasks.

    ``images`` None: links where the pool is in S3 and the tool takes them, else the tool's own way without a link.
    ``overlap`` None: that of the run's spec. Without ``annotators`` all tasks are for everybody.
    """

    tool: str
    folder: str
    round: int | None = None
    images: Way | None = None
    lifetime: timedelta = LONGEST_LINK
    annotators: tuple[str, ...] = ()
    overlap: float | None = None


def write_tasks(run: Run, wanted: Wanted) -> LabellingTasks:
    """Write the tasks of a round, each annotator's in a folder of their own; the model's answers are not in them.

    The names of the files end in track and round. A file with other content is never replaced: it may hold labels.

    Raises
    ------
    SpecError
        An unknown tool, a way for images that it does not have, or annotators that do not fit the overlap.
    LabelError
        There is no such round, or a file with other content has the name of one of its files.
    DataError, StorageError
        An image cannot be read, or has no link.
    """
    tool = _tool(wanted.tool)
    number = _round(run, wanted.round)
    ids = waiting_ids(run, number)
    twice = _doubled(run, ids, wanted)
    dealt = deal(ids, wanted.annotators, twice) if wanted.annotators else {"": ids}
    way = _way(run, tool, wanted)
    store = open_store(wanted.folder)
    files = ExampleFiles(run, [number])
    images = _images(run, number, ids, way, wanted, files, store)
    tasks = {id: Task(id, images[id], run.name, number, order) for order, id in enumerate(ids, start=1)}
    context = context_of(run)
    contents = {
        f"{_folder_of(name)}{_of_round(file, run.track, number)}": data
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
        links_end=_end(wanted.lifetime) if way == "links" else None,
        twice=len(twice),
        annotators=[AnnotatorShare(annotator=name, examples=len(own)) for name, own in dealt.items() if name],
        objects=find_changed([run], [number]),
    )


def refuse_other_files(store: Store, contents: Mapping[str, bytes], importing: str | None = None) -> None:
    """Raise LabelError if writing would replace a file that holds something else.

    Parameters
    ----------
    importing : the command that takes labels of such files back; None if nobody fills them in.
    """
    for key, data in contents.items():
        if store.read_if_there(key) not in (None, data):
            uri = store.uri_of(key)
            filled = f"; if labels were filled in, take them back with `{importing} {quote(uri)}`" if importing else ""
            raise LabelError(
                f"{uri} is there, differs from what would be written, and was left as it is{filled}; write to another "
                "folder, or move the file away"
            )


def _of_round(file: str, track: str | None, number: int) -> str:
    """The name of a file with track and round in it: manifest-2.csv, tasks-srs-200-1.json."""
    path = PurePosixPath(file)
    return "-".join(filter(None, [path.stem, track, str(number)])) + path.suffix


def waiting_ids(run: Run, number: int) -> list[str]:
    """The examples of a round that need a label, each once, in the order of choice.

    Left out are those that had one when they were chosen, and those that were given up when the round was closed.
    """
    left_out = run.read_chosen(number).labelled_ids.union(run.read_closed(number) or ())
    return [id for id in dict.fromkeys(run.read_selection(number).ids) if id not in left_out]


def context_of(run: Run) -> Context:
    """The names of the classes, or the indexes of those that have none, as labels may name them."""
    model, num = run.spec.model, run.num_classes
    if model.task == "regression":
        return Context(None, model.task)
    names = tuple(model.classes) if model.classes else tuple(map(str, range(num))) if num else None
    return Context(names, model.task)


def _tool(name: str) -> Tool:
    if name not in TOOLS:
        raise SpecError(f"--to {name} is unknown: use one of {', '.join(TOOLS)}")
    return TOOLS[name]


def _round(run: Run, number: int | None) -> int:
    rounds = run.drawn_rounds()
    if number is not None and number not in rounds:
        raise LabelError(f"{run.title} has no round {number}; it has rounds 1 to {rounds[-1]}")
    return rounds[-1] if number is None else number


def _doubled(run: Run, ids: Sequence[str], wanted: Wanted) -> frozenset[str]:
    names = wanted.annotators
    if len(set(map(_folder_of, names))) < len(names):
        raise SpecError(f"--annotators {','.join(names)} names one person twice: give different names")
    share = read_log(run).overlap if wanted.overlap is None else wanted.overlap
    if share and len(names) < 2:
        raise SpecError(
            f"an overlap of {share:g} sends examples to two people: name them with --annotators ann,bob, or give "
            "--overlap 0"
        )
    return doubled(ids, share, run.name)


def _way(run: Run, tool: Tool, wanted: Wanted) -> Way:
    if not timedelta() < wanted.lifetime <= LONGEST_LINK:
        raise SpecError(f"links can be valid for at most {LONGEST_LINK.days} days: give --days between 0 and 7")
    if wanted.images is None:
        in_s3 = run.spec.pool.uri.startswith("s3://") and run.spec.pool.format == "images"
        return next(way for way in tool.images if way != "links" or in_s3)
    if wanted.images not in tool.images:
        raise SpecError(f"--images {wanted.images} is no way for {wanted.tool}: use {' or '.join(tool.images)}")
    return wanted.images


def _images(
    run: Run, number: int, ids: Sequence[str], way: Way, wanted: Wanted, files: ExampleFiles, store: Store
) -> dict[str, str]:
    """Return what each task shows: a link, a picture, or the place of a copy."""
    if way == "addresses":
        template = run.spec.manifest.link
        links = {id: link_to(files.uris[id], template, id=id, run=run.name, round=number) for id in ids}
        return {id: link or "" for id, link in links.items()}
    if way == "links":
        seconds = int(wanted.lifetime.total_seconds())
        return {id: files.link(id, seconds) for id in ids}
    if way == "thumbnails":
        return {id: _data_uri(files, id) for id in files.in_pool_order(ids)}
    before = TOOLS[wanted.tool].copies.replace("{folder}", store.uri.rpartition("/")[2])
    return {id: before + files.name_of_copy(id) for id in ids}


def _copy(files: ExampleFiles, ids: Collection[str], store: Store) -> None:
    """Write the files of examples to images/, and warn of others there."""
    others = copy_examples(files, ids, store, "images/")
    if others:
        log.warning(
            "%s/images holds %s of another round or run, such as %s: send only those of this one, or give each round a "
            "folder of its own",
            store.uri,
            counted(len(others), "image"),
            min(others).removeprefix("images/"),
        )


def copy_examples(files: ExampleFiles, ids: Collection[str], store: Store, folder: str) -> set[str]:
    """Write the files of examples to a folder; returns the keys of what else is there.

    Raises LabelError for a file of that name that holds something else.
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


def _data_uri(files: ExampleFiles, id: str) -> str:
    picture = thumbnail(files.picture(id, THUMBNAIL))
    return f"data:{picture.kind};base64,{base64.b64encode(picture.data).decode()}"


def _folder_of(annotator: str) -> str:
    """The folder of an annotator's tasks; the name comes from a person and must not lead elsewhere."""
    if not annotator:
        return ""
    text = annotator.strip()
    if not re.fullmatch(r"[\w@+][\w@+. -]{0,99}", text):
        raise SpecError(f"--annotators {annotator!r}: use letters, digits, '.', '_', '-', '@' and '+' in names")
    return f"{text}/"


def _end(lifetime: timedelta) -> str:
    return (datetime.now(UTC) + lifetime).isoformat(timespec="seconds")
