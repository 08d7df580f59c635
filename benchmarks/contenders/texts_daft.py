"""Daft's native runner with sentence-transformers in a class UDF, as in its guide to embeddings of texts."""

import daft
import numpy as np
from daft import DataType, col
from daft_workers import workers
from data import settings


def build(told: dict) -> daft.DataFrame:
    @daft.cls(**workers(told))
    class Embed:
        def __init__(self) -> None:
            from sentence_transformers import SentenceTransformer

            self.model = SentenceTransformer(told["model"], device=told.get("device", "cpu")).eval()

        @daft.method.batch(
            return_dtype=DataType.fixed_size_list(DataType.float32(), told["dimensions"]), batch_size=512
        )
        def __call__(self, texts: daft.Series) -> np.ndarray:
            return self.model.encode(texts.to_pylist(), batch_size=32, show_progress_bar=False)

    rows = daft.read_parquet(told["texts"])
    return rows.select("id", Embed()(col("text")).alias("embedding"))


if __name__ == "__main__":
    told, out = settings()
    build(told).write_parquet(str(out))
