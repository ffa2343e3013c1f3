"""Audit a run from Python: labels that are missing, the next round, the estimate, the report.

>>> audit = opacc_ray.Audit.run("spec.yaml", until=0.03)   # a whole audit, with the labelling page

or step by step:

>>> audit = opacc_ray.Audit.open("s3://bucket/audits/digits-7")
>>> audit.labels_needed()                                  # show these to people
>>> audit.add_labels({"scan-00017.png": "7"})
>>> audit.estimate()
>>> audit.next(50).to_pandas()

The methods work on the same files as the commands of the same names, so a notebook and a shell can take turns.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit import status as state_of_run
from opacc_ray.audit.comparison import ModelComparison, compare
from opacc_ray.audit.goals import next_until, read_goal, read_target
from opacc_ray.audit.guided import GoOn, label_until
from opacc_ray.audit.label_budget import LabelBudget, label_budget
from opacc_ray.audit.status import RunStatus
from opacc_ray.audit.suites import REDUCE, Suite, make_suite
from opacc_ray.cluster import local
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.labels import label_actions
from opacc_ray.labels.formats.jsonl_file import as_jsonl
from opacc_ray.labels.label_documents import ImportedLabels, WithdrawnLabels
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.label_rows import COLUMNS, few
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.labels.shown_rows import read_shown
from opacc_ray.report.report_documents import WrittenReport
from opacc_ray.report.run_report import make_report
from opacc_ray.report.stated_numbers import round_done
from opacc_ray.runs.estimate_documents import AccuracyEstimate
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Goal
from opacc_ray.selection import Selection
from opacc_ray.spec import Spec, load_spec, parse_spec


class NeededLabel(NamedTuple):
    """A chosen example without a label."""

    id: str
    uri: str  # of its file in the pool
    round: int  # round that chose it
    shown: Mapping[str, str] = MappingProxyType({})  # what annotators see of its row, column -> text


class Audit:
    """A run and one of its tracks."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @classmethod
    def open(cls, uri: str | os.PathLike[str], track: str | None = None) -> Self:
        """Open the run at ``uri``, which `opacc run` printed.

        Raises
        ------
        DataError
            There is no run at ``uri``.
        SpecError
            The run has no such track.
        """
        return cls(Run.open(os.fspath(uri), track))

    @classmethod
    def run(
        cls,
        spec: str | os.PathLike[str] | Mapping[str, Any] | Spec,
        *,
        labels: Callable[[list["NeededLabel"]], Any] | None = None,
        until: str | float | None = None,
        by: str | None = None,
    ) -> Self:
        """Do a whole audit: check, extract, draw, label, go on to the goal, and write the report.

        The same spec goes on where an earlier call stopped.

        Parameters
        ----------
        spec : path of a spec, or its content
        labels : called with the examples that need a label; returns what :meth:`add_labels` takes, of some or
            all; nothing, to stop. Default: open the labelling page in a browser, until all labels are there, or the
            call is interrupted
        until, by : goal, as for :meth:`next`; default: only the round that the spec asks for

        Raises
        ------
        SpecError, StorageError, DataError
            The spec, its pool, model or output cannot be used.
        LabelError
            Labels do not fit, or none came although ``until`` is given.
        """
        half_width, target = read_goal(until, by) if until is not None else (None, read_target(by=by))
        if isinstance(spec, Mapping):
            spec = parse_spec(spec, "spec")
        found = spec if isinstance(spec, Spec) else load_spec(os.fspath(spec))
        with local.ahead():
            audit = cls(verbs.run(found, trial=True))

        def ask(run: Run, go_on: GoOn) -> None:
            assert labels is not None
            given = labels(audit.labels_needed())
            if given is not None and len(given):
                audit.add_labels(given)

        label_until(audit._run, serve_page if labels is None else ask, half_width, target, on_round=_print_round)
        audit.report()
        return audit

    @property
    def uri(self) -> str:
        """Return the URI of the run."""
        return self._run.uri

    def __repr__(self) -> str:
        return f"Audit({self._run.title!r})"

    def status(self) -> RunStatus:
        """Return the progress of the run, and what it waits for."""
        return state_of_run.status(self._run)

    def labels_needed(self) -> list[NeededLabel]:
        """List the examples without a label, each once, in the order of choice.

        Predictions are left out, because annotators must not see them, except the answers that they shall grade.
        """
        found: dict[str, NeededLabel] = {}
        shown = read_shown(self._run, map(self._run.read_chosen, self._run.rounds()), read_log(self._run).show)
        for item in read_rounds(self._run):
            chosen = self._run.read_chosen(item.number)
            places = dict(zip(chosen.ids, chosen.uris, strict=True))
            waiting = set(item.missing)
            for id in item.selection.ids:
                if id in waiting:
                    found.setdefault(id, NeededLabel(id, places[id], item.number, shown.get(id, {})))
        return list(found.values())

    def add_labels(
        self,
        given: Any,
        *,
        annotator: str | None = None,
        numbers_are_classes: bool | None = None,
        only_selected: bool = False,
    ) -> ImportedLabels:
        """Import labels from a mapping, a DataFrame, a list of rows, or a file.

        A label is the name of a class (its index, if classes have no names), or the number of a regression; ``"?"``
        means can't tell; None or NaN means not answered yet.

        Parameters
        ----------
        given : a mapping of ids to labels; a DataFrame (of pandas, say) with the columns ``id`` and ``label``, or a
            list of such rows, with optional ``annotator``, ``status``, ``run``, ``round`` and ``labelled_at``; or the
            path of a file that `opacc labels import` reads
        annotator : who gave the labels; overrides the rows
        numbers_are_classes : read numbers as indexes of named classes, counted from 0; otherwise they are refused.
            Default: the spec's
        only_selected : leave out examples that were not selected; otherwise they are refused

        Raises
        ------
        LabelError
            No label is given, an id was not chosen, a label is none of the classes, or labels are in conflict. Nothing
            is imported then.
        """
        if isinstance(given, str | os.PathLike):
            path = Path(given)
            name, data = path.name, path.read_bytes()
        else:
            name, data = "notebook.jsonl", as_jsonl(_rows_of(given))
        return label_actions.import_labels(
            self._run,
            name,
            data,
            annotator=annotator,
            numbers_are_classes=numbers_are_classes,
            only_selected=only_selected,
        )

    def next(
        self,
        budget: int | None = None,
        *,
        until: str | float | None = None,
        by: str | None = None,
        method: str | None = None,
        close: bool = False,
        **parameters: Any,
    ) -> Selection | None:
        """Draw the next round, using all labels so far, or the first round.

        Parameters
        ----------
        budget : number of labels; default: as ``until`` plans
        until : draw only if the interval is wider than this: 0.03, or "f1@defect ±0.03"; needs the labels of a round
        by : ``until`` is about each of these slices, "camera", or about one, "camera=north"
        method, parameters : sampling method; default: that of the round before, or of the spec
        close : close the previous round without its missing labels

        Returns
        -------
        Selection
            None if the interval is as narrow as ``until`` asks.

        Raises
        ------
        LabelError
            Labels of the previous round are missing.
        SpecError
            Unknown method, parameter or number, or a budget that does not fit.
        """
        if until is not None:
            options: dict[str, Any] = {"budget": budget, "method": method, "parameters": parameters, "close": close}
            goal = next_until(self._run, *read_goal(until, by), **options)
            return None if goal.reached else self.selections()[-1]
        if budget is None:
            raise SpecError("give a budget, or until, such as until=0.03")
        if self._run.rounds():
            return verbs.next_round(self._run, budget, method=method, parameters=parameters, close=close)
        sample = self._run.spec.sample
        chosen = parameters if method not in (None, sample.method) else sample.parameters | parameters
        return verbs.select(self._run, method or sample.method, budget, chosen, replicates=sample.replicates)

    def close(self) -> None:
        """Give up the missing labels of the newest round, so that they count as not drawn.

        Raises
        ------
        LabelError
            The existing labels allow no estimate for the pool.
        """
        verbs.close(self._run)

    def correct(self, id: str, label: str, *, annotator: str) -> None:
        """Override an example's label (``"?"``: can't tell); earlier answers stay in the log but are ignored."""
        label_actions.correct(self._run, id, label, annotator)

    def withdraw(self, what: str) -> WithdrawnLabels:
        """Withdraw the labels of an example, by its id, or of a file, by its name; they are kept in the log."""
        return label_actions.withdraw(self._run, what)

    def compare(self, *others: "Audit | str", metric: str = ACCURACY, level: float = 0.95) -> ModelComparison:
        """Compare the model with others on the same pool, by the labels of this run.

        Parameters
        ----------
        others : audits of the other models, or the URIs of their runs; they need no labels
        metric : compare this one, such as "macro_f1", in place of the accuracy
        level : confidence level at which all differences hold together
        """
        runs = [other._run if isinstance(other, Audit) else Run.open(other) for other in others]
        return compare(self._run, *runs, metric=metric, level=level)

    def budget(self, until: str | float, *, by: str | None = None, level: float = 0.95) -> LabelBudget:
        """Predict how many labels an interval takes: 0.03, or "recall@defect ±0.03"; ``by`` as for :meth:`next`."""
        return label_budget(self._run, *read_goal(until, by), level=level)

    def selections(self) -> list[Selection]:
        """Return the selection of each round."""
        return [self._run.read_selection(number) for number in self._run.rounds()]

    def estimate(
        self,
        *,
        level: float = 0.95,
        partial: bool = False,
        assist: bool = False,
        metrics: Sequence[str] | None = None,
        by: Sequence[str] | None = None,
    ) -> AccuracyEstimate:
        """Estimate accuracy and metrics, and store them as ``estimate.json``.

        Parameters
        ----------
        level : confidence level of the intervals
        partial : assume that missing labels are missing at random
        assist : also compute a prediction-powered estimate from the confidences of the whole pool
        metrics : further metrics, such as "macro_f1" or "recall@CLASS"; default: those of the spec
        by : slices of the spec, "prediction" or "truth", to state them by; default: the slices of the spec

        Raises
        ------
        LabelError
            Labels are missing and ``partial`` is not set, or there is no label.
        SpecError
            There is no such metric, class or slice.
        """
        return accuracy.estimate(self._run, level=level, partial=partial, assist=assist, metrics=metrics, by=by)

    def report(
        self, out: str | None = None, *, level: float = 0.95, goal: float | Mapping[str, float] | None = None
    ) -> WrittenReport:
        """Write the report next to the estimate, or to the folder ``out``.

        ``goal`` is the least accuracy that the model must have, or of another metric, ``{"recall@defect": 0.9}``;
        default: that of the spec.
        """
        return make_report(self._run, out, level=level, goal=goal)[0]

    def suite(
        self, uri: str | os.PathLike[str], *, size: int | None = None, coverage: str = "nc:0.5", method: str = REDUCE
    ) -> Suite:
        """Make a regression suite of the labelled examples at ``uri``, for :func:`opacc_ray.regress`.

        Parameters
        ----------
        size : most examples; default: few that meet all requirements of the labelled ones, and are distributed as they
        coverage : criterion of neuron coverage
        method : which chooses from the labelled examples; one that does not stop by itself needs a size
        """
        return make_suite(self._run, os.fspath(uri), size=size, criterion=coverage, method=method)


