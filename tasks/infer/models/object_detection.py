"""Object detection with any transformers model similar to DETR (DETR, YOLOS, RT-DETR, ...).

In: `image`, uint8 H x W x 3. Out: one list per row with one entry for each object with a score above `threshold`, the
highest score first: `boxes` (lists of four float32: left, top, right and bottom in pixels of `image`), `labels`
(strings, from the model's id2label) and `scores` (float32).

Images of one size go through the model together, others separately: no image is padded to another's size, which would
move its boxes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.infer.huggingface.image_inputs import require_image
from overnight.tasks.infer.huggingface.predictor import PretrainedPredictor
from overnight.tasks.infer.predictor import Batch, Offer, Predict

if TYPE_CHECKING:
    import torch

Found = list[tuple[float, str, list[float]]]  # score, label, box
TYPES = {
    "boxes": pa.list_(pa.list_(pa.float32())),
    "labels": pa.list_(pa.string()),
    "scores": pa.list_(pa.float32()),
}


class ObjectDetection(PretrainedPredictor):
    """Finds objects in images."""

    kind: Literal["object_detection"] = "object_detection"
    offer: ClassVar[Offer] = Offer(
        "objects in images, with boxes (YOLOS, DETR, ...)",
        "image",
        "hustvl/yolos-tiny",
        whole_images=True,
        architecture="yolos",
    )
    threshold: Annotated[float, Field(ge=0, le=1, description="Objects with a lower score are left out.")] = 0.5

    def inputs(self) -> list[str]:
        return ["image"]

    def outputs_made(self) -> list[str] | None:
        return list(TYPES)

    def load(self) -> Predict:
        import torch
        from transformers import AutoImageProcessor, AutoModelForObjectDetection

        device = self.torch_device()
        checkpoint = self.checkpoint()
        processor = checkpoint.load(AutoImageProcessor, backend="pil")
        model, _ = checkpoint.weights(AutoModelForObjectDetection, self.dtype)
        model = model.to(device)
        names = model.config.id2label

        def detect(images: list[np.ndarray]) -> list[Found]:
            given = processor(images=images, return_tensors="pt", input_data_format="channels_last")
            values = {name: value.to(device) for name, value in given.items() if name in ("pixel_values", "pixel_mask")}
            values["pixel_values"] = values["pixel_values"].to(model.dtype)
            with torch.inference_mode():
                outputs = model(**values)
            outputs.logits, outputs.pred_boxes = outputs.logits.float(), outputs.pred_boxes.float()
            sizes = [image.shape[:2] for image in images]
            made = processor.post_process_object_detection(outputs, threshold=self.threshold, target_sizes=sizes)
            return [_sorted(one, names) for one in made]

        def predict(batch: Batch) -> dict:
            found: list[Found] = [[] for _ in batch["image"]]
            for places in _of_one_size(batch["image"]):
                for place, objects in zip(places, detect([batch["image"][place] for place in places]), strict=True):
                    found[place] = objects
            columns = {
                "boxes": [[box for *_, box in row] for row in found],
                "labels": [[label for _, label, _ in row] for row in found],
                "scores": [[score for score, *_ in row] for row in found],
            }
            return {name: pa.array(values, TYPES[name]) for name, values in columns.items()}

        return predict


def _sorted(made: "dict[str, torch.Tensor]", names: dict[int, str]) -> Found:
    labels = [names[number] for number in made["labels"].tolist()]
    found = list(zip(made["scores"].tolist(), labels, made["boxes"].tolist(), strict=True))
    return sorted(found, key=lambda item: -item[0])


def _of_one_size(images: Iterable[Any]) -> list[list[int]]:
    """Return the places of images by their shape. Raise `RowError` if a value is not an image."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, image in enumerate(images):
        places.setdefault(require_image(image).shape, []).append(place)
    return list(places.values())
