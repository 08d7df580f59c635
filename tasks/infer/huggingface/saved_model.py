"""The settings of models that transformers saved, and what models of the same use have in common."""

import tempfile
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from overnight.tasks.config.extras import require_extra
from overnight.tasks.infer.chat.settings import NumberOfTexts, Reasoning, Seed, Temperature
from overnight.tasks.infer.devices import Reservation
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint, Dtype, Model
from overnight.tasks.infer.predictor import Predictor, TorchPredictor

if TYPE_CHECKING:
    import torch

# Loaded models of this process that a worker uses, by `GeneratingModel.weights` and the versions of the files.
_models: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
OF_THE_WEIGHTS = {
    *(*Reservation.model_fields, "placement"),
    *("kind", "model", "revision", "trust_remote_code", "dtype", "exact_float32", "device_map", "max_memory"),
}
_folders: list[tempfile.TemporaryDirectory] = []  # of loaded models; the process removes them at its end


class SavedModel(Predictor):
    """The settings of a model that transformers saved: its place, and whether its code may run.

    A leaf adds `load`, which calls `checkpoint`.
    """

    model: Model
    revision: Annotated[
        str | None,
        Field(
            min_length=1,
            description="The commit, tag or branch of a hub model; default: the main branch. The run records its "
            "commit, and all workers use that commit.",
        ),
    ] = None
    trust_remote_code: Annotated[
        bool,
        Field(
            description="Runs the code that the model brings along, with the rights of the workers. A hub model needs "
            "a full commit as revision."
        ),
    ] = False

    def fingerprint(self) -> dict[str, str]:
        return model_location.fingerprint(self.model, self.revision, self.trust_remote_code)

    def limits_gpu_memory(self) -> bool:
        return True

    def hub_name(self) -> str | None:
        if not model_location.hub_name(self.model):
            return None
        return f"{self.model}@{self.revision}" if self.revision else self.model

    def hub_commit(self) -> str | None:
        return model_location.hub_commit(self.model, self.revision)

    def warnings(self) -> list[str]:
        if not self.trust_remote_code:
            return []
        return [f"{self.shown_name()}: trust_remote_code ran the code of {self.hub_name() or self.model}."]

    def checkpoint(self) -> Checkpoint:
        """Return the model as a `Checkpoint`, found but not yet loaded. Raise `JobError` if there is no such model."""
        return model_location.find(self.model, self.revision, self.trust_remote_code, self.pins)


class PretrainedPredictor(TorchPredictor, SavedModel):
    """A saved model with a number type; a leaf adds `kind`, its own settings and `load`."""

    dtype: Dtype = "float32"

    def imports(self) -> tuple[str, ...]:
        return model_location.IMPORTS


class Classifier(PretrainedPredictor):
    """A saved classifier.

    Out: `predicted_label` (string, from the model's id2label) and `confidence` (float32), one value per row. With
    `top_k` of more than one also `top_labels` (list of strings) and `top_confidences` (list of float32), the likeliest
    first. The confidences are those of transformers' pipelines: a sigmoid of each output for several labels, the
    outputs themselves for a regression, otherwise a softmax.
    """

    top_k: Annotated[
        PositiveInt, Field(description="The number of likeliest classes; more than one adds columns of lists.")
    ] = 1

    def outputs_made(self) -> list[str] | None:
        names = ["predicted_label", "confidence"]
        return [*names, "top_labels", "top_confidences"] if self.top_k > 1 else names

    def labels(self, scores: "torch.Tensor", names: Mapping[int, str]) -> dict[str, Any]:
        """Return the columns of rows with these `scores` (float32 N x C). Equally likely classes keep their order."""
        confidence, index = scores.sort(dim=-1, descending=True, stable=True)
        columns: dict[str, Any] = {
            "predicted_label": [names[number] for number in index[:, 0].tolist()],
            "confidence": confidence[:, 0].numpy(),
        }
        if self.top_k > 1:
            top_labels = []
            for numbers in index[:, : self.top_k].tolist():
                top_labels.append([names[number] for number in numbers])
            top_confidences = confidence[:, : self.top_k].tolist()
            columns["top_labels"] = pa.array(top_labels, pa.list_(pa.string()))
            columns["top_confidences"] = pa.array(top_confidences, pa.list_(pa.float32()))
        return columns


def confidences(logits: "torch.Tensor", config: Any) -> "torch.Tensor":
    """Return the confidence of each class (N x C) from a classifier's outputs, by the head that its config states."""
    if config.problem_type == "regression":
        return logits
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return logits.sigmoid()
    return logits.softmax(-1)


class GeneratingModel(PretrainedPredictor):
    """A saved model that generates texts. accelerate spreads it over devices if no single device can hold it."""

    temperature: Temperature = 0
    seed: Seed = 0
    num_return_sequences: NumberOfTexts = 1
    reasoning: Reasoning = False
    device_map: Annotated[
        Literal["auto", "balanced", "balanced_low_0", "sequential"] | dict[str, int | str] | None,
        Field(description="Spreads a model that no single device holds over a worker's devices, as accelerate does."),
    ] = None
    max_memory: Annotated[
        dict[int | str, int | str] | None,
        Field(description="For device_map: the limit of each device, by number, cpu or disk; for example {0: 70GiB}."),
    ] = None

    operational: ClassVar[tuple[str, ...]] = ("device_map", "max_memory")

    @model_validator(mode="after")
    def _devices_are_reserved(self) -> "GeneratingModel":
        count = sum(self.accelerators().values())
        if isinstance(self.device_map, str) and count < 1:
            raise ValueError(
                f"device_map: {self.device_map} spreads the model over the worker's accelerators, but it reserves "
                f"{count:g}. Set num_gpus or resources, or name a device for each part"
            )
        return self

    def libraries(self) -> tuple[str, ...]:
        return ("accelerate",) if self.device_map else ()

    def weights(self) -> str:
        """Return all settings of the loaded weights and their worker, as JSON."""
        return self.model_dump_json(include=OF_THE_WEIGHTS)

    def serves(self, later: Predictor) -> bool:
        return isinstance(later, GeneratingModel) and later.weights() == self.weights()

    def load_on_devices(self, checkpoint: Checkpoint, auto_class: Any) -> tuple[Any, "torch.device"]:
        """Return the model on its devices, in evaluation mode, and the device for its inputs.

        An earlier model of this process may have loaded the same weights.
        """
        device = self.torch_device()
        key = f"{self.weights()} {sorted(self.pins.items())}"
        model = _models.get(key)
        if model is None and self.device_map is None:
            model = checkpoint.weights(auto_class, self.dtype)[0].to(device)
        elif model is None:
            model = _spread(self, checkpoint, auto_class)
        _models[key] = model
        if self.device_map is None:
            return model, device
        import torch

        # the part that gets the tokens computes on the device of its hook, if its weights are offloaded
        hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
        device = getattr(hook, "execution_device", None)
        return model, model.device if device is None else torch.device(device)


def _spread(settings: GeneratingModel, checkpoint: Checkpoint, auto_class: Any) -> Any:
    """Return the model, spread over the devices of `device_map`."""
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
    return model
