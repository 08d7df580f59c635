"""The common part of predictors whose model is saved by transformers."""

from typing import Annotated

from pydantic import Field

from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.huggingface.checkpoint import Dtype, Model
from overnight.tasks.infer.huggingface.length_bucketing import BATCHES_PER_WINDOW, CPU_TOKENS, DEVICE_TOKENS
from overnight.tasks.infer.predictor import Predictor


class PretrainedPredictor(Predictor):
    """A leaf adds `kind`, its own settings and `load`, which finds the model by `model_location.find`."""

    model: Model
    dtype: Dtype = "float32"

    def imports(self) -> tuple[str, ...]:
        return model_location.IMPORTS

    def fingerprint(self) -> dict[str, str]:
        return model_location.fingerprint(self.model)


class TextPredictor(PretrainedPredictor):
    """A predictor whose texts go to the model by length; see length_bucketing.py."""

    text_column: Annotated[str, Field(description="The column that holds the texts.")]

    def inputs(self) -> list[str]:
        return [self.text_column]

    def rows_per_call(self) -> int:
        return BATCHES_PER_WINDOW * self.forward_batch_size()

    def token_budget(self) -> int | None:
        """Return how many tokens a batch may have, including padding, if its size is auto; otherwise None."""
        if self.batch_size != "auto":
            return None
        return DEVICE_TOKENS if self.accelerators() else CPU_TOKENS

    def describe_batch(self) -> str:
        budget, window = self.token_budget(), f"of {self.rows_per_call()} sorted by length"
        return f"texts that fill {budget:,} tokens, {window}" if budget else f"{self.batch_size} texts, {window}"
