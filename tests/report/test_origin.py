"""Where a report says that its numbers come from."""

from pathlib import Path

import pytest
from reported_run import write_run

from opacc_ray.audit import steps
from opacc_ray.report.gather import gather
from opacc_ray.report.origin import origin_of


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
    steps.select(run, "srs", 10, {})
    rows = dict(origin_of(gather(run)[0]))
    assert {key: rows[key] for key in ("Model", "Weights") if key in rows} == found
