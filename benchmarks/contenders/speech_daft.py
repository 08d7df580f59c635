"""Daft's native runner as in its guide to transcription: download, and a class UDF that decodes and transcribes.

Each core has an instance with one thread, or the GPU has one.
"""

import daft
from daft import DataType, col
from daft.functions import download
from daft_workers import workers
from data import settings
from speech import Whisper, decoded


def build(told: dict) -> daft.DataFrame:
    @daft.cls(**workers(told))
    class Transcribe:
        def __init__(self) -> None:
            self.whisper = Whisper(told, threads=1)

        @daft.method.batch(return_dtype=DataType.string(), batch_size=16)
        def __call__(self, contents: daft.Series) -> list:
            return self.whisper([decoded(content) for content in contents.to_pylist()])

    files = daft.from_glob_path(told["sounds"].rstrip("/") + "/**/*")
    return files.select("path", Transcribe()(download(col("path"))).alias("transcription"))


if __name__ == "__main__":
    told, out = settings()
    build(told).write_parquet(str(out))
