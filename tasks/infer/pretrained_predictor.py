"""What predictors share whose model is one that transformers saved."""

from tasks.infer import pretrained
from tasks.infer.checkpoint import Dtype, Model
from tasks.infer.predictor import Predictor
from tasks.infer.token_batches import BATCHES_PER_WINDOW


class PretrainedPredictor(Predictor):
    """A leaf adds `kind`, its own settings and `load`, which finds the model by `pretrained.find`."""

    model: Model
    dtype: Dtype = "float32"

    def imports(self) -> tuple[str, ...]:
        return pretrained.IMPORTS

    def fingerprint(self) -> dict[str, str]:
        return pretrained.fingerprint(self.model)


class TextPredictor(PretrainedPredictor):
    """One whose texts go to the model by length; see token_batches.py."""

    text_column: str

    def inputs(self) -> list[str]:
        return [self.text_column]

    def rows_per_call(self) -> int:
        return BATCHES_PER_WINDOW * self.forward_batch_size()
