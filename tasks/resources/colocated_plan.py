"""The plan of `placement: colocated`: the model's workers prepare their own rows, one worker per CPU.

It is the plan of a job with one model, on CPUs and without reservations of its own. No worker waits for another kind of
worker, and no pixel crosses from one process to another. The Ray tasks that read mostly wait, and use the CPU time that
is left.
"""

import math
from collections.abc import Mapping, Sequence

from overnight.tasks.errors import PlanError
from overnight.tasks.resources.needs import Needs, fixed_needs
from overnight.tasks.resources.plan import Plan, Pool

READ_CPUS = 0.1  # for a read beside workers that prepare their own rows: it waits more than it computes
WORKERS_A_READ = 4  # the number of workers that one read supplies, beside the model
WORKER_CPUS = 1 - READ_CPUS


def is_colocated(models: Sequence[Needs], nodes: Sequence[Mapping[str, float]]) -> bool:
    """Return True if the plan is one worker per CPU, which preprocesses its own rows.

    That is so if a model has `placement: colocated`. With `auto`, it is so for the only model of a job, if a node has a
    whole CPU. The model must set no workers and reserve nothing. `nodes` has the resources of each node, also of those
    to come, as Ray's resource name -> amount.
    """
    if any(model.placement == "colocated" for model in models):
        return True
    if len(models) != 1 or models[0].placement != "auto" or not any(node.get("CPU", 0) >= 1 for node in nodes):
        return False
    return models[0].workers is None and models[0].num_cpus is None and not fixed_needs(models[0])


def make_colocated_plan(
    models: Sequence[Needs], nodes: Sequence[Mapping[str, float]], to_come: Sequence[Mapping[str, float]]
) -> Plan:
    """Return the plan of one model whose workers preprocess their own rows, one worker per CPU.

    `nodes` has the resources of each node alive, and `to_come` those of each node that autoscaling may add. Both are
    Ray's resource name -> amount. Raise `PlanError` for several models, or if no node has a whole CPU.
    """
    if len(models) > 1:
        raise PlanError(f"placement: colocated is for the only model of a job, found {len(models)} models.")
    alive, new = (sum(int(node.get("CPU", 0)) for node in some) for some in (nodes, to_come))
    most = alive + new
    if not most:
        raise PlanError("placement: colocated needs a node with a whole CPU, found none. Set placement: separate.")
    pool = Pool(models[0].name or models[0].kind, 1, most, WORKER_CPUS, 0, initial=max(alive, 1))
    note = f"up to {most} workers, one per CPU, prepare their own rows (placement: colocated)"
    reads = max(2, math.ceil(most / WORKERS_A_READ))
    return Plan(READ_CPUS, reads, (pool,), (note,), cpus=most, is_beside=True)
