"""The one form of a label, the ids that names in files mean, and the one label of each example.

A label has one canonical form, whatever tool wrote it: a class has the name or index that the run uses, a value the
shortest text of its number. If classes have names, a number is no label: some people count from 0, others from 1, and
files do not record which. :func:`name_by_number` reads numbers as indexes, for files that are known to count from 0.

**Joining** is by id alone, never by order or file name, so that each example has one label.

The result depends on which labels came back, not on the order of lines. Files are ordered only where stated.

- Labels are compared in their canonical form: 7, 7.0 and the name of class 7 are one label.
- Repeats that agree are one label.
- A correction outranks every other answer to its example; the last correction counts.
- An annotator who answers an example again replaces the earlier answer if `labelled_at` shows which is later, in
  whatever file. Otherwise the two answers are in conflict. Lines without an annotator may come from different
  people: none of them replaces another.
- A label outranks another annotator's "can't tell"; an example is unsure if all its answers are "can't tell".
- Labels in conflict are refused (``error``), or one of them is taken. ``majority``: the most frequent; one vote for
  each line without an annotator, one for each annotator and label, however often a file was imported.
  ``latest``: the last by `labelled_at` if all have one, else the label of the file that came back last.
"""

import difflib
import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels import formats
from opacc_ray.labels.formats import NUMBER, Label, few, is_cant_tell, plain_words, quoted, whole_number
from opacc_ray.pool import SYNONYMS
from opacc_ray.spec import ModelSpec
from opacc_ray.spec.spec_sections import NONE, SEPARATOR, plain_name

# -- the form of a label -----------------------------------------------------------------------------------------------

THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
"""Numbers whose comma may be a decimal point or a thousands separator."""

COUNTED = (
    "or declare that numbers count the classes from 0: opacc labels import --numbers-are-classes, "
    "numbers_are_classes=True in Python, or labels.numbers_are_classes: true in the spec"
)
"""Remedy for numbers where classes have names."""

LONGEST_GUESS = 100  # most characters of a label that is compared with the class names

EMPTY_LIKE = frozenset({"n/a", "na", "nan", "none", "null", "nil", "-", "unknown"})


def class_of(label_text: str, classes: Sequence[str] | None, num_classes: int | None = None) -> int:
    """Return the index of the class that a label names.

    Only two kinds of class are named by their index: classes without names (`classes` None), below `num_classes` if
    that is known; and a class whose name means "can't tell". Raises LabelError if the label is no class.
    """
    index = find_class(label_text, classes)
    if index is None:
        advice = f"; {COUNTED}" if name_by_number(label_text, classes) != label_text else ""
        raise LabelError(f"{why_no_class(label_text, classes)}{advice}")
    if num_classes is not None and index >= num_classes:
        raise LabelError(f"which is none of the {num_classes} classes: use a whole number from 0 to {num_classes - 1}")
    return index


def value_of(label_text: str) -> float:
    """Return the number in a label, also with a decimal comma; raises LabelError for 1,250, which may be 1250."""
    plain = label_text if THOUSANDS.fullmatch(label_text) else label_text.replace(",", ".", 1)
    if not NUMBER.fullmatch(plain):
        raise LabelError("which is no number: write one such as 12.5")
    return float(plain)


def canonical_number(value: float) -> str:
    """Return the shortest text of a number, which :func:`value_of` parses: the same for 7, 7.0 and 70e-1."""
    if math.isinf(value):  # such as 1e400
        return "1e999" if value > 0 else "-1e999"
    return repr(value + 0.0).removesuffix(".0")  # + 0.0: no -0


def find_class(text: str, classes: Sequence[str] | None) -> int | None:
    """Return the index of the class that a text names, as :func:`class_of` does, or None."""
    number = whole_number(text)
    if classes is None:
        return number
    for name in [text] if number is None else [text, str(number)]:
        if name in classes:
            return classes.index(name)
    plain = [plain_name(name) for name in classes]
    if plain_name(text) in plain:
        return plain.index(plain_name(text))
    alike = [i for i, name in enumerate(plain) if name.casefold() == plain_name(text).casefold()]
    if len(alike) == 1 and plain_name(text).casefold() in ("true", "false"):  # Excel writes TRUE for True
        return alike[0]
    name = name_by_number(text, classes)
    return classes.index(name) if is_cant_tell(name) and name != text else None


