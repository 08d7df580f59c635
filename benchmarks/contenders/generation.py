"""A causal language model of transformers, for contenders without an engine of their own."""

from typing import Any


class Generate:
    """Continues prompts by greedy search, in one batch per call."""

    def __init__(self, told: dict[str, Any]) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(told["model"])
        model = AutoModelForCausalLM.from_pretrained(told["model"], dtype=torch.float32)
        self.model, self.new_tokens = model.eval().to(told.get("device", "cpu")), told["new_tokens"]

    def __call__(self, prompts: list[str]) -> list[str]:
        import torch

        tokens = self.tokenizer(prompts, padding=True, return_tensors="pt").to(self.model.device)
        with torch.inference_mode():
            made = self.model.generate(**tokens, max_new_tokens=self.new_tokens, do_sample=False)
        return list(self.tokenizer.batch_decode(made[:, tokens["input_ids"].shape[1] :], skip_special_tokens=True))
