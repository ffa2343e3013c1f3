"""Where a report says that its numbers come from."""

from pathlib import Path

import pytest
from reported_run import write_run

from opacc_ray.audit import verbs
from opacc_ray.report.page import origin_of
from opacc_ray.report.run_report import gather


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ({"factory": "user:network"}, {"Model": "user:network", "Weights": "made by the factory"}),
        ({"function": "user:predict"}, {"Model": "user:predict"}),
        ({"program": "s3://models/net.pt2", "trust": True}, {"Model": "s3://models/net.pt2"}),
    ],
)
def test_the_model_is_named_however_it_was_brought(
    model: dict[str, str], found: dict[str, str], tmp_path: Path
) -> None:
    run = write_run(tmp_path, model=model)
    verbs.select(run, "srs", 10, {})
    rows = dict(origin_of(gather(run)[0]))
    assert {key: rows[key] for key in ("Model", "Weights") if key in rows} == found


def test_the_filter_of_the_pool_is_named(tmp_path: Path) -> None:
    table = {"uri": "nowhere", "format": "parquet", "columns": {"image": "png"}, "filter": "split = 'test'"}
    run = write_run(tmp_path, pool=table)
    verbs.select(run, "srs", 10, {})
    assert dict(origin_of(gather(run)[0]))["Filter"] == "split = 'test'"
