"""How many labels a goal takes, for a run: from the model's own word before any label, and after every whole round."""

from opacc_ray.audit import feature_store, goals
from opacc_ray.audit.documents import LabelBudget
from opacc_ray.audit.history import read_history
from opacc_ray.audit.labelled_rounds import read_rounds
from opacc_ray.audit.run import Run
from opacc_ray.estimators.looks import planned_rounds
from opacc_ray.samplers.label_forecast import forecast_labels
from opacc_ray.samplers.neyman import Parameters

FIRST_ROUND = 0.1
"""Share of the labels forecast that the first round takes."""


def label_budget(run: Run, half_width: float, *, level: float = 0.95) -> LabelBudget:
    """What an interval of ± ``half_width`` takes. Nothing is written.

    Raises
    ------
    LabelError
        If ``half_width`` is not above 0.
    """
    rounds = read_rounds(run) if run.rounds() else []
    whole = bool(rounds) and not rounds[0].missing and rounds[0].labelled.any()
    return _by_labels(run, half_width, level) if whole else _by_the_models_word(run, half_width, level)


def _by_the_models_word(run: Run, half_width: float, level: float) -> LabelBudget:
    parameters = Parameters()
    with feature_store.open_view(run, (), parameters.optional_features) as view:
        found = forecast_labels(view, half_width, level, parameters, read_history(run, keep=False))
        first = min(max(round(FIRST_ROUND * found.neyman), 10), view.size)
        sizes = [first] if first >= found.neyman else [first, *planned_rounds(first, found.neyman, view.size)]
    return LabelBudget(
        run=run.uri,
        half_width=half_width,
        level=level,
        labels=0,
        accuracy=found.foreseen_accuracy,
        reached=False,
        total_labels=found.neyman,
        worthless_labels=found.worthless,
        most_labels=found.at_worst,
        srs_labels=found.srs,
        sizes=sizes,
        advice=None,
    )


def _by_labels(run: Run, half_width: float, level: float) -> LabelBudget:
    goal = goals.look_for_goal(run, half_width, level=level)
    return LabelBudget(
        run=run.uri,
        half_width=half_width,
        level=level,
        labels=goal.looks[-1].labels,
        accuracy=goal.value,
        reached=goal.reached,
        total_labels=goal.total_labels,
        worthless_labels=None,
        most_labels=None,
        srs_labels=goal.srs_labels,
        sizes=goal.sizes,
        advice=goal.advice,
    )
