"""Clusters and schedules in infra/ are what Kubernetes, KubeRay and Ray take, and their command lines exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import ray.autoscaler
import yaml
from infra_files import INFRA, check_call, commands, comments, documents

import opacc_ray
from opacc_ray.cli.main import application
from opacc_ray.fleet.fleet_spec import parse_fleet
from opacc_ray.spec import parse_spec

FILES = ["vms.yaml", *(str(path.relative_to(INFRA)) for path in sorted(INFRA.glob("kubernetes/*/*.yaml")))]
BASE, RAY, LABEL = "kubernetes/base", "kubernetes/ray", "kubernetes/label"

# What KubeRay v1.7.0 takes, as far as these files have use for it: the keys of ray-operator/config/crd/bases/
# ray.io_rayjobs.yaml and ray.io_raycronjobs.yaml, and what controllers/ray/utils/validation.go asks of their values.
JOB_KEYS = {
    "entrypoint": str,
    "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": int,
    "activeDeadlineSeconds": int,
    "backoffLimit": int,
    "submissionMode": str,
    "rayClusterSpec": dict,
}
CLUSTER_KEYS = {
    "rayVersion": str,
    "authOptions": dict,
    "enableInTreeAutoscaling": bool,
    "headGroupSpec": dict,
    "workerGroupSpecs": list,
}
GROUP_KEYS = {
    "groupName": str,
    "replicas": int,
    "minReplicas": int,
    "maxReplicas": int,
    "rayStartParams": dict,
    "template": dict,
}
GROUP_NEEDS = {"groupName", "minReplicas", "maxReplicas", "template"}
SCHEDULE_KEYS = {"schedule": str, "timeZone": str, "jobTemplate": dict}  # timeZone is new in v1.7.0
SUBMISSION_MODES = {"K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"}
LONGEST_NAMES = {"RayJob": 47, "RayCronJob": 36}
TOKENS_SINCE = (2, 52)  # the first version of Ray for which KubeRay takes authOptions.mode: token


def ray_job() -> dict[str, Any]:
    """What describes a RayJob, of which its schedule has a copy."""
    [job] = documents(f"{RAY}/rayjob.yaml")
    spec: dict[str, Any] = job["spec"]
    return spec


def check_keys(content: dict[str, Any], known: dict[str, type]) -> None:
    assert {key: type(value) for key, value in content.items() if type(value) is not known.get(key)} == {}


def pods() -> list[dict[str, Any]]:
    """Specs of all pods."""
    cluster = ray_job()["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [
        *(group["template"]["spec"] for group in groups),
        *(item["spec"]["jobTemplate"]["spec"]["template"]["spec"] for item in schedules()),
        documents(f"{BASE}/metrics.yaml")[0]["spec"]["template"]["spec"],
        documents(f"{LABEL}/page.yaml")[0]["spec"]["template"]["spec"],
    ]


def schedules() -> list[dict[str, Any]]:
    return [*documents(f"{RAY}/cronjob.yaml"), *documents(f"{BASE}/fleet.yaml")]


def test_cluster_of_machines_fits_rays_schema() -> None:
    schema = json.loads(Path(ray.autoscaler.__file__).with_name("ray-schema.json").read_text())
    [cluster] = documents("vms.yaml")
    jsonschema.validate(cluster, schema)
    assert cluster["head_node_type"] in cluster["available_node_types"]


@pytest.mark.parametrize(
    "name", [f"{RAY}/cronjob", f"{BASE}/fleet", f"{BASE}/account", f"{BASE}/metrics", f"{LABEL}/page"]
)
def test_objects_of_kubernetes_fit_its_schemas(name: str) -> None:
    for item in documents(f"{name}.yaml"):
        if "monitoring.coreos.com" not in item["apiVersion"]:
            kubernetes_validate.validate(item, "1.33", strict=True)


def test_the_monitor_finds_the_port_of_the_metrics() -> None:
    deployment, service, monitor = documents(f"{BASE}/metrics.yaml")
    [port] = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--serve") + 1] == str(port["containerPort"])
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted == service["metadata"]["labels"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == wanted
    [endpoint] = monitor["spec"]["endpoints"]
    assert (endpoint["port"], service["spec"]["ports"][0]["targetPort"]) == (
        service["spec"]["ports"][0]["name"],
        port["name"],
    )


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kustomize_joins_the_files() -> None:
    asked = ["kubectl", "kustomize", str(INFRA / RAY)]
    made = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    found = {(item["kind"], item["metadata"]["name"].rpartition("-")[0]): item for item in yaml.safe_load_all(made)}
    job, schedule = found["RayJob", "digits"], found["RayCronJob", "digits"]
    assert schedule["spec"]["jobTemplate"] == job["spec"]
    configs = re.findall(r"configMap:\s+name: (\S+)", made)
    assert set(configs) == {item["metadata"]["name"] for item in found.values() if item["kind"] == "ConfigMap"}
    assert set(re.findall(r"image: (\S+)", made)) == {f"registry.example.com/opacc:{opacc_ray.__version__}"}


def test_pods_fit_the_schema_and_have_no_rights() -> None:
    for spec in pods():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        kubernetes_validate.validate(pod, "1.33", strict=True)
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]


def test_ray_jobs_have_keys_that_kuberay_knows() -> None:
    job = ray_job()
    check_keys(job, JOB_KEYS)
    cluster = job["rayClusterSpec"]
    check_keys(cluster, CLUSTER_KEYS)
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        check_keys(group, GROUP_KEYS)
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    assert cluster["authOptions"] == {"mode": "token"}
    [schedule] = documents(f"{RAY}/raycronjob.yaml")
    check_keys(schedule["spec"], SCHEDULE_KEYS)


def test_ray_jobs_have_values_that_kuberay_takes() -> None:
    job = ray_job()
    cluster = job["rayClusterSpec"]
    assert job["submissionMode"] in SUBMISSION_MODES
    assert tuple(map(int, cluster["rayVersion"].split(".")[:2])) >= TOKENS_SINCE
    for group in cluster["workerGroupSpecs"]:
        assert set(group) >= GROUP_NEEDS
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for name in ("rayjob", "raycronjob"):
        [item] = documents(f"{RAY}/{name}.yaml")
        assert item["apiVersion"] == "ray.io/v1"
        assert len(item["metadata"]["name"]) <= LONGEST_NAMES[item["kind"]]


def test_schedule_forbids_overlap() -> None:
    assert {item["spec"]["concurrencyPolicy"] for item in schedules()} == {"Forbid"}


@pytest.mark.filterwarnings("ignore:Using extra keyword arguments")  # Ray Serve's, which Ray's commands import
@pytest.mark.parametrize("name", FILES)
def test_command_lines_are_those_of_the_programs(name: str) -> None:
    from ray.scripts.scripts import cli

    for program, group in (("opacc", application), ("ray", cli)):
        for arguments in calls(name, program):
            check_call(group, arguments)


def calls(name: str, program: str) -> list[list[str]]:
    return commands([*documents(name), comments(name)], program)


def test_nobody_gets_past_the_proxy_of_the_page() -> None:
    pod, service, ingress = documents(f"{LABEL}/page.yaml")
    page, proxy = pod["spec"]["template"]["spec"]["containers"]
    assert "--host" not in page["args"][0]  # it listens to its pod alone
    assert "ports" not in page
    assert "--upstream=http://127.0.0.1:8765/" in proxy["args"]
    assert "--pass-user-headers=true" in proxy["args"]  # X-Forwarded-Email, which the client cannot set
    assert "--user-header X-Forwarded-Email" in page["args"][0]
    [path] = ingress["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    assert service["spec"]["ports"][0]["targetPort"] == proxy["ports"][0]["name"]
    assert service["spec"]["selector"] == pod["spec"]["template"]["metadata"]["labels"]
    assert pod["spec"]["replicas"] == 1


def test_commands_were_found() -> None:
    found = [call for name in FILES for call in calls(name, "opacc|ray")]
    assert {call[0] for call in found} >= {
        "run",
        "submit",
        "fleet",
        "label",
        "start",
        "up",
        "dashboard",
        "get-auth-token",
    }


def test_spec_and_image_are_current() -> None:
    assert parse_spec(documents(f"{RAY}/spec.yaml")[0], "spec").name == "digits-weekly"
    assert parse_fleet(documents(f"{BASE}/digits-fleet.yaml")[0], "fleet").spec.name == "digits"
    images = {item["image"] for spec in pods() for item in spec["containers"] if item["name"] != "sign-in"}
    assert images == {"opacc"}
    versions = (INFRA / "constraints.txt").read_text()
    assert f"ray=={ray_job()['rayClusterSpec']['rayVersion']}" in versions.splitlines()
