"""Text embeddings from any transformers text encoder.

In: `text_column`, strings. Out: `embedding`, float32 N x D. Pooling, normalisation and the greatest length are what the
files beside the model say (`pooling.py`); a model without them gives the mean over its tokens, not normalised.

A window of batches is sorted by length, so that little is spent on padding: 45 to 84 texts a second for MiniLM on news
texts, two cores. `batch_size: auto` makes batches of about as many tokens instead of as many texts. Padding is on the
right whatever the tokenizer prefers, so that no row depends on its neighbours.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from tasks.errors import RowError
from tasks.infer import pretrained
from tasks.infer.checkpoint import Dtype, Model
from tasks.infer.pooling import SentenceSettings, pool, sentence_settings
from tasks.infer.predictor import Batch, Predict, Predictor
from tasks.infer.texts import texts
from tasks.infer.token_batches import CPU_TOKENS, DEVICE_TOKENS, token_batches

BATCHES_PER_WINDOW = 32


class TextEmbedding(Predictor):
    """Turns texts into vectors."""

    kind: Literal["text_embedding"] = "text_embedding"
    model: Model
    text_column: str
    dtype: Dtype = "float32"

    def inputs(self) -> list[str]:
        return [self.text_column]

    def rows_per_call(self) -> int:
        return BATCHES_PER_WINDOW * self.forward_batch_size()

    def fingerprint(self) -> dict[str, str]:
        return pretrained.fingerprint(self.model)

    def load(self) -> Predict:
        import torch
        from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

        device = pretrained.device(self.num_gpus)
        checkpoint = pretrained.find(self.model)
        settings = sentence_settings(checkpoint)
        place = {"subfolder": settings.subfolder}
        tokenizer = checkpoint.load(AutoTokenizer, **place)
        config = checkpoint.load(AutoConfig, **place)
        auto_class = AutoModelForTextEncoding if config.is_encoder_decoder else AutoModel
        model, _ = checkpoint.weights(auto_class, self.dtype, optional="pooler", **place)
        model = model.to(device)
        tokens = CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS
        budget = tokens if self.batch_size == "auto" else None
        tokenize = _tokenize_function(tokenizer, config, settings)

        def embed(encoded: list[dict[str, list[int]]]) -> np.ndarray:
            batch = tokenizer.pad(encoded, padding_side="right", return_tensors="pt").to(device)
            pooled = pool(model(**batch).last_hidden_state.float(), batch["attention_mask"], settings.modes)
            return (torch.nn.functional.normalize(pooled) if settings.normalize else pooled).cpu().numpy()

        def predict(batch: Batch) -> dict:
            encoded = tokenize(texts(batch[self.text_column], self.text_column))
            lengths = [len(one["input_ids"]) for one in encoded]
            batches = list(token_batches(lengths, budget, self.forward_batch_size()))
            with torch.inference_mode():
                made = [embed([encoded[row] for row in places]) for places in batches]
            return {"embedding": np.concatenate(made)[np.argsort(np.concatenate(batches))]}

        return predict


def _tokenize_function(
    tokenizer: Any, config: Any, settings: SentenceSettings
) -> Callable[[list[str]], list[dict[str, list[int]]]]:
    known = (settings.max_length, tokenizer.model_max_length, getattr(config, "max_position_embeddings", None))
    max_length = known[0] or min(length for length in known[1:] if length)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token  # masked, so any token will do

    def tokenize(values: list[str]) -> list[dict[str, list[int]]]:
        values = [settings.prompt + value for value in values]
        values = [value.lower() for value in values] if settings.lower_case else values
        encoded = tokenizer(values, truncation=max_length < 1e9, max_length=int(max_length), return_attention_mask=True)
        rows = [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]
        if not all(row["input_ids"] for row in rows):
            raise RowError("text: expected at least one token, found an empty text.")
        return rows

    return tokenize
