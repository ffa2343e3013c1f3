"""The page of a report, and its summary in Markdown. Every text of others is escaped.

The page is one HTML file that needs no network and runs no script. The summary is for pull requests; it ends with the
``model-index`` of a model card.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import yaml
from markupsafe import Markup

from opacc_ray.errors import counted
from opacc_ray.estimation.intervals import clipped
from opacc_ray.metrics.metric import ACCURACY, FEWEST, WIDEST
from opacc_ray.pool import BY_PREDICTION
from opacc_ray.registry import Registry
from opacc_ray.report import facts
from opacc_ray.report.facts import Cell, Column, Table
from opacc_ray.report.figures import MOST_PARTS, expected_figure, figures_of, slice_figure
from opacc_ray.report.report_documents import Gallery, Reliability, RunReport
from opacc_ray.runs.run_documents import AccuracyEstimate, HistorySource, SliceTable
from opacc_ray.svg import shortened_to

TEMPLATES = files("opacc_ray.report") / "templates"


def markdown_table(table: Table) -> list[str]:
    """Return the lines of a table in Markdown."""
    rows = [
        [escaped(column.name) for column in table.columns],
        ["---:" if column.kind == "n" else "---" for column in table.columns],
        *([_markdown_cell(cell) for cell in row] for row in table.rows),
    ]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _markdown_cell(cell: Cell) -> str:
    return escaped(cell if isinstance(cell, str) else f"{cell[0]} ({cell[1]})" if cell[1] else cell[0])


def escaped(text: str) -> str:
    """Return a text on one line that Markdown and HTML take for plain text."""
    return _literal(" ".join(text.split()))


def _literal(line: str) -> str:
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#+|~!@])", r"\\\1", line)


def markdown_prose(text: str) -> str:
    """Return a sentence of ours as Markdown, with what is between backticks as code."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:
        return escaped(text)
    return "`".join(part if place % 2 else _literal(part) for place, part in enumerate(parts))


def html_table(table: Table, label: str) -> Markup:
    """Return a table as HTML in a region that scrolls; ``label`` names it for readers who do not see it."""
    return Markup(template("table.html").render(table=table, matrix=None, label=label))


def heat_map(matrix: Mapping[str, Any], label: str) -> Markup:
    """Return a table of coloured cells: ``names`` of its columns, and ``rows`` of a name and cells each.

    A cell has a ``text``, a ``kind``, which is right, wrong or none, and a ``weight`` in [0, 1] of its colour.
    """
    return Markup(template("table.html").render(matrix=matrix, label=label))


def template(name: str, folder: Traversable = TEMPLATES) -> Any:
    """Return the template of a file; rendering fails where a value is missing."""
    return _compiled((folder / name).read_text(encoding="utf-8"), is_markdown=name.endswith(".md"))


@cache
def _compiled(text: str, *, is_markdown: bool) -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    if not is_markdown:
        options["finalize"] = _unbroken
    environment = Environment(autoescape=True, undefined=StrictUndefined, **options)
    environment.loader = FunctionLoader(_shared)
    environment.filters |= {
        "short": shortened_to,
        "sentence": facts.sentence,
        "stopped": facts.stopped,
        "prose": _prose,
        "md": lambda text: Markup(escaped(text)),
        "md_prose": lambda text: Markup(markdown_prose(text)),
        "md_code": lambda text: Markup(" ".join(text.split()).replace("`", "'")),
    }
    environment.globals.update(table=_markdown if is_markdown else html_table, heat_map=heat_map, percent=facts.percent)
    environment.globals.update(thousands=facts.thousands, level_text=facts.level_text)
    return environment.from_string(text)


def _markdown(table: Table) -> Markup:
    return Markup("\n".join(markdown_table(table)))


def _unbroken(value: Any) -> Any:
    """Keep a percentage on one line."""
    return value.replace(" %", "\N{NO-BREAK SPACE}%") if isinstance(value, str) else value


