"""The resources that one worker of a model needs, from the job file."""

from typing import Protocol

from overnight.tasks.resources.plan import ANY_ACCELERATOR


class Needs(Protocol):
    """The settings of a model that a plan reads: the number of its workers, and the reservation of each.

    `workers` is a number, or (minimum, maximum); None is as many as fit. If `num_cpus` is None, the planner decides.
    `memory` is in bytes. `resources` has Ray's custom resources, as name -> amount. `placement`, the place of
    preprocessing, is `auto`, `separate` or `colocated`. `name` and `kind` identify the model in messages.
    """

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


def fixed_needs(model: Needs) -> dict[str, float]:
    """Return the reservation of one worker that the planner may not make smaller: Ray's resource name -> amount."""
    needs = {"CPU": model.num_cpus or 0, "GPU": model.num_gpus, "memory": float(model.memory or 0), **model.resources}
    if model.accelerator_type:
        needs[f"accelerator_type:{model.accelerator_type}"] = ANY_ACCELERATOR
    return {name: amount for name, amount in needs.items() if amount}
