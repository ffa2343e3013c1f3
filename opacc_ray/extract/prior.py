"""A column of the user's own beside a pool's examples: numbers that are larger where a failure is more likely.

The column is read from the pool's table as it was planned, and joined to the examples whose features are there by id,
shard by shard: rows that extraction left out are left out here, too.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract.feature_set import Complete
from opacc_ray.extract.source import open_pool, rules_of
from opacc_ray.lake.arrow_columns import numbers_of, to_numpy
from opacc_ray.lake.examples import Columns, Plan, Shard
from opacc_ray.lake.pools import read_rows
from opacc_ray.lake.read_ahead import in_order
from opacc_ray.lake.row_examples import ids_of
from opacc_ray.spec import PoolSpec

THREADS = 4
"""Shards that are read at a time."""


def read_prior(pool: PoolSpec, plan: Plan, there: Complete) -> NDArray[np.float64]:
    """The column of every example whose features are there, (N,), in their order.

    Raises
    ------
    DataError
        The column is not there, does not hold numbers, or lacks one for an example.
    """
    held = [shard for shard, own in zip(plan.shards, there.index.shards, strict=True) if own.examples]
    parts = in_order(lambda part: _of_shard(pool, held[part], there.features.ids(part)), range(len(held)), THREADS)
    return np.concatenate(list(parts))


def try_prior(pool: PoolSpec, plan: Plan) -> str:
    """Read the first rows; returns in words what they hold, and raises DataError as :func:`read_prior` would."""
    for shard in plan.shards:
        for ids, values in _rows(pool, shard):
            if ids:
                return f"{pool.columns.prior} of {ids[0]!r} is {values[0]:g}"
    return f"{pool.columns.prior} of no row"


def _of_shard(pool: PoolSpec, shard: Shard, ids: list[str]) -> NDArray[np.float64]:
    found = {name: value for names, values in _rows(pool, shard) for name, value in zip(names, values, strict=True)}
    lost = next((name for name in ids if name not in found), None)
    if lost is not None:
        raise DataError(f"{pool.uri} has no row of {lost!r} any more; restore the pool, or run the spec on it as it is")
    return np.array([found[name] for name in ids], dtype=np.float64)


def _rows(pool: PoolSpec, shard: Shard) -> Iterator[tuple[list[str], list[float]]]:
    """Ids and numbers of the rows that have an id, batch by batch."""
    name = pool.columns.prior
    assert name is not None
    rules = rules_of(pool)
    rules = rules._replace(columns=Columns(id=rules.columns.id, features=(("prior", (name,)),)))
    store = open_pool(pool)
    for batch in read_rows(store, pool.format, shard, rules):
        source = store.uri_of(batch.entry.key)
        ids, column = ids_of(batch, rules.columns.id), batch.columns[name].combine_chunks()
        missing = np.flatnonzero(to_numpy(column.is_null()))
        if len(missing) == len(ids):
            raise DataError(f"{source} has no number in the column {name!r}, which pool.columns.prior names")
        if len(missing):
            raise DataError(f"{source}: {name} of {ids[missing[0]]!r} is null; give each example a number")
        values = None
        with suppress(DataError):  # it does not know the key of the spec
            values = numbers_of(column, name)
        if values is None or values.ndim != 1:
            raise SpecError(f"pool.columns.prior: {name!r} is {column.type}; name a column of numbers, one a row")
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
        if len(bad):
            raise DataError(f"{source}: {name} of {ids[bad[0]]!r} is {values[bad[0]]}; give each example a number")
        sound = [row for row, own in enumerate(ids) if isinstance(own, str)]
        yield [str(ids[row]) for row in sound], [float(values[row]) for row in sound]
