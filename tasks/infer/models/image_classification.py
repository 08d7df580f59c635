"""Image classification with any transformers model for it.

In: `image`, uint8 H x W x 3. Out: the columns of `Classifier`. Size and normalisation come from the model's own files.
"""

from typing import ClassVar, Literal

from overnight.tasks.infer.huggingface.image_inputs import ImageEncoder
from overnight.tasks.infer.huggingface.saved_model import Classifier, confidences
from overnight.tasks.infer.predictor import Batch, Offer, Predict


class ImageClassification(Classifier, ImageEncoder):
    """Labels images with one class each, or with several."""

    kind: Literal["image_classification"] = "image_classification"
    offer: ClassVar[Offer] = Offer(
        "labels of images (ResNet, ViT, ...)", "image", "microsoft/resnet-152", architecture="resnet"
    )

    def load(self) -> Predict:
        from transformers import AutoModelForImageClassification

        checkpoint, device = self.checkpoint(), self.torch_device()  # a missing device is found before the load
        model, _ = checkpoint.weights(AutoModelForImageClassification, self.dtype)
        logits = self.encoder(checkpoint, model, device, lambda model, pixels: model(pixel_values=pixels).logits)
        config = model.config

        def predict(batch: Batch) -> dict:
            return self.labels(confidences(logits(batch["image"]), config), config.id2label)

        return predict
