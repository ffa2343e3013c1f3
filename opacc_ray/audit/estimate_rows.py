"""The table of estimates: a row for each number of each estimate that a run stated, by its log.

A row has what it is stated for (audit, model, population, time of the data, metric, slice), what was stated (value,
interval, labels, design), and when. So rows of many runs are one history. The same run always gives the same rows.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from opacc_ray.audit.number_rows import number_rows
from opacc_ray.audit.table_columns import ESTIMATES, NAMES, POPULATION, table_of
from opacc_ray.runs.commit_log import Commit, digest_of
from opacc_ray.runs.estimate_documents import AccuracyEstimate
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Draw


class StatedRows(NamedTuple):
    """An estimate that was stated, as rows."""

    id: str
    number: int  # of its entry in the log of the run
    rows: Any  # pyarrow.Table with all columns of the table


def stated_rows(run: Run) -> Iterator[StatedRows]:
    """Yield every estimate that was stated on any track, in the order of the log."""
    found = [(own, *stated) for own in run.tracks() for stated in own.estimates()]
    for own, commit, estimate in sorted(found, key=lambda item: item[1].number):
        id = digest_of(commit.to_bytes())[:16]
        yield StatedRows(id, commit.number, _rows(own, commit, estimate, id))


def _rows(run: Run, commit: Commit, estimate: AccuracyEstimate, id: str) -> Any:
    numbers = [row.model_dump() for row in number_rows(estimate)]
    stated = estimate.model_dump(include={"measure", "pool_size", "excluded", "labels_digest"})
    stated |= {
        "estimate": id,
        "log_entry": commit.number,
        "stated": datetime.fromisoformat(commit.at),
        "features_digest": _drawn_from(run, commit.number),
        "methods": ", ".join(item.method for item in estimate.rounds),
        "rounds": len(estimate.rounds),
    }
    values: dict[str, Sequence[Any]] = {name: [value] * len(numbers) for name, value in (_of(run) | stated).items()}
    return table_of(ESTIMATES, values | {NAMES.get(name, name): [row[name] for row in numbers] for name in numbers[0]})


def _of(run: Run) -> dict[str, Any]:
    """Return what all rows of a run have."""
    header, spec, pool, population = run.header, run.spec, run.spec.pool, Population.of(run.spec)
    time, source = _time_of_data(run)
    return {
        "run": run.name,
        "audit": spec.name,
        "uri": run.uri,
        "track": run.track,
        "run_created": _utc(header.created),
        "data_as_of": time,
        "data_as_of_from": source,
        "week": (time - timedelta(days=time.weekday())).date(),
        "population": population.digest,
        **{POPULATION[key]: getattr(pool, key) for key in ("format", "filter", "split", "catalog", "table")},
        **{POPULATION[key]: getattr(population, key) for key in ("name", "task", "classes")},
        "pool": pool.uri,
        "pool_digest": header.pool.digest,
        "pool_version": header.pool.version,
        "model": spec.model.name or _model(run),
        "model_digest": header.model.sha256,
    }


def _model(run: Run) -> str:
    """Return what identifies a model without a name."""
    model, pool = run.spec.model, run.spec.pool
    if pool.holds_features:
        columns, place = pool.columns, pool.table or pool.uri
        said = [columns.prediction] if columns.prediction else columns.features.get("output") or columns.answer
        return f"column {', '.join(said)} of {place}" if said else f"the model of {place}"
    return " ".join(filter(None, [model.factory or model.program or model.function, model.weights]))


def _time_of_data(run: Run) -> tuple[datetime, str]:
    """Return the time of the data, and what it is from."""
    pool = run.header.pool
    if run.spec.data_as_of is not None:
        return _utc(run.spec.data_as_of), "spec"
    if pool.data_as_of is not None:
        return _utc(pool.data_as_of), "files" if pool.version is None else "version"
    return _utc(run.header.created), "run"


def _utc(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _drawn_from(run: Run, before: int) -> str | None:
    """Return the digest of the features of the last draw before an entry of the log."""
    drawn = [draw.features for commit, draw in run.logged(Draw) if commit.number < before]
    return drawn[-1] if drawn else None
