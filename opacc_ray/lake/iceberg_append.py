"""Append rows to an Iceberg table once, whichever processes do it at the same time and whichever answers are lost.

Rows have a key. A commit has the rows whose key the table lacks, and the catalog refuses it if the table has changed
since it was read; then the table is read again. pyiceberg would repeat such a commit without reading the table again,
and so append twice. The number of its repetitions is set to 0 for this process, not in the table.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from opacc_ray.errors import StorageError, shortened
from opacc_ray.lake.catalogs import CatalogTable, busy, iceberg_catalog, refused
from opacc_ray.lake.parquet_io import pa, pc

ATTEMPTS, PAUSE, MOST_PAUSE = 10, 0.2, 2.0  # of a commit that meets others, and seconds between them

_NO_REPETITION = {"commit.retry.num-retries": "0"}


def append_missing(table: CatalogTable, rows: Any, key: str) -> None:
    """Append those of some rows, an Arrow table, whose key the table lacks; create it, and add columns, if need be.

    Raises SpecError, or StorageError if the catalog is not reached or other commits come first again and again.
    """
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    with refused(table):
        catalog = iceberg_catalog(table)
        for attempt in range(ATTEMPTS):
            try:
                return _append(_made(catalog, table.name, rows.schema), rows, key)
            except (CommitFailedException, CommitStateUnknownException, *busy()) as error:
                reason = shortened(" ".join(str(error).split()), 200)
            time.sleep(min(PAUSE * 2**attempt, MOST_PAUSE))
    raise StorageError(
        f"cannot append to the table {table.name} of the catalog {table.catalog!r} ({reason}); run the same command "
        "again, which appends what is missing"
    )


def _made(catalog: Any, name: str, schema: Any) -> Any:
    """Return a table with at least the columns of a schema."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    wanted = pa.schema([field.with_metadata({"doc": (field.metadata or {}).get(b"comment", b"")}) for field in schema])
    try:
        found = catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        space = name.rpartition(".")[0]
        _unless(partial(catalog.namespace_exists, space), partial(catalog.create_namespace, space))
        _unless(partial(catalog.table_exists, name), partial(catalog.create_table, name, wanted))
        found = catalog.load_table(name)
    if not set(schema.names) <= set(found.schema().column_names):
        with found.update_schema() as update:
            update.union_by_name(wanted)
    return found


def _unless(there: Callable[[], bool], make: Callable[[], Any]) -> None:
    """Make something that another process may make now; the error of the later one depends on the catalog."""
    try:
        make()
    except Exception:
        if not there():
            raise


def _append(table: Any, rows: Any, key: str) -> None:
    from pyiceberg.expressions import In

    wanted = rows[key].unique()
    there = table.scan(In(key, wanted.to_pylist()), selected_fields=(key,)).to_arrow()[key].unique()
    new = rows.filter(pc.invert(pc.is_in(rows[key], there.cast(wanted.type))))
    if len(new):
        properties = {**table.metadata.properties, **_NO_REPETITION}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        table.append(new)
