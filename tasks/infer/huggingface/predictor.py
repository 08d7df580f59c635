"""The common part of predictors whose model is saved by transformers."""

from typing import Annotated

from pydantic import Field

from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint, Dtype, Model
from overnight.tasks.infer.huggingface.length_bucketing import BATCHES_PER_WINDOW, CPU_TOKENS, DEVICE_TOKENS
from overnight.tasks.infer.predictor import Predictor, TorchPredictor


class SavedModel(Predictor):
    """The settings of a model that transformers saved: its place, and whether its code may run.

    A leaf adds `load`, which calls `checkpoint`.
    """

    model: Model
    revision: Annotated[
        str | None,
        Field(
            min_length=1,
            description="The commit, tag or branch of a hub model; default: the main branch. The run records its "
            "commit, and all workers use that commit.",
        ),
    ] = None
    trust_remote_code: Annotated[
        bool,
        Field(
            description="Runs the code that the model brings along, with the rights of the workers. A hub model needs "
            "a full commit as revision."
        ),
    ] = False

    def fingerprint(self) -> dict[str, str]:
        return model_location.fingerprint(self.model, self.revision, self.trust_remote_code)

    def limits_gpu_memory(self) -> bool:
        return True

    def hub_name(self) -> str | None:
        if not model_location.hub_name(self.model):
            return None
        return f"{self.model}@{self.revision}" if self.revision else self.model

    def hub_commit(self) -> str | None:
        return model_location.hub_commit(self.model, self.revision)

    def warnings(self) -> list[str]:
        if not self.trust_remote_code:
            return []
        return [f"{self.shown_name()}: trust_remote_code ran the code of {self.hub_name() or self.model}."]

    def checkpoint(self) -> Checkpoint:
        """Return the model as a `Checkpoint`, found but not yet loaded. Raise `JobError` if there is no such model."""
        return model_location.find(self.model, self.revision, self.trust_remote_code, self.pins)


class PretrainedPredictor(TorchPredictor, SavedModel):
    """A saved model with a number type; a leaf adds `kind`, its own settings and `load`."""

    dtype: Dtype = "float32"

    def imports(self) -> tuple[str, ...]:
        return model_location.IMPORTS


class TextPredictor(PretrainedPredictor):
    """A saved model that gets texts in batches of similar length; see length_bucketing.py."""

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
        return f"texts that fill {budget:,} tokens, {window}" if budget else f"{self.batch_size} texts, {window}"
