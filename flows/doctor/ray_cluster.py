"""The check of `overnight doctor` on Ray, in a process of its own with a time limit.

`python -m overnight.flows.doctor.ray_cluster` connects as a run does, and prints the cluster's state as JSON.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from overnight.flows.doctor.environment import check_address
from overnight.flows.doctor.examine import Finding
from overnight.flows.job.model import Job
from overnight.tasks.errors import OvernightError
from overnight.tasks.resources.node_types import to_come
from overnight.tasks.resources.planner import make_plan

RAY_SECONDS = 60.0
NODE_SECONDS = 20.0
COMPARED = ("ray", "torch", "pyarrow", "transformers", "deltalake", "numpy")


def check_ray(job: Job | None = None) -> Iterator[Finding]:
    """Check the cluster at RAY_ADDRESS, or the Ray that would start on this machine, and that it can hold the job."""
    if refused := list(check_address()):
        yield from refused
        return
    address = os.environ.get("RAY_ADDRESS", "")
    where = f"the cluster at {address}" if address else "Ray in this process"
    command = [sys.executable, "-m", "overnight.flows.doctor.ray_cluster"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RAY_SECONDS)
    except subprocess.TimeoutExpired:
        told = f"{where} did not answer in {RAY_SECONDS:.0f} s"
        yield Finding("Ray", "wrong", told, "Run `ray status` on its head node, and check RAY_ADDRESS.")
        return
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": done.stderr.strip()[-500:]}
    if "error" in found:
        advice = "Check RAY_ADDRESS, RAY_AUTH_TOKEN and the versions." if address else "Read the message."
        yield Finding("Ray", "wrong", f"{where} cannot be used: {found['error']}", advice)
        return
    yield from judge(found, where)
    if job and found["total"].get("CPU"):
        yield judge_plan(job, found)


def judge_plan(job: Job, found: Mapping[str, Any]) -> Finding:
    """Return the finding whether the cluster, with the nodes that it may still start, can hold the job's models.

    `found` is the description of the cluster that `look` returns.
    """
    nodes = [node["resources"] for node in found["nodes"]]
    try:
        new = to_come(found["groups"], job.cluster, nodes) if found["may_grow"] else []
        plan = make_plan(job.models, nodes, new)
    except OvernightError as error:
        return Finding("plan", "wrong", str(error))
    pools = [
        f"{pool.initial:,} to {pool.maximum:,} workers of {pool.label}"
        if pool.initial < pool.maximum
        else f"{pool.maximum:,} workers of {pool.label}"
        for pool in plan.pools
    ]
    may_start = f" and {len(new):,} that it may still start" if new else ""
    return Finding("plan", "ok", f"{', '.join(pools) or 'no models'} fit on {len(nodes):,} nodes{may_start}")


def judge(found: dict[str, Any], where: str) -> Iterator[Finding]:
    """Yield findings about a Ray cluster: its size, silent nodes, differences of versions, and GPUs.

    `found` is the description of the cluster that `look` returns. `where` names the cluster in messages.
    """
    total = found["total"]
    size = f"{total.get('CPU', 0):g} CPUs, {total.get('GPU', 0):g} GPUs, "
    size += f"{total.get('object_store_memory', 0) / 2**30:.1f} GiB of object store on {len(found['nodes'])} nodes"
    if total.get("CPU"):
        yield Finding("Ray", "ok", f"{where} works, Ray {found['versions']['ray']}: {size}")
    else:
        yield Finding("Ray", "wrong", f"{where} has no CPU: {size}", "Start a Ray node with CPUs.")
    silent = [node["host"] for node in found["nodes"] if node["versions"] is None]
    if silent:
        told = f"no answer in {NODE_SECONDS:.0f} s from {', '.join(silent)}"
        yield Finding("Ray nodes", "warning", told, "Check the load and the logs of these nodes.")
    for node in found["nodes"]:
        differ = [
            f"{name} {there}, here {found['versions'].get(name)}"
            for name, there in (node["versions"] or {}).items()
            if there != found["versions"].get(name)
        ]
        if differ:
            told = f"{node['host']} has {'; '.join(differ)}"
            yield Finding("Ray nodes", "wrong", told, "Install the same versions on all nodes: see deployments/docker.")
    declared = total.get("GPU", 0)
    blind = [node["host"] for node in found["nodes"] if node["gpus"] and node["seen"] == 0]
    if blind:
        told = f"Ray declares GPUs on {', '.join(blind)}, but PyTorch finds none there"
        yield Finding("GPU", "wrong", told, "Check the driver, and install PyTorch's build for that device.")
    elif declared:
        yield Finding("GPU", "ok", f"PyTorch finds a GPU on each node with GPUs ({declared:g} in total)")
    else:
        yield Finding("GPU", "ok", "none: models run on CPUs")


def look() -> dict[str, Any]:
    """Connect to Ray. Return its resources as `total`, its `nodes`, and the package `versions` of this machine.

    `may_grow` is False for a Ray that starts here. `groups` are the groups of nodes that the autoscaler reports: the
    resources of a node, and the most nodes. A node has `host`, `resources`, `versions`, its number of `gpus`, and
    `seen`, the number of GPUs that PyTorch finds there. `versions` is None if the node does not answer in 20 s. `seen`
    is None without a GPU, and if all GPUs are in use.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from overnight.tasks.resources.ray_internals import is_started_here, reported_node_groups

    address = os.environ.get("RAY_ADDRESS") or "local"
    if address == "local" and "RAY_AUTH_MODE" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    ray.init(address, log_to_driver=False, logging_level="ERROR", **options)
    nodes = [node for node in ray.nodes() if node["Alive"]]

    def ask(node: dict[str, Any], function: Any, **arguments: Any) -> Any:
        here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        remote = ray.remote(function).options(scheduling_strategy=here, max_retries=0, **arguments)
        return remote.remote(COMPARED) if function is versions else remote.remote()

    asked = [
        (ask(node, versions, num_cpus=0), _gpus(node) and ask(node, seen_gpus, num_cpus=0, num_gpus=1))
        for node in nodes
    ]
    waiting = [reference for pair in asked for reference in pair if reference]
    ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=NODE_SECONDS)
    told = [
        {
            "host": node["NodeManagerHostname"],
            "resources": node["Resources"],
            "versions": ray.get(known) if known in ready else None,
            "gpus": _gpus(node),
            "seen": ray.get(seen) if seen and seen in ready else None,  # None: all GPUs are in use
        }
        for node, (known, seen) in zip(nodes, asked, strict=True)
    ]
    return {
        "total": ray.cluster_resources(),
        "nodes": told,
        "may_grow": not is_started_here(),
        "groups": reported_node_groups(),
        "versions": versions(COMPARED),
    }


def _gpus(node: dict[str, Any]) -> float:
    return float(node["Resources"].get("GPU", 0))


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the version of each of these packages that is installed, without a suffix of the build such as `+cpu`."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return found


def seen_gpus() -> int:
    """Return the number of GPUs that PyTorch finds."""
    import torch

    return int(torch.accelerator.device_count())


if __name__ == "__main__":
    try:
        print(json.dumps(look()), flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {str(error).strip()[:500]}"}), flush=True)
