"""The inputs that a chat model gets from its tokenizer or processor, for models of any signature."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from overnight.tasks.infer.chat import local_chat
from overnight.tasks.infer.huggingface.generation import Generated
from overnight.tasks.infer.models.chat import Chat


class Tensor(np.ndarray):
    """An array with the methods of a tensor that this room calls."""

    def is_floating_point(self) -> bool:
        return self.dtype.kind == "f"

    def to(self, device: str, dtype: Any) -> "Tensor":
        return self


class Tokenizer:
    chat_template = "text"

    def apply_chat_template(self, messages: Sequence[Any], **settings: Any) -> list[str]:
        return [row[-1]["content"] for row in messages]

    def __call__(self, prompts: list[str], **settings: Any) -> dict[str, Tensor]:
        names = ("input_ids", "attention_mask", "token_type_ids")
        return {name: np.ones((len(prompts), 3), np.int64).view(Tensor) for name in names}


class Model:
    dtype = "float32"

    def forward(self, input_ids: Any, **inputs: Any) -> None:
        """Name no attention mask, as xLSTM in transformers 5 and as code that a repository brings."""


class Generation:
    """Answers with the names of its inputs."""

    def __init__(self, *settings: Any) -> None:
        pass

    def run(self, inputs: Mapping[str, Any], noises: Sequence[None]) -> list[list[Generated]]:
        self.names = " ".join(inputs)
        return [[Generated([1], True)] for _ in inputs["attention_mask"]]

    def texts(self, generated: Sequence[Generated]) -> list[str]:
        return [self.names for _ in generated]


def test_a_model_whose_forward_names_no_attention_mask_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chat, "load_on_devices", lambda *_: (Model(), "cpu"))
    monkeypatch.setattr(local_chat, "Generation", Generation)
    predict: Any = Chat(model="m", user="{text}").answering(None, Tokenizer(), None, None)  # type: ignore[arg-type]
    columns = predict({"text": np.array(["a", "b"], object), "row_id": np.array(["1", "2"], object)}).columns
    assert columns["generated_text"].to_pylist() == ["input_ids attention_mask"] * 2
    assert columns["prompt_tokens"].to_pylist() == [3, 3]
