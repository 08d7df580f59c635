"""Which of a worker's reservations are accelerators. Only this file lists them."""

from collections.abc import Mapping

# Ray's names. GPU includes AMD's, Intel's and Apple's as well.
ACCELERATORS = frozenset({"GPU", "NPU", "HPU", "TPU", "RBLN", "FURIOSA", "MBLT", "TTNPU", "neuron_cores"})


def reserved(num_gpus: float, resources: Mapping[str, float]) -> dict[str, float]:
    """Return the accelerators that a worker reserves, as Ray's resource name -> amount; empty if there are none.

    `resources` has the worker's custom resources, such as `{"NPU": 1}`. Resources that are not accelerators are left
    out. A worker without an accelerator computes on its CPUs.
    """
    asked = {"GPU": num_gpus, **resources}
    return {name: amount for name, amount in asked.items() if name in ACCELERATORS and amount}
