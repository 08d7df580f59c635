"""Descriptions of images by a vision-language model of transformers (LLaVA, Qwen-VL, SmolVLM).

In: `image`, uint8 RGB arrays, and the columns that `system` and `user` name. Out: as in
chat/settings.py; `generated_text` is the caption. The model's own processor resizes images of any
size, which takes less time if a step makes them only a little larger than the model's size.
"""

import inspect
from typing import Annotated, ClassVar, Literal

from PIL import Image
from pydantic import Field

from overnight.tasks.infer.chat.local_chat import LocalChat
from overnight.tasks.infer.chat.settings import Message
from overnight.tasks.infer.huggingface.device_map import load_on_devices
from overnight.tasks.infer.huggingface.generation import Generation
from overnight.tasks.infer.huggingface.image_inputs import require_image
from overnight.tasks.infer.predictor import Batch, Offer, Predict
from overnight.tasks.rows.result import Outcome


class ImageCaptioning(LocalChat):
    """Answers chat messages about an image by a vision-language model."""

    kind: Literal["image_captioning"] = "image_captioning"
    offer: ClassVar[Offer] = Offer(
        "descriptions of images (SmolVLM, LLaVA, ...)",
        "image",
        "HuggingFaceTB/SmolVLM-256M-Instruct",
        whole_images=True,
        architecture="idefics3",
    )
    user: Annotated[str, Field(min_length=1, description="The user's message, with {column} for values.")] = (
        "Describe this image in one sentence."
    )

    def inputs(self) -> list[str]:
        return list(dict.fromkeys(["image", *super().inputs()]))

    def messages(self, batch: Batch) -> list[list[Message]]:
        return [[_with_parts(message) for message in messages] for messages in super().messages(batch)]

    def load(self) -> Predict:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        checkpoint = self.checkpoint()
        processor = checkpoint.load(AutoProcessor)
        tokenizer = getattr(processor, "tokenizer", None)
        if tokenizer is None:
            raise checkpoint.unusable(f"expected a processor of images and texts, found a {type(processor).__name__}")
        tokenizer.padding_side = "left"
        example = [_with_parts({"role": role, "content": "text"}) for role in self.roles()]
        self.refuse_template(checkpoint, processor, example)
        model, device = load_on_devices(checkpoint, AutoModelForImageTextToText, self)
        generation = Generation(checkpoint, tokenizer, model, self.max_new_tokens)
        arguments = inspect.signature(model.forward).parameters

        def predict(batch: Batch) -> Outcome:
            images = [Image.fromarray(require_image(image)) for image in batch["image"]]
            prompts = self.prompts(processor, self.messages(batch))
            features = processor(
                images=[[image] for image in images],
                text=prompts,
                padding=True,
                return_tensors="pt",
                add_special_tokens=False,  # the template has added its own
            ).to(device, dtype=model.dtype)
            inputs = {name: values for name, values in features.items() if name in arguments}
            return self.answered(generation, inputs, batch, prompts, device)

        return predict


def _with_parts(message: Message) -> Message:
    """Return the message in the form for processors; a user's message begins with the image."""
    parts = [{"type": "text", "text": message["content"]}]
    if message["role"] == "user":
        parts.insert(0, {"type": "image"})
    return {**message, "content": parts}
