"""Texts of an encoder: tokens without padding, in batches of similar length, and the vectors of their tokens.

A window of texts is sorted, longest first, so that a batch that does not fit into the memory fails early. A batch takes
texts up to a budget of tokens, including padding, so that every batch is about the same work. Budgets of tokens come
from fairseq (https://arxiv.org/abs/1904.01038).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.saved_model import PretrainedPredictor

if TYPE_CHECKING:
    import torch

Tokens = Mapping[str, list[int]]  # of one text, by the names of the model's inputs

# Per batch. On CPUs the best of 512 to 8,192 for MiniLM and news texts, float32 and bfloat16; for devices, an estimate.
CPU_TOKENS, DEVICE_TOKENS = 2_048, 65_536
BATCHES_PER_WINDOW = 32
# The files that sentence-transformers saves beside a text model:
# modules.json                       the steps: Transformer, Pooling, Normalize
# 1_Pooling/config.json              cls, max, mean, ...: several are concatenated
# sentence_bert_config.json          max_seq_length, do_lower_case
# config_sentence_transformers.json  the prompt before every text, if default_prompt_name names one; truncate_dim
MODES = {  # in the order in which sentence-transformers concatenates them: name in the file -> short name
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
TOKEN_OUTPUT = ("last_hidden_state", "forward")  # the output and the method with the token embeddings


class TextPredictor(PretrainedPredictor):
    """A saved model that gets texts in batches of similar length."""

    text_column: Annotated[str, Field(description="The column that holds the texts.")]

    def inputs(self) -> list[str]:
        return [self.text_column]

    def rows_per_call(self) -> int:
        return BATCHES_PER_WINDOW * self.forward_batch_size()

    def token_budget(self) -> int | None:
        """Return how many tokens a batch may have, including padding, if `batch_size` is auto; otherwise None."""
        if self.batch_size != "auto":
            return None
        return DEVICE_TOKENS if self.accelerators() else CPU_TOKENS

    def describe_batch(self) -> str:
        budget, window = self.token_budget(), f"of {self.rows_per_call()} sorted by length"
        if budget is None:
            return f"{self.batch_size} texts, {window}"
        return f"texts that fill {budget:,} tokens, {window}"

    def in_batches(self, texts: Sequence[Tokens], run: Callable[..., np.ndarray]) -> np.ndarray:
        """Call `run` with lists of texts of similar length. Return all results, one row per text in their order."""
        lengths = [len(tokens["input_ids"]) for tokens in texts]
        batches = list(token_batches(lengths, self.token_budget(), self.forward_batch_size()))
        results = []
        for batch in batches:
            results.append(run([texts[row] for row in batch]))
        return np.concatenate(results)[np.argsort(np.concatenate(batches))]


def token_batches(lengths: Sequence[int], tokens: int | None, rows: int) -> Iterator[np.ndarray]:
    """Yield the positions of each batch's texts, longest first: `rows`, or as many as fill `tokens` with padding."""
    order = np.argsort([-length for length in lengths], kind="stable")
    start = 0
    while start < len(order):
        count = rows
        if tokens is not None:
            count = max(tokens // max(lengths[order[start]], 1), 1)
        yield order[start : start + count]
        start += count


def tokenize_function(
    tokenizer: Any, config: Any, max_length: int | None = None, lower_case: bool = False, prompt: str = ""
) -> Callable[[list[str]], list[Tokens]]:
    """Return a function that takes texts and returns the tokens of each, cut at `max_length` or the model's limit."""
    limits = (tokenizer.model_max_length, getattr(config, "max_position_embeddings", None))
    longest = max_length or min(limit for limit in limits if limit)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token  # masked, so any token is fine

    def tokenize(texts: list[str]) -> list[Tokens]:
        texts = [prompt + text for text in texts]
        if lower_case:
            texts = list(map(str.lower, texts))
        columns = tokenizer(texts, truncation=longest < 1e9, max_length=int(longest), return_attention_mask=True)
        if not all(columns["input_ids"]):
            raise RowError("text: expected at least one token, found an empty text.")
        rows: list[Tokens] = []
        for row in zip(*columns.values(), strict=True):
            rows.append(dict(zip(columns, row, strict=True)))
        return rows

    return tokenize


@dataclass(frozen=True)
class SentenceSettings:
    """The settings beside a model; the defaults are for a model without such files.

    `beyond` describes a requirement that only the library supports, such as dense layers. Then the others do not count.
    """

    subfolder: str = ""  # of the transformer, below the model's folder
    modes: tuple[str, ...] = ("mean",)  # of pooling; the results of several are concatenated
    normalize: bool = False  # vectors get the length 1
    max_length: int | None = None  # in tokens; None: the model's own limit
    lower_case: bool = False
    prompt: str = ""
    dimensions: int | None = None  # at which vectors are cut; None: all
    beyond: str = ""


def sentence_settings(checkpoint: Checkpoint) -> SentenceSettings:
    """Return the settings that sentence-transformers saved beside the model, or the defaults if it saved none."""
    modules = checkpoint.settings_file("modules.json") or []
    steps = {module["type"].rpartition(".")[2]: module["path"] for module in modules}
    is_plain = steps.keys() <= {"Transformer", "Pooling", "Normalize"} and len(steps) == len(modules)
    if not is_plain or (modules and "Transformer" not in steps):
        return SentenceSettings(beyond=f"modules.json names the steps {', '.join(steps)}")
    subfolder = steps.get("Transformer", "")
    pooling = checkpoint.settings_file(f"{steps.get('Pooling', '1_Pooling')}/config.json")
    transformer = checkpoint.settings_file(f"{subfolder}/sentence_bert_config.json".lstrip("/")) or {}
    text = (transformer.get("modality_config") or {}).get("text")
    if text and (text.get("method_output_name"), text.get("method")) != TOKEN_OUTPUT:
        return SentenceSettings(beyond=f"its tokens come from {text.get('method_output_name')} of {text.get('method')}")
    settings = checkpoint.settings_file("config_sentence_transformers.json") or {}
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name")) or ""
    if prompt and not (pooling or {}).get("include_prompt", True):
        return SentenceSettings(beyond="its pooling leaves the prompt out")
    modes = _modes(pooling)
    if not modes or not set(modes) <= set(MODES.values()):
        return SentenceSettings(beyond=f"its pooling is {', '.join(modes) or 'none'}")
    return SentenceSettings(
        subfolder=subfolder,
        modes=tuple(mode for mode in MODES.values() if mode in modes),
        normalize="Normalize" in steps,
        max_length=transformer.get("max_seq_length"),
        lower_case=bool(transformer.get("do_lower_case")),
        prompt=prompt,
        dimensions=settings.get("truncate_dim"),
    )


def _modes(pooling: dict[str, Any] | None) -> list[str]:
    if not pooling:
        return ["mean"]
    mode = pooling.get("pooling_mode")
    if isinstance(mode, str):
        return [mode]
    if mode:
        return sorted(set(mode))
    modes = set()
    for name, is_on in pooling.items():
        if "pooling_mode" in name and is_on:
            modes.add(MODES.get(name, name))
    return sorted(modes)


def pool(tokens: "torch.Tensor", mask: "torch.Tensor", modes: tuple[str, ...]) -> "torch.Tensor":
    """Return N x (D * modes) from token embeddings, N x T x D, and their mask, by the library's formulas."""
    import torch

    return torch.cat([_pool(tokens, mask, mode) for mode in modes], 1)


def _pool(tokens: "torch.Tensor", mask: "torch.Tensor", mode: str) -> "torch.Tensor":
    import torch

    weights = mask.unsqueeze(-1).to(tokens.dtype)
    if mode == "cls":
        return tokens[:, 0]
    if mode == "max":
        return tokens.masked_fill(weights == 0, -1e9).amax(1)
    if mode == "lasttoken":
        return tokens[torch.arange(len(tokens), device=mask.device), mask.sum(1) - 1]
    if mode == "weightedmean":
        positions = torch.arange(1, mask.shape[1] + 1, device=mask.device, dtype=tokens.dtype)
        weights = positions.reshape(1, -1, 1) * weights
    total, lengths = (tokens * weights).sum(1), weights.sum(1)
    return total / (lengths.sqrt() if mode == "mean_sqrt_len_tokens" else lengths)