def name_by_number(text: str, classes: Sequence[str] | None) -> str:
    """Return the name of the class whose index a text is, counted from 0; other texts are returned unchanged.

    If the name of a class is a whole number, whole numbers are names, so that "1" never means two classes.
    """
    number = whole_number(text)
    if classes is None or number is None or number >= len(classes) or have_numbers_for_names(tuple(classes)):
        return text
    return classes[number]


def index_in(text: str, classes: Sequence[str] | None) -> int | None:
    """Return the index of a class that a label is; None if it is the name of one, or no index of a class."""
    number = whole_number(text)
    if number is None or classes is None:
        return number
    return None if number >= len(classes) or find_class(text, classes) is not None else number


@lru_cache(maxsize=8)
def have_numbers_for_names(classes: tuple[str, ...]) -> bool:
    """Return whether the name of a class is a whole number."""
    return any(whole_number(plain_name(name)) is not None for name in classes)


def why_no_class(text: str, classes: Sequence[str] | None) -> str:
    """Explain why a text is no class, with the most similar name."""
    if classes is None:
        return "but the run has no class names: give the index of the class, a whole number from 0"
    if name_by_number(text, classes) != text:
        return f"which is a number, and the classes have names: use one of {_few_names(classes)}"
    by_lower = {name.lower(): name for name in classes}
    near = difflib.get_close_matches(text.lower(), by_lower, n=1) if len(text) <= LONGEST_GUESS else []
    guess = f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
    unsure = ", or ? for can't tell" if plain_words(text[:LONGEST_GUESS]) in EMPTY_LIKE else ""
    return f"which is none of the {len(classes)} classes{guess}: use one of {_few_names(classes)}{unsure}"


def _few_names(classes: Sequence[str]) -> str:
    return few([quoted(name) if len(name) > 60 else name for name in classes], most=20)


def grade_of(label_text: str, model: ModelSpec, *, id: str) -> str:
    """Return the grade that a label names, or its score in canonical form.

    Besides its name, a grade is named by `SYNONYMS`, and by its outcome: 1, 0.5. Of a preference, A and B are the
    answers in the order in which they were shown (:func:`is_swapped`). Raises LabelError if the label is no grade.
    """
    outcomes = model.outcomes
    if outcomes is None:
        if not 0 <= value_of(label_text) <= 1:
            raise LabelError("which is no score from 0 to 1: write one such as 0.8")
        return canonical_number(value_of(label_text))
    text = plain_words(label_text)
    if model.prefers and text in ("a", "b"):
        return "first" if (text == "a") != is_swapped(id) else "second"
    names = {plain_words(name): name for name in outcomes}
    are_numbers = any(whole_number(name) is not None for name in names)
    number = float(text) if NUMBER.fullmatch(text) and not are_numbers and not model.prefers else None
    by_outcome = [name for name, outcome in outcomes.items() if outcome == number]
    grade = names.get(text) or names.get(SYNONYMS.get(text, "")) or names.get(str(whole_number(text)))
    if grade is None and len(by_outcome) == 1:
        grade = by_outcome[0]
    if grade is None:
        shown = ["A", "B", "tie"] if model.prefers else list(outcomes)
        raise LabelError(f"which is none of the grades: use {', '.join(map(quoted, shown))}")
    return grade


def set_of(label_text: str, model: ModelSpec) -> str:
    """Return the canonical form of a label of several classes; raises LabelError if one is none of the classes."""
    try:
        return model.set_name(model.classes_in(label_text))
    except ValueError as error:
        why = why_no_class(str(error), model.classes)
        raise LabelError(f"with {quoted(str(error))}, {why}, with {SEPARATOR!r} between them, or {NONE!r}") from None


