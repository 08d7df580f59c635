"""Any ONNX model, by onnxruntime. It needs `overnight[onnx]`, or onnxruntime's build for the device.

In: `columns`, in the form of `array_io.py`, for the model's inputs in their order; numbers are converted to the model's
types. Out: the model's outputs under their own names, or the names in `outputs`. A map for each row, such as the
probabilities of sklearn-onnx by their labels, becomes a struct.
"""

import os
from typing import Any, Literal

import numpy as np

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import JobError
from overnight.tasks.infer.array_io import FileModel, Outputs, cast, in_calls, named
from overnight.tasks.infer.model_files import file_versions, model_file
from overnight.tasks.infer.predictor import Predict

DATA = "data"  # the ending of files with weights that are too large for the model's file
CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"
PROVIDER = "ExecutionProvider"  # the end of each provider's name
# The devices, by Ray's names, of providers that do not run on GPUs only.
DEVICES = {
    **dict.fromkeys(("CPU", "Azure", "Dnnl", "Xnnpack", "ACL", "ArmNN"), ("CPU",)),
    **dict.fromkeys(("CANN", "QNN", "VitisAI", "RKNPU"), ("NPU",)),
    "OpenVINO": ("GPU", "NPU"),
}
TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}  # fmt: skip


class OnnxModel(FileModel):
    """Runs an ONNX file."""

    kind: Literal["onnx"] = "onnx"
    outputs: Outputs = None

    def imports(self) -> tuple[str, ...]:
        return ("onnxruntime",)

    def libraries(self) -> tuple[str, ...]:
        return self.imports()

    def fingerprint(self) -> dict[str, str]:
        return file_versions(self.file, DATA)

    def outputs_made(self) -> list[str] | None:
        return self.outputs

    def load(self) -> Predict:
        session = self._session()
        types = {value.name: value.type for value in session.get_inputs()}
        names = [output.name for output in session.get_outputs()]
        self.require_columns(types)
        for name, kind in types.items():
            if kind not in TYPES:
                raise JobError(f"{self.file}: input {name}: {kind} is unknown here. Use kind: python.", "infer")
        columns = named(names, self.outputs or names)

        def call(arrays: list[np.ndarray]) -> dict[str, Any]:
            inputs = {}
            for (name, kind), array, column in zip(types.items(), arrays, self.columns, strict=True):
                inputs[name] = cast(array, TYPES[kind], name, column)
            return dict(zip(columns, map(_with_text_keys, session.run(names, inputs)), strict=True))

        return lambda batch: in_calls(batch, self.columns, call)

    def _session(self) -> Any:
        path = model_file(self.file, self.pins, DATA)
        onnxruntime: Any = require_extra("onnxruntime", f"{self.file}: kind: onnx", "infer")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 1)  # Ray sets this to a worker's CPUs
        options.log_severity_level = 3
        providers = []  # for the reserved accelerator, in onnxruntime's order
        for accelerator in self.accelerators():
            for name in onnxruntime.get_available_providers():
                if accelerator in DEVICES.get(name.removesuffix(PROVIDER), ("GPU",)):
                    # OpenVINO uses the CPU unless it is given a device
                    providers.append((name, {"device_type": accelerator} if name == OPENVINO else {}))
        try:
            session = onnxruntime.InferenceSession(path, options, providers=[*providers, CPU])
        except Exception as error:
            raise JobError(
                f"{self.file}: expected an ONNX model, found a file that does not load: {error}", "infer"
            ) from error
        # If a provider cannot start, for example without a driver, onnxruntime only warns.
        if self.accelerators() and session.get_providers()[0] == CPU:
            self.fall_back(f"onnxruntime {onnxruntime.__version__}")
        return session


def _with_text_keys(output: Any) -> Any:
    """Return an output whose rows are maps with texts as their keys; other outputs are unchanged."""
    if not isinstance(output, list) or not all(isinstance(row, dict) for row in output):
        return output
    return [dict(zip(map(str, row), row.values(), strict=True)) for row in output]
