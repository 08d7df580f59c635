"""Text classification (sentiment, topic, ...) with any transformers model for it.

In: `text_column`, strings. Out: the columns of `Classifier`. Texts are cut at the model's length and batched by length.
"""

from typing import ClassVar, Literal

import numpy as np

from overnight.tasks.infer.chat.prompts import texts
from overnight.tasks.infer.huggingface.saved_model import Classifier, confidences
from overnight.tasks.infer.huggingface.text_inputs import TextPredictor, Tokens, tokenize_function
from overnight.tasks.infer.predictor import Batch, Offer, Predict


class TextClassification(Classifier, TextPredictor):
    """Labels texts with one class each, or with several."""

    kind: Literal["text_classification"] = "text_classification"
    offer: ClassVar[Offer] = Offer(
        "labels of texts, sentiment for example",
        "text",
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
        lambda column: {"text_column": column},
        architecture="distilbert",
    )

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

        def scores(rows: list[Tokens]) -> np.ndarray:
            batch = tokenizer.pad(rows, padding_side="right", return_tensors="pt").to(device)
            return confidences(model(**batch).logits.float(), config).cpu().numpy()

        def predict(batch: Batch) -> dict:
            tokens = tokenize(texts(batch[self.text_column], self.text_column))
            with torch.inference_mode():
                confidence = self.in_batches(tokens, scores)
            return self.labels(torch.from_numpy(confidence), model.config.id2label)

        return predict
