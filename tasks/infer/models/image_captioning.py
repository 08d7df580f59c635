"""Descriptions of images by a vision-language model of transformers (LLaVA, Qwen-VL, SmolVLM).

In: `image`, uint8 RGB arrays, and the columns that `system` and `user` name. Out: as in
chat/settings.py; `generated_text` is the caption. The model's own processor resizes images of any
size, which takes less time if a step makes them only a little larger than the model's size.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from PIL import Image
from pydantic import Field

from overnight.tasks.infer.chat.local_chat import LocalChat
from overnight.tasks.infer.chat.settings import Message
from overnight.tasks.infer.huggingface.media import require_image
from overnight.tasks.infer.predictor import Batch, Offer, Predict

if TYPE_CHECKING:
    import torch


class ImageCaptioning(LocalChat):
    """Answers chat messages about an image by a vision-language model."""

    kind: Literal["image_captioning"] = "image_captioning"
    offer: ClassVar[Offer] = Offer(
        "descriptions of images (SmolVLM, LLaVA, ...)",
        "image",
        "HuggingFaceTB/SmolVLM-256M-Instruct",
        lambda column: {"user": "Describe the photo in one sentence."},
        whole_images=True,
        architecture="idefics3",
    )
    user: Annotated[str, Field(min_length=1, description="The user's message, with {column} for values.")] = (
        "Describe this image in one sentence."
    )

    def inputs(self) -> list[str]:
        return list(dict.fromkeys(["image", *super().inputs()]))

    def message(self, role: str, text: str) -> Message:
        parts = [{"type": "text", "text": text}]
        if role == "user":
            parts.insert(0, {"type": "image"})
        return {"role": role, "content": parts}

    def load(self) -> Predict:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        checkpoint = self.checkpoint()
        processor = checkpoint.load(AutoProcessor)
        tokenizer = getattr(processor, "tokenizer", None)
        if tokenizer is None:
            raise checkpoint.unusable(f"expected a processor of images and texts, found a {type(processor).__name__}")
        tokenizer.padding_side = "left"
        return self.answering(checkpoint, processor, tokenizer, AutoModelForImageTextToText)

    def features(self, processor: Any, batch: Batch, prompts: list[str]) -> Mapping[str, "torch.Tensor"]:
        features: Mapping[str, torch.Tensor] = processor(
            images=[[Image.fromarray(require_image(image))] for image in batch["image"]],
            text=prompts,
            padding=True,
            return_tensors="pt",
            add_special_tokens=False,  # the template has added its own
        )
        return features