def counts_of(label_text: str, names: Sequence[str]) -> str:
    """Return the canonical form of counts, ``tp=5 fp=0 fn=2``, or the numbers alone in their order, ``5 0 2``.

    Raises LabelError if one is missing or no count.
    """
    pairs = [part.partition("=") for part in re.split(r"[\s,;]+", label_text.strip())]
    if len(pairs) == len(names) and not any(is_named for _, is_named, _ in pairs):
        pairs = [(name, "=", text) for name, (text, _, _) in zip(names, pairs, strict=True)]
    counts = {name: text for name, _, text in pairs}
    form = " ".join(f"{name}=0" for name in names)
    if len(counts) < len(pairs) or counts.keys() != set(names):
        raise LabelError(
            f"which is no {len(names)} counts: write each once, as in {form}, or their numbers in that order"
        )
    unfit = next((name for name, text in counts.items() if not NUMBER.fullmatch(text) or float(text) < 0), None)
    if unfit is not None:
        raise LabelError(f"where {unfit} is no count: write numbers of at least 0, as in {form}")
    return " ".join(f"{name}={canonical_number(float(counts[name]))}" for name in names)


def numbers_in(canonical: str) -> dict[str, float]:
    """Return the counts by name that a label in canonical form has."""
    pairs = (part.partition("=") for part in canonical.split())
    return {name: float(text) for name, _, text in pairs}


def is_swapped(id: str) -> bool:
    """Return whether the two answers to an example are shown in reverse order: for half of all ids, by their digest.

    So neither annotators nor a preference for what stands first favour one model.
    """
    return hashlib.sha256(f"preference\0{id}".encode()).digest()[0] % 2 == 1


def as_shown(label: str | None, model: ModelSpec, id: str) -> str | None:
    """Return a canonical label as annotators know it: of a preference, A or B."""
    if not model.prefers or label not in ("first", "second"):
        return label
    return "A" if (label == "first") != is_swapped(id) else "B"


def reading_by(
    model: ModelSpec, num_classes: int | None, *, numbers_are_classes: bool = False
) -> Callable[[str, str], str]:
    """Return the function from an id and the text of a label to the form that predictions have.

    ``num_classes`` is None where it is not known yet. The function raises LabelError for a text that is no label.
    """

    def form(id: str, text: str) -> str:
        if model.task == "grade":
            return grade_of(text, model, id=id)
        if model.task == "multilabel":
            return set_of(text, model)
        if model.counts is not None:
            return counts_of(text, model.counts)
        if model.task == "regression":
            return canonical_number(value_of(text))
        if numbers_are_classes:
            text = name_by_number(text, model.classes)
        return model.name_of(class_of(text, model.classes, num_classes))

    def read(id: str, text: str) -> str:
        try:
            return form(id, text)
        except LabelError as error:
            raise LabelError(f"example {quoted(id)} has the label {quoted(text)}, {error}") from None

    return read


# -- the ids that names mean ---------------------------------------------------------------------------------------

InPool = Callable[[Sequence[str]], Collection[str]]
"""Function that returns which of some ids the pool has."""

_REMEDY = "write ids as the manifest does"

EXTENSION = re.compile(r"(?<=[^/])\.(jpe?g|png|webp|bmp|gif|tiff?|jp2|avif|heic|npy)$", re.IGNORECASE)
"""What ends the name of a picture."""


