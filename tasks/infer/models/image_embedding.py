"""Image embeddings from any transformers vision model.

In: `image`, uint8 H x W x 3. Out: `embedding`, float32 N x D, the model's output, never normalised. CLIP, SigLIP and
similar models return features in the space shared with text (`get_image_features`). Other models return their pooled
output, such as ViT's pooler, DINOv2's class token, or ResNet's average over the image.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from overnight.tasks.infer.huggingface.checkpoint import Checkpoint, Dtype
from overnight.tasks.infer.huggingface.image_inputs import ImageEncoder
from overnight.tasks.infer.predictor import Batch, Offer, Predict

if TYPE_CHECKING:
    import torch


class ImageEmbedding(ImageEncoder):
    """Turns images into vectors."""

    kind: Literal["image_embedding"] = "image_embedding"
    offer: ClassVar[Offer] = Offer(
        "vectors of images, for search and clustering (CLIP, DINOv2, ...)",
        "image",
        "openai/clip-vit-base-patch32",
        architecture="clip",
    )

    def outputs_made(self) -> list[str] | None:
        return ["embedding"]

    def load(self) -> Predict:
        checkpoint, device = self.checkpoint(), self.torch_device()  # a missing device is found before the load
        model, has_pooler = _vision_model(checkpoint, self.dtype)

        def forward(model: Any, pixels: "torch.Tensor") -> "torch.Tensor":
            embedding = _embedding(model, has_pooler, pixels)
            if embedding.ndim != 2:
                shape = " x ".join(map(str, embedding.shape[1:]))
                raise checkpoint.unusable(f"expected one vector per image, found {shape}. Use kind: python for it")
            return embedding

        embed = self.encoder(checkpoint, model, device, forward)

        def predict(batch: Batch) -> dict:
            return {"embedding": embed(batch["image"]).numpy()}

        return predict


def _vision_model(checkpoint: Checkpoint, dtype: Dtype) -> tuple[Any, bool]:
    from transformers import AutoConfig, AutoModel, CLIPVisionModelWithProjection

    config = checkpoint.load(AutoConfig)
    if config.model_type == "clip":
        # The nested settings keep their default of 512 if only the outer ones have the width.
        config.vision_config.projection_dim = config.projection_dim
        return checkpoint.weights(CLIPVisionModelWithProjection, dtype, config=config.vision_config)
    if "CLIPVisionModelWithProjection" in (config.architectures or []):
        return checkpoint.weights(CLIPVisionModelWithProjection, dtype)
    return checkpoint.weights(AutoModel, dtype, optional="pooler")


def _embedding(model: Any, has_pooler: bool, pixels: "torch.Tensor") -> "torch.Tensor":
    if hasattr(model, "get_image_features"):
        return model.get_image_features(pixel_values=pixels).pooler_output
    output = model(pixel_values=pixels)
    if "image_embeds" in output:
        return output.image_embeds
    if has_pooler and output.get("pooler_output") is not None:
        vectors = output.pooler_output
        return vectors.flatten(1) if vectors.shape[2:].numel() == 1 else vectors
    hidden = output.last_hidden_state
    if hidden.ndim == 4:
        return hidden.mean((2, 3))
    # The checkpoint has no weights for its pooler, for example because it was trained to classify.
    has_class_token = any(name.split(".")[-1] == "cls_token" for name, _ in model.named_parameters())
    return hidden[:, 0] if has_class_token else hidden.mean(1)
