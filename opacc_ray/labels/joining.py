"""Join all labels of a run by id alone, never by order or file name, so that each example has one label.

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

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from unicodedata import normalize

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels import label_rows
from opacc_ray.labels.label_rows import Label, few, quoted
from opacc_ray.spec import ModelSpec

MISSING, TRUTH_VALUE, AS_NUMBER, DATE = "a missing value", "a truth value", "a number", "a date"

_MONTH = (
    "(?i:jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|"
    "dec(ember)?)"
)
_RULES = tuple(
    (re.compile(pattern, re.ASCII), tools.split(), kind)
    for pattern, tools, kind in (
        (r"NA|N/A|n/a|<NA>|#NA|#N/A|#N/A N/A|NULL|null|None|-?(NaN|nan|1\.#IND|1\.#QNAN)", "pandas", MISSING),
        (r"NA", "R", MISSING),
        (r"~|null|Null|NULL", "YAML", MISSING),
        (r"(?i)true|false", "Excel pandas R YAML", TRUTH_VALUE),
        (r"T|F", "R", TRUTH_VALUE),
        (r"(?i)y|n|yes|no|on|off", "YAML", TRUTH_VALUE),
        (r"\d{1,2}[-/]\d{1,2}([-/]\d{2,4})?|\d{4}[-/]\d{1,2}([-/]\d{1,2})?|\d+:\d\d?(:\d\d?)?", "Excel", DATE),
        (rf"{_MONTH}[ ./-]?\d{{1,4}}|\d{{1,4}}[ ./-]?{_MONTH}([ ./-]?\d{{2,4}})?", "Excel", DATE),
        (r"\d{4}-\d\d-\d\d", "YAML", DATE),
        (rf"(?!-?(0|[1-9]\d*)(\.\d*[1-9])?$){label_rows.NUMBER.pattern}", "Excel pandas R YAML", AS_NUMBER),
        (r"-?(\d\.?){16,}", "Excel", AS_NUMBER),  # it keeps 15 digits
    )
)


def changes(name: str) -> dict[str, str]:
    """Return what tools make of the name of a class, or of an id, by tool; empty if all of them keep it."""
    return {tool: kind for pattern, tools, kind in _RULES if pattern.fullmatch(name.strip()) for tool in tools}


def emptied(classes: Iterable[str]) -> str | None:
    """Return the classes whose labels a file loses in pandas, with the reason, for a sentence; None if there are none.

    R loses no further ones.
    """
    names = [quoted(name) for name in classes if changes(name).get("pandas") == MISSING]
    several = "each of which" if len(names) > 1 else "which"
    return f"{few(names)}, {several} pandas.read_csv reads as {MISSING}" if names else None


def warnings_about(classes: Iterable[str]) -> list[str]:
    """Return warnings about classes whose labels come back otherwise from a table in another tool.

    A truth value does not: it is read in any case, unless another class differs by case alone.
    """
    names = list(classes)
    lost, texts = emptied(names), list[str]()
    if lost:
        texts.append(
            f"a file of labels that passes through pandas loses those of the class {lost}; read it with "
            "keep_default_na=False, or rename the class"
        )
    for kind in (DATE, AS_NUMBER):
        if made := [quoted(name) for name in names if changes(name).get("Excel") == kind]:
            texts.append(
                f"Excel makes {kind} of the class {few(made)}; format the column label as text before you fill it in, "
                "or rename the class"
            )
    return texts


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
        yield [label_rows.id_of_copy(path)]
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


MOST_ANSWERS = 1000  # different answers to one example, by annotator, label and time, above which a file is refused

EXACT = 15  # digits of a whole number that a double holds

LABELS, LABELS_SO_FAR = "labels", "the labels so far"  # what messages call the labels of all files

Opinions = dict[str, str]
"""Annotator → label, for one example."""

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
    source: str = LABELS,
    read: Callable[[str, str], str] | None = None,
    in_pool: Callable[[Sequence[str]], Collection[str]] = lambda ids: (),
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
    in_pool : returns which ids the pool has; it is called for an error about ids that were not selected.

    Raises LabelError if a label names another run, an id is unknown, or labels are in conflict or tied; SpecError if
    `conflict` is none of the rules.
    """
    if conflict not in DISPUTES:
        raise SpecError(f"conflict {conflict!r} is unknown: use one of {', '.join(DISPUTES)}")
    gathered = _gather(labels, selected, run, source, in_pool)
    answers = {id: _read(given, read) for id, given in gathered.items()}
    winners = {id: winning(given, conflict) for id, given in answers.items() if given}
    _refuse_disputes(winners, answers, conflict, source)
    chosen = {id: texts[0] if texts else None for id, texts in winners.items()}
    return Joined(
        label={id: text for id, text in chosen.items() if text is not None},
        unsure=tuple(id for id, text in chosen.items() if text is None),
        missing=tuple(id for id, given in answers.items() if not given),
        answers=answers,
    )


def _gather(
    labels: Iterable[Label],
    selected: Sequence[str],
    run: str,
    source: str,
    in_pool: Callable[[Sequence[str]], Collection[str]],
) -> dict[str, list[Label]]:
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
                    f"{source}: {quoted(row.id)} has more than {MOST_ANSWERS} different answers ({row.place}): "
                    "import labels from people"
                )
            same[key] = (first if first.place <= row.place else row, count + row.lines)
    if others:
        place, other = min(others)
        what = f"{others.total()} row(s) name another run, {quoted(other)} ({place}), not {run!r}"
        raise LabelError(f"{source}: {what}: import them into that run")
    if exchanged:
        raise LabelError(f"{source}: the column label holds ids: exchange the columns id and label")
    if unknown:
        raise LabelError(f"{source}: {_not_selected(sorted(unknown), selected, in_pool)}")
    return {id: [row._replace(lines=num) for row, num in same.values()] for id, same in lines.items()}


