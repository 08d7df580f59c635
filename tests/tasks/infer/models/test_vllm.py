"""What vLLM is told, that its server ends with its worker, and, where OVERNIGHT_VLLM_PYTHON names one, vLLM itself."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
import torch
from pydantic import ValidationError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from overnight.tasks.errors import JobError
from overnight.tasks.infer.chat.server_process import ChildServer
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.models.vllm import VLLM
from tests.tasks.infer.chat_models import TEMPLATE, chat_model, chat_tokenizer, some_words
from tests.tasks.infer.chat_server import MOOD

SERVES = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}"]


def test_settings_reach_the_engine_by_the_names_of_its_command_line(tmp_path: Path) -> None:
    folder = chat_model(tmp_path)
    engine = {"max_model_len": 512, "enforce_eager": True, "enable_prefix_caching": False, "hf_overrides": {"a": 1}}
    model = VLLM(
        model=str(folder), user="{text}", num_gpus=4, tensor_parallel_size=2, pipeline_parallel_size=2,
        engine_settings=engine | {"revision": None},
    )  # fmt: skip
    command = model.command("python", model_location.find(model.model))
    given = " ".join(command)
    assert given.startswith("python -m vllm.entrypoints.openai.api_server --host 127.0.0.1 --port {port} ")
    assert f"--model {folder} " in given
    assert "--tensor-parallel-size 2 --pipeline-parallel-size 2" in given
    assert "--max-model-len 512 --enforce-eager --no-enable-prefix-caching" in given
    assert command[-2:] == ["--hf-overrides", '{"a": 1}']
    assert "--revision" not in given


def test_memory_of_a_worker_is_a_share_of_what_the_interpreter_of_vllm_reports(tmp_path: Path) -> None:
    """A script in place of that interpreter, which reports a device of 80 GiB, and then the options of the server."""
    interpreter = tmp_path / "python"
    interpreter.write_text('#!/bin/sh\nif [ "$1" = -c ]; then echo 85899345920; else echo "$@" >&2; exit 1; fi\n')
    interpreter.chmod(0o755)
    settings: dict[str, Any] = {"model": str(chat_model(tmp_path)), "user": "{text}", "python": str(interpreter)}
    with pytest.raises(JobError, match=r"vLLM does not start: .* --gpu-memory-utilization 0\.25 "):
        VLLM(**settings, num_gpus=0.25, gpu_memory="20GiB").load()
    with pytest.raises(JobError, match=r"gpu_memory: expected at most the device's 80\.0 GiB, found 93\.1 GiB"):
        VLLM(**settings, num_gpus=1, gpu_memory="100GB").load()
    interpreter.write_text("#!/bin/sh\necho no driver >&2; exit 1\n")
    with pytest.raises(JobError, match="does not report the memory of the device: no driver"):
        VLLM(**settings, num_gpus=1, gpu_memory="20GB").load()
    with pytest.raises(ValidationError, match="gpu_memory: expected no gpu_memory_utilization in engine_settings"):
        VLLM(**settings, num_gpus=1, gpu_memory="20GB", engine_settings={"gpu-memory-utilization": 0.3})


def test_what_a_request_holds_beside_openais_settings() -> None:
    settings: dict[str, Any] = {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}}
    body = VLLM(model="some/model", user="{text}", **settings).body([{"role": "user", "content": "a"}])
    assert (body["top_k"], body["chat_template_kwargs"], body["model"]) == (5, {"enable_thinking": False}, "model")
    assert "top_k" not in VLLM(model="some/model", user="{text}").body([])


def test_the_accelerators_reserved_are_those_that_the_engine_takes() -> None:
    with pytest.raises(ValidationError, match="num_gpus: expected 4 for tensor_parallel_size 2 and"):
        VLLM(model="model", user="{text}", num_gpus=1, tensor_parallel_size=2, pipeline_parallel_size=2)
    with pytest.raises(ValidationError, match="resources: NPU: expected 2 for tensor_parallel_size 2 and"):
        VLLM(model="model", user="{text}", resources={"NPU": 1}, tensor_parallel_size=2)
    VLLM(model="model", user="{text}", num_gpus=0.5)
    across = {"distributed_executor_backend": "ray"}
    VLLM(model="model", user="{text}", tensor_parallel_size=8, pipeline_parallel_size=2, engine_settings=across)


def test_over_several_nodes_it_joins_the_cluster_of_its_worker(
    tmp_path: Path, ray_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that fails with what it was told, in the place of vLLM's."""
    tells = "import os; exit('told of ' + os.environ['RAY_ADDRESS'])"
    monkeypatch.setattr(VLLM, "command", lambda *_: [sys.executable, "-c", tells])
    across = {"distributed_executor_backend": "ray"}
    model = VLLM(model=str(chat_model(tmp_path)), user="{text}", python=sys.executable, engine_settings=across)
    with pytest.raises(JobError, match=f"told of {ray.get_runtime_context().gcs_address}"):
        model.load()


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ({}, "name its interpreter in python"),
        ({"python": sys.executable}, "No module named 'vllm'"),
        ({"python": "/nowhere/python"}, "it ended with code"),
    ],
)
def test_an_environment_without_vllm_says_so(tmp_path: Path, python: dict[str, str], words: str) -> None:
    with pytest.raises(JobError) as caught:
        VLLM(model=str(chat_model(tmp_path)), user="{text}", **python).load()
    assert words in str(caught.value)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


