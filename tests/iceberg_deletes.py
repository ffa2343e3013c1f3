"""Delete files of Iceberg tables, as Spark and Flink write them: by place, and by the values of columns."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from tables import parquet


class _DeletesWriter(ManifestWriterV2):
    """A manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return super()._meta | {"content": "deletes"}


def delete_places(table: Any, path: str, rows: Sequence[int]) -> None:
    """Commit position deletes of some rows of a data file."""
    deletes = pa.table({"file_path": [path] * len(rows), "pos": pa.array(rows, pa.int64())})
    _commit(table, deletes, DataFileContent.POSITION_DELETES, None)


def delete_values(table: Any, rows: pa.Table) -> None:
    """Commit equality deletes: rows of older files that have one of the values of all columns."""
    schema = table.schema()
    fields = schema_to_pyarrow(schema.select(*rows.column_names))
    ids = [schema.find_field(name).field_id for name in fields.names]
    _commit(table, rows.select(fields.names).cast(fields), DataFileContent.EQUALITY_DELETES, ids)


def _commit(table: Any, deletes: pa.Table, content: DataFileContent, ids: list[int] | None) -> None:
    metadata, io = table.metadata, table.io
    snapshot, number = metadata.new_snapshot_id(), metadata.last_sequence_number + 1
    data = parquet(deletes)
    path = f"{table.location()}/data/{snapshot}-deletes.parquet"
    _write(io, path, data)
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(deletes),
        file_size_in_bytes=len(data),
        equality_ids=ids,
        spec_id=table.spec().spec_id,
    )
    output = io.new_output(f"{table.location()}/metadata/{snapshot}-m0.avro")
    with _DeletesWriter(table.spec(), table.schema(), output, snapshot, "null") as writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot, data_file=file)
        )
    manifests = [*table.current_snapshot().manifests(io), writer.to_manifest_file()]
    listed = f"{table.location()}/metadata/snap-{snapshot}.avro"
    with write_manifest_list(
        2, io.new_output(listed), snapshot, table.current_snapshot().snapshot_id, number, "null"
    ) as out:
        out.add_manifests(manifests)
    added = Snapshot(
        snapshot_id=snapshot,
        parent_snapshot_id=table.current_snapshot().snapshot_id,
        manifest_list=listed,
        sequence_number=number,
        summary=Summary(Operation.DELETE),
        schema_id=table.schema().schema_id,
    )
    table.catalog.commit_table(
        table,
        (AssertRefSnapshotId(ref="main", snapshot_id=table.current_snapshot().snapshot_id),),
        (
            AddSnapshotUpdate(snapshot=added),
            SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot),
        ),
    )
    table.refresh()


def _write(io: Any, path: str, data: bytes) -> None:
    with io.new_output(path).create() as file:
        file.write(data)
