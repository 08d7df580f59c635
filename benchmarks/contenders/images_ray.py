"""Ray Data by hand, tuned: one actor per core, which decodes (simplejpeg, OpenCV) and runs the model.

Only paths cross between processes. Actors take 0.9 CPU each, so that the small writes always find free CPU. The sizes
of batches and blocks are from trials on two cores.
"""

import ray
from data import image_paths, settings


class DecodeAndEmbed:
    def __init__(self, told: dict) -> None:
        from vision_model import VisionModel

        self.model, self.size = VisionModel(told["model"]), told["size"]

    def __call__(self, batch: dict) -> dict:
        from fast_decode import decode_files

        return {"path": batch["path"], "embedding": self.model(decode_files(list(batch["path"]), self.size))}


if __name__ == "__main__":
    told, out = settings()
    ray.init("local", include_dashboard=False, log_to_driver=False)
    rows = [{"path": path} for path in image_paths(told["images"])]
    ds = ray.data.from_items(rows, override_num_blocks=max(2 * told["cpus"], len(rows) // 256))
    ds = ds.map_batches(
        DecodeAndEmbed, fn_constructor_args=(told,), concurrency=told["cpus"], batch_size=16, num_cpus=0.9
    )
    ds.write_parquet(str(out), ray_remote_args={"num_cpus": 0.1})
