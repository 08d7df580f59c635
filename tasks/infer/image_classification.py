"""Image classification with any transformers model that does it.

In: `image`, uint8 H x W x 3. Out: `predicted_label` (string, from the model's id2label) and `confidence` (float32, its
softmax probability), each one a row. Size and normalisation are those of the model's own files.
"""

from typing import Literal

from tasks.infer import pretrained
from tasks.infer.checkpoint import Dtype, Model
from tasks.infer.pixels import image_function
from tasks.infer.predictor import Batch, Predict, Predictor


class ImageClassification(Predictor):
    """Labels images with one class each."""

    kind: Literal["image_classification"] = "image_classification"
    model: Model
    dtype: Dtype = "float32"

    def inputs(self) -> list[str]:
        return ["image"]

    def fingerprint(self) -> dict[str, str]:
        return pretrained.fingerprint(self.model)

    def load(self) -> Predict:
        from transformers import AutoModelForImageClassification

        device = pretrained.device(self.num_gpus)
        checkpoint = pretrained.find(self.model)
        model, _ = checkpoint.weights(AutoModelForImageClassification, self.dtype)
        model = model.to(device)
        logits = image_function(checkpoint, device, lambda pixels: model(pixel_values=pixels.to(model.dtype)).logits)
        labels = model.config.id2label

        def predict(batch: Batch) -> dict:
            confidence, index = logits(batch["image"]).softmax(-1).max(-1)
            return {"predicted_label": [labels[i] for i in index.tolist()], "confidence": confidence.numpy()}

        return predict
