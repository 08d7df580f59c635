"""Text classification (sentiment, topic, ...) with any transformers model for it.

In: `text_column`, strings. Out: the columns of `class_labels.py`. Texts are cut at the model's length and batched by
length, as in `text_embedding.py`.
"""

from typing import ClassVar, Literal

import numpy as np

from overnight.tasks.infer.chat.prompts import texts
from overnight.tasks.infer.huggingface.class_labels import TopK, columns_of, confidences, labelled
from overnight.tasks.infer.huggingface.length_bucketing import Encoded, batches_by_length
from overnight.tasks.infer.huggingface.predictor import TextPredictor
from overnight.tasks.infer.huggingface.tokenization import tokenize_function
from overnight.tasks.infer.predictor import Batch, Offer, Predict


class TextClassification(TextPredictor):
    """Labels texts with one class each, or with several."""

    kind: Literal["text_classification"] = "text_classification"
    offer: ClassVar[Offer] = Offer(
        "labels of texts, sentiment for example",
        "text",
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
        lambda column: {"text_column": column},
        architecture="distilbert",
    )
    top_k: TopK = 1

    def outputs_made(self) -> list[str] | None:
        return columns_of(self.top_k)

    def load(self) -> Predict:
        import torch
        from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

        device = self.torch_device()
        checkpoint = self.checkpoint()
        tokenizer = checkpoint.load(AutoTokenizer)
        config = checkpoint.load(AutoConfig)
        tokenize = tokenize_function(tokenizer, config)
        if config.pad_token_id is None:  # decoders use it to find the last token of a padded text
            config.pad_token_id = tokenizer.pad_token_id
        model, _ = checkpoint.weights(AutoModelForSequenceClassification, self.dtype, config=config)
        model = model.to(device)
        budget = self.token_budget()

        def scores(encoded: list[Encoded]) -> np.ndarray:
            batch = tokenizer.pad(encoded, padding_side="right", return_tensors="pt").to(device)
            return confidences(model(**batch).logits.float(), config).cpu().numpy()

        def predict(batch: Batch) -> dict:
            encoded = tokenize(texts(batch[self.text_column], self.text_column))
            with torch.inference_mode():
                found = batches_by_length(encoded, budget, self.forward_batch_size(), scores)
            return labelled(torch.from_numpy(found), model.config.id2label, self.top_k)

        return predict
