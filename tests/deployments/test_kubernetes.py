"""deployments/kubernetes/ against the schemas of Kubernetes and of KubeRay."""

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import ray
import yaml

from overnight.cli.main import main
from tests.deployments import kuberay

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deployments/kubernetes"
VERSION = "1.33"  # of Kubernetes
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
LISTED = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
JOB_FILES = [f"jobs/{file.name}" for file in sorted((FOLDER / "jobs").iterdir())]  # one for each run or job
ADDED = {name: yaml.safe_load((FOLDER / name / "kustomization.yaml").read_text()) for name in ("history", "redis")}
ADDED_FILES = [f"{name}/{file}" for name, added in ADDED.items() for file in added["resources"] if file != ".."]
OBJECTS: list[dict[str, Any]] = [
    found for name in (*LISTED, *JOB_FILES, *ADDED_FILES) for found in yaml.safe_load_all((FOLDER / name).read_text())
]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [found for found in OBJECTS if found["kind"] == kind]


def names(found: dict[str, Any]) -> str:
    return f"{found['kind']}/{found['metadata'].get('name') or found['metadata']['generateName']}"


def pod_templates(path: str, found: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every template of a pod anywhere below, with its path."""
    if isinstance(found, list):
        for number, item in enumerate(found):
            yield from pod_templates(f"{path}/{number}", item)
    elif isinstance(found, dict):
        if "containers" in found.get("spec", {}):
            yield path, found
        for key, value in found.items():
            yield from pod_templates(f"{path}/{key}", value)


[RAY_CLUSTER], [RAY_JOB], [RAY_CRON_JOB] = map(of_kind, ("RayCluster", "RayJob", "RayCronJob"))
[WORKER, HISTORY_SERVER], [REDIS], [CONFIG] = map(of_kind, ("Deployment", "StatefulSet", "ConfigMap"))
SPEC, JOB_CLUSTER = RAY_CLUSTER["spec"], RAY_JOB["spec"]["rayClusterSpec"]
GROUPS = {group["groupName"]: group for group in SPEC["workerGroupSpecs"]}
PODS = {
    **{"head": SPEC["headGroupSpec"]["template"]},
    **{name: group["template"] for name, group in GROUPS.items()},
    **{"job-head": JOB_CLUSTER["headGroupSpec"]["template"]},
    **{f"job-{group['groupName']}": group["template"] for group in JOB_CLUSTER["workerGroupSpecs"]},
}
CONTAINERS = [
    pytest.param(pod["spec"], container, id=f"{name}/{container['name']}")
    for name, pod in (PODS | {"prefect-worker": WORKER["spec"]["template"]}).items()
    for container in pod["spec"]["containers"]
]
# Of every object that has pods, also of kinds and files that are added later.
EVERY_POD = {name: pod for found in OBJECTS for name, pod in pod_templates(names(found), found)}
UNPRIVILEGED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
KEEP_ALIVE = ("RAY_grpc_client_keepalive_time_ms", "RAY_grpc_client_keepalive_timeout_ms")


def validate(found: dict[str, Any]) -> None:
    kubernetes_validate.validate(found, VERSION, strict=True)


def as_pod(template: dict[str, Any]) -> dict[str, Any]:
    """A PodTemplate object that holds the template of a pod."""
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}


def container_of(found: dict[str, Any]) -> dict[str, Any]:
    """The one container of an object's pods."""
    [container] = found["spec"]["template"]["spec"]["containers"]
    return dict(container)


def patch(file: str, of: dict[str, Any]) -> dict[str, Any]:
    """The spec of a patch, which is one of this object."""
    found = yaml.safe_load((FOLDER / file).read_text())
    assert names(found) == names(of)
    return dict(found["spec"])


def test_every_file_of_objects_is_listed() -> None:
    others = {"kustomization.yaml", "image-paths.yaml", "jobs", *ADDED}
    assert {file.name for file in FOLDER.iterdir()} == {*LISTED, *others}
    for name, added in ADDED.items():
        patches = [patch["path"] for patch in added["patches"]]
        listed = {"kustomization.yaml", *added["resources"], *patches} - {".."}
        assert {file.name for file in (FOLDER / name).iterdir()} == listed


@pytest.mark.parametrize("found", OBJECTS, ids=names)
def test_an_object_is_valid_and_holds_no_secret(found: dict[str, Any]) -> None:
    if found["apiVersion"] == "ray.io/v1":
        kuberay.validate(found["kind"], found["spec"])
    else:
        validate(found)
    assert found["kind"] != "Secret"
    for variable in variables(found):
        if any(word in variable["name"] for word in ("KEY", "TOKEN", "PASSWORD", "SECRET")):
            assert "value" not in variable
            assert variable["valueFrom"].keys() == {"secretKeyRef"}


def variables(found: Any) -> list[dict[str, Any]]:
    """All environment variables anywhere below."""
    if isinstance(found, list):
        return [variable for item in found for variable in variables(item)]
    if isinstance(found, dict):
        return [*found.get("env", []), *(variable for value in found.values() for variable in variables(value))]
    return []


@pytest.mark.parametrize("name", PODS)
def test_a_pod_of_the_ray_cluster_is_valid(name: str) -> None:
    validate(as_pod(PODS[name]))


def test_the_validators_see_a_wrong_key() -> None:
    wrong = copy.deepcopy(PODS["gpu"])
    wrong["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenessprobe"):
        validate(as_pod(wrong))
    wrong = copy.deepcopy(RAY_CRON_JOB["spec"])
    wrong["jobTemplate"]["rayClusterSpec"]["workerGroupSpecs"][0]["minReplica"] = 1
    with pytest.raises(jsonschema.ValidationError, match="minReplica"):
        kuberay.validate("RayCronJob", wrong)


def test_the_cluster_with_collectors_is_valid_and_the_server_reads_their_bucket() -> None:
    changed = patch("history/collector.yaml", RAY_CLUSTER)
    kuberay.validate("RayCluster", SPEC | changed)
    assert changed["historyServerOptions"]["collectorOptions"]["env"] == container_of(HISTORY_SERVER)["env"]


def test_the_cluster_in_redis_is_valid_and_has_the_address_and_the_password_of_that_redis() -> None:
    changed, server = patch("redis/ray-cluster.yaml", RAY_CLUSTER), container_of(REDIS)
    kuberay.validate("RayCluster", SPEC | changed)
    options = changed["gcsFaultToleranceOptions"]
    [service] = [found for found in OBJECTS if names(found) == "Service/redis"]
    [policy] = [found for found in OBJECTS if names(found) == "NetworkPolicy/redis"]
    assert options["redisAddress"] == f"redis:{service['spec']['ports'][0]['port']}"
    assert options["redisPassword"]["valueFrom"] == server["env"][0]["valueFrom"]
    assert server["image"] == COMPOSE["redis"]["image"]
    labels = REDIS["spec"]["template"]["metadata"]["labels"]
    for chosen in (service["spec"]["selector"], policy["spec"]["podSelector"]["matchLabels"]):
        assert chosen.items() <= labels.items()


def test_the_worker_waits_as_long_for_a_head_as_the_operator_s_nodes() -> None:
    [container] = patch("redis/prefect-worker.yaml", WORKER)["template"]["spec"]["containers"]
    assert container["name"] == container_of(WORKER)["name"]
    [variable] = container["env"]
    raylet = Path(ray.__file__).parent / "core/src/ray/raylet/raylet"
    assert variable["name"].removeprefix("RAY_").encode() in raylet.read_bytes()  # Python has no way to ask for it
    assert variable["value"] == "600"


@pytest.mark.parametrize("spec", [SPEC, JOB_CLUSTER], ids=["overnight-ray", "job"])
def test_a_cluster_has_the_ray_of_the_image_and_sizes_and_parameters_that_the_operator_takes(
    spec: dict[str, Any],
) -> None:
    assert f"\nray=={spec['rayVersion']} \\\n" in (ROOT / "constraints.txt").read_text()
    for group in spec["workerGroupSpecs"]:
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_a_job_runs_a_command_that_overnight_reads_and_the_nightly_job_is_the_same_for_the_day_before() -> None:
    nightly, once = RAY_CRON_JOB["spec"]["jobTemplate"], RAY_JOB["spec"]
    assert nightly | {"entrypoint": f"{nightly['entrypoint']} --partition 2026-11-19"} == once
    program, command, path, *options = once["entrypoint"].split()
    assert program == "overnight"
    file = ROOT / path.removeprefix("/app/")  # the folder of the image
    assert main.commands[command].make_context(command, [str(file), *options]).params["partition"] == "2026-11-19"


def test_a_job_needs_no_prefect_server_of_others_and_a_cluster_that_fails_is_replaced() -> None:
    [head] = JOB_CLUSTER["headGroupSpec"]["template"]["spec"]["containers"]
    assert {"name": "PREFECT_API_URL", "value": ""} in head["env"]
    assert RAY_JOB["spec"]["shutdownAfterJobFinishes"] is True
    assert RAY_JOB["spec"]["backoffLimit"] > 0
    assert "nodeSelector" not in JOB_CLUSTER["headGroupSpec"]["template"]["spec"]  # not on a spot node


@pytest.mark.parametrize("name", [name for name in PODS if name.endswith("-spot")])
def test_a_spot_node_drains_before_kubernetes_kills_it(name: str) -> None:
    """Ray drains for so long on SIGTERM, then kills its processes, which may take some seconds."""
    pod = PODS[name]["spec"]
    environment = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
    drain = float(environment["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] or 0)
    assert 0 < drain <= pod["terminationGracePeriodSeconds"] - 15
    assert pod["terminationGracePeriodSeconds"] < 120  # Amazon's notice


def test_ray_reads_its_settings_under_these_names() -> None:
    """A name that Ray does not know is ignored without a word."""
    program = "from ray._private import ray_constants as found; print(found.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S)\n"
    program += "from ray._raylet import Config\n"
    program += "".join(f"print(Config.{name.removeprefix('RAY_')}())\n" for name in KEEP_ALIVE)
    environment = os.environ | {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "61"} | dict.fromkeys(KEEP_ALIVE, "61234")
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["61.0", "61234", "61234"]


def test_the_head_does_no_work_and_gpu_nodes_come_only_when_they_are_needed() -> None:
    assert SPEC["enableInTreeAutoscaling"] is True
    assert SPEC["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert GROUPS["gpu"]["minReplicas"] == GROUPS["gpu"]["replicas"] == 0
    [container] = GROUPS["gpu"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_worker_joins_the_cluster_with_its_token() -> None:
    environment = {variable["name"]: variable for variable in container_of(WORKER)["env"]}
    name = RAY_CLUSTER["metadata"]["name"]
    assert environment["RAY_ADDRESS"]["value"] == f"{name}-head-svc:6379"
    assert environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": name, "key": "auth_token"}


@pytest.mark.parametrize(("pod", "container"), CONTAINERS)
def test_a_container_has_the_prefect_password_the_image_and_its_needs(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    assert {"configMapRef": {"name": CONFIG["metadata"]["name"]}} in container["envFrom"]
    assert {"secretRef": {"name": "overnight-prefect", "optional": True}} in container["envFrom"]
    assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    assert container.keys() >= {"startupProbe", "livenessProbe"}
    assert container["image"] == container_of(WORKER)["image"]


def test_every_kind_of_pod_is_looked_at() -> None:
    assert len(EVERY_POD) == len(PODS) + 5  # those of the nightly job, the worker, Redis and the History Server


@pytest.mark.parametrize("name", EVERY_POD)
def test_a_pod_has_no_rights_that_it_does_not_need(name: str) -> None:
    pod = EVERY_POD[name]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod.get("initContainers", []), *pod["containers"]):
        assert container["securityContext"] == UNPRIVILEGED
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes_of(pod)
    if not pod.get("serviceAccountName"):  # the History Server reads objects of Kubernetes
        assert pod["automountServiceAccountToken"] is False


def volumes_of(pod: dict[str, Any]) -> set[str]:
    """The names of a pod's volumes, and of those that a StatefulSet makes for it."""
    return {volume["name"] for volume in pod.get("volumes", [])} | {"data"}


def test_a_ray_node_writes_where_it_does_in_the_compose_file_and_only_the_autoscaler_has_a_token() -> None:
    needed = set(COMPOSE["ray-worker"]["volumes"]) - {"data:/data"}
    for name, pod in PODS.items():
        [container] = pod["spec"]["containers"]
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == needed, name
    for spec in (SPEC, JOB_CLUSTER, RAY_CRON_JOB["spec"]["jobTemplate"]["rayClusterSpec"]):
        options, head = spec["autoscalerOptions"], spec["headGroupSpec"]["template"]["spec"]
        assert options["securityContext"] == UNPRIVILEGED
        mounts = {mount["mountPath"]: mount["name"] for mount in options["volumeMounts"]}
        assert needed < mounts.keys()
        token = mounts["/var/run/secrets/kubernetes.io/serviceaccount"]  # where clients of Kubernetes look
        [volume] = [volume for volume in head["volumes"] if volume["name"] == token]
        files = {path for source in volume["projected"]["sources"] for path in projected(source)}
        assert files == {"token", "ca.crt", "namespace"}


def projected(source: dict[str, Any]) -> list[str]:
    """The files of one source of a projected volume."""
    [content] = source.values()
    return [item["path"] for item in content.get("items", [content])]


def test_a_pod_takes_no_connection_that_no_policy_names() -> None:
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in of_kind("NetworkPolicy")}
    assert policies.pop("nothing-by-default") == {"podSelector": {}, "policyTypes": ["Ingress"]}
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}}
    outside = {"monitoring": [8080, 8090], "operator": [8265]}
    for spec in policies.values():
        assert spec["podSelector"]  # it opens ports of some pods, never of all
        for rule in spec["ingress"]:
            assert rule["from"]
            for peer in rule["from"]:
                assert "ipBlock" not in peer
                if "namespaceSelector" in peer:
                    kind = "operator" if peer == operator else "monitoring"
                    assert [port["port"] for port in rule["ports"]] == outside[kind]
                else:
                    assert peer["podSelector"]["matchLabels"]
    cluster, worker = {"ray.io/cluster": RAY_CLUSTER["metadata"]["name"]}, {"app.kubernetes.io/name": "prefect-worker"}
    for name, labels in (("ray-cluster", cluster), ("prefect-worker", worker)):
        [rule] = policies[name]["ingress"]
        assert policies[name]["podSelector"] == {"matchLabels": labels}
        assert [peer["podSelector"]["matchLabels"] for peer in rule["from"]] == [cluster, worker]
    job = policies["job-clusters"]["podSelector"]["matchLabels"]
    assert all(job.items() <= pod["metadata"]["labels"].items() for name, pod in PODS.items() if name.startswith("job"))


def test_a_silent_node_is_given_up_as_in_the_compose_file_with_no_more_pings_than_ray_takes() -> None:
    nodes = [COMPOSE[name] for name in ("ray-head", "ray-worker", "ray-gpu-worker", "prefect-worker")]
    for name in KEEP_ALIVE:
        assert {node["environment"][name] for node in nodes} == {CONFIG["data"][name]}
    assert int(CONFIG["data"][KEEP_ALIVE[0]]) >= 60_000  # a Ray that is not told of them takes no more


@pytest.mark.parametrize("budget", of_kind("PodDisruptionBudget"), ids=names)
def test_a_disruption_budget_is_for_pods_that_are_there(budget: dict[str, Any]) -> None:
    ray = {"ray.io/cluster": RAY_CLUSTER["metadata"]["name"]}  # the operator's labels
    pods = [WORKER["spec"]["template"]["metadata"]["labels"]]
    pods += [ray | {"ray.io/node-type": kind} for kind in ("head", "worker")]
    pods += [PODS["job-head"]["metadata"]["labels"] | {"ray.io/node-type": "head"}]
    chosen = budget["spec"]["selector"]["matchLabels"].items()
    assert any(chosen <= labels.items() for labels in pods)
