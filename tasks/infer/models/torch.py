"""Any PyTorch model: an exported or scripted program, or a module of the user's own with its weights.

In: `columns`, in the form of `array_io.py`, as tensors of their own types, on the worker's device. Out: the model's
result, a tensor, several tensors or a dict of them, under the names in `outputs`. Without these, a dict or a named
tuple keeps its names, and a single tensor is `output`. bfloat16, float16 and float8 are returned as float32.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from overnight.tasks.config.user_code import Target, fingerprint, import_target, made
from overnight.tasks.config.user_signature import UserCode
from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.array_io import MODEL_IN_A_FILE, Columns, Outputs, by_name, in_calls
from overnight.tasks.infer.exported_program import require_data
from overnight.tasks.infer.model_files import ModelFile, file_versions, model_file
from overnight.tasks.infer.predictor import Batch, Offer, Predict, TorchPredictor
from overnight.tasks.storage.argument_files import argument_files

if TYPE_CHECKING:
    import torch

EXPORTED = ".pt2"
ONLY_WEIGHTS = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # PyTorch reads it at each load


class TorchModel(TorchPredictor):
    """Runs a PyTorch model: an exported program, a TorchScript program, or a module of yours."""

    kind: Literal["torch"] = "torch"
    offer: ClassVar[Offer] = MODEL_IN_A_FILE
    program: Annotated[ModelFile | None, Field(description="A .pt2 file, or a TorchScript file.")] = None
    module: Annotated[Target | None, Field(description="module:Class of a torch.nn.Module, in place of program.")] = (
        None
    )
    kwargs: Annotated[dict[str, Any], Field(description="Arguments of the module's `__init__`.")] = {}
    weights: Annotated[
        ModelFile | None, Field(description="The module's state dict: a .safetensors file, or one of torch.save.")
    ] = None
    columns: Columns
    outputs: Outputs = None
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        Field(description="The number type of weights and of inputs that are not whole numbers; default: unchanged."),
    ] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "TorchModel":
        if (self.program is None) == (self.module is None):
            raise ValueError("expected program, a file, or module, a class, and not both")
        if self.program and (self.kwargs or self.weights or self.dtype):
            raise ValueError("kwargs, weights and dtype are for module: a program has its own")
        return self

    def limits_gpu_memory(self) -> bool:
        return True

    def inputs(self) -> list[str]:
        return self.columns

    def imports(self) -> tuple[str, ...]:
        return ("torch",)

    def code(self) -> list[UserCode]:
        return [UserCode(self.module, "infer", self.kwargs, given=0)] if self.module else []

    def fingerprint(self) -> dict[str, str]:
        versions = fingerprint(self.module, "infer") if self.module else {}
        file = self.program or self.weights
        if file:
            versions |= file_versions(file)
        return versions | argument_files(self.kwargs)

    def outputs_made(self) -> list[str] | None:
        return self.outputs

    def load(self) -> Predict:
        import torch

        device = self.torch_device()
        dtype = getattr(torch, self.dtype) if self.dtype else None
        run = self._program(device) if self.program else self._module(device, dtype)

        def call(arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
            inputs = []
            for array in arrays:
                tensor = torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device)
                if dtype is not None and tensor.is_floating_point():
                    tensor = tensor.to(dtype)
                inputs.append(tensor)
            outputs = {}
            for name, output in by_name(run(*inputs), self.outputs).items():
                outputs[name] = _array(output)
            return outputs

        def predict(batch: Batch) -> dict:
            with torch.inference_mode():
                return in_calls(batch, self.columns, call)

        return predict

    def _program(self, device: "torch.device") -> Any:
        import torch

        assert self.program
        path = model_file(self.program, self.pins)
        try:
            if path.suffix == EXPORTED:
                from torch.export.passes import move_to_device_pass

                require_data(path)
                with _only_weights():
                    program = torch.export.load(path)
                if device.type != "cpu":
                    program = move_to_device_pass(program, device)
                return program.module()
            return torch.jit.load(path, map_location=device).eval()
        except Exception as error:
            function = "torch.export.save" if path.suffix == EXPORTED else "torch.jit.save"
            raise JobError(
                f"{self.program}: expected a program as {function} writes it, found a file that cannot be loaded: "
                f"{error}",
                "infer",
            ) from error

    def _module(self, device: "torch.device", dtype: "torch.dtype | None") -> Any:
        import torch
        from safetensors.torch import load_file

        assert self.module
        target = import_target(self.module, "infer")
        module = made(self.module, target, self.kwargs, "infer", verb="raised")
        if not isinstance(module, torch.nn.Module):
            raise JobError(f"{self.module}: expected a torch.nn.Module, found {type(module).__name__}.", "infer")
        if self.weights:
            path = model_file(self.weights, self.pins)
            try:
                if path.suffix == ".safetensors":
                    state = load_file(path)
                else:
                    state = torch.load(path, map_location="cpu", weights_only=True)
                module.load_state_dict(state)
            except Exception as error:
                raise JobError(f"{self.weights}: not the weights of {self.module}: {error}", "infer") from error
        return module.eval().to(device=device, dtype=dtype)


@contextlib.contextmanager
def _only_weights() -> Iterator[None]:
    """Limit PyTorch's unpickling to tensors and plain values: it would unpickle code in an exported program, too."""
    before = os.environ.get(ONLY_WEIGHTS)
    os.environ[ONLY_WEIGHTS] = "1"
    try:
        yield
    finally:
        os.environ.pop(ONLY_WEIGHTS)
        if before is not None:
            os.environ[ONLY_WEIGHTS] = before


def _array(output: Any) -> np.ndarray:
    import torch

    if not isinstance(output, torch.Tensor):
        raise ContractError(f"expected tensors from the model, found {type(output).__name__}.", "infer")
    if output.is_quantized:
        output = output.dequantize()
    if output.layout != torch.strided:
        output = output.to_dense()
    if output.dtype.is_floating_point and output.dtype.itemsize < 4:
        output = output.float()
    array: np.ndarray = output.detach().cpu().numpy()
    return array
