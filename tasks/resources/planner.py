"""Planning: the workers of each model, and the reservations of workers and Ray tasks, so that nothing can deadlock.

Ray Data starts every model's workers first and runs reads, preprocessing and writes with the remaining resources. Two
rules, measured on Ray 2.60, keep a plan moving. First, the workers' CPUs and one Ray task of every kind fit into the
cluster together. Second, if a Ray task reserves nothing, the number of such tasks is limited. Reading and preprocessing
run as one operator. Writes and Prefect's tasks reserve nothing.

CPU reservations are Ray's book-keeping, not threads, so they may shrink. GPUs, memory and custom resources may not.
"""

from collections.abc import Mapping, Sequence

from overnight.tasks.errors import PlanError
from overnight.tasks.resources.bin_packing import Room
from overnight.tasks.resources.colocated_plan import is_colocated, make_colocated_plan
from overnight.tasks.resources.needs import Needs, fixed_needs
from overnight.tasks.resources.plan import CENT, Plan, Pool, amount_of

EVERY = 2**31  # workers: every one that fits
MEMORY_SHARE = 0.9  # of a node's memory that measured workers may fill


def make_plan(
    models: Sequence[Needs], nodes: Sequence[Mapping[str, float]], to_come: Sequence[Mapping[str, float]] = ()
) -> Plan:
    """Fit the workers of `models` and the Ray tasks into a cluster, and return the plan.

    `nodes` has the resources of each node alive, and `to_come` those of each node that autoscaling may add. Both are
    Ray's resource name -> amount. The pools start with the workers that fit on the nodes alive. If not even one of each
    model fits there, they start with the fewest that the job allows. They may grow onto the nodes to come. Raise
    `PlanError` if the fewest do not fit; the message has the model, its need and the found resources.
    """
    every = [*nodes, *to_come]
    if is_colocated(models, every):
        return make_colocated_plan(models, nodes, to_come)
    total = _sum(every)
    if total.get("CPU", 0) <= 0:
        raise PlanError("the cluster has no CPU to run on. Start a Ray node with CPUs, or unset RAY_ADDRESS.")
    least = [_minimum(model) for model in models]
    _refuse_what_cannot_fit(models, least, every, total, bool(to_come))
    if _fits(models, least, nodes):
        first = nodes
        least = _a_worker_a_gpu(models, nodes, least)
    else:
        first = every
    cpus = _sum(first)["CPU"]
    share, task_cpus = _cpu_share(models, least, first, cpus, min(1.0, cpus / 2))
    needs = [_needs(model, share) for model in models]
    most = _grown(every, needs, least, _most(models, needs, share, total["CPU"]))
    claims = [need.get("CPU", 0) for need in needs]
    for count, where in ((least, first), (most, every)):  # a Ray task finds room at the start, and when all have come
        left = _sum(where)["CPU"] - sum(claim * number for claim, number in zip(claims, count, strict=True))
        task_cpus = _task_cpus(task_cpus, left, where, claims)
    at_once = None if task_cpus else max(1, int(cpus // 2))
    pools = [
        _pool(model, minimum, maximum, claim)
        for model, minimum, maximum, claim in zip(models, least, most, claims, strict=True)
    ]
    is_shared = share < 1 and any(model.num_cpus is None for model in models)
    return Plan(task_cpus, at_once, tuple(pools), _notes(at_once, share if is_shared else 1), total["CPU"])


def _fits(models: Sequence[Needs], counts: Sequence[int], nodes: Sequence[Mapping[str, float]]) -> bool:
    """Return True if this number of workers of each model fits on the nodes, which have CPUs."""
    has_cpus = _sum(nodes).get("CPU", 0) > 0
    return has_cpus and Room(nodes).take_all(_each([fixed_needs(model) for model in models], counts))


def _spared(nodes: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Return the nodes without the CPUs that a Ray task for reading needs on each of them, at most half of a node's."""
    return [{**node, "CPU": (cpus := node.get("CPU", 0)) - min(1.0, cpus / 2)} for node in nodes]


def _one_spared(nodes: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """Return the nodes with room for reading on one of them, which has CPUs and as few GPUs as possible."""
    first, *others = sorted(nodes, key=lambda node: (not node.get("CPU", 0), node.get("GPU", 0)))
    return [*_spared([first]), *others]


def _a_worker_a_gpu(models: Sequence[Needs], nodes: Sequence[Mapping[str, float]], least: list[int]) -> list[int]:
    """Return the minimum of workers for each model: one per GPU if the job gives no number of workers."""
    most = [EVERY if _is_one_a_gpu(model) else 0 for model in models]
    return _grown(nodes, [fixed_needs(model) for model in models], least, most)


def _is_one_a_gpu(model: Needs) -> bool:
    return model.workers is None and bool(model.num_gpus)


def _cpu_share(
    models: Sequence[Needs], least: list[int], nodes: Sequence[Mapping[str, float]], cpus: float, task_cpus: float
) -> tuple[float, float]:
    """Return the CPUs of a worker whose model gives no `num_cpus`, at most 1, and the CPUs left for a Ray task.

    The first number shrinks until every pool's minimum has room. The second is 0 if the job's own reservations leave
    too few CPUs, because they have priority.
    """
    pinned = sum((model.num_cpus or 0) * count for model, count in zip(models, least, strict=True))
    if pinned > cpus - task_cpus:
        task_cpus = 0
    free = sum(count for model, count in zip(models, least, strict=True) if model.num_cpus is None)
    share = _cents(min(1.0, (cpus - task_cpus - pinned) / free)) if free else 1.0
    while share and not Room(nodes).take_all(_each([_needs(model, share) for model in models], least)):
        share = _cents(share / 2)
    return share, task_cpus


def _most(models: Sequence[Needs], needs: Sequence[Mapping[str, float]], share: float, cpus: float) -> list[int]:
    """Return the number of workers to which each pool may grow.

    A pool on CPUs grows only if each worker has a whole CPU or its reservation from the job.
    """
    return [
        0 if model.num_cpus is None and share < 1 and not model.num_gpus else _maximum(model, need, cpus)
        for model, need in zip(models, needs, strict=True)
    ]


def _task_cpus(task_cpus: float, left: float, nodes: Sequence[Mapping[str, float]], claims: list[float]) -> float:
    """Return the reservation of a Ray task. At least one node has the mean of the CPUs that the workers leave."""
    found = min(task_cpus, _cents(left / sum(1 for node in nodes if node.get("CPU", 0))))
    while found in claims and found:
        found = round(found - CENT, 2)  # equal reservations would fuse preprocessing into the model's worker
    return found


def _notes(at_once: int | None, share: float) -> tuple[str, ...]:
    notes = []
    if at_once:
        notes.append(
            f"the models reserve every CPU, so reading and preprocessing reserve none and run {at_once} at a time"
        )
    if share < 1:
        notes.append(f"each model worker reserves {share:g} CPU instead of 1, to leave room for reading")
    return tuple(notes)


def _pool(model: Needs, minimum: int, maximum: int, claim: float) -> Pool:
    return Pool(
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


def workers_in_memory(memory: int, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return how many workers of `memory` bytes fit into 90 % of the memory that Ray reports for each node.

    The result is at least 1. If `memory` is 0, which means unknown, the result is so large that it does not limit
    anything.
    """
    return max(sum(int(MEMORY_SHARE * node.get("memory", 0) // memory) for node in nodes), 1) if memory else EVERY


def _sum(nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in node.items():
            total[name] = total.get(name, 0) + amount
    return total


def _cents(amount: float) -> float:
    """Round down to the steps that Ray distinguishes here, to at least zero."""
    return max(int(amount / CENT + 1e-6), 0) / 100


def _minimum(model: Needs) -> int:
    if model.workers is None:
        return 1
    return model.workers if isinstance(model.workers, int) else model.workers[0]


def _maximum(model: Needs, needs: Mapping[str, float], cpus: float) -> int:
    """Return the number of workers to which a pool may grow; 0 if it does not grow.

    The default is one per GPU, and without GPUs the number of CPUs.
    """
    if _is_one_a_gpu(model):
        return EVERY
    if isinstance(model.workers, int) or (model.workers is None and not needs):
        return 0
    return max(int(cpus), 1) if model.workers is None else model.workers[1]


def _grown(
    nodes: Sequence[Mapping[str, float]], needs: Sequence[Mapping[str, float]], counts: list[int], most: list[int]
) -> list[int]:
    """Return `counts` plus the workers, one per model in turn, that find room and do not exceed `most`.

    They leave CPUs for a Ray task on each node. If no worker finds room so, they leave them on one node.
    """
    for spared in (_spared(nodes), _one_spared(nodes)):
        if (found := _grown_beside(spared, nodes, needs, counts, most)) != counts:
            return found
    return counts


def _grown_beside(
    spared: Sequence[Mapping[str, float]],
    nodes: Sequence[Mapping[str, float]],
    needs: Sequence[Mapping[str, float]],
    counts: list[int],
    most: list[int],
) -> list[int]:
    """Return what `_grown` does. `spared` is `nodes` without the CPUs that the workers leave."""
    room, found = Room(spared), list(counts)
    if not room.take_all(_each(needs, counts)):
        return found
    growing = [place for place in range(len(counts)) if counts[place] < most[place]]
    while growing:
        growing = [place for place in growing if found[place] < most[place] and room.take(needs[place])]
        for place in growing:
            found[place] += 1
    # Placed from the start they may fit worse than one after another, and on nodes with more room worse than with less.
    while found != counts and not all(Room(some).take_all(_each(needs, found)) for some in (spared, nodes)):
        added = [have - had for have, had in zip(found, counts, strict=True)]
        found[added.index(max(added))] -= 1
    return found


def _each(needs: Sequence[Mapping[str, float]], counts: Sequence[int]) -> list[Mapping[str, float]]:
    return [need for need, count in zip(needs, counts, strict=True) for _ in range(count)]


def _needs(model: Needs, share: float) -> dict[str, float]:
    """Return one worker's needs, with the shared CPU if the model gives no number."""
    shared = {"CPU": share} if model.num_cpus is None and share else {}
    return fixed_needs(model) | shared


def _refuse_what_cannot_fit(
    models: Sequence[Needs],
    counts: Sequence[int],
    nodes: Sequence[Mapping[str, float]],
    total: Mapping[str, float],
    is_growing: bool,
) -> None:
    """Raise `PlanError` if this number of workers of each model does not fit on the nodes, which have `total` together.

    If `is_growing`, some of the nodes are still to come.
    """
    asked: dict[str, float] = {}
    has = "the cluster has and may start" if is_growing else "the cluster has"
    has_none = "no node has that, and none that may start" if is_growing else "no node has that"
    so_far: list[Mapping[str, float]] = []
    for model, count in zip(models, counts, strict=True):
        label, needs = f"inference {model.name or model.kind}", fixed_needs(model)
        if model.num_gpus > 1 and model.num_gpus % 1:
            raise PlanError(f"{label}: num_gpus: expected a whole number or less than 1, found {model.num_gpus:g}.")
        for name, amount in needs.items():
            before = asked.get(name, 0)
            asked[name] = before + amount * count
            if asked[name] > total.get(name, 0) + 1e-9:
                also = f" and the models before it {amount_of(name, before)}" if before else ""
                raise PlanError(
                    f"{label} needs {count} x {amount_of(name, amount)}{also}; "
                    f"{has} {amount_of(name, total.get(name, 0))}. {_advice(name)}"
                )
        wanted = ", ".join(amount_of(name, amount) for name, amount in needs.items())
        if not Room(nodes).take(needs):
            raise PlanError(f"{label}: one worker needs {wanted} on one node; {has_none}. Reserve less, or add a node.")
        so_far += [needs] * count
        if not Room(nodes).take_all(so_far):
            raise PlanError(
                f"{label}: {count} workers need {wanted} each; the nodes do not have room for all of them together. "
                "Reserve less, or add a node."
            )


def _advice(name: str) -> str:
    if name == "GPU":
        return (
            "Set num_gpus: 0 to run on CPUs, lower workers, or point RAY_ADDRESS at a cluster with GPUs. If this one "
            "can start nodes with GPUs, name their type in cluster."
        )
    if name == "CPU":
        return "Lower workers or num_cpus, or leave num_cpus out so that it may shrink."
    return (
        "Reserve less, or point RAY_ADDRESS at a cluster that has it. If this one can start such nodes, name their "
        "type in cluster."
    )
