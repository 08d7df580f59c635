"""The device that a worker computes on: the accelerator that it reserves, or its CPUs if it reserves none.

Each library, such as PyTorch, looks for the reserved accelerator on the node. If it finds none, that is an error,
unless the model's `cpu_fallback` allows the CPU: no model runs on the CPU unnoticed, beside an idle device.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.tasks.errors import JobError

if TYPE_CHECKING:
    import torch


def setting(accelerator: str) -> str:
    """Return the job file's setting that reserves `accelerator`: `num_gpus`, or for example `resources: NPU`."""
    return "num_gpus" if accelerator == "GPU" else f"resources: {accelerator}"


def not_found(accelerators: Mapping[str, float], library: str) -> JobError:
    """Return the error for a `library` that finds no accelerator here, although the worker reserves `accelerators`."""
    name = next(iter(accelerators))
    return JobError(
        f"{_finds_none(accelerators, library)} Install its build for that accelerator there, set {setting(name)}: 0, "
        "or allow the CPU with cpu_fallback: true.",
        "infer",
    )


def falls_back(accelerators: Mapping[str, float], library: str) -> str:
    """Return the warning about a model that runs on the CPU because `library` finds no accelerator here."""
    return f"{_finds_none(accelerators, library)} The model runs on the CPU, because cpu_fallback allows it."


def _finds_none(accelerators: Mapping[str, float], library: str) -> str:
    name, amount = next(iter(accelerators.items()))
    return f"{setting(name)}: {amount:g} reserves an accelerator, but {library} finds none on this node."


def torch_accelerator() -> "torch.device | None":
    """Return the accelerator that PyTorch finds on this node, or None."""
    import torch

    return torch.accelerator.current_accelerator(check_available=True)


def peak_memory() -> int:
    """Return the most bytes that PyTorch's tensors have taken on one accelerator of this process, 0 if unknown."""
    torch = sys.modules.get("torch")
    device = torch_accelerator() if torch else None
    if torch is None or device is None:
        return 0
    module = torch.get_device_module(device)
    if not hasattr(module, "max_memory_allocated"):
        return 0
    return max(module.max_memory_allocated(index) for index in range(module.device_count()))


def limit_memory(device: "torch.device", size: int) -> None:
    """Let PyTorch take at most `size` bytes on each accelerator of this process; more is then out of memory."""
    import torch

    module = torch.get_device_module(device)
    if not (hasattr(module, "set_per_process_memory_fraction") and hasattr(module, "mem_get_info")):
        raise JobError(
            f"gpu_memory: expected a device whose memory PyTorch can limit, found {device.type}. Leave it out.", "infer"
        )
    for index in range(module.device_count()):
        _, total = module.mem_get_info(index)
        module.set_per_process_memory_fraction(share_of_memory(size, total), index)


def share_of_memory(size: int, total: int) -> float:
    """Return `size` as a share of the `total` bytes of a device. Raise `JobError` if it is more than these."""
    if size > total:
        raise JobError(
            f"gpu_memory: expected at most the device's {total / 2**30:.1f} GiB, found {size / 2**30:.1f} GiB. Lower "
            "it, or reserve a larger device with accelerator_type.",
            "infer",
        )
    return size / total
