"""A plan: the workers of each model, and the reservations of workers and Ray tasks. `planner.py` makes it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from overnight.tasks.resources.accelerators import reserved

CENT = 0.01  # of a CPU or GPU: the smallest difference that plans distinguish
ANY_ACCELERATOR = CENT / 10  # of the resource that represents a node's type of accelerator in Ray
WRITES_AT_ONCE = 2
TASK_RETRIES = 12  # for a Ray task that reads and prepares: a row that kills its worker does so three times


@dataclass(frozen=True)
class Pool:
    """The workers of one model: how many they are, and what each of them reserves.

    They are `initial` at the start, and then `minimum` to `maximum`. `label` names the model. `memory` is in bytes.
    """

    label: str
    minimum: int
    maximum: int
    num_cpus: float
    num_gpus: float
    initial: int = 1
    memory: int | None = None
    accelerator_type: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def remote_arguments(self) -> dict[str, Any]:
        """Return one worker's reservation as the arguments for `Dataset.map_batches` and `ray.remote`."""
        arguments: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if self.memory:
            arguments["memory"] = self.memory
        if self.accelerator_type:
            arguments["accelerator_type"] = self.accelerator_type
        if self.resources:
            arguments["resources"] = dict(self.resources)
        return arguments

    def needs(self) -> dict[str, float]:
        """Return one worker's reservation, as Ray's resource name -> amount."""
        found = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": float(self.memory or 0), **self.resources}
        if self.accelerator_type:
            found[f"accelerator_type:{self.accelerator_type}"] = ANY_ACCELERATOR
        return {name: amount for name, amount in found.items() if amount}


@dataclass(frozen=True)
class Plan:
    """The pools of a run's models, and the reservations of the Ray tasks that read and preprocess.

    Such a task reserves `task_cpus`. `task_concurrency` limits their number; None means that CPUs are the limit.
    `notes` are sentences for the user. `cpus` is the number of CPUs of the cluster. `is_beside` is True if the model's
    workers preprocess their own rows.
    """

    task_cpus: float
    task_concurrency: int | None
    pools: tuple[Pool, ...]
    notes: tuple[str, ...]
    cpus: float = 1.0  # of the cluster
    is_beside: bool = False  # the model's workers prepare their own rows

    @property
    def device_workers(self) -> int:
        """Return the number of workers that reserve GPUs or other accelerators, at the start."""
        return sum(pool.initial for pool in self.pools if reserved(pool.num_gpus, pool.resources))

    @property
    def tasks_at_once(self) -> int:
        """Return the most Ray tasks that read and preprocess at the same time."""
        return self.task_concurrency or max(int(self.cpus / max(self.task_cpus, CENT)), 1)

    def needs(self) -> dict[str, float]:
        """Return the resources without which the stream cannot go on: every pool at its minimum, and one Ray task.

        The result is Ray's resource name -> amount.
        """
        total: dict[str, float] = {"CPU": self.task_cpus}
        for pool in self.pools:
            for name, amount in pool.needs().items():
                total[name] = total.get(name, 0) + amount * pool.minimum
        return total

    @property
    def gpus(self) -> int:
        """Return the most GPUs that the pools take together, rounded up to whole ones."""
        return math.ceil(sum(pool.num_gpus * pool.maximum for pool in self.pools) - CENT / 2)


def amount_of(name: str, amount: float) -> str:
    """Return an amount of Ray's resource `name` as text for messages, such as `2 CPU` or `1.5 GiB of memory`."""
    if name == "memory":
        return f"{amount / 2**30:.1f} GiB of memory"
    if name.startswith("accelerator_type:"):
        return f"accelerator {name.split(':')[1]}" if amount else f"no {name.split(':')[1]}"
    return f"{amount:g} {name}"
