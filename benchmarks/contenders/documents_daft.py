"""Daft's native runner as in its guide to document embedding: download, a UDF for the pages, explode, a class UDF.

Each core has an instance of the embedder with one thread. Pages are split one file at a time, because PDFium is not
thread-safe.
"""

import daft
from daft import DataType, col
from daft.functions import download
from data import settings
from documents import Embedder, chunks

CHUNK = DataType.struct({"row_id": DataType.string(), "text": DataType.string()})


@daft.cls(max_concurrency=1)
class Cut:
    @daft.method(return_dtype=DataType.list(CHUNK))
    def __call__(self, path: str, content: bytes) -> list[dict[str, str]]:
        return [{"row_id": name, "text": text} for name, text in chunks(path.rpartition("/")[2], content)]


def build(told: dict) -> daft.DataFrame:
    @daft.cls(max_concurrency=told["cpus"])
    class Embed:
        def __init__(self) -> None:
            self.embed = Embedder(told, threads=1)

        @daft.method.batch(return_dtype=DataType.fixed_size_list(DataType.float32(), told["dimensions"]), batch_size=64)
        def __call__(self, texts: daft.Series) -> list:
            return list(self.embed(texts.to_pylist()))

    files = daft.from_glob_path(told["documents"].rstrip("/") + "/**/*")
    found = files.select(Cut()(col("path"), download(col("path"))).alias("chunk")).explode("chunk")
    found = found.select(col("chunk").get("row_id").alias("row_id"), col("chunk").get("text").alias("text"))
    return found.select("row_id", Embed()(col("text")).alias("embedding"))


if __name__ == "__main__":
    told, out = settings()
    build(told).write_parquet(str(out))
