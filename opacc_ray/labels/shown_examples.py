"""What annotators get of a round: the examples that wait, their pictures, and the columns that ``manifest.show`` names.

One form serves the page, the tasks of all tools and the manifests.

**Pictures** are image files of the pool, and rows of other files. An image is read by its key. A row of a table, an
array or a tar file is read as extraction read it: with its shard, whose chosen rows are then cached as pictures, up to
`KEPT_BYTES`. Pictures for browsers are encoded anew, so only pixels reach an annotator: no metadata, no script, no
unusual format. They are the pixels that the model was given, decoded by the pool's rules; values of more than 8 bits
are scaled to the grey levels, from the smallest to the largest. Copies show them too: a file that states an EXIF
orientation, which some viewers apply and others do not, is encoded anew. What a model saw whose stored features are
audited is not known: its image files are shown as browsers show them, upright and on white.

**Columns** become texts as people write them: numbers in their shortest form, lists and structs as JSON, a list of chat
messages as ``role: content``. Control characters are replaced. A column is long if one of its texts is: then it is
shown as a paragraph, otherwise as a line of a table. Rows are read from the pool when they are needed, from the files
that held them when the pool was listed, and from the same version of a table. A row whose file changed since then is
not shown, because it may be another row now.
"""

import hashlib
import io
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError, StorageError
from opacc_ray.labels.formats import Context, few, name_of_copy, quoted
from opacc_ray.labels.joining import is_swapped
from opacc_ray.labels.label_log import LabelLog, read_log
from opacc_ray.lake.decode import MAX_PIXELS, ImageError, decode_image, is_turned, without_alpha
from opacc_ray.lake.examples import Batch, Columns, Example, Plan, Rules, decoded, ids_of, locate
from opacc_ray.lake.pools import plan_shards, read_chosen, read_in_order, read_rows
from opacc_ray.lake.store_uris import Entry, Store
from opacc_ray.registry import require
from opacc_ray.runs.run import Chosen, Run, unchanged_plan
from opacc_ray.spec import PoolSpec, Spec, open_pool, rules_of

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")

KEPT_BYTES = 256 << 20  # bytes of cached pictures of rows

SMALL = 256  # most pixels of the longer side of a picture that is encoded without loss


class Picture(NamedTuple):
    """An encoded picture for a browser."""

    data: bytes
    kind: str  # image/png or image/jpeg
    width: int  # in pixels, of the original image, not of this copy
    height: int


class NoPictureError(DataError):
    """An example is no picture."""


def has_pictures(run: Run) -> bool:
    """Return whether the examples of a run are pictures.

    Rows of stored features are, if ``columns.uri`` names image files; arrays, if the first one has the shape of an
    image.
    """
    pool, rounds, may_have = run.spec.pool, run.rounds(), may_have_pictures(run)
    if not may_have or pool.holds_features or not rounds or (pool.format != "npy" and pool.columns.array is None):
        return may_have
    files = ExampleFiles(run, rounds[:1])
    with suppress(DataError):  # one that cannot be read may be a picture
        try:
            files.picture(next(iter(files.uris)))
        except NoPictureError:
            return False
    return True


def may_have_pictures(run: Run) -> bool:
    """Return :func:`has_pictures` without reading an example; an array may be one."""
    pool, rounds = run.spec.pool, run.rounds()
    if pool.holds_features:
        named = run.read_chosen(rounds[0]).uris if rounds and pool.columns.uri else ["none"]
        return all(uri.lower().endswith(IMAGE_SUFFIXES) for uri in named)
    return not (isinstance(pool.columns.array, list) and len(pool.columns.array) > 1)


