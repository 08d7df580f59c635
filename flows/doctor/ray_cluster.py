"""The check of `overnight doctor` on Ray, in a process of its own with a time limit.

`python -m overnight.flows.doctor.ray_cluster` connects as a run does, and prints the cluster's state as JSON.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from overnight.flows.doctor.environment import check_address
from overnight.flows.doctor.examine import Finding
from overnight.flows.job.model import Job
from overnight.tasks.errors import OvernightError
from overnight.tasks.infer.kinds import engines
from overnight.tasks.resources.node_types import addable_nodes
from overnight.tasks.resources.planner import make_plan

RAY_SECONDS = 60.0
NODE_SECONDS = 20.0
COMPARED = ("ray", "torch", "pyarrow", "transformers", "deltalake", "numpy")


def check_ray(job: Job | None = None) -> Iterator[Finding]:
    """Check the cluster at RAY_ADDRESS, or the Ray that would start on this machine, and that it can hold the job."""
    if problems := list(check_address()):
        yield from problems
        return
    address = os.environ.get("RAY_ADDRESS", "")
    name = f"the cluster at {address}" if address else "Ray in this process"
    command = [sys.executable, "-m", "overnight.flows.doctor.ray_cluster"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RAY_SECONDS)
    except subprocess.TimeoutExpired:
        sentence = f"{name} did not answer in {RAY_SECONDS:.0f} s"
        yield Finding("Ray", "wrong", sentence, "Run `ray status` on its head node, and check RAY_ADDRESS.")
        return
    lines = [line for line in process.stdout.splitlines() if line.startswith("{")]
    state: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": process.stderr.strip()[-500:]}
    if "error" in state:
        advice = "Check RAY_ADDRESS, RAY_AUTH_TOKEN and the versions." if address else "Read the message."
        yield Finding("Ray", "wrong", f"{name} cannot be used: {state['error']}", advice)
        return
    yield from judge(state, name)
    if job and state["total"].get("CPU"):
        yield judge_plan(job, state)


def judge_plan(job: Job, found: Mapping[str, Any]) -> Finding:
    """Return the finding whether the cluster, with the nodes that it may still start, can hold the job's models."""
    nodes = [node["resources"] for node in found["nodes"]]
    try:
        new = addable_nodes(found["groups"], job.cluster, nodes) if found["may_grow"] else []
        plan = make_plan(engines(job.models), nodes, new)
    except OvernightError as error:
        return Finding("plan", "wrong", str(error))
    pools = []
    for pool in plan.pools:
        least = f"{pool.initial:,} to " if pool.initial < pool.maximum else ""
        pools.append(f"{least}{pool.maximum:,} workers of {pool.label}")
    may_start = f" and {len(new):,} that it may still start" if new else ""
    return Finding("plan", "ok", f"{', '.join(pools) or 'no models'} fit on {len(nodes):,} nodes{may_start}")


def judge(found: dict[str, Any], where: str) -> Iterator[Finding]:
    """Yield findings about a Ray cluster: its size, silent nodes, differences of versions, and GPUs."""
    total, nodes = found["total"], found["nodes"]
    gpus = total.get("GPU", 0)
    memory = total.get("object_store_memory", 0) / 2**30
    size = f"{total.get('CPU', 0):g} CPUs, {gpus:g} GPUs, {memory:.1f} GiB of object store on {len(nodes)} nodes"
    if total.get("CPU"):
        yield Finding("Ray", "ok", f"{where} works, Ray {found['versions']['ray']}: {size}")
    else:
        yield Finding("Ray", "wrong", f"{where} has no CPU: {size}", "Start a Ray node with CPUs.")
    if silent := [node["host"] for node in nodes if node["versions"] is None]:
        sentence = f"no answer in {NODE_SECONDS:.0f} s from {', '.join(silent)}"
        yield Finding("Ray nodes", "warning", sentence, "Check the load and the logs of these nodes.")
    for node in nodes:
        differences = []
        for name, node_version in (node["versions"] or {}).items():
            own_version = found["versions"].get(name)
            if node_version != own_version:
                differences.append(f"{name} {node_version}, here {own_version}")
        if differences:
            sentence = f"{node['host']} has {'; '.join(differences)}"
            advice = "Install the same versions on all nodes: see deployments/docker."
            yield Finding("Ray nodes", "wrong", sentence, advice)
    if blind := [node["host"] for node in nodes if node["gpus"] and node["seen"] == 0]:
        sentence = f"Ray declares GPUs on {', '.join(blind)}, but PyTorch finds none there"
        yield Finding("GPU", "wrong", sentence, "Check the driver, and install PyTorch's build for that device.")
    elif gpus:
        yield Finding("GPU", "ok", f"PyTorch finds a GPU on each node with GPUs ({gpus:g} in total)")
    else:
        yield Finding("GPU", "ok", "none: models run on CPUs")


def look() -> dict[str, Any]:
    """Connect to Ray, and return its resources, its nodes, and the versions of packages here.

    A node that is silent for 20 s has no `versions`. `seen` are the GPUs that PyTorch finds; None: no GPU is free.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from overnight.flows.runs.local_ray import start_local_ray
    from overnight.tasks.resources.ray_internals import is_started_here, reported_node_groups

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        start_local_ray(include_dashboard=False, **options)
    else:
        ray.init(address, **options)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    questions: dict[str, Any] = {}
    for node in nodes:
        node_id = node["NodeID"]
        on_node = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False), "max_retries": 0}
        questions[f"{node_id} versions"] = ray.remote(versions).options(**on_node, num_cpus=0).remote(COMPARED)
        if _gpus(node):
            question = ray.remote(seen_gpus).options(**on_node, num_cpus=0, num_gpus=1)
            questions[f"{node_id} gpus"] = question.remote()
    ready, _ = ray.wait(list(questions.values()), num_returns=len(questions), timeout=NODE_SECONDS)
    answers = {name: ray.get(reference) for name, reference in questions.items() if reference in ready}
    descriptions = [
        {
            "host": node["NodeManagerHostname"],
            "resources": node["Resources"],
            "versions": answers.get(f"{node['NodeID']} versions"),
            "gpus": _gpus(node),
            "seen": answers.get(f"{node['NodeID']} gpus"),
        }
        for node in nodes
    ]
    return {
        "total": ray.cluster_resources(),
        "nodes": descriptions,
        "may_grow": not is_started_here(),
        "groups": reported_node_groups(),
        "versions": versions(COMPARED),
    }


def _gpus(node: dict[str, Any]) -> float:
    return float(node["Resources"].get("GPU", 0))


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the version of each of these packages that is installed, without a suffix of the build such as `+cpu`."""
    numbers = {}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            numbers[name] = version(name).partition("+")[0]
    return numbers


def seen_gpus() -> int:
    import torch

    return int(torch.accelerator.device_count())


if __name__ == "__main__":
    try:
        print(json.dumps(look()), flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {str(error).strip()[:500]}"}), flush=True)
