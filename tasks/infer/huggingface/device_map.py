"""A model on its device, or spread over several by accelerate's `device_map`: one larger than any of them.

    num_gpus: 2                           a worker's, of one node; or resources: {NPU: 2}
    device_map: auto                      accelerate fills them evenly, layer by layer
    max_memory: {0: 70GiB, cpu: 100GiB}   what each may hold; what is left goes to the CPU, then to the disk

`device_map` may also name the place of each part (`{model.embed_tokens: 0, model.layers.0: 1, ..., lm_head: cpu}`),
disk included: its weights are then read from files whenever they are needed.
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
    Field(description="For device_map: what a device, by number, cpu or disk, may hold; for example {0: 70GiB}."),
]


_folders: list[tempfile.TemporaryDirectory] = []  # as long as their models: they go with the process


class DeviceMapSettings(Protocol):
    """The settings that say where a model is to be."""

    @property
    def dtype(self) -> Dtype: ...
    @property
    def device_map(self) -> Any: ...
    @property
    def max_memory(self) -> Any: ...

    def torch_device(self) -> "torch.device": ...


def refuse_unreserved(device_map: Any, accelerators: Mapping[str, float]) -> None:
    """ValueError for a map that would take devices which the worker did not reserve."""
    if isinstance(device_map, str) and (count := sum(accelerators.values())) < 1:
        raise ValueError(
            f"device_map: {device_map} spreads the model over the worker's accelerators, and it reserves {count:g}. "
            "Set num_gpus or resources, or name a device for each part"
        )


def load_on_devices(checkpoint: Checkpoint, auto_class: Any, settings: DeviceMapSettings) -> tuple[Any, "torch.device"]:
    """The model in evaluation mode, and the device to which its inputs go."""
    device = settings.torch_device()
    if settings.device_map is None:
        model, _ = checkpoint.weights(auto_class, settings.dtype)
        return model.to(device), device
    require_extra("accelerate", f"model {checkpoint.written}: device_map", "infer")
    folder = tempfile.TemporaryDirectory(prefix="overnight-offload-")  # for the parts on the disk
    _folders.append(folder)
    model, _ = checkpoint.weights(
        auto_class,
        settings.dtype,
        device_map=settings.device_map,
        max_memory=settings.max_memory,
        offload_folder=folder.name,
    )
    return model, _first_device(model)


def _first_device(model: Any) -> "torch.device":
    """Of the part that sees tokens; one whose weights are elsewhere computes on its hook's device."""
    import torch

    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    place = getattr(hook, "execution_device", None)
    return model.device if place is None else torch.device(place)