class ExampleFiles:
    """Image files of the chosen examples of some rounds, by id; other examples cannot be read."""

    def __init__(self, run: Run, rounds: Iterable[int]) -> None:
        self._run, self._pool = run, run.spec.pool
        self._store = open_pool(self._pool)
        self._are_images = self._pool.format == "images" or self._pool.holds_features
        self._row: dict[str, int] = {}  # id -> row in the pool
        self.uris: dict[str, str] = {}
        for number in rounds:
            chosen, selection = run.read_chosen(number), run.read_selection(number)
            self._row |= dict(zip(selection.ids, selection.index.tolist(), strict=True))
            self.uris |= dict(zip(chosen.ids, chosen.uris, strict=True))
        self._kept: OrderedDict[int, dict[str, Picture]] = OrderedDict()  # shard -> its chosen rows
        self._lock = threading.Lock()

    def link(self, id: str, seconds: int) -> str:
        """Return a public link to the image, valid for some seconds; raises DataError if the example is no file."""
        if not self._are_images:
            raise DataError(f"{quoted(id)} is a row of a file and has no link; send copies, which are pictures of rows")
        store, key = self._place(id)
        return store.link(key, seconds)

    def copy(self, id: str) -> tuple[str, bytes]:
        """Return the name and the content of a copy: the image file as the model saw it, or a picture of the row."""
        name = self.name_of_copy(id)
        content = self._content(id) if self._are_images else None
        if content is None or (is_turned(content) and not self._pool.holds_features):
            return name, self.picture(id).data
        return name, content

    def name_of_copy(self, id: str) -> str:
        """Return the file name of a copy."""
        return name_of_copy(id, is_made=not self._are_images)

    def picture(self, id: str, longest: int | None = None) -> Picture:
        """Return the example as a picture whose longer side has at most ``longest`` pixels.

        Rows of files that are no images are never scaled. Raises DataError if the example is no picture.
        """
        try:
            if not self._are_images:
                return self._picture_of_row(id)
            content = self._content(id)
            if self._pool.holds_features:
                return render(content, longest=longest)
            found = decoded(content, rules_of(self._pool))
            if isinstance(found, str):
                raise DataError(found)
            return render_array(found.pixels, longest=longest)
        except DataError as error:
            raise type(error)(f"{quoted(id)} cannot be shown: {error}") from None

    def arrays(self, ids: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Return examples as extraction decoded them, by id; raises DataError if one cannot be read any more."""
        rules, found, shards = rules_of(self._pool), dict[str, NDArray[Any]](), dict[int, list[str]]()
        for id in ids:
            shards.setdefault(self._shard_of(id), []).append(id)
        for shard, own in sorted(shards.items()):
            read = read_in_order(self._store, self._pool.format, self._plan.shards[shard], own, rules)
            found |= {item.id: item.array for item in read}
        return found

    def entries(self, id: str) -> tuple[Entry, ...]:
        """Return the files of many examples that are read for one; none for an image file."""
        return () if self._are_images else self._plan.shards[self._shard_of(id)].entries

    def _shard_of(self, id: str) -> int:
        return int(np.searchsorted(self._ends, self._row[id], side="right"))

    def _content(self, id: str) -> bytes:
        try:
            store, key = self._place(id)
            if store.is_linked(key):  # it was no link when the pool was listed
                raise StorageError(f"cannot read {store.uri_of(key)}: it is a symbolic link now")
            return store.read(key)
        except StorageError as error:
            page = f"`opacc label {quote(self._run.uri)}`"
            raise StorageError(f"{error}; if it is lost, label the other examples with {page}") from None

    def _place(self, id: str) -> tuple[Store, str]:
        """Return the store and the key of an image file, which a table of stored features names by its URI."""
        return locate(self._store, self.uris[id]) if self._pool.holds_features else (self._store, id)

    def in_pool_order(self, ids: Iterable[str]) -> list[str]:
        """Return the ids in the order of the pool, so that each of its files is read once."""
        return sorted(ids, key=lambda id: self._row[id])

    def _picture_of_row(self, id: str) -> Picture:
        with self._lock:
            shard = self._shard_of(id)
            if shard not in self._kept:
                self._kept[shard] = self._read(shard)
                kept = self._kept.values()
                while len(kept) > 1 and sum(len(item.data) for shard in kept for item in shard.values()) > KEPT_BYTES:
                    self._kept.popitem(last=False)
            if id not in self._kept[shard]:
                raise DataError(f"{self._store.uri} does not have it any more; restore the file {self.uris[id]}")
            return self._kept[shard][id]

    @cached_property
    def _plan(self) -> Plan:
        return unchanged_plan(self._run)

    @cached_property
    def _ends(self) -> list[int]:
        """First row after each shard."""
        index = self._run.read_index()
        return np.cumsum([shard.examples for shard in index.shards] if index else []).tolist()

    def _read(self, shard: int) -> dict[str, Picture]:
        rules = rules_of(self._pool)
        items = read_chosen(self._store, self._pool.format, self._plan.shards[shard], self._row.keys(), rules)
        return {item.id: render_array(item.array) for item in items if isinstance(item, Example)}


def render(
    content: bytes, *, longest: int | None = None, max_pixels: int = MAX_PIXELS, lossless: int = SMALL
) -> Picture:
    """Render an image file, upright and on white, as :func:`render_array`.

    Raises DataError if the bytes do not decode; or, before any pixel is decoded, if there are more than ``max_pixels``.
    """
    try:
        image = decode_image(content, alpha="white", orientation="apply", max_pixels=max_pixels)
    except ImageError as error:
        raise DataError(str(error)) from None
    return render_array(image.pixels, longest=longest, lossless=lossless)


def render_array(array: NDArray[Any], *, longest: int | None = None, lossless: int = SMALL) -> Picture:
    """Render (H, W), (H, W, 1|2|3|4) or (1|3, H, W) as a picture; the longer side has at most ``longest`` pixels.

    Up to ``lossless`` pixels it is kept without loss. Raises DataError for other shapes.
    """
    require("a picture", "PIL")
    from PIL import Image

    pixels = np.asarray(array)
    channels = (1, 2, 3, 4) if pixels.dtype == np.uint8 else (1, 3, 4)  # two: grey and alpha
    if pixels.ndim == 3 and pixels.shape[-1] not in channels and pixels.shape[0] in (1, 3):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[-1] in channels):
        raise NoPictureError(
            f"an array of shape {array.shape} is no picture: name columns for annotators in manifest.show"
        )
    pixels = pixels if pixels.dtype == np.uint8 else _spread(pixels)
    if pixels.ndim == 3 and pixels.shape[-1] != 3:
        pixels = without_alpha(pixels, "white")
    height, width = pixels.shape[:2]
    image = Image.fromarray(pixels)
    if longest and max(image.size) > longest:
        image.thumbnail((longest, longest), reducing_gap=2.0)
    is_small, sink = max(image.size) <= lossless, io.BytesIO()
    image.save(sink, "PNG") if is_small else image.save(sink, "JPEG", quality=90)
    return Picture(sink.getvalue(), "image/png" if is_small else "image/jpeg", width, height)


def _spread(values: NDArray[Any]) -> NDArray[np.uint8]:
    finite = np.nan_to_num(values.astype(np.float64))
    low, high = float(finite.min()), float(finite.max())
    return np.rint((finite - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)


# -- columns ---------------------------------------------------------------------------------------------------------

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
    rows = {
        id: shown
        for batch in _batches(pool, plan, rules, columns, None if None in keys else {key for key in keys if key})
        for id, shown in _shown_of(batch, pool, columns)
        if id in tags
    }
    lost = [id for id in tags if id not in rows]
    if lost:
        names = few([quoted(id) for id in lost], most=2)
        raise DataError(f"{pool.uri} has no row of {names} any more; restore the pool")
    return {id: _with_answers(own, show, run.spec.pool.columns.answer or (), id) for id, own in rows.items()}


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

    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        raise SpecError(f"manifest.show names {name!r}, which holds bytes; name columns of text or numbers")
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return ["" if value is None else _clean(_structured(value)) for value in values.to_pylist()]
    return [_clean(text or "") for text in pc.cast(values, pa.string()).to_pylist()]


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
    shown = read_shown(run, list(map(run.read_chosen, dict.fromkeys([first, *numbers]))), log.rules.show)
    rows = [shown[id] for id in run.read_chosen(first).ids] if shown else [{}]
    long = long_columns(rows) | (frozenset(ANSWERS) & rows[0].keys() if run.spec.model.task == "grade" else frozenset())
    context = context_of(run)
    return shown, replace(
        context,
        has_pictures=has_pictures(run),
        columns=tuple(rows[0]),
        long=long,
        question=log.rules.guidance.question or _usual_question(context),
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
