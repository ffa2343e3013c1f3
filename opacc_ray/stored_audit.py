"""An audit: a run in storage, and all that can be done with it. The command line and notebooks use this class.

>>> audit = opacc_ray.Audit.run("spec.yaml")               # features, and a first round to label
>>> audit.label(until=0.03)                                # the labelling page, round after round, to the goal
>>> audit.report()

or with labels that come later:

>>> audit = opacc_ray.Audit.open("s3://bucket/audits/digits-7")
>>> audit.labels_needed()                                  # show these to people
>>> audit.add_labels({"scan-00017.png": "7"})
>>> audit.estimate()
>>> audit.next(50)

A notebook and a shell can take turns.
"""

import logging
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from opacc_ray.audit import EXPORTERS, accuracy, comparison, verbs
from opacc_ray.audit.accuracy import load_costs
from opacc_ray.audit.checks import check_pool
from opacc_ray.audit.comparison import ModelComparison
from opacc_ray.audit.goals import LabelBudget, Target, label_budget, label_budget_of_table, next_until, read_goal
from opacc_ray.audit.progress import Progress
from opacc_ray.audit.status import RunLog, RunStatus, has_page, newest_round, no_page, run_log, status
from opacc_ray.cluster import local
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels import label_actions
from opacc_ray.labels.formats import COLUMNS, as_jsonl, few
from opacc_ray.labels.label_actions import AnswerList, ImportedLabels, WithdrawnLabels
from opacc_ray.labels.label_log import LabelAction, Score, label_rules
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.labels.shown_examples import read_shown
from opacc_ray.lake.formats import refuse_workbook
from opacc_ray.report.answers import round_done
from opacc_ray.report.report_documents import WrittenReport
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import AccuracyEstimate, DrawnRound, Goal
from opacc_ray.selection import Selection
from opacc_ray.spec import ConflictRule, ScoreSpec, Spec, parse_spec, validated
from opacc_ray.spec.table_spec import TableKeys, is_table, kept_budget, kept_spec, load_spec_or_table, named_columns

log = logging.getLogger(__name__)

MAX_BYTES = 256_000_000
"""Most bytes of a file of labels: about five million labels."""


class NeededLabel(NamedTuple):
    """A chosen example without a label."""

    id: str
    uri: str  # of its file in the pool
    round: int  # round that chose it
    shown: Mapping[str, str] = MappingProxyType({})  # what annotators see of its row, column -> text


