"""The plan: how many workers each model gets and what they and the Ray tasks reserve, so that nothing can deadlock.

Ray Data starts every model's workers first and runs reads, preprocessing and writes in what they leave. Two rules,
measured on Ray 2.60, keep a plan moving: the workers' CPUs and one Ray task of every kind fit into the cluster
together; and a Ray task that reserves nothing has its number limited instead. Reading and preprocessing run as one
operator, writes and Prefect's tasks reserve nothing.

CPU reservations are Ray's book-keeping, not threads, so they may shrink. GPUs, memory and custom resources may not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tasks.errors import PlanError

CENT = 0.01
WRITES_AT_ONCE = 2
SECONDS_A_ROW = "overnight.seconds_a_row"  # in the dataset's context: the models' time, measured on a sample


class Needs(Protocol):
    """What a plan asks of a predictor; see `tasks/infer/predictor.py`."""

    name: str | None
    kind: str
    workers: int | tuple[int, int] | None
    num_cpus: float | None
    num_gpus: float
    memory: int | None
    accelerator_type: str | None
    resources: dict[str, float]


@dataclass(frozen=True)
class Pool:
    """The workers of one model: between `minimum` and `maximum` of them, each reserving this much."""

    label: str
    minimum: int
    maximum: int
    num_cpus: float
    num_gpus: float
    memory: int | None = None
    accelerator_type: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def remote_arguments(self) -> dict[str, Any]:
        """As `Dataset.map_batches` and `ray.remote` take them."""
        arguments: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if self.memory:
            arguments["memory"] = self.memory
        if self.accelerator_type:
            arguments["accelerator_type"] = self.accelerator_type
        if self.resources:
            arguments["resources"] = dict(self.resources)
        return arguments

    def needs(self) -> dict[str, float]:
        """One worker's reservation by Ray's resource names."""
        found = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": float(self.memory or 0), **self.resources}
        if self.accelerator_type:
            found[f"accelerator_type:{self.accelerator_type}"] = CENT / 10
        return {name: amount for name, amount in found.items() if amount}


@dataclass(frozen=True)
class Plan:
    """What a Ray task of reading and preprocessing reserves, how many may run (None: as CPUs allow), and the pools."""

    task_cpus: float
    task_concurrency: int | None
    pools: tuple[Pool, ...]
    notes: tuple[str, ...]

    def needs(self) -> dict[str, float]:
        """What must be free for the stream to move: every pool at its minimum and one Ray task."""
        total: dict[str, float] = {"CPU": self.task_cpus}
        for pool in self.pools:
            for name, amount in pool.needs().items():
                total[name] = total.get(name, 0) + amount * pool.minimum
        return total


def make_plan(models: Sequence[Needs], nodes: Sequence[Mapping[str, float]], limits: Mapping[str, float]) -> Plan:
    """Fits `models` into a cluster.

    nodes: Ray's resources of each node alive. limits: what the cluster may autoscale to, empty where it does not say.
    Raises `PlanError` naming the stage, its need and what was found.
    """
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in node.items():
            total[name] = total.get(name, 0) + amount
    for name, amount in limits.items():
        total[name] = max(total.get(name, 0), amount)
    cpus = total.get("CPU", 0)
    if cpus <= 0:
        raise PlanError("the cluster has no CPU to run on. Start a Ray node with CPUs, or unset RAY_ADDRESS.")
    task_cpus: float = min(1.0, cpus / 2)
    minimums = [_minimum(model) for model in models]
    _refuse_what_cannot_fit(models, minimums, nodes, limits, total)

    pinned = sum((m.num_cpus or 0) * least for m, least in zip(models, minimums, strict=True))
    free = sum(least for m, least in zip(models, minimums, strict=True) if m.num_cpus is None)
    notes = []
    if pinned > cpus - task_cpus:
        task_cpus = 0
        notes.append("the models reserve every CPU, so reading and preprocessing reserve none and run one at a time")
    share = min(1.0, (cpus - task_cpus - pinned) / free) if free else 1.0
    share = int(share / CENT + 1e-6) * CENT
    if free and share < 1:
        notes.append(f"each model worker reserves {share:g} CPU instead of 1, to leave room for reading")

    left = (
        cpus
        - task_cpus
        - sum(least * (share if m.num_cpus is None else m.num_cpus) for m, least in zip(models, minimums, strict=True))
    )
    claims = {round(share if m.num_cpus is None else m.num_cpus, 2) for m in models}
    while task_cpus in claims and task_cpus:
        task_cpus = round(task_cpus - CENT, 2)  # equal reservations would fuse preprocessing into the model's worker
    pools = []
    for model, least in zip(models, minimums, strict=True):
        claim = share if model.num_cpus is None else model.num_cpus
        most = _maximum(model, least, claim, left / max(len(models), 1), total)
        pools.append(
            Pool(
                label=model.name or model.kind,
                minimum=most if model.workers is None and model.num_gpus else least,
                maximum=most,
                num_cpus=round(claim, 2),
                num_gpus=model.num_gpus,
                memory=model.memory,
                accelerator_type=model.accelerator_type,
                resources=model.resources,
            )
        )
    return Plan(task_cpus, None if task_cpus else max(1, int(cpus // 2)), tuple(pools), tuple(notes))


def _minimum(model: Needs) -> int:
    if model.workers is None:
        return 1
    return model.workers if isinstance(model.workers, int) else model.workers[0]


def _maximum(model: Needs, least: int, claim: float, spare_cpus: float, total: Mapping[str, float]) -> int:
    if isinstance(model.workers, int):
        return model.workers
    room = [least + int(spare_cpus / claim)] if claim else []
    room += [int(total[name] / amount) for name, amount in _fixed_needs(model).items() if total.get(name)]
    most = max(least, min(room)) if room else least
    return most if model.workers is None else max(least, min(most, model.workers[1]))


def _fixed_needs(model: Needs) -> dict[str, float]:
    """One worker's needs that may not shrink."""
    needs = {"CPU": model.num_cpus or 0, "GPU": model.num_gpus, "memory": float(model.memory or 0), **model.resources}
    if model.accelerator_type:
        needs[f"accelerator_type:{model.accelerator_type}"] = CENT / 10
    return {name: amount for name, amount in needs.items() if amount}


