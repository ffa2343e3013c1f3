"""SQL views of the table of estimates, in standard SQL: accuracy by model over weeks, and worst slices.

A series is one population and one model by its name. Two populations, or two models, are never one series.
"""

from typing import NamedTuple


class View(NamedTuple):
    """A view in SQL."""

    name: str
    meaning: str
    select: str  # the query


LATEST = View(
    "latest_estimates",
    "every number of the newest estimate for each population, version of a model and time of the data",
    """
SELECT * FROM (
  SELECT *, rank() OVER (
    PARTITION BY population, model, model_digest, data_as_of ORDER BY stated DESC, estimate
  ) AS age
  FROM estimates WHERE track IS NULL AND metric IS NOT NULL
) AS ranked WHERE age = 1""",
)

BY_WEEK = View(
    "accuracy_by_week",
    "the accuracy of each model on each population in each week of its data, with the change since its last week; the "
    "newest data of a week count",
    """
SELECT population, population_name, pool, pool_filter, classes, model, week, data_as_of, value, low, high, level, n,
  value - lag(value) OVER (PARTITION BY population, model ORDER BY week) AS change, measure, design_based, model_digest,
  run, uri, stated
FROM (
  SELECT *, row_number() OVER (
    PARTITION BY population, model, week ORDER BY data_as_of DESC, stated DESC, estimate
  ) AS place
  FROM latest_estimates WHERE metric = 'accuracy' AND sliced_by IS NULL
) AS weekly WHERE place = 1
ORDER BY population, model, week""",
)

WORST = View(
    "worst_slices",
    "the slices with enough labels in the newest data of each model and population, the lowest value first",
    """
SELECT population, population_name, model, data_as_of, metric, sliced_by, slice, value, low_together, high_together,
  level, n, size, row_number() OVER (PARTITION BY population, model, metric ORDER BY value, sliced_by, slice) AS place,
  run, uri, stated
FROM (
  SELECT *, dense_rank() OVER (PARTITION BY population, model ORDER BY data_as_of DESC, stated DESC, estimate) AS turn
  FROM latest_estimates
) AS newest WHERE turn = 1 AND tells
ORDER BY population, model, metric, place""",
)

VIEWS = (LATEST, BY_WEEK, WORST)


def views_sql(source: str) -> str:
    """Return the statements that create the view ``estimates`` of a source in SQL, and all other views."""
    estimates = View("estimates", "all numbers of all estimates that were stated", f"\nSELECT * FROM {source}")
    return "\n\n".join(
        f"-- {view.name}: {view.meaning}\nCREATE OR REPLACE VIEW {view.name} AS{view.select};"
        for view in (estimates, *VIEWS)
    )
