"""The generation of new tokens by any generating model of transformers, within its context.

Random tokens belong to a row: the same row draws the same text, in any batch.
"""

import hashlib
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from overnight.tasks.errors import RowError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.constraint import Constraint
from overnight.tasks.infer.huggingface.token_scores import ForcedTokens, LogProbabilities
from overnight.tasks.infer.predictor import Batch

if TYPE_CHECKING:
    import torch

    from overnight.tasks.infer.chat.grammar import Grammar


@dataclass(frozen=True)
class Generated:
    """The new tokens of one text, without the end token. `ended` is True if the model made an end token.

    `problem` is why the text does not count, or empty. `mean_logprob` is None unless it was required.
    """

    tokens: list[int]
    ended: bool
    problem: str = ""
    mean_logprob: float | None = None

    @property
    def count(self) -> int:
        """Return the number of new tokens, including the end token."""
        return len(self.tokens) + self.ended

    @property
    def finish_reason(self) -> str:
        return "stop" if self.ended else "length"


class Generation:
    """Generates at most `max_new_tokens` new tokens per text, with a model that is ready on its device."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        tokenizer: Any,
        model: Any,
        max_new_tokens: int,
        grammar: "Grammar | None" = None,
        logprobs: bool = False,
    ) -> None:
        if tokenizer.pad_token is None:  # it is masked, so any token is fine
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.bos_token
        if tokenizer.pad_token is None:
            raise checkpoint.unusable(
                "expected a pad or an end token in tokenizer_config.json, found neither. Set pad_token"
            )
        self.tokenizer, self._model, self.max_new_tokens = tokenizer, model, max_new_tokens
        self.is_encoder_decoder = bool(model.config.is_encoder_decoder)
        ends = model.generation_config.eos_token_id
        self._ends = set(ends) if isinstance(ends, list) else {ends}
        context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if context and context <= max_new_tokens:
            raise checkpoint.unusable(f"max_new_tokens: {max_new_tokens} fills its whole context of {context} tokens")
        self._context = self.longest_prompt = context
        if context and not self.is_encoder_decoder:
            self.longest_prompt = context - max_new_tokens
        self._logprobs, self._constraint = logprobs, None
        if grammar:
            vocabulary = model.config.get_text_config().vocab_size
            self._constraint = Constraint(checkpoint, tokenizer, grammar, vocabulary, self._ends - {None})

    def limited(self, max_new_tokens: int) -> "Generation":
        """Return this generation with another limit. Raise `RowError` if that leaves no room for a prompt."""
        if self._context and self._context <= max_new_tokens:
            raise RowError(
                f"max_new_tokens: expected less than the model's context of {self._context} tokens, "
                f"found {max_new_tokens}."
            )
        limited = copy(self)
        limited.max_new_tokens = max_new_tokens
        if self._context and not self.is_encoder_decoder:
            limited.longest_prompt = self._context - max_new_tokens
        return limited

    def run(
        self, inputs: dict[str, Any], noises: "Sequence[GumbelNoise | None]", num_beams: int = 1, best: int = 1
    ) -> list[list[Generated]]:
        """Return the texts of each row: for each of `noises`, one, or the `best` of a beam search of `num_beams`."""
        beside = "" if self.is_encoder_decoder else " beside max_new_tokens"
        for length in inputs["attention_mask"].sum(1).tolist():
            if not length:
                raise RowError("prompt: expected at least one token, found an empty text.")
            if self.longest_prompt and length > self.longest_prompt:
                raise RowError(f"prompt: expected at most {self.longest_prompt} tokens{beside}, found {length}.")
        rows: list[list[Generated]] = [[] for _ in inputs["attention_mask"]]
        for noise in noises:
            for row, texts in zip(rows, self._run_once(inputs, noise, num_beams, best), strict=True):
                row.extend(texts)
        return rows

    def _run_once(
        self, inputs: dict[str, Any], noise: "GumbelNoise | None", num_beams: int, best: int
    ) -> list[list[Generated]]:
        processors: list[Any] = []
        log_probabilities = limiter = None
        if self._logprobs:
            log_probabilities = LogProbabilities()
            processors.append(log_probabilities)
        if self._constraint:  # before the noise, which draws among the tokens that are left
            limiter = self._constraint.rows(len(inputs["attention_mask"]))
            processors.append(limiter)
        if noise:
            processors.append(noise)
        sequences = self._generate(inputs, processors, self.max_new_tokens, num_beams, best)
        start = 1 if self.is_encoder_decoder else inputs["input_ids"].shape[1]
        texts = list(map(self._without_end, sequences[:, start:].tolist()))
        for row, problem in (limiter.problems if limiter else {}).items():
            texts[row] = replace(texts[row], problem=problem)
        if log_probabilities:
            means = log_probabilities.means(sequences, [text.count for text in texts])
            texts = [replace(text, mean_logprob=mean) for text, mean in zip(texts, means, strict=True)]
        return [texts[row : row + best] for row in range(0, len(texts), best)]

    def _generate(
        self, inputs: dict[str, Any], processors: Sequence[Any], max_new_tokens: int, num_beams: int = 1, best: int = 1
    ) -> "torch.Tensor":
        """Return the tokens of each row, after `processors` of logits, as `generate` of transformers does."""
        import torch

        first: list[Any] = []
        settings: dict[str, Any] = {}
        if not self.is_encoder_decoder:
            config = self._model.generation_config
            first, settings = unpadded_processors(config, inputs["attention_mask"], num_beams)
        with torch.inference_mode():
            sequences: torch.Tensor = self._model.generate(
                **inputs,
                **settings,
                max_new_tokens=max_new_tokens,
                do_sample=False,
                num_beams=num_beams,
                num_return_sequences=best,
                pad_token_id=self.tokenizer.pad_token_id,
                logits_processor=[*first, *processors] or None,
            )
        return sequences

    def tokens_of(self, checkpoint: Checkpoint, text: str) -> list[int]:
        """Return the tokens of an answer with its end token. Raise `JobError` if they exceed `max_new_tokens`."""
        tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens += sorted(self._ends - {None})[:1]
        if len(tokens) > self.max_new_tokens:
            raise checkpoint.unusable(
                f"max_new_tokens: expected at least {len(tokens)} for the choice {text!r}, found {self.max_new_tokens}"
            )
        return tokens

    def scores(self, inputs: dict[str, Any], answers: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return for each row the log probability that the model writes each of these answers."""
        columns = []
        for tokens in answers:
            forced = ForcedTokens(tokens)
            self._generate(inputs, [forced], len(tokens))
            columns.append(cast("torch.Tensor", forced.total).tolist())
        return [list(row) for row in zip(*columns, strict=True)]

    def texts(self, generated: Sequence[Generated]) -> list[str]:
        """Return the text of each of `generated`, without special tokens."""
        tokens = [text.tokens for text in generated]
        texts: list[str] = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return texts

    def _without_end(self, row: list[int]) -> Generated:
        for position, token in enumerate(row):
            if token in self._ends:
                return Generated(row[:position], True)
        return Generated(row, False)


