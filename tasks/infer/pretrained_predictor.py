"""What predictors share whose model is one that transformers saved."""

from tasks.infer import pretrained
from tasks.infer.checkpoint import Dtype, Model
from tasks.infer.predictor import Predictor


class PretrainedPredictor(Predictor):
    """A leaf adds `kind`, its own settings and `load`, which finds the model by `pretrained.find`."""

    model: Model
    dtype: Dtype = "float32"

    def imports(self) -> tuple[str, ...]:
        return pretrained.IMPORTS

    def fingerprint(self) -> dict[str, str]:
        return pretrained.fingerprint(self.model)
