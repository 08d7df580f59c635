"""Any Keras 3 model, on its torch or JAX backend.

In: `columns`, in the form of `array_io.py`, for the model's inputs in their order. Out: the model's outputs under the
names in `outputs`. Without these, a dict keeps its names, several outputs have the names of the model's layers, and a
single output is `output`. Loading a file runs none of its code: a model with lambda layers is refused. It needs
`overnight[keras]`, for the JAX backend `overnight[jax]`.
"""

import os
import sys
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import JobError
from overnight.tasks.infer.array_io import FileModel, Outputs, by_name, cast, in_calls
from overnight.tasks.infer.model_files import model_file
from overnight.tasks.infer.predictor import Predict


class KerasModel(FileModel):
    """Runs a Keras model."""

    kind: Literal["keras"] = "keras"
    outputs: Outputs = None
    backend: Annotated[Literal["torch", "jax"], Field(description="The library that Keras computes with.")] = "torch"

    def limits_gpu_memory(self) -> bool:
        return self.backend == "torch"

    def libraries(self) -> tuple[str, ...]:
        return ("keras", "jax") if self.backend == "jax" else ("keras",)

    def outputs_made(self) -> list[str] | None:
        return self.outputs

    def load(self) -> Predict:
        keras = self._keras()
        device = self._device()
        path = model_file(self.file, self.pins)
        try:
            with keras.device(device):
                model = keras.saving.load_model(path, compile=False)
        except Exception as error:
            raise JobError(
                f"{self.file}: expected a model as model.save writes it (.keras), found a file that cannot be loaded: "
                f"{error}",
                "infer",
            ) from error
        types = {value.name: value.dtype for value in model.inputs}
        self.require_columns(types)

        def call(arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
            inputs = []
            for array, (name, kind), column in zip(arrays, types.items(), self.columns, strict=True):
                inputs.append(cast(array, np.dtype(kind), name, column))
            result = model(inputs if len(inputs) > 1 else inputs[0], training=False)
            names = self.outputs
            if names is None and isinstance(result, list | tuple):
                names = model.output_names
            arrays_by_name = {}
            for name, output in by_name(result, names).items():
                arrays_by_name[name] = np.asarray(keras.ops.convert_to_numpy(output))
            return arrays_by_name

        def predict(batch: dict[str, np.ndarray]) -> dict[str, Any]:
            with keras.device(device):
                if self.backend != "torch":
                    return in_calls(batch, self.columns, call)
                import torch

                with torch.inference_mode():
                    return in_calls(batch, self.columns, call)

        return predict

    def _keras(self) -> Any:
        """Return Keras on the requested backend, which a process cannot change once it is chosen."""
        if "keras" not in sys.modules:
            os.environ["KERAS_BACKEND"] = self.backend
        if self.backend == "jax":
            require_extra("jax", f"{self.file}: backend: jax", "infer")
        keras: Any = require_extra("keras", f"{self.file}: kind: keras", "infer")
        if keras.backend.backend() != self.backend:
            raise JobError(
                f"{self.file}: expected Keras on {self.backend}, found it on {keras.backend.backend()} in this process "
                "already. Use one backend per job.",
                "infer",
            )
        return keras

    def _device(self) -> Any:
        """Return the device of its backend, in the form of `keras.device`."""
        if self.backend == "torch":
            return str(self.torch_device())
        import jax

        device = jax.local_devices(backend=None if self.accelerators() else "cpu")[0]
        if self.accelerators() and device.platform == "cpu":
            self.fall_back(f"jax {jax.__version__}")
        return device
