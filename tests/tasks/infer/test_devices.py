"""A model runs on the accelerator that its worker reserves, whoever makes it, and on nothing else."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from ray._private.accelerators import get_all_accelerator_resource_names

from overnight.tasks.errors import JobError
from overnight.tasks.infer import devices
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.resources.needs import ACCELERATORS, reserved

NOT_FOUND = pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator is found")


def model_of(kind: str, **settings: Any) -> Any:
    usual = {
        "torch": {"module": "torch.nn:Identity", "columns": ["x"]},
        "keras": {"file": "m.keras", "columns": ["x"]},
        "onnx": {"file": "m.onnx", "columns": ["x"]},
        "python": {"target": "operator:neg"},
        "image_embedding": {"model": "."},
        "text_generation": {"model": ".", "text_column": "x"},
        "chat": {"model": ".", "user": "{x}"},
    }
    return TypeAdapter(AnyPredictor).validate_python({"kind": kind} | usual[kind] | settings)


def test_what_counts_as_an_accelerator_is_what_ray_counts_as_one() -> None:
    assert get_all_accelerator_resource_names() == ACCELERATORS
    assert reserved(0, {"HPU": 0, "licence": 1}) == {}


def test_without_one_models_run_on_the_cpu() -> None:
    model = model_of("torch", cpu_fallback=True)
    assert (model.torch_device().type, model.fallback) == ("cpu", None)


@NOT_FOUND
@pytest.mark.parametrize(
    ("reserves", "setting"), [({"num_gpus": 0.5}, "num_gpus: 0.5"), ({"resources": {"NPU": 1}}, "resources: NPU: 1")]
)
def test_one_that_is_reserved_and_not_found_is_an_error_or_a_warning(reserves: dict[str, Any], setting: str) -> None:
    found = rf"{re.escape(setting)} reserves an accelerator, but torch \S+ finds none on this node\."
    with pytest.raises(JobError, match=found) as raised:
        model_of("torch", **reserves).load()
    assert raised.value.stage == "infer"
    model = model_of("torch", **reserves, name="mine", cpu_fallback=True)
    assert model.load()({"x": np.ones((2, 4), np.float32)})["output"].shape == (2, 4)
    assert re.fullmatch(f"mine: {found} The model runs on the CPU, because cpu_fallback allows it\\.", model.fallback)
    assert "cpu_fallback" not in model.content_settings()


def test_batches_and_calls_are_those_of_a_device() -> None:
    on_cpus, on_npu = (model_of("image_embedding", resources=asked) for asked in ({"licence": 1}, {"NPU": 1}))
    assert (on_cpus.forward_batch_size(), on_cpus.calls_at_once()) == (16, 1)
    assert (on_npu.forward_batch_size(), on_npu.calls_at_once()) == (64, 2)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Torch's functions for memory of two devices, of 32 and 16 GiB; the meta device is in place of an accelerator."""
    limits: dict[int, float] = {}
    module = SimpleNamespace(
        limits=limits,
        device_count=lambda: 2,
        mem_get_info=lambda index: (0, [32, 16][index] * 2**30),
        set_per_process_memory_fraction=lambda fraction, index: limits.update({index: fraction}),
        max_memory_allocated=[10, 30].__getitem__,
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("meta"))
    return module


@pytest.mark.parametrize("kind", ["torch", "keras", "python"])
def test_a_worker_takes_at_most_the_memory_that_is_set_for_it_on_each_of_its_devices(
    kind: str, device: SimpleNamespace
) -> None:
    for reserves, limits in (({}, {}), ({"num_gpus": 2}, {0: 0.25, 1: 0.5})):
        with contextlib.suppress(JobError, RuntimeError, NotImplementedError):  # of a missing file or the meta device
            model_of(kind, gpu_memory="8GiB", **reserves).load()
        assert device.limits == limits


def test_memory_that_a_device_has_not_or_that_nothing_limits_is_an_error(device: SimpleNamespace) -> None:
    with pytest.raises(JobError, match=r"gpu_memory: expected at most the device's 16\.0 GiB, found 18\.6 GiB"):
        model_of("torch", num_gpus=2, gpu_memory="20GB").load()
    del device.mem_get_info
    with pytest.raises(JobError, match="found meta"):
        model_of("torch", num_gpus=2, gpu_memory="8GiB").load()


@pytest.mark.parametrize(("kind", "settings"), [("onnx", {}), ("keras", {"backend": "jax"})])
def test_a_kind_that_cannot_limit_its_memory_refuses_the_setting(kind: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=f"kind {kind} cannot limit the memory"):
        model_of(kind, **settings, num_gpus=1, gpu_memory="8GB")


@pytest.fixture
def tf32() -> Iterator[None]:
    """Let PyTorch shorten all float32 to TF32, and restore its defaults."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def test_only_exact_float32_stops_pytorch_from_shortening_numbers(tf32: None) -> None:
    fast, exact = (model_of("torch", **settings) for settings in ({}, {"exact_float32": True}))
    fast.load()
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("high", True)
    exact.load()
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)
    assert "exact_float32" not in fast.content_settings()
    assert exact.content_settings()["exact_float32"] is True


@pytest.mark.parametrize("kind", ["torch", "image_embedding", "text_generation", "chat"])
def test_exact_float32_is_for_float32_alone(kind: str) -> None:
    assert model_of(kind, dtype="float32", exact_float32=True).exact_float32
    with pytest.raises(ValidationError, match="exact_float32: expected dtype: float32, found bfloat16"):
        model_of(kind, dtype="bfloat16", exact_float32=True)


def test_the_peak_of_memory_is_that_of_the_fullest_device(device: SimpleNamespace) -> None:
    assert devices.peak_memory() == 30
    del device.max_memory_allocated  # as for Apple's devices
    assert devices.peak_memory() == 0


@NOT_FOUND
def test_without_a_device_there_is_no_peak() -> None:
    assert devices.peak_memory() == 0


def test_nothing_names_one_makers_devices() -> None:
    """Errors of devices apart, whose words are their makers'."""
    for room in ("flows", "tasks"):
        for path in (Path(__file__).parents[3] / room).rglob("*.py"):
            assert "cuda" not in path.read_text().lower() or path.name == "device_errors.py", path