def _prose(text: str) -> Markup:
    """Return a sentence of ours as HTML, with what is between backticks as code."""
    whole = str(Markup.escape(_unbroken(text)))
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", whole) if text.count("`") % 2 == 0 else whole)


def _shared(name: str) -> str:
    """Return the text of a shared template, such as base.html, which all pages extend."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def style(*names: str) -> Markup:
    """Return the style sheets of every page, or those named; figure.css also suits a figure in its own file."""
    sheets = map(_shared, names or ("figure.css", "page.css"))
    return Markup("\n").join(map(Markup, sheets))


MOST_ROWS, MATRIX_CLASSES, MOST_CONFUSIONS, MOST_PAIRS = 40, 12, 12, 12
"""Rows of tables of classes and slices, classes up to which confusions are a matrix, confusions listed, and pairs by
which mistakes are filtered."""

UNKNOWN = "not known"

SECTIONS = Registry("sections")
"""Modules of extensions: ``TITLE``, ``read`` (a run -> its document or None) and ``html`` (that as JSON -> a part)."""


class Picture(NamedTuple):
    """A picture in a page."""

    uri: str  # data:image/png;base64,…
    width: int  # in pixels, of the whole example
    height: int


Pictures = dict[str, Picture | str]
"""The picture of each id, or why there is none."""


def page(report: RunReport, pictures: Pictures) -> str:
    """Return the HTML of a report."""
    shared, pairs, stated = _shared_by_both(report), pairs_of(report.gallery), report.estimate
    only = Markup(".wall:has(#pair-{0}:checked) li:not(.pair-{0}) {{ display: none; }}")  # once that pair is chosen
    return template("page.html").render(
        **shared,
        facts=facts,
        claim=claim(report.reliability, stated) if report.reliability and stated else "",
        figures=figures_of(report),
        expected=expected_figure(report) if stated is None else None,
        matrix=_matrix(report),
        level_together=facts.level_text(shared["slices"][0]["level_together"]) if shared["slices"] else "",
        most_parts=MOST_PARTS,
        too_few=f"“{facts.TOO_FEW.capitalize()}” marks fewer than {FEWEST} labels, "
        f"or an interval wider than {200 * WIDEST:g} points.",
        pictures=pictures,
        has_pictures=any(isinstance(found, Picture) for found in pictures.values()),
        pairs=pairs,
        at_random=all(item.method == "srs" for item in report.rounds),
        titles=list({item.method: item for item in report.drawn}.values()),
        origin=origin_of(report),
        spec=yaml.safe_dump(report.header.spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
        style=Markup("\n").join([style(), *map(only.format, range(len(pairs)))]),
        sections=[(name, SECTIONS[name].TITLE, SECTIONS[name].html(own)) for name, own in report.sections.items()],
    )


def summary(report: RunReport) -> str:
    """Return the Markdown of a report."""
    value = clipped(report.estimate) if report.estimate else None
    text = template("summary.md").render(**_shared_by_both(report), value=value)
    return re.sub(r"\n{3,}", "\n\n", text.strip()) + "\n"


def _shared_by_both(report: RunReport) -> dict[str, Any]:
    """Return what page and summary show alike."""
    stated, accuracy = report.estimate, facts.noun(report.measure)
    numbers, lead = (stated.metrics.items(), stated.lead) if stated else ((), ACCURACY)
    return {
        "report": report,
        "stated": stated,
        "marks": MARKS,
        "noun": accuracy if lead == ACCURACY else facts.metric_name(lead),
        "accuracy": accuracy,
        "previous": previous(report),
        "history": started_from(report.history),
        "if_predicted": list(filter(None, (facts.if_predicted_text(name, own) for name, own in numbers))),
        "tables": _tables(report),
        "slices": [_part_section(report, table, f"slices-{k}") for k, table in enumerate(part_tables(report))],
    }


def claim(reliability: Reliability, estimate: AccuracyEstimate) -> str:
    """Compare the model's mean confidence with its accuracy."""
    confidence, accuracy = reliability.mean_confidence, clipped(estimate)
    found = "the mean confidence is within the interval"
    if not estimate.low <= confidence <= estimate.high:
        kind, points = "over" if confidence > accuracy else "under", 100 * abs(confidence - accuracy)
        found = f"it is {kind}confident by about {points:.1f} points"
    means = f"{facts.percent(confidence)}, its accuracy about {facts.percent(accuracy)}"
    return f"The model's mean confidence over the pool is {means}: {found}."


MARKS = {"ok": ("✓", "sound"), "warning": ("!", "with a reservation"), "failed": ("✗", "not sound")}
"""Sign and meaning of the state of a check."""


def previous(report: RunReport) -> str:
    """Return the result of the audit before; empty if there is none."""
    before = report.previous
    if before is None:
        return ""
    model = "the same model" if before.same_model else "another model"
    when = f" of {before.created[:10]}" if before.created else ""
    texts = facts.stated(before, report.measure)
    return f"The last audit{when}, of {model}: {texts.value} ({texts.interval})."


def started_from(sources: Sequence[HistorySource] | None) -> str | None:
    """Return what a run used before its first label; None if it asked for nothing."""
    if sources is None:
        return None
    if not sources:
        return "It was to start from earlier audits of the same weights, and found none with labels."
    known = []
    for source in sources:
        kind = "reference" if source.kind == "reference" else "audit"
        labels = f"{counted(source.examples, 'label')} from the {kind} {source.uri}"
        known.append(f"the column {source.column} of the pool" if source.column else labels)
    return f"Used before the first label: {'; '.join(known)}. The interval does not rely on it."


def pairs_of(gallery: Gallery | None) -> list[tuple[str, str, int]]:
    """Return the most frequent pairs of label and prediction among the mistakes shown, with their number."""
    examples = gallery.examples if gallery else ()
    counts = Counter((item.label, item.prediction) for item in examples)
    return [(*pair, count) for pair, count in counts.most_common(MOST_PAIRS)] if len(counts) > 1 else []


def part_tables(report: RunReport) -> list[SliceTable]:
    """Return the tables of slices and classes, each once; bins of confidence have a figure of their own."""
    known = [*(report.estimate.by_slice if report.estimate else ()), *report.tables]
    return [*{(table.metric, table.by): table for table in known if table.by != facts.CONFIDENCE}.values()]


def _part_section(report: RunReport, table: SliceTable, name: str) -> dict[str, Any]:
    """Return title, figure and rows of a table of slices or classes."""
    rows, more = facts.slice_table(table, report.measure, MOST_ROWS)
    num = sum(part.tells for part in table.slices.values())
    return {
        "id": name,
        "title": facts.slices_title(table, report.measure),
        "level_together": table.level_together,
        "figure": slice_figure(report, table, name),
        "has_whole": report.estimate is not None and facts.stated_number(report.estimate, table.metric) is not None,
        "has_expected": table.by == BY_PREDICTION and report.reliability is not None,
        "rows": rows,
        "more": more,
        "num": len(table.slices),
        "gist": f"{num} of {len(table.slices)} have enough labels to tell",
    }


# -- tables ----------------------------------------------------------------------------------------------


def _tables(report: RunReport) -> dict[str, Table | None]:
    """Return the tables of the page by name."""
    estimate = report.estimate
    error = Column("standard error", "n", optional=True)
    columns = Column("true class"), Column("predicted"), Column("of the pool", "n"), error, Column("labels", "n")
    rows = list[tuple[str, ...]]()
    for cell in [cell for cell in report.confusion or [] if cell.true != cell.predicted][:MOST_CONFUSIONS]:
        error_text = facts.percent(cell.standard_error) if cell.labels > 1 else "–"
        rows.append((cell.true, cell.predicted, facts.percent(cell.share), error_text, str(cell.labels)))
    draws = []
    for item in report.drawn:
        parameters = " ".join(f"{name}={text}" for name, text in item.parameters.items())
        draws.append((str(item.round), item.method, str(item.seed), parameters))
    excluded = [(shortened_to(item.id, 100), item.reason) for item in report.excluded]
    return {
        "intervals": facts.interval_table(estimate) if estimate else None,
        "metrics": facts.metric_table(estimate) if estimate else None,
        "judges": facts.judge_table(estimate.judges) if estimate and estimate.judges else None,
        "confusions": Table(columns, rows) if rows else None,
        "mistakes": _mistakes(report),
        "excluded": Table((Column("excluded example", "code"), Column("reason")), excluded),
        "rounds": facts.round_table(report.rounds),
        "draws": Table((Column("round"), Column("method"), Column("seed", "n"), Column("parameters", "code")), draws),
    }


def _mistakes(report: RunReport) -> Table:
    """Return the mispredicted examples without pictures."""
    examples = report.gallery.examples if report.gallery else []
    is_share = facts.is_share(report.measure)
    names = list(dict.fromkeys(name for item in examples for name in item.shown))
    columns = [Column("example", "code"), *(Column(name, "text") for name in names)]
    if has_prediction := any(item.prediction for item in examples):
        columns.append(Column("prediction"))
    columns.append(Column("label"))
    if not is_share or not all(item.confidence is None for item in examples):
        columns.append(Column("confidence" if is_share else "score", "n"))
    rows = []
    for item in examples:
        texts = [item.shown.get(name, "") for name in names]
        texts += [*([item.prediction] if has_prediction else []), item.label]
        last = item.confidence if is_share else item.outcome
        cells = [shortened_to(item.id, 80), *(shortened_to(text, 120) for text in texts)]
        rows.append([*cells, "–" if last is None else facts.percent(last)][: len(columns)])
    return Table(columns, rows)


def _matrix(report: RunReport) -> dict[str, Any] | None:
    """Return the cells of the confusion matrix with their colours; None without classes, or with too many.

    A colour is a weight in [0, 1]: the share over the largest share, of right and of wrong cells apart.
    """
    cells = report.confusion or []
    found = {name for cell in cells for name in (cell.true, cell.predicted)}
    if not 0 < len(found) <= MATRIX_CLASSES:
        return None
    names = [name for name in report.header.spec.model.classes or sorted(found) if name in found]
    empty, shown = {"kind": "", "weight": 0.0, "text": "·"}, dict[tuple[str, str], dict[str, Any]]()
    for kind in ("right", "wrong"):
        alike = [cell for cell in cells if (cell.true == cell.predicted) == (kind == "right")]
        largest = max([1e-9, *(cell.share for cell in alike)])
        for cell in alike:
            weight = max(cell.share, 0) / largest
            shown[cell.true, cell.predicted] = {"kind": kind, "weight": weight, "text": facts.percent(cell.share)}
    return {"names": names, "rows": [(true, [shown.get((true, name), empty) for name in names]) for true in names]}


# -- provenance ------------------------------------------------------------------------------------------


def origin_of(report: RunReport) -> list[tuple[str, str]]:
    """Return the names, digests and versions that repeat the audit."""
    header = report.header
    model, pool = header.spec.model, header.spec.pool
    rows = [
        ("Run", report.run),
        ("Digest of the run", header.digest or UNKNOWN),
        ("Pool", f"{pool.uri} ({pool.format})"),
        ("Filter", pool.filter or ""),
        ("Split", pool.split or ""),
        ("Digest of its listing", header.pool.digest or UNKNOWN),
        ("Model", model.factory or model.program or model.function or "none: the pool holds features"),
        ("Weights", (model.weights or "made by the factory") if model.factory else ""),
        ("Digest of the weights", header.model.sha256 or UNKNOWN),
        ("Digest of the code", header.code_digest or ""),
        ("Attempts", str(report.attempts or "")),
        ("Labels", report.estimate.labels_digest if report.estimate else "none yet"),
        ("Commit", header.git_commit or UNKNOWN),
        ("Made", header.created or UNKNOWN),
        ("Versions", ", ".join(f"{name} {version}" for name, version in header.versions.items()) or UNKNOWN),
    ]
    return [(name, text) for name, text in rows if text]