class Audit:
    """A run, whose files ``record`` reads and writes."""

    def __init__(self, record: Run) -> None:
        self.record = record

    def __repr__(self) -> str:
        return f"Audit({self.uri!r})"

    @property
    def uri(self) -> str:
        """Return the URI of the run."""
        return self.record.uri

    @classmethod
    def open(cls, uri: str | os.PathLike[str]) -> Self:
        """Open the run at ``uri``, which `opacc run` printed.

        Raises
        ------
        DataError
            There is no run at ``uri``.
        """
        return cls(Run.open(os.fspath(uri)))

    # -- rounds ----------------------------------------------------------------------------------------------

    @classmethod
    def run(
        cls,
        spec: str | os.PathLike[str] | Mapping[str, Any] | Spec,
        keys: TableKeys | None = None,
        *,
        trial: bool = True,
    ) -> Self:
        """Check a spec, extract the features, and draw the first round; the same spec goes on where a call stopped.

        Parameters
        ----------
        spec : path of a spec, or its content; or path of a file of predictions
        keys : of a file of predictions, what a spec has; its ``budget`` is needed
        trial : first compare stored features with new ones of some examples, or try the model on some

        Raises
        ------
        SpecError, StorageError, DataError
            The spec, its pool, model or output cannot be used.
        """

        with local.ahead():
            own = _spec_of(spec, keys)
            work = "read" if own.pool.holds_features else "extract"
            with Progress(work, "shards") as extracting, _selecting() as selecting:
                return cls(verbs.first_round(own, extracting, selecting, trial=trial))

    def like(
        self,
        method: str | None = None,
        budget: int | None = None,
        *,
        seed: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        trial: bool = True,
    ) -> Self:
        """Draw anew from the same features, in a run of its own; :meth:`add_labels` takes the answers of this one.

        What is left out is as in the spec of this run; another method has its own parameters. Raises SpecError for an
        unknown method or parameter, or a budget that does not fit.
        """
        return self.run(self.record.spec.like(method, budget, seed, parameters or {}), trial=trial)

    def next(
        self,
        budget: int | None = None,
        *,
        until: str | float | None = None,
        by: str | None = None,
        method: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        close: bool = False,
    ) -> DrawnRound:
        """Draw the next round, using all labels so far, or the first round.

        Parameters
        ----------
        budget : number of labels; default: as ``until`` plans. With a budget, a round that was drawn so and has no
            answer yet is returned again
        until : draw only if the interval is wider than this: 0.03, or "f1@defect ±0.03"; needs the labels of a round
        by : ``until`` is about each of these slices, "camera", or about one, "camera=north"
        method, parameters : sampling method; default: that of the round before, or of the spec
        close : close the previous round without its missing labels

        Returns
        -------
        DrawnRound
            Its ``reached`` is True, and nothing is drawn, if the interval is as narrow as ``until`` asks.

        Raises
        ------
        LabelError
            Labels of the previous round are missing.
        SpecError
            Unknown method, parameter or number, or a budget that does not fit.
        """
        run, drawn, target = self.record, self.record.rounds(), _goal(until, by)
        with _selecting() as progress:
            if target is not None:
                goal = next_until(
                    run,
                    *target,
                    budget=budget,
                    method=method,
                    parameters=parameters,
                    close=close,
                    progress=progress,
                )
                return newest_round(run, goal)
            selection = verbs.next_round(
                run,
                budget,
                method=method,
                parameters=parameters,
                close=close,
                repeat=budget is not None,
                progress=progress,
            )
        return newest_round(run, again=selection.round in drawn)

    def close(self) -> None:
        """Give up the missing labels of the newest round, so that they count as not drawn.

        Raises
        ------
        LabelError
            The existing labels allow no estimate for the pool.
        """

        verbs.close_round(self.record)

    def selections(self) -> list[Selection]:
        """Return the selection of each round."""
        return [self.record.read_selection(number) for number in self.record.rounds()]

    def status(self) -> RunStatus:
        """Return the progress of the run, and what it waits for."""
        return status(self.record)

    def log(self) -> RunLog:
        """Return what happened to the run: rounds, labels, goals, estimates."""
        return run_log(self.record)

    # -- labels ----------------------------------------------------------------------------------------------

    def label(
        self,
        labels: Callable[[list[NeededLabel]], Any] | None = None,
        *,
        until: str | float | None = None,
        by: str | None = None,
        on_round: Callable[[Goal], object] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        annotator: str | None = None,
        browser: bool = True,
    ) -> Goal | None:
        """Have the missing labels given, and further rounds drawn and labelled until the interval is narrow enough.

        It ends when labels stay missing, and goes on then if it is called again.

        Parameters
        ----------
        labels : called with the examples that need a label; returns what :meth:`add_labels` takes, of some or all;
            nothing, to stop. Default: the labelling page, until all labels are there, or Ctrl-C
        until, by : goal, as for :meth:`next`; default: only the rounds that are drawn are labelled
        on_round : called with the progress after each complete round; default: print it
        host, port, annotator, browser : address of the page (port 0: any free one), who labels (default: the page
            asks), and whether to open the page in a browser

        Returns
        -------
        Goal
            None if there is no goal, or labels are still missing.

        Raises
        ------
        LabelError
            No example has a label, or labels are in conflict.
        SpecError
            The method draws no random sample, or there is no such number.
        """
        target = _goal(until, by)
        goal: Goal | None = None

        def go_on() -> bool:
            """Draw the next round if no label is missing and the goal is open; return whether to label something."""
            nonlocal goal
            if self.num_missing():
                return True
            if target is None or (goal is not None and goal.reached):
                return False
            with _selecting() as progress:
                goal = next_until(self.record, *target, progress=progress)
            print(round_done(goal)) if on_round is None else on_round(goal)
            return not goal.reached

        while go_on():
            if labels is None:
                self._serve_page(host, port, annotator, browser, go_on)
            else:
                given = labels(self.labels_needed())
                if given is not None and len(given):
                    self.add_labels(given)
            if self.num_missing():
                return None
        return goal

    def _serve_page(
        self, host: str, port: int, annotator: str | None, browser: bool, go_on: Callable[[], bool]
    ) -> None:
        """Serve the labelling page until there is nothing to label, or Ctrl-C."""
        if not has_page(self.record):
            log.warning("%s", no_page(self.record))
            return

        from opacc_ray.labels.web_app import serve

        def announce(address: str) -> None:
            print(f"label at   {address}\nend with   Ctrl-C; answers are saved at once", file=sys.stderr)
            if browser:
                webbrowser.open(address)

        serve(self.record, host, port, announce, annotator=annotator, go_on=go_on)

    def num_missing(self) -> int:
        """Return how many labels are missing."""
        return sum(len(item.missing) for item in read_rounds(self.record))

    def labels_needed(self) -> list[NeededLabel]:
        """List the examples without a label, each once, in the order of choice.

        Predictions are left out, because annotators must not see them, except the answers that they shall grade.
        """
        run, needed = self.record, dict[str, NeededLabel]()
        shown = read_shown(run, map(run.read_chosen, run.rounds()), label_rules(run).show)
        for item in read_rounds(run):
            chosen = run.read_chosen(item.number)
            places = dict(zip(chosen.ids, chosen.uris, strict=True))
            waiting = set(item.missing)
            for id in item.selection.ids:
                if id in waiting:
                    needed.setdefault(id, NeededLabel(id, places[id], item.number, shown.get(id, {})))
        return list(needed.values())

    def add_labels(
        self,
        labels: Any,
        *,
        annotator: str | None = None,
        conflict: ConflictRule | None = None,
        numbers_are_classes: bool | None = None,
        only_selected: bool = False,
    ) -> ImportedLabels:
        """Import labels from a mapping, a DataFrame, a list of rows, a file, or another audit of the same pool.

        A label is the name of a class (its index, if classes have no names), or the number of a regression; ``"?"``
        means can't tell; None or NaN means not answered yet.

        Parameters
        ----------
        labels : a mapping of ids to labels; a DataFrame (of pandas, say) with the columns ``id`` and ``label``, or a
            list of such rows, with optional ``annotator``, ``status``, ``run``, ``round`` and ``labelled_at``; or the
            path of a file, CSV, JSONL or a tool's export; or an audit, whose answers are taken as they count there,
            to the examples that this one has selected
        annotator : who gave the labels; overrides the rows
        conflict : rule for labels that differ, for the run from now on
        numbers_are_classes : read numbers as indexes of named classes, counted from 0; otherwise they are refused.
            Default: the spec's
        only_selected : leave out examples that were not selected; otherwise they are refused

        Raises
        ------
        LabelError
            No label is given, an id was not chosen, a label is none of the classes, or labels are in conflict. Nothing
            is imported then.
        SpecError
            The file is a workbook.
        """
        if isinstance(labels, Audit):
            if annotator or numbers_are_classes or only_selected:
                raise SpecError(f"{labels.uri} is a run, and of a run only --conflict is an option; remove the others")
            return label_actions.import_answers(self.record, labels.record, conflict=conflict)
        if isinstance(labels, str | os.PathLike):
            name = os.fspath(labels)
            refuse_workbook(name)
            data = _bytes_of(name)
        else:
            name, data = "notebook.jsonl", as_jsonl(_rows_of(labels))
        return label_actions.import_labels(
            self.record,
            name,
            data,
            conflict=conflict,
            annotator=annotator,
            numbers_are_classes=numbers_are_classes,
            only_selected=only_selected,
        )

    def set_rule(self, conflict: ConflictRule) -> LabelAction:
        """Set the rule for labels that differ, for the run from now on."""
        return label_actions.set_rule(self.record, conflict)

    def answers(self, id: str | None = None) -> AnswerList:
        """List all answers, or those to one example: who, when, and which ones count."""
        return label_actions.list_answers(self.record, id)

    def correct(self, id: str, label: str, *, annotator: str) -> AnswerList:
        """Override an example's label (``"?"``: can't tell), and return its answers; earlier ones are ignored."""
        return label_actions.correct(self.record, id, label, annotator)

    def withdraw(self, what: str) -> WithdrawnLabels:
        """Withdraw the labels of an example, by its id, or of a file, by its name; they are kept in the log."""
        return label_actions.withdraw(self.record, what)

    def export(self, target: str, to: str) -> Any:
        """Write labelled examples to a file or folder for ``to``: "failures", "training", or a tool of an extension.

        Returns the document of what was written.
        """
        return EXPORTERS[to](self.record, target)

    # -- results ---------------------------------------------------------------------------------------------

    def estimate(
        self,
        *,
        level: float = 0.95,
        partial: bool = False,
        assist: bool = False,
        metrics: Sequence[str] | None = None,
        by: Sequence[str] | None = None,
        costs: str | None = None,
        score: Mapping[str, Any] | None = None,
    ) -> AccuracyEstimate:
        """Estimate accuracy and metrics, and store them as ``estimate.json``.

        Parameters
        ----------
        level : confidence level of the intervals
        partial : assume that missing labels are missing at random
        assist : also compute a prediction-powered estimate from the confidences of the whole pool
        metrics : further metrics, such as "macro_f1" or "recall@CLASS"; default: those of the spec
        by : slices of the spec, "prediction" or "truth", to state them by; default: the slices of the spec
        costs : file with the cost of errors by class, for the mean cost
        score : score of a regression or of sets of labels, this time only, such as {"within": 0.5}

        Raises
        ------
        LabelError
            Labels are missing and ``partial`` is not set, or there is no label.
        SpecError
            There is no such metric, class or slice.
        """
        run = self.record
        return accuracy.estimate(
            run,
            level=level,
            partial=partial,
            assist=assist,
            metrics=metrics,
            by=by,
            costs=None if costs is None else load_costs(costs, run.spec.model, run.num_classes),
            score=None if score is None else _score_of(run.spec, score),
        )

    def report(
        self, out: str | None = None, *, level: float = 0.95, goal: float | Mapping[str, float] | None = None
    ) -> WrittenReport:
        """Write the report next to the estimate, or to the folder ``out``.

        ``goal`` is the least accuracy that the model must have, or of another metric, ``{"recall@defect": 0.9}``;
        default: that of the spec.
        """
        from opacc_ray.report.run_report import make_report

        return make_report(self.record, out, level=level, goal=goal)[0]

    def compare(
        self, *others: "Audit | str", metric: str = "accuracy", level: float = 0.95, partial: bool = False
    ) -> ModelComparison:
        """Compare the model with others on the same pool, by the labels of this run.

        Parameters
        ----------
        others : audits of the other models, or the URIs of their runs, or of files with their predictions
        metric : compare this one, such as "macro_f1", in place of the accuracy
        level : confidence level at which all differences hold together
        partial : assume that missing labels are missing at random
        """
        runs = [other.record if isinstance(other, Audit) else verbs.open_other(self.record, other) for other in others]
        return comparison.compare(self.record, *runs, metric=metric, level=level, partial=partial)

    def budget(self, until: str | float, *, by: str | None = None, level: float = 0.95) -> LabelBudget:
        """Predict how many labels an interval takes: 0.03, or "recall@defect ±0.03"; ``by`` as for :meth:`next`."""
        return label_budget(self.record, *read_goal(until, by), level=level)