def _refuse_what_cannot_fit(
    models: Sequence[Needs],
    minimums: Sequence[int],
    nodes: Sequence[Mapping[str, float]],
    limits: Mapping[str, float],
    total: Mapping[str, float],
) -> None:
    asked: dict[str, float] = {}
    for model, least in zip(models, minimums, strict=True):
        label = f"inference {model.name or model.kind}"
        needs = _fixed_needs(model)
        for name, amount in needs.items():
            asked[name] = asked.get(name, 0) + amount * least
            if asked[name] > total.get(name, 0) + 1e-9:
                also = (
                    f" and the models before it {_amount(name, asked[name] - amount * least)}"
                    if len(models) > 1
                    else ""
                )
                raise PlanError(
                    f"{label} needs {least} x {_amount(name, amount)}{also}; "
                    f"the cluster has {_amount(name, total.get(name, 0))}. {_advice(name)}"
                )
        on_one_node = any(all(node.get(n, 0) >= a for n, a in needs.items()) for node in nodes)
        if not on_one_node and not all(limits.get(n, 0) >= a for n, a in needs.items()):
            wanted = ", ".join(_amount(name, amount) for name, amount in needs.items())
            raise PlanError(
                f"{label}: one worker needs {wanted} on one node; no node has that. Ask for less, or add a node."
            )


def _amount(name: str, amount: float) -> str:
    if name == "memory":
        return f"{amount / 2**30:.1f} GiB of memory"
    if name.startswith("accelerator_type:"):
        return f"accelerator {name.split(':')[1]}" if amount else f"no {name.split(':')[1]}"
    return f"{amount:g} {name}"


def _advice(name: str) -> str:
    if name == "GPU":
        return "Set num_gpus: 0 to run on CPUs, lower workers, or point RAY_ADDRESS at a cluster with GPUs."
    if name == "CPU":
        return "Lower workers or num_cpus, or leave num_cpus out so that it may shrink."
    return "Ask for less, or point RAY_ADDRESS at a cluster that has it."


def read_cluster() -> tuple[list[dict[str, float]], dict[str, float]]:
    """(resources of each node alive, what the cluster may autoscale to) of the connected Ray cluster.

    Ray 2.60 has no public call for the autoscaler's limits; the private one answers None where there are none.
    """
    import ray
    from ray._private.state import state

    nodes = [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    limits: Mapping[str, float] | None = state.get_max_resources_from_cluster_config()
    return nodes, {name: float(amount) for name, amount in (limits or {}).items()}


def missing_now(plan: Plan) -> str | None:
    """What the plan needs that is in use at this moment, in words; None when it can start."""
    import ray

    available, total = ray.available_resources(), ray.cluster_resources()
    for name, amount in plan.needs().items():
        if available.get(name, 0) + 1e-9 < amount and total.get(name, 0) + 1e-9 >= amount:
            return f"{_amount(name, amount)}; {_amount(name, available.get(name, 0))} of {total[name]:g} free"
    return None
