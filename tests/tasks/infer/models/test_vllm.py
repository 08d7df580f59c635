"""What vLLM's server gets: its command, its environment and its requests, and what is refused before it starts."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import LlamaConfig, LlamaForCausalLM

from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.models.vllm import VLLM
from tests.tasks.infer.chat_models import chat_model, chat_tokenizer

ON_RAY = {"distributed_executor_backend": "ray"}


def vllm(model: Any = "some/model", **settings: Any) -> VLLM:
    return VLLM(model=str(model), user="{text}", **settings)


def test_settings_reach_the_engine_by_the_names_of_its_command_line(tmp_path: Path) -> None:
    folder = chat_model(tmp_path)
    engine = {"max_model_len": 512, "enforce_eager": True, "enable_prefix_caching": False, "hf_overrides": {"a": 1}}
    adapters = {"lora_modules": ["a=/a", {"name": "b", "path": "/b"}]}
    parallel = {"num_gpus": 4, "tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    model = vllm(folder, **parallel, engine_settings=engine | adapters | {"revision": None})
    command = model.command("python", model_location.find(model.model))
    given = " ".join(command)
    assert given.startswith("python -m vllm.entrypoints.openai.api_server --host 127.0.0.1 --port {port} ")
    assert f"--model {folder} " in given
    assert "--tensor-parallel-size 2 --pipeline-parallel-size 2" in given
    assert "--max-model-len 512 --enforce-eager --no-enable-prefix-caching" in given
    assert command[-5:-3] == ["--hf-overrides", '{"a": 1}']
    assert command[-3:] == ["--lora-modules", "a=/a", '{"name": "b", "path": "/b"}']
    assert "--revision" not in given


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({"num_gpus": 4}, 4),
        ({"num_gpus": 4, "pipeline_parallel_size": 2}, 2),
        ({"resources": {"NPU": 2}}, 2),
        ({"num_gpus": 0.5}, 1),
        ({}, 1),
        ({"engine_settings": ON_RAY}, 1),
    ],
)
def test_the_gpus_that_a_worker_reserves_share_each_layer_unless_the_job_says_otherwise(
    tmp_path: Path, settings: dict[str, Any], flag: int
) -> None:
    model = vllm(chat_model(tmp_path), **settings)
    command = model.command("python", model_location.find(model.model))
    assert command[command.index("--tensor-parallel-size") + 1] == str(flag)


def test_each_adapter_is_a_value_of_its_own(tmp_path: Path) -> None:
    adapters = ["sql=/adapters/sql", {"name": "math", "path": "/adapters/math"}]
    engine = {"enable_lora": True, "lora_modules": adapters}
    model = vllm(chat_model(tmp_path), engine_settings=engine)
    command = model.command("python", model_location.find(model.model))
    expected = ["--lora-modules", "sql=/adapters/sql", '{"name": "math", "path": "/adapters/math"}']
    assert command[-4:] == ["--enable-lora", *expected]


def test_files_of_adapters_are_in_the_fingerprint_if_the_job_names_them(tmp_path: Path) -> None:
    model, adapter = chat_model(tmp_path / "model"), tmp_path / "sql"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    files = vllm(model).fingerprint()
    modules = [f"sql={adapter}", {"name": "math", "path": "/nowhere"}]
    first = vllm(model, engine_settings={"lora-modules": modules}).fingerprint()
    assert first.keys() - files.keys() == {"sql/adapter_config.json"}
    (adapter / "adapter_config.json").write_text("{ }")
    second = vllm(model, engine_settings={"lora_modules": modules[0]}).fingerprint()
    assert second.keys() == first.keys()
    assert second["sql/adapter_config.json"] != first["sql/adapter_config.json"]


def test_memory_of_a_worker_is_a_share_of_what_the_interpreter_of_vllm_reports(tmp_path: Path) -> None:
    """A script in place of that interpreter, which reports a device of 80 GiB, and then the options of the server."""
    interpreter = tmp_path / "python"
    interpreter.write_text('#!/bin/sh\nif [ "$1" = -c ]; then echo 85899345920; else echo "$@" >&2; exit 1; fi\n')
    interpreter.chmod(0o755)
    chat_model(tmp_path)
    with pytest.raises(JobError, match=r"vLLM does not start: .* --gpu-memory-utilization 0\.25 "):
        vllm(tmp_path, python=str(interpreter), num_gpus=0.25, gpu_memory="20GiB").load()
    with pytest.raises(JobError, match=r"80\.0 GiB, found 93\.1 GiB"):
        vllm(tmp_path, python=str(interpreter), num_gpus=1, gpu_memory="100GB").load()
    interpreter.write_text("#!/bin/sh\necho no driver >&2; exit 1\n")
    with pytest.raises(JobError, match="does not report the memory of the device: no driver"):
        vllm(tmp_path, python=str(interpreter), num_gpus=1, gpu_memory="20GB").load()


def test_a_request_has_settings_beside_those_of_openai() -> None:
    settings: dict[str, Any] = {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}}
    body = vllm(**settings).body([{"role": "user", "content": "a"}])
    assert (body["top_k"], body["chat_template_kwargs"], body["model"]) == (5, {"enable_thinking": False}, "model")
    assert not {"top_k", "chat_template_kwargs"} & vllm().body([]).keys()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num_gpus": 1, "tensor_parallel_size": 2, "pipeline_parallel_size": 2}, "num_gpus: expected 4"),
        ({"num_gpus": 3, "pipeline_parallel_size": 2}, "num_gpus: expected 2 for tensor_parallel_size 1"),
        ({"resources": {"NPU": 1}, "tensor_parallel_size": 2}, "resources: NPU: expected 2"),
        (
            {"num_gpus": 1, "gpu_memory": 1, "engine_settings": {"gpu-memory-utilization": 0.3}},
            "gpu_memory: expected no",
        ),
        ({"engine_settings": {"trust_remote_code": True}}, "Set trust_remote_code of the model"),
        ({"engine_settings": {"trust-remote-code": True}}, "Set trust_remote_code of the model"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        vllm(**settings)


def test_a_share_of_a_device_or_devices_of_other_nodes_need_no_device_for_each_part() -> None:
    assert vllm(num_gpus=0.5).num_gpus == 0.5
    assert vllm(num_gpus=1, tensor_parallel_size=8, engine_settings=ON_RAY).num_gpus == 1


def test_over_several_nodes_it_joins_the_cluster_of_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that fails with the address that it got, in the place of vLLM's."""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")  # as each process of a worker has it
    shows = "import os; exit('joins ' + os.environ['RAY_ADDRESS'])"
    monkeypatch.setattr(VLLM, "command", lambda *_: [sys.executable, "-c", shows])
    with pytest.raises(JobError, match=r"joins 10\.0\.0\.7:6379"):
        vllm(chat_model(tmp_path), python=sys.executable, engine_settings=ON_RAY).load()


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ({}, "name its interpreter in python"),
        ({"python": sys.executable}, "No module named 'vllm'"),
        ({"python": "/nowhere/python"}, "it ended with code"),
    ],
)
def test_an_environment_without_vllm_is_refused(tmp_path: Path, python: dict[str, str], reason: str) -> None:
    with pytest.raises(JobError, match=reason):
        vllm(chat_model(tmp_path), **python).load()


def llama_for_vllm(folder: Path) -> Path:
    """A random Llama with heads of 64, the smallest that vLLM takes on CPUs."""
    torch.manual_seed(5)
    tokenizer = chat_tokenizer()
    config = LlamaConfig(
        hidden_size=128, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=len(tokenizer), max_position_embeddings=256, initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        ({"choices": ["a", "b"]}, {"choice": ["a", "b"]}),
        ({"regex": "[a-z]"}, {"regex": "[a-z]"}),
        ({"grammar": 'start: "a"'}, {"grammar": 'start: "a"'}),
    ],
)
def test_the_form_of_an_answer_is_one_of_vllms_structured_outputs(form: dict[str, Any], sent: dict[str, Any]) -> None:
    assert vllm(answer=form).body([])["structured_outputs"] == sent
    assert "structured_outputs" not in vllm().body([])
