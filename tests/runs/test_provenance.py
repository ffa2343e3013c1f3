"""What a run's header says of where it comes from."""

from pathlib import Path

import pyarrow as pa
from tables import parquet

from opacc_ray.audit import verbs
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


def test_what_lies_beside_the_pool_is_named_in_the_header(tmp_path: Path) -> None:
    pool = open_store(str(tmp_path / "pool"))
    pool.write("rows.parquet", parquet(pa.table({"prediction": [0, 1, 0], "confidence": [0.9, 0.8, 0.7]})))
    for name in ("README.md", "notes.md", "truth.csv"):
        pool.write(name, b"x")
    columns = {"prediction": "prediction", "confidence": "confidence"}
    content = {
        "name": "beside",
        "pool": {"uri": str(tmp_path / "pool"), "format": "features", "columns": columns},
        "sample": {"method": "srs", "budget": 2},
        "output": str(tmp_path / "audits"),
    }
    run = verbs.first_round(parse_spec(content, "spec"))
    found = {item.kind: (item.num_files, item.first) for item in Run.open(run.uri).header.pool.ignored}
    assert found == {".md": (2, ["README.md", "notes.md"]), "CSV or JSON lines": (1, ["truth.csv"])}
