"""The generation of new tokens from input tokens, by any generating model of transformers, within its context.

This file does not use columns, texts or images.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from overnight.tasks.errors import RowError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.per_row_sampling import GumbelNoise
from overnight.tasks.infer.huggingface.unpadded_processors import unpadded_processors


@dataclass(frozen=True)
class Generated:
    """The new tokens of one text, without the end token. `ended` is True if the model made an end token."""

    tokens: list[int]
    ended: bool

    @property
    def count(self) -> int:
        """Return the number of new tokens, including the end token."""
        return len(self.tokens) + self.ended

    @property
    def finish_reason(self) -> str:
        """Return `stop` if the model made an end token, and `length` if the limit of new tokens ended the text."""
        return "stop" if self.ended else "length"


class Generation:
    """Generates at most `max_new_tokens` new tokens per text, with a model that is ready on its device.

    `tokenizer` is the model's, and errors name the model as `checkpoint`.
    """

    def __init__(self, checkpoint: Checkpoint, tokenizer: Any, model: Any, max_new_tokens: int) -> None:
        """Check the limits, and give `tokenizer` a pad token. Raise `JobError` if the context leaves no room."""
        self.tokenizer, self._model, self._max_new_tokens = padded(checkpoint, tokenizer), model, max_new_tokens
        self.is_encoder_decoder = bool(model.config.is_encoder_decoder)
        ends = model.generation_config.eos_token_id
        self._ends = set(ends) if isinstance(ends, list) else {ends}
        context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if context and context <= max_new_tokens:
            raise checkpoint.unusable(f"max_new_tokens: {max_new_tokens} fills its whole context of {context} tokens")
        self._longest = context and (context if self.is_encoder_decoder else context - max_new_tokens)

    def run(
        self, inputs: dict[str, Any], noises: Sequence[GumbelNoise | None], num_beams: int = 1, best: int = 1
    ) -> list[list[Generated]]:
        """Generate texts for each row, and return for each row a list with the new tokens of each text.

        `inputs` has `input_ids` and `attention_mask`, N x T on the model's device, and further inputs of its forward
        pass. The model runs once for each of `noises`, so that a batch needs the memory of one text per row. A noise
        draws the tokens at random; None takes the likeliest tokens. Each run gives a row one text, or the `best` texts
        of a beam search that keeps `num_beams` texts. Raise `RowError` for a prompt that is empty, or too long for the
        model's context.
        """
        self._check(inputs["attention_mask"].sum(1).tolist())
        passes = [self._pass(inputs, noise, num_beams, best) for noise in noises]
        return [[one for several in row for one in several] for row in zip(*passes, strict=True)]

    def _pass(
        self, inputs: dict[str, Any], noise: GumbelNoise | None, num_beams: int, best: int
    ) -> list[list[Generated]]:
        import torch

        own, off = unpadded_processors(self._model.generation_config, inputs["attention_mask"], num_beams)
        processors = [] if self.is_encoder_decoder else own
        with torch.inference_mode():
            made = self._model.generate(
                **inputs,
                **({} if self.is_encoder_decoder else off),
                max_new_tokens=self._max_new_tokens,
                do_sample=False,
                num_beams=num_beams,
                num_return_sequences=best,
                pad_token_id=self.tokenizer.pad_token_id,
                logits_processor=[*processors, *([noise] if noise else [])] or None,
            )
        start = 1 if self.is_encoder_decoder else inputs["input_ids"].shape[1]
        found = [self._cut(row) for row in made[:, start:].tolist()]
        return [found[row : row + best] for row in range(0, len(found), best)]

    def texts(self, generated: Sequence[Generated]) -> list[str]:
        """Return the text of each of `generated`, without special tokens."""
        found: list[str] = self.tokenizer.batch_decode([one.tokens for one in generated], skip_special_tokens=True)
        return found

    def _cut(self, row: list[int]) -> Generated:
        end = next((at for at, token in enumerate(row) if token in self._ends), None)
        return Generated(row[:end], end is not None)

    def _check(self, lengths: list[int]) -> None:
        beside = "" if self.is_encoder_decoder else " beside max_new_tokens"
        for length in lengths:
            if not length:
                raise RowError("prompt: expected at least one token, found an empty text.")
            if self._longest and length > self._longest:
                raise RowError(f"prompt: expected at most {self._longest} tokens{beside}, found {length}.")


def padded(checkpoint: Checkpoint, tokenizer: Any) -> Any:
    """Return `tokenizer`. If it has no pad token, another special token is set as its pad token.

    Pad tokens are masked, so any token is fine. Raise `JobError`, which names `checkpoint`, if the tokenizer has no
    token for that.
    """
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.bos_token
    if tokenizer.pad_token is None:
        raise checkpoint.unusable(
            "expected a pad or an end token in tokenizer_config.json, found neither. Set pad_token"
        )
    return tokenizer
