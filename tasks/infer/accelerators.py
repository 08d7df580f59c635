"""The devices of a worker: the accelerator that it reserves, of any maker, otherwise its CPUs.

Only this file lists which reservations are accelerators. Each library then looks for one on the node. A reserved
accelerator that is not found is an error: a model never runs on the CPU beside an idle device.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.tasks.errors import JobError

if TYPE_CHECKING:
    import torch

# Ray's names. GPU includes AMD's, Intel's and Apple's as well.
ACCELERATORS = frozenset({"GPU", "NPU", "HPU", "TPU", "RBLN", "FURIOSA", "MBLT", "TTNPU", "neuron_cores"})


def reserved(num_gpus: float, resources: Mapping[str, float]) -> dict[str, float]:
    """Return the accelerators among a worker's reservations, by Ray's names; empty if it computes on CPUs."""
    asked = {"GPU": num_gpus, **resources}
    return {name: amount for name, amount in asked.items() if name in ACCELERATORS and amount}


def setting(accelerator: str) -> str:
    """Return the setting that reserves it in a job file."""
    return "num_gpus" if accelerator == "GPU" else f"resources: {accelerator}"


def not_found(asked: Mapping[str, float], library: str) -> JobError:
    """Return the error for a library, named with its version, that finds none of the reserved accelerators."""
    name, amount = next(iter(asked.items()))
    return JobError(
        f"{setting(name)}: {amount:g} reserves an accelerator, but {library} finds none on this node. Install its "
        f"build for that accelerator there, or set {setting(name)}: 0.",
        "infer",
    )


def torch_device(asked: Mapping[str, float]) -> "torch.device":
    """Return Torch's device for the reserved accelerators. Raise `JobError` if Torch finds none."""
    import torch

    if not asked:
        return torch.device("cpu")
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        raise not_found(asked, f"torch {torch.__version__}")
    return device
