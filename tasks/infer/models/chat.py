"""Chat completion with any instruction-tuned language model of transformers, in its own chat template.

chat/settings.py describes the columns, and chat/local_chat.py the sampling.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from overnight.tasks.infer.chat.local_chat import LocalChat
from overnight.tasks.infer.chat.messages import Message, text_of
from overnight.tasks.infer.predictor import Offer, Predict

if TYPE_CHECKING:
    import torch


class Chat(LocalChat):
    """Answers chat messages by a model of transformers in the workers."""

    kind: Literal["chat"] = "chat"
    offer: ClassVar[Offer] = Offer(
        "answers to a question about each text, by a model tuned for chats",
        "text",
        "Qwen/Qwen2.5-0.5B-Instruct",
        lambda column: {"user": f"{{{column}}}"},
        architecture="qwen2",
    )

    def load(self) -> Predict:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        checkpoint = self.checkpoint()
        tokenizer = checkpoint.load(AutoTokenizer, padding_side="left")
        return self.answering(checkpoint, tokenizer, tokenizer, AutoModelForCausalLM)

    def shown(self, messages: Sequence[Message]) -> list[Message]:
        return [{**message, "content": text_of(message["content"])} for message in messages]

    def features(
        self, processor: Any, conversations: Sequence[Sequence[Message]], prompts: list[str]
    ) -> Mapping[str, "torch.Tensor"]:
        tensors = processor(prompts, padding=True, return_tensors="pt", add_special_tokens=False)
        return {name: tensors[name] for name in ("input_ids", "attention_mask")}
