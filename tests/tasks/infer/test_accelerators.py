"""A model runs on the accelerator that its worker reserves, whoever makes it, and on nothing else."""

import contextlib
import os
import re

os.environ.setdefault("KERAS_BACKEND", "torch")

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import keras
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from ray._private.accelerators import get_all_accelerator_resource_names
from transformers import BertConfig, BertForSequenceClassification

from overnight.tasks.errors import JobError
from overnight.tasks.infer import accelerators
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.resources.accelerators import ACCELERATORS, reserved
from tests.contracts.models.adapters import texts

NUMBERS = {"x": np.ones((2, 4), np.float32)}


def a_keras_model(folder: Path) -> None:
    given = keras.Input((4,))
    keras.Model(given, keras.layers.Dense(2)(given)).save(folder / "model.keras")


def nothing(folder: Path) -> None:
    """The model is torch's own."""


def a_classifier(folder: Path) -> None:
    texts.saved(folder, BertForSequenceClassification(BertConfig(**texts.BERT)))


# What makes a small model in a folder, its settings, and two rows.
OF_TORCH: dict[str, tuple[Callable[[Path], Any], dict[str, Any], dict[str, np.ndarray]]] = {
    "torch": (nothing, {"module": "torch.nn:Identity", "columns": ["x"]}, NUMBERS),
    "keras": (a_keras_model, {"file": "model.keras", "columns": ["x"]}, NUMBERS),
    "text_classification": (a_classifier, {"model": ".", "text_column": "text"}, {}),
}


def model_of(kind: str, **settings: Any) -> Any:
    return next(leaf for leaf in leaves() if leaf.model_fields["kind"].default == kind)(**settings)


def leaves() -> tuple[Any, ...]:
    return get_args(get_args(AnyPredictor)[0])


def test_what_counts_as_an_accelerator_is_what_ray_counts_as_one() -> None:
    assert get_all_accelerator_resource_names() == ACCELERATORS
    assert reserved(0, {"HPU": 0, "licence": 1}) == {}


def test_without_one_models_run_on_the_cpu() -> None:
    model = model_of("torch", **OF_TORCH["torch"][1], cpu_fallback=True)
    assert (model.torch_device().type, model.fallback) == ("cpu", None)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator is found")
@pytest.mark.parametrize(
    ("reserves", "says"), [({"num_gpus": 0.5}, r"num_gpus: 0\.5"), ({"resources": {"NPU": 1}}, "resources: NPU: 1")]
)
def test_one_that_is_reserved_and_not_found_is_an_error(reserves: dict[str, Any], says: str) -> None:
    with pytest.raises(
        JobError, match=rf"{says} reserves an accelerator, but torch .* finds none on this node"
    ) as raised:
        model_of("torch", **OF_TORCH["torch"][1], **reserves).load()
    assert raised.value.stage == "infer"


@pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator is found")
@pytest.mark.parametrize("kind", ["torch", "keras"])
def test_one_that_is_not_found_is_a_warning_if_the_model_may_fall_back_to_the_cpu(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, settings, batch = OF_TORCH[kind]
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    model = model_of(kind, **settings, name="mine", num_gpus=0.5, cpu_fallback=True)
    assert model.load()(batch)["output"].shape[0] == 2
    assert re.fullmatch(
        r"mine: num_gpus: 0\.5 reserves an accelerator, but torch \S+ finds none on this node\. The model runs on the "
        r"CPU, because cpu_fallback allows it\.",
        model.fallback,
    )
    assert "cpu_fallback" not in model.content_settings()


def test_batches_and_calls_are_those_of_a_device() -> None:
    on_cpus, on_npu = (
        model_of("image_embedding", model=".", resources=asked) for asked in ({"licence": 1}, {"NPU": 1})
    )
    assert (on_cpus.forward_batch_size(), on_cpus.calls_at_once()) == (16, 1)
    assert (on_npu.forward_batch_size(), on_npu.calls_at_once()) == (64, 2)


@pytest.mark.parametrize("kind", ["torch", "keras", "python", "text_classification"])
def test_a_worker_takes_at_most_the_memory_that_is_set_for_it_on_each_of_its_devices(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's meta device is in place of an accelerator, and a stand-in of its functions for memory."""
    settings: dict[str, Any] = {"target": "operator:neg"}
    if kind != "python":
        make, settings, _ = OF_TORCH[kind]
        make(tmp_path)
        monkeypatch.chdir(tmp_path)
    limits: dict[int, float] = {}
    module = SimpleNamespace(
        device_count=lambda: 2,
        mem_get_info=lambda index: (0, [32, 16][index] * 2**30),
        set_per_process_memory_fraction=lambda fraction, index: limits.update({index: fraction}),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    model_of(kind, **settings, gpu_memory="8GiB").load()
    assert limits == {}
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("meta"))
    with contextlib.suppress(RuntimeError, NotImplementedError):  # of the meta device
        model_of(kind, **settings, num_gpus=2, gpu_memory="8GiB").load()
    assert limits == {0: 0.25, 1: 0.5}
    with pytest.raises(JobError, match=r"gpu_memory: expected at most the device's 16\.0 GiB, found 18\.6 GiB"):
        model_of(kind, **settings, num_gpus=2, gpu_memory="20GB").load()
    del module.mem_get_info
    with pytest.raises(JobError, match="gpu_memory: expected a device whose memory PyTorch can limit, found meta"):
        model_of(kind, **settings, num_gpus=2, gpu_memory="8GiB").load()


def test_a_kind_that_cannot_limit_its_memory_refuses_the_setting() -> None:
    keras_on_jax = {"kind": "keras", "backend": "jax", "file": "m.keras", "columns": ["x"]}
    for settings in ({"kind": "onnx", "file": "m.onnx", "columns": ["x"]}, keras_on_jax):
        with pytest.raises(ValidationError, match=f"kind {settings['kind']} cannot limit the memory of an accelerator"):
            model_of(**settings, num_gpus=1, gpu_memory="8GB")


def test_the_peak_of_memory_is_that_of_the_fullest_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accelerators.peak_memory() == 0
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("meta"))
    module = SimpleNamespace(device_count=lambda: 3, max_memory_allocated=[10, 30, 20].__getitem__)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    assert accelerators.peak_memory() == 30
    del module.max_memory_allocated  # as for Apple's devices
    assert accelerators.peak_memory() == 0


def test_nothing_names_one_makers_devices() -> None:
    """Errors of devices apart, whose words are their makers'."""
    for room in ("flows", "tasks"):
        for path in (Path(__file__).parents[3] / room).rglob("*.py"):
            assert "cuda" not in path.read_text().lower() or path.name == "device_errors.py", path
