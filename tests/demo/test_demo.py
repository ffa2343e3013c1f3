"""The whole product as a user first meets it, in a process of its own with its own S3 server and Ray."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_demo_covers_the_truth_by_three_methods(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "opacc_ray", "demo", "--json", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for stated in (result["estimate"], result["ces"], result["srs"]):
        assert stated["low"] < result["true_accuracy"] < stated["high"]
        assert stated["n"] == 100
    rounds = [(item["method"], item["budget"], item["labelled"]) for item in result["estimate"]["rounds"]]
    assert rounds == [("neyman", 40, 40), ("neyman", 60, 60)]
    assert (tmp_path / "s3" / "audits").is_dir()
    assert len(list(tmp_path.glob("labels-*.csv"))) == 2
    assert "extract: 12 of 12 shards" in done.stderr