def ids_of_names(
    names: Iterable[str], selected: Collection[str], in_pool: InPool, *, only_selected: bool = False
) -> dict[str, str]:
    """Return the ids that names mean which are no ids themselves; names that mean no example are left out.

    Parameters
    ----------
    names : different names
    selected : ids that were selected for labelling
    only_selected : refuse rule 3, since the names are also those of examples that were not selected

    Raises LabelError if a name may mean several examples, or two names one.
    """
    chosen, given = set(selected), set(names)
    unknown = sorted(given - chosen)
    strange = sorted(set(unknown).difference(in_pool(unknown))) if unknown else []
    sure = _by_form(strange, chosen, in_pool) if strange else {}
    owner = dict(zip(given & chosen, given & chosen, strict=True)) | {id: name for name, id in sure.items()}
    guessed = _by_base([name for name in strange if name not in sure], chosen)
    for name, id in guessed.items():
        if only_selected:
            raise LabelError(f"{quoted(name)} may be {quoted(id)}, or an example that was not selected: {_REMEDY}")
        if id in owner:
            raise LabelError(f"{quoted(owner[id])} and {quoted(name)} may both be {quoted(id)}: {_REMEDY}")
        owner[id] = name
    return sure | guessed


def _by_form(names: Sequence[str], chosen: set[str], in_pool: InPool) -> dict[str, str]:
    """Find ids by the first two rules."""
    extensions = sorted({end[0] for id in chosen if (end := EXTENSION.search(id))})
    forms = {name: [*_forms(_path(name), extensions)] for name in names}
    every = list({form for groups in forms.values() for group in groups for form in group})
    pool, ids = chosen.union(in_pool(every)), dict[str, str]()
    for name, groups in forms.items():
        hits = next((hits for group in groups if (hits := [form for form in group if form in pool])), [])
        _add(ids, name, hits)
    return ids


def _forms(path: str, extensions: Sequence[str]) -> Iterator[list[str]]:
    """Yield groups of ids that a name may mean, the likelier ones first."""
    if "~" in path:
        yield [formats.id_of_copy(path)]
    parts = path.split("/")
    for start in range(len(parts)):
        ending = "/".join(parts[start:])
        stem = EXTENSION.sub("", ending)
        yield [ending]
        yield [own for own in (stem, *(stem + extension for extension in extensions)) if own != ending]


def _by_base(names: Sequence[str], chosen: set[str]) -> dict[str, str]:
    """Find ids by the third rule."""
    found, ids = dict[str, str](), dict[str, list[str]]()
    for id in sorted(chosen):
        base = _path(id).rpartition("/")[2]
        for form in {base, EXTENSION.sub("", base)}:
            ids.setdefault(form, []).append(id)
    for name in names:
        path = _path(name)
        base = path.rpartition("/")[2]
        near = ids.get(base) or ids.get(EXTENSION.sub("", base)) or []
        _add(found, name, [id for id in near if id.endswith(f"/{path}")] or near)
    return found


def _add(found: dict[str, str], name: str, hits: Sequence[str]) -> None:
    if len(hits) > 1:
        raise LabelError(f"{quoted(name)} may be {quoted(hits[0])} or {quoted(hits[1])}: {_REMEDY}")
    if hits:
        found[name] = hits[0]


def _path(name: str) -> str:
    return name.strip().replace("\\", "/")


# -- joining ---------------------------------------------------------------------------------------------------------

MOST_ANSWERS = 1000  # different answers to one example, by annotator, label and time, above which a file is refused

DISPUTES = {
    "error": (
        "labels in conflict",
        "correct them with `opacc labels correct`, or set a rule, majority or latest: `opacc labels import RUN "
        "--conflict majority`",
    ),
    "majority": ("a tie between labels", "ask one more person to label them, or `opacc labels correct` them"),
    "latest": ("labels without a latest one", "`opacc labels correct` them"),
}
"""Rule → what labels that differ are called under it, and what to do about them."""


class LabelConflict(LabelError):
    """Answers to an example differ, and the rule decides for none of them."""


@dataclass(frozen=True)
class Joined:
    """The labels of a selection so far, in its order; each selected id is in one of the first three attributes."""

    label: dict[str, str]  # by id
    unsure: tuple[str, ...]  # ids whose answers are all "can't tell"
    missing: tuple[str, ...]  # ids without an answer
    answers: dict[str, list[Label]] = field(default_factory=dict, compare=False, repr=False)  # in canonical form, by id