STARTS = """
import os, sys, time
from overnight.tasks.infer.chat.server_process import ChildServer

server = ChildServer(sys.argv[1:], os.environ)
print(server.wait("/", 30), server.port, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("kills_children", [False, True])
def test_a_server_ends_with_the_worker_that_is_killed(kills_children: bool) -> None:
    """As Ray does it, which kills the children of a worker that ends."""
    command = [sys.executable, "-c", STARTS, *SERVES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as worker:
        assert worker.stdout
        port = int(worker.stdout.readline())
        family = psutil.Process(worker.pid).children(recursive=True)
        assert listens(port)
        assert len(family) == 3
        if kills_children:
            [child] = psutil.Process(worker.pid).children()
            child.kill()
        worker.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, 10)
    assert not alive
    assert not listens(port)


def test_a_server_that_does_not_answer_in_time_is_told_of_and_ended() -> None:
    server = ChildServer(
        [sys.executable, "-c", "print('loading', flush=True); import time; time.sleep(60)"], os.environ
    )
    started = time.monotonic()
    assert "it did not answer within 2 s: loading" in server.wait("/health", 2)
    server.end()
    assert time.monotonic() < started + 10
    assert "it ended with code" in server.ended()


def test_of_a_server_that_ends_the_first_error_is_told_too() -> None:
    says = "print('(Worker) ERROR [a.py:1] ValueError: too little memory'); print('like `OSError: x`\\n' * 20); 1 / 0"
    server = ChildServer([sys.executable, "-c", says], os.environ)
    told = server.wait("/health", 20)
    server.end()
    assert told.count("ValueError: too little memory") == 1
    assert told.endswith("ZeroDivisionError: division by zero")


def llama_for_vllm(folder: Path, tokenizer: PreTrainedTokenizerFast | None = None) -> Path:
    """A random Llama with heads of 64, the smallest that vLLM takes on CPUs."""
    torch.manual_seed(5)
    tokenizer = tokenizer or chat_tokenizer()
    config = LlamaConfig(
        hidden_size=128, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=len(tokenizer), max_position_embeddings=256, initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A token a byte: any JSON can be written, as with the tokenizers of real models."""
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[END]")
    made.chat_template = TEMPLATE
    return made


@pytest.mark.slow
@pytest.mark.skipif("OVERNIGHT_VLLM_PYTHON" not in os.environ, reason="needs an environment with vLLM")
def test_vllm_s_answers_fit_the_schema_that_a_job_asks_for(tmp_path: Path) -> None:
    """The model is random: without the schema none of its answers would be JSON."""
    llama_for_vllm(tmp_path, byte_tokenizer())
    model = VLLM(
        model=str(tmp_path), user="{text}", max_new_tokens=40, python=os.environ["OVERNIGHT_VLLM_PYTHON"],
        dtype="float32", output_schema=MOOD, temperature=1.0, seed=3,
        engine_settings={
            "gpu_memory_utilization": 0.15, "enforce_eager": True,
            "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        },
    )  # fmt: skip
    batch = {"text": np.array(some_words(40), object), "row_id": np.array([f"r{i}" for i in range(40)], object)}
    found: Any = model.load()(batch)
    assert not found.failed
    moods = [answer["mood"] for answer in found.columns["structured_output"].to_pylist()]
    assert set(moods) == {"good", "bad"}
