"""Planning: how many workers each model gets and what they and the Ray tasks reserve, so that nothing can deadlock.

Ray Data starts every model's workers first and runs reads, preprocessing and writes in what they leave. Two rules,
measured on Ray 2.60, keep a plan moving: the workers' CPUs and one Ray task of every kind fit into the cluster
together; and a Ray task that reserves nothing has its number limited instead. Reading and preprocessing run as one
operator, writes and Prefect's tasks reserve nothing.

The only model of a job, on CPUs and without reservations of its own, gets a worker a CPU, and its workers prepare their
own rows (`placement: colocated`): no worker waits for another kind of worker, and no pixel crosses a process. Reads
that are left to Ray tasks mostly wait, and take what is left.

CPU reservations are Ray's book-keeping, not threads, so they may shrink. GPUs, memory and custom resources may not.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from overnight.tasks.errors import PlanError
from overnight.tasks.resources.bin_packing import Room
from overnight.tasks.resources.plan import ANY_ACCELERATOR, CENT, Plan, Pool, amount_of

EVERY = 2**31  # workers that fit
READ_CPUS = 0.1  # of a read beside workers that prepare their own rows: it waits more than it works
WORKERS_A_READ = 4  # that one read feeds, beside the model
MEMORY_SHARE = 0.9  # of a node's memory that measured workers may fill
BESIDE_CPUS = 1 - READ_CPUS  # of such a worker


class Needs(Protocol):
    """What a plan asks of a predictor; see `tasks/infer/predictor.py`."""

    @property
    def name(self) -> str | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def workers(self) -> int | tuple[int, int] | None: ...
    @property
    def num_cpus(self) -> float | None: ...
    @property
    def num_gpus(self) -> float: ...
    @property
    def memory(self) -> int | None: ...
    @property
    def accelerator_type(self) -> str | None: ...
    @property
    def resources(self) -> dict[str, float]: ...
    @property
    def placement(self) -> str: ...


def make_plan(models: Sequence[Needs], nodes: Sequence[Mapping[str, float]], limits: Mapping[str, float]) -> Plan:
    """Fits `models` into a cluster.

    nodes: Ray's resources of each node alive. limits: what the cluster may autoscale to, empty where it does not say.
    Raises `PlanError` naming the stage, its need and what was found.
    """
    if any(model.placement == "colocated" for model in models) or _may_be_beside(models, nodes):
        return make_plan_beside(models, nodes, limits)
    total = _sum(nodes)
    more = {name: amount - total.get(name, 0) for name, amount in limits.items() if amount > total.get(name, 0)}
    if more:  # nodes that may come; how they are cut nobody knows yet
        nodes = [*nodes, more]
        total = _sum(nodes)
    cpus = total.get("CPU", 0)
    if cpus <= 0:
        raise PlanError("the cluster has no CPU to run on. Start a Ray node with CPUs, or unset RAY_ADDRESS.")
    least = [_minimum(model) for model in models]
    _refuse_what_cannot_fit(models, least, nodes, total)
    task_cpus: float = min(1.0, cpus / 2)
    spared = [{**node, "CPU": max(node.get("CPU", 0) - task_cpus, 0)} for node in nodes]  # reading, on every node
    gpu_most = [EVERY if model.workers is None and model.num_gpus else 0 for model in models]
    least = _grown(spared, [_fixed_needs(model) for model in models], least, gpu_most)

    pinned = sum((model.num_cpus or 0) * count for model, count in zip(models, least, strict=True))
    free = sum(count for model, count in zip(models, least, strict=True) if model.num_cpus is None)
    if pinned > cpus - task_cpus:
        task_cpus = 0
    share = _cents(min(1.0, (cpus - task_cpus - pinned) / free)) if free else 1.0
    while share and not Room(nodes).take_all(_each([_needs(model, share) for model in models], least)):
        share = _cents(share / 2)
    needs = [_needs(model, share) for model in models]
    # Only where each worker has a whole CPU, or what it asked for, is there room for more of them.
    limits_a_pool = [
        0 if model.num_cpus is None and share < 1 else _maximum(model, need, cpus)
        for model, need in zip(models, needs, strict=True)
    ]
    most = _grown(spared, needs, least, limits_a_pool)

    claims = [need.get("CPU", 0) for need in needs]
    left = cpus - sum(claim * count for claim, count in zip(claims, most, strict=True))
    # Wherever Ray puts the workers, some node has the mean of what they leave.
    task_cpus = min(task_cpus, _cents(left / sum(1 for node in nodes if node.get("CPU", 0))))
    while task_cpus in claims and task_cpus:
        task_cpus = round(task_cpus - CENT, 2)  # equal reservations would fuse preprocessing into the model's worker
    at_once = None if task_cpus else max(1, int(cpus // 2))
    notes = []
    if at_once:
        notes.append(
            f"the models reserve every CPU, so reading and preprocessing reserve none and run {at_once} at a time"
        )
    if free and share < 1:
        notes.append(f"each model worker reserves {share:g} CPU instead of 1, to leave room for reading")
    pools = [
        Pool(
            label=model.name or model.kind,
            minimum=minimum,
            maximum=maximum,
            num_cpus=claim,
            num_gpus=model.num_gpus,
            initial=minimum,
            memory=model.memory,
            accelerator_type=model.accelerator_type,
            resources=model.resources,
        )
        for model, minimum, maximum, claim in zip(models, least, most, claims, strict=True)
    ]
    return Plan(task_cpus, at_once, tuple(pools), tuple(notes), cpus)


def _may_be_beside(models: Sequence[Needs], nodes: Sequence[Mapping[str, float]]) -> bool:
    if len(models) != 1 or models[0].placement != "auto" or not any(node.get("CPU", 0) >= 1 for node in nodes):
        return False
    return models[0].workers is None and models[0].num_cpus is None and not _fixed_needs(models[0])


def make_plan_beside(
    models: Sequence[Needs], nodes: Sequence[Mapping[str, float]], limits: Mapping[str, float]
) -> Plan:
    """The plan of one model whose workers prepare their own rows. Raises `PlanError` for another number of models."""
    if len(models) > 1:
        raise PlanError(f"placement: colocated is for the only model of a job, found {len(models)} models.")
    most = max(sum(int(node.get("CPU", 0)) for node in nodes), int(limits.get("CPU", 0)))
    if not most:
        raise PlanError("placement: colocated needs a node with a whole CPU, found none. Set placement: separate.")
    pool = Pool(models[0].name or models[0].kind, 1, most, BESIDE_CPUS, 0, initial=most)
    note = f"up to {most} workers, one a CPU, prepare their own rows (placement: colocated)"
    reads = max(2, math.ceil(most / WORKERS_A_READ))
    return Plan(READ_CPUS, reads, (pool,), (note,), cpus=most, is_beside=True)


def workers_in_memory(memory: int, nodes: Sequence[Mapping[str, float]]) -> int:
    """How many processes of so many bytes the nodes hold in the memory that Ray says is for them; at least one."""
    return max(sum(int(MEMORY_SHARE * node.get("memory", 0) // memory) for node in nodes), 1) if memory else EVERY


def _sum(nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in node.items():
            total[name] = total.get(name, 0) + amount
    return total


def _cents(amount: float) -> float:
    """Rounded down to what Ray can tell apart here, and never below nothing."""
    return max(int(amount / CENT + 1e-6), 0) / 100


def _minimum(model: Needs) -> int:
    if model.workers is None:
        return 1
    return model.workers if isinstance(model.workers, int) else model.workers[0]


def _maximum(model: Needs, needs: Mapping[str, float], cpus: float) -> int:
    """Workers that a pool may grow to; 0 for one that does not grow. By default not more than there are CPUs."""
    if isinstance(model.workers, int) or (model.workers is None and (model.num_gpus or not needs)):
        return 0
    return max(int(cpus), 1) if model.workers is None else model.workers[1]


def _grown(
    nodes: Sequence[Mapping[str, float]], needs: Sequence[Mapping[str, float]], counts: list[int], most: list[int]
) -> list[int]:
    """`counts` of workers with those added, one a model in turn, that find room and are not beyond `most`."""
    room, found = Room(nodes), list(counts)
    if not room.take_all(_each(needs, counts)):
        return found
    growing = [place for place in range(len(counts)) if counts[place] < most[place]]
    while growing:
        growing = [place for place in growing if found[place] < most[place] and room.take(needs[place])]
        for place in growing:
            found[place] += 1
    while not Room(nodes).take_all(_each(needs, found)):  # placed all anew they may fit worse than one after another
        added = [have - had for have, had in zip(found, counts, strict=True)]
        found[added.index(max(added))] -= 1
    return found


def _each(needs: Sequence[Mapping[str, float]], counts: Sequence[int]) -> list[Mapping[str, float]]:
    return [need for need, count in zip(needs, counts, strict=True) for _ in range(count)]


def _needs(model: Needs, share: float) -> dict[str, float]:
    """One worker's needs, with the CPU that it is given where it does not say."""
    shared = {"CPU": share} if model.num_cpus is None and share else {}
    return _fixed_needs(model) | shared


