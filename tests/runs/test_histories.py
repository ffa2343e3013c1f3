"""What commands acknowledged is there, whoever else worked on the run and whoever was killed."""

from pathlib import Path

import boto3
import histories
import pytest
from logged import close

from opacc_ray.errors import LabelError
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.store_uris import join


@pytest.mark.parametrize("seed", range(8))
def test_nothing_that_was_acknowledged_is_lost(seed: int, tmp_path: Path) -> None:
    assert histories.check(str(tmp_path), seed)[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 202))
def test_nothing_that_was_acknowledged_is_lost_on_s3(
    seed: int, bucket: str, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto_endpoint)
    name = f"{bucket}-{seed}"
    boto3.client("s3", endpoint_url=moto_endpoint).create_bucket(Bucket=name.removeprefix("s3://"))
    assert histories.check(join(name, "audits"), seed)[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 302))
def test_nothing_that_was_acknowledged_is_lost_without_conditional_writes(seed: int, bucket: str) -> None:
    assert histories.check(join(bucket, "audits"), seed, people=1)[0] == []


def test_the_checker_finds_a_label_that_was_given_up(tmp_path: Path) -> None:
    run = histories.begin(str(tmp_path))
    ids = run.read_selection(1).ids
    import_labels(run, "p0-0.csv", f"id,label\n{ids[0]},cat\n".encode())
    close(run, 1, ids[:2])
    assert any("gives up 1 examples with a label" in text for text in histories.problems(run.uri, []))


def test_the_checker_finds_an_answer_that_is_not_in_the_log(tmp_path: Path) -> None:
    run = histories.begin(str(tmp_path))
    told = [histories.Done("close", [], LabelError("nothing was closed"), ["log/00000002.json"])]
    assert any("raised nothing was closed and wrote" in text for text in histories.problems(run.uri, told))
