"""Ray Data by hand, divided as in its documentation: tasks read and decode, actors run the model, uint8 in between."""

import ray
from data import settings


def decode_batch(batch: dict, size: int) -> dict:
    import numpy as np
    from fast_decode import decode

    return {"path": batch["path"], "image": np.stack([decode(encoded, size) for encoded in batch["bytes"]])}


class Embed:
    def __init__(self, folder: str) -> None:
        from vision_model import VisionModel

        self.model = VisionModel(folder)

    def __call__(self, batch: dict) -> dict:
        return {"path": batch["path"], "embedding": self.model(batch["image"])}


if __name__ == "__main__":
    told, out = settings()
    ray.init("local", include_dashboard=False, log_to_driver=False)
    ds = ray.data.read_binary_files(told["images"], include_paths=True)
    ds = ds.map_batches(decode_batch, fn_kwargs={"size": told["size"]}, batch_size=64)
    # Half of the cores for the models, the others for reading, decoding and writing. Otherwise the plan stalls.
    ds = ds.map_batches(
        Embed, fn_constructor_args=(told["model"],), concurrency=max(1, told["cpus"] // 2), batch_size=64, num_cpus=1
    )
    ds.write_parquet(str(out))