def _fixed_needs(model: Needs) -> dict[str, float]:
    """One worker's needs that may not shrink."""
    needs = {"CPU": model.num_cpus or 0, "GPU": model.num_gpus, "memory": float(model.memory or 0), **model.resources}
    if model.accelerator_type:
        needs[f"accelerator_type:{model.accelerator_type}"] = ANY_ACCELERATOR
    return {name: amount for name, amount in needs.items() if amount}


def _refuse_what_cannot_fit(
    models: Sequence[Needs], counts: Sequence[int], nodes: Sequence[Mapping[str, float]], total: Mapping[str, float]
) -> None:
    asked: dict[str, float] = {}
    room = Room(nodes)
    for model, count in zip(models, counts, strict=True):
        label, needs = f"inference {model.name or model.kind}", _fixed_needs(model)
        if model.num_gpus > 1 and model.num_gpus % 1:
            raise PlanError(f"{label}: num_gpus: expected a whole number or less than 1, found {model.num_gpus:g}.")
        for name, amount in needs.items():
            before = asked.get(name, 0)
            asked[name] = before + amount * count
            if asked[name] > total.get(name, 0) + 1e-9:
                also = f" and the models before it {amount_of(name, before)}" if before else ""
                raise PlanError(
                    f"{label} needs {count} x {amount_of(name, amount)}{also}; "
                    f"the cluster has {amount_of(name, total.get(name, 0))}. {_advice(name)}"
                )
        wanted = ", ".join(amount_of(name, amount) for name, amount in needs.items())
        if not Room(nodes).take(needs):
            raise PlanError(
                f"{label}: one worker needs {wanted} on one node; no node has that. Ask for less, or add a node."
            )
        if not room.take_all([needs] * count):
            raise PlanError(
                f"{label}: {count} workers need {wanted} each; the nodes have no room for so many beside each other. "
                "Ask for less, or add a node."
            )


def _advice(name: str) -> str:
    if name == "GPU":
        return "Set num_gpus: 0 to run on CPUs, lower workers, or point RAY_ADDRESS at a cluster with GPUs."
    if name == "CPU":
        return "Lower workers or num_cpus, or leave num_cpus out so that it may shrink."
    return "Ask for less, or point RAY_ADDRESS at a cluster that has it."
