"""Text generation with any causal language model of transformers.

In: `text_column`, and the other columns that `prompt` names. Out: `generated_text`, the new text alone, without special
tokens. No chat template is applied: write the model's turn markers into `prompt` where it wants them.

Temperature 0 takes the likeliest token. Above 0, each row draws from the model's whole distribution with random numbers
of its own, which depend on `seed`, `row_id` and the prompt alone.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from tasks.errors import RowError
from tasks.infer import pretrained
from tasks.infer.checkpoint import Checkpoint, Dtype, Model
from tasks.infer.predictor import Batch, Predict, Predictor
from tasks.infer.sampling import RowNoise
from tasks.infer.texts import filled, placeholders, texts

if TYPE_CHECKING:
    import torch


class TextGeneration(Predictor):
    """Continues texts."""

    kind: Literal["text_generation"] = "text_generation"
    model: Model
    text_column: str
    prompt: Annotated[
        str | None, Field(description="What the model continues, with {column} for values; default: the text alone.")
    ] = None
    max_new_tokens: PositiveInt = 128
    temperature: Annotated[float, Field(ge=0, description="0 takes the likeliest token.")] = 0
    seed: int = 0
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _prompt_holds_the_text(self) -> "TextGeneration":
        if self.prompt is not None and self.text_column not in placeholders(self.prompt):
            raise ValueError(f"prompt: expected {{{self.text_column}}} in it, found {self.prompt!r}")
        return self

    def inputs(self) -> list[str]:
        columns = [self.text_column] if self.prompt is None else placeholders(self.prompt)
        return [*columns, "row_id"] if self.temperature and "row_id" not in columns else columns

    def fingerprint(self) -> dict[str, str]:
        return pretrained.fingerprint(self.model)

    def load(self) -> Predict:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        device = pretrained.device(self.num_gpus)
        checkpoint = pretrained.find(self.model)
        tokenizer = _padded(checkpoint, checkpoint.load(AutoTokenizer, padding_side="left"))
        model, _ = checkpoint.weights(AutoModelForCausalLM, self.dtype)
        model = model.to(device)
        ends = _end_tokens(model)
        longest = self._longest_prompt(checkpoint, model)

        def predict(batch: Batch) -> dict:
            given = texts(batch[self.text_column], self.text_column)
            prompts = given if self.prompt is None else filled(self.prompt, batch)
            tokens = tokenizer(prompts, padding=True, return_tensors="pt").to(device)
            _check(tokens["attention_mask"].sum(1).tolist(), longest)
            with torch.inference_mode():
                made = model.generate(
                    input_ids=tokens["input_ids"],
                    attention_mask=tokens["attention_mask"],
                    max_new_tokens=self.max_new_tokens,
                    do_sample=False,
                    num_beams=1,
                    pad_token_id=tokenizer.pad_token_id,
                    logits_processor=self._noise(batch, prompts, device),
                )
            new = made[:, tokens["input_ids"].shape[1] :].tolist()
            kept = [row[: next((at for at, token in enumerate(row) if token in ends), None)] for row in new]
            return {"generated_text": tokenizer.batch_decode(kept, skip_special_tokens=True)}

        return predict

    def _noise(self, batch: Batch, prompts: list[str], device: "torch.device") -> list[RowNoise] | None:
        if not self.temperature:
            return None
        names = [f"{row_id} {prompt}" for row_id, prompt in zip(batch["row_id"], prompts, strict=True)]
        return [RowNoise(self.temperature, self.seed, names, device)]

    def _longest_prompt(self, checkpoint: Checkpoint, model: Any) -> int | None:
        context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if context and context <= self.max_new_tokens:
            raise checkpoint.unusable(
                f"max_new_tokens: {self.max_new_tokens} fills its whole context of {context} tokens"
            )
        return context - self.max_new_tokens if context else None


def _padded(checkpoint: Checkpoint, tokenizer: Any) -> Any:
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.bos_token
    if tokenizer.pad_token is None:
        raise checkpoint.unusable(
            "expected a pad or an end token in tokenizer_config.json, found neither. Set pad_token"
        )
    return tokenizer


def _end_tokens(model: Any) -> set[int | None]:
    ends = model.generation_config.eos_token_id
    return set(ends) if isinstance(ends, list) else {ends}


def _check(lengths: list[int], longest: int | None) -> None:
    for length in lengths:
        if not length:
            raise RowError("prompt: expected at least one token, found an empty text.")
        if longest and length > longest:
            raise RowError(f"prompt: expected at most {longest} tokens beside max_new_tokens, found {length}.")
