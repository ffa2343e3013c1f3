"""The policy in infra/ is all that an audit needs of S3, and no more: IAM, as moto plays it, decides each request."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import boto3
import pytest
from extracting_here import extracting_here
from infra_files import INFRA
from moto import settings
from moto.iam.access_control import S3IAMRequest
from safetensors.torch import save
from small_model import network
from small_pictures import picture

from opacc_ray.audit import accuracy, verbs
from opacc_ray.cli.main import main
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run

POLICY = json.loads((INFRA / "s3-policy.json").read_text())
ALLOWED = {(action, place) for item in POLICY["Statement"] for action in item["Action"] for place in item["Resource"]}
REGION = "us-east-1"


@pytest.fixture(scope="module")
def decided() -> Iterator[set[tuple[str, str]]]:
    """Every action that IAM has allowed since, and of what."""
    found: set[tuple[str, str]] = set()
    decide = S3IAMRequest.check_action_permitted

    def note(self: S3IAMRequest, resource: str) -> None:
        decide(self, resource)
        found.add((self._action, resource))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3IAMRequest, "check_action_permitted", note)
        yield found


@pytest.fixture(scope="module")
def account(moto_endpoint: str, decided: set[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """The environment of a user whose rights are the policy; buckets lake, audits and private are there."""
    root = {"endpoint_url": moto_endpoint, "region_name": REGION}
    root |= {"aws_access_key_id": "root", "aws_secret_access_key": "root"}
    iam: Any = boto3.client("iam", **root)
    s3: Any = boto3.client("s3", **root)
    for bucket in ("lake", "audits", "private"):
        s3.create_bucket(Bucket=bucket)
    for i in range(20):
        s3.put_object(Bucket="lake", Key=f"pool/{i:03d}.png", Body=picture(i))
    s3.put_object(Bucket="lake", Key="model.safetensors", Body=save(network().state_dict()))
    s3.put_object(Bucket="private", Key="diary", Body=b"")
    iam.create_user(UserName="auditor")
    iam.put_user_policy(UserName="auditor", PolicyName="audit", PolicyDocument=json.dumps(POLICY))
    key = iam.create_access_key(UserName="auditor")["AccessKey"]
    own = {"AWS_ENDPOINT_URL": moto_endpoint, "AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}
    own |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    own |= {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in own.items():
            patch.setenv(name, value)
        patch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)  # from now on, IAM decides
        yield own


@pytest.fixture(scope="module")
def audited(account: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A whole audit by that user: a run, labels, an estimate, a second round, a report."""
    folder = tmp_path_factory.mktemp("auditor")
    spec = {
        "name": "small",
        "pool": {"uri": "s3://lake/pool/", "format": "images"},
        "model": {"factory": "small_model:network", "weights": "s3://lake/model.safetensors"},
        "extract": {"shard_size": 10, "actors": 1},
        "sample": {"method": "srs", "budget": 8},
        "output": "s3://audits/weekly",
    }
    (folder / "spec.yaml").write_text(json.dumps(spec))
    command = ["run", str(folder / "spec.yaml"), "--json", "--exit-file", "s3://audits/exits/weekly.json"]
    with extracting_here(), redirect_stdout(io.StringIO()):
        assert main(["check", str(folder / "spec.yaml")]) == 0
    with extracting_here(), redirect_stdout(io.StringIO()) as said:
        assert main(command) == 0
    run = Run.open(json.loads(said.getvalue())["run"])
    label(run, 1)
    accuracy.estimate(run)
    verbs.next_round(run, 4)
    label(run, 2)
    accuracy.estimate(run)
    return run


def label(run: Run, number: int) -> None:
    rows = "".join(f"{name},0\n" for name in run.read_chosen(number).ids)
    import_labels(run, "labels.csv", f"id,label\n{rows}".encode())


@pytest.mark.slow
def test_an_audit_needs_all_of_it_and_nothing_else(audited: Run, decided: set[tuple[str, str]]) -> None:
    assert audited.read_estimate() is not None
    used = {(action, rights_of(place)) for action, place in decided}
    assert used <= ALLOWED
    unused = ALLOWED - used
    assert unused == {("s3:AbortMultipartUpload", "arn:aws:s3:::audits/*")}  # of a shard of more than 64 MiB that fails


def rights_of(place: str) -> str:
    """A bucket, or all that is in it."""
    bucket, slash, _ = place.partition("/")
    return f"{bucket}/*" if slash else bucket


@pytest.mark.parametrize(
    "act",
    [
        lambda: open_store("s3://lake").write("pool/000.png", b""),
        lambda: open_store("s3://lake").delete("pool/000.png"),
        lambda: open_store("s3://private").read("diary"),
        lambda: open_store("s3://private").list(),
    ],
    ids=["write to a pool", "delete of a pool", "read elsewhere", "list elsewhere"],
)
@pytest.mark.usefixtures("account")
def test_what_no_audit_needs_is_denied(act: Any) -> None:
    from opacc_ray.errors import StorageError

    with pytest.raises(StorageError, match="access is denied"):
        act()
