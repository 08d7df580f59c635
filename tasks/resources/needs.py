"""The resources that one worker of a model needs, from the job file, as Ray's resource name -> amount."""

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Protocol

CENT = 0.01  # of a CPU or GPU: the smallest difference that plans distinguish
ANY_ACCELERATOR = CENT / 10  # of the resource that represents a node's type of accelerator in Ray

# Ray's names. GPU includes AMD's, Intel's and Apple's as well. Only this file lists them.
ACCELERATORS = frozenset({"GPU", "NPU", "HPU", "TPU", "RBLN", "FURIOSA", "MBLT", "TTNPU", "neuron_cores"})

Resources = Mapping[str, float]  # Ray's resource name -> amount
Nodes = Sequence[Resources]  # the resources of each node


class Needs(Protocol):
    """The settings of a model that a plan reads: the number of its workers, and the reservation of each.

    `workers` is a number, or (minimum, maximum); None is as many as fit. If `num_cpus` is None, the
    planner decides. `memory` is in bytes.
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
    """Return the reservation of one worker that the planner may not make smaller."""
    return reservation(model.num_cpus or 0, model.num_gpus, model.memory, model.accelerator_type, model.resources)


def reservation(
    num_cpus: float, num_gpus: float, memory: int | None, accelerator_type: str | None, resources: Resources
) -> dict[str, float]:
    """Return a reservation by Ray's names, without amounts of zero."""
    amounts = {"CPU": num_cpus, "GPU": num_gpus, "memory": float(memory or 0), **resources}
    if accelerator_type:
        amounts[f"accelerator_type:{accelerator_type}"] = ANY_ACCELERATOR
    return {name: amount for name, amount in amounts.items() if amount}


def reserved(num_gpus: float, resources: Resources) -> dict[str, float]:
    """Return the accelerators that a worker reserves; empty if it computes on its CPUs."""
    amounts = {"GPU": num_gpus, **resources}
    return {name: amount for name, amount in amounts.items() if name in ACCELERATORS and amount}


def sum_of(nodes: Nodes) -> dict[str, float]:
    """Return the resources of all nodes together."""
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in node.items():
            total[name] = total.get(name, 0) + amount
    return total


def amounts_of(needs: Resources) -> str:
    """Return the amounts of resources as text for messages, see `amount_of`."""
    return ", ".join(starmap(amount_of, needs.items()))


def amount_of(name: str, amount: float) -> str:
    """Return an amount of Ray's resource `name` as text for messages, such as `2 CPU` or `1.5 GiB of memory`."""
    if name == "memory":
        return f"{amount / 2**30:.1f} GiB of memory"
    if name.startswith("accelerator_type:"):
        kind = name.split(":")[1]
        return f"accelerator {kind}" if amount else f"no {kind}"
    return f"{amount:g} {name}"
