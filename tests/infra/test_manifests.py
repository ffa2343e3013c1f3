"""Clusters and schedules in infra/ are what Kubernetes, KubeRay and Ray take, and their command lines exist."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import ray.autoscaler
from infra_files import INFRA, check_call, commands, comments, documents

from opacc_ray.cli.main import application
from opacc_ray.extensions.fleet.fleet_spec import parse_fleet
from opacc_ray.spec import parse_spec

FILES = ["vms.yaml", *(str(path.relative_to(INFRA)) for path in sorted(INFRA.glob("kubernetes/*/*.yaml")))]
BASE, RAY, LABEL = "kubernetes/base", "kubernetes/ray", "kubernetes/label"


def ray_job() -> dict[str, Any]:
    """What describes a RayJob, of which its schedule has a copy."""
    [job] = documents(f"{RAY}/rayjob.yaml")
    spec: dict[str, Any] = job["spec"]
    return spec


def ray_pods() -> list[dict[str, Any]]:
    """Specs of the head, the workers and the submitter as KubeRay makes them, with the containers that it adds."""
    job, limits = ray_job(), {"limits": {"memory": "512Mi"}}
    cluster = job["rayClusterSpec"]
    head, *others = (group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]))
    if cluster["enableInTreeAutoscaling"]:
        added = {"name": "autoscaler", "image": head["containers"][0]["image"], "resources": limits}
        head["containers"].append(added | cluster.get("autoscalerOptions", {}))
    for spec in others:
        own = {key: spec["containers"][0][key] for key in ("image", "securityContext")}
        spec["initContainers"] = [own | {"name": "wait-gcs-ready", "resources": limits}]
    bare = {"containers": [{"name": "ray-job-submitter", "image": "opacc", "resources": limits}]}
    return [head, *others, job.get("submitterPodTemplate", {}).get("spec", bare)]


def pods() -> list[dict[str, Any]]:
    """Specs of all pods."""
    return [
        *ray_pods(),
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


def test_pods_fit_the_schema_and_are_admitted_where_restricted_is_enforced() -> None:
    for spec in pods():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        kubernetes_validate.validate(pod, "1.33", strict=True)
        own = spec["securityContext"]
        assert own == {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
        assert spec.keys().isdisjoint({"hostNetwork", "hostPID", "hostIPC", "hostUsers"})
        assert {kind for volume in spec.get("volumes", ()) for kind in volume} <= {"name", "configMap", "emptyDir"}
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not any("hostPort" in port for port in container.get("ports", ()))
            assert container["resources"]["limits"]["memory"]


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


def test_spec_and_image_are_current() -> None:
    assert parse_spec(documents(f"{RAY}/spec.yaml")[0], "spec").name == "digits-weekly"
    assert parse_fleet(documents(f"{BASE}/digits-fleet.yaml")[0], "fleet").spec.name == "digits"
    images = {item["image"] for spec in pods() for item in spec["containers"] if item["name"] != "sign-in"}
    assert images == {"opacc"}
    versions = (INFRA / "constraints.txt").read_text()
    assert f"ray=={ray_job()['rayClusterSpec']['rayVersion']}" in versions.splitlines()
