"""Delta tables as Databricks writes them, which no writer on PyPI does: column mapping and deletion vectors."""

import json
import struct
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from tables import parquet

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"  # of Z85


def mapped(name: str, kind: Any, number: int) -> dict[str, Any]:
    """A column whose name in files is ``col-NUMBER``."""
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def vector(rows: Sequence[int]) -> dict[str, Any]:
    """A deletion vector in the log."""
    parts = [(key, [row & 0xFFFF for row in own]) for key, own in groupby(sorted(rows), lambda row: row >> 16)]
    bitmap = struct.pack("<II", 12346, len(parts))
    bitmap += b"".join(struct.pack("<HH", key, len(own) - 1) for key, own in parts)
    start = len(bitmap) + 4 * len(parts)
    for _, own in parts:
        bitmap += struct.pack("<I", start)
        start += 2 * len(own)
    bitmap += b"".join(struct.pack(f"<{len(own)}H", *own) for _, own in parts)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    return {"storageType": "i", "pathOrInlineDv": _z85(data), "sizeInBytes": len(data), "cardinality": len(rows)}


def _z85(data: bytes) -> str:
    text = ""
    for (number,) in struct.iter_unpack(">I", data + bytes(-len(data) % 4)):
        text += "".join(_DIGITS[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def write_mapped(
    folder: Path,
    columns: Sequence[dict[str, Any]],
    files: Mapping[str, pa.Table],
    deleted: Mapping[str, Sequence[int]] | None = None,
    mode: str = "name",
    partitions: Mapping[str, dict[str, str]] | None = None,
) -> None:
    """Write version 0 of a table.

    Parameters
    ----------
    columns : see ``mapped``
    files : their content, by path
    deleted : rows that are deleted, by path
    mode : of the column mapping: none, name or id
    partitions : values by physical name, by path
    """
    features = ["deletionVectors", *(["columnMapping"] if mode != "none" else [])]
    names = [column["metadata"].get("delta.columnMapping.physicalName", column["name"]) for column in columns]
    keys = {key for own in (partitions or {}).values() for key in own}
    settings = {"delta.enableDeletionVectors": "true"}
    if mode != "none":
        settings |= {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "99"}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    actions: list[dict[str, Any]] = [
        {"protocol": protocol},
        {
            "metaData": {
                "id": "0",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": columns}),
                "partitionColumns": [
                    column["name"] for name, column in zip(names, columns, strict=True) if name in keys
                ],
                "configuration": settings,
                "createdTime": 1,
            }
        },
    ]
    for path, table in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        content = parquet(table)
        (folder / path).write_bytes(content)
        statistics = {"numRecords": len(table), "tightBounds": path not in (deleted or {})}
        added = {"path": path, "size": len(content), "modificationTime": 1, "dataChange": True}
        added |= {"partitionValues": (partitions or {}).get(path, {}), "stats": json.dumps(statistics)}
        if path in (deleted or {}):
            added["deletionVector"] = vector((deleted or {})[path])
        actions.append({"add": added})
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
