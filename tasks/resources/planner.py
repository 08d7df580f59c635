"""Planning: the workers of each model, and the reservations of workers and Ray tasks, so that nothing can deadlock.

Ray Data starts every model's workers first and runs Ray tasks with the remaining resources. Two rules, measured on Ray
2.60, keep a plan moving. The workers' CPUs and one Ray task of every kind fit into the cluster together. If a Ray task
reserves nothing, the number of such tasks is limited. CPU reservations are Ray's book-keeping, not threads, so they
may shrink. GPUs, memory and custom resources may not.
"""

import math
from collections.abc import Sequence

from overnight.tasks.errors import PlanError
from overnight.tasks.resources.bin_packing import Room
from overnight.tasks.resources.needs import CENT, Needs, Nodes, Resources, amount_of, amounts_of, fixed_needs, sum_of
from overnight.tasks.resources.plan import Plan, Pool

EVERY = 2**31  # workers: every one that fits
MEMORY_SHARE = 0.9  # of a node's memory that measured workers may fill
READ_CPUS = 0.1  # for a read beside workers that prepare their own rows: it waits more than it computes
WORKERS_A_READ = 4  # the number of workers that one read supplies, beside the model

ADVICE = {
    "GPU": "Set num_gpus: 0 to run on CPUs, lower workers, or point RAY_ADDRESS at a cluster with GPUs. If this one "
    "can start nodes with GPUs, name their type in cluster.",
    "CPU": "Lower workers or num_cpus, or leave num_cpus out so that it may shrink.",
}
ADVICE_FOR_OTHERS = (
    "Reserve less, or point RAY_ADDRESS at a cluster that has it. If this one can start such nodes, name their type in "
    "cluster."
)


