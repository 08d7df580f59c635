"""Daft's native runner: its own download and decoder; it writes the names of the rows."""

import daft
from daft import DataType, col
from daft.functions import decode_image, download
from data import settings
from images_daft import connect


@daft.func.batch(return_dtype=DataType.int64())
def noted(images: daft.Series) -> daft.Series:
    from progress import note

    note(len(images))
    return daft.Series.from_pylist([1] * len(images))


if __name__ == "__main__":
    told, out = settings()
    connect(told)
    files = daft.from_glob_path(told["images"].rstrip("/") + "/**/*")
    image = decode_image(download(col("path")), mode="RGB")
    files.select("path", noted(image).alias("decoded")).write_parquet(str(out))
