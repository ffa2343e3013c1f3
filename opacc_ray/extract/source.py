"""The pool of a spec: its store, its reading rules and its plan of shards."""

from opacc_ray.lake.examples import Columns, Plan, Rules
from opacc_ray.lake.formats import place_of
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.spec import ExtractSpec, PoolSpec


def open_pool(source: PoolSpec) -> Store:
    """Return the store of a pool, or that of the folder whose file the pool's URI names."""
    return open_store(place_of(source.format, source.uri)[0], follow_links=source.follow_links)


def rules_of(source: PoolSpec) -> Rules:
    """Return the rules by which a pool is read."""
    columns = source.columns
    array = (columns.array,) if isinstance(columns.array, str) else tuple(columns.array or ())
    named = Columns(columns.id, columns.uri, columns.image, array, tuple(columns.features.items()))
    return Rules(
        source.alpha,
        source.max_pixels,
        source.max_bytes,
        named,
        source.filter,
        source.version,
        source.timestamp,
        place_of(source.format, source.uri)[1],
        None if source.catalog is None or source.table is None else (source.catalog, source.table),
        split=source.split,
    )


def plan_pool(source: PoolSpec, extract: ExtractSpec, what: str = "pool") -> Plan:
    """List a pool and cut it into shards; see :func:`opacc_ray.lake.pools.plan_shards` for its errors."""
    return plan_shards(
        open_pool(source), source.format, extract.shard_size, extract.shard_bytes, what, rules_of(source)
    )
