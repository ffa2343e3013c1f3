"""Labelling tasks of a round: what a tool gets, how its images are sent, and which annotator labels which example."""

import logging
import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from shlex import quote
from typing import Literal

from pydantic import Field

from opacc_ray.documents import Document
from opacc_ray.errors import LabelError, SpecError, counted
from opacc_ray.labels import shown_examples
from opacc_ray.labels.formats import FORMATS, Context, Task, Way, link_to, warnings_about
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.shown_examples import ExampleFiles, Picture, render
from opacc_ray.lake.store import write_files
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs.run import Run, find_changed
from opacc_ray.runs.run_documents import ChangedObjects

log = logging.getLogger(__name__)

LONGEST_LINK = timedelta(days=7)  # longest lifetime of a signed link in the S3 API

THUMBNAIL, THUMBNAIL_BYTES = 800, 90_000
"""Most pixels a side, and most bytes, of a picture inside a task: in base64 it fits a cell of Python's CSV."""


class LabellingTasks(Document):
    """Tasks of a round, written for a labelling tool."""

    format: Literal["opacc-tasks/1"] = "opacc-tasks/1"
    run: str  # URI of the run
    round: int = Field(ge=1)  # number of the round
    tool: str  # name of the tool
    folder: str  # folder of the files, with the copies of images
    files: list[str]  # URIs of tasks and configurations
    examples: int = Field(ge=0)  # number of examples to label
    # how images reach annotators: links that expire, copies, pictures inside the tasks, or plain URIs; null: examples
    # are no pictures
    images: Way | None
    columns: list[str] = Field(default=[])  # columns of the rows that annotators see
    links_end: str | None  # time at which the links expire in ISO 8601, UTC; null without links
    twice: int = Field(ge=0)  # examples assigned to two annotators
    annotators: dict[str, int]  # annotator -> number of examples; empty: all label the same tasks
    objects: ChangedObjects | None = None  # images that changed since extraction: annotators see other content


