"""Ray's own tutorial of batch inference on images, as published, with this benchmark's model instead of CLIP.

https://docs.ray.io/en/latest/ray-overview/examples/e2e-multimodal-ai-workloads/notebooks/01-Batch-Inference.html:
`read_images` decodes at full size, a function is mapped row by row, and an actor runs the processor and the model on
batches of 64. Three things differ. `mode="RGB"` is set, because the published code fails on grey photos. `padding` is
removed, because it is for texts, and image processors now refuse it. Each actor takes a GPU; without a GPU, there is
one actor with a CPU.
"""

import ray
from data import settings


def add_class(row: dict) -> dict:
    row["class"] = row["path"].rsplit("/", 3)[-2]
    return row


class EmbedImages:
    def __init__(self, model_id: str, device: str) -> None:
        from transformers import AutoImageProcessor, CLIPVisionModelWithProjection

        self.processor = AutoImageProcessor.from_pretrained(model_id)
        self.model = CLIPVisionModelWithProjection.from_pretrained(model_id)
        self.model.to(device)
        self.device = device

    def __call__(self, batch: dict) -> dict:
        import numpy as np
        import torch
        from PIL import Image
        from progress import note

        images = [Image.fromarray(np.uint8(image)).convert("RGB") for image in batch["image"]]
        inputs = self.processor(images=images, return_tensors="pt").to(self.device)
        with torch.inference_mode():
            batch["embedding"] = self.model(**inputs).image_embeds.cpu().numpy()
        note(len(images))
        return batch


if __name__ == "__main__":
    told, out = settings()
    ray.init("local", include_dashboard=False, log_to_driver=False)
    ds = ray.data.read_images(told["images"], include_paths=True, shuffle="files", mode="RGB")
    ds = ds.map(add_class)
    ds = ds.map_batches(
        EmbedImages,
        fn_constructor_kwargs={"model_id": told["model"], "device": told.get("device", "cpu")},
        concurrency=1,
        batch_size=64,
        num_cpus=1,
        num_gpus=told.get("gpus", 0),
    )
    ds.drop_columns(["image"]).write_parquet(str(out))
