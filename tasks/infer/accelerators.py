"""What a worker computes on: the accelerator that it reserves, whoever makes it, else its CPUs.

Which reservations are of accelerators is said here alone. Each library then looks for one among what it finds on the
node, and what is reserved and not found is an error: a model never runs on the CPU beside an idle device.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.tasks.errors import JobError

if TYPE_CHECKING:
    import torch

# Ray's names. Under GPU it counts AMD's, Intel's and Apple's as well.
ACCELERATORS = frozenset({"GPU", "NPU", "HPU", "TPU", "RBLN", "FURIOSA", "MBLT", "TTNPU", "neuron_cores"})


def reserved(num_gpus: float, resources: Mapping[str, float]) -> dict[str, float]:
    """Those among a worker's reservations, by Ray's names; empty where it computes on CPUs."""
    asked = {"GPU": num_gpus, **resources}
    return {name: amount for name, amount in asked.items() if name in ACCELERATORS and amount}


def setting(accelerator: str) -> str:
    """What reserves it in a job file."""
    return "num_gpus" if accelerator == "GPU" else f"resources: {accelerator}"


def not_found(asked: Mapping[str, float], library: str) -> JobError:
    """For a library, named with its version, that has nothing to reach them by."""
    name, amount = next(iter(asked.items()))
    return JobError(
        f"{setting(name)}: {amount:g} asks for an accelerator, but {library} finds none on this node. Install its "
        f"build for that accelerator there, or set {setting(name)}: 0.",
        "infer",
    )


def torch_device(asked: Mapping[str, float]) -> "torch.device":
    """Torch's device for them. Raises `JobError` where it finds none."""
    import torch

    if not asked:
        return torch.device("cpu")
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        raise not_found(asked, f"torch {torch.__version__}")
    return device
