"""A model on its device, or, if no single device can hold it, spread over several by accelerate's `device_map`.

    num_gpus: 2                           per worker, on one node; or resources: {NPU: 2}
    device_map: auto                      accelerate fills them evenly, layer by layer
    max_memory: {0: 70GiB, cpu: 100GiB}   limit of each; the rest goes to the CPU, then to the disk

`device_map` may also name the place of each part (`{model.embed_tokens: 0, model.layers.0: 1, ..., lm_head: cpu}`). If
that is `disk`, the part's weights are read from files at each use.
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


# temporary folders of loaded models; the process removes them at its end
_folders: list[tempfile.TemporaryDirectory] = []


class DeviceMapSettings(Protocol):
    """The settings of a model that determine its devices and its number type.

    `dtype` is the number type of the weights. `device_map` spreads the model over several devices, as in transformers;
    None puts it on `torch_device()` alone. `max_memory` limits what `device_map` puts on each device; None sets no
    limit.
    """

    @property
    def dtype(self) -> Dtype: ...
    @property
    def device_map(self) -> Any: ...
    @property
    def max_memory(self) -> Any: ...

    def torch_device(self) -> "torch.device": ...


def refuse_unreserved(device_map: Any, accelerators: Mapping[str, float]) -> None:
    """Raise `ValueError` if `device_map` would use accelerators, but the worker reserves less than one.

    That is so if it names a strategy, such as `auto`. A dict that names a device for each part is not checked, and None
    uses no `device_map`. `accelerators` has the reserved ones: Ray's resource name -> amount.
    """
    if isinstance(device_map, str) and (count := sum(accelerators.values())) < 1:
        raise ValueError(
            f"device_map: {device_map} spreads the model over the worker's accelerators, but it reserves {count:g}. "
            "Set num_gpus or resources, or name a device for each part"
        )


def load_on_devices(checkpoint: Checkpoint, auto_class: Any, settings: DeviceMapSettings) -> tuple[Any, "torch.device"]:
    """Load a model onto its devices. Return it in evaluation mode, and the device for its inputs.

    `auto_class` is the class of transformers that loads the model. `settings` determines the devices. Raise `JobError`
    if the model cannot be loaded, an accelerator is not found, or the library accelerate is missing for a `device_map`.
    """
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
    """Return the device of the part of the model that gets the tokens.

    If the weights of that part are offloaded, it computes on the device of its hook.
    """
    import torch

    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    place = getattr(hook, "execution_device", None)
    return model.device if place is None else torch.device(place)
