"""Any PyTorch model: an exported or scripted program, or a module of the user's own with its weights.

    program: scorer.pt2                  torch.export.save, or torch.jit.save for other name endings
    module: my_models:Scorer             a torch.nn.Module, made with `kwargs`
    weights: scorer.safetensors          its state dict; torch.save's is read without running code

In: `columns`, in the form of `array_io.py`, as tensors of their own types, on the worker's device. Out: the model's
result, a tensor, several tensors or a dict of them, under the names in `outputs`. Without these, a dict or a named
tuple keeps its names, and a single tensor is `output`. bfloat16, float16 and float8 are returned as float32.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from overnight.tasks.config.user_code import Target, fingerprint, import_target, made
from overnight.tasks.config.user_signature import UserCode
from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.array_io import Columns, Outputs, by_name, in_calls
from overnight.tasks.infer.exported_program import require_data
from overnight.tasks.infer.model_files import ModelFile, file_versions, model_file
from overnight.tasks.infer.predictor import Batch, Predict, TorchPredictor
from overnight.tasks.storage.argument_files import argument_files

if TYPE_CHECKING:
    import torch

EXPORTED = ".pt2"
ONLY_WEIGHTS = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # PyTorch reads it at each load


class TorchModel(TorchPredictor):
    """Runs a PyTorch model: an exported program, a TorchScript program, or a module of yours."""

    kind: Literal["torch"] = "torch"
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
        code = fingerprint(self.module, "infer") if self.module else {}
        written = self.program or self.weights
        return code | (file_versions(written) if written else {}) | argument_files(self.kwargs)

    def outputs_made(self) -> list[str] | None:
        return self.outputs

    def load(self) -> Predict:
        import torch

        device = self.torch_device()
        run = self._program(device) if self.program else self._module(device)
        number = getattr(torch, self.dtype) if self.dtype else None

        def call(arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
            given = [torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device) for array in arrays]
            if number is not None:
                given = [one.to(number) if one.is_floating_point() else one for one in given]
            return {name: _array(found) for name, found in by_name(run(*given), self.outputs).items()}

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
                    exported = torch.export.load(path)
                return (exported if device.type == "cpu" else move_to_device_pass(exported, device)).module()
            return torch.jit.load(path, map_location=device).eval()
        except Exception as error:
            how = "torch.export.save" if path.suffix == EXPORTED else "torch.jit.save"
            raise JobError(
                f"{self.program}: expected a program as {how} writes it, found a file that cannot be loaded: {error}",
                "infer",
            ) from error

    def _module(self, device: "torch.device") -> Any:
        import torch

        assert self.module
        found = import_target(self.module, "infer")
        module = made(self.module, found, self.kwargs, "infer", verb="raised")
        if not isinstance(module, torch.nn.Module):
            raise JobError(f"{self.module}: expected a torch.nn.Module, found {type(module).__name__}.", "infer")
        if self.weights:
            try:
                module.load_state_dict(_state(model_file(self.weights, self.pins)))
            except JobError:
                raise
            except Exception as error:
                raise JobError(f"{self.weights}: not the weights of {self.module}: {error}", "infer") from error
        return module.eval().to(device=device, dtype=getattr(torch, self.dtype) if self.dtype else None)


@contextlib.contextmanager
def _only_weights() -> Iterator[None]:
    """Limit PyTorch's unpickling to tensors and plain values, while the context is open.

    Without this limit, it would unpickle anything in an exported program, code too.
    """
    before = os.environ.get(ONLY_WEIGHTS)
    os.environ[ONLY_WEIGHTS] = "1"
    try:
        yield
    finally:
        os.environ.pop(ONLY_WEIGHTS)
        if before is not None:
            os.environ[ONLY_WEIGHTS] = before


def _state(path: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        return dict(load_file(path))
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def _array(found: Any) -> np.ndarray:
    import torch

    if not isinstance(found, torch.Tensor):
        raise ContractError(f"expected tensors from the model, found {type(found).__name__}.", "infer")
    found = found.dequantize() if found.is_quantized else found
    found = found.to_dense() if found.layout != torch.strided else found
    is_narrow = found.dtype.is_floating_point and found.dtype.itemsize < 4
    array: np.ndarray = (found.float() if is_narrow else found).detach().cpu().numpy()
    return array
