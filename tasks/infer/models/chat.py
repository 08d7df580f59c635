"""Chat completion with any instruction-tuned language model of transformers, in its own chat template.

chat/settings.py describes the columns, and chat/local_chat.py the sampling.
"""

from typing import ClassVar, Literal

from overnight.tasks.infer.chat.local_chat import LocalChat
from overnight.tasks.infer.huggingface.device_map import load_on_devices
from overnight.tasks.infer.huggingface.generation import Generation
from overnight.tasks.infer.predictor import Batch, Offer, Predict
from overnight.tasks.rows.result import Outcome


class Chat(LocalChat):
    """Answers chat messages by a model of transformers in the workers."""

    kind: Literal["chat"] = "chat"
    offer: ClassVar[Offer] = Offer(
        "answers to a question about each text, by a model tuned for chats",
        "text",
        "Qwen/Qwen2.5-0.5B-Instruct",
        lambda column: {"user": f"Summarise in one sentence: {{{column}}}"},
        architecture="qwen2",
    )

    def load(self) -> Predict:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        checkpoint = self.checkpoint()
        tokenizer = checkpoint.load(AutoTokenizer, padding_side="left")
        self.refuse_template(checkpoint, tokenizer, [{"role": role, "content": "text"} for role in self.roles()])
        model, device = load_on_devices(checkpoint, AutoModelForCausalLM, self)
        generation = Generation(checkpoint, tokenizer, model, self.max_new_tokens)

        def predict(batch: Batch) -> Outcome:
            prompts = self.prompts(tokenizer, self.messages(batch))
            tokens = tokenizer(prompts, padding=True, return_tensors="pt", add_special_tokens=False).to(device)
            inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
            return self.answered(generation, inputs, batch, prompts, device)

        return predict
