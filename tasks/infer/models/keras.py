"""Any Keras 3 model, on its torch or JAX backend.

In: `columns`, in the form of `array_io.py`, for the model's inputs in their order. Out: the model's outputs under the
names in `outputs`. Without these, a dict keeps its names, several outputs have the names of the model's layers, and a
single output is `output`. Loading a file runs none of
its code: a model with lambda layers is refused. It needs `pip install 'overnight[keras]'`, for the JAX backend
`'overnight[jax]'`.
"""

import os
import sys
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import JobError
from overnight.tasks.infer.array_io import Columns, Outputs, by_name, cast, in_calls
from overnight.tasks.infer.model_files import ModelFile, file_versions, model_file
from overnight.tasks.infer.predictor import Predict, Predictor


class KerasModel(Predictor):
    """Runs a Keras model."""

    kind: Literal["keras"] = "keras"
    file: ModelFile
    columns: Columns
    outputs: Outputs = None
    backend: Annotated[Literal["torch", "jax"], Field(description="The library that Keras computes with.")] = "torch"

    def limits_gpu_memory(self) -> bool:
        return self.backend == "torch"

    def inputs(self) -> list[str]:
        return self.columns

    def libraries(self) -> tuple[str, ...]:
        return ("keras", *(["jax"] if self.backend == "jax" else []))

    def fingerprint(self) -> dict[str, str]:
        return file_versions(self.file)

    def outputs_made(self) -> list[str] | None:
        return self.outputs

    def load(self) -> Predict:
        keras = self._keras()
        device = self._device()
        with keras.device(device):
            model = self._model(keras)
        if len(model.inputs) != len(self.columns):
            wanted = ", ".join(f"{one.name} ({one.dtype})" for one in model.inputs)
            raise JobError(
                f"{self.file}: columns: expected one for each of its inputs, {wanted}, found "
                f"{', '.join(self.columns)}.",
                "infer",
            )

        def call(arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
            given = [
                cast(array, np.dtype(one.dtype), one.name, column)
                for array, one, column in zip(arrays, model.inputs, self.columns, strict=True)
            ]
            returned = model(given if len(given) > 1 else given[0], training=False)
            is_list = isinstance(returned, list | tuple)
            made = by_name(returned, self.outputs or (model.output_names if is_list else None))
            return {name: np.asarray(keras.ops.convert_to_numpy(found)) for name, found in made.items()}

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

        asked = self.accelerators()
        device = jax.local_devices(backend=None if asked else "cpu")[0]
        if asked and device.platform == "cpu":
            self.fall_back(f"jax {jax.__version__}")
        return device

    def _model(self, keras: Any) -> Any:
        path = model_file(self.file, self.pins)
        try:
            return keras.saving.load_model(path, compile=False)
        except Exception as error:
            raise JobError(
                f"{self.file}: expected a model as model.save writes it (.keras), found a file that cannot be loaded: "
                f"{error}",
                "infer",
            ) from error
