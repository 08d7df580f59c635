"""Descriptions of images by a vision-language model of transformers (LLaVA, Qwen-VL, SmolVLM).

In: images, as uint8 RGB arrays or the bytes of files, and the columns of `system`, `user` and
`messages`. Out: as in chat/settings.py; `generated_text` is the caption. The model's own processor
resizes images of any size, which takes less time if a step makes them only a little larger than
the model's size.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from PIL import Image
from pydantic import Field, model_validator

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.local_chat import LocalChat
from overnight.tasks.infer.chat.media import picture
from overnight.tasks.infer.chat.messages import Content, Message, Part, media_columns, text_of
from overnight.tasks.infer.chat.settings import User
from overnight.tasks.infer.predictor import Offer, Predict

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
    user: Annotated[
        User,
        Field(
            description="The user's message, after the column image: a text with {column} for values. Or a list of "
            "parts, which names its images itself."
        ),
    ] = "Describe this image in one sentence."

    takes: ClassVar[tuple[str, ...]] = ("image",)

    def user_content(self) -> Content | None:
        if self.messages or not isinstance(self.user, str):
            return super().user_content()
        return [Part(image="image"), Part(text=self.user)]

    @model_validator(mode="after")
    def _has_an_image(self) -> Self:
        if not self.messages and not media_columns(self.user_content()):
            raise ValueError("user: expected a part with an image, found texts. Add {image: image}, or use kind: chat")
        return self

    def shown(self, messages: Sequence[Message]) -> list[Message]:
        shown = []
        for message in messages:
            parts = parts_in(message["content"])
            shown.append({**message, "content": list(map(_shown, parts))})
        return shown

    def load(self) -> Predict:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        checkpoint = self.checkpoint()
        processor = checkpoint.load(AutoProcessor)
        tokenizer = getattr(processor, "tokenizer", None)
        if tokenizer is None:
            raise checkpoint.unusable(f"expected a processor of images and texts, found a {type(processor).__name__}")
        tokenizer.padding_side = "left"
        return self.answering(checkpoint, processor, tokenizer, AutoModelForImageTextToText)

    def features(
        self, processor: Any, conversations: Sequence[Sequence[Message]], prompts: list[str]
    ) -> Mapping[str, "torch.Tensor"]:
        features: Mapping[str, torch.Tensor] = processor(
            images=list(map(_images, conversations)),
            text=prompts,
            padding=True,
            return_tensors="pt",
            add_special_tokens=False,  # the template has added its own
        )
        return features


def parts_in(content: Any) -> list[Any]:
    """Return the parts of a message's content; a text is one part."""
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def _shown(part: Any) -> Message:
    """Return a part in the form of chat templates, which get no image itself."""
    if _image(part) is not None:
        return {"type": "image"}
    if isinstance(part, Mapping) and part.get("type") == "image":
        raise RowError("messages: expected a part with its image, found one without.")
    return {"type": "text", "text": text_of([part])}


def _image(part: Any) -> Any:
    """Return the image of a part: a value, or the URL of an `image_url`. None: it has none."""
    if not isinstance(part, Mapping):
        return None
    if part.get("type") != "image_url":
        return part.get("image")
    link = part.get("image_url")
    return link.get("url") if isinstance(link, Mapping) else link


def _images(messages: Sequence[Message]) -> list[Image.Image]:
    images = []
    for message in messages:
        for part in parts_in(message["content"]):
            if (value := _image(part)) is not None:
                images.append(picture(value))
    if not images:
        raise RowError("messages: expected at least one image in each conversation, found none. Use kind: chat.")
    return images
