"""Object detection with any transformers model similar to DETR (DETR, YOLOS, RT-DETR, ...).

In: `image`, uint8 H x W x 3. Out: one list per row with one entry for each object with a score above `threshold`, the
highest score first: `boxes` (lists of four float32: left, top, right and bottom in pixels of `image`), `labels`
(strings, from the model's id2label) and `scores` (float32).
"""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.infer.huggingface.image_inputs import ImagePredictor
from overnight.tasks.infer.huggingface.media import require_image
from overnight.tasks.infer.predictor import Batch, Offer, Predict

TYPES = {
    "boxes": pa.list_(pa.list_(pa.float32())),
    "labels": pa.list_(pa.string()),
    "scores": pa.list_(pa.float32()),
}


class ObjectDetection(ImagePredictor):
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

        def detect(images: list[np.ndarray]) -> list[dict[str, list[Any]]]:
            inputs = processor(images=images, return_tensors="pt", input_data_format="channels_last")
            values = {name: inputs[name].to(device) for name in ("pixel_values", "pixel_mask") if name in inputs}
            values["pixel_values"] = values["pixel_values"].to(model.dtype)
            with torch.inference_mode():
                outputs = model(**values)
            outputs.logits, outputs.pred_boxes = outputs.logits.float(), outputs.pred_boxes.float()
            sizes = [image.shape[:2] for image in images]
            results = processor.post_process_object_detection(outputs, threshold=self.threshold, target_sizes=sizes)
            objects = []
            for result in results:
                order = result["scores"].argsort(descending=True, stable=True)
                numbers = result["labels"][order].tolist()
                objects.append(
                    {
                        "boxes": result["boxes"][order].tolist(),
                        "labels": [names[number] for number in numbers],
                        "scores": result["scores"][order].tolist(),
                    }
                )
            return objects

        def predict(batch: Batch) -> dict:
            images = batch["image"]
            rows_by_shape: dict[tuple[int, ...], list[int]] = {}
            for row, image in enumerate(images):
                rows_by_shape.setdefault(require_image(image).shape, []).append(row)
            results: list[Any] = [None] * len(images)
            for rows in rows_by_shape.values():
                for row, objects in zip(rows, detect([images[row] for row in rows]), strict=True):
                    results[row] = objects
            columns = {}
            for name, kind in TYPES.items():
                columns[name] = pa.array([objects[name] for objects in results], kind)
            return columns

        return predict
