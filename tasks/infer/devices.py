"""What a worker reserves, and the device that it computes on: the reserved accelerator, or its CPUs without one.

Each library, such as PyTorch, looks for the reserved accelerator on the node. If it finds none, that is an error,
unless the model's `cpu_fallback` allows the CPU: no model runs on the CPU unnoticed, beside an idle device.
"""

import abc
import sys
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import ByteSize, Field, PositiveInt, PrivateAttr, model_validator

from overnight.tasks.config.settings import AdjustableFlag, Leaf
from overnight.tasks.errors import JobError
from overnight.tasks.resources.needs import reserved

if TYPE_CHECKING:
    import torch


class Reservation(Leaf):
    """The settings of what a worker of a model reserves, and its device."""

    workers: Annotated[
        PositiveInt | tuple[PositiveInt, PositiveInt] | None,
        Field(description="Copies of the model: a number, or [min, max] to scale between; default: as many as fit."),
    ] = None
    num_cpus: Annotated[
        float | None, Field(ge=0, description="CPUs that a worker reserves; default: the planner decides.")
    ] = None
    num_gpus: Annotated[float, Field(ge=0, description="GPUs that a worker reserves.")] = 0
    gpu_memory: Annotated[
        ByteSize | None,
        Field(
            gt=0,
            examples=["8GB"],
            description="The most memory that a worker takes on each of its GPUs or other accelerators, where several "
            "workers share one. For models of PyTorch, python and vllm.",
        ),
    ] = None
    memory: Annotated[int | None, Field(gt=0, description="Bytes of memory that a worker reserves.")] = None
    accelerator_type: Annotated[str | None, Field(description="A Ray accelerator type, for example A100.")] = None
    resources: Annotated[
        dict[str, float],
        Field(
            description="Custom Ray resources that a worker reserves. Under Ray's names for accelerators (NPU, HPU, "
            "TPU, ...) the model runs on one; any other name, a licence for example, is only counted and does not "
            "affect the device."
        ),
    ] = {}
    cpu_fallback: Annotated[
        AdjustableFlag,
        Field(
            description="Runs the model on the CPU, with a warning in the receipt, on a node whose library finds no "
            "accelerator although the worker reserves one. Without it, that is an error."
        ),
    ] = False

    operational: ClassVar[tuple[str, ...]] = (
        *("workers", "num_cpus", "num_gpus", "gpu_memory", "memory", "accelerator_type", "resources", "cpu_fallback"),
    )

    _fallback: str | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _workers_in_order(self) -> "Reservation":
        if isinstance(self.workers, tuple) and self.workers[0] > self.workers[1]:
            raise ValueError(f"workers: expected [min, max], found {list(self.workers)}")
        return self

    @model_validator(mode="after")
    def _gpu_memory_is_obeyed(self) -> "Reservation":
        if self.gpu_memory and not self.limits_gpu_memory():
            raise ValueError(f"gpu_memory: kind {self.kind} cannot limit the memory of an accelerator. Leave it out")
        return self

    def limits_gpu_memory(self) -> bool:
        """Return True if `load` keeps the worker within `gpu_memory`."""
        return False

    @abc.abstractmethod
    def shown_name(self) -> str:
        """Return the name of the model for messages."""

    def accelerators(self) -> dict[str, float]:
        """Return the accelerators that a worker reserves, as Ray's resource name -> amount; empty for CPUs alone."""
        return reserved(self.num_gpus, self.resources)

    def torch_device(self) -> "torch.device":
        """Return the device on which a torch model runs: the accelerator that the worker reserves, otherwise the CPU.

        Limit torch's memory there to `gpu_memory`. Raise `JobError` if it finds no accelerator, as `fall_back` does.
        """
        import torch

        if not self.accelerators():
            return torch.device("cpu")
        device = torch_accelerator()
        if device is None:
            self.fall_back(f"torch {torch.__version__}")
            return torch.device("cpu")
        if self.gpu_memory:
            limit_memory(device, self.gpu_memory)
        return device

    def fall_back(self, library: str) -> None:
        """Record that the model runs on the CPU, because `library` does not find the accelerator that it reserves.

        `library` is a name with a version. Raise `JobError` if `cpu_fallback` does not allow the CPU.
        """
        accelerator, amount = next(iter(self.accelerators().items()))
        name = setting(accelerator)
        problem = f"{name}: {amount:g} reserves an accelerator, but {library} finds none on this node."
        if not self.cpu_fallback:
            raise JobError(
                f"{problem} Install its build for that accelerator there, set {name}: 0, or allow the CPU with "
                "cpu_fallback: true.",
                "infer",
            )
        self._fallback = f"{self.shown_name()}: {problem} The model runs on the CPU, because cpu_fallback allows it."

    @property
    def fallback(self) -> str | None:
        """Return the warning about the CPU in place of a reserved accelerator; None before `load` and without one."""
        return self._fallback


def setting(accelerator: str) -> str:
    """Return the job file's setting that reserves `accelerator`: `num_gpus`, or for example `resources: NPU`."""
    return "num_gpus" if accelerator == "GPU" else f"resources: {accelerator}"


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
    return max(map(module.max_memory_allocated, range(module.device_count())))


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
