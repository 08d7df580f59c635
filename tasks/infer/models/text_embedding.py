"""Text embeddings from any transformers text encoder.

In: `text_column`, strings. Out: `embedding`, float32 N x D. The files beside the model determine pooling, normalisation
and the maximum length (`text_inputs.py`); a model without them returns the mean over its tokens, not
normalised. If they require more, the library runs it: `pip install 'overnight[sentences]'`. Padding is on the right for
every tokenizer, so that no row depends on its neighbours.
"""

from typing import ClassVar, Literal

import numpy as np

from overnight.tasks.config.extras import require_extra
from overnight.tasks.infer.chat.prompts import texts
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.text_inputs import (
    TextPredictor,
    Tokens,
    pool,
    sentence_settings,
    tokenize_function,
)
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
        tokenizer = checkpoint.load(AutoTokenizer, subfolder=settings.subfolder)
        config = checkpoint.load(AutoConfig, subfolder=settings.subfolder)
        auto_class = AutoModelForTextEncoding if config.is_encoder_decoder else AutoModel
        model, _ = checkpoint.weights(auto_class, self.dtype, optional="pooler", subfolder=settings.subfolder)
        model = model.to(device)
        tokenize = tokenize_function(
            tokenizer, config, settings.max_length, lower_case=settings.lower_case, prompt=settings.prompt
        )

        def embed(rows: list[Tokens]) -> np.ndarray:
            batch = tokenizer.pad(rows, padding_side="right", return_tensors="pt").to(device)
            vectors = pool(model(**batch).last_hidden_state.float(), batch["attention_mask"], settings.modes)
            if settings.normalize:
                vectors = torch.nn.functional.normalize(vectors)
            return vectors[:, : settings.dimensions].cpu().numpy()

        def predict(batch: Batch) -> dict:
            tokens = tokenize(texts(batch[self.text_column], self.text_column))
            with torch.inference_mode():
                return {"embedding": self.in_batches(tokens, embed)}

        return predict

    def _run_by_library(self, checkpoint: Checkpoint, needs: str) -> Predict:
        library = require_extra("sentence_transformers", f"model {checkpoint.written}: {needs}", "infer")
        import torch

        device = str(self.torch_device())
        try:
            model = library.SentenceTransformer(
                checkpoint.location,
                device=device,
                revision=checkpoint.revision,
                local_files_only=checkpoint.local_files_only,
                trust_remote_code=checkpoint.runs_code,
                model_kwargs={"dtype": getattr(torch, self.dtype)},
            )
        except Exception as error:
            raise checkpoint.unusable(f"sentence-transformers cannot load it: {error}") from error

        def predict(batch: Batch) -> dict:
            vectors = model.encode(
                texts(batch[self.text_column], self.text_column),
                batch_size=self.forward_batch_size(),
                convert_to_numpy=True,
                show_progress_bar=False,
            )
            return {"embedding": np.asarray(vectors, np.float32)}

        return predict
