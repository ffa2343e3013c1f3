"""The effective number of labels of each round: how many of equal weight would be as precise.

L. Kish, "Survey Sampling", 1965: n_eff = (Σ w)² / Σ w², for weights w that are unrelated to the outcome.
"""

from typing import Any, Literal

from markupsafe import Markup

from opacc_ray.cli import command as cli
from opacc_ray.documents import Document, Part
from opacc_ray.report.facts import Column, Table
from opacc_ray.report.page import html_table
from opacc_ray.runs.run import Run

TITLE = "Effective labels"


class RoundWeights(Part):
    """One round."""

    round: int
    labels: int
    effective: float


class Effective(Document):
    """The effective number of labels of each round."""

    format: Literal["example-effective/1"] = "example-effective/1"
    rounds: list[RoundWeights]


@cli.command("kish")
@cli.on_run
def kish(run: Run) -> cli.Answer:
    """Return the effective number of labels of each round."""
    document = read(run)
    return cli.Answer(document, [_table(document)])


def read(run: Run) -> Effective:
    """Return the document of a run, also for its report."""
    rounds = []
    for number in run.drawn_rounds():
        weight = run.read_selection(number).design.weights
        effective = float(weight.sum() ** 2 / (weight**2).sum())
        rounds.append(RoundWeights(round=number, labels=len(weight), effective=effective))
    return Effective(rounds=rounds)


def html(document: dict[str, Any]) -> Markup:
    """Return the section of the report."""
    return html_table(_table(Effective.from_dict(document, "the section kish of the report")), TITLE)


def _table(document: Effective) -> Table:
    columns = (Column("round"), Column("labels", "n"), Column("effective", "n"))
    return Table(columns, [(str(row.round), str(row.labels), f"{row.effective:.1f}") for row in document.rounds])
