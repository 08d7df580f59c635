"""The device that a worker computes on: the accelerator that it reserves, or its CPUs if it reserves none.

Only this file lists which reservations are accelerators. Each library, such as PyTorch, looks for the reserved
accelerator on the node. If it finds none, that is an error: a model never runs on the CPU beside an idle device.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.tasks.errors import JobError

if TYPE_CHECKING:
    import torch

# Ray's names. GPU includes AMD's, Intel's and Apple's as well.
ACCELERATORS = frozenset({"GPU", "NPU", "HPU", "TPU", "RBLN", "FURIOSA", "MBLT", "TTNPU", "neuron_cores"})


def reserved(num_gpus: float, resources: Mapping[str, float]) -> dict[str, float]:
    """Return the accelerators that a worker reserves, as Ray's resource name -> amount; empty if there are none.

    `resources` has the worker's custom resources, such as `{"NPU": 1}`. Resources that are not accelerators are left
    out. A worker without an accelerator computes on its CPUs.
    """
    asked = {"GPU": num_gpus, **resources}
    return {name: amount for name, amount in asked.items() if name in ACCELERATORS and amount}


def setting(accelerator: str) -> str:
    """Return the job file's setting that reserves `accelerator`: `num_gpus`, or for example `resources: NPU`."""
    return "num_gpus" if accelerator == "GPU" else f"resources: {accelerator}"


def not_found(asked: Mapping[str, float], library: str) -> JobError:
    """Return the error for a library that finds no accelerator on this node, although the worker reserves one.

    `asked` has the reserved accelerators, as Ray's resource name -> amount. The message names the first of them, and
    `library`, a name with a version such as `torch 2.9.0`.
    """
    name, amount = next(iter(asked.items()))
    return JobError(
        f"{setting(name)}: {amount:g} reserves an accelerator, but {library} finds none on this node. Install its "
        f"build for that accelerator there, or set {setting(name)}: 0.",
        "infer",
    )


def torch_device(asked: Mapping[str, float]) -> "torch.device":
    """Return PyTorch's device for a worker that reserves the accelerators `asked`; the CPU if `asked` is empty.

    `asked` is Ray's resource name -> amount. Raise `JobError` if PyTorch finds no accelerator on this node, although
    `asked` has one.
    """
    import torch

    if not asked:
        return torch.device("cpu")
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        raise not_found(asked, f"torch {torch.__version__}")
    return device