def _read(answers: Sequence[Label], read: Callable[[str, str], str] | None) -> list[Label]:
    """Return the answers with their labels in canonical form; those that a correction outranks stay as they are."""
    if read is None:
        return list(answers)
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


def _not_selected(
    unknown: Sequence[str], selected: Sequence[str], in_pool: Callable[[Sequence[str]], Collection[str]]
) -> str:
    """Return what is wrong with ids that were not selected, in order, and what to do about them."""
    pool = set(in_pool(unknown))
    strange = [id for id in unknown if id not in pool]
    what, remedy = f"{len(unknown)} id(s) not selected for labelling", rewritten(strange, selected)
    if remedy is None:
        remedy = "give --only-selected to leave them out, or import the file into its own run"
        if len(strange) == len(unknown):
            what, remedy = f"{len(unknown)} id(s) not in the pool", f"take ids from the manifest, or {remedy}"
        elif strange:
            remedy = f"{len(strange)} of them not even in the pool, such as {quoted(strange[0])}; {remedy}"
    return f"{what}: {few([quoted(id) for id in unknown])}: {remedy}"


def rewritten(unknown: Sequence[str], selected: Sequence[str]) -> str | None:
    """Return what to do about ids that a program wrote in another form than the manifest; None if none did."""
    shortened = {*selected, *(id.lstrip("0") for id in selected)}
    if any(re.sub(r"\.0+$", "", id) in shortened or re.fullmatch(r"\d(\.\d+)?[eE]\+\d+", id) for id in unknown):
        return "a spreadsheet or a script rewrote ids as numbers, so read the manifest with its id column as text"
    forms = {re.sub(r"\d+", "0", id) for id in selected if DATE in changes(id).values()}
    if forms and any(DATE in changes(id).values() and re.sub(r"\d+", "0", id) not in forms for id in unknown):
        return "a spreadsheet rewrote ids as dates, so format its id column as text before you open the manifest"
    if {normalize("NFC", id) for id in unknown} & {normalize("NFC", id) for id in selected}:
        return "their accents are encoded differently (Unicode NFD, as on macOS), so take ids from the manifest"
    rounded = {text: id for id in selected if len(id) > EXACT and id.isdecimal() for text in _rounded(id)}
    if other := next((id for id in unknown if id in rounded), None):
        return (
            f"a script or a spreadsheet made ids floating-point numbers, which hold {EXACT} digits: {rounded[other]} "
            f"became {other}, so read the manifest with its id column as text"
        )
    return None


def _rounded(id: str) -> set[str]:
    """Return how programs write a whole number that was a double: exactly, in the fewest digits, and in 15 of them."""
    value = float(id)
    exact = (int(value), int(Decimal(repr(value))), int(Decimal(f"{value:.{EXACT - 1}e}")))
    return {*map(str, exact), id[:EXACT].ljust(len(id), "0")} - {id}


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


def opinions_of(answers: Sequence[Label], read: Callable[[str, str], str]) -> Opinions:
    """Return the last label of each named annotator for one example, without corrections and texts that are no label.

    ``read`` is used as in :func:`join`.
    """
    opinions: Opinions = {}
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
    time = _parsed(text)
    return time.replace(tzinfo=UTC) if time and not time.tzinfo else time


def is_local(text: str) -> bool:
    """Return whether a text is a time without an offset from UTC."""
    time = _parsed(text)
    return time is not None and time.tzinfo is None


def _parsed(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(re.sub(r"\s+(?=[+-]\d\d:?\d\d$)", "", text or ""))
    except ValueError:
        return None


def _refuse_disputes(
    winners: Mapping[str, list[str]], answers: Mapping[str, list[Label]], conflict: str, source: str
) -> None:
    disputes, files = [], set[int]()
    for id, texts in winners.items():
        if len(texts) > 1:
            places = [min(row.place for row in answers[id] if row.label == text) for text in texts]
            said = [f"{quoted(text)} ({place})" for text, place in zip(texts, places, strict=True)]
            disputes.append(f"{quoted(id)} is {' and '.join(said)}")
            files |= {row.returned for row in answers[id] if row.label in texts}
    if disputes:
        what, remedy = DISPUTES[conflict]
        if len(files) == 1 and source != LABELS and conflict == "error":  # all of them are in the file that comes
            remedy = f"correct {source}, or set a rule{remedy.partition('set a rule')[2]}"
        elif source not in (LABELS, LABELS_SO_FAR):
            remedy += "; then import the file again"
        raise LabelConflict(f"{source}: {what} on {len(disputes)} example(s): {few(disputes, '; ')}: {remedy}")


def reading_by(
    model: ModelSpec, num_classes: int | None, *, numbers_are_classes: bool = False
) -> Callable[[str, str], str]:
    """Return the function from an id and the text of a label to the form that predictions have.

    ``num_classes`` is None where it is not known yet. The function raises LabelError for a text that is no label.
    """

    def read(name: str, text: str) -> str:
        if model.task == "grade":
            return label_rows.grade_of(text, model, id=name)
        if model.task == "multilabel":
            return label_rows.set_of(text, model, id=name)
        if model.counts is not None:
            return label_rows.counts_of(text, model.counts, id=name)
        if model.task == "regression":
            return label_rows.canonical_number(label_rows.value_of(text, id=name))
        if numbers_are_classes:
            text = label_rows.name_by_number(text, model.classes)
        return model.name_of(label_rows.class_of(text, model.classes, num_classes, id=name))

    return read