def make_plan(models: Sequence[Needs], nodes: Nodes, addable_nodes: Nodes = ()) -> Plan:
    """Fit the workers of `models` and the Ray tasks on the nodes alive and the `addable_nodes`, or raise `PlanError`.

    Pools start with the workers that fit on the nodes alive, or with the fewest allowed if not one of each fits.
    """
    every = [*nodes, *addable_nodes]
    if _is_colocated(models, every):
        return _colocated_plan(models, nodes, addable_nodes)
    total = sum_of(every)
    if total.get("CPU", 0) <= 0:
        raise PlanError("the cluster has no CPU to run on. Start a Ray node with CPUs, or unset RAY_ADDRESS.")
    least = list(map(_minimum, models))
    _refuse_what_cannot_fit(models, least, every, bool(addable_nodes))
    minimal_needs = list(map(fixed_needs, models))
    first: Nodes = every
    if sum_of(nodes).get("CPU", 0) > 0 and Room(nodes).take_all(_each(minimal_needs, least)):
        first = nodes
        limits = [EVERY if _has_worker_per_gpu(model) else 0 for model in models]
        least = _grown(nodes, minimal_needs, least, limits)
    cpus = sum_of(first)["CPU"]
    share, task_cpus = _cpu_share(models, least, first)
    needs = [_with_share(model, share) for model in models]
    limits = []
    for model, worker in zip(models, needs, strict=True):
        limits.append(_maximum(model, worker, share, total["CPU"]))
    most = _grown(every, needs, least, limits)
    # A Ray task finds room at the start, and when all have come.
    task_cpus = _task_cpus(task_cpus, first, needs, least)
    task_cpus = _task_cpus(task_cpus, every, needs, most)
    task_concurrency = None if task_cpus else max(1, int(cpus // 2))
    pools = list(map(_pool, models, least, most, needs))
    notes = []
    if task_concurrency:
        notes.append(
            f"the models reserve every CPU, so reading and preprocessing reserve none and run {task_concurrency} at a "
            "time"
        )
    if share < 1 and any(model.num_cpus is None for model in models):
        notes.append(f"each model worker reserves {share:g} CPU instead of 1, to leave room for reading")
    return Plan(task_cpus, task_concurrency, tuple(pools), tuple(notes), total["CPU"])


def workers_in_memory(memory: int, nodes: Nodes) -> int:
    """Return how many workers of `memory` bytes fit into 90 % of each node's memory, at least 1; 0 bytes: no limit."""
    if not memory:
        return EVERY
    return max(sum(int(MEMORY_SHARE * node.get("memory", 0) // memory) for node in nodes), 1)


def _is_colocated(models: Sequence[Needs], nodes: Nodes) -> bool:
    """Return True if the model's workers prepare their own rows, one worker per CPU.

    With `auto`, that is so for the only model of a job that reserves nothing, if a node has a whole CPU.
    """
    if any(model.placement == "colocated" for model in models):
        return True
    if len(models) != 1 or models[0].placement != "auto" or not _whole_cpus(nodes):
        return False
    return models[0].workers is None and models[0].num_cpus is None and not fixed_needs(models[0])


def _colocated_plan(models: Sequence[Needs], nodes: Nodes, addable_nodes: Nodes) -> Plan:
    """Return the plan of one model whose workers prepare their own rows. Reads use the CPU time that is left."""
    if len(models) > 1:
        raise PlanError(f"placement: colocated is for the only model of a job, found {len(models)} models.")
    most = _whole_cpus([*nodes, *addable_nodes])
    if not most:
        raise PlanError("placement: colocated needs a node with a whole CPU, found none. Set placement: separate.")
    initial = max(_whole_cpus(nodes), 1)
    pool = Pool(models[0].name or models[0].kind, 1, most, 1 - READ_CPUS, 0, initial)
    note = f"up to {most} workers, one per CPU, prepare their own rows (placement: colocated)"
    reads = max(2, math.ceil(most / WORKERS_A_READ))
    return Plan(READ_CPUS, reads, (pool,), (note,), cpus=most, is_colocated=True)


def _whole_cpus(nodes: Nodes) -> int:
    return sum(int(node.get("CPU", 0)) for node in nodes)


def _minimum(model: Needs) -> int:
    if model.workers is None:
        return 1
    return model.workers if isinstance(model.workers, int) else model.workers[0]


def _maximum(model: Needs, needs: Resources, share: float, cpus: float) -> int:
    """Return the number of workers to which a pool may grow: one per GPU or CPU by default; 0 if it does not grow.

    A pool on CPUs grows only if each worker has a whole CPU or its reservation from the job.
    """
    if model.num_cpus is None and share < 1 and not model.num_gpus:
        return 0
    if _has_worker_per_gpu(model):
        return EVERY
    if isinstance(model.workers, tuple):
        return model.workers[1]
    return max(int(cpus), 1) if model.workers is None and needs else 0


def _has_worker_per_gpu(model: Needs) -> bool:
    return model.workers is None and bool(model.num_gpus)


def _cpu_share(models: Sequence[Needs], least: list[int], nodes: Nodes) -> tuple[float, float]:
    """Return the CPUs of a worker whose model gives no `num_cpus`, at most 1, and the CPUs left for a Ray task.

    The first shrinks until every minimum has room. The second is 0 if the job's reservations leave too few CPUs.
    """
    cpus = sum_of(nodes)["CPU"]
    task_cpus = min(1.0, cpus / 2)
    claims, sharing = 0.0, 0
    for model, count in zip(models, least, strict=True):
        claims += (model.num_cpus or 0) * count
        if model.num_cpus is None:
            sharing += count
    if claims > cpus - task_cpus:
        task_cpus = 0
    share = _cents(min(1.0, (cpus - task_cpus - claims) / sharing)) if sharing else 1.0
    while share:
        needs = [_with_share(model, share) for model in models]
        if Room(nodes).take_all(_each(needs, least)):
            break
        share = _cents(share / 2)
    return share, task_cpus


def _with_share(model: Needs, share: float) -> dict[str, float]:
    """Return one worker's needs, with the shared CPU if the model gives no number."""
    needs = fixed_needs(model)
    if model.num_cpus is None and share:
        needs["CPU"] = share
    return needs


def _task_cpus(task_cpus: float, nodes: Nodes, needs: Nodes, counts: Sequence[int]) -> float:
    """Return the reservation of a Ray task. At least one node has the mean of the CPUs that the workers leave."""
    free = sum_of(nodes)["CPU"]
    for worker, count in zip(needs, counts, strict=True):
        free -= worker.get("CPU", 0) * count
    return min(task_cpus, _cents(free / sum(1 for node in nodes if node.get("CPU", 0))))


def _pool(model: Needs, minimum: int, maximum: int, needs: Resources) -> Pool:
    return Pool(
        label=model.name or model.kind,
        minimum=minimum,
        maximum=maximum,
        num_cpus=needs.get("CPU", 0),
        num_gpus=model.num_gpus,
        initial=minimum,
        memory=model.memory,
        accelerator_type=model.accelerator_type,
        resources=model.resources,
    )


def _cents(amount: float) -> float:
    """Round down to the steps that Ray distinguishes here, to at least zero."""
    return max(int(amount / CENT + 1e-6), 0) / 100


def _grown(nodes: Nodes, needs: Nodes, counts: list[int], most: list[int]) -> list[int]:
    """Return `counts` plus the workers, one per model in turn, that find room and do not exceed `most`.

    They leave CPUs for a Ray task on each node, or otherwise on the one with CPUs and as few GPUs as possible.
    """
    reader, *nodes_behind = sorted(nodes, key=lambda node: (not node.get("CPU", 0), node.get("GPU", 0)))
    for free in (list(map(_without_task, nodes)), [_without_task(reader), *nodes_behind]):
        grown = _grown_on(free, nodes, needs, counts, most)
        if grown != counts:
            return grown
    return counts


def _without_task(node: Resources) -> Resources:
    """Return the node without the CPUs that a Ray task for reading needs there, at most half of the node's."""
    cpus = node.get("CPU", 0)
    return {**node, "CPU": cpus - min(1.0, cpus / 2)}


def _grown_on(free: Nodes, nodes: Nodes, needs: Nodes, counts: list[int], most: list[int]) -> list[int]:
    """Return what `_grown` does. `free` is `nodes` without the CPUs that the workers leave."""
    room, grown = Room(free), list(counts)
    if not room.take_all(_each(needs, counts)):
        return grown
    growing = list(range(len(counts)))
    while growing:
        growing = [number for number in growing if grown[number] < most[number] and room.take(needs[number])]
        for number in growing:
            grown[number] += 1
    # Placed from the start they may fit worse than one after another, and on nodes with more room worse than with less.
    while grown != counts and not all(Room(some).take_all(_each(needs, grown)) for some in (free, nodes)):
        additions = [count - before for count, before in zip(grown, counts, strict=True)]
        grown[additions.index(max(additions))] -= 1
    return grown


def _each(needs: Nodes, counts: Sequence[int]) -> list[Resources]:
    workers: list[Resources] = []
    for worker, count in zip(needs, counts, strict=True):
        workers += [worker] * count
    return workers


def _refuse_what_cannot_fit(models: Sequence[Needs], counts: Sequence[int], nodes: Nodes, is_growing: bool) -> None:
    """Raise `PlanError` if this number of workers of each model does not fit. `is_growing`: some nodes are to come."""
    none_has = "no node has that, and none that may start" if is_growing else "no node has that"
    workers: list[Resources] = []
    for model, count in zip(models, counts, strict=True):
        label, needs = f"inference {model.name or model.kind}", fixed_needs(model)
        if model.num_gpus > 1 and model.num_gpus % 1:
            raise PlanError(f"{label}: num_gpus: expected a whole number or less than 1, found {model.num_gpus:g}.")
        _refuse_amounts(label, needs, count, sum_of(workers), sum_of(nodes), is_growing)
        amounts = amounts_of(needs)
        if not Room(nodes).take(needs):
            raise PlanError(
                f"{label}: one worker needs {amounts} on one node; {none_has}. Reserve less, or add a node."
            )
        workers += [needs] * count
        if not Room(nodes).take_all(workers):
            raise PlanError(
                f"{label}: {count} workers need {amounts} each; the nodes do not have room for all of them together. "
                "Reserve less, or add a node."
            )


def _refuse_amounts(
    label: str, needs: Resources, count: int, before: Resources, total: Resources, is_growing: bool
) -> None:
    """Raise `PlanError` if `count` workers, after the models `before`, need more than the nodes have together."""
    has = "the cluster has and may start" if is_growing else "the cluster has"
    for name, amount in needs.items():
        amount_before = before.get(name, 0)
        if amount_before + amount * count > total.get(name, 0) + 1e-9:
            also = f" and the models before it {amount_of(name, amount_before)}" if amount_before else ""
            raise PlanError(
                f"{label} needs {count} x {amount_of(name, amount)}{also}; "
                f"{has} {amount_of(name, total.get(name, 0))}. {ADVICE.get(name, ADVICE_FOR_OTHERS)}"
            )
