"""A model on its device, or spread over several by accelerate's `device_map` if no single device can hold it.

device_map: auto                      accelerate fills the worker's devices evenly, layer by layer
max_memory: {0: 70GiB, cpu: 100GiB}   limit of each; the rest goes to the CPU, then to the disk
"""

import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import Field

from overnight.tasks.config.extras import require_extra
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint, Dtype

if TYPE_CHECKING:
    import torch

DeviceMap = Annotated[
    Literal["auto", "balanced", "balanced_low_0", "sequential"] | dict[str, int | str] | None,
    Field(description="Spreads a model that no single device holds over a worker's devices, as accelerate does."),
]
MaxMemory = Annotated[
    dict[int | str, int | str] | None,
    Field(description="For device_map: the limit of each device, by number, cpu or disk; for example {0: 70GiB}."),
]

_folders: list[tempfile.TemporaryDirectory] = []  # of loaded models; the process removes them at its end


class DeviceMapSettings(Protocol):
    """The settings of a model that determine its devices and its number type."""

    @property
    def dtype(self) -> Dtype: ...
    @property
    def device_map(self) -> Any: ...
    @property
    def max_memory(self) -> Any: ...

    def torch_device(self) -> "torch.device": ...


def refuse_unreserved(device_map: Any, accelerators: Mapping[str, float]) -> None:
    """Raise `ValueError` if a strategy, such as `auto`, would use accelerators, but none is reserved."""
    count = sum(accelerators.values())
    if isinstance(device_map, str) and count < 1:
        raise ValueError(
            f"device_map: {device_map} spreads the model over the worker's accelerators, but it reserves {count:g}. "
            "Set num_gpus or resources, or name a device for each part"
        )


def load_on_devices(checkpoint: Checkpoint, auto_class: Any, settings: DeviceMapSettings) -> tuple[Any, "torch.device"]:
    """Load a model onto its devices. Return it in evaluation mode, and the device for its inputs."""
    device = settings.torch_device()
    if settings.device_map is None:
        model, _ = checkpoint.weights(auto_class, settings.dtype)
        return model.to(device), device
    require_extra("accelerate", f"model {checkpoint.written}: device_map", "infer")
    import torch

    folder = tempfile.TemporaryDirectory(prefix="overnight-offload-")  # for the parts on the disk
    _folders.append(folder)
    model, _ = checkpoint.weights(
        auto_class,
        settings.dtype,
        device_map=settings.device_map,
        max_memory=settings.max_memory,
        offload_folder=folder.name,
    )
    # the part that gets the tokens computes on the device of its hook, if its weights are offloaded
    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    return model, model.device if device is None else torch.device(device)