def serve_page(run: Run, go_on: GoOn) -> None:
    """Open the labelling page of a run in a browser, until there is nothing to label."""
    import webbrowser

    from opacc_ray.labels.page.serve import serve

    def announce(address: str) -> None:
        print(f"label at {address}")
        webbrowser.open(address)

    serve(run, "127.0.0.1", 0, announce, go_on=go_on)


def _print_round(goal: Goal) -> None:
    print(round_done(goal))


def _rows_of(given: Any) -> list[dict[str, str | None]]:
    """The rows of labels that came as a mapping, a table or a list; raises LabelError if they are none of these."""
    columns = [str(name) for name in getattr(given, "columns", ())]
    rows: list[Any] = []
    if isinstance(given, Mapping):
        rows = [{"id": id, "label": label} for id, label in given.items()]
    elif {"id", "label"} <= set(columns):
        rows = [
            dict(zip(columns, cells, strict=True)) for cells in zip(*(given[name] for name in columns), strict=True)
        ]
    elif isinstance(given, list) and all(isinstance(row, Mapping) and {"id", "label"} <= row.keys() for row in given):
        rows = given
    if not rows:
        what = f"what is of type {type(given).__name__}"
        if isinstance(given, Mapping | list) and not given:
            what = "an empty mapping" if isinstance(given, Mapping) else "an empty list"
        elif columns:
            what = f"a table with {len(given)} rows and the columns {few(columns)}"
        raise LabelError(
            f"labels came as {what}: give a mapping of ids to labels, a table or a list of rows with id and label, or "
            "the path of a file"
        )
    return [{name: _text(row[name]) for name in COLUMNS if name in row} for row in rows]


def _text(value: Any) -> str | None:
    """The text of a cell; None for what tables hold where nothing is: None, NaN, NaT, NA."""
    is_nothing = value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)
    return None if is_nothing else str(value)