def join(
    labels: Iterable[Label],
    selected: Sequence[str],
    *,
    run: str,
    conflict: str = "error",
    source: str = "labels",
    read: Callable[[str, str], str] = lambda id, text: text,
    in_pool: InPool = lambda ids: (),
) -> Joined:
    """Find the label of each selected example, by id.

    Parameters
    ----------
    labels : all labels of all files so far, in any order; they are streamed.
    selected : ids of the selection, possibly with repeats.
    run : name of the run; labels that name another are refused.
    conflict : one of `DISPUTES`.
    source : name of the labels in messages.
    read : returns the canonical form of a label's text, given an id and the text, or raises LabelError if the text is
        no label; texts that a correction outranks are not read.
    in_pool : it is called for an error about ids that were not selected.

    Raises LabelError if a label names another run, an id is unknown, or labels are in conflict or tied; SpecError if
    `conflict` is none of the rules.
    """
    if conflict not in DISPUTES:
        raise SpecError(f"conflict {conflict!r} is unknown: use one of {', '.join(DISPUTES)}")
    try:
        answers = {id: _read(given, read) for id, given in _gather(labels, selected, run, in_pool).items()}
        winners = {id: winning(given, conflict) for id, given in answers.items() if given}
        _refuse_disputes(winners, answers, conflict)
    except LabelError as error:
        raise type(error)(f"{source}: {error}") from None
    chosen = {id: texts[0] if texts else None for id, texts in winners.items()}
    return Joined(
        label={id: text for id, text in chosen.items() if text is not None},
        unsure=tuple(id for id, text in chosen.items() if text is None),
        missing=tuple(id for id, given in answers.items() if not given),
        answers=answers,
    )


def _gather(labels: Iterable[Label], selected: Sequence[str], run: str, in_pool: InPool) -> dict[str, list[Label]]:
    """Return the distinct answers to each selected id, with the number of their lines.

    Only these are held in memory, so files may be large.
    """
    lines: dict[str, dict[tuple[object, ...], tuple[Label, int]]] = {id: {} for id in selected}
    unknown, exchanged = set(), False
    others: Counter[tuple[str, str]] = Counter()
    for row in labels:
        if row.run is not None and row.run != run:
            others[row.place, row.run] += 1
        elif row.id not in lines:
            unknown.add(row.id)
            exchanged |= row.label in lines
        elif row.status != "blank":
            same = lines[row.id]
            key = (row.label, row.annotator, row.labelled_at, row.returned, row.correction)
            first, count = same.get(key, (row, 0))
            if not count and len(same) == MOST_ANSWERS:
                raise LabelError(
                    f"{quoted(row.id)} has more than {MOST_ANSWERS} different answers ({row.place}): import labels "
                    "from people"
                )
            same[key] = (first if first.place <= row.place else row, count + row.lines)
    if others:
        place, other = min(others)
        what = f"{others.total()} row(s) name another run, {quoted(other)} ({place}), not {run!r}"
        raise LabelError(f"{what}: import them into that run")
    if exchanged:
        raise LabelError("the column label holds ids: exchange the columns id and label")
    if unknown:
        raise LabelError(_not_selected(sorted(unknown), selected, in_pool))
    return {id: [row._replace(lines=num) for row, num in same.values()] for id, same in lines.items()}


def _read(answers: Sequence[Label], read: Callable[[str, str], str]) -> list[Label]:
    """Return the answers with their labels in canonical form; those that a correction outranks stay as they are."""
    rank, rows = max((row.correction for row in answers), default=0), []
    for row in answers:
        try:
            rows.append(row if row.correction < rank else in_canonical_form(row, read))
        except LabelError as error:
            raise LabelError(f"{error} ({row.place})" if row.place else str(error)) from None
    return rows


def in_canonical_form(row: Label, read: Callable[[str, str], str]) -> Label:
    """Return an answer with its label as ``read`` returns it; raises LabelError if the text is no label."""
    return row if row.label is None else row._replace(label=read(row.id, row.label))


