"""Text embeddings from any transformers text encoder.

In: `text_column`, strings. Out: `embedding`, float32 N x D. The files beside the model determine pooling, normalisation
and the maximum length (`pooling.py`); a model without them returns the mean over its tokens, not normalised. If the
files of a model require more, sentence-transformers runs it: `pip install 'overnight[sentences]'`.

A window of batches is sorted by length, to keep padding small: 45 to 84 texts per second for MiniLM on news texts, two
cores. `batch_size: auto` makes batches of about as many tokens instead of as many texts. Padding is on the right for
every tokenizer, so that no row depends on its neighbours.
"""

from typing import ClassVar, Literal

import numpy as np

from overnight.tasks.infer.chat.prompts import texts
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.length_bucketing import Encoded, batches_by_length
from overnight.tasks.infer.huggingface.pooling import pool, sentence_settings
from overnight.tasks.infer.huggingface.predictor import TextPredictor
from overnight.tasks.infer.huggingface.sentence_transformer import encode_function
from overnight.tasks.infer.huggingface.tokenization import tokenize_function
from overnight.tasks.infer.predictor import Batch, Offer, Predict


class TextEmbedding(TextPredictor):
    """Turns texts into vectors."""

    kind: Literal["text_embedding"] = "text_embedding"
    offer: ClassVar[Offer] = Offer(
        "vectors of texts, for search and clustering (MiniLM, ...)",
        "text",
        "sentence-transformers/all-MiniLM-L6-v2",
        lambda column: {"text_column": column},
        architecture="bert",
    )

    def outputs_made(self) -> list[str] | None:
        return ["embedding"]

    def load(self) -> Predict:
        checkpoint = self.checkpoint()
        settings = sentence_settings(checkpoint)
        if settings.beyond:
            return self._run_by_library(checkpoint, settings.beyond)

        import torch
        from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

        device = self.torch_device()
        place = {"subfolder": settings.subfolder}
        tokenizer = checkpoint.load(AutoTokenizer, **place)
        config = checkpoint.load(AutoConfig, **place)
        auto_class = AutoModelForTextEncoding if config.is_encoder_decoder else AutoModel
        model, _ = checkpoint.weights(auto_class, self.dtype, optional="pooler", **place)
        model = model.to(device)
        budget = self.token_budget()
        tokenize = tokenize_function(
            tokenizer, config, settings.max_length, lower_case=settings.lower_case, prompt=settings.prompt
        )

        def embed(encoded: list[Encoded]) -> np.ndarray:
            batch = tokenizer.pad(encoded, padding_side="right", return_tensors="pt").to(device)
            pooled = pool(model(**batch).last_hidden_state.float(), batch["attention_mask"], settings.modes)
            vectors = torch.nn.functional.normalize(pooled) if settings.normalize else pooled
            return vectors[:, : settings.dimensions].cpu().numpy()

        def predict(batch: Batch) -> dict:
            encoded = tokenize(texts(batch[self.text_column], self.text_column))
            with torch.inference_mode():
                return {"embedding": batches_by_length(encoded, budget, self.forward_batch_size(), embed)}

        return predict

    def _run_by_library(self, checkpoint: Checkpoint, needs: str) -> Predict:
        encode = encode_function(checkpoint, needs, self.dtype, self.torch_device)

        def predict(batch: Batch) -> dict:
            return {"embedding": encode(texts(batch[self.text_column], self.text_column), self.forward_batch_size())}

        return predict