def first_budget(spec: str, until: str, by: str | None, keys: TableKeys) -> int | None:
    """Return the labels of a first round towards a goal for a file of predictions without a run; None otherwise."""

    if not is_table(spec) or "answer" in named_columns(keys.columns) or keys.task == "regression":
        return None
    if kept_budget(spec, keys.output, keys.name) is not None:
        return None
    needed = label_budget_of_table(spec, *read_goal(until, by), columns=keys.columns)
    log.info("first round: %d of about %d labels that the goal needs", needed.sizes[0], needed.total_labels)
    return needed.sizes[0]


def _goal(until: str | float | None, by: str | None) -> tuple[float, Target] | None:
    """Return the half-width and the number of a goal; None without one."""

    if until is None and by is not None:
        raise SpecError("--by is for --until; give both, or remove it")
    return None if until is None else read_goal(until, by)


def _selecting() -> Progress:
    return Progress("select", "examples", delay=2.0)


def _spec_of(spec: str | os.PathLike[str] | Mapping[str, Any] | Spec, keys: TableKeys | None) -> Spec:
    """Return a spec; that of a file of predictions is checked and written beside its run."""

    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, Mapping):
        return parse_spec(spec, "spec")
    own = load_spec_or_table(os.fspath(spec), keys)
    if not is_table(os.fspath(spec)):
        return own
    check_pool(own)
    return kept_spec(own)