def _not_selected(unknown: Sequence[str], selected: Sequence[str], in_pool: InPool) -> str:
    """Return what is wrong with ids that were not selected, in order, and what to do about them."""
    pool = set(in_pool(unknown))
    strange = [id for id in unknown if id not in pool]
    what, remedy = f"{len(unknown)} id(s) not selected for labelling", formats.rewritten(strange, selected)
    if remedy is None:
        remedy = "give --only-selected to leave them out, or import the file into its own run"
        if len(strange) == len(unknown):
            what, remedy = f"{len(unknown)} id(s) not in the pool", f"take ids from the manifest, or {remedy}"
        elif strange:
            remedy = f"{len(strange)} of them not even in the pool, such as {quoted(strange[0])}; {remedy}"
    return f"{what}: {few([quoted(id) for id in unknown])}: {remedy}"


def winning(answers: Sequence[Label], conflict: str) -> list[str]:
    """Return the labels that count: none if all answers are "can't tell", more than one if they are in conflict."""
    voting = _newest(votes_of(answers)) if conflict == "latest" else votes_of(answers)
    votes: Counter[str] = Counter()
    for row in voting:
        votes[str(row.label)] += row.lines if row.annotator is None else 0
    votes.update(text for text, _ in {(str(row.label), row.annotator) for row in voting if row.annotator is not None})
    fewest = max(votes.values(), default=0) if conflict == "majority" else 1
    return sorted(text for text, count in votes.items() if count >= fewest)


def votes_of(answers: Sequence[Label]) -> list[Label]:
    """Return the labels that have a vote: neither a correction nor their own annotator replaced them."""
    rank = max((row.correction for row in answers), default=0)
    by_annotator: dict[str | None, list[Label]] = {None: []}
    for answer in answers:
        if answer.correction == rank:
            by_annotator.setdefault(answer.annotator, []).append(answer)
    last = [row for who, given in by_annotator.items() for row in (given if who is None else _latest(given))]
    return [row for row in last if row.label is not None]


def opinions_of(answers: Sequence[Label], read: Callable[[str, str], str]) -> dict[str, str]:
    """Return the last label of each named annotator for one example, without corrections and texts that are no label.

    ``read`` is used as in :func:`join`.
    """
    opinions: dict[str, str] = {}
    for row in votes_of([row for row in answers if not row.correction and row.annotator is not None]):
        with suppress(LabelError):
            opinions[str(row.annotator)] = read(row.id, str(row.label))
    return opinions


def _newest(answers: Sequence[Label]) -> list[Label]:
    """Return the last answers of all, by their times if all have one, else by the order of the files."""
    if all(time_of(answer.labelled_at) for answer in answers):
        return _latest(answers)
    last = max((answer.returned for answer in answers), default=0)
    return [answer for answer in answers if answer.returned == last]


def _latest(answers: Sequence[Label]) -> list[Label]:
    """Return the last answers of one annotator; all of them if one has no time to order them by."""
    times = [time_of(answer.labelled_at) for answer in answers]
    last = None if None in times else max(filter(None, times), default=None)
    return [answer for answer, time in zip(answers, times, strict=True) if last in (None, time)]


@lru_cache(maxsize=10_000)
def time_of(text: str | None) -> datetime | None:
    """Parse a time in ISO 8601, in UTC unless it has an offset; None if it is no time."""
    try:
        time = datetime.fromisoformat(re.sub(r"\s+(?=[+-]\d\d:?\d\d$)", "", text or ""))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _refuse_disputes(winners: Mapping[str, list[str]], answers: Mapping[str, list[Label]], conflict: str) -> None:
    disputes = []
    for id, texts in winners.items():
        if len(texts) > 1:
            places = [min(row.place for row in answers[id] if row.label == text) for text in texts]
            said = [f"{quoted(text)} ({place})" for text, place in zip(texts, places, strict=True)]
            disputes.append(f"{quoted(id)} is {' and '.join(said)}")
    if disputes:
        what, remedy = DISPUTES[conflict]
        raise LabelConflict(f"{what} on {len(disputes)} example(s): {few(disputes, '; ')}: {remedy}")