def write_tasks(
    run: Run,
    tool: str,
    folder: str,
    *,
    round: int | None = None,
    images: Way | None = None,
    lifetime: timedelta = LONGEST_LINK,
    annotators: Sequence[str] = (),
    overlap: float | None = None,
) -> LabellingTasks:
    """Write the tasks of a round, in one folder per annotator; they never have the model's predictions.

    File names end in the round. A file with other content is never replaced: it may have labels.

    Parameters
    ----------
    round : None: the newest
    images : None: links if the pool is in S3 and the tool accepts them, else the tool's next way
    lifetime : of links, at most 7 days
    annotators : without names, all annotators label the same tasks
    overlap : share of the examples that two annotators label; None: that of the run's spec

    Raises
    ------
    SpecError
        The tool does not support this way for images, or annotators and overlap do not fit together.
    LabelError
        There is no such round, or a file of the same name has other content.
    DataError, StorageError
        An image cannot be read, or has no link.
    """
    rounds = run.drawn_rounds()
    number = rounds[-1] if round is None else round
    if number not in rounds:
        raise LabelError(f"{run.uri} has no round {number}; it has rounds 1 to {rounds[-1]}")
    labels = read_log(run)
    ids = shown_examples.waiting_ids(run, number, labels)
    twice = _doubled(run, ids, annotators, labels.rules.overlap if overlap is None else overlap)
    dealt = deal(ids, annotators, twice) if annotators else {"": ids}
    shown, context = shown_examples.rows_to_show(run, [number])
    for text in warnings_about(run.spec.model.label_names):
        log.warning("%s", text)
    if tool not in ("csv", "jsonl"):  # whoever gets ids may look them up
        shown_examples.refuse_invisible(run, context)
        refuse_blind(context, tool)
    way = _way(run, tool, images, context)
    store, files = open_store(folder), ExampleFiles(run, [number])
    copies = FORMATS[tool].copies.replace("{folder}", store.uri.rpartition("/")[2])
    uris = _images(run, number, ids, way, files, lifetime, copies) if way else {}
    tasks = {
        id: Task(id, uris.get(id), run.name, number, order, shown=shown.get(id, {}))
        for order, id in enumerate(ids, start=1)
    }
    contents: dict[str, bytes] = {}
    for name, share in dealt.items():
        for file, data in FORMATS[tool].write([tasks[id] for id in share], context).items():
            path = PurePosixPath(file)
            contents[f"{_folder_of(name)}{path.stem}-{number}{path.suffix}"] = data
    refuse_other_files(store, contents, f"opacc labels import {quote(run.uri)}")
    if way == "copies":
        _copy_images(files, uris.keys(), store)
    return LabellingTasks(
        run=run.uri,
        round=number,
        tool=tool,
        folder=store.uri,
        files=write_files(store, contents),
        examples=len(ids),
        images=way,
        columns=list(context.columns),
        links_end=(datetime.now(UTC) + lifetime).isoformat(timespec="seconds") if way == "links" else None,
        twice=len(twice),
        annotators={name: len(own) for name, own in dealt.items() if name},
        objects=find_changed(run, [number]),
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


def refuse_blind(context: Context, tool: str) -> None:
    """Raise SpecError if a tool shows pictures alone, and answers are to be judged."""
    if not context.has_pictures or not context.columns or not FORMATS[tool].pictures_alone:
        return
    if context.task == "grade":
        others = "use --to label-studio or --to csv, or `opacc label`"
        raise SpecError(f"{tool} shows pictures alone, so nobody would see the answers to judge: {others}")
    names = ", ".join(context.columns)
    log.warning("%s shows the pictures alone, without %s; label-studio and `opacc label` show both", tool, names)


def _doubled(run: Run, ids: Sequence[str], names: Sequence[str], share: float) -> frozenset[str]:
    if len(set(map(_folder_of, names))) < len(names):
        raise SpecError(f"--annotators {','.join(names)} has a name twice: give different names")
    if share and len(names) < 2:
        raise SpecError(
            f"an overlap of {share:g} assigns examples to two annotators: name them with --annotators ann,bob, or give "
            "--overlap 0"
        )
    return shown_examples.doubled(ids, share, run.name)


def _way(run: Run, tool: str, images: Way | None, context: Context) -> Way | None:
    """Return how images reach annotators; None if there are none."""
    ways = FORMATS[tool].images
    if not context.has_pictures:
        if images not in (None, "addresses"):
            raise SpecError(f"--images {images}: the rows of {run.spec.pool.uri} are no pictures; remove it")
        return images or ("addresses" if "addresses" in ways and tool != "ground-truth" else None)
    if images not in (None, *ways):
        raise SpecError(f"--images {images} is not supported for {tool}: use {' or '.join(ways)}")
    index = run.read_index()
    turned = index.turned if index and run.spec.pool.orientation == "ignore" else 0  # by browsers, and not by the model
    in_s3 = run.spec.pool.uri.startswith("s3://") and run.spec.pool.format == "images"
    if images == "links" and turned:
        log.warning(
            "%s of the pool state an EXIF orientation, which the model did not see and browsers apply to linked files; "
            "give --images copies, which show what it saw",
            counted(turned, "image"),
        )
    return images or next(way for way in ways if way != "links" or (in_s3 and not turned))


def _images(
    run: Run, number: int, ids: Sequence[str], way: Way, files: ExampleFiles, lifetime: timedelta, copies: str
) -> dict[str, str | None]:
    """Return what shows each example: a link, a picture, or the place of a copy."""
    if way == "addresses":
        template = run.spec.manifest.link
        return {id: link_to(files.uris[id], template, id=id, run=run.name, round=number) for id in ids}
    if way == "links":
        return {id: files.link(id, int(lifetime.total_seconds())) for id in ids}
    if way == "thumbnails":
        pictures = {id: thumbnail(files.picture(id, THUMBNAIL)) for id in files.in_pool_order(ids)}
        return {id: f"data:{item.kind};base64,{b64encode(item.data).decode()}" for id, item in pictures.items()}
    return {id: copies + files.name_of_copy(id) for id in ids}


def thumbnail(picture: Picture) -> Picture:
    """Scale a picture down to at most `THUMBNAIL` pixels a side and `THUMBNAIL_BYTES` bytes."""
    small, longest = picture, THUMBNAIL
    while len(small.data) > THUMBNAIL_BYTES:
        small = render(picture.data, longest=longest, max_pixels=picture.width * picture.height)
        longest = longest * 4 // 5
    return small._replace(width=picture.width, height=picture.height)


def _copy_images(files: ExampleFiles, ids: Collection[str], store: Store) -> None:
    """Copy the images of the round to ``images/``, and warn of others there."""
    others = copy_examples(files, ids, store, "images/")
    if others:
        what, first = counted(len(others), "image"), min(others).removeprefix("images/")
        remedy = "send only those of this one, or write each round to its own folder"
        log.warning("%s/images has %s from another round or run, such as %s: %s", store.uri, what, first, remedy)


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