def _score_of(spec: Spec, given: Mapping[str, Any]) -> Score:
    """Return a score instead of that of a spec; raises SpecError for a task without one."""

    if spec.model.task not in ("regression", "multilabel"):
        raise SpecError(f"--score {dict(given)}: only a regression and multilabel have a score; remove --score")
    stated = validated(ScoreSpec, given, "--score")
    return Score(stated.error_scale or spec.score.error_scale or 1.0, stated.within, bool(stated.exact))


def _bytes_of(file: str) -> bytes:
    """Return the content of a file of labels of at most :data:`MAX_BYTES`."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise LabelError(f"there is no file {file}; check the path") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LabelError(f"the labels {file} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise LabelError(f"{file} has more than {MAX_BYTES} bytes; split it")
    return data


def _rows_of(labels: Any) -> list[dict[str, str | None]]:
    """Return the rows of a mapping, a table or a list; raises LabelError if they are none of these."""
    from opacc_ray.labels.given_labels import read_table, scalars  # which commands do not need

    labels, columns = read_table(labels)
    rows: list[Any] = []
    if isinstance(labels, Mapping):
        rows = [{"id": id, "label": label} for id, label in labels.items()]
    elif {"id", "label"} <= set(columns):
        cells = (scalars(labels[name], "label") for name in columns)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]
    elif isinstance(labels, list) and all(isinstance(row, Mapping) and {"id", "label"} <= row.keys() for row in labels):
        rows = labels
    if not rows:
        what = f"what is of type {type(labels).__name__}"
        if isinstance(labels, Mapping | list) and not labels:
            what = "an empty mapping" if isinstance(labels, Mapping) else "an empty list"
        elif columns:
            what = f"a table with {len(labels)} rows and the columns {few(list(map(str, columns)))}"
        raise LabelError(
            f"labels came as {what}: give a mapping of ids to labels, a table or a list of rows with id and label, or "
            "the path of a file"
        )
    return [{name: _text(row[name]) for name in COLUMNS if name in row} for row in rows]


def _text(value: Any) -> str | None:
    """Return the text of a cell; None for what tables hold where nothing is: None, NaN, NaT, NA."""
    is_nothing = value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)
    return None if is_nothing else str(value)
