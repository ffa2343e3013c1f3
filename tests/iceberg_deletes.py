"""What Spark and Flink write to Iceberg tables, and pyiceberg does not: delete files, and tables of version 3."""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.avro.file import AvroOutputFile
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
from pyroaring import BitMap
from tables import parquet


class _DeletesWriter(ManifestWriterV2):
    """A manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return super()._meta | {"content": "deletes"}


class _VectorsWriter(_DeletesWriter):
    """The same in version 3, which has the places of deletion vectors in their files."""

    @property
    def version(self) -> Any:
        return 3

    def new_writer(self) -> Any:
        schema = self._with_partition(3)
        return AvroOutputFile(self._output_file, schema, "manifest_entry", schema, self._meta)


def delete_places(table: Any, path: str, rows: Sequence[int]) -> None:
    """Commit position deletes of some rows of a data file."""
    deletes = pa.table({"file_path": [path] * len(rows), "pos": pa.array(rows, pa.int64())})
    _commit_table(table, deletes, DataFileContent.POSITION_DELETES)


def delete_values(table: Any, rows: pa.Table) -> None:
    """Commit equality deletes: rows of older files that have one of the values of all columns."""
    schema = table.schema()
    fields = schema_to_pyarrow(schema.select(*rows.column_names))
    ids = [schema.find_field(name).field_id for name in fields.names]
    _commit_table(table, rows.select(fields.names).cast(fields), DataFileContent.EQUALITY_DELETES, equality_ids=ids)


def _commit_table(table: Any, deletes: pa.Table, content: DataFileContent, **more: Any) -> None:
    data, path = parquet(deletes), f"{table.location()}/data/{table.metadata.last_sequence_number}-deletes.parquet"
    _commit(table, path, data, [_delete_file(table, path, data, content, len(deletes), **more)])


def delete_by_vectors(table: Any, deleted: Mapping[str, Sequence[int]]) -> None:
    """Commit deletion vectors in one Puffin file: rows by the path of their data file."""
    blobs = [_vector(rows) for rows in deleted.values()]
    starts = [4 + sum(map(len, blobs[:number])) for number in range(len(blobs))]
    footer = {
        "blobs": [
            {
                "type": "deletion-vector-v1",
                "fields": [2147483546],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": start,
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(deleted[path]))},
            }
            for path, blob, start in zip(deleted, blobs, starts, strict=True)
        ]
    }
    end = json.dumps(footer).encode()
    data = b"PFA1" + b"".join(blobs) + b"PFA1" + end + struct.pack("<iI", len(end), 0) + b"PFA1"
    path = f"{table.location()}/data/{table.metadata.last_sequence_number}-deletes.puffin"
    vectors = [
        _delete_file(
            table, path, data, DataFileContent.POSITION_DELETES, len(deleted[own]), 3, file_format="PUFFIN",
            referenced_data_file=own, content_offset=start, content_size_in_bytes=len(blob),
        )
        for own, blob, start in zip(deleted, blobs, starts, strict=True)
    ]  # fmt: skip
    _commit(table, path, data, vectors, _VectorsWriter)


def _vector(rows: Sequence[int]) -> bytes:
    """A blob: its length, magic number, 64-bit Roaring bitmap and checksum."""
    bitmap = BitMap(rows)
    bitmap.run_optimize()  # as Iceberg does
    content = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0) + bitmap.serialize()
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def as_version_3(table: Any, defaults: Mapping[str, Any]) -> str:
    """Write the newest metadata of a table in version 3, with initial defaults, ``struct.field`` for nested columns.

    Returns the URI of the file.
    """
    metadata = json.loads(table.metadata.model_dump_json())
    schema = next(own for own in metadata["schemas"] if own["schema-id"] == metadata["current-schema-id"])
    for name, value in defaults.items():
        fields: Any = schema["fields"]
        for part in name.split("."):
            field = next(own for own in fields if own["name"] == part)
            fields = field["type"]["fields"] if isinstance(field["type"], dict) else []
        field |= {"initial-default": value, "write-default": value}
    metadata |= {"format-version": 3, "next-row-id": 0}
    place = f"{table.location()}/metadata/00999-3.metadata.json"
    _write(table.io, place, json.dumps(metadata).encode())
    return place


def _delete_file(
    table: Any, path: str, data: bytes, content: DataFileContent, rows: int, version: Any = 2, **more: Any
) -> DataFile:
    file = DataFile.from_args(
        _table_format_version=version,
        content=content,
        file_path=path,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=len(data),
        **{"file_format": FileFormat.PARQUET, **more},
    )
    file.spec_id = table.spec().spec_id
    return file


def _commit(
    table: Any, path: str, data: bytes, files: Sequence[DataFile], kind: type[_DeletesWriter] = _DeletesWriter
) -> None:
    metadata, io = table.metadata, table.io
    snapshot, number = metadata.new_snapshot_id(), metadata.last_sequence_number + 1
    _write(io, path, data)
    output = io.new_output(f"{table.location()}/metadata/{snapshot}-m0.avro")
    with kind(table.spec(), table.schema(), output, snapshot, "null") as writer:
        for file in files:
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