def unpadded_processors(config: Any, mask: Any, num_beams: int = 1) -> tuple[list[Any], dict[str, Any]]:
    """Return processors of logits that skip a row's padding, and arguments that switch off transformers' own."""
    from transformers import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

    # If a tokenizer pads with its end token, as many do, a penalty would make the end of a padded row less likely.
    starts: list[int] = (mask.shape[1] - mask.sum(1)).repeat_interleave(num_beams).tolist()
    if not any(starts):
        return [], {}
    processors: list[Any] = []
    settings: dict[str, Any] = {}
    if config.repetition_penalty not in (None, 1.0):
        processors.append(_RowByRow(RepetitionPenaltyLogitsProcessor(config.repetition_penalty), starts))
        settings["repetition_penalty"] = 1.0
    if config.no_repeat_ngram_size:
        processors.append(_RowByRow(NoRepeatNGramLogitsProcessor(config.no_repeat_ngram_size), starts))
        settings["no_repeat_ngram_size"] = 0
    return processors, settings


@dataclass(frozen=True)
class Sampling:
    """The settings by which tokens are drawn. With `temperature` 0, decoding is greedy."""

    temperature: float
    seed: int
    top_p: float = 1
    top_k: int | None = None

    def noises(
        self, batch: Batch, prompts: Sequence[str], device: "torch.device", count: int
    ) -> "list[GumbelNoise | None]":
        """Return the noise for each of a row's `count` texts. It depends on seed, row, prompt and the text's number."""
        if not self.temperature:
            return [None] * count
        noises: list[GumbelNoise | None] = []
        for number in range(count):
            prefix = f"text {number} of " if number else ""
            names = []
            for row_id, prompt in zip(batch["row_id"], prompts, strict=True):
                names.append(f"{prefix}{row_id} {prompt}")
            noises.append(GumbelNoise(self, names, device))
        return noises


class GumbelNoise:
    """A logits processor of one call of `generate`: greedy search then draws the tokens of each row at random.

    It is the Gumbel-max trick: the likeliest token of `scores / temperature + noise`, with standard Gumbel noise, is a
    draw from softmax(scores / temperature) (https://arxiv.org/abs/1411.0030). `top_k` and `top_p` first remove the
    unlikely tokens, as in transformers. A row's numbers depend only on its name, and a CPU and a GPU draw differently.
    """

    def __init__(self, sampling: Sampling, names: Iterable[str], device: "torch.device") -> None:
        import torch
        from transformers import TopKLogitsWarper, TopPLogitsWarper

        self.temperature = sampling.temperature
        self.cuts: list[Any] = []
        if sampling.top_k:
            self.cuts.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            self.cuts.append(TopPLogitsWarper(sampling.top_p))
        self.generators = []
        for name in names:
            seed = seed_of(f"{sampling.seed} {name}")
            self.generators.append(torch.Generator(device).manual_seed(seed))

    def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":
        """Return `scores` (N x V) as float32, divided by the temperature, cut to the likely tokens, plus noise."""
        import torch

        scores = scores.float() / self.temperature
        for cut in self.cuts:
            scores = cut(input_ids, scores)
        noise = torch.empty_like(scores)
        for row, generator in zip(noise, self.generators, strict=True):
            row.exponential_(generator=generator)
        return scores - noise.clamp_min(torch.finfo(noise.dtype).tiny).log()


def seed_of(name: str) -> int:
    """Return a seed of 56 bits for a random generator, which depends only on `name`."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


class _RowByRow:
    """Applies a processor of transformers to each row, without the padding before it."""

    def __init__(self, processor: Any, starts: list[int]) -> None:
        self._processor, self._starts = processor, starts

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        rows = []
        for row, start in enumerate(self._starts):
            rows.append(self._processor(input_ids[row : row + 1, start:], scores[row : row + 1]))
        return torch.cat(rows)
