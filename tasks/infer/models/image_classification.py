"""Image classification with any transformers model for it.

In: `image`, uint8 H x W x 3. Out: the columns of `class_labels.py`. Size and normalisation come from the model's own
files.
"""

from typing import ClassVar, Literal

from overnight.tasks.infer.huggingface.class_labels import TopK, columns_of, confidences, labelled
from overnight.tasks.infer.huggingface.image_inputs import build_image_encoder, image_calls, placed
from overnight.tasks.infer.huggingface.predictor import PretrainedPredictor
from overnight.tasks.infer.predictor import Batch, Offer, Predict


class ImageClassification(PretrainedPredictor):
    """Labels images with one class each, or with several."""

    kind: Literal["image_classification"] = "image_classification"
    offer: ClassVar[Offer] = Offer(
        "labels of images (ResNet, ViT, ...)", "image", "microsoft/resnet-152", architecture="resnet"
    )
    top_k: TopK = 1

    def inputs(self) -> list[str]:
        return ["image"]

    def calls_at_once(self) -> int:
        return image_calls(self.accelerators())

    def outputs_made(self) -> list[str] | None:
        return columns_of(self.top_k)

    def load(self) -> Predict:
        from transformers import AutoModelForImageClassification

        device = self.torch_device()
        checkpoint = self.checkpoint()
        model, _ = checkpoint.weights(AutoModelForImageClassification, self.dtype)
        model = placed(model, device)
        logits = build_image_encoder(
            checkpoint, device, lambda pixels: model(pixel_values=pixels.to(model.dtype)).logits
        )
        config = model.config

        def predict(batch: Batch) -> dict:
            return labelled(confidences(logits(batch["image"]), config), config.id2label, self.top_k)

        return predict
