"""The demo in its own process, with its own Ray, on a folder and on a local S3 server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--s3"]], ids=["folder", "s3"])
def test_demo_covers_the_truth_by_three_methods(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "opacc_ray", "demo", "--json", "--folder", str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for stated in (result["estimate"], result["ces"], result["srs"]):
        assert stated["low"] < result["true_accuracy"] < stated["high"]
        assert stated["n"] == 100
    rounds = [(item["method"], item["budget"], item["labelled"]) for item in result["estimate"]["rounds"]]
    assert rounds == [("neyman", 40, 40), ("neyman", 60, 60)]
    assert (tmp_path / ("s3/audits" if options else "audits")).is_dir()
    assert len(list(tmp_path.glob("labels-*.csv"))) == 2
    assert "extract: 6 of 6 shards" in done.stderr
    assert "data:image/" in Path(result["report"]).read_text()
