"""Daft's native runner: its own download, decoder and resize in Rust, and the model as a class UDF.

It follows Daft's documentation on models: `@daft.cls` with one instance per core, or one with the GPU, and a batch
method. Daft's `resize` takes one size for all rows, so it squashes images instead of cropping them.
"""

import os

import daft
import numpy as np
from daft import DataType, col
from daft.functions import decode_image, download, resize
from daft_workers import workers
from data import settings


def build(told: dict) -> daft.DataFrame:
    @daft.cls(**workers(told))
    class Embed:
        def __init__(self, folder: str) -> None:
            from vision_model import VisionModel

            self.model = VisionModel(folder, device=told.get("device", "cpu"))

        @daft.method.batch(return_dtype=DataType.fixed_size_list(DataType.float32(), told["dimensions"]), batch_size=16)
        def __call__(self, images: daft.Series) -> np.ndarray:
            flat = images.to_arrow().storage.flatten().to_numpy()
            return self.model(flat.reshape(-1, told["size"], told["size"], 3))

    files = daft.from_glob_path(told["images"].rstrip("/") + "/**/*")
    image = decode_image(download(col("path")), mode="RGB")
    image = resize(image, told["size"], told["size"])
    return files.select("path", Embed(told["model"])(image).alias("embedding"))


def connect(told: dict) -> None:
    """Configure Daft for the S3 server if the images are there."""
    if told["images"].startswith("s3://"):
        key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        s3 = daft.io.S3Config(
            endpoint_url=os.environ["AWS_ENDPOINT_URL"], key_id=key, access_key=secret, region_name="us-east-1"
        )
        daft.set_planning_config(default_io_config=daft.io.IOConfig(s3=s3))


if __name__ == "__main__":
    told, out = settings()
    connect(told)
    build(told).write_parquet(str(out))
