"""A plan: the workers of each model, and the reservations of workers and Ray tasks. `planner.py` makes it."""

import math
from dataclasses import dataclass, field
from typing import Any

from overnight.tasks.resources.needs import CENT, Resources, reservation, reserved

WRITES_AT_ONCE = 2
TASK_RETRIES = 12  # for a Ray task that reads and prepares: a row that kills its worker does so three times


@dataclass(frozen=True)
class Pool:
    """The workers of one model, `initial` at the start, then `minimum` to `maximum`; what each reserves."""

    label: str  # of the model
    minimum: int
    maximum: int
    num_cpus: float
    num_gpus: float
    initial: int = 1
    memory: int | None = None  # bytes
    accelerator_type: str | None = None
    resources: Resources = field(default_factory=dict)

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
        return reservation(self.num_cpus, self.num_gpus, self.memory, self.accelerator_type, self.resources)


@dataclass(frozen=True)
class Plan:
    """The pools of a run's models, and the reservations of the Ray tasks that read and preprocess."""

    task_cpus: float
    task_concurrency: int | None  # None: CPUs are the limit
    pools: tuple[Pool, ...]
    notes: tuple[str, ...]  # sentences for the user
    cpus: float = 1.0  # of the cluster
    is_colocated: bool = False  # the model's workers prepare their own rows

    @property
    def device_workers(self) -> int:
        """Return the number of workers that reserve GPUs or other accelerators, at the start."""
        return sum(pool.initial for pool in self.pools if reserved(pool.num_gpus, pool.resources))

    def needs(self) -> dict[str, float]:
        """Return the resources without which the stream cannot go on: every pool at its minimum, and one Ray task."""
        total: dict[str, float] = {"CPU": self.task_cpus}
        for pool in self.pools:
            for name, amount in pool.needs().items():
                total[name] = total.get(name, 0) + amount * pool.minimum
        return total

    @property
    def gpus(self) -> int:
        """Return the most GPUs that the pools take together, rounded up to whole ones."""
        return math.ceil(sum(pool.num_gpus * pool.maximum for pool in self.pools) - CENT / 2)
